//! The segment search against trying every size.

use models::costs::segment::search;
use models::formulas::bcast;
use models::parameters::{Parameters, Point};
use proptest::prelude::*;
use std::num::NonZeroU64;

fn granule(bytes: u64) -> NonZeroU64 {
    NonZeroU64::new(bytes).expect("positive")
}

/// The least cost of all sizes.
fn exhaustive(bytes: u64, cost: impl Fn(u64) -> f64) -> f64 {
    (1..=bytes).map(cost).fold(f64::INFINITY, f64::min)
}

/// Plogp parameters with steps, as protocols have that change at some size.
fn stepped() -> Parameters {
    let point = |bytes, gap| Point { bytes, send_overhead: 0.1, receive_overhead: 0.1, gap };
    let points = vec![
        point(0, 1.0),
        point(64, 1.1),
        point(65, 2.0),
        point(1024, 3.0),
        point(1025, 8.0),
        point(9000, 30.0),
    ];
    Parameters::new(5.0, points).expect("valid")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_convex_costs_the_minimum_is_found(
        bytes in 1u64..5000, fixed in 0.1f64..1000.0, per_byte in 0.001f64..10.0, ranks in 3u32..50,
    ) {
        // A pipeline with fractions of segments: (P−2 + m/s) × (a + b × s) falls, then rises.
        let cost = |s: u64| (f64::from(ranks - 2) + bytes as f64 / s as f64) * (fixed + per_byte * s as f64);
        let found = search(bytes, granule(1), cost);
        prop_assert!(found.cost <= exhaustive(bytes, cost) * (1.0 + 1e-12), "{found:?}");
        prop_assert_eq!(found.cost, cost(found.bytes.get()));
        prop_assert!(found.evaluations < 100, "{} evaluations", found.evaluations);
    }

    #[test]
    fn a_minimum_anywhere_is_found_to_the_byte(bytes in 1u64..100_000, share in 0.0f64..1.0) {
        let least = 1 + ((bytes - 1) as f64 * share) as u64;
        prop_assert_eq!(search(bytes, granule(1), |s| s.abs_diff(least) as f64).bytes.get(), least);
    }

    #[test]
    fn of_bumpy_costs_it_is_no_worse_than_any_power_and_near_the_best(bytes in 64u64..9000, ranks in 2u32..30) {
        // Whole segments and steps in the gap: the cost has hundreds of local minima.
        let network = stepped();
        let cost = |s: u64| bcast::segmented_chain(&network, ranks, bytes, granule(s));
        let found = search(bytes, granule(1), cost);
        for halvings in 0..=bytes.ilog2() {
            prop_assert!(found.cost <= cost(bytes >> halvings));
        }
        let least = exhaustive(bytes, cost);
        prop_assert!(found.cost <= 1.25 * least, "{found:?}, but {least}");
        prop_assert!(found.evaluations < 400, "{} evaluations", found.evaluations);
    }

    #[test]
    fn sizes_are_whole_granules(bytes in 1u64..100_000, grain in 1u64..200, least in 1u64..100_000) {
        let found = search(bytes, granule(grain), |s| s.abs_diff(least) as f64).bytes.get();
        prop_assert!(found <= bytes);
        prop_assert!(found.is_multiple_of(grain) || found == bytes, "{found} is no multiple of {grain}");
    }
}

#[test]
fn strange_costs_and_sizes_end() {
    assert_eq!(search(0, granule(8), |_| 1.0).bytes.get(), 1);
    assert_eq!(search(5, granule(8), |_| 1.0).bytes.get(), 5);
    assert_eq!(search(1000, granule(1), |_| 1.0).bytes.get(), 1000, "of equals the longest");
    assert_eq!(
        search(1000, granule(1), |s| if s == 500 { 1.0 } else { f64::NAN }).bytes.get(),
        500
    );
    let huge = search(u64::MAX, granule(1), |s| s as f64);
    assert_eq!(huge.bytes.get(), 1);
    assert!(huge.evaluations < 500);
}
