//! The formulas on small numbers, worked by hand.

use collectives::{Choice, Collective};
use models::costs::{CostModel, Costs, FlatCosts, FlatPoint};
use models::decision::{CallForm, Query};
use models::formulas::{
    allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scan, scatter,
};
use models::parameters::{Parameters, ParametersError, Point};
use proptest::prelude::*;
use std::num::{NonZeroU32, NonZeroU64};

/// L = 10, g(m) = 2 + m/2, so that g(0) = 2, g(1) = 2.5, g(4) = 4, g(8) = 6, g(16) = 10; os = or =
/// 1 + m/8.
fn network() -> Parameters {
    Parameters::linear(10.0, (1.0, 0.125), (1.0, 0.125), (2.0, 0.5)).expect("valid")
}

fn size(bytes: u64) -> NonZeroU64 {
    NonZeroU64::new(bytes).expect("positive")
}

fn degree(degree: u32) -> NonZeroU32 {
    NonZeroU32::new(degree).expect("positive")
}

#[test]
fn table_1_by_hand() {
    let n = &network();
    // Five ranks, 8 bytes, segments of 4: k = 2, ⌊log₂ 5⌋ = 2, ⌈log₂ 5⌉ = 3.
    assert_eq!(bcast::flat(n, 5, 8), 34.0); // 4×6 + 10
    assert_eq!(bcast::flat_rendezvous(n, 5, 8), 59.0); // 4×6 + 2×2.5 + 3×10
    assert_eq!(bcast::segmented_flat(n, 5, 8, size(4)), 42.0); // 4×(4×2) + 10
    assert_eq!(bcast::chain(n, 5, 8), 64.0); // 4×(6 + 10)
    assert_eq!(bcast::chain_rendezvous(n, 5, 8), 164.0); // 4×(6 + 2×2.5 + 3×10)
    assert_eq!(bcast::segmented_chain(n, 5, 8, size(4)), 60.0); // 4×(4 + 10) + 4×(2−1)
    assert_eq!(bcast::binary(n, 5, 8), 66.0); // 3×(2×6 + 10)
    assert_eq!(bcast::binomial(n, 5, 8), 42.0); // 2×6 + 3×10
    assert_eq!(bcast::binomial_rendezvous(n, 5, 8), 117.0); // 2×6 + 3×(2×2.5 + 3×10)
    assert_eq!(bcast::segmented_binomial(n, 5, 8, size(4)), 46.0); // 2×4×2 + 3×10
}

#[test]
fn segments_that_do_not_divide_the_message_are_rounded_up() {
    let n = &network();
    // 9 bytes in segments of 4 are k = 3 segments of which each counts as a whole one: 4×(4 + 10) +
    // 4×(3−1).
    assert_eq!(bcast::segmented_chain(n, 5, 9, size(4)), 64.0);
    // A segment longer than the message is the message: the chain without segments, 4×(6 + 10).
    assert_eq!(bcast::segmented_chain(n, 5, 8, size(1000)), 64.0);
    // Nothing is one segment of nothing: 4×(2 + 10).
    assert_eq!(bcast::segmented_chain(n, 5, 0, size(4)), 48.0);
}

