//! From values to places along an axis.

use crate::page::ticks::{self, Rounding};

/// Which way an axis goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the first value to the last.
    Across,
    /// From zero, with a margin beyond the values.
    Up,
}

impl Direction {
    /// Margin beyond the values, as a share of the axis.
    fn margin(self) -> f64 {
        match self {
            Direction::Across => 0.0,
            Direction::Up => 0.04,
        }
    }
}

/// An axis between two values and two places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    logarithmic: bool,
    first: f64,
    last: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// An axis that covers all these values. Without any that can be shown, from 0 (or 1) to
    /// 1 (or 10).
    pub(crate) fn over(
        values: impl Iterator<Item = f64>,
        logarithmic: bool,
        direction: Direction,
        (from, to): (f64, f64),
    ) -> Self {
        let mut first = f64::INFINITY;
        let mut last = f64::NEG_INFINITY;
        for value in values.filter(|value| shown(*value, logarithmic)) {
            (first, last) = (first.min(value), last.max(value));
        }
        let (first, last) = match (first <= last, logarithmic) {
            (true, true) => ratios(first, last, direction),
            (true, false) => steps(first, last, direction),
            (false, true) => (1.0, 10.0),
            (false, false) => (0.0, 1.0),
        };
        Scale { logarithmic, first, last, from, to }
    }

    /// Position of a value; `None` for what cannot be shown on this axis.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        let Scale { logarithmic, first, last, from, to } = *self;
        if !shown(value, logarithmic) {
            return None;
        }
        let share = match logarithmic {
            true => (value / first).ln() / (last / first).ln(),
            false => (value - first) / (last - first),
        };
        Some(from + share * (to - from))
    }

    /// Round values on this axis, about as many as wanted.
    pub(crate) fn ticks(&self, wanted: usize, rounding: Rounding) -> Vec<f64> {
        match self.logarithmic {
            true => ticks::logarithmic(self.first, self.last, wanted, rounding),
            false => ticks::linear(self.first, self.last, wanted, rounding),
        }
    }
}

/// Returns true if an axis has a place for this value.
pub(crate) fn shown(value: f64, logarithmic: bool) -> bool {
    value.is_finite() && (!logarithmic || value > 0.0)
}

/// The ends of an axis in equal steps. Upwards it begins at nothing, so that lengths can be
/// compared.
fn steps(first: f64, last: f64, direction: Direction) -> (f64, f64) {
    let (first, last) = match direction {
        Direction::Up => (first.min(0.0), last.max(0.0)),
        Direction::Across => (first, last),
    };
    if first == last {
        return if first == 0.0 {
            (0.0, 1.0)
        } else {
            (first - first.abs() / 2.0, last + last.abs() / 2.0)
        };
    }
    let margin = direction.margin() * (last - first);
    (
        if first < 0.0 { first - margin } else { first },
        if last > 0.0 { last + margin } else { last },
    )
}

/// The ends of an axis in equal ratios, with a margin at both if there is one.
fn ratios(first: f64, last: f64, direction: Direction) -> (f64, f64) {
    let times = if first == last { 2.0 } else { (last / first).powf(direction.margin()) };
    match (first / times, last * times) {
        ends @ (least, greatest) if least > 0.0 && greatest.is_finite() => ends,
        _ => (first, last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_has_no_place_for_nothing_and_less() {
        let scale =
            Scale::over([-1.0, 0.0, 1.0, 100.0].into_iter(), true, Direction::Across, (0.0, 10.0));
        let places = [-1.0, 0.0, 1.0, 10.0, 100.0].map(|value| scale.place(value));
        assert_eq!(places, [None, None, Some(0.0), Some(5.0), Some(10.0)]);
    }

    #[test]
    fn what_is_no_number_has_no_place_and_moves_no_end() {
        let scale = Scale::over(
            [f64::NAN, f64::INFINITY, 0.0, 2.0].into_iter(),
            false,
            Direction::Across,
            (0.0, 10.0),
        );
        assert_eq!(
            (scale.place(f64::NAN), scale.place(f64::INFINITY), scale.place(1.0)),
            (None, None, Some(5.0))
        );
        let greatest = Scale::over(
            [f64::MIN_POSITIVE, f64::MAX].into_iter(),
            true,
            Direction::Up,
            (0.0, 10.0),
        );
        assert!(greatest.place(1.0).is_some_and(f64::is_finite));
        let nothing = Scale::over([f64::NAN].into_iter(), true, Direction::Across, (0.0, 10.0));
        assert_eq!(nothing.ticks(5, Rounding::Decimal), [1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn one_value_lies_inside_the_axis() {
        for logarithmic in [false, true] {
            let place = Scale::over([7.0].into_iter(), logarithmic, Direction::Across, (0.0, 10.0))
                .place(7.0);
            assert!(place.is_some_and(|place| (0.0..=10.0).contains(&place)), "{place:?}");
        }
    }
}
