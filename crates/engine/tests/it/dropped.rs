//! Communicators and schedules that are dropped while other ranks still need this rank's part.

use crate::ranks::{ARENA_BYTES, ThreadBarrier, hoard, members, on_each, swap};
use engine::argument::Argument;
use engine::communicator::Communicator;
use engine::flat::{FlatCollective, Pattern};
use engine::node::EngineKind;
use engine::signature::{CallKind, Signature};
use engine::{Error, LinkedSchedule, Request};
use goal::arithmetic::{Arithmetic, DataType};
use std::sync::Arc;
use std::time::Duration;

/// No run of these tests takes a hundredth of it: what takes longer hangs.
const LIMIT: Option<Duration> = Some(Duration::from_secs(30));

fn broadcast(bytes: u64) -> FlatCollective {
    let call = Signature::new(CallKind::Bcast, bytes, 0);
    FlatCollective::new(Pattern::Broadcast { root: 0 }, bytes, call)
}

fn sum(bytes: u64) -> FlatCollective {
    let arithmetic = Some((Arithmetic::Add, DataType::U64));
    let call = Signature::new(CallKind::Allreduce, bytes, 0);
    FlatCollective { arithmetic, ..FlatCollective::new(Pattern::Reduce, bytes, call) }
}

fn dup(communicator: &Arc<Communicator>) -> Result<Arc<Communicator>, Error> {
    Ok(communicator.split(Some(0), 0)?.expect("all ranks take part"))
}

/// Waits for all ranks, and executes this rank's tasks meanwhile.
fn synchronize(communicator: &Arc<Communicator>) -> Result<(), Error> {
    let barrier = FlatCollective::new(Pattern::Barrier, 0, Signature::new(CallKind::Barrier, 0, 0));
    Ok(communicator.start_flat(&barrier, &[])?.wait(LIMIT)?)
}

/// Starts a broadcast of one kilobyte from rank 0.
fn start_broadcast(communicator: &Arc<Communicator>, number: u8) -> Result<Request, Error> {
    let is_root = communicator.rank() == 0;
    let data = vec![number; if is_root { 1024 } else { 0 }];
    let output = Argument::output(if is_root { 0 } else { 1024 });
    communicator.start_flat(&broadcast(1024), &[Argument::input(&data), output])
}

fn two_ranks(
    engine: EngineKind,
    body: impl Fn(Arc<Communicator>, &ThreadBarrier) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    on_each(members(2, engine)?, body)
}

#[test]
fn a_dropped_communicator_frees_its_memory() -> Result<(), Error> {
    two_ranks(EngineKind::Peers, |world, _| {
        const BYTES: u64 = 90 << 10;
        let ones = vec![1; BYTES as usize];
        for _ in 0..2 * ARENA_BYTES / BYTES {
            let communicator = dup(&world)?;
            let arguments = [Argument::input(&ones), Argument::output(BYTES)];
            let mut result = vec![0; BYTES as usize];
            communicator.run_flat(&sum(BYTES), &arguments, &mut [&mut [], &mut result])?;
            assert!(result.iter().all(|byte| *byte == 2));
            synchronize(&world)?;
        }
        Ok(())
    })
}

#[test]
fn a_dropped_communicator_frees_its_memory_when_the_last_rank_has_read_it() -> Result<(), Error> {
    two_ranks(EngineKind::Peers, |world, barrier| {
        const BYTES: u64 = 128 << 10;
        for round in 0..2 * ARENA_BYTES / BYTES {
            let communicator = dup(&world)?;
            let data = vec![round as u8; BYTES as usize];
            if communicator.rank() == 0 {
                let arguments = [Argument::input(&data), Argument::output(0)];
                let mut request = communicator.start_flat(&broadcast(BYTES), &arguments)?;
                request.wait(LIMIT)?;
                request.collect(&mut [])?;
                drop((request, communicator));
                barrier.wait();
            } else {
                // The root has dropped its communicator.
                barrier.wait();
                let mut result = vec![0; BYTES as usize];
                let arguments = [Argument::input(&[]), Argument::output(BYTES)];
                let mut request = communicator.start_flat(&broadcast(BYTES), &arguments)?;
                request.wait(LIMIT)?;
                request.collect(&mut [&mut [], &mut result])?;
                assert!(result == data);
            }
            synchronize(&world)?;
        }
        Ok(())
    })
}

#[test]
fn a_full_arena_recovers_once_the_other_ranks_have_read_it() -> Result<(), Error> {
    on_each(members(3, EngineKind::Peers)?, |world, barrier| {
        for _ in 0..3 {
            world.member().limit_shortage(Duration::ZERO);
            // Rank 2 reads none of the broadcasts before rank 0 finds its arena full. The other
            // ranks drop the communicators at once.
            let mut unread = Vec::new();
            let error = loop {
                let communicator = match dup(&world) {
                    Ok(communicator) => communicator,
                    Err(error) => break error,
                };
                let request = start_broadcast(&communicator, unread.len() as u8)?;
                unread.push((world.rank() == 2).then_some((request, communicator)));
            };
            assert!(matches!(error, Error::NoMemory(_)), "{error}");
            for (number, unread) in (0..).zip(unread) {
                let Some((mut request, _communicator)) = unread else { continue };
                let mut result = [0; 1024];
                request.wait(LIMIT)?;
                request.collect(&mut [&mut [], &mut result])?;
                assert_eq!(result, [number; 1024]);
            }
            barrier.wait();
            world.member().limit_shortage(Duration::from_secs(30));
            for _ in 0..100 {
                drop(dup(&world)?);
            }
            synchronize(&world)?;
        }
        Ok(())
    })
}

