//! Cost of waiting: CPU time of receivers that sleep in all the ways there are.

use super::open;
use super::parts::{Parts, Polled};
use crate::harness::processor_time::{RankKind, used_by_rank_us};
use crate::harness::{Error, StepContext, agreement};
use crate::rows::{Mechanism, Quantity, Row, What};
use std::time::{Duration, Instant};

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
pub(super) fn measure(here: &StepContext<'_>) -> Result<Row, Error> {
    let world = here.world;
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
            scope.spawn(|| way.path.sleep_until(until));
        }
        for way in &mut channels {
            scope.spawn(|| way.receiver.recv_deadline(until).is_ok());
        }
        std::thread::sleep(FALLING_ASLEEP);
        let before = used_by_rank_us(RankKind::Process);
        std::thread::sleep(WATCHED);
        used_by_rank_us(RankKind::Process) - before
    });
    let processor = Some(agreement::sum(world, &[used_us])?[0]);
    let times = vec![WATCHED.as_secs_f64() * 1e6];
    let row = here.row(What::Messages(Mechanism::Idle), Quantity::Sleep, times);
    Ok(Row { threads: Some(RECEIVERS), processor, ..row })
}
