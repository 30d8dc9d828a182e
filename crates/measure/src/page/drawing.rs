//! The drawing of a figure, as SVG. Every mark has its values as a title, which browsers show under the
//! pointer.

use crate::page::curves::Curve;
use crate::page::scale::{self, Direction, Scale};
use crate::page::units::Unit;
use crate::results::{Axis, Figure, Point, Scale as Kind};
use maud::{Markup, html};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
/// Above the area: the name of the vertical axis. Below: labels, and the name of the horizontal
/// one.
const TOP: f64 = 30.0;
const INSIDE: f64 = TOP - 4.0;
const BOTTOM: f64 = 48.0;
const RIGHT: f64 = 18.0;
/// A letter of a label is about as wide.
const LETTER: f64 = 6.6;

/// The SVG.
pub(crate) fn draw(figure: &Figure, curves: &[Curve]) -> Markup {
    let points = || curves.iter().flat_map(|curve| curve.points.iter());
    let (x_unit, y_unit) = (x_unit(figure), y_unit(figure));
    let y = Scale::over(
        heights(curves),
        is_logarithmic(&figure.y),
        Direction::Up,
        (HEIGHT - BOTTOM, TOP),
    );
    let y_ticks = labelled(&y, y_unit, 6);
    let is_empty = !points().any(|point| {
        let shown = |value, axis| scale::shown(value, is_logarithmic(axis));
        shown(point.x, &figure.x) && shown(point.median, &figure.y)
    });
    let longest = y_ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
    let left = 14.0 + LETTER * longest as f64;
    let right = WIDTH - RIGHT;
    let x = Scale::over(
        points().map(|point| point.x),
        is_logarithmic(&figure.x),
        Direction::Across,
        (left, right),
    );
    let (x_ticks, y_ticks) =
        if is_empty { (Vec::new(), Vec::new()) } else { (labelled(&x, x_unit, 8), y_ticks) };
    let exactly = |unit: Unit, axis: &Axis, value: f64| match unit {
        Unit::Plain | Unit::Whole => format!("{} {}", unit.exact(value), axis.unit),
        Unit::Bytes | Unit::Time(_) => unit.exact(value),
    };
    let axes = Axes {
        x: &x,
        y: &y,
        across: &|value| {
            format!("{}: {}", figure.x.label, exactly(x_unit, &figure.x, value).trim_end())
        },
        up: &|value| exactly(y_unit, &figure.y, value).trim_end().to_owned(),
    };
    html! {
        svg.drawing viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(figure.title) {
            @for (place, label) in &y_ticks {
                line.grid x1=(left) x2=(right) y1=(place) y2=(place) {}
                text.tick.end x=(left - 8.0) y=(place + 4.0) { (label) }
            }
            @for (place, label) in x_ticks {
                line.stroke x1=(place) x2=(place) y1=(HEIGHT - BOTTOM) y2=(HEIGHT - BOTTOM + 5.0) {}
                text.tick.middle x=(place) y=(HEIGHT - BOTTOM + 20.0) { (label) }
            }
            line.axis x1=(left) x2=(right) y1=(HEIGHT - BOTTOM) y2=(HEIGHT - BOTTOM) {}
            text.name x="2" y="16" { (title(&figure.y)) }
            text.name.end x=(right) y=(HEIGHT - 8.0) { (title(&figure.x)) }
            // A nested SVG, which clips its content.
            svg y=(INSIDE) width=(WIDTH) height=(HEIGHT - INSIDE) viewBox=(format!("0 {INSIDE} {WIDTH} {}", HEIGHT - INSIDE)) {
                @for curve in curves { (draw_curve(curve, &axes)) }
            }
            @if is_empty {
                text.empty.middle x=((left + right) / 2.0) y=(HEIGHT / 2.0) { "nothing to draw" }
            }
        }
    }
}

