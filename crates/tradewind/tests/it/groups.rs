//! Communicators that only their members make.

use crate::job_kinds::KINDS;
use std::panic::AssertUnwindSafe;
use tradewind::{Communicator, Error, Exit, Op, Result, local};

testing::tests![
    only_members_make_a_group_and_its_order_is_that_of_the_list,
    groups_are_made_of_groups,
    threads_make_groups_at_once_by_different_tags,
    lists_that_are_no_group_are_refused,
    lists_that_differ_are_refused,
    a_member_that_is_gone_is_named,
];

/// A group is a communicator like any other.
fn check(group: &Communicator, ranks: &[u32], rank_before: u32) -> Result<()> {
    assert_eq!(group.size() as usize, ranks.len());
    assert_eq!(ranks[group.rank() as usize], rank_before);
    let mut all = vec![0; ranks.len()];
    group.allgather(&[rank_before], &mut all)?;
    assert_eq!(all, ranks);
    let mut sum = vec![0u64; 3000];
    group.allreduce(&vec![u64::from(rank_before); 3000], &mut sum, Op::Sum)?;
    assert!(sum.iter().all(|sum| *sum == ranks.iter().map(|rank| u64::from(*rank)).sum::<u64>()));
    let size = group.size();
    let (next, last) = ((group.rank() + 1) % size, (group.rank() + size - 1) % size);
    let mut got = [0];
    group.sendrecv(&[rank_before], next, 3, &mut got, last, 3)?;
    assert_eq!(got[0], ranks[last as usize]);
    Ok(())
}

fn only_members_make_a_group_and_its_order_is_that_of_the_list() {
    for (kind, ranks) in KINDS.iter().flat_map(|kind| (1..=6).map(move |ranks| (kind, ranks))) {
        let lists = |world: &Communicator| -> Vec<Vec<u32>> {
            let all = 0..world.size();
            vec![
                all.clone().rev().step_by(2).collect(),
                all.clone().collect(),
                vec![world.size() - 1],
                all.clone().filter(|rank| rank % 3 != 1).collect(),
                all.rev().collect(),
            ]
        };
        let made = kind.run(ranks, |world| {
            let rank = world.rank();
            for list in lists(&world).into_iter().filter(|list| list.contains(&rank)) {
                let group = world.create_from_group(&list, 11)?;
                check(&group, &list, rank)?;
            }
            Ok(())
        });
        made.unwrap_or_else(|error| panic!("{kind}, {ranks} ranks: {error}"));
    }
}

fn groups_are_made_of_groups() {
    for kind in KINDS {
        let made = kind.run(5, |world| {
            let (rank, all) = (world.rank(), [4, 1, 3, 0, 2]);
            let turned = world.create_from_group(&all, 1)?;
            // Ranks of the group. Their ranks in the job are 3, 4 and 2.
            let part = [2, 0, 4];
            if part.contains(&turned.rank()) {
                check(&turned.create_from_group(&part, 1)?, &part, turned.rank())?;
                assert_eq!(all[turned.rank() as usize], rank);
            }
            // A split of it, and a group of the split.
            let half = turned.split(Some(turned.rank() % 2), 0)?.expect("every rank has a colour");
            let last = [half.size() - 1, 0];
            if last.contains(&half.rank()) {
                check(&half.create_from_group(&last, 2)?, &last, half.rank())?;
            }
            Ok(())
        });
        made.unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

fn threads_make_groups_at_once_by_different_tags() {
    for kind in KINDS {
        let made = kind.run(4, |world| {
            let lists = [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2]];
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..)
                    .zip(lists)
                    .map(|(tag, list)| {
                        let world = &world;
                        scope.spawn(move || {
                            for _ in 0..20 {
                                let group = world.create_from_group(&list, tag)?;
                                check(&group, &list, world.rank())?;
                            }
                            Ok::<(), Error>(())
                        })
                    })
                    .collect();
                threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
            })
        });
        made.unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

fn lists_that_are_no_group_are_refused() {
    local(3, |world| {
        let cases: [(&[u32], &str); 4] = [
            (&[0, 3, 1, 2], "one with rank 3, it must be of ranks below 3"),
            (&[0, 1, 2, 1], "one with rank 1 twice"),
            (&[], "it must be one with this rank"),
            (&[(world.rank() + 1) % 3], "it must be one with this rank"),
        ];
        for (ranks, text) in cases {
            let error = world.create_from_group(ranks, 0).expect_err("no group").to_string();
            assert!(error.contains(text), "{error}");
        }
        Ok(())
    })
    .expect("the job is sound");
}

/// No rank opens a state that was allocated for fewer ranks, and nothing of it is left.
fn lists_that_differ_are_refused() {
    let cases: [[&[u32]; 4]; 3] = [
        [&[0, 1, 3], &[0, 1, 2, 3], &[], &[0, 1, 3]],
        [&[0, 1, 2, 3], &[0, 1, 3], &[0, 1, 2, 3], &[0, 1, 2, 3]],
        [&[0, 1, 2, 3], &[0, 1, 2, 3], &[0, 1, 3, 2], &[0, 1, 2, 3]],
    ];
    for (kind, lists) in KINDS.iter().flat_map(|kind| cases.map(|lists| (kind, lists))) {
        let made = kind.run(4, |world| {
            let list = lists[world.rank() as usize];
            if list.is_empty() {
                return Ok(());
            }
            let refuse = || {
                let error = world.create_from_group(list, 5).expect_err("no group").to_string();
                assert!(error.contains("must be the same on all"), "{error}");
                world.allocated_bytes()
            };
            let first = refuse();
            let all: Vec<u64> = (0..20).map(|_| refuse()).collect();
            assert_eq!(all, [first; 20], "{kind}: bytes of rank {}", world.rank());
            let same = lists[0];
            check(&world.create_from_group(same, 5)?, same, world.rank())
        });
        made.unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

fn a_member_that_is_gone_is_named() {
    for (kind, gone) in KINDS.iter().flat_map(|kind| [0, 2].map(|gone| (kind, gone))) {
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
            kind.run(3, |world| {
                if world.rank() == gone {
                    return Ok(());
                }
                let failed = world.create_from_group(&[0, 1, 2], 0);
                // The others go on, so no rank fails because another one has left.
                let other = 3 - gone - world.rank();
                let mut word = [0];
                world.sendrecv(&[1], other, 5, &mut word, other, 5)?;
                match failed {
                    Err(Error::RankFailed { rank, how }) => {
                        assert_eq!(rank, gone, "{kind}: {how}");
                        assert!(matches!(how, Exit::Left | Exit::Remote(_)), "{kind}: {how}");
                        Ok(())
                    }
                    // The first rank has told it.
                    Err(Error::Argument { .. }) if gone != 0 && world.rank() != 0 => Ok(()),
                    other => panic!("{kind}: {other:?}"),
                }
            })
        }));
        outcome.expect("no panic").unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}