#[test]
fn further_broadcasts_by_hand() {
    let n = &network();
    // Degree 3, five ranks: 0 serves 1, 2, 3 and 1 serves 4. Rank 3 has it at 3×6 + 10 = 28, rank 4
    // at 6 + 10 + 6 + 10 = 32.
    assert_eq!(bcast::dary(n, 5, 8, degree(3)), 32.0);
    // Degree 2, six ranks: 0 serves 1, 2; 1 serves 3, 4; 2 serves 5. Ranks 4 and 5: three sends and
    // two latencies.
    assert_eq!(bcast::dary(n, 6, 8, degree(2)), 38.0); // 3×6 + 2×10
    // With seven ranks, rank 6 is the second child of a second child: 4×6 + 2×10.
    assert_eq!(bcast::dary(n, 7, 8, degree(2)), 44.0);
    // Of five ranks all degrees: 1: 64, 2: (0 → 2 → none; 0 → 1 → 4: 6+10+12+10) 38, 3: 32, 4: 34.
    assert_eq!(bcast::best_degree(n, 5, 8), degree(3));
    // Four ranks, 32 bytes: parts of 8. Down: g(16) + g(8) + 2×10 = 36; round: 3×(6 + 10) = 48.
    assert_eq!(bcast::scatter_allgather(n, 4, 32), 84.0);
    // Four ranks, 16 bytes, segments of 4: each half is k = 2. (⌊log₂ 3⌋ + 1)×(2×4 + 10) +
    // (2−1)×2×4.
    assert_eq!(bcast::two_tree(n, 4, 16, size(4)), 44.0);
}

#[test]
fn table_2_by_hand() {
    let n = &network();
    assert_eq!(scatter::flat(n, 5, 8), 34.0); // 4×6 + 10
    assert_eq!(scatter::chain(n, 5, 8), 88.0); // (6 + 10 + 14 + 18) + 4×10
    assert_eq!(scatter::pipelined_chain(n, 5, 8), 64.0); // 4×(6 + 10)
    assert_eq!(scatter::binomial(n, 5, 8), 64.0); // (6 + 10 + 18) + 3×10
    assert_eq!(gather::binomial(n, 5, 8), 64.0);
    assert_eq!(gather::flat(n, 5, 8), 34.0);
    assert_eq!(gather::chain(n, 5, 8), 88.0);
    assert_eq!(gather::pipelined_chain(n, 5, 8), 64.0);
}

#[test]
fn table_3_by_hand() {
    let n = &network();
    let bounds = alltoall::bounds(n, 5, 8);
    assert_eq!(bounds.lower, 26.0); // 4×2 + 4×2 + 10
    assert_eq!(bounds.upper, 42.0); // 4×6 + 4×2 + 10
    assert_eq!(bounds.at(0.4), 32.4); // 26 + 16×2/5, the paper's γ
    assert_eq!(alltoall::direct(n, 0.4, 5, 8), 32.4);
    assert_eq!(alltoall::pairwise(n, 5, 8), 64.0); // 4×(6 + 10)
    // Five ranks: of the ways 0…4, bit 0 is in 1 and 3, bit 1 in 2 and 3, bit 2 in 4: two, two, and
    // one blocks.
    assert_eq!(alltoall::bruck(n, 5, 8), 56.0); // (10 + 10) + (10 + 10) + (6 + 10)
    // In base 3 the digits of 0…4 are 00 01 02 10 11: place 0 has 1 twice and 2 once, place 1 has 1
    // twice.
    assert_eq!(alltoall::multiphase(n, 5, 8, degree(3)), 56.0); // (10 + 10) + (6 + 10) + (10 + 10)
    assert_eq!(alltoall::multiphase(n, 5, 8, degree(5)), alltoall::pairwise(n, 5, 8));
}

