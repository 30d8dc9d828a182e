//! Windows that are dropped, whose owner has left, or that lack memory, and those of other
//! communicators.

use crate::messages::everywhere;
use tradewind::messages::{Condition, RemoteWindow, WindowError};
use tradewind::{Op, local_nodes};

testing::tests![
    a_window_that_is_dropped_at_once_is_withdrawn,
    a_window_of_a_rank_that_has_left_is_an_error,
    a_rank_without_memory_for_a_way_is_told,
    windows_are_those_of_their_communicator,
];

/// A use of a window.
type Use = fn(&RemoteWindow) -> Result<(), WindowError>;

fn until_it_fails(there: &RemoteWindow, one: Use) -> Option<WindowError> {
    std::iter::repeat_with(|| one(there)).find_map(Result::err)
}

/// The other rank may still be about to connect.
fn a_window_that_is_dropped_at_once_is_withdrawn() {
    everywhere(2, |world| {
        for round in 0..200 {
            let windows = world.windows(8)?;
            if world.rank() == 0 {
                drop(windows);
            } else {
                let there = &windows.all[0];
                let error = match round % 4 {
                    0 => until_it_fails(there, |there| there.get_value::<u64>(0).map(drop)),
                    1 => until_it_fails(there, |there| there.iput_value(0, 1_u64)),
                    2 => until_it_fails(there, |there| there.iput(0, &[1]).and(there.flush())),
                    _ => {
                        let condition = Condition { at: 0, at_least: 1 };
                        there.fetch_when(condition, 0, []).and_then(|request| request.wait()).err()
                    }
                };
                assert!(matches!(error, Some(WindowError::Withdrawn { .. })), "{error:?}");
            }
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn a_window_of_a_rank_that_has_left_is_an_error() {
    let load: Use = |there| there.get_value::<u64>(0).map(drop);
    let start: Use = |there| there.iput_value(0, 1_u64);
    let flush: Use = |there| there.iput_value(0, 1_u64).and_then(|()| there.flush());
    let uses = [load, start, flush].into_iter().flat_map(|one| [(one, false), (one, true)]);
    for (one, is_used_before) in uses {
        local_nodes(&[1, 1], |world| {
            let windows = world.windows(8)?;
            if world.rank() == 0 {
                // Not withdrawn, as if the process ended here.
                std::mem::forget(windows.own);
                return Ok(());
            }
            let there = &windows.all[0];
            if is_used_before {
                let _ = there.put_value(0, 1_u64);
            }
            let error = until_it_fails(there, one);
            assert_eq!(there.flush().err(), error, "it is reported again");
            let is_right = matches!(
                error,
                Some(WindowError::Withdrawn { .. } | WindowError::RankExited { rank: 0 })
            );
            assert!(is_right, "{error:?}");
            Ok(())
        })
        .expect("the job succeeds");
    }
}

fn a_rank_without_memory_for_a_way_is_told() {
    local_nodes(&[1, 1], |world| {
        let windows = world.windows(8)?;
        let there = &windows.all[1 - world.rank() as usize];
        if world.rank() == 0 {
            let mut taken = Vec::new();
            let mut bytes = 1 << 30;
            while bytes >= 64 {
                match world.alloc::<u8>(bytes) {
                    Ok(buffer) => taken.push(buffer),
                    Err(_) => bytes /= 2,
                }
            }
            assert_eq!(there.put_value(0, 1_u64), Err(WindowError::NotOpened { rank: 1 }));
            drop(taken);
        } else {
            there.put_value(0, 1_u64)?;
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

/// The order of the ranks is another one than in the job, and one node has none of them.
fn windows_are_those_of_their_communicator() {
    local_nodes(&[2, 1, 2], |world| {
        let color = (world.rank() != 2).then_some(world.rank() % 2);
        if let Some(part) = world.split(color, -i64::from(world.rank()))? {
            let windows = [part.windows(16)?, part.windows(8)?];
            for (rank, window) in windows[0].all.iter().enumerate() {
                window.accumulate_value(Op::Sum.into(), 0, 1 + rank as u64)?;
                assert_eq!(window.bytes(), 16);
            }
            part.barrier()?;
            let found = windows[0].own.local().get_value::<u64>(0)?;
            assert_eq!(found, u64::from(part.size() * (1 + part.rank())));
            assert_eq!(windows[1].own.local().get_value::<u64>(0)?, 0);
            part.barrier()?;
        }
        world.barrier()
    })
    .expect("the job succeeds");
}
