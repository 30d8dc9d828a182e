//! Exchanges of neighbours of which only the two ends of an edge have the length of its block.

use super::errors;
use std::sync::{Barrier, Mutex};
use tradewind::{Algorithm, Algorithms, CallForm, Collective, Error, Reason, local_nodes};

testing::tests![
    an_exchange_starts_before_another_rank_calls_and_has_one_engine,
    exchanges_of_some_ranks_leave_the_schedules_of_all_in_place,
    exchanges_in_blocking_form_do_not_match_others,
    the_receiver_names_a_block_of_another_length,
    what_runs_is_explained_where_sizes_are_unknown,
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
        let equal = || {
            let given = vec![7u8; 3 * peers.len()];
            let mut taken = vec![0; given.len()];
            pair.neighbor_alltoall_init(3)?.start(&given, &mut taken)?.wait()?;
            assert_eq!(taken, given);
            Ok::<_, Error>(())
        };
        equal()?;
        for count in 0..MORE_THAN_A_CACHE_HOLDS {
            let given = vec![7u8; count * peers.len()];
            let counts = vec![count; peers.len()];
            let mut taken = vec![0; given.len()];
            pair.ineighbor_alltoallv(&given, &counts, &mut taken, &counts)?.wait()?;
            assert_eq!(taken, given);
        }
        equal()
    })
    .expect("the job is sound");
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
            // A rank that calls in the other form than the one before it. The third one of three may
            // have its block before another rank reports the mismatch.
            for rank in [other, (other + 1) % said.len() as u32] {
                let error = said[rank as usize].as_ref().expect("the forms differ");
                assert!(matches!(error, Error::Mismatch { .. }), "{nodes:?}: {error}");
                assert!(
                    error.to_string().contains("in the blocking form on one side only"),
                    "{error}"
                );
            }
        }
    }
}

fn the_receiver_names_a_block_of_another_length() {
    for nodes in [&[1, 1, 1][..], &[2, 1], &[1, 2]] {
        let gathered = errors(nodes, |world| {
            let mine = vec![1u64; if world.rank() == 2 { 3 } else { 1 }];
            let all = &mut [0; 4][..if world.rank() == 0 { 4 } else { 0 }];
            world.igatherv(&mine, all, &[1, 1, 2], 0)?.wait().map(drop)
        });
        let scattered = errors(nodes, |world| {
            let mut mine = vec![0u32; if world.rank() == 2 { 2 } else { 1 }];
            world.iscatterv(&[1; 3], &[1; 3], &mut mine[..], 0)?.wait().map(drop)
        });
        let exchanged = errors(nodes, |world| {
            // Rank 0 sends two bytes to rank 2, which expects one.
            let mut sent = [1; 3];
            if world.rank() == 0 {
                sent[2] = 2;
            }
            let mut taken = [0; 3];
            let given = [1u8; 4];
            let given = &given[..sent.iter().sum()];
            world.ialltoallv(given, &sent, &mut taken, &[1; 3])?.wait().map(drop)
        });
        for (said, at, expected) in [
            (gathered, 0, ["rank 2 sends 24 bytes to rank 0", "receives 16"]),
            (scattered, 2, ["rank 0 sends 4 bytes to rank 2", "receives 8"]),
            (exchanged, 2, ["rank 0 sends 2 bytes to rank 2", "receives 1;"]),
        ] {
            let error = said[at].as_ref().expect("the lengths differ").to_string();
            assert!(expected.iter().all(|text| error.contains(text)), "{nodes:?}: {error}");
        }
    }
}

fn what_runs_is_explained_where_sizes_are_unknown() {
    let set = Algorithms::default()
        .with(Collective::Gather, Algorithm::Binomial)
        .and_then(|set| set.with(Collective::Scatter, Algorithm::Flat))
        .and_then(|set| set.with(Collective::Alltoall, Algorithm::Pairwise))
        .expect("they have these algorithms");
    local_nodes(&[1, 1, 1], |world| {
        let world = world.with_algorithms(set);
        let own = [world.rank()];
        let ones = [1; 3];
        let mut all = [0; 3];
        let mut one = [0];
        let gathered = world.igatherv(&own, &mut all, &ones, 0)?;
        let scattered = world.iscatterv(&[1u8; 3], &ones, &mut one[..], 0)?;
        let mut exchanged = [0u8; 3];
        let alltoall = world.ialltoallv(&[1u8; 3], &ones, &mut exchanged, &ones)?;
        let explained = [gathered.explain(), scattered.explain(), alltoall.explain()];
        let explained = explained.map(|one| one.expect("it has algorithms"));
        assert!(explained.iter().all(|one| one.form == CallForm::Nonblocking));
        let explained = explained.map(|one| (one.algorithm, one.reason));
        let expected = [
            (Algorithm::Flat, Reason::UnknownSizes),
            (Algorithm::Flat, Reason::Forced),
            (Algorithm::Pairwise, Reason::Forced),
        ];
        assert_eq!(explained, expected);
        // Pairwise has several steps.
        assert_eq!([gathered.engine(), alltoall.engine()], ["direct", "agent"]);
        gathered.wait()?;
        scattered.wait()?;
        alltoall.wait().map(drop)
    })
    .expect("the job is sound");
}