#[test]
fn further_operations_by_hand() {
    let (n, c) = (&network(), 0.25); // 8 bytes are combined in 2 µs, 4 in 1
    assert_eq!(barrier::dissemination(n, 5), 36.0); // 3×(2 + 10)
    assert_eq!(barrier::recursive_doubling(n, 5), 48.0); // 2×12 + 2×12
    assert_eq!(barrier::tree(n, 5), 70.0); // up (2+2+2) + 30, down 2×2 + 30
    assert_eq!(barrier::flat(n, 5), 36.0); // 2×(4×2 + 10)
    assert_eq!(allgather::ring(n, 5, 8), 64.0); // 4×(6 + 10)
    assert_eq!(allgather::bruck(n, 5, 8), 52.0); // (6 + 10) + (10 + 10) + (6 + 10): 1, 2, and the last 1
    assert_eq!(allgather::recursive_doubling(n, 4, 8), 36.0); // 16 + 20
    // Five ranks: 16 at first, rounds of 2 and 4 blocks, 20 + 28, and five blocks back, 22 + 10.
    assert_eq!(allgather::recursive_doubling(n, 5, 8), 96.0);
    assert_eq!(reduce::flat(n, c, 5, 8), 36.0); // 10 + 6 + 2 + 3×max(6, 2 + 2)
    assert_eq!(reduce::chain(n, c, 5, 8), 72.0); // 4×(16 + 2)
    // Four ranks' segments of 4 take 4 + 10 + 1 each way, the second follows after max(4, 1.5 + 1 +
    // 1.5).
    assert_eq!(reduce::segmented_chain(n, c, 4, 8, size(4)), 49.0); // 3×15 + 4
    assert_eq!(reduce::binomial(n, c, 5, 8), 54.0); // 3×18
    // Degree 2, five ranks: height 2, each level a flat reduction among three: 10 + 6 + 2 + max(6,
    // 4) = 24.
    assert_eq!(reduce::dary(n, c, 5, 8, degree(2)), 48.0);
    assert_eq!(reduce::dary(n, c, 5, 8, degree(4)), reduce::flat(n, c, 5, 8));
    assert_eq!(reduce::dary(n, c, 5, 8, degree(1)), reduce::chain(n, c, 5, 8));
    assert_eq!(allreduce::recursive_doubling(n, c, 4, 8), 36.0); // 2×18
    assert_eq!(allreduce::recursive_doubling(n, c, 5, 8), 70.0); // 36 + 2×16 + 2
    assert_eq!(allreduce::dissemination(n, c, 5, 8), 54.0); // 3×18: four others are 100
    assert_eq!(allreduce::dissemination(n, c, 4, 8), 38.0); // 2×18 + 2: three are 11
    // The exchange of table 3, and four combinations: 32.4 + 4×2. Between two ranks the network is
    // the limit, 6 + 10, and with a γ below the bounds in any number.
    assert_eq!(allreduce::rotated_direct(n, (c, 0.4), 5, 8), 40.4);
    assert_eq!(alltoall::one_step(n, 0.4, 5, 8), alltoall::direct(n, 0.4, 5, 8));
    assert_eq!(alltoall::one_step(n, 0.4, 2, 8), 16.0);
    assert_eq!(alltoall::one_step(n, -2.0, 5, 8), 16.0);
    assert_eq!(alltoall::one_step(n, 0.4, 1, 8), 0.0);
    assert_eq!(allreduce::ring(n, c, 4, 32), 102.0); // 3×(2×16 + 2)
    // 16 and 8 bytes there and back: 2×20 + 4 + 2×16 + 2.
    assert_eq!(allreduce::rabenseifner(n, c, 4, 32), 78.0);
    assert_eq!(reduce::rabenseifner(n, c, 4, 32), 78.0); // 20 + 4 + 16 + 2, then (10 + 6) + 2×10
    assert_eq!(reduce_scatter::ring(n, c, 4, 8), 54.0); // 3×(16 + 2)
    assert_eq!(reduce_scatter::recursive_halving(n, c, 4, 8), 42.0); // 20 + 4 + 16 + 2
    assert_eq!(scan::recursive_doubling(n, c, 5, 8), 54.0); // 3×18
    assert_eq!(scan::chain(n, c, 5, 8), 72.0); // 4×18
}

#[test]
fn parameters_are_lines_between_sizes_and_go_on_beyond_them() {
    let point = |bytes, gap| Point { bytes, send_overhead: 1.0, receive_overhead: 1.0, gap };
    let bent =
        Parameters::new(5.0, vec![point(0, 2.0), point(100, 3.0), point(200, 7.0)]).expect("valid");
    assert_eq!([0, 50, 100, 150, 200].map(|bytes| bent.gap(bytes)), [2.0, 2.5, 3.0, 5.0, 7.0]);
    assert_eq!(bent.gap(300), 11.0); // 4 more for each 100
    let falling =
        Parameters::new(5.0, vec![point(0, 2.0), point(100, 7.0), point(200, 6.0)]).expect("valid");
    assert_eq!((falling.gap(150), falling.gap(u64::MAX)), (6.5, 6.0)); // noise is not carried on to infinity
}

