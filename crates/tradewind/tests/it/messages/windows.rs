//! Windows of ranks on one node and several.

#[path = "../../../../queues/tests/it/window/commands.rs"]
mod commands;
mod lifetimes;
mod nonblocking;

/// Types in the commands, which other crates name differently.
mod names {
    pub(crate) use tradewind::messages::{RemoteWindow, WindowError};
}

use super::everywhere;
use commands::{BYTES, Command, commands};
use goal::arithmetic::{Arithmetic, ArithmeticError, DataType};
use proptest::prelude::*;
use std::time::Duration;
use tradewind::messages::{Condition, Fetch, WindowError, Windows};
use tradewind::{Communicator, Error, Op, Result};

testing::tests![
    windows_are_worked_on_from_afar,
    commands_of_all_ranks_do_what_they_do_to_vectors,
    long_commands_are_complete_when_they_return,
    numbers_are_taken_once_and_locks_exclude,
    errors_are_the_same_on_every_node,
    conditional_fetches_wait_for_changes_by_any_rank,
    a_wait_delays_no_command_of_another_thread,
    a_wait_that_was_given_up_leaves_nothing_behind,
    notifications_wake_their_owner,
];

fn windows_are_worked_on_from_afar() {
    for ranks in [1, 2, 4] {
        everywhere(ranks, |world| {
            let windows = world.windows(8 * u64::from(world.size()) + 8)?;
            for (index, window) in windows.all.iter().enumerate() {
                window.put_value(
                    8 * u64::from(world.rank()),
                    u64::from(world.rank()) << 8 | index as u64,
                )?;
                window.accumulate_value(Op::Sum.into(), 8 * u64::from(world.size()), 1u64)?;
            }
            world.barrier()?;
            let own = windows.own.local();
            for rank in 0..u64::from(world.size()) {
                assert_eq!(own.get_value::<u64>(8 * rank)?, rank << 8 | u64::from(world.rank()));
            }
            assert_eq!(own.get_value::<u64>(8 * u64::from(world.size()))?, u64::from(world.size()));
            world.barrier()
        })
        .expect("the job succeeds");
    }
}

/// Each rank has windows of its own on all ranks, for a random program, while the others execute
/// theirs.
fn run_program(world: &Communicator, program: &[Command]) -> Result<()> {
    let windows: Vec<Windows> =
        (0..world.size()).map(|_| world.windows(BYTES)).collect::<Result<_>>()?;
    let mine = &windows[world.rank() as usize];
    let mut references = vec![vec![0; BYTES as usize]; world.size() as usize];
    for (number, command) in program.iter().enumerate() {
        let target = (number + world.rank() as usize) % references.len();
        let (window, reference) = (&mine.all[target], &mut references[target]);
        let found = command.execute(window);
        match (command.apply(reference), &found) {
            (Some(expected), Ok(read)) => assert_eq!(&expected, read, "{command:?}"),
            (None, Err(_)) => {}
            (expected, _) => panic!("{command:?}: {found:?} instead of {expected:?}"),
        }
        let mut all = vec![0; BYTES as usize];
        window.get(0, &mut all)?;
        assert_eq!(&all, reference, "after {command:?}");
    }
    world.barrier()
}

fn commands_of_all_ranks_do_what_they_do_to_vectors() {
    let programs = prop::collection::vec(commands(), 100..200);
    let config = ProptestConfig { cases: 6, failure_persistence: None, ..Default::default() };
    proptest!(config, |(program in programs)| {
        everywhere(3, |world| run_program(&world, &program)).expect("the job succeeds");
    });
}

