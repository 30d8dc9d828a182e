//! Schedules of all ranks that every rank links itself: no rank waits for another.

use crate::ranks::{ARENA_BYTES, ThreadBarrier, hoard, members, on_each, swap};
use engine::argument::Argument;
use engine::communicator::Communicator;
use engine::node::EngineKind;
use engine::signature::{CallKind, Signature};
use engine::{Error, LinkedSchedule, Request};
use goal::compile::compile;
use goal::graph::{Access, Graph};
use goal::schedule::Schedule;
use std::sync::Arc;
use std::time::Duration;

fn call(kind: CallKind) -> Signature {
    Signature::new(kind, 8, 0)
}

/// Starts a swap of 8 bytes: this rank's number plus `offset`.
fn start(schedule: &Arc<LinkedSchedule>, offset: u64) -> Result<Request, Error> {
    let mine = u64::from(schedule.communicator().rank()) + offset;
    schedule.start(&[Argument::input(&mine.to_le_bytes()), Argument::output(8)])
}

/// Waits for a swap and checks what the other rank sent.
fn finish(mut request: Request, offset: u64) -> Result<(), Error> {
    request.wait(None)?;
    let mut theirs = [0; 8];
    let expected = u64::from(1 - request.communicator().rank()) + offset;
    request.collect(&mut [&mut [], &mut theirs])?;
    assert_eq!(u64::from_le_bytes(theirs), expected);
    Ok(())
}

/// Runs on two ranks with little memory.
fn two_ranks(
    engine: EngineKind,
    body: impl Fn(Arc<Communicator>, &ThreadBarrier) -> Result<(), Error> + Sync,
) {
    let members = members(2, engine).expect("the job has memory");
    on_each(members, body).expect("no rank fails");
}

#[test]
fn a_rank_links_and_starts_before_the_other_one_does() {
    for engine in [EngineKind::Peers, EngineKind::Caller] {
        for first in 0..2 {
            two_ranks(engine, |communicator, barrier| {
                if communicator.rank() != first {
                    // The other rank comes here after its start.
                    barrier.wait();
                }
                let schedule = communicator.link_all(swap(8), call(CallKind::Alltoall))?;
                let request = start(&schedule, 7)?;
                if communicator.rank() == first {
                    barrier.wait();
                }
                finish(request, 7)
            });
        }
    }
}

#[test]
fn a_rank_without_memory_takes_the_block_of_the_other_one() {
    two_ranks(EngineKind::Peers, |communicator, barrier| {
        if communicator.rank() == 1 {
            barrier.wait();
            return finish(
                start(&communicator.link_all(swap(8), call(CallKind::Alltoall))?, 1)?,
                1,
            );
        }
        let hoard = hoard(&communicator);
        let schedule = communicator.link_all(swap(8), call(CallKind::Alltoall))?;
        assert!(!communicator.advance_queued_runs()?, "there is no run");
        let request = start(&schedule, 1)?;
        assert!(communicator.advance_queued_runs()?, "the run has no block");
        let abandoned = start(&schedule, 2)?;
        assert!(!request.test()?, "it has neither a block nor a partner");
        drop(abandoned);
        barrier.wait();
        finish(request, 1)?;
        drop(hoard);
        Ok(())
    });
}

#[test]
fn a_wait_reports_that_no_rank_has_memory_and_a_later_one_succeeds() {
    two_ranks(EngineKind::Peers, |communicator, barrier| {
        let hoard = hoard(&communicator);
        let schedule = communicator.link_all(swap(8), call(CallKind::Alltoall))?;
        let requests = [start(&schedule, 0)?, start(&schedule, 5)?];
        let error = requests[0].wait(None).expect_err("there is no memory");
        assert!(error.to_string().contains("TRADEWIND_ARENA_MIB"), "{error}");
        // Both have seen the error before one has memory.
        barrier.wait();
        drop(hoard);
        let [first, second] = requests;
        finish(first, 0)?;
        finish(second, 5)
    });
}

#[test]
fn a_schedule_that_fits_no_arena_is_refused_at_once() {
    two_ranks(EngineKind::Peers, |communicator, _| {
        let mut graphs = Vec::new();
        for rank in 0..2 {
            let mut graph = Graph::new(rank, 2);
            graph.scratchpad(2 * ARENA_BYTES);
            graphs.push(compile(&graph).expect("the graph is sound"));
        }
        let refused = communicator.link_all(graphs, call(CallKind::Schedule));
        assert!(matches!(refused, Err(Error::Arena(_))), "{refused:?}");
        finish(start(&communicator.link_all(swap(8), call(CallKind::Alltoall))?, 3)?, 3)
    });
}

