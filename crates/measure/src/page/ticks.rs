//! Round numbers along an axis.

/// More would never be legible; also the end of any count that numbers of the wrong size could make
/// endless.
const MOST: f64 = 64.0;
/// This many ticks, or none.
const ENOUGH: usize = 16;

/// Which numbers are round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// 1, 2 and 5 times a power of ten.
    Decimal,
    /// The same, without fractions.
    Whole,
    /// Powers of two, without fractions.
    Binary,
}

/// Round numbers from the first to the last, about as many as wanted.
pub(crate) fn linear(first: f64, last: f64, wanted: usize, rounding: Rounding) -> Vec<f64> {
    let span = last - first;
    if !span.is_finite() || span <= 0.0 {
        return if first.is_finite() { vec![first] } else { Vec::new() };
    }
    let step = step(span / wanted.max(1) as f64, rounding);
    let from = (first / step - 1e-9).ceil();
    let to = (last / step + 1e-9).floor();
    if to - from < 1.0 && wanted < ENOUGH {
        // With one number an axis has no scale.
        return linear(first, last, 2 * wanted.max(1), rounding);
    }
    if to < from {
        return Vec::new();
    }
    (0..=(to - from).min(MOST) as u32).map(|place| (from + f64::from(place)) * step).collect()
}

fn step(rough: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Binary => return rough.log2().ceil().max(0.0).exp2(),
        Rounding::Whole if rough < 1.0 => return 1.0,
        Rounding::Whole | Rounding::Decimal => {}
    }
    let power = 10f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|times| times * power >= rough * (1.0 - 1e-9))
        .unwrap_or(10.0);
    times * power
}

/// Powers of ten, or of two, from the first to the last; between them if they fit; round
/// numbers where the axis is too short for powers. Both ends are above zero.
pub(crate) fn logarithmic(first: f64, last: f64, wanted: usize, rounding: Rounding) -> Vec<f64> {
    let binary = rounding == Rounding::Binary;
    let base = if binary { 2.0 } else { 10.0 };
    let (from, to) =
        ((first.ln() / f64::ln(base) - 1e-9).ceil(), (last.ln() / f64::ln(base) + 1e-9).floor());
    let count = to - from + 1.0;
    let steps = 3.0 * (last / first).log10();
    if !count.is_finite() || count < 2.0 || (!binary && steps <= wanted as f64) {
        return between(first, last, wanted, rounding);
    }
    let stride = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
        .into_iter()
        .find(|stride| count / stride <= wanted as f64);
    let stride = stride.unwrap_or(100.0);
    let powers =
        |from: f64| (0..=(to - from).min(MOST) as u32).map(move |place| from + f64::from(place));
    let ticks: Vec<f64> = powers(from)
        .filter(|power| power % stride == 0.0)
        .map(|power| f64::powf(base, power))
        .collect();
    if ticks.len() < 2 { powers(from).map(|power| f64::powf(base, power)).collect() } else { ticks }
}

fn between(first: f64, last: f64, wanted: usize, rounding: Rounding) -> Vec<f64> {
    let power = 10f64.powf(first.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0].map(|times| times * power);
    let within: Vec<f64> = steps.into_iter().filter(|tick| (first..=last).contains(tick)).collect();
    if within.len() < 2 || rounding != Rounding::Decimal {
        linear(first, last, wanted, rounding)
    } else {
        within
    }
}

#[cfg(test)]
mod tests {
    use super::Rounding::{Binary, Decimal, Whole};
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!(linear(0.0, 10.0, 5, Decimal), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(linear(0.3, 0.9, 3, Decimal).len(), 3);
        assert_eq!(linear(0.0, 16000.0, 5, Binary), [0.0, 4096.0, 8192.0, 12288.0]);
        assert_eq!(linear(-1.0, 1.0, 2, Decimal), [-1.0, 0.0, 1.0]);
        assert_eq!(linear(1.0, 3.0, 6, Whole), [1.0, 2.0, 3.0]);
        assert_eq!(linear(0.0, 3.0, 9, Binary), [0.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn an_axis_of_one_value_has_one_tick_and_one_of_none_has_none() {
        assert_eq!(linear(3.0, 3.0, 5, Decimal), [3.0]);
        assert_eq!(linear(f64::NAN, f64::NAN, 5, Decimal), [0.0; 0]);
        assert_eq!(linear(0.0, f64::INFINITY, 5, Decimal), [0.0]);
        assert_eq!(logarithmic(8.0, 8.0, 5, Binary), [8.0]);
    }

    #[test]
    fn powers_are_thinned_evenly() {
        assert_eq!(logarithmic(1.0, 1048576.0, 3, Binary), [1.0, 1024.0, 1048576.0]);
        assert_eq!(logarithmic(0.1, 1000.0, 5, Decimal), [0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(logarithmic(1.5, 40.0, 5, Decimal), [2.0, 5.0, 10.0, 20.0]);
    }

    #[test]
    fn the_greatest_numbers_make_no_endless_axis() {
        assert!(logarithmic(f64::MIN_POSITIVE, f64::MAX, 6, Decimal).len() <= 65);
        assert!(linear(f64::MAX / 2.0, f64::MAX, 6, Binary).len() <= 65);
    }
}
