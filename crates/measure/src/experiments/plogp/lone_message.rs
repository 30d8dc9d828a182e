//! Overheads between nodes: processor time of a single message.
//!
//! The engine between nodes reads its clock once for everything that has become due, so timestamps
//! around the sends of a run show nothing. Instead, runs with one message and runs without any
//! alternate, and the difference of their processor times is the overhead. A rank that waits polls,
//! so that its processor time is the time that passes. Hence no rank waits for the other one while
//! its time is taken:
//!
//! - **Blocking calls** run in the thread of the rank. The receiver begins its call when the message
//!   surely lies in its socket, as in Kielmann et al. 2000, section 3. The sender's call returns as
//!   soon as the kernel has the message. A message that is too long for that makes the sender wait
//!   for the receiver: of such sizes neither overhead is measured.
//! - **Nonblocking calls** run in the node service, which sleeps while a rank computes. Both ranks
//!   compute until the run is complete. The overhead contains the wake-up of the service by the
//!   message. Between two ranks of one node the same service sends and receives, and each overhead
//!   is half of what it takes.

use super::patterns::{self, FIRST, PAIR};
use crate::harness::Error;
use crate::harness::clock::{microseconds, now_ns};
use crate::harness::processor_time::{RankKind, used_by_process_us, used_by_rank_us};
use models::machine_file::Engine;
use models::statistics::{Sample, median};
use tradewind::{Buffers, CallForm, Communicator, Schedule};

/// Runs of each kind in a round, for messages that take less time than the differences between runs,
/// and for longer ones.
const fn runs(bytes: u64) -> usize {
    const SHORT: u64 = 16 << 10;
    if bytes < SHORT { 41 } else { 11 }
}
/// Microseconds until a thread that has nothing to do sleeps.
const REST_US: f64 = 100.0;
/// Time until a message has surely arrived: for any message, and for each of its bytes.
const DELAY_US: f64 = 300.0;
const DELAY_US_PER_BYTE: f64 = 0.005;
/// Longest time for which a run is watched that another process completes.
const LONGEST_US: f64 = 1e6;

/// Executor of the messages. Its processor time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Executor {
    /// The calling thread.
    Caller,
    /// The node service, a process, of this rank alone or of both.
    Service { process: u32, is_shared: bool },
}

/// Schedules with one message of a size from the first rank to the second, and without it.
pub(super) struct LoneMessage {
    bytes: u64,
    with: Schedule,
    without: Schedule,
}

/// One run on this rank.
struct Run {
    processor_us: f64,
    elapsed_us: f64,
}

impl LoneMessage {
    /// Returns the schedules of a size. All ranks call this.
    pub(super) fn new(world: &Communicator, bytes: u64) -> Result<Self, Error> {
        let rank = (world.rank(), world.size());
        let with = world.compile(&patterns::lone_message(rank, bytes, true))?;
        let without = world.compile(&patterns::lone_message(rank, bytes, false))?;
        Ok(LoneMessage { bytes, with, without })
    }

    /// Returns `true` if an engine runs both.
    pub(super) fn is_run_by(&self, form: CallForm, engine: Engine) -> bool {
        [&self.with, &self.without].iter().all(|schedule| schedule.engine(form) == engine.name())
    }

    /// Returns `true` if the sender's part is over before the receiver begins, so that neither
    /// waits for the other one. All ranks call this and get the same.
    pub(super) fn is_measurable(
        &self,
        world: &Communicator,
        executor: Executor,
        memory: &mut [u8],
    ) -> Result<bool, Error> {
        let mut is_measurable = [1u8];
        if executor == Executor::Caller {
            let mut times = Vec::new();
            for _ in 0..runs(self.bytes) {
                times.push(self.run(world, executor, memory, &self.with)?.elapsed_us);
            }
            is_measurable[0] = u8::from(median(&times) < 0.5 * self.delay_us());
        }
        world.bcast(&mut is_measurable, FIRST)?;
        Ok(is_measurable[0] == 1)
    }

    /// Processor time of a send and of a receive in one round, in microseconds. All ranks call this,
    /// and the first one gets the result.
    pub(super) fn round(
        &self,
        world: &Communicator,
        executor: Executor,
        memory: &mut [u8],
    ) -> Result<[f64; 2], Error> {
        let mut times = [const { Vec::new() }; 2];
        for _ in 0..runs(self.bytes) {
            for (schedule, times) in [&self.without, &self.with].into_iter().zip(&mut times) {
                times.push(self.run(world, executor, memory, schedule)?.processor_us);
            }
        }
        // What comes in between only adds to a run: lines that another process has evicted.
        let [without, with] = times.map(|times| Sample::of(times).quantiles.p25);
        let own = with - without;
        let mut receive = [own];
        world.bcast(&mut receive, 1)?;
        Ok(match executor {
            Executor::Service { is_shared: true, .. } => [own / 2.0; 2],
            _ => [own, receive[0]],
        })
    }

    fn delay_us(&self) -> f64 {
        DELAY_US + DELAY_US_PER_BYTE * self.bytes as f64
    }

    fn run(
        &self,
        world: &Communicator,
        executor: Executor,
        memory: &mut [u8],
        schedule: &Schedule,
    ) -> Result<Run, Error> {
        let rank = world.rank();
        world.barrier()?;
        let length = patterns::buffer_bytes(self.bytes, 1) as usize;
        let buffers = Buffers::new().inout(&mut memory[..length]);
        match executor {
            Executor::Caller => {
                if rank != FIRST && rank < PAIR {
                    compute_for(self.delay_us());
                }
                let begin = now_ns();
                let used = used_by_rank_us(RankKind::Thread);
                schedule.call(buffers)?;
                let processor_us = used_by_rank_us(RankKind::Thread) - used;
                Ok(Run { processor_us, elapsed_us: microseconds(begin, now_ns()) })
            }
            Executor::Service { process, .. } => {
                compute_for(REST_US);
                let begin = now_ns();
                let used = used_by_process_us(process)?;
                let request = schedule.run(buffers)?;
                while !request.is_complete() && microseconds(begin, now_ns()) < LONGEST_US {
                    std::hint::spin_loop();
                }
                let elapsed_us = microseconds(begin, now_ns());
                compute_for(self.delay_us());
                let processor_us = used_by_process_us(process)? - used;
                request.wait()?;
                Ok(Run { processor_us, elapsed_us })
            }
        }
    }
}

/// Keeps the processor busy without any call of the library.
fn compute_for(time_us: f64) {
    let begin = now_ns();
    while microseconds(begin, now_ns()) < time_us {
        std::hint::spin_loop();
    }
}
