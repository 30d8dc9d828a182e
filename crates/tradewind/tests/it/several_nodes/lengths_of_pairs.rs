//! Exchanges of neighbours of which only the two ends of an edge have the length of its block.

use super::errors;
use std::sync::{Barrier, Mutex};
use tradewind::{Error, Neighbors, Result, local_nodes};

testing::tests![
    an_exchange_starts_before_another_rank_calls_and_has_one_engine,
    exchanges_of_some_ranks_leave_the_schedules_of_all_in_place,
    exchanges_in_blocking_form_do_not_match_others,
];

/// In every round another rank prepares its part, while the others start theirs.
fn an_exchange_starts_before_another_rank_calls_and_has_one_engine() {
    for (nodes, engine) in [
        (&[1, 1][..], "direct"),
        (&[1, 1, 1], "direct"),
        (&[1; 16], "direct"),
        (&[1; 17], "agent"),
        (&[2, 1], "agent"),
    ] {
        let turns = Barrier::new(nodes.iter().sum::<u32>() as usize);
        let wait = |times: u32| (0..times).for_each(|_| _ = turns.wait());
        let engines = Mutex::new(Vec::new());
        local_nodes(nodes, |world| {
            let (rank, size) = (world.rank(), world.size());
            let before = (rank + size - 1) % size;
            let ring = world.neighbors(&[before], &[(rank + 1) % size])?;
            // The last length is more than connections hold, of one edge only.
            for (round, longest) in (0..).zip([0, 1, 70_000, 500_000]) {
                let length = |from: u32| if from == 1 { longest } else { from as usize + round };
                let (sent, received) = ([length(rank)], [length(before)]);
                let given = vec![rank; sent[0]];
                let mut taken = vec![size; received[0]];
                wait(rank);
                let request = match (round + rank as usize) % 3 {
                    0 => ring.neighbor_alltoallv_init(&sent, &received)?.start(&given, &mut taken),
                    _ => ring.ineighbor_alltoallv(&given, &sent, &mut taken, &received),
                }?;
                engines.lock().expect("no rank panics").push(request.engine());
                wait(size - rank);
                request.wait()?;
                assert_eq!(taken, vec![before; received[0]]);
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{nodes:?}: {error}"));
        let mut engines = engines.into_inner().expect("no rank panics");
        engines.dedup();
        assert_eq!(engines, [engine], "{nodes:?}");
    }
}

/// A cache holds fewer schedules than two of the ranks use here; the third one uses a single one.
fn exchanges_of_some_ranks_leave_the_schedules_of_all_in_place() {
    const MORE_THAN_A_CACHE_HOLDS: usize = 1100;
    local_nodes(&[1, 1, 1], |world| {
        let peers = &[1 - world.rank().min(1)][..if world.rank() < 2 { 1 } else { 0 }];
        let pair = world.neighbors(peers, peers)?;
        let exchange = |count: usize, call: fn(&Neighbors, Buffers<'_>) -> Result<()>| {
            let (given, counts) = (vec![7u8; count * peers.len()], vec![count; peers.len()]);
            let mut taken = vec![0; given.len()];
            call(&pair, (&given, &counts, &mut taken))?;
            assert_eq!(taken, given);
            Ok::<_, Error>(())
        };
        exchange(3, blocking)?;
        (0..MORE_THAN_A_CACHE_HOLDS).try_for_each(|count| exchange(count, nonblocking))?;
        exchange(3, blocking)
    })
    .expect("the job is sound");
}

type Buffers<'a> = (&'a [u8], &'a [usize], &'a mut [u8]);

fn blocking(pair: &Neighbors, (given, counts, taken): Buffers<'_>) -> Result<()> {
    pair.neighbor_alltoallv(given, counts, taken, counts)
}

fn nonblocking(pair: &Neighbors, (given, counts, taken): Buffers<'_>) -> Result<()> {
    let mut output = taken.to_vec();
    pair.ineighbor_alltoallv(given, counts, &mut output, counts)?.wait()?;
    taken.copy_from_slice(&output);
    Ok(())
}

fn exchanges_in_blocking_form_do_not_match_others() {
    for nodes in [&[1, 1][..], &[2, 1]] {
        for other in [0, 1] {
            let said = errors(nodes, |world| {
                let (rank, size) = (world.rank(), world.size());
                let ring = world.neighbors(&[(rank + size - 1) % size], &[(rank + 1) % size])?;
                if rank == other {
                    let mut taken = [0];
                    return ring
                        .ineighbor_alltoallv(&[rank], &[1], &mut taken, &[1])?
                        .wait()
                        .map(drop);
                }
                ring.neighbor_alltoallv(&[rank], &[1], &mut [0], &[1])
            });
            for error in said {
                let error = error.expect("the forms differ");
                assert!(matches!(error, Error::Mismatch { .. }), "{nodes:?}: {error}");
                assert!(
                    error.to_string().contains("in the blocking form on one side only"),
                    "{error}"
                );
            }
        }
    }
}
