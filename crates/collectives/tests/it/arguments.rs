//! Wrong arguments are named, and names lead to algorithms.

use crate::reference::SUM;
use collectives::CollectiveError as Error;
use collectives::neighbor::{self, Neighborhood};
use collectives::{
    Reduction, Sizes, Tuning, allgather, allreduce, alltoall, barrier, bcast, exscan, gather,
    reduce,
};
use collectives::{reduce_scatter, scan, scatter};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::Graph;

#[test]
fn a_rank_must_exist() {
    for (rank, ranks) in [(0, 0), (3, 3), (u32::MAX, 8)] {
        let error = Some(Error::RankOutOfRange { rank, ranks });
        let tuning = Tuning::default();
        let sizes = &Sizes::equal(ranks, 8).unwrap();
        let check =
            |name: &str, graph: Result<Graph, Error>| assert_eq!(graph.err(), error, "{name}");
        barrier::Algorithm::ALL.iter().for_each(|a| check(a.name(), a.graph(rank, ranks)));
        bcast::Algorithm::ALL
            .iter()
            .for_each(|a| check(a.name(), a.graph(rank, ranks, 0, 8, tuning)));
        scatter::Algorithm::ALL
            .iter()
            .for_each(|a| check(a.name(), a.graph(rank, 0, sizes, tuning)));
        gather::Algorithm::ALL
            .iter()
            .for_each(|a| check(a.name(), a.graph(rank, 0, sizes, tuning)));
        allgather::Algorithm::ALL.iter().for_each(|a| check(a.name(), a.graph(rank, sizes)));
        alltoall::Algorithm::ALL
            .iter()
            .for_each(|a| check(a.name(), a.graph(rank, ranks, 8, tuning)));
        reduce::Algorithm::ALL
            .iter()
            .for_each(|a| check(a.name(), a.graph(rank, ranks, 0, 8, SUM, tuning)));
        allreduce::Algorithm::ALL
            .iter()
            .for_each(|a| check(a.name(), a.graph(rank, ranks, 8, SUM)));
        reduce_scatter::Algorithm::ALL
            .iter()
            .for_each(|a| check(a.name(), a.graph(rank, sizes, SUM)));
        scan::Algorithm::ALL.iter().for_each(|a| check(a.name(), a.graph(rank, ranks, 8, SUM)));
        exscan::Algorithm::ALL.iter().for_each(|a| check(a.name(), a.graph(rank, ranks, 8, SUM)));
        assert_eq!(gather::tree_gather(rank, ranks, 0, 1).err(), error);
        assert_eq!(Neighborhood::new(rank, ranks, &[], &[]).err(), error);
    }
}

#[test]
fn a_root_must_exist() {
    let error = Error::RootOutOfRange { root: 4, ranks: 4 };
    let tuning = Tuning::default();
    let sizes = &Sizes::equal(4, 8).unwrap();
    let check =
        |name: &str, graph: Result<Graph, Error>| assert_eq!(graph.as_ref(), Err(&error), "{name}");
    bcast::Algorithm::ALL.iter().for_each(|a| check(a.name(), a.graph(0, 4, 4, 8, tuning)));
    scatter::Algorithm::ALL.iter().for_each(|a| check(a.name(), a.graph(0, 4, sizes, tuning)));
    gather::Algorithm::ALL.iter().for_each(|a| check(a.name(), a.graph(0, 4, sizes, tuning)));
    reduce::Algorithm::ALL.iter().for_each(|a| check(a.name(), a.graph(0, 4, 4, 8, SUM, tuning)));
    assert!(error.to_string().contains("root 4 does not exist among 4 ranks"));
}

#[test]
fn a_reduction_must_be_defined() {
    let f64 = DataType::F64;
    let tuning = Tuning::default();
    let sum = Reduction::new(Arithmetic::Add, f64);
    let bits = Reduction::new(Arithmetic::Xor, f64);
    let sizes = |bytes| Sizes::each(&[16, bytes]).unwrap();
    let check = |name: &str, graph: &dyn Fn(u64, Reduction) -> Result<Graph, Error>| {
        let error = Some(Error::NotWholeElements { bytes: 12, data_type: f64 });
        assert_eq!(graph(12, sum).err(), error, "{name}");
        let error = Some(Error::NotApplicable { operation: Arithmetic::Xor, data_type: f64 });
        assert_eq!(graph(16, bits).err(), error, "{name}");
    };
    reduce::Algorithm::ALL
        .iter()
        .for_each(|a| check(a.name(), &|bytes, how| a.graph(0, 4, 0, bytes, how, tuning)));
    allreduce::Algorithm::ALL
        .iter()
        .for_each(|a| check(a.name(), &|bytes, how| a.graph(0, 4, bytes, how)));
    reduce_scatter::Algorithm::ALL
        .iter()
        .for_each(|a| check(a.name(), &|bytes, how| a.graph(0, &sizes(bytes), how)));
    scan::Algorithm::ALL
        .iter()
        .for_each(|a| check(a.name(), &|bytes, how| a.graph(0, 4, bytes, how)));
    exscan::Algorithm::ALL
        .iter()
        .for_each(|a| check(a.name(), &|bytes, how| a.graph(0, 4, bytes, how)));
    for operation in [Arithmetic::Subtract, Arithmetic::Divide] {
        let reduction = Reduction::new(operation, DataType::I64);
        for algorithm in allreduce::Algorithm::ALL {
            let refused =
                matches!(algorithm.graph(0, 4, 8, reduction), Err(Error::NotAssociative { .. }));
            assert_eq!(refused, !algorithm.folds_from_left(), "{algorithm}");
        }
    }
}

