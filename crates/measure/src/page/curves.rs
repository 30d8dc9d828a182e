//! Colour, style and mark of a curve: the same in the figure and the legend.

use crate::results::{Figure, Point, Role, Series};

/// Number of colours that are distinguishable, also with colour blindness; beyond them, curves
/// differ in their marks.
pub(crate) const HUES: usize = 8;

/// One curve of a figure, of this machine or the other.
#[derive(Clone, Debug)]
pub(crate) struct Curve<'a> {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// From 1; 0 is grey.
    pub(crate) hue: usize,
    pub(crate) mark: Mark,
    /// True if it comes from the machine that is compared.
    pub(crate) other: bool,
    /// True if another prediction of the same stands before it: two models of one thing are not to
    /// look alike.
    pub(crate) again: bool,
    pub(crate) points: &'a [Point],
}

/// Mark of a measured point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
}

impl Mark {
    const ALL: [Mark; 4] = [Mark::Circle, Mark::Square, Mark::Triangle, Mark::Diamond];

    /// Returns the mark around a point, as a part of a path.
    pub(crate) fn path(self, x: f64, y: f64, radius: f64) -> String {
        let r = radius;
        match self {
            Mark::Circle => format!(
                "M{:.1} {y:.1}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z",
                x - r,
                d = 2.0 * r
            ),
            Mark::Square => format!("M{:.1} {:.1}h{d}v{d}h-{d}z", x - r, y - r, d = 2.0 * r),
            Mark::Triangle => {
                format!(
                    "M{x:.1} {:.1}l{w:.2} {h:.2}h-{b:.2}z",
                    y - 1.3 * r,
                    w = 1.2 * r,
                    h = 2.1 * r,
                    b = 2.4 * r
                )
            }
            Mark::Diamond => {
                format!("M{x:.1} {:.1}l{w} {w}l-{w} {w}l-{w} -{w}z", y - 1.3 * r, w = 1.3 * r)
            }
        }
    }
}

impl Curve<'_> {
    /// Style classes, for figures and legends.
    pub(crate) fn classes(&self) -> String {
        let other = if self.other { " other" } else { "" };
        let again = if self.again { " again" } else { "" };
        let scattered = if self.is_joined() { "" } else { " scattered" };
        format!("curve {}{again} hue-{}{other}{scattered}", self.role, self.hue)
    }

    /// Returns true if its points are joined: where several values belong to one x, or x goes back,
    /// a line would show an order that does not exist.
    pub(crate) fn is_joined(&self) -> bool {
        self.points
            .windows(2)
            .all(|pair| pair[0].x.partial_cmp(&pair[1].x) != Some(std::cmp::Ordering::Greater))
            && self.points.windows(2).filter(|pair| pair[0].x == pair[1].x).count() == 0
    }

    /// Returns true if points have marks.
    pub(crate) fn is_marked(&self) -> bool {
        self.role == Role::Measured || !self.is_joined() || self.points.len() == 1
    }
}

/// The curves of a figure, and behind them those of the other machine, with the other's label. What
/// is measured of one thing and what is said of it share a colour, on both machines.
pub(crate) fn of<'a>(figure: &'a Figure, other: Option<(&'a Figure, &str)>) -> Vec<Curve<'a>> {
    let mut subjects: Vec<String> = Vec::new();
    let mut predicted: Vec<(String, bool)> = Vec::new();
    let mut curve = |series: &'a Series, name: String, other: bool| {
        let subject = subject(figure, series);
        let again = series.role == Role::Predicted && {
            let prediction = (subject.clone(), other);
            let again = predicted.contains(&prediction);
            predicted.push(prediction);
            again
        };
        let place = subjects.iter().position(|known| *known == subject).unwrap_or_else(|| {
            // Floors are grey: they take no colour from others.
            if series.role != Role::Floor {
                subjects.push(subject);
            }
            subjects.len().saturating_sub(1)
        });
        let hue = if series.role == Role::Floor { 0 } else { place % HUES + 1 };
        let mark = Mark::ALL[(place / HUES) % Mark::ALL.len()];
        Curve { name, role: series.role, hue, mark, other, again, points: &series.points }
    };
    let mut curves: Vec<Curve> =
        figure.series.iter().map(|series| curve(series, series.name.clone(), false)).collect();
    if let Some((figure, label)) = other {
        curves.extend(
            figure
                .series
                .iter()
                .map(|series| curve(series, format!("{} · {label}", series.name), true)),
        );
    }
    curves
}

