//! A figure: its SVG, its legend, and its data for the script.

use crate::page::curves::{self, Curve, Mark, role_name};
use crate::page::drawing;
use crate::page::ticks::Rounding;
use crate::page::units::Unit;
use crate::results::{Axis, Figure, Point};
use maud::{Markup, PreEscaped, html};
use serde::Serialize;

/// The figure, with the other machine's curves where there are any.
pub(crate) fn figure(id: &str, figure: &Figure, other: Option<(&Figure, &str)>) -> Markup {
    let curves = curves::of(figure, other);
    html! {
        figure class=(if curves.len() > 8 { "figure wide" } else { "figure" }) id=(id) data-figure {
            figcaption { h3 { (figure.title) } }
            div.chart { (drawing::draw(figure, &curves)) }
            ul class=(if curves.len() > 6 { "legend many" } else { "legend" }) { @for curve in &curves { li { (key(curve)) } } }
            @if !figure.caption.is_empty() { p.caption { (figure.caption) } }
            script type="application/json" { (PreEscaped(data(figure, &curves))) }
        }
    }
}

/// A line of the legend, which switches its curve off and on.
fn key(curve: &Curve) -> Markup {
    html! {
        button.key type="button" aria-pressed="true" {
            svg.swatch viewBox="0 0 34 12" aria-hidden="true" {
                g class=(curve.classes()) {
                    @if curve.is_joined() { path.line d="M1 6H33" {} }
                    @if curve.is_marked() { path.marks d=(curve.mark.path(17.0, 6.0, 3.0)) {} }
                }
            }
            span { (curve.name) }
        }
    }
}

#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    x: AxisData<'a>,
    y: AxisData<'a>,
    curves: Vec<CurveData<'a>>,
}

#[derive(Serialize)]
struct AxisData<'a> {
    label: &'a str,
    unit: &'a str,
    logarithmic: bool,
    rounding: Rounding,
}

#[derive(Serialize)]
struct CurveData<'a> {
    name: &'a str,
    role: &'static str,
    classes: String,
    mark: Mark,
    joined: bool,
    other: bool,
    marked: bool,
    /// x, median, quartiles, minimum, maximum, repetitions.
    points: Vec<[Option<f64>; 7]>,
}

/// The data of the figure, as JSON that ends no script: it has no `<`.
fn data(figure: &Figure, curves: &[Curve]) -> String {
    let curves = curves.iter().map(|curve| CurveData {
        name: &curve.name,
        role: role_name(curve.role),
        classes: curve.classes(),
        mark: curve.mark,
        joined: curve.is_joined(),
        other: curve.other,
        marked: curve.is_marked(),
        points: curve.points.iter().map(row).collect(),
    });
    let (x, y) =
        (axis(&figure.x, drawing::x_unit(figure)), axis(&figure.y, drawing::y_unit(figure)));
    let data = Data { title: &figure.title, x, y, curves: curves.collect() };
    // Words and numbers can always be written.
    serde_json::to_string(&data).unwrap_or_else(|_| "null".to_owned()).replace('<', "\\u003c")
}

fn axis(axis: &Axis, unit: Unit) -> AxisData<'_> {
    let Axis { label, unit: name, .. } = axis;
    AxisData {
        label,
        unit: name,
        logarithmic: drawing::is_logarithmic(axis),
        rounding: unit.rounding(),
    }
}

/// Values that are not numbers become null.
fn row(point: &Point) -> [Option<f64>; 7] {
    let Point { x, median, minimum, lower_quartile, upper_quartile, maximum, repetitions } = *point;
    let repetitions = (repetitions > 0).then_some(f64::from(repetitions));
    let values =
        [Some(x), Some(median), lower_quartile, upper_quartile, minimum, maximum, repetitions];
    values.map(|value| value.filter(|value| value.is_finite()).map(shortened))
}

/// Without digits that no clock has measured; quantiles between two values have many.
fn shortened(value: f64) -> f64 {
    format!("{value:.7e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Role, Series};

    fn drawn(name: &str, points: Vec<Point>) -> String {
        let mut drawn = Figure::new("f", name, Axis::bytes(name), Axis::number(name));
        drawn.series.push(Series { name: name.to_owned(), role: Role::Measured, points });
        figure("id", &drawn, Some((&drawn, name))).into_string()
    }

    fn json(page: &str) -> serde_json::Value {
        let script = page.split("<script type=\"application/json\">").nth(1).expect("a script");
        serde_json::from_str(script.split("</script>").next().expect("its end")).expect("JSON")
    }

    #[test]
    fn a_name_ends_no_script_and_opens_no_element() {
        let name = "</script><img src=x onerror=alert(1)> & \"quoted\" 'too' <!--";
        let page = drawn(name, vec![Point::exact(1.0, 2.0)]);
        assert_eq!(page.matches("</script").count(), 1, "{page}");
        assert!(!page.contains("<img") && !page.contains("<!--"), "{page}");
        assert_eq!(json(&page)["curves"][0]["name"], name);
        assert_eq!(json(&page)["x"]["label"], name);
    }

    #[test]
    fn what_is_no_number_is_null() {
        let point = Point { maximum: Some(f64::INFINITY), ..Point::of(f64::NEG_INFINITY, &[]) };
        let points =
            &json(&drawn("a", vec![point, Point::of(1.0, &[0.1, 0.2])]))["curves"][0]["points"];
        assert_eq!(points[0], serde_json::json!([null, null, null, null, null, null, null]));
        assert_eq!(points[1], serde_json::json!([1.0, 0.15, 0.125, 0.175, 0.1, 0.2, 2.0]));
    }
}
