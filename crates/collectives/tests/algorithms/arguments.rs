//! Wrong arguments are named, and names lead to algorithms.

use collectives::CollectiveError as Error;
use collectives::neighbor::{self, Neighborhood};
use collectives::{allreduce, alltoall, barrier, bcast, gather};
use goal::arithmetic::{Arithmetic, DataType};

#[test]
fn a_rank_must_exist() {
    for (rank, ranks) in [(0, 0), (3, 3), (u32::MAX, 8)] {
        let error = Some(Error::RankOutOfRange { rank, ranks });
        let (operation, data_type) = (Arithmetic::Add, DataType::U8);
        for algorithm in barrier::Algorithm::ALL {
            assert_eq!(algorithm.graph(rank, ranks).err(), error);
        }
        for algorithm in allreduce::Algorithm::ALL {
            assert_eq!(algorithm.graph(rank, ranks, 1, operation, data_type).err(), error);
        }
        for algorithm in alltoall::Algorithm::ALL {
            assert_eq!(algorithm.graph(rank, ranks, 1).err(), error);
        }
        for algorithm in bcast::Algorithm::ALL {
            assert_eq!(algorithm.graph(rank, ranks, 0, 1).err(), error);
        }
        assert_eq!(gather::tree_gather(rank, ranks, 0, 1).err(), error);
        assert_eq!(Neighborhood::new(rank, ranks, &[], &[]).err(), error);
    }
}

#[test]
fn a_root_must_exist() {
    let error = Error::RootOutOfRange { root: 4, ranks: 4 };
    for algorithm in bcast::Algorithm::ALL {
        assert_eq!(algorithm.graph(0, 4, 4, 1).as_ref(), Err(&error));
    }
    assert_eq!(gather::tree_gather(0, 4, 4, 1).as_ref(), Err(&error));
    assert!(error.to_string().contains("root 4 does not exist among 4 ranks"));
}

#[test]
fn a_reduction_must_be_defined() {
    for algorithm in allreduce::Algorithm::ALL {
        let graph = |bytes, operation, data_type| algorithm.graph(0, 4, bytes, operation, data_type).err();
        let (bytes, data_type) = (12, DataType::F64);
        assert_eq!(graph(bytes, Arithmetic::Add, data_type), Some(Error::NotWholeElements { bytes, data_type }));
        let operation = Arithmetic::Xor;
        assert_eq!(graph(16, operation, data_type), Some(Error::NotApplicable { operation, data_type }));
    }
    for operation in [Arithmetic::Subtract, Arithmetic::Divide] {
        let error = allreduce::recursive_doubling(0, 4, 8, operation, DataType::I64).unwrap_err();
        assert!(matches!(error, Error::NotAssociative { .. }), "{error}");
        assert!(allreduce::join(0, 4, 8, operation, DataType::I64).is_ok());
    }
}

#[test]
fn sizes_beyond_64_bits_are_refused_and_sizes_below_are_not() {
    const HUGE: u64 = 1 << 62;
    let too_many = |error: Option<Error>| matches!(error, Some(Error::TooManyBytes { .. }));
    for algorithm in alltoall::Algorithm::ALL {
        assert!(too_many(algorithm.graph(0, 4, HUGE).err()), "{algorithm}");
        assert!(algorithm.graph(0, 3, HUGE).is_ok() || *algorithm == alltoall::Algorithm::Bruck);
    }
    for root in 0..4 {
        assert_eq!(too_many(gather::tree_gather(0, 4, root, HUGE).err()), root == 0);
    }
    let doubling = |ranks| allreduce::recursive_doubling(0, ranks, HUGE, Arithmetic::Add, DataType::U8);
    assert!(doubling(2).is_ok());
    assert!(too_many(doubling(32).err()), "five messages of this size do not fit into the scratchpad");
    let ring = Neighborhood::new(0, 2, &[1; 4], &[1; 4]).unwrap();
    assert!(too_many(neighbor::neighbor_alltoall(&ring, HUGE).err()));
    assert!(too_many(neighbor::neighbor_allgather(&ring, HUGE).err()));
    assert!(bcast::binomial(0, 4, 0, u64::MAX).is_ok(), "a single buffer may have any size");
}

#[test]
fn neighbours_must_exist_and_loops_have_two_ends() {
    let error = Neighborhood::new(0, 4, &[1, 4], &[]).unwrap_err();
    assert_eq!(error, Error::NeighborOutOfRange { list: "source", position: 1, neighbor: 4, ranks: 4 });
    assert_eq!(error.to_string(), "source 1 is rank 4, which does not exist among 4 ranks: give one below 4");
    let error = Neighborhood::new(2, 4, &[2], &[2, 1, 2]).unwrap_err();
    assert_eq!(error, Error::SelfLoopsDiffer { rank: 2, destinations: 2, sources: 1 });

    let own = Neighborhood::new(2, 4, &[1, 2], &[2]).unwrap();
    let error = neighbor::neighbor_alltoallv(&own, &[8], &[8, 9]).unwrap_err();
    let expected = Error::SelfLoopSizesDiffer { rank: 2, destination: 0, sent: 8, source_position: 1, expected: 9 };
    assert_eq!(error, expected);
    let error = neighbor::neighbor_alltoallv(&own, &[8], &[8]).unwrap_err();
    assert_eq!(error, Error::SizesDoNotFit { list: "source", sizes: 1, neighbors: 2 });
}

#[test]
fn grids_must_be_grids() {
    let error = neighbor::cartesian(&[2, 3], &[true], 0).unwrap_err();
    assert_eq!(error, Error::PeriodicFlagsDoNotFit { dimensions: 2, periodic: 1 });
    for dimensions in [vec![2, 0], vec![1 << 16, 1 << 16]] {
        let error = Neighborhood::cartesian(&dimensions, &[true; 2], 0).unwrap_err();
        assert!(matches!(error, Error::GridSize { .. }), "{error}");
    }
    assert_eq!(neighbor::cartesian(&[2, 3], &[true; 2], 6), Err(Error::RankOutOfRange { rank: 6, ranks: 6 }));
    assert_eq!(neighbor::cartesian(&[], &[], 0), Ok(vec![]));
    for (ranks, dimensions) in [(0, 2), (4, 0)] {
        assert_eq!(neighbor::balanced_dimensions(ranks, dimensions), Err(Error::NoGrid { ranks, dimensions }));
    }
}

#[test]
fn algorithms_are_found_by_their_names() {
    fn names<A: std::fmt::Display + std::str::FromStr + PartialEq + Copy>(all: &[A]) -> Vec<String> {
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert!(all.iter().zip(&names).all(|(algorithm, name)| name.parse().is_ok_and(|found: A| found == *algorithm)));
        names
    }
    assert_eq!(names(barrier::Algorithm::ALL), ["dissemination", "join"]);
    assert_eq!(names(allreduce::Algorithm::ALL), ["recursive-doubling", "join"]);
    assert_eq!(names(alltoall::Algorithm::ALL), ["bruck", "rotated-direct", "join"]);
    assert_eq!(names(bcast::Algorithm::ALL), ["binomial", "join"]);
    let error = "binary".parse::<bcast::Algorithm>().unwrap_err();
    assert_eq!(error.to_string(), "`binary` is no bcast algorithm; use one of binomial, join");
}
