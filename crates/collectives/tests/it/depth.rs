//! Algorithms are as deep, and send as many messages, as their papers say.

use crate::reference::SUM;
use crate::tuning;
use collectives::{
    Algorithm, Choice, Collective, GraphSpec, Reduction, Sizes, Tuning, allgather, allreduce,
    alltoall, barrier, bcast, exscan, gather, reduce, reduce_scatter, scan, scatter,
};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Graph, Operation};

/// The longest chain of messages, and the number of all messages.
fn figures(ranks: u32, graph: impl Fn(u32) -> Graph) -> (u32, u32) {
    let graphs: Vec<Graph> = (0..ranks).map(graph).collect();
    let sends = graphs.iter().flat_map(Graph::vertices);
    let sends = sends.filter(|entry| matches!(entry.operation, Operation::Send { .. })).count();
    (goal::depth::measure(&graphs).unwrap().deepest, sends as u32)
}

/// ⌈log₂ ranks⌉
fn ceiling(ranks: u32) -> u32 {
    ranks.next_power_of_two().ilog2()
}

/// Checks the depth of an algorithm of ⌈log₂ ranks⌉ rounds: not every round needs to wait
/// for all before it when the number of ranks is not a power of two.
fn is_logarithmic((depth, messages): (u32, u32), ranks: u32, expected: u32) {
    assert!(
        (ranks.ilog2()..=ceiling(ranks)).contains(&depth),
        "{depth} messages deep with {ranks} ranks"
    );
    assert_eq!(messages, expected, "{ranks} ranks");
}

/// Checks the depth of rounds of a power of two of ranks: if there are others, a message before them
/// and one after them wait for each other or not.
fn is_folded((depth, _): (u32, u32), ranks: u32, rounds: u32) {
    let others = if ranks.is_power_of_two() { 0 } else { 2 };
    assert!(
        (rounds..=rounds + others).contains(&depth),
        "{depth} messages deep with {ranks} ranks"
    );
}

const COUNTS: std::ops::RangeInclusive<u32> = 2..=33;

#[test]
fn broadcasts() {
    use Algorithm::*;
    for ranks in COUNTS {
        let others = ranks - 1;
        // 40 bytes in segments of 10.
        let figures = |algorithm: Algorithm| {
            figures(ranks, |rank| {
                bcast::graph(algorithm, rank, ranks, 1, 40, tuning(10, 3)).unwrap()
            })
        };
        assert_eq!(figures(Flat), (1, others));
        assert_eq!(
            figures(FlatRendezvous),
            (3, 3 * others),
            "one handshake, 2 g(1) + 3 L, however many ranks"
        );
        assert_eq!(figures(SegmentedFlat), (1, 4 * others));
        assert_eq!(figures(Chain), (others, others));
        assert_eq!(figures(ChainRendezvous), (3 * others, 3 * others));
        assert_eq!(figures(SegmentedChain), (others, 4 * others));
        assert_eq!(figures(Binary), ((ranks + 1).next_power_of_two().ilog2() - 1, others));
        assert_eq!(figures(Binomial), (ranks.ilog2(), others));
        assert_eq!(figures(BinomialRendezvous), (3 * ranks.ilog2(), 3 * others));
        assert_eq!(figures(SegmentedBinomial), (ranks.ilog2(), 4 * others));
        let height = (1..).find(|height| (3u32.pow(height + 1) - 1) / 2 >= ranks).unwrap();
        assert_eq!(figures(Dary), (height, others));
        assert_eq!(figures(TwoTree).1, 4 * others);
        assert!(figures(TwoTree).0 <= ceiling(ranks) + 1, "two trees of logarithmic height");
        assert!(figures(ScatterAllgather).0 <= ranks.ilog2() + ranks - 2);
        assert_eq!(figures(Join), (1, 0));
    }
}

