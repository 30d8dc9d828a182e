//! Cost of waiting: CPU time of receivers that sleep in all the ways there are.

use super::mechanism::Mechanism;
use super::open;
use super::parts::{Parts, Polled};
use super::row::QueueRow;
use crate::harness::Error;
use crate::harness::processor_time::{RankKind, used_by_rank_us};
use models::statistics::Deciles;
use std::time::{Duration, Instant};
use tradewind::{Communicator, Op};

/// Sleeping receivers of both ranks: on each one of Express, one of wide Express, one of a poll
/// set, one of a channel.
const RECEIVERS: u32 = 8;
/// Receivers look for some microseconds before they sleep; this is long enough for them to have
/// done so.
const FALLING_ASLEEP: Duration = Duration::from_millis(50);
/// Length of the observation.
const WATCHED: Duration = Duration::from_secs(1);
/// Time that the receivers sleep beyond the observation.
const MARGIN: Duration = Duration::from_millis(50);

/// Measures it, once: it takes a second. All ranks call this, which must be processes.
pub(super) fn measure(world: &Communicator) -> Result<QueueRow, Error> {
    let mut words = world.express(16)?.receiver;
    let mut lines = world.cache_lines(16)?.receiver;
    let mut polled: Vec<Parts<Polled>> = open::polled(world, 1)?;
    let mut channels = open::doubles(world)?;
    world.barrier()?;
    let until = Instant::now() + FALLING_ASLEEP + WATCHED + MARGIN;
    let used_us = std::thread::scope(|scope| {
        // They end at the deadline, without a message.
        scope.spawn(|| words.recv_deadline(until).is_ok());
        scope.spawn(|| lines.recv_deadline(until).is_ok());
        for way in &mut polled {
            scope.spawn(|| way.path_mut().sleep_until(until));
        }
        for way in &mut channels {
            scope.spawn(|| way.receiver.recv_deadline(until).is_ok());
        }
        std::thread::sleep(FALLING_ASLEEP);
        let before = used_by_rank_us(RankKind::Process);
        std::thread::sleep(WATCHED);
        used_by_rank_us(RankKind::Process) - before
    });
    let mut all = [0.0];
    world.allreduce(&[used_us], &mut all, Op::Sum)?;
    // Of a core that is busy all the time: 10,000 µs a second are a percent.
    Ok(row(all[0] / WATCHED.as_secs_f64() / 1e4))
}

/// The row of so many percent of a core.
pub(super) fn row(percent: f64) -> QueueRow {
    let none: Option<Deciles> = None;
    QueueRow {
        mechanism: Mechanism::Idle,
        threads: RECEIVERS,
        bytes: 0,
        send_ns: none,
        receive_ns: none,
        latency_ns: none,
        gap_ns: none,
        floor_ns: none,
        ratio: none,
        megabytes_per_second: None,
        processor_percent: Some(percent),
        rounds: 1,
        round_trips: 0,
    }
}
