//! The formulas against a simulation that plays the rules of pLogP through: which are exact, and
//! which are bounds.

mod network;
mod rounds;
mod trees;

use models::formulas::{
    allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scan, scatter,
};
use models::parameters::{Parameters, Point};
use proptest::prelude::*;
use rounds::Rounds;
use std::num::{NonZeroU32, NonZeroU64};
use trees::Schedule;

/// Any network whose parameters rise with the size, and whose processors keep up with it: os + or ≤
/// g.
fn networks() -> impl Strategy<Value = Parameters> {
    let steps = prop::collection::vec((1u64..5000, 0.01f64..50.0, 0.0f64..0.5, 0.0f64..0.5), 2..6);
    (0.0f64..100.0, steps).prop_map(|(latency, steps)| {
        let (mut bytes, mut gap) = (0, 0.0);
        let mut overheads = (0.0, 0.0);
        let points = steps.into_iter().map(|(more_bytes, more, send, receive)| {
            gap += more;
            overheads = (overheads.0 + send * more, overheads.1 + receive * more);
            let point =
                Point { bytes, send_overhead: overheads.0, receive_overhead: overheads.1, gap };
            bytes += more_bytes;
            point
        });
        Parameters::new(latency, points.collect()).expect("rising from zero")
    })
}

fn powers_of_two() -> impl Strategy<Value = u32> {
    (0u32..6).prop_map(|power| 1 << power)
}

struct Check {
    network: Parameters,
    combine: f64,
    ranks: u32,
}

impl Check {
    fn run(&self, schedule: &Schedule) -> f64 {
        network::run(&self.network, self.combine, self.ranks, &schedule.messages)
    }

    fn exact(&self, name: &str, formula: f64, schedule: Schedule) -> Result<(), TestCaseError> {
        let simulated = self.run(&schedule);
        prop_assert!(equal(formula, simulated), "{name}: formula {formula}, simulated {simulated}");
        Ok(())
    }

    fn upper(&self, name: &str, formula: f64, schedule: Schedule) -> Result<(), TestCaseError> {
        let simulated = self.run(&schedule);
        prop_assert!(
            simulated <= formula * (1.0 + 1e-9),
            "{name}: formula {formula}, simulated {simulated}"
        );
        Ok(())
    }

    fn lower(&self, name: &str, formula: f64, schedule: Schedule) -> Result<(), TestCaseError> {
        let simulated = self.run(&schedule);
        prop_assert!(
            simulated >= formula * (1.0 - 1e-9),
            "{name}: formula {formula}, simulated {simulated}"
        );
        Ok(())
    }
}