/// Starts more broadcasts than there are slots, and drops their requests.
fn start_and_drop_broadcasts(communicator: &Arc<Communicator>) -> Result<(), Error> {
    (0..20).try_for_each(|number| start_broadcast(communicator, number).map(drop))
}

/// Runs broadcasts that one of two ranks has started on a communicator that it then drops.
fn complete_broadcasts_dropped_by(dropper: u32) -> Result<(), Error> {
    two_ranks(EngineKind::Peers, |world, barrier| {
        let communicator = dup(&world)?;
        if world.rank() == dropper {
            start_and_drop_broadcasts(&communicator)?;
            drop(communicator);
            barrier.wait();
        } else {
            barrier.wait();
            for number in 0..20 {
                let mut request = start_broadcast(&communicator, number)?;
                request.wait(LIMIT)?;
                if dropper == 0 {
                    let mut result = [0; 1024];
                    request.collect(&mut [&mut [], &mut result])?;
                    assert_eq!(result, [number; 1024]);
                }
            }
        }
        synchronize(&world)
    })
}

#[test]
fn queued_runs_start_after_their_communicator_is_dropped() -> Result<(), Error> {
    complete_broadcasts_dropped_by(0)
}

#[test]
fn abandoned_runs_are_consumed_after_their_communicator_is_dropped() -> Result<(), Error> {
    complete_broadcasts_dropped_by(1)
}

fn link(communicator: &Arc<Communicator>, bytes: u64) -> Result<Arc<LinkedSchedule>, Error> {
    communicator.link_all(swap(bytes), Signature::new(CallKind::Alltoall, bytes, 0))
}

/// Starts more runs than there are slots, and drops the requests and the schedule.
fn start_and_drop(communicator: Arc<Communicator>, bytes: u64) -> Result<(), Error> {
    let schedule = link(&communicator, bytes)?;
    for number in 0..40 {
        let data = vec![number; bytes as usize];
        drop(schedule.start(&[Argument::input(&data), Argument::output(bytes)])?);
    }
    Ok(())
}

/// Runs the schedule as often as the rank that drops it.
fn start_and_wait(communicator: &Arc<Communicator>, bytes: u64) -> Result<(), Error> {
    let schedule = link(communicator, bytes)?;
    for number in 0..40 {
        let data = vec![0; bytes as usize];
        let mut request = schedule.start(&[Argument::input(&data), Argument::output(bytes)])?;
        request.wait(LIMIT)?;
        let mut result = vec![0; bytes as usize];
        request.collect(&mut [&mut [], &mut result])?;
        assert!(result.iter().all(|byte| *byte == number));
    }
    Ok(())
}

#[test]
fn runs_of_a_dropped_schedule_complete() -> Result<(), Error> {
    for engine in [EngineKind::Peers, EngineKind::Caller] {
        for bytes in [8, 20_000] {
            two_ranks(engine, |world, barrier| {
                for round in 0..4 {
                    let communicator = dup(&world)?;
                    if world.rank() == round % 2 {
                        start_and_drop(communicator, bytes)?;
                        barrier.wait();
                    } else {
                        barrier.wait();
                        start_and_wait(&communicator, bytes)?;
                    }
                    synchronize(&world)?;
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

#[test]
fn runs_of_a_schedule_that_was_dropped_before_it_had_memory_complete() -> Result<(), Error> {
    for engine in [EngineKind::Peers, EngineKind::Caller] {
        two_ranks(engine, |world, barrier| {
            let communicator = dup(&world)?;
            if world.rank() == 0 {
                let hoard = hoard(&world);
                start_and_drop(communicator, 8)?;
                drop(hoard);
                barrier.wait();
            } else {
                barrier.wait();
                start_and_wait(&communicator, 8)?;
            }
            synchronize(&world)?;
            // The memory of the schedule and of the communicator is free again.
            for _ in 0..200 {
                let communicator = dup(&world)?;
                drop(link(&communicator, 8)?);
                synchronize(&world)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_rank_leaves_although_others_need_its_runs() -> Result<(), Error> {
    two_ranks(EngineKind::Peers, |world, barrier| {
        let communicator = dup(&world)?;
        if world.rank() == 0 {
            start_and_drop_broadcasts(&communicator)?;
            // Before rank 1 starts: a drop after it would start the queued runs.
            drop(communicator);
            barrier.wait();
            return Ok(());
        }
        barrier.wait();
        let requests: Result<Vec<Request>, Error> =
            (0..20).map(|number| start_broadcast(&communicator, number)).collect();
        let waited = requests?.last().map_or(Ok(()), |last| last.wait(None));
        let error = waited.expect_err("rank 0 has left with runs in its queue");
        assert!(matches!(*error, Error::RankFailed { rank: 0, .. }), "{error}");
        Ok(())
    })
}
