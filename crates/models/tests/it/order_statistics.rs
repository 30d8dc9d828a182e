//! Order statistics against what they mean.

use models::statistics::{Deciles, Sample, median, never_falling, percentile, pooled};
use proptest::prelude::*;

fn ascending() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-1e6..1e6, 1..200).prop_map(|mut values| {
        values.sort_by(f64::total_cmp);
        values
    })
}

proptest! {
    #[test]
    fn half_of_the_values_lie_on_either_side_of_the_median(values in prop::collection::vec(-1e6..1e6f64, 1..200)) {
        let middle = median(&values);
        let count = |lies: &dyn Fn(f64) -> bool| values.iter().filter(|value| lies(**value)).count();
        prop_assert!(2 * count(&|value| value < middle) <= values.len());
        prop_assert!(2 * count(&|value| value > middle) <= values.len());
    }

    #[test]
    fn the_order_of_the_values_does_not_matter(
        (values, shuffled) in prop::collection::vec(-1e6..1e6f64, 0..100)
            .prop_flat_map(|values| (Just(values.clone()), Just(values).prop_shuffle())),
    ) {
        prop_assert_eq!(Deciles::of(&values), Deciles::of(&shuffled));
        prop_assert_eq!(median(&values), median(&shuffled));
        let (one, other) = (Sample::of(values), Sample::of(shuffled));
        prop_assert_eq!(one.uncertainty(), other.uncertainty());
        prop_assert_eq!(one.quantiles, other.quantiles);
    }

    /// At the shares of whole places a percentile is the value there, and between two it lies on a
    /// straight line.
    #[test]
    fn a_percentile_is_that_of_its_definition(values in ascending(), share in 0.0..=1.0) {
        let last = values.len() - 1;
        for (place, value) in values.iter().enumerate() {
            let share = if last == 0 { 0.5 } else { place as f64 / last as f64 };
            prop_assert!((percentile(&values, share) - value).abs() <= 1e-6, "{}", place);
        }
        let place: f64 = share * last as f64;
        let ends = [place.floor(), place.ceil()].map(|place| values[place as usize]);
        let expected = ends[0] + (ends[1] - ends[0]) * place.fract();
        prop_assert!((percentile(&values, share) - expected).abs() <= 1e-6);
        let quantiles = Sample::of(values.clone()).quantiles;
        prop_assert_eq!((quantiles.minimum, quantiles.maximum), (values[0], values[last]));
        prop_assert_eq!(quantiles.p75, percentile(&values, 0.75));
    }

    #[test]
    fn an_uncertainty_is_not_negative_and_that_of_its_definition(values in prop::collection::vec(-1e6..1e6f64, 0..100)) {
        let sample = Sample::of(values.clone());
        let Some(uncertainty) = sample.uncertainty() else {
            prop_assert!(values.len() < 2);
            return Ok(());
        };
        prop_assert!(uncertainty >= 0.0);
        let mut sorted = values;
        sorted.sort_by(f64::total_cmp);
        let middle_half = percentile(&sorted, 0.75) - percentile(&sorted, 0.25);
        let expected = 1.253 * 0.741 * middle_half / (sorted.len() as f64).sqrt();
        prop_assert!((uncertainty - expected).abs() <= 1e-9 * (1.0 + expected));
    }

    #[test]
    fn lowered_values_are_the_least_of_those_behind(values in prop::collection::vec(-1e6..1e6f64, 0..100)) {
        let mut found = values.clone();
        never_falling(&mut found);
        for (place, found) in found.iter().enumerate() {
            let least = values[place..].iter().copied().fold(f64::INFINITY, f64::min);
            prop_assert_eq!(*found, least);
        }
    }

    #[test]
    fn a_percentile_lies_among_the_values_and_grows_with_the_share(values in ascending(), a in 0.0..=1.0, b in 0.0..=1.0) {
        let (less, more) = (f64::min(a, b), f64::max(a, b));
        let (low, high) = (percentile(&values, less), percentile(&values, more));
        prop_assert!(values[0] <= low && low <= high && high <= values[values.len() - 1]);
    }

    #[test]
    fn so_many_values_lie_below_a_percentile(values in ascending(), share in 0.0..=1.0) {
        let bound = percentile(&values, share);
        let below = values.iter().filter(|value| **value < bound).count();
        // All below the place, at most the one in which it falls besides.
        prop_assert!(below as f64 <= (values.len() - 1) as f64 * share + 1.0);
    }

    #[test]
    fn equal_values_are_their_own_percentiles(value in -1e6..1e6f64, count in 1usize..50, share in 0.0..=1.0) {
        prop_assert_eq!(percentile(&vec![value; count], share), value);
    }

    /// The least squares solution is the greatest over beginnings of the least over ends of the mean
    /// between them (Robertson, Wright and Dykstra 1988, section 1.4).
    #[test]
    fn pooled_values_are_the_nearest_ascending_ones(values in prop::collection::vec(-1e3..1e3f64, 1..30)) {
        let mean = |from: usize, to: usize| {
            values[from..=to].iter().sum::<f64>() / (to - from + 1) as f64
        };
        let nearest = |place: usize| {
            let least = |from: usize| {
                (place..values.len()).map(|to| mean(from, to)).fold(f64::INFINITY, f64::min)
            };
            (0..=place).map(least).fold(f64::NEG_INFINITY, f64::max)
        };
        let mut found = values.clone();
        pooled(&mut found);
        for (place, found) in found.iter().enumerate() {
            prop_assert!((found - nearest(place)).abs() < 1e-6, "{} at {}", found, place);
        }
    }

    #[test]
    fn summaries_move_with_their_values(values in prop::collection::vec(0u32..1000, 1..100), shift in 0u32..1000) {
        let (plain, moved): (Vec<f64>, Vec<f64>) =
            values.iter().map(|value| (f64::from(*value), f64::from(value + shift))).unzip();
        let (plain, moved) = (Deciles::of(&plain), Deciles::of(&moved));
        prop_assert!((moved.median - plain.median - f64::from(shift)).abs() < 1e-9);
        prop_assert!((moved.p90 - plain.p90 - f64::from(shift)).abs() < 1e-9);
    }
}

#[test]
fn nothing_has_no_percentiles() {
    assert_eq!(Deciles::of(&[]), Deciles::default());
    assert_eq!(percentile(&[], 0.5), 0.0);
    assert_eq!(median(&[7.5]), 7.5);
}
