//! Memory that runs out, and what goes on afterwards.

use crate::ranks::{self, ARENA_BYTES, hoard, on_each};
use engine::argument::Argument;
use engine::communicator::Communicator;
use engine::flat::{FlatCollective, Pattern};
use engine::node::EngineKind;
use engine::node::membership::Member;
use engine::signature::{CallKind, Signature};
use engine::{Error, Exit, Request};
use goal::arithmetic::{Arithmetic, DataType};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn barrier() -> FlatCollective {
    let call = Signature::new(CallKind::Barrier, 0, 0);
    FlatCollective::new(Pattern::Barrier, 0, call)
}

fn sum(bytes: u64) -> FlatCollective {
    let arithmetic = Some((Arithmetic::Add, DataType::U64));
    let call = Signature::new(CallKind::Allreduce, bytes, 0);
    FlatCollective { arithmetic, ..FlatCollective::new(Pattern::Reduce, bytes, call) }
}

/// Runs on two ranks with little memory.
fn two_ranks(body: impl Fn(Arc<Communicator>) -> Result<(), Error> + Sync) -> Result<(), Error> {
    on_each(members(2)?, |communicator, _| body(communicator))
}

fn members(ranks: u32) -> Result<Vec<Member>, Error> {
    ranks::members(ranks, EngineKind::Peers)
}

/// Starts more sums than the arena has memory for.
fn start_many(communicator: &Arc<Communicator>) -> Result<Vec<Request>, Error> {
    const BYTES: u64 = 200 << 10;
    let data = vec![0; BYTES as usize];
    let arguments = [Argument::input(&data), Argument::output(BYTES)];
    (0..20).map(|_| communicator.start_flat(&sum(BYTES), &arguments)).collect()
}

fn last_of(requests: &[Request]) -> &Request {
    requests.last().expect("runs are pending")
}

/// Adds up one in every element. Returns the sum.
fn add_up(communicator: &Arc<Communicator>, bytes: u64) -> Result<u64, Error> {
    let ones: Vec<u8> =
        std::iter::repeat_n(1u64.to_le_bytes(), bytes as usize / 8).flatten().collect();
    let mut result = vec![0; bytes as usize];
    let arguments = [Argument::input(&ones), Argument::output(bytes)];
    communicator.run_flat(&sum(bytes), &arguments, &mut [&mut [], &mut result])?;
    let first: [u8; 8] = result[..8].try_into().expect("eight bytes");
    assert!(result.chunks_exact(8).all(|element| element == first));
    Ok(u64::from_le_bytes(first))
}

#[test]
fn what_is_too_large_for_all_leaves_the_communicator_usable() -> Result<(), Error> {
    two_ranks(|communicator| {
        for _ in 0..100 {
            assert!(add_up(&communicator, 2 * ARENA_BYTES).is_err());
            communicator.run_flat(&barrier(), &[], &mut [])?;
            assert_eq!(add_up(&communicator, 4096)?, 2);
        }
        Ok(())
    })
}

#[test]
fn what_one_rank_has_no_memory_for_can_be_tried_again() -> Result<(), Error> {
    two_ranks(|communicator| {
        const BYTES: u64 = 200 << 10;
        for round in 0..20 {
            if communicator.rank() == round % 2 {
                let hoard = hoard(&communicator);
                // Later it has space from before.
                if round == 0 {
                    assert!(add_up(&communicator, BYTES).is_err(), "there is no space");
                }
                drop(hoard);
            }
            assert_eq!(add_up(&communicator, BYTES)?, 2);
            communicator.run_flat(&barrier(), &[], &mut [])?;
        }
        Ok(())
    })
}

#[test]
fn starts_that_wait_for_memory_end_in_order_or_in_an_error_of_their_own() -> Result<(), Error> {
    two_ranks(|communicator| {
        const BYTES: u64 = 90 << 10;
        let data = vec![0; BYTES as usize];
        let arguments = [Argument::input(&data), Argument::output(BYTES)];
        // More than there are slots for: some wait in the queue.
        let mut pending = Vec::new();
        for _ in 0..8 {
            pending.push(communicator.start_flat(&sum(BYTES), &arguments)?);
        }
        let too_large = vec![0; 2 * ARENA_BYTES as usize];
        let large = [Argument::input(&too_large), Argument::output(2 * ARENA_BYTES)];
        // Refused at once if the others are complete by now and have left their slots, queued
        // otherwise.
        let started = communicator.start_flat(&sum(2 * ARENA_BYTES), &large);
        for mut run in pending {
            let mut result = vec![1; BYTES as usize];
            // The queued one that can never start is none of this run's business.
            run.wait(None)?;
            run.collect(&mut [&mut [], &mut result])?;
            assert!(result.iter().all(|byte| *byte == 0));
        }
        let told = started.and_then(|queued| Ok(queued.wait(None)?));
        assert!(matches!(told, Err(Error::Arena(_))), "{told:?}");
        Ok(())
    })
}

