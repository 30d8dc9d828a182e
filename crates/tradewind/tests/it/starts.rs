//! Nonblocking starts that never wait for another rank.

use crate::job_kinds::KINDS;
use std::sync::Barrier;
use tradewind::{Algorithm, Algorithms, Collective, Communicator, Neighbors, Op, Result};

testing::tests![every_collective_starts_before_another_rank_does,];

/// Algorithms of a communicator: one collective's is forced.
fn all_choices() -> Vec<Algorithms> {
    let forced = |collective: Collective| {
        let force = move |algorithm| {
            Algorithms::default().with(collective, algorithm).expect("it is one of its algorithms")
        };
        collective.algorithms().iter().copied().map(force)
    };
    let direct = Algorithms { neighbor: Some(Algorithm::Direct), ..Algorithms::default() };
    Collective::ALL.iter().copied().flat_map(forced).chain([direct]).collect()
}

/// Results of every collective on a rank.
struct Results {
    /// Two elements of every rank, by rank: gathered, gathered in blocks of any size, to all, to all
    /// in blocks of any size, exchanged, exchanged in blocks of any size.
    by_rank: [Vec<u64>; 6],
    /// Two elements: broadcast, scattered, scattered in blocks of any size.
    from_root: [[u64; 2]; 3],
    /// Sums: reduced, reduced to all, scattered in equal blocks, scattered in any blocks.
    sums: [[u64; 2]; 4],
    /// Sums over the ranks up to this one, and below it.
    prefixes: [[u64; 2]; 2],
    /// From the rank before: in equal blocks, in blocks of any size.
    from_previous: [[u64; 2]; 2],
}

/// Starts every collective, calls `all_have_started`, and fetches the results.
fn start_all(
    world: &Communicator,
    ring: &Neighbors,
    all_have_started: impl Fn(),
) -> Result<Results> {
    let ranks = world.size() as usize;
    let root = world.size() - 1;
    let own = [u64::from(world.rank()) + 1; 2];
    let each = own.repeat(ranks);
    let two = vec![2; ranks];
    let mut by_rank = [(); 6].map(|()| vec![0; 2 * ranks]);
    let mut from_root = [own, [0; 2], [0; 2]];
    let mut sums = [[0; 2]; 4];
    let mut prefixes = [[0; 2]; 2];
    let mut from_previous = [[0; 2]; 2];
    {
        let [gather, gatherv, allgather, allgatherv, alltoall, alltoallv] = &mut by_rank;
        let [bcast, scatter, scatterv] = &mut from_root;
        let [reduce, allreduce, block, blocks] = &mut sums;
        let [scan, exscan] = &mut prefixes;
        let [around, aroundv] = &mut from_previous;
        let mut waits: Vec<Box<dyn FnOnce() -> Result<()> + '_>> = Vec::new();
        macro_rules! start {
            ($($started:expr),+ $(,)?) => {
                $({
                    let request = $started?;
                    waits.push(Box::new(move || request.wait().map(drop)));
                })+
            };
        }
        start![
            world.ibarrier(),
            world.ibcast(bcast, root),
            world.igather(&own, gather, root),
            world.igatherv(&own, gatherv, &two, root),
            world.iscatter(&each, scatter, root),
            world.iscatterv(&each, &two, scatterv, root),
            world.iallgather(&own, allgather),
            world.iallgatherv(&own, allgatherv, &two),
            world.ialltoall(&each, alltoall),
            world.ialltoallv(&each, &two, alltoallv, &two),
            world.ireduce(&own, reduce, Op::Sum, root),
            world.iallreduce(&own, allreduce, Op::Sum),
            world.ireduce_scatter_block(&each, block, Op::Sum),
            world.ireduce_scatter(&each, blocks, &two, Op::Sum),
            world.iscan(&own, scan, Op::Sum),
            world.iexscan(&own, exscan, Op::Sum),
            ring.ineighbor_allgather(&own, around),
            ring.ineighbor_alltoallv(&own, &[2], aroundv, &[2]),
        ];
        all_have_started();
        waits.into_iter().try_for_each(|wait| wait())?;
    }
    Ok(Results { by_rank, from_root, sums, prefixes, from_previous })
}

fn check(results: &Results, rank: u32, ranks: u32) {
    let is_root = rank == ranks - 1;
    let [number, last] = [rank, ranks - 1].map(|rank| u64::from(rank) + 1);
    let by_rank: Vec<u64> = (0..2 * u64::from(ranks)).map(|index| index / 2 + 1).collect();
    let gathered = if is_root { &results.by_rank[..] } else { &results.by_rank[2..] };
    assert!(gathered.iter().all(|result| *result == by_rank));
    assert_eq!(results.from_root, [[last; 2]; 3]);
    let summed = if is_root { &results.sums[..] } else { &results.sums[1..] };
    assert!(summed.iter().all(|result| *result == [(1..=last).sum::<u64>(); 2]));
    assert_eq!(results.prefixes[0], [(1..=number).sum::<u64>(); 2]);
    if rank > 0 {
        assert_eq!(results.prefixes[1], [(1..number).sum::<u64>(); 2]);
    }
    let previous = if rank == 0 { last } else { number - 1 };
    assert_eq!(results.from_previous, [[previous; 2]; 2]);
}

/// The ranks start one after the other: a start that waited for a later rank would never return.
fn every_collective_starts_before_another_rank_does() {
    for (kind, ranks) in KINDS.iter().flat_map(|kind| [2, 3].map(|ranks| (kind, ranks))) {
        let turns = Barrier::new(ranks as usize);
        let body = |world: Communicator| {
            for choice in all_choices() {
                let world = world.with_algorithms(choice);
                let size = world.size();
                let before = (world.rank() + size - 1) % size;
                let ring = world.neighbors(&[before], &[(world.rank() + 1) % size])?;
                for _ in 0..world.rank() {
                    turns.wait();
                }
                let rest = size - world.rank();
                let results = start_all(&world, &ring, || {
                    for _ in 0..rest {
                        turns.wait();
                    }
                })?;
                check(&results, world.rank(), size);
            }
            Ok(())
        };
        kind.run(ranks, body).unwrap_or_else(|error| panic!("{kind}, {ranks} ranks: {error}"));
    }
}
