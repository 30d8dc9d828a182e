//! Commands that are started, and completed by a flush.

use crate::messages::everywhere;
use goal::arithmetic::{Arithmetic, DataType};
use tradewind::messages::{Condition, RemoteWindow, WindowError};
use tradewind::{Communicator, Error, Op, Result, local, local_nodes};

testing::tests![
    puts_of_any_number_are_complete_behind_a_flush,
    commands_of_all_threads_of_all_ranks_add_up,
    lengths_of_all_kinds_are_stored_in_their_order,
    signals_follow_their_bytes,
    commands_of_dropped_handles_are_executed,
    windows_that_are_withdrawn_in_the_midst_end_the_stream,
];

/// Runs the body on one node, and on nodes of one and two ranks, of two and one, and of one each.
fn on_all_placements(body: impl Fn(Communicator) -> Result<()> + Sync) {
    local(3, &body).expect("the job succeeds");
    for ranks in [&[1, 2][..], &[2, 1], &[1, 1, 1]] {
        local_nodes(ranks, &body).expect("the job succeeds");
    }
}

/// The window of the next rank.
fn next<'a>(world: &Communicator, all: &'a [RemoteWindow]) -> &'a RemoteWindow {
    &all[(world.rank() as usize + 1) % all.len()]
}

fn puts_of_any_number_are_complete_behind_a_flush() {
    const WORDS: u64 = 1000;
    const ALL: u64 = 100_000;
    on_all_placements(|world| {
        let windows = world.windows(8 * WORDS)?;
        let there = next(&world, &windows.all);
        (0..ALL).try_for_each(|number| there.iput_value(number % WORDS * 8, number))?;
        there.flush()?;
        // The commands of the rank before are complete, too.
        world.barrier()?;
        let own = windows.own.local();
        for word in 0..WORDS {
            assert_eq!(own.get_value::<u64>(8 * word)?, ALL - WORDS + word);
        }
        world.barrier()
    });
}

fn commands_of_all_threads_of_all_ranks_add_up() {
    const THREADS: u64 = 4;
    const EACH: u64 = 3000;
    on_all_placements(|world| {
        let windows = world.windows(64 + 8 * THREADS * u64::from(world.size()))?;
        std::thread::scope(|scope| {
            let work = |thread: u64| {
                let all = &windows.all;
                let own = 64 + 8 * (u64::from(world.rank()) * THREADS + thread);
                move || -> Result<()> {
                    for number in 1..=EACH {
                        for there in all {
                            there.iaccumulate_value(Op::Sum.into(), 0, number)?;
                            there.iaccumulate(Arithmetic::Add, DataType::U8, 9, &[1; 7])?;
                            there.iput_value(own, number)?;
                        }
                        if number.is_multiple_of(500) {
                            all[number as usize % all.len()].flush()?;
                        } else if number % 500 == thread {
                            // Loads find the values that this thread has stored before.
                            let found = all[thread as usize % all.len()].get_value::<u64>(own)?;
                            assert_eq!(found, number);
                        }
                    }
                    all.iter().try_for_each(|there| Ok(there.flush()?))
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))?;
            Ok::<(), Error>(())
        })?;
        world.barrier()?;
        let count = THREADS * u64::from(world.size());
        assert_eq!(windows.own.local().get_value::<u64>(0)?, count * EACH * (EACH + 1) / 2);
        let mut bytes = [0; 7];
        windows.own.local().get(9, &mut bytes)?;
        assert_eq!(bytes, [(count * EACH) as u8; 7]);
        world.barrier()
    });
}

fn lengths_of_all_kinds_are_stored_in_their_order() {
    const LENGTHS: [usize; 14] =
        [70_001, 1, 0, 7, 8, 9, 31, 32, 33, 63, 64, 8191, 8193, 3 * 8192 + 5];
    on_all_placements(|world| {
        let windows = world.windows(1 << 17)?;
        let there = next(&world, &windows.all);
        let mut expected = vec![0; 1 << 17];
        for round in 0..40_usize {
            for (number, length) in LENGTHS.into_iter().enumerate() {
                let at = (round * 97 + number * 13) % 50_000;
                let mut bytes = vec![(round + number) as u8; length];
                there.iput(at as u64, &bytes)?;
                expected[at..at + length].copy_from_slice(&bytes);
                // It was copied.
                bytes.fill(255);
            }
        }
        there.flush()?;
        let mut found = vec![0; expected.len()];
        there.get(0, &mut found)?;
        assert!(found == expected);
        // Without a command and without a flush, too.
        there.iput(1 << 17, &[])?;
        assert!(matches!(there.iput(1 << 17, &[1]), Err(WindowError::OutOfRange { .. })));
        there.flush()?;
        world.barrier()
    });
}

fn signals_follow_their_bytes() {
    const ROUNDS: u64 = 2000;
    /// Places. Each is used again when the receiver has counted it.
    const PLACES: u64 = 16;
    on_all_placements(|world| {
        let windows = world.windows(16 + PLACES * 100)?;
        let there = next(&world, &windows.all);
        let before = &windows.all[(world.rank() + world.size() - 1) as usize % windows.all.len()];
        let own = windows.own.local();
        let reached = |at, at_least| own.fetch_when(Condition { at, at_least }, 0, [])?.wait();
        for round in 0..ROUNDS {
            let place = 16 + round % PLACES * 100;
            // The next rank has taken the value before.
            reached(8, (round + 1).saturating_sub(PLACES))?;
            there.iput_signal(place, &[round as u8; 99], 0, 1)?;
            reached(0, round + 1)?;
            let mut found = [0; 99];
            own.get(place, &mut found)?;
            assert_eq!(found, [round as u8; 99]);
            before.iaccumulate_value(Op::Sum.into(), 8, 1_u64)?;
        }
        world.barrier()
    });
}

fn commands_of_dropped_handles_are_executed() {
    const EACH: u64 = 5000;
    on_all_placements(|world| {
        let windows = world.windows(8)?;
        for there in &windows.all {
            (0..EACH).try_for_each(|_| there.iaccumulate_value(Op::Sum.into(), 0, 1_u64))?;
        }
        drop(windows.all);
        let all = Condition { at: 0, at_least: EACH * u64::from(world.size()) };
        windows.own.local().fetch_when(all, 0, [])?.wait()?;
        world.barrier()
    });
}

fn windows_that_are_withdrawn_in_the_midst_end_the_stream() {
    everywhere(2, |world| {
        for round in 0..30_u64 {
            let windows = world.windows(8)?;
            if world.rank() == 0 {
                let some = Condition { at: 0, at_least: round * round };
                windows.own.local().fetch_when(some, 0, [])?.wait()?;
                continue;
            }
            let there = &windows.all[0];
            let error = (1..).find_map(|number: u64| there.iput_value(0, number).err());
            assert!(matches!(error, Some(WindowError::Withdrawn { .. })), "{error:?}");
            // On the owner's node each call had reported its own error.
            let flushed = if world.nodes() == 1 { None } else { error };
            assert_eq!(there.flush().err(), flushed);
        }
        world.barrier()
    })
    .expect("the job succeeds");
}