#[test]
fn starts_wait_for_a_late_rank_without_limit() -> Result<(), Error> {
    // Two ranks are short, and the third keeps them waiting.
    let members = members(3)?;
    on_each(members, |communicator, barrier| {
        if communicator.rank() == 2 {
            barrier.wait();
        } else {
            communicator.member().limit_shortage(Duration::ZERO);
        }
        let pending = start_many(&communicator)?;
        if communicator.rank() != 2 {
            let tested = (0..100).try_for_each(|_| {
                assert!(!last_of(&pending).test()?, "a rank has not started it");
                Ok(())
            });
            barrier.wait();
            tested.map_err(|error: Box<Error>| *error)?;
        }
        // Now all ranks take part, and each may be short for a moment.
        communicator.member().limit_shortage(Duration::from_secs(60));
        pending.into_iter().try_for_each(|run| Ok(run.wait(None)?))
    })
}

/// Tests a queued run until the wait of the other rank has failed, too: a rank that makes no call
/// is late, and awaited.
fn test_until_all_have_failed(queued: &Request, failed: &AtomicU32) {
    failed.fetch_add(1, Ordering::Relaxed);
    while failed.load(Ordering::Relaxed) < 2 {
        // The error is that of the wait.
        let _ = queued.test();
        std::thread::yield_now();
    }
}

/// Fills the memory of two ranks with runs of two communicators that they start in different
/// orders. `wait` waits for one of the runs on the first or on the second communicator.
fn wait_in_a_cycle(
    wait: impl Fn(&[Request], &[Request]) -> Result<(), Box<Error>> + Sync,
) -> Result<(), Error> {
    let members = members(2)?;
    let failed = AtomicU32::new(0);
    on_each(members, |world, barrier| {
        world.member().limit_shortage(Duration::from_millis(50));
        let other = world.split(Some(0), 0)?.expect("all ranks take part");
        let mut order = [&world, &other];
        if world.rank() == 1 {
            order.reverse();
        }
        let first = start_many(order[0])?;
        barrier.wait();
        // The memory of each rank is full of runs that the other one has not started.
        let second = start_many(order[1])?;
        let waited = wait(&first, &second);
        test_until_all_have_failed(last_of(&second), &failed);
        let error = waited.expect_err("no memory will be free");
        assert!(matches!(*error, Error::Arena(_)), "{error}");
        drop((first, second));
        Ok(())
    })
}

#[test]
fn starts_in_different_orders_that_wait_for_each_other_fail() -> Result<(), Error> {
    wait_in_a_cycle(|_, second| last_of(second).wait(None))
}

/// Each rank waits for its first run, which has begun: the other rank has no memory for it.
#[test]
fn runs_that_have_begun_and_wait_for_each_others_memory_fail() -> Result<(), Error> {
    // The limit turns an endless wait into another error.
    wait_in_a_cycle(|first, _| first[0].wait(Some(Duration::from_secs(30))))
}

/// A rank that has queued runs, too, and is late with all of them: it does not wait for anything.
#[test]
fn starts_wait_for_a_late_rank_that_is_short_itself() -> Result<(), Error> {
    let members = members(2)?;
    on_each(members, |communicator, barrier| {
        // In turn: of runs that both ranks start at once, all may complete.
        if communicator.rank() == 1 {
            barrier.wait();
        }
        let pending = start_many(&communicator)?;
        if communicator.rank() == 0 {
            barrier.wait();
        }
        barrier.wait();
        if communicator.rank() == 0 {
            // Longer than a rank that makes no call counts as blocked.
            communicator.member().limit_shortage(Duration::from_secs(2));
            let late = last_of(&pending).wait(Some(Duration::from_secs(3)));
            let error = late.expect_err("the other rank has started nothing");
            assert!(matches!(*error, Error::Timeout { .. }), "{error}");
            barrier.wait();
        } else {
            barrier.wait();
        }
        communicator.member().limit_shortage(Duration::from_secs(60));
        pending.into_iter().try_for_each(|run| Ok(run.wait(None)?))
    })
}

#[test]
fn a_rank_that_leaves_ends_its_shortage() -> Result<(), Error> {
    let mut members = members(2)?;
    let witness = members.remove(0);
    on_each(members, |communicator, _| {
        let pending = start_many(&communicator)?;
        assert!(communicator.member().relieve_shortage(Duration::ZERO));
        // Never dropped, as by a killed process.
        std::mem::forget(pending);
        communicator.member().node().mark(1, Exit::Killed(9));
        assert!(!communicator.member().relieve_shortage(Duration::ZERO));
        Ok(())
    })?;
    assert!(!witness.relieve_shortage(Duration::ZERO));
    Ok(())
}