#[test]
fn parameters_that_cannot_be_are_refused_by_name() {
    let point = |bytes, gap| Point { bytes, send_overhead: 1.0, receive_overhead: 1.0, gap };
    let refused = |latency, points: &[Point]| {
        Parameters::new(latency, points.to_vec()).expect_err("refused").to_string()
    };
    let good = [point(0, 2.0), point(100, 3.0)];
    assert_eq!(
        refused(f64::NAN, &good),
        "the latency is NaN µs: give a time that is not negative and below a year"
    );
    assert!(refused(-1.0, &good).starts_with("the latency is -1 µs"));
    assert!(
        refused(1.0, &[point(0, 2.0), point(8, -3.0)])
            .starts_with("the gap in the list of sizes at position 1 is -3 µs")
    );
    assert!(refused(1.0, &[point(0, 2.0), point(8, f64::INFINITY)]).contains("inf µs"));
    assert!(matches!(Parameters::new(1.0, vec![]), Err(ParametersError::TooFewSizes { count: 0 })));
    assert!(matches!(
        Parameters::new(1.0, vec![point(0, 1.0)]),
        Err(ParametersError::TooFewSizes { count: 1 })
    ));
    assert!(matches!(
        Parameters::new(1.0, vec![point(1, 1.0)]),
        Err(ParametersError::NoZero { bytes: 1 })
    ));
    let twice = [point(0, 1.0), point(8, 1.0), point(8, 2.0)];
    assert_eq!(
        refused(1.0, &twice),
        "size 8 at position 2 follows size 8: give each size once, in ascending order"
    );
}

/// Any parameters that rise with the size.
fn rising() -> impl Strategy<Value = Parameters> {
    let steps =
        prop::collection::vec((1u64..100_000, 0.0f64..50.0, 0.0f64..50.0, 0.0f64..50.0), 2..8);
    (0.0f64..100.0, steps).prop_map(|(latency, steps)| {
        let mut point = Point { bytes: 0, send_overhead: 0.0, receive_overhead: 0.0, gap: 0.0 };
        let points = steps.into_iter().map(|(bytes, send, receive, gap)| {
            point.send_overhead += send;
            point.receive_overhead += receive;
            point.gap += gap;
            let here = point;
            point.bytes += bytes;
            here
        });
        Parameters::new(latency, points.collect()).expect("rising from zero")
    })
}

fn every_algorithm() -> impl Iterator<Item = (Collective, collectives::Algorithm)> {
    Collective::ALL.iter().flat_map(|operation| {
        operation.algorithms().iter().map(|algorithm| (*operation, *algorithm))
    })
}