fn long_commands_are_complete_when_they_return() {
    const LONG: usize = 300_001;
    everywhere(3, |world| {
        let windows = world.windows(1 << 20)?;
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        let next = &windows.all[(rank + 1) % size];
        let bytes: Vec<u8> = (0..LONG).map(|at| (at * (rank + 3) % 251) as u8).collect();
        next.put(5, &bytes)?;
        let mut back = vec![0; LONG];
        next.get(5, &mut back)?;
        assert!(back == bytes, "what was put is there");
        world.barrier()?;
        let before = (rank + size - 1) % size;
        windows.own.local().get(5, &mut back)?;
        assert!(back.iter().zip(0..).all(|(byte, at)| *byte == (at * (before + 3) % 251) as u8));
        world.barrier()?;
        // All ranks into one window, in pieces that interleave.
        let first = &windows.all[0];
        first.put(0, &[])?;
        let zeros = vec![0; 80_000];
        if rank == 0 {
            windows.own.local().put(0, &zeros)?;
        }
        world.barrier()?;
        let ones: Vec<u8> = (0..20_000_u32).flat_map(|_| 1_u32.to_le_bytes()).collect();
        first.accumulate(Arithmetic::Add, DataType::U32, 0, &ones)?;
        world.barrier()?;
        let mut sums = vec![0; 80_000];
        first.get(0, &mut sums)?;
        assert!(sums.as_chunks::<4>().0.iter().all(|sum| *sum == (size as u32).to_le_bytes()));
        world.barrier()?;
        // An element of a later piece is divided by zero; all others are divided.
        let mut divisors = ones.clone();
        divisors[4 * 12_345..4 * 12_346].fill(0);
        divisors[4 * 19_000..4 * 19_001].fill(0);
        let outcome = first.accumulate(Arithmetic::Divide, DataType::U32, 0, &divisors);
        let Err(WindowError::Arithmetic { error, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(error, ArithmeticError::DivisionByZero { element: 12_345 });
        // More indices than one piece has.
        let indices: Vec<u64> = (0..5000).map(|index| index * 7919 % 9973).collect();
        let elements: Vec<u8> =
            (0..5000_u64).flat_map(|index| (index << 8 | rank as u64).to_le_bytes()).collect();
        let at = 300_008 + 80_000 * rank as u64;
        next.scatter(DataType::U64, at, &indices, &elements)?;
        let mut gathered = vec![0; elements.len()];
        next.gather(DataType::U64, at, &indices, &mut gathered)?;
        assert!(gathered == elements);
        world.barrier()
    })
    .expect("the job succeeds");
}

fn numbers_are_taken_once_and_locks_exclude() {
    const EACH: u64 = 300;
    everywhere(3, |world| {
        let windows = world.windows(64)?;
        let first = &windows.all[0];
        let mut taken = vec![0_u64; EACH as usize];
        for number in &mut taken {
            *number = first.fetch_accumulate_value(Arithmetic::Add, 0, 1_u64)?;
            // A lock in the window: what it protects is not changed in one step.
            while first.compare_exchange_value(8, 0_u32, 1 + world.rank())? != 0 {
                std::thread::yield_now();
            }
            let value = first.get_value::<u64>(16)?;
            first.put_value(16, value + 1)?;
            first.put_value(8, 0_u32)?;
        }
        let mut all = vec![0; (EACH * u64::from(world.size())) as usize];
        world.allgather(&taken, &mut all)?;
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..EACH * u64::from(world.size())));
        assert_eq!(first.get_value::<u64>(16)?, EACH * u64::from(world.size()));
        world.barrier()
    })
    .expect("the job succeeds");
}

