//! An all-to-all is a transposition of blocks.

use crate::{block, run, tuning};
use collectives::alltoall::phases;
use collectives::{Algorithm, CollectiveError, Tuning, alltoall};
use goal::graph::{Graph, Operation};

/// Checks the multiphase algorithm.
fn check(ranks: u32, degree: u32) {
    let bytes = 3;
    let graph = |rank| {
        alltoall::graph(Algorithm::Multiphase, rank, ranks, bytes, tuning(1, degree)).unwrap()
    };
    let graphs: Vec<Graph> = (0..ranks).map(graph).collect();
    let inputs: Vec<Vec<u8>> =
        (0..ranks).map(|rank| (0..ranks).flat_map(|to| block(rank, to, bytes)).collect()).collect();
    for (rank, buffers) in run(&graphs, &inputs).iter().enumerate() {
        let expected: Vec<u8> =
            (0..ranks).flat_map(|from| block(from, rank as u32, bytes)).collect();
        assert_eq!(buffers[1], expected, "degree {degree}: rank {rank} of {ranks}");
    }
}

#[test]
fn phases_may_be_of_any_length() {
    for ranks in [8, 12, 16, 30] {
        for degree in [1, 2, 3, 6, 8, 100] {
            check(ranks, degree);
        }
    }
}

#[test]
fn the_phases_make_up_the_ranks() {
    for ranks in 1..=300u32 {
        for degree in [1, 2, 4, 7, 16, u32::MAX] {
            let phases = phases(ranks, degree);
            assert_eq!(phases.iter().product::<u32>(), ranks);
            let is_prime = |number: u32| (2..number).all(|factor| !number.is_multiple_of(factor));
            assert!(
                phases.iter().all(|phase| *phase <= degree || is_prime(*phase)),
                "{ranks}: {phases:?}"
            );
        }
    }
    assert_eq!(phases(u32::MAX, 1), [3, 5, 17, 257, 65537]);
    assert_eq!(
        phases(4294967291, 4),
        [4294967291],
        "the largest prime of 32 bits is found to be one in no time"
    );
}

#[test]
fn sizes_must_fit() {
    let graph = |algorithm: Algorithm, sent: &[u64], received: &[u64]| {
        alltoall::graph_v(algorithm, 0, sent, received)
    };
    let error = graph(Algorithm::Direct, &[1, 2], &[1]).unwrap_err();
    assert_eq!(error, CollectiveError::SizesOfOtherRanks { sizes: 1, ranks: 2 });
    let error = graph(Algorithm::Direct, &[1, 2], &[3, 2]).unwrap_err();
    assert_eq!(error, CollectiveError::OwnSizesDiffer { rank: 0, sent: 1, expected: 3 });
    let error = graph(Algorithm::Bruck, &[1, 2], &[1, 2]).unwrap_err();
    assert!(error.to_string().contains("use direct, rotated-direct or pairwise"), "{error}");
}

#[test]
fn bruck_sends_a_logarithmic_number_of_messages_from_independent_receives() {
    for (ranks, rounds) in [(2, 1), (3, 2), (8, 3), (9, 4), (100, 7)] {
        let graph =
            alltoall::graph(Algorithm::Bruck, ranks / 2, ranks, 8, Tuning::default()).unwrap();
        let sends = graph
            .vertices()
            .iter()
            .filter(|entry| matches!(entry.operation, Operation::Send { .. }));
        assert_eq!(sends.count(), rounds, "{ranks} ranks");
        for edge in graph.edges() {
            let waiting = &graph.vertices()[edge.after.index()].operation;
            assert!(
                matches!(waiting, Operation::Send { .. }),
                "only sends wait, not {}",
                waiting.describe()
            );
        }
    }
}
