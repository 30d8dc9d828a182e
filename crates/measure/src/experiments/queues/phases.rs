//! The three things that are done with a way and timed: round trips, streams, and batches into a
//! queue without a receiver.
//!
//! Rank 0 begins, with all its threads; rank 1 has one thread. The clock is the node's, so that a
//! stream can be timed from the first sender's begin to the receiver's end.

use super::message_path::{End, MessagePath};
use crate::harness::clock::now_ns;
use crate::harness::{Error, agreement};
use models::statistics::median;
use std::sync::Barrier;
use tradewind::Communicator;

/// When something began and ended.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: i64,
    end: i64,
}

/// Times `act` on all threads of this rank; they begin together.
fn on_all<W: MessagePath>(
    ways: &mut [End<W>],
    act: impl Fn(&mut End<W>) -> Result<(), Error> + Sync,
) -> Result<Vec<Span>, Error> {
    let time = |way: &mut End<W>| {
        let begin = now_ns();
        act(way)?;
        Ok(Span { begin, end: now_ns() })
    };
    if let [alone] = ways {
        return Ok(vec![time(alone)?]);
    }
    let start = Barrier::new(ways.len());
    let start = &start;
    let time = &time;
    std::thread::scope(|scope| {
        let spawn = |way| {
            scope.spawn(move || {
                start.wait();
                time(way)
            })
        };
        let threads: Vec<_> = ways.iter_mut().map(spawn).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Sends so many messages on each thread of this rank.
fn send<W: MessagePath>(ways: &mut [End<W>], count: u64) -> Result<Vec<Span>, Error> {
    on_all(ways, |way| (0..count).try_for_each(|_| way.send(0)))
}

/// Receives so many messages on each thread of this rank.
fn receive<W: MessagePath>(ways: &mut [End<W>], count: u64) -> Result<Vec<Span>, Error> {
    on_all(ways, |way| (0..count).try_for_each(|_| way.receive().map(|_| ())))
}

/// From the first begin to the last end.
fn whole(spans: &[Span]) -> Span {
    let begin = spans.iter().map(|span| span.begin).min().unwrap_or(0);
    let end = spans.iter().map(|span| span.end).max().unwrap_or(0);
    Span { begin, end }
}

/// Half a round trip in nanoseconds, of `count` for each of the threads. Rank 1 returns 0.
pub(super) fn round_trips<W: MessagePath>(
    world: &Communicator,
    ways: &mut [End<W>],
    threads: usize,
    count: u64,
) -> Result<f64, Error> {
    world.barrier()?;
    if world.rank() == 1 {
        for _ in 0..count * threads as u64 {
            for way in &mut *ways {
                let from = way.receive()?;
                way.send(from)?;
            }
        }
        return Ok(0.0);
    }
    let spans = on_all(ways, |way| {
        for _ in 0..count {
            way.send(0)?;
            way.receive()?;
        }
        Ok(())
    })?;
    let Span { begin, end } = whole(&spans);
    Ok((end - begin) as f64 / (2 * count * threads as u64) as f64)
}

/// Nanoseconds a message of a stream of `count` from each of the threads. Both ranks get it.
pub(super) fn stream<W: MessagePath>(
    world: &Communicator,
    ways: &mut [End<W>],
    threads: usize,
    count: u64,
) -> Result<f64, Error> {
    let messages = count * threads as u64;
    world.barrier()?;
    let is_flushed = ways.iter().any(|way| way.path.is_flushed());
    // Nodes have a clock each.
    if is_flushed || world.nodes() > 1 {
        return stream_by_sender(world, ways, count, messages, is_flushed);
    }
    let mut ends = [i64::MIN; 2];
    if world.rank() == 0 {
        let spans = send(ways, count)?;
        ends[0] = -whole(&spans).begin;
    } else {
        let spans = receive(ways, messages)?;
        ends[1] = whole(&spans).end;
    }
    let all = agreement::latest(world, &ends)?;
    Ok((all[0] + all[1]) as f64 / messages as f64)
}

/// The same by the clock of the sender alone: to the end of its flush, in which the receiver takes no part,
/// or to the arrival of an answer to the last message.
fn stream_by_sender<W: MessagePath>(
    world: &Communicator,
    ways: &mut [End<W>],
    count: u64,
    messages: u64,
    is_flushed: bool,
) -> Result<f64, Error> {
    let mut time = 0;
    if world.rank() == 0 {
        let Span { begin, .. } = whole(&send(ways, count)?);
        if is_flushed {
            ways.iter_mut().try_for_each(|way| way.path.flush())?;
        } else if let Some(first) = ways.first_mut() {
            first.receive()?;
        }
        time = now_ns() - begin;
    } else if is_flushed {
        ways.iter_mut().for_each(|way| way.path.skip(messages));
    } else {
        receive(ways, messages)?;
        send(ways, 1)?;
    }
    Ok(agreement::largest(world, &[time as f64])?[0] / messages as f64)
}

/// Nanoseconds to send and to receive a message, in batches of so many from each of the threads.
/// First all are sent, then all are received. Medians of the batches; both ranks get them.
pub(super) fn batches<W: MessagePath>(
    world: &Communicator,
    ways: &mut [End<W>],
    threads: usize,
    batch: u64,
    batches: u64,
) -> Result<Vec<f64>, Error> {
    let mut times = Vec::new();
    for _ in 0..batches {
        world.barrier()?;
        if world.rank() == 0 {
            let spans = send(ways, batch)?;
            let sum: i64 = spans.iter().map(|span| span.end - span.begin).sum();
            times.push(sum as f64 / (batch * threads as u64) as f64);
        }
        world.barrier()?;
        if world.rank() == 1 {
            let messages = batch * threads as u64;
            let spans = receive(ways, messages)?;
            let Span { begin, end } = whole(&spans);
            times.push((end - begin) as f64 / messages as f64);
        }
    }
    let mut own = [0.0; 2];
    own[world.rank() as usize] = median(&times);
    agreement::largest(world, &own)
}