fn errors_are_the_same_on_every_node() {
    everywhere(2, |world| {
        let windows = world.windows(100)?;
        for remote in &windows.all {
            let window = remote.offset();
            let outside =
                |at, length| Err(WindowError::OutOfRange { window, at, length, bytes: 100 });
            assert_eq!(remote.put(96, &[0; 5]), outside(96, 5));
            assert_eq!(remote.get(u64::MAX, &mut [0; 2]), outside(u64::MAX, 2));
            assert_eq!(remote.get_value::<u64>(96).map(drop), outside(96, 8));
            assert_eq!(remote.compare_exchange_value(96, 0_u64, 1).map(drop), outside(96, 8));
            let misaligned = Err(WindowError::Misaligned { window, at: 4, size: 8 });
            assert_eq!(remote.put_value(4, 1_u64), misaligned);
            let operation = Op::Sum.into();
            assert_eq!(remote.fetch_accumulate_value(operation, 4, 1_u64).map(drop), misaligned);
            let condition = Condition { at: 4, at_least: 1 };
            assert_eq!(remote.fetch_when(condition, 0, []).map(drop), misaligned);
            assert_eq!(remote.put(100, &[]), Ok(()), "nothing at the end lies inside");
            let index = remote.scatter(DataType::U32, 4, &[0, 23, 24], &[0; 12]);
            let expected =
                WindowError::Index { window, position: 2, index: 24, at: 4, elements: 24 };
            assert_eq!(index, Err(expected));
            let (operation, data_type) = (Arithmetic::Xor, DataType::F32);
            let error = ArithmeticError::NotApplicable { operation, data_type };
            let undefined = Err(WindowError::Arithmetic { window, error });
            assert_eq!(remote.accumulate(operation, data_type, 0, &[0; 4]), undefined);
            assert_eq!(remote.accumulate_value(operation, 0, 1.0_f32), undefined);
            assert_eq!(remote.fetch_accumulate_value(operation, 0, 1.0_f32).map(drop), undefined);
            let error = ArithmeticError::DivisionByZero { element: 0 };
            let divided = Err(WindowError::Arithmetic { window, error });
            let found = remote.fetch_accumulate_value(Arithmetic::Divide, 0, 0_u16);
            assert_eq!(found.map(drop), divided);
            let error = ArithmeticError::NotWholeElements { bytes: 5, data_type: DataType::U16 };
            let outcome = remote.accumulate(Arithmetic::Add, DataType::U16, 0, &[0; 5]);
            assert_eq!(outcome, Err(WindowError::Arithmetic { window, error }));
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn conditional_fetches_wait_for_changes_by_any_rank() {
    const ROUNDS: u64 = 60;
    // The word is in the window of the rank itself, of the next one, and of the one after it.
    for distance in 0..3 {
        everywhere(3, |world| {
            let windows = world.windows(128)?;
            let (rank, size) = (world.rank() as usize, world.size() as usize);
            let there = &windows.all[(rank + distance) % size];
            let flag = 8 * rank as u64;
            let next = 8 * ((rank + 1) % size) as u64;
            let for_next = &windows.all[(rank + 1 + distance) % size];
            // A word that goes around, with data beside it.
            for round in 1..=ROUNDS {
                if rank > 0 || round > 1 {
                    let awaited = Condition { at: flag, at_least: round - u64::from(rank == 0) };
                    let found = there.fetch_when(awaited, 64 + flag, [0; 8])?.wait()?;
                    assert_eq!(u64::from_le_bytes(found), awaited.at_least << 8);
                }
                for_next.put_value(64 + next, round << 8)?;
                for_next.accumulate_value(Op::Sum.into(), next, 1_u64)?;
            }
            world.barrier()
        })
        .expect("the job succeeds");
    }
}

fn a_wait_delays_no_command_of_another_thread() {
    everywhere(2, |world| {
        let windows = world.windows(1 << 16)?;
        let there = &windows.all[1 - world.rank() as usize];
        for round in 1..=20_u64 {
            std::thread::scope(|scope| {
                let wait =
                    |at| move || there.fetch_when(Condition { at, at_least: round }, 0, [])?.wait();
                let waits = [0, 8, 16].map(|at| scope.spawn(wait(at)));
                let worker = scope.spawn(|| -> Result<()> {
                    let mut bytes = vec![0; 20_000];
                    for number in 0..10 {
                        there.put(64, &vec![number; 20_000])?;
                        there.get(64, &mut bytes)?;
                        assert!(bytes.iter().all(|byte| *byte == number));
                    }
                    [0, 8, 16].iter().try_for_each(|at| there.put_value(*at, round))?;
                    Ok(())
                });
                worker.join().expect("no panic")?;
                waits.into_iter().try_for_each(|wait| wait.join().expect("no panic").map(drop))?;
                Ok::<(), Error>(())
            })?;
        }
        world.barrier()
    })
    .expect("the job succeeds");
}

fn a_wait_that_was_given_up_leaves_nothing_behind() {
    everywhere(2, |world| {
        let windows = world.windows(64)?;
        let there = &windows.all[1 - world.rank() as usize];
        let short = Duration::from_micros(50);
        // More than may be waited for at once.
        for round in 0..300_u64 {
            let condition = Condition { at: 0, at_least: 1 };
            let request = there.fetch_when(condition, 8, [0; 8])?;
            let pending = request.wait_timeout(short)?;
            let Fetch::Pending(request) = pending else {
                panic!("no rank has changed the word");
            };
            assert!(matches!(request.test()?, Fetch::Pending(_)));
            there.put_value(16, round)?;
            assert_eq!(there.get_value::<u64>(16)?, round);
        }
        world.barrier()?;
        windows.own.local().put_value(8, 7_u64)?;
        windows.own.local().put_value(0, 1_u64)?;
        let found = there.fetch_when(Condition { at: 0, at_least: 1 }, 8, [0; 8])?.wait()?;
        assert_eq!(found, 7_u64.to_le_bytes());
        world.barrier()
    })
    .expect("the job succeeds");
}

fn notifications_wake_their_owner() {
    everywhere(3, |world| {
        let windows = world.windows(64)?;
        for round in 1..=50_u64 {
            for window in &windows.all {
                window.accumulate_value(Op::Sum.into(), 0, 1_u64)?;
                window.notify()?;
            }
            let expected = round * u64::from(world.size());
            assert!(windows.own.wait_for_notifications(expected, None) >= expected);
            assert!(windows.own.local().get_value::<u64>(0)? >= expected);
            world.barrier()?;
        }
        Ok(())
    })
    .expect("the job succeeds");
}