#[test]
fn scatters_and_gathers() {
    for ranks in COUNTS {
        let others = ranks - 1;
        let sizes = &Sizes::equal(ranks, 20).unwrap();
        let scattered = |algorithm: Algorithm| {
            figures(ranks, |rank| scatter::graph(algorithm, rank, 1, sizes, tuning(10, 2)).unwrap())
        };
        let gathered = |algorithm: Algorithm| {
            figures(ranks, |rank| gather::graph(algorithm, rank, 1, sizes, tuning(10, 2)).unwrap())
        };
        let pipelined = (others, 2 * others * ranks / 2);
        assert_eq!(scattered(Algorithm::Flat), (1, others));
        assert_eq!(scattered(Algorithm::Chain), (others, others));
        assert_eq!(scattered(Algorithm::PipelinedChain), pipelined);
        assert_eq!(scattered(Algorithm::Binomial), (ranks.ilog2(), others));
        assert_eq!(gathered(Algorithm::Flat), (1, others));
        assert_eq!(gathered(Algorithm::Chain), (others, others));
        assert_eq!(gathered(Algorithm::PipelinedChain), pipelined);
        assert_eq!(gathered(Algorithm::Binomial), (ranks.ilog2(), others));
        assert_eq!(gathered(Algorithm::Join), (1, 0));
    }
}

#[test]
fn all_to_all_and_allgather() {
    use Algorithm::*;
    for ranks in COUNTS {
        let others = ranks - 1;
        let all = |algorithm: Algorithm, degree| {
            figures(ranks, |rank| {
                alltoall::graph(algorithm, rank, ranks, 8, tuning(8, degree)).unwrap()
            })
        };
        is_logarithmic(all(Bruck, 1), ranks, ranks * ceiling(ranks));
        assert_eq!(all(Direct, 1), (1, ranks * others));
        assert_eq!(all(RotatedDirect, 1), (1, ranks * others));
        assert_eq!(all(Pairwise, 1), (others, ranks * others));
        for degree in [1, 2, 4, 64] {
            let phases = alltoall::phases(ranks, degree);
            let messages: u32 = phases.iter().map(|phase| phase - 1).sum();
            assert_eq!(all(Multiphase, degree), (phases.len() as u32, ranks * messages));
        }
        let sizes = &Sizes::equal(ranks, 8).unwrap();
        let gathered = |algorithm: Algorithm| {
            figures(ranks, |rank| allgather::graph(algorithm, rank, sizes).unwrap())
        };
        assert_eq!(gathered(Algorithm::Ring), (others, ranks * others));
        is_logarithmic(gathered(Algorithm::Bruck), ranks, ranks * ceiling(ranks));
        is_folded(gathered(Algorithm::RecursiveDoubling), ranks, ranks.ilog2());
        assert_eq!(gathered(Algorithm::RotatedDirect), (1, ranks * others));
        assert_eq!(gathered(Algorithm::GatherBcast), (2 * ranks.ilog2(), 2 * others));
        assert_eq!(gathered(Algorithm::Join), (1, 0));
    }
}

#[test]
fn reductions() {
    use Algorithm::*;
    for ranks in COUNTS {
        // Each rank has at least an element of every part.
        let others = ranks - 1;
        let bytes = 8 * u64::from(ranks);
        let reduced = |algorithm: Algorithm, root, degree| {
            figures(ranks, |rank| {
                reduce::graph(algorithm, rank, ranks, root, bytes, SUM, tuning(8, degree)).unwrap()
            })
        };
        assert_eq!(reduced(Flat, 1, 1), (1, others));
        assert_eq!(reduced(Chain, 0, 1), (others, others));
        assert_eq!(reduced(Chain, ranks / 2, 1), ((ranks / 2).max(others - ranks / 2), others));
        assert_eq!(reduced(SegmentedChain, 0, 1), (others, ranks * others));
        for root in [0, 1, ranks / 2, others] {
            is_logarithmic(reduced(Binomial, root, 1), ranks, others);
            let power = ranks.is_power_of_two();
            let rounds = 2 * ranks.ilog2() + u32::from(!power);
            assert!(reduced(Rabenseifner, root, 1).0 <= rounds, "root {root} of {ranks}");
        }
        let height = (1..).find(|height| (3u32.pow(height + 1) - 1) / 2 >= ranks).unwrap();
        assert_eq!(reduced(Dary, 0, 3), (height, others));
        let blocks = &Sizes::equal(ranks, 8).unwrap();
        let scattered = |algorithm: Algorithm| {
            figures(ranks, |rank| reduce_scatter::graph(algorithm, rank, blocks, SUM).unwrap())
        };
        assert_eq!(scattered(Algorithm::Ring), (others, ranks * others));
        assert_eq!(scattered(Algorithm::Pairwise), (others, ranks * others));
        is_folded(scattered(Algorithm::RecursiveHalving), ranks, ranks.ilog2());
        assert_eq!(scattered(Algorithm::ReduceThenScatter), (2 * ranks.ilog2(), 2 * others));
        let all = |algorithm: Algorithm| {
            figures(ranks, |rank| allreduce::graph(algorithm, rank, ranks, bytes, SUM).unwrap())
        };
        is_folded(all(Algorithm::RecursiveDoubling), ranks, ranks.ilog2());
        let everywhere = (ceiling(ranks), ranks * ceiling(ranks));
        assert_eq!(all(Algorithm::Dissemination), everywhere);
        assert_eq!(all(Algorithm::Ring), (2 * others, 2 * ranks * others));
        is_folded(all(Algorithm::Rabenseifner), ranks, 2 * ranks.ilog2());
        assert_eq!(all(Algorithm::RotatedDirect), (1, ranks * others));
        assert_eq!(all(Algorithm::ReduceBcast), (2 * ranks.ilog2(), 2 * others));
        assert_eq!(all(Algorithm::Join), (1, 0));
    }
}

