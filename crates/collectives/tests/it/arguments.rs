//! Wrong arguments are named, and names lead to algorithms.

use crate::reference::SUM;
use collectives::CollectiveError as Error;
use collectives::neighbor::{self, Grid, Neighborhood};
use collectives::{Algorithm, Choice, Collective, GraphSpec, Levels, Reduction, Sizes, Tuning};
use collectives::{allreduce, alltoall, bcast, gather, reduce, reduce_scatter};
use goal::arithmetic::{Arithmetic, DataType};
use std::num::NonZeroU32;

/// Rank 0 of 4, one rank on each node, root 0, 8 bytes, a sum.
fn spec(collective: Collective) -> GraphSpec {
    GraphSpec {
        collective,
        rank: 0,
        ranks: 4,
        ranks_per_node: NonZeroU32::MIN,
        root: 0,
        bytes: 8,
        reduction: SUM,
    }
}

/// The error of building a graph in one level by each algorithm of the collective.
fn errors(spec: GraphSpec) -> impl Iterator<Item = (Algorithm, Option<Error>)> {
    let algorithms = spec.collective.algorithms().iter();
    algorithms.map(move |one| (*one, collectives::build(&spec, &Choice::of(*one)).err()))
}

#[test]
fn a_rank_must_exist() {
    for (rank, ranks) in [(0, 0), (3, 3), (u32::MAX, 8)] {
        let expected = Some(Error::RankOutOfRange { rank, ranks });
        for collective in Collective::ALL {
            for (algorithm, error) in errors(GraphSpec { rank, ranks, ..spec(*collective) }) {
                assert_eq!(error, expected, "{collective}, {algorithm}");
            }
        }
        assert_eq!(gather::tree_gather(rank, ranks, 0, 1).err(), expected);
        assert_eq!(Neighborhood::new(rank, ranks, &[], &[]).err(), expected);
    }
}

#[test]
fn a_root_must_exist() {
    let expected = Error::RootOutOfRange { root: 4, ranks: 4 };
    for collective in Collective::ALL.iter().filter(|collective| collective.has_root()) {
        for (algorithm, error) in errors(GraphSpec { root: 4, ..spec(*collective) }) {
            assert_eq!(error.as_ref(), Some(&expected), "{collective}, {algorithm}");
        }
    }
    assert!(expected.to_string().contains("root 4 does not exist among 4 ranks"));
}

#[test]
fn a_reduction_must_be_defined() {
    use Collective::*;
    let data_type = DataType::F64;
    let operation = Arithmetic::Xor;
    let reduction = Reduction::new(Arithmetic::Add, data_type);
    let bits = Reduction::new(operation, data_type);
    let partial = Some(Error::NotWholeElements { bytes: 12, data_type });
    let undefined = Some(Error::NotApplicable { operation, data_type });
    for collective in [Reduce, Allreduce, ReduceScatter, Scan, Exscan] {
        for (algorithm, error) in errors(GraphSpec { bytes: 12, reduction, ..spec(collective) }) {
            assert_eq!(error, partial, "{collective}, {algorithm}");
        }
        let bits = GraphSpec { bytes: 16, reduction: bits, ..spec(collective) };
        for (algorithm, error) in errors(bits) {
            assert_eq!(error, undefined, "{collective}, {algorithm}");
        }
    }
    for algorithm in ReduceScatter.algorithms() {
        let sizes = |bytes| Sizes::each(&[16, bytes]).unwrap();
        assert_eq!(reduce_scatter::graph(*algorithm, 0, &sizes(12), reduction).err(), partial);
        assert_eq!(reduce_scatter::graph(*algorithm, 0, &sizes(16), bits).err(), undefined);
    }
    for operation in [Arithmetic::Subtract, Arithmetic::Divide] {
        let reduction = Reduction::new(operation, DataType::I64);
        for (algorithm, error) in errors(GraphSpec { reduction, ..spec(Allreduce) }) {
            let refused = matches!(error, Some(Error::NotAssociative { .. }));
            assert_eq!(refused, !Allreduce.folds_from_left(algorithm), "{algorithm}");
        }
    }
}