#[test]
fn sizes_beyond_64_bits_are_refused_and_sizes_below_are_not() {
    const HUGE: u64 = 1 << 62;
    let tuning = Tuning::default();
    let bytes = Reduction::new(Arithmetic::Add, DataType::U8);
    let too_many = |error: Option<Error>| matches!(error, Some(Error::TooManyBytes { .. }));
    for algorithm in alltoall::Algorithm::ALL {
        assert!(too_many(algorithm.graph(0, 4, HUGE, tuning).err()), "{algorithm}");
        assert!(
            algorithm.graph(0, 3, HUGE, tuning).is_ok() || *algorithm == alltoall::Algorithm::Bruck
        );
    }
    assert!(too_many(Sizes::equal(4, HUGE).err()));
    assert!(too_many(Sizes::each(&[HUGE, HUGE, HUGE, HUGE]).err()));
    let doubling = |ranks| allreduce::Algorithm::RecursiveDoubling.graph(0, ranks, HUGE, bytes);
    assert!(doubling(2).is_ok());
    assert!(
        too_many(doubling(32).err()),
        "five messages of this size do not fit into the scratchpad"
    );
    assert!(too_many(reduce::Algorithm::Flat.graph(0, 8, 0, HUGE, bytes, tuning).err()));
    let ring = Neighborhood::new(0, 2, &[1; 4], &[1; 4]).unwrap();
    assert!(too_many(neighbor::neighbor_alltoall(&ring, HUGE).err()));
    assert!(too_many(neighbor::neighbor_allgather(&ring, HUGE).err()));
    assert!(
        bcast::Algorithm::Binomial.graph(0, 4, 0, u64::MAX, tuning).is_ok(),
        "a single buffer may have any size"
    );
}

#[test]
fn a_rank_that_does_not_exist_has_no_bytes() {
    for sizes in [Sizes::equal(3, 5).unwrap(), Sizes::each(&[5, 5, 5]).unwrap()] {
        assert_eq!([0, 2, 3, u32::MAX].map(|rank| sizes.bytes(rank)), [5, 5, 0, 0]);
        assert_eq!((sizes.ranks(), sizes.total()), (3, 15));
    }
}

#[test]
fn neighbours_must_exist_and_loops_have_two_ends() {
    let error = Neighborhood::new(0, 4, &[1, 4], &[]).unwrap_err();
    assert_eq!(
        error,
        Error::NeighborOutOfRange { list: "source", position: 1, neighbor: 4, ranks: 4 }
    );
    assert_eq!(
        error.to_string(),
        "source 1 is rank 4, which does not exist among 4 ranks: give one below 4"
    );
    let error = Neighborhood::new(2, 4, &[2], &[2, 1, 2]).unwrap_err();
    assert_eq!(error, Error::SelfLoopsDiffer { rank: 2, destinations: 2, sources: 1 });

    let own = Neighborhood::new(2, 4, &[1, 2], &[2]).unwrap();
    let error = neighbor::neighbor_alltoallv(&own, &[8], &[8, 9]).unwrap_err();
    let expected = Error::SelfLoopSizesDiffer {
        rank: 2,
        destination: 0,
        sent: 8,
        source_position: 1,
        expected: 9,
    };
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
    assert_eq!(
        neighbor::cartesian(&[2, 3], &[true; 2], 6),
        Err(Error::RankOutOfRange { rank: 6, ranks: 6 })
    );
    assert_eq!(neighbor::cartesian(&[], &[], 0), Ok(vec![]));
    for (ranks, dimensions) in [(0, 2), (4, 0)] {
        assert_eq!(
            neighbor::balanced_dimensions(ranks, dimensions),
            Err(Error::NoGrid { ranks, dimensions })
        );
    }
}

#[test]
fn algorithms_are_found_by_their_names() {
    fn names<A: std::fmt::Display + std::str::FromStr + PartialEq + Copy>(
        all: &[A],
    ) -> Vec<String> {
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert!(
            all.iter()
                .zip(&names)
                .all(|(algorithm, name)| name.parse().is_ok_and(|found: A| found == *algorithm))
        );
        names
    }
    assert_eq!(names(barrier::Algorithm::ALL).len(), 5);
    assert_eq!(names(bcast::Algorithm::ALL).len(), 14);
    assert_eq!(
        names(scatter::Algorithm::ALL),
        ["flat", "chain", "pipelined-chain", "binomial", "join"]
    );
    assert_eq!(
        names(gather::Algorithm::ALL),
        ["flat", "chain", "pipelined-chain", "binomial", "join"]
    );
    assert_eq!(
        names(allgather::Algorithm::ALL),
        ["ring", "recursive-doubling", "bruck", "gather-bcast", "join"]
    );
    assert_eq!(names(alltoall::Algorithm::ALL).len(), 6);
    assert_eq!(names(reduce::Algorithm::ALL).len(), 7);
    assert_eq!(names(allreduce::Algorithm::ALL).len(), 5);
    assert_eq!(names(reduce_scatter::Algorithm::ALL).len(), 5);
    assert_eq!(names(scan::Algorithm::ALL), names(exscan::Algorithm::ALL));
    let error = "binary".parse::<scatter::Algorithm>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "`binary` is no scatter algorithm; use one of flat, chain, pipelined-chain, binomial, join"
    );
}