fn costs(network: Parameters, combine: f64, contention: f64) -> Costs {
    let point = |bytes, microseconds| FlatPoint { ranks: 2, bytes, microseconds };
    let flat = FlatCosts::new(vec![point(0, 1.0), point(1 << 20, 100.0)]).expect("times");
    let flat = Collective::ALL.iter().map(|operation| (*operation, flat.clone())).collect();
    Costs { combine, contention, flat, ..Costs::of_messages(network) }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_model_rises_with_the_size_and_is_nothing_for_one_rank(
        network in rising(), combine in 0.0f64..0.1, contention in 0.0f64..1.0,
        ranks in 2u32..100, bytes in 0u64..1_000_000, more in 1u64..1_000_000, segment in 1u64..100_000, degree in 2u32..20,
    ) {
        let costs = costs(network, combine, contention);
        for (operation, algorithm) in every_algorithm() {
            let (segment_bytes, degree) = (NonZeroU64::new(segment), NonZeroU32::new(degree));
            let choice = Choice { segment_bytes, degree, ..Choice::of(algorithm) };
            let predict = |ranks, bytes| costs.predict(operation, &choice, ranks, bytes).expect("has a model");
            prop_assert_eq!(predict(1, bytes), 0.0, "{} {}", algorithm, operation);
            prop_assert_eq!(predict(0, bytes), 0.0, "{} {}", algorithm, operation);
            let (small, large) = (predict(ranks, bytes), predict(ranks, bytes + more));
            prop_assert!(small <= large * (1.0 + 1e-9) && small >= 0.0, "{algorithm} {operation}: {small}, then {large}");
        }
    }

    #[test]
    fn no_model_overflows(ranks in prop_oneof![0u32..5, 1000u32..5000], bytes in prop_oneof![Just(u64::MAX), any::<u64>()]) {
        let points = [0, u64::MAX].map(|bytes| Point { bytes, send_overhead: 1e13, receive_overhead: 1e13, gap: 1e13 });
        let costs = costs(Parameters::new(1e13, points.to_vec()).expect("valid"), 1e12, 1e12);
        for (operation, algorithm) in every_algorithm() {
            for segment in [1, u64::MAX] {
                let choice = Choice { segment_bytes: NonZeroU64::new(segment), ..Choice::of(algorithm) };
                let time = costs.predict(operation, &choice, ranks, bytes).expect("has a model");
                prop_assert!(time.is_finite() && time >= 0.0, "{algorithm} {operation}: {time}");
            }
        }
    }

    #[test]
    fn the_best_tuning_is_as_good_as_any_power(network in rising(), ranks in 2u32..64, bytes in 1u64..1_000_000) {
        let costs = costs(network, 0.001, 0.4);
        let model = CostModel { inside: &costs, between: None, available: &|_, _, _| true };
        for (operation, algorithm) in every_algorithm() {
            let form = CallForm::Blocking;
            let query = Query { operation, form, ranks, ranks_per_node: ranks, bytes };
            let candidates = model.candidates(&query);
            let found = candidates.iter().find(|one| one.plan.algorithm == algorithm);
            // An algorithm in one segment is another algorithm.
            let Some(best) = found else { continue };
            let again = costs.predict(operation, &best.plan, ranks, bytes).expect("has a model");
            prop_assert_eq!(best.microseconds, again);
            for power in 6..=bytes.ilog2() {
                let degree = NonZeroU32::new(2 << (power % 4));
                let choice = Choice { segment_bytes: NonZeroU64::new(bytes >> (power - 6)), degree, ..Choice::of(algorithm) };
                // Segments are whole cache lines, and a message has 256 at most, so that a power
                // may lie beside one that was tried.
                let other = costs.predict(operation, &choice, ranks, bytes).expect("has a model");
                let granule = (bytes / 256).next_multiple_of(64).max(64);
                let aligned = choice.segment_bytes.is_none_or(|size| size.get() % granule == 0);
                prop_assert!(!aligned || best.microseconds <= other, "{algorithm} {operation}: {best:?}, {choice:?} {other}");
            }
        }
    }
}

/// Names are what the other crates call algorithms by.
#[test]
fn every_name_leads_back_and_no_model_is_missing() {
    for (operation, algorithm) in every_algorithm() {
        assert_eq!(operation.name().parse(), Ok(operation));
        assert_eq!(algorithm.name().parse(), Ok(algorithm));
    }
    for algorithm in collectives::Algorithm::ALL {
        assert!(
            every_algorithm().any(|(_, other)| other == *algorithm),
            "{algorithm} belongs to no operation"
        );
    }
    let error = "binominal".parse::<collectives::Algorithm>().expect_err("misspelt").to_string();
    assert!(error.starts_with("`binominal` is no algorithm; use one of flat,"), "{error}");
}