/// Label of an axis, with its unit unless its ticks have one.
fn title(axis: &Axis) -> String {
    match Unit::of(&axis.unit, std::iter::empty()) {
        Unit::Plain | Unit::Whole if !axis.unit.is_empty() => {
            format!("{} ({})", axis.label, axis.unit)
        }
        _ => axis.label.clone(),
    }
}

/// Unit of the horizontal axis.
fn x_unit(figure: &Figure) -> Unit {
    let points = figure.series.iter().flat_map(|series| &series.points);
    Unit::of(&figure.x.unit, points.map(|point| point.x))
}

/// Unit of the vertical axis.
fn y_unit(figure: &Figure) -> Unit {
    let points = figure.series.iter().flat_map(|series| &series.points);
    Unit::of(&figure.y.unit, points.map(|point| point.median))
}

/// Returns true if an axis is logarithmic at first.
fn is_logarithmic(axis: &Axis) -> bool {
    axis.scale == Kind::Logarithmic
}

/// Places and words of values.
struct Axes<'a> {
    x: &'a Scale,
    y: &'a Scale,
    across: &'a dyn Fn(f64) -> String,
    up: &'a dyn Fn(f64) -> String,
}

fn draw_curve(curve: &Curve, axes: &Axes) -> Markup {
    let Axes { x, y, .. } = *axes;
    let places: Vec<Option<(f64, f64)>> = curve
        .points
        .iter()
        .map(|point| Some((x.place(point.x)?, y.place(point.median)?)))
        .collect();
    html! {
        g class=(curve.classes()) {
            title { (curve.name) }
            @if curve.is_joined() {
                path.band d=(band(curve.points, x, y)) {}
                path.line d=(line(&places)) {}
            }
            @if curve.is_marked() { (marks(curve, &places, axes)) }
        }
    }
}

/// The values of a point, a line each.
fn values(curve: &Curve, point: &Point, axes: &Axes) -> String {
    let Point { x, median, minimum, lower_quartile, upper_quartile, maximum, repetitions } = *point;
    let mut lines = vec![curve.name.clone(), (axes.across)(x)];
    if repetitions == 0 {
        lines.push((axes.up)(median));
    } else {
        lines.push(format!("median {} of {repetitions}", (axes.up)(median)));
    }
    let ranges = [("quartiles", lower_quartile, upper_quartile), ("range", minimum, maximum)];
    for (name, low, high) in ranges {
        if let (Some(low), Some(high)) = (low, high) {
            lines.push(format!("{name} {} to {}", (axes.up)(low), (axes.up)(high)));
        }
    }
    lines.join("\n")
}

/// A line through places; it is broken where there is none.
fn line(places: &[Option<(f64, f64)>]) -> String {
    let mut path = String::new();
    let mut pen = "M";
    for place in places {
        match place {
            Some((x, y)) => {
                path.push_str(&format!("{pen}{x:.1} {y:.1}"));
                pen = "L";
            }
            None => pen = "M",
        }
    }
    path
}

/// The area between the quartiles, an outline for each unbroken run of points that have both.
fn band(points: &[Point], x: &Scale, y: &Scale) -> String {
    let ends = |point: &Point| {
        let lower = y.place(point.lower_quartile?)?;
        let upper = y.place(point.upper_quartile?)?;
        Some((x.place(point.x)?, lower, upper))
    };
    let ends: Vec<Option<(f64, f64, f64)>> = points.iter().map(ends).collect();
    let mut path = String::new();
    for run in ends.split(Option::is_none).filter(|run| run.len() > 1) {
        let upper = run.iter().flatten().map(|(x, _, upper)| (x, upper));
        let lower = run.iter().flatten().rev().map(|(x, lower, _)| (x, lower));
        let outline: Vec<String> =
            upper.chain(lower).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        path.push_str(&format!("M{}z", outline.join("L")));
    }
    path
}