/// Subject of a curve: the measured curve with a name that starts its own, as that of a formula
/// does; else its name without the words that say where its values come from.
fn subject(figure: &Figure, series: &Series) -> String {
    let is_about = |measured: &&Series| {
        let rest = series.name.strip_prefix(&measured.name);
        measured.role == Role::Measured
            && rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let measured = figure.series.iter().filter(is_about).max_by_key(|measured| measured.name.len());
    without_source(&measured.unwrap_or(series).name)
}

fn without_source(name: &str) -> String {
    const SOURCES: [&str; 9] = [
        "measured",
        "measurement",
        "predicted",
        "prediction",
        "model",
        "fitted",
        "fit",
        "floor",
        "minimum",
    ];
    let words = name.split(|letter: char| !letter.is_alphanumeric()).map(str::to_lowercase);
    let rest: Vec<String> =
        words.filter(|word| !word.is_empty() && !SOURCES.contains(&word.as_str())).collect();
    rest.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Axis;

    fn figure(names: &[(&str, Role)]) -> Figure {
        let mut figure =
            Figure::new("bcast", "Broadcast", Axis::bytes("size"), Axis::microseconds("time"));
        for (name, role) in names {
            figure.series.push(Series {
                name: (*name).to_owned(),
                role: *role,
                points: vec![Point::exact(1.0, 1.0)],
            });
        }
        figure
    }

    #[test]
    fn what_is_said_of_one_thing_has_one_colour() {
        let figure = figure(&[
            ("chain, measured", Role::Measured),
            ("binomial", Role::Measured),
            ("machine's floor", Role::Floor),
            ("Binomial (predicted)", Role::Predicted),
            ("chain model", Role::Predicted),
            ("binomial: 0.21 d +0.4", Role::Fitted),
            ("binomials", Role::Predicted),
        ]);
        let hues: Vec<usize> =
            of(&figure, Some((&figure, "there"))).iter().map(|curve| curve.hue).collect();
        assert_eq!(hues, [1, 2, 0, 2, 1, 2, 3, 1, 2, 0, 2, 1, 2, 3]);
    }

    #[test]
    fn twenty_curves_are_all_different() {
        let names: Vec<String> = (0..20).map(|number| format!("curve {number}")).collect();
        let figure =
            figure(&names.iter().map(|name| (name.as_str(), Role::Measured)).collect::<Vec<_>>());
        let curves = of(&figure, None);
        for (place, curve) in curves.iter().enumerate() {
            assert!(
                curves[..place]
                    .iter()
                    .all(|before| (before.hue, before.mark) != (curve.hue, curve.mark)),
                "{place}"
            );
        }
    }

    #[test]
    fn several_values_of_one_x_are_not_joined() {
        let joined = |xs: &[f64]| {
            let mut figure = figure(&[("a", Role::Measured)]);
            figure.series[0].points = xs.iter().map(|x| Point::exact(*x, 1.0)).collect();
            of(&figure, None)[0].is_joined()
        };
        assert_eq!(
            [&[][..], &[1.0], &[1.0, 2.0], &[1.0, 1.0], &[2.0, 1.0]].map(joined),
            [true, true, true, false, false]
        );
    }

    #[test]
    fn two_models_of_one_thing_look_different() {
        let roles = [Role::Measured, Role::Predicted, Role::Predicted, Role::Predicted];
        let names = ["ring", "ring, pLogP", "ring, sharing", "chain, pLogP"];
        let figure = figure(&names.into_iter().zip(roles).collect::<Vec<_>>());
        let classes: Vec<String> = of(&figure, None).iter().map(Curve::classes).collect();
        let expected =
            ["measured hue-1", "predicted hue-1", "predicted again hue-1", "predicted hue-2"];
        assert_eq!(classes, expected.map(|of| format!("curve {of}")));
    }
}
