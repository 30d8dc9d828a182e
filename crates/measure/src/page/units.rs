//! Text of numbers: significant digits and readable units.

use super::ticks::Rounding;

/// Holds the digits of a number together.
const NARROW_SPACE: char = '\u{202f}';

/// Unit of an axis, as far as its ticks depend on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unit {
    /// Round numbers are powers of two.
    Bytes,
    /// A time, so many of which are a microsecond; ns, µs, ms and s lie beside each other.
    Time(f64),
    /// There is nothing between 1 and 2: ranks, dimensions.
    Whole,
    /// A number is a number.
    Plain,
}

impl Unit {
    /// The unit that an axis names, if these are its values.
    pub(crate) fn of(unit: &str, mut values: impl Iterator<Item = f64>) -> Self {
        match unit {
            "bytes" | "B" => Unit::Bytes,
            "ns" => Unit::Time(1e3),
            "µs" | "us" | "microseconds" => Unit::Time(1.0),
            "ms" => Unit::Time(1e-3),
            "s" => Unit::Time(1e-6),
            _ if values.all(|value| value.fract() == 0.0) => Unit::Whole,
            _ => Unit::Plain,
        }
    }

    /// Which numbers are round.
    pub(crate) fn rounding(self) -> Rounding {
        match self {
            Unit::Bytes => Rounding::Binary,
            Unit::Whole => Rounding::Whole,
            Unit::Time(_) | Unit::Plain => Rounding::Decimal,
        }
    }

    /// A round value, as it stands beside an axis.
    pub(crate) fn tick(self, value: f64) -> String {
        self.written(value, 4)
    }

    /// A value with the digits that a clock has measured.
    pub(crate) fn exact(self, value: f64) -> String {
        match self {
            Unit::Bytes if value.abs() >= 1024.0 => {
                format!("{}\u{a0}B ({})", significant(value, 6), self.tick(value))
            }
            _ => self.written(value, 6),
        }
    }

    fn written(self, value: f64, digits: i32) -> String {
        match self {
            Unit::Bytes => scaled(
                value,
                &[(1.0, "B"), (1024.0, "KiB"), (1048576.0, "MiB"), (1073741824.0, "GiB")],
                digits,
            ),
            Unit::Time(many) => {
                let units = [(1e-3, "ns"), (1.0, "µs"), (1e3, "ms"), (1e6, "s")];
                scaled(value / many, &units, digits)
            }
            Unit::Whole | Unit::Plain => significant(value, digits),
        }
    }
}

/// The value in the largest unit of which it has at least one; nothing needs no unit.
fn scaled(value: f64, units: &[(f64, &str)], digits: i32) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let fits = |(size, _): &&(f64, &str)| value.abs() >= size * (1.0 - 1e-9);
    let (size, name) = units.iter().rev().find(fits).unwrap_or(&units[0]);
    format!("{}\u{a0}{name}", significant(value / size, digits))
}

/// A number with so many digits that count and no zeros behind them; digits before the point are
/// never taken away.
pub(crate) fn significant(value: f64, digits: i32) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-6..15).contains(&magnitude) {
        return format!("{value:.*e}", (digits - 1).max(0) as usize);
    }
    let decimals = (digits - 1 - magnitude).max(0) as usize;
    let text = fixed(value, decimals);
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number with so many decimals, in groups of three before the point from five digits on.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text.as_str(), None),
    };
    let is_zero = text.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    let mut result = String::from(if value < 0.0 && !is_zero { "−" } else { "" });
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && whole.len() > 4 && (whole.len() - place) % 3 == 0 {
            result.push(NARROW_SPACE);
        }
        result.push(digit);
    }
    if let Some(fraction) = fraction {
        result.push('.');
        result.push_str(fraction);
    }
    result
}

/// With how many decimals the numbers of a column are written, so that the smallest still says
/// something; `None` where they lie so far apart that each needs its own.
pub(crate) fn decimals(values: &[f64]) -> Option<usize> {
    let finite =
        || values.iter().map(|value| value.abs()).filter(|value| value.is_finite() && *value > 0.0);
    if finite().all(|value| value.fract() == 0.0) {
        return Some(0);
    }
    let least = finite().fold(f64::INFINITY, f64::min);
    let greatest = finite().fold(0.0, f64::max);
    let decimals = (2 - least.log10().floor() as i32).clamp(0, 9) as usize;
    let farthest = if decimals <= 3 { 1e4 } else { 1e2 };
    (greatest <= farthest * least).then_some(decimals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_times_take_the_unit_that_people_say() {
        let bytes = [0.0, 1.0, 512.0, 1024.0, 1536.0, 16384.0, 1048576.0]
            .map(|value| Unit::Bytes.tick(value));
        assert_eq!(
            bytes,
            [
                "0",
                "1\u{a0}B",
                "512\u{a0}B",
                "1\u{a0}KiB",
                "1.5\u{a0}KiB",
                "16\u{a0}KiB",
                "1\u{a0}MiB"
            ]
        );
        let times = [0.02, 0.5, 1.0, 250.0, 1000.0, 2.5e6].map(|value| Unit::Time(1.0).tick(value));
        assert_eq!(
            ["ns", "ms", "s"].map(|unit| Unit::of(unit, [].into_iter()).tick(2.0)),
            ["2\u{a0}ns", "2\u{a0}ms", "2\u{a0}s"]
        );
        assert_eq!(
            times,
            ["20\u{a0}ns", "500\u{a0}ns", "1\u{a0}µs", "250\u{a0}µs", "1\u{a0}ms", "2.5\u{a0}s"]
        );
    }

    #[test]
    fn an_exact_value_keeps_more_digits_than_a_tick() {
        let texts = [
            Unit::Bytes.exact(16448.0),
            Unit::Bytes.exact(64.0),
            Unit::Time(1.0).exact(12.345678),
            Unit::Plain.exact(f64::NAN),
        ];
        assert_eq!(
            texts,
            ["16\u{202f}448\u{a0}B (16.06\u{a0}KiB)", "64\u{a0}B", "12.3457\u{a0}µs", "–"]
        );
    }

    #[test]
    fn numbers_have_the_digits_that_count() {
        let texts = [1.0, 0.123456, 1234.56, 123456.7, -2.5, 1e-9, f64::NAN, f64::INFINITY]
            .map(|value| significant(value, 4));
        assert_eq!(texts, ["1", "0.1235", "1235", "123\u{202f}457", "−2.5", "1.000e-9", "–", "–"]);
        assert_eq!(fixed(-0.0001, 2), "0.00");
    }

    #[test]
    fn a_column_has_one_number_of_decimals_unless_its_values_are_far_apart() {
        assert_eq!(decimals(&[1.0, 20.0, 300.0]), Some(0));
        assert_eq!(decimals(&[0.0113, 1.1]), Some(4));
        assert_eq!(decimals(&[0.0113, 145.0]), None);
        assert_eq!(decimals(&[12.5, 101.25]), Some(1));
        assert_eq!(decimals(&[0.001, 5000.0]), None);
        assert_eq!(decimals(&[f64::NAN]), Some(0));
    }
}