#[test]
fn scans_and_barriers() {
    for ranks in COUNTS {
        let others = ranks - 1;
        let bytes = 8;
        let pairs: u32 = (0..ceiling(ranks)).map(|round| ranks - (1 << round)).sum();
        let scanned = |algorithm: Algorithm| {
            figures(ranks, |rank| scan::graph(algorithm, rank, ranks, bytes, SUM).unwrap())
        };
        assert_eq!(scanned(Algorithm::Chain), (others, others));
        is_logarithmic(scanned(Algorithm::RecursiveDoubling), ranks, pairs);
        let scanned = |algorithm: Algorithm| {
            figures(ranks, |rank| exscan::graph(algorithm, rank, ranks, bytes, SUM).unwrap())
        };
        assert_eq!(scanned(Algorithm::Chain), (others, others));
        is_logarithmic(scanned(Algorithm::RecursiveDoubling), ranks, pairs);
        let met = |algorithm: Algorithm| {
            figures(ranks, |rank| barrier::graph(algorithm, rank, ranks).unwrap())
        };
        assert_eq!(met(Algorithm::Dissemination), (ceiling(ranks), ranks * ceiling(ranks)));
        assert_eq!(met(Algorithm::Tree), (2 * ranks.ilog2(), 2 * others));
        is_folded(met(Algorithm::RecursiveDoubling), ranks, ranks.ilog2());
        assert_eq!(met(Algorithm::Flat), (2, 2 * others));
        assert_eq!(met(Algorithm::RotatedDirect), (1, ranks * others));
        assert_eq!(met(Algorithm::Join), (1, 0));
    }
}

/// Among more than two of these numbers of ranks no tree of degree 2 is flat, and no exchange of that
/// degree has one phase.
#[test]
fn algorithms_send_at_the_start_where_that_is_claimed() {
    let mut wrong = Vec::new();
    for ranks in [2, 6, 8, 9] {
        for (collective, algorithm) in Collective::ALL
            .iter()
            .flat_map(|one| one.algorithms().iter().map(|algorithm| (*one, *algorithm)))
            .filter(|(_, algorithm)| *algorithm != Algorithm::Join)
        {
            let two = std::num::NonZeroU32::new(2);
            let segment_bytes = std::num::NonZeroU64::new(8);
            let choice = Choice { segment_bytes, degree: two, ..Choice::of(algorithm) };
            let sends_at_start = |rank, root| {
                let bytes = 8 * u64::from(ranks);
                let ranks_per_node = std::num::NonZeroU32::MIN;
                let reduction = Reduction::new(Arithmetic::Add, DataType::U64);
                let spec =
                    GraphSpec { collective, rank, ranks, ranks_per_node, root, bytes, reduction };
                let graph = collectives::build(&spec, &choice).unwrap();
                goal::compile::compile(&graph).unwrap().view().sends_at_start()
            };
            for root in [0, 1, ranks - 1] {
                let found = (0..ranks).all(|rank| sends_at_start(rank, root));
                if collective.sends_at_start(algorithm, ranks) != found {
                    wrong.push(format!("{algorithm} {collective} among {ranks}, root {root}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_defaults_can_be_used() {
    let graph = |rank| {
        bcast::graph(Algorithm::SegmentedChain, rank, 4, 0, 20_000, Tuning::default()).unwrap()
    };
    assert_eq!(figures(4, graph), (3, 9));
}