/// More links than the table has entries, while the other rank has made none of them.
#[test]
fn a_rank_may_be_any_number_of_links_ahead() {
    const LINKS: u64 = 200;
    two_ranks(EngineKind::Peers, |communicator, barrier| {
        if communicator.rank() == 1 {
            barrier.wait();
        }
        let mut started = Vec::new();
        for link in 0..LINKS {
            let schedule = communicator.link_all(swap(8), call(CallKind::Alltoall))?;
            started.push((start(&schedule, link)?, start(&schedule, 2 * link)?, schedule));
        }
        if communicator.rank() == 0 {
            barrier.wait();
        }
        for (link, (first, second, _)) in (0..).zip(started) {
            finish(first, link)?;
            finish(second, 2 * link)?;
        }
        Ok(())
    });
}

#[test]
fn ranks_that_link_for_different_calls_are_told_of_both() {
    two_ranks(EngineKind::Peers, |communicator, barrier| {
        let kinds = [CallKind::Alltoall, CallKind::Allgather];
        let mine = kinds[communicator.rank() as usize];
        if communicator.rank() == 1 {
            barrier.wait();
        }
        let outcome = communicator.link_all(swap(8), call(mine)).and_then(|schedule| {
            let request = start(&schedule, 0)?;
            barrier.wait();
            Ok(request.wait(None)?)
        });
        let Err(Error::Mismatch { calls, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(calls, kinds.map(call));
        Ok(())
    });
}

#[test]
fn ranks_that_have_built_different_graphs_are_told_so() {
    two_ranks(EngineKind::Peers, |communicator, barrier| {
        if communicator.rank() == 1 {
            barrier.wait();
            let other = communicator.link_all(swap(16), call(CallKind::Alltoall));
            let error = other.expect_err("the schedules differ");
            assert!(error.to_string().contains("different graphs"), "{error}");
            return Ok(());
        }
        let request = start(&communicator.link_all(swap(8), call(CallKind::Alltoall))?, 0)?;
        barrier.wait();
        let outcome = request.wait(None).map_err(Error::from);
        assert!(matches!(outcome, Err(Error::RankFailed { rank: 1, .. })), "{outcome:?}");
        Ok(())
    });
}

/// Rank 0 receives two messages of different lengths from any rank; the others send one each.
fn gather_from_any(lengths: [u64; 2]) -> Vec<Schedule> {
    let graph = |rank: u32| {
        let mut graph = Graph::new(rank, 3);
        if rank == 0 {
            for length in lengths {
                let buffer = graph.buffer(Access::Output, length);
                graph.receive(buffer, None, 0);
            }
        } else {
            let buffer = graph.buffer(Access::Input, lengths[2 - rank as usize]);
            graph.send(buffer, 0, 0);
        }
        graph
    };
    (0..3).map(|rank| compile(&graph(rank)).expect("the graph is sound")).collect()
}

#[test]
fn a_wildcard_receive_of_another_length_fails_on_all_ranks() {
    for lengths in [[4, 8], [40_000, 80_000]] {
        for engine in [EngineKind::Peers, EngineKind::Caller] {
            let members = members(3, engine).expect("the job has memory");
            on_each(members, |communicator, barrier| {
                let schedule =
                    communicator.link_all(gather_from_any(lengths), call(CallKind::Gather))?;
                // Rank 0 posts both receives. Rank 1 then sends what the second one expects.
                (0..communicator.rank()).for_each(|_| barrier.wait());
                let [short, long] = lengths.map(|length| vec![1; length as usize]);
                let request = match communicator.rank() {
                    0 => schedule.start(&lengths.map(Argument::output)),
                    1 => schedule.start(&[Argument::input(&long)]),
                    _ => schedule.start(&[Argument::input(&short)]),
                };
                let mut request = request?;
                // With the caller engine a rank posts and sends in its calls.
                request.test()?;
                (communicator.rank()..3).for_each(|_| barrier.wait());
                request.wait(Some(Duration::from_secs(30)))?;
                let error = request.collect(&mut []).expect_err("lengths differ").to_string();
                assert!(error.contains("wildcard receive"), "{error}");
                assert!(error.contains(&format!("{} bytes", lengths[0])), "{error}");
                assert!(error.contains(&format!("{} bytes", lengths[1])), "{error}");
                // No other call on the rank has got the error.
                communicator.split(Some(0), 0)?;
                Ok(())
            })
            .expect("no rank hangs");
        }
    }
}