#[test]
fn sizes_beyond_64_bits_are_refused_and_sizes_below_are_not() {
    const HUGE: u64 = 1 << 62;
    let tuning = Tuning::default();
    let bytes = Reduction::new(Arithmetic::Add, DataType::U8);
    let too_many = |error: Option<Error>| matches!(error, Some(Error::TooManyBytes { .. }));
    for algorithm in Collective::Alltoall.algorithms() {
        let graph = |ranks| alltoall::graph(*algorithm, 0, ranks, HUGE, tuning);
        assert!(too_many(graph(4).err()), "{algorithm}");
        assert!(graph(3).is_ok() || *algorithm == Algorithm::Bruck);
    }
    assert!(too_many(Sizes::equal(4, HUGE).err()));
    assert!(too_many(Sizes::each(&[HUGE, HUGE, HUGE, HUGE]).err()));
    let doubling = |ranks| allreduce::graph(Algorithm::RecursiveDoubling, 0, ranks, HUGE, bytes);
    assert!(doubling(2).is_ok());
    assert!(
        too_many(doubling(32).err()),
        "five messages of this size do not fit into the scratchpad"
    );
    assert!(too_many(reduce::graph(Algorithm::Flat, 0, 8, 0, HUGE, bytes, tuning).err()));
    let ring = Neighborhood::new(0, 2, &[1; 4], &[1; 4]).unwrap();
    assert!(too_many(neighbor::neighbor_alltoall(&ring, HUGE).err()));
    assert!(too_many(neighbor::neighbor_allgather(&ring, HUGE).err()));
    assert!(
        bcast::graph(Algorithm::Binomial, 0, 4, 0, u64::MAX, tuning).is_ok(),
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
    let error = Grid::new(&[2, 3], &[true]).unwrap_err();
    assert_eq!(error, Error::PeriodicFlagsDoNotFit { dimensions: 2, periodic: 1 });
    for dimensions in [vec![2, 0], vec![1 << 16, 1 << 16]] {
        let error = Grid::new(&dimensions, &[true; 2]).unwrap_err();
        assert!(matches!(error, Error::GridSize { .. }), "{error}");
    }
    let grid = Grid::new(&[2, 3], &[true; 2]).unwrap();
    let error = Error::RankOutOfRange { rank: 6, ranks: 6 };
    assert_eq!(grid.neighbors(6).unwrap_err(), error);
    assert_eq!(Neighborhood::cartesian(&grid, 6).unwrap_err(), error);
    assert_eq!(grid.coordinates(6), None);
    assert_eq!((grid.shifted(6, 0, 0), grid.shifted(0, 2, 0)), (None, None));
    assert_eq!((grid.rank(&[0]), grid.rank(&[0; 3])), (None, None));
    let point = Grid::new(&[], &[]).unwrap();
    assert_eq!((point.ranks(), point.neighbors(0), point.rank(&[])), (1, Ok(vec![]), Some(0)));
    for (ranks, dimensions) in [(0, 2), (4, 0)] {
        assert_eq!(
            neighbor::balanced_dimensions(ranks, dimensions),
            Err(Error::NoGrid { ranks, dimensions })
        );
    }
}

#[test]
fn algorithms_are_found_by_their_names() {
    let names = |collective: Collective| -> Vec<&str> {
        for algorithm in collective.algorithms() {
            assert_eq!(collective.algorithm(algorithm.name()).unwrap(), *algorithm);
        }
        collective.algorithms().iter().map(|one| one.name()).collect()
    };
    assert_eq!(names(Collective::Barrier).len(), 6);
    assert_eq!(names(Collective::Bcast).len(), 14);
    let scatters = ["flat", "chain", "pipelined-chain", "binomial", "join"];
    assert_eq!(names(Collective::Scatter), scatters);
    assert_eq!(names(Collective::Gather), scatters);
    let allgathers =
        ["ring", "recursive-doubling", "bruck", "gather-bcast", "rotated-direct", "join"];
    assert_eq!(names(Collective::Allgather), allgathers);
    assert_eq!(names(Collective::Alltoall).len(), 6);
    assert_eq!(names(Collective::Reduce).len(), 7);
    assert_eq!(names(Collective::Allreduce).len(), 7);
    assert_eq!(names(Collective::ReduceScatter).len(), 5);
    assert_eq!(names(Collective::Scan), names(Collective::Exscan));
    let error = Collective::Scatter.algorithm("binary").unwrap_err();
    assert_eq!(
        error.to_string(),
        "`binary` is no scatter algorithm; use one of flat, chain, pipelined-chain, binomial, join"
    );
}

#[test]
fn exactly_the_listed_algorithms_are_built() {
    for collective in Collective::ALL {
        for algorithm in Algorithm::ALL {
            let unknown = collective.check_algorithm(*algorithm).err().map(Error::Algorithm);
            for (ranks, rank) in [1, 2, 5, 8].into_iter().flat_map(|n| (0..n).map(move |r| (n, r)))
            {
                let of = |levels, operation| {
                    let reduction = Reduction::new(operation, SUM.data_type);
                    let ranks_per_node = NonZeroU32::new(2).unwrap();
                    let spec =
                        GraphSpec { rank, ranks, ranks_per_node, reduction, ..spec(*collective) };
                    collectives::build(&spec, &Choice { levels, ..Choice::of(*algorithm) }).err()
                };
                let case = format!("{collective}, {algorithm}: rank {rank} of {ranks}");
                assert_eq!(of(Levels::One, SUM.operation), unknown, "{case}");
                if unknown.is_some() {
                    assert_eq!(of(Levels::One, Arithmetic::Subtract), unknown, "{case}");
                }
                match of(Levels::Two, SUM.operation) {
                    Some(Error::OneLevelOnly { .. }) => {}
                    Some(Error::HasNoLevels { .. }) => {
                        assert!(unknown.is_none() && !collective.has_two_levels(*algorithm))
                    }
                    error => assert_eq!(error, unknown, "{case}, two levels"),
                }
            }
            if let (Collective::Alltoall, Some(unknown)) = (*collective, &unknown) {
                assert_eq!(alltoall::graph_v(*algorithm, 0, &[1], &[1]).as_ref(), Err(unknown));
            }
        }
    }
}