fn marks(curve: &Curve, places: &[Option<(f64, f64)>], axes: &Axes) -> Markup {
    // Marks that touch would hide the line.
    const MANY: usize = 100;
    if places.len() > MANY && curve.is_joined() && curve.other {
        return html! {};
    }
    let radius = if places.len() > MANY { 1.8 } else { 3.0 };
    let places = curve.points.iter().zip(places);
    let marked = places.filter_map(|(point, place)| place.map(|place| (point, place)));
    html! {
        g.marks {
            @for (point, (x, y)) in marked {
                path d=(curve.mark.path(x, y, radius)) { title { (values(curve, point, axes)) } }
            }
        }
    }
}

/// Values that determine the vertical range. Where a few repetitions took very long, their band may
/// stretch it a little, and not press the curves flat.
fn heights(curves: &[Curve]) -> impl Iterator<Item = f64> {
    const BAND_STRETCH: f64 = 1.5;
    let points = || curves.iter().flat_map(|curve| curve.points.iter());
    let greatest =
        points().map(|point| point.median).filter(|median| median.is_finite()).fold(0.0, f64::max);
    let bands = points().flat_map(|point| [point.lower_quartile, point.upper_quartile]).flatten();
    let bands = bands.map(move |value| value.min(BAND_STRETCH * greatest));
    points().map(|point| point.median).chain(bands)
}

fn labelled(scale: &Scale, unit: Unit, wanted: usize) -> Vec<(f64, String)> {
    let ticks = scale.ticks(wanted, unit.rounding());
    ticks.into_iter().filter_map(|tick| Some((scale.place(tick)?, unit.tick(tick)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::curves;
    use crate::results::{Role, Series};

    fn drawn(points: Vec<Point>) -> String {
        let axes = (Axis::bytes("size").logarithmic(), Axis::microseconds("time").logarithmic());
        let mut figure = Figure::new("f", "A <figure> & more", axes.0, axes.1);
        figure.series.push(Series { name: "a".into(), role: Role::Measured, points });
        draw(&figure, &curves::of(&figure, None)).into_string()
    }

    #[test]
    fn nothing_to_draw_is_said() {
        for points in [vec![], vec![Point::exact(1.0, f64::NAN)], vec![Point::exact(0.0, 5.0)]] {
            let drawing = drawn(points);
            assert!(drawing.contains("nothing to draw"), "{drawing}");
            assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
        }
    }

    #[test]
    fn one_point_has_a_mark() {
        let drawing = drawn(vec![Point::exact(64.0, 5.0)]);
        assert!(drawing.contains("<g class=\"marks\"><path d=\"M"), "{drawing}");
        assert!(!drawing.contains("NaN"), "{drawing}");
    }

    #[test]
    fn a_value_that_is_no_number_breaks_the_line() {
        let values = [(1.0, 1.0), (2.0, 2.0), (4.0, f64::NAN), (8.0, 1.0), (16.0, 2.0)];
        let drawing = drawn(values.map(|(x, value)| Point::exact(x, value)).to_vec());
        let path = drawing
            .split("class=\"line\" d=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .expect("a line");
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 2), "{path}");
    }

    #[test]
    fn a_mark_tells_its_values() {
        let drawing = drawn(vec![Point::of(2048.0, &[1.0, 2.0, 3.0])]);
        let lines = ["a", "size: 2048\u{a0}B (2\u{a0}KiB)", "median 2\u{a0}µs of 3"];
        let ranges = ["quartiles 1.5\u{a0}µs to 2.5\u{a0}µs", "range 1\u{a0}µs to 3\u{a0}µs"];
        let title = [&lines[..], &ranges].concat().join("\n");
        assert!(drawing.contains(&format!("<title>{title}</title>")), "{drawing}");
        let exact = drawn(vec![Point::exact(64.0, 5.0)]);
        assert!(exact.contains("<title>a\nsize: 64\u{a0}B\n5\u{a0}µs</title>"), "{exact}");
    }

    #[test]
    fn words_are_escaped() {
        assert!(drawn(vec![]).contains("A &lt;figure&gt; &amp; more"));
    }
}