fn equal(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-9 * left.abs().max(right.abs()).max(1.0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn table_1_is_exact_where_its_page_says_so(network in networks(), ranks in 1u32..40, bytes in 0u64..20_000) {
        let check = Check { network, combine: 0.0, ranks };
        let n = &check.network;
        check.exact("flat", bcast::flat(n, ranks, bytes), trees::bcast(&trees::flat(ranks), bytes))?;
        check.exact("chain", bcast::chain(n, ranks, bytes), trees::bcast(&trees::chain(ranks), bytes))?;
        let rendezvous = trees::rendezvous(&trees::chain(ranks), bytes);
        check.exact("chain-rendezvous", bcast::chain_rendezvous(n, ranks, bytes), rendezvous)?;
        for degree in [1, 2, 3, 5, 39].into_iter().filter_map(NonZeroU32::new) {
            let tree = trees::dary(ranks, degree.get());
            check.exact("d-ary", bcast::dary(n, ranks, bytes, degree), trees::bcast(&tree, bytes))?;
        }
        check.upper("binary", bcast::binary(n, ranks, bytes), trees::bcast(&trees::dary(ranks, 2), bytes))?;
    }

    #[test]
    fn segments_flow_as_table_1_says(
        network in networks(), ranks in 1u32..20, segment in 1u64..5000, count in 1usize..12,
    ) {
        let bytes = segment * count as u64;
        let (check, size) = (Check { network, combine: 0.0, ranks }, NonZeroU64::new(segment).expect("positive"));
        let n = &check.network;
        let flat = trees::segmented(&trees::flat(ranks), segment, count, true);
        check.exact("segmented-flat", bcast::segmented_flat(n, ranks, bytes, size), flat)?;
        let chain = trees::segmented(&trees::chain(ranks), segment, count, true);
        check.exact("segmented-chain", bcast::segmented_chain(n, ranks, bytes, size), chain)?;
        if ranks >= 2 {
            let both_halves = bcast::two_tree(n, ranks, 2 * bytes, size);
            // Segments of the two trees meet at the receivers: up to one gap a level late, and one
            // early.
            let (levels, gap) = (f64::from((ranks - 1).ilog2() + 1), n.gap(segment));
            let schedule = || trees::two_tree(ranks, segment, count);
            check.upper("two-tree", both_halves + levels * gap, schedule())?;
            check.lower("two-tree", both_halves - gap, schedule())?;
        }
    }

    #[test]
    fn binomial_trees_are_exact_for_powers_of_two(
        network in networks(), ranks in powers_of_two(), bytes in 0u64..20_000, segment in 1u64..5000, count in 1usize..12,
    ) {
        let check = Check { network, combine: 0.0, ranks };
        let (n, tree) = (&check.network, trees::binomial(ranks));
        check.exact("binomial", bcast::binomial(n, ranks, bytes), trees::bcast(&tree, bytes))?;
        let rendezvous = bcast::binomial_rendezvous(n, ranks, bytes);
        check.exact("binomial-rendezvous", rendezvous, trees::rendezvous(&tree, bytes))?;
        let size = NonZeroU64::new(segment).expect("positive");
        let segmented = bcast::segmented_binomial(n, ranks, segment * count as u64, size);
        check.exact("whole messages", segmented, trees::segmented(&tree, segment, count, false))?;
        check.upper("segments", segmented, trees::segmented(&tree, segment, count, true))?;
        check.exact("scatter", scatter::binomial(n, ranks, bytes), trees::scatter(&tree, bytes))?;
        check.exact("gather", gather::binomial(n, ranks, bytes), trees::scatter(&tree, bytes).reversed(false))?;
    }

    #[test]
    fn binomial_trees_of_other_sizes_lie_between_powers_of_two(
        network in networks(), ranks in 2u32..40, bytes in 0u64..20_000,
    ) {
        let check = Check { network, combine: 0.0, ranks };
        let (n, tree) = (&check.network, trees::binomial(ranks));
        let (below, above) = (1 << ranks.ilog2(), ranks.next_power_of_two());
        let schedule = trees::bcast(&tree, bytes);
        check.lower("bcast above the power below", bcast::binomial(n, below, bytes), schedule)?;
        check.upper("bcast below the power above", bcast::binomial(n, above, bytes), trees::bcast(&tree, bytes))?;
        let formula = bcast::binomial(n, ranks, bytes);
        prop_assert!(bcast::binomial(n, below, bytes) <= formula && formula <= bcast::binomial(n, above, bytes));
        check.upper("scatter", scatter::binomial(n, ranks, bytes), trees::scatter(&tree, bytes))?;
        check.upper("gather", gather::binomial(n, ranks, bytes), trees::scatter(&tree, bytes).reversed(false))?;
    }

    #[test]
    fn flat_rendezvous_is_exact_for_two_and_too_short_for_more(
        network in networks(), ranks in 2u32..20, bytes in 0u64..20_000,
    ) {
        let formula = |ranks| bcast::flat_rendezvous(&network, ranks, bytes);
        let two = Check { network: network.clone(), combine: 0.0, ranks: 2 };
        two.exact("two", formula(2), trees::rendezvous(&trees::flat(2), bytes))?;
        let check = Check { network: network.clone(), combine: 0.0, ranks };
        check.lower("one by one", formula(ranks), trees::rendezvous(&trees::flat(ranks), bytes))?;
        check.lower("at once", formula(ranks), trees::flat_rendezvous_at_once(ranks, bytes))?;
    }

    #[test]
    fn table_2_is_exact(network in networks(), ranks in 1u32..20, bytes in 0u64..20_000) {
        let check = Check { network, combine: 0.0, ranks };
        let (n, flat, chain) = (&check.network, trees::flat(ranks), trees::chain(ranks));
        let pipeline = || trees::pipelined_chain(ranks, bytes);
        check.exact("flat", scatter::flat(n, ranks, bytes), trees::scatter(&flat, bytes))?;
        check.exact("chain", scatter::chain(n, ranks, bytes), trees::scatter(&chain, bytes))?;
        check.exact("pipelined-chain", scatter::pipelined_chain(n, ranks, bytes), pipeline())?;
        check.exact("gather flat", gather::flat(n, ranks, bytes), trees::scatter(&flat, bytes).reversed(false))?;
        check.exact("gather chain", gather::chain(n, ranks, bytes), trees::scatter(&chain, bytes).reversed(false))?;
        check.exact("gather pipeline", gather::pipelined_chain(n, ranks, bytes), pipeline().reversed(false))?;
    }

    #[test]
    fn table_3_bounds_the_rotated_exchange(network in networks(), ranks in 2u32..20, bytes in 0u64..20_000) {
        let check = Check { network, combine: 0.003, ranks };
        let n = &check.network;
        let bounds = alltoall::bounds(n, ranks, bytes);
        let exchange = || rounds::rotated_direct(ranks, bytes, false);
        check.lower("lower", bounds.lower, exchange())?;
        check.upper("upper", bounds.upper, exchange())?;
        let one_step = |contention| alltoall::one_step(n, contention, ranks, bytes);
        check.lower("one step, lower", one_step(0.0), exchange())?;
        check.upper("one step, upper", one_step(1.0), exchange())?;
        // Combinations may take place while the others' messages are under way.
        let combined = || rounds::rotated_direct(ranks, bytes, true);
        let most = allreduce::rotated_direct(n, (0.003, 1.0), ranks, bytes);
        check.lower("allreduce, lower", one_step(0.0), combined())?;
        check.upper("allreduce, upper", most, combined())?;
    }

    #[test]
    fn rounds_of_any_number_of_ranks_are_exact(network in networks(), ranks in 1u32..24, bytes in 0u64..5000) {
        let check = Check { network, combine: 0.003, ranks };
        let n = &check.network;
        check.exact("ring", allgather::ring(n, ranks, bytes), Rounds::new(ranks).ring(bytes, false).schedule)?;
        check.exact("bruck", allgather::bruck(n, ranks, bytes), rounds::dissemination(ranks, bytes))?;
        check.exact("pairwise", alltoall::pairwise(n, ranks, bytes), rounds::pairwise(ranks, bytes))?;
        check.exact("bruck", alltoall::bruck(n, ranks, bytes), rounds::multiphase(ranks, bytes, 2))?;
        for degree in [3, 4, 24].into_iter().filter_map(NonZeroU32::new) {
            let schedule = rounds::multiphase(ranks, bytes, degree.get());
            check.exact("multiphase", alltoall::multiphase(n, ranks, bytes, degree), schedule)?;
        }
        let combined = Rounds::new(ranks).ring(bytes, true);
        check.exact("reduce-scatter ring", reduce_scatter::ring(n, 0.003, ranks, bytes), combined.schedule)?;
        let both = Rounds::new(ranks).ring(bytes, true).ring(bytes, false);
        let whole = bytes * u64::from(ranks);
        check.exact("allreduce ring", allreduce::ring(n, 0.003, ranks, whole), both.schedule)?;
        let parts = trees::scatter(&trees::binomial(ranks), bytes);
        let ring = Rounds::after(parts, ranks).ring(bytes, false).schedule;
        // Messages that come early make others late, at most once a level.
        let late = f64::from(ranks.next_power_of_two().ilog2()) * n.gap(bytes);
        check.upper("scatter-allgather", bcast::scatter_allgather(n, ranks, whole) + late, ring)?;
        let disseminated = || rounds::dissemination_of_whole(ranks, bytes);
        check.upper("dissemination", allreduce::dissemination(n, 0.003, ranks, bytes), disseminated())?;
        let free = Check { network: n.clone(), combine: 0.0, ranks };
        free.exact("dissemination", allreduce::dissemination(n, 0.0, ranks, bytes), disseminated())?;
        check.upper("scan", scan::recursive_doubling(n, 0.003, ranks, bytes) + late, rounds::scan(ranks, bytes))?;
    }

    #[test]
    fn rounds_by_doubling_are_exact_for_powers_of_two(
        network in networks(), ranks in powers_of_two(), part in 0u64..2000,
    ) {
        let check = Check { network, combine: 0.003, ranks };
        let n = &check.network;
        let growing = rounds::recursive_doubling(ranks, |distance| part * u64::from(distance), false);
        check.exact("allgather", allgather::recursive_doubling(n, ranks, part), growing)?;
        let whole = rounds::recursive_doubling(ranks, |_| part, true);
        check.exact("allreduce", allreduce::recursive_doubling(n, 0.003, ranks, part), whole)?;
        let bytes = part * u64::from(ranks);
        check.exact("rabenseifner", allreduce::rabenseifner(n, 0.003, ranks, bytes), rounds::rabenseifner(ranks, bytes))?;
        let halving = reduce_scatter::recursive_halving(n, 0.003, ranks, part);
        check.exact("reduce-scatter", halving, rounds::halving(ranks, bytes).schedule)?;
        check.lower("scan", scan::recursive_doubling(n, 0.003, ranks, part), rounds::scan(ranks, part))?;
        let empty = || rounds::recursive_doubling(ranks, |_| 0, false);
        check.exact("barrier", barrier::recursive_doubling(n, ranks), empty())?;
        check.exact("barrier by dissemination", barrier::dissemination(n, ranks), rounds::dissemination(ranks, 0))?;
    }

    #[test]
    fn reductions_are_exact(network in networks(), ranks in 1u32..20, bytes in 0u64..20_000, combine in 0.0f64..0.02) {
        let check = Check { network, combine, ranks };
        let n = &check.network;
        let up = |tree: &trees::Tree| trees::bcast(tree, bytes).reversed(true);
        check.exact("flat", reduce::flat(n, combine, ranks, bytes), up(&trees::flat(ranks)))?;
        check.exact("chain", reduce::chain(n, combine, ranks, bytes), up(&trees::chain(ranks)))?;
        for degree in [1, 2, 3, 5, 30].into_iter().filter_map(NonZeroU32::new) {
            let tree = trees::dary(ranks, degree.get());
            check.upper("d-ary", reduce::dary(n, combine, ranks, bytes, degree), up(&tree))?;
        }
    }

    #[test]
    fn a_reduction_up_a_binomial_tree_is_exact_for_powers_of_two_if_combining_is_faster_than_the_network(
        network in networks(), power in 0u32..6, bytes in 1u64..20_000, share in 0.0f64..1.0,
    ) {
        let ranks = 1 << power;
        let idle = network.gap(bytes) - network.receive_overhead(bytes);
        let combine = share * idle / bytes as f64;
        let check = Check { network, combine, ranks };
        let schedule = trees::bcast(&trees::binomial(ranks), bytes).reversed(true);
        check.exact("binomial", reduce::binomial(&check.network, combine, ranks, bytes), schedule)?;
    }

    #[test]
    fn pipelines_that_reduce_have_the_rate_of_the_slower(
        network in networks(), ranks in 3u32..12, segment in 1u64..5000, count in 1usize..12, combine in 0.0f64..0.02,
    ) {
        let check = Check { network, combine, ranks };
        let size = NonZeroU64::new(segment).expect("positive");
        let formula = reduce::segmented_chain(&check.network, combine, ranks, segment * count as u64, size);
        let mut schedule = Schedule::default();
        let mut arrivals: Vec<Option<usize>> = vec![None; count];
        for rank in (1..ranks).rev() {
            for arrival in &mut arrivals {
                *arrival = Some(schedule.send_combined(rank, rank - 1, segment, *arrival));
            }
        }
        check.exact("segmented-chain", formula, schedule)?;
    }
}

/// A processor that is slower than its network determines the rate of an exchange: 4 + 5 is more
/// than 6 + 1.
#[test]
fn a_slow_processor_determines_the_rate_of_a_round() {
    let network = Parameters::linear(1.0, (4.0, 0.0), (5.0, 0.0), (6.0, 0.0)).expect("valid");
    let check = Check { network, combine: 0.0, ranks: 5 };
    let simulated = check.run(&Rounds::new(5).ring(100, false).schedule);
    assert_eq!((simulated, allgather::ring(&check.network, 5, 100)), (36.0, 36.0));
}
