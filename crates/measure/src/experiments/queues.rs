//! Costs of a message: overhead, latency and gap (Culler et al., "LogP: Towards a Realistic Model
//! of Parallel Computation", 1993) of every mechanism of [`queues`] against the size of
//! the message, with one sending thread and with several that share a queue, as in figures 4 to 7
//! of Ang et al. 1996.
//!
//! | column | what it is |
//! |---|---|
//! | `send_ns` | a batch of sends within the capacity, without receives, over their number: the sender's processor |
//! | `receive_ns` | a batch of receives while messages wait: the receiver's processor |
//! | `latency_ns` | half a round trip; with several threads over all their messages together |
//! | `gap_ns` | a stream, from the first send's begin to the last receive's end, over the number of messages |
//! | `floor_ns` | half a round trip of a bare word, which one side stores and the other loads, in a line for each direction |
//! | `ratio` | latency over floor, of the same round |
//!
//! A rank that is bound to a core has all its threads there: they take turns, and what several
//! threads show then is that a thread which is not running blocks no other, not how they fare side
//! by side.
//!
//! In each round the floor and the mechanism take turns, so that both see the same machine; figures
//! are medians over the rounds with the tenths below and above.
//!
//! A message that is longer than a word or a line is several of them, and is complete when it lies
//! in the receiver's own buffer. Basic is measured in both of its forms: the unshared one, in a
//! ring of 4096 lines, and the shared one, which is wide Express. Tag-On goes to one receiver here;
//! its data is written to the segment once and read from there once. Receivers look for about a
//! microsecond and then sleep: senders always pay for the check for sleeping receivers. The
//! windows' remote memory commands are the exception, there the receiver polls a word: write and
//! accumulate its own, read the sender's. A stream of these has no flow control; the receiver
//! passes words over which others were written meanwhile.

mod bulk;
mod crossover;
mod idle;
mod mechanism;
pub(crate) mod message_path;
pub(crate) mod open;
mod part;
mod parts;
pub(crate) mod phases;
mod plan;
mod ring;
mod row;
mod tagged;
mod trial;
mod words;

pub use crossover::Crossover;
pub use mechanism::Mechanism;
pub use part::{experiment, rows_of};
pub use plan::{Case, LEAST_ROUNDS, MOST_BYTES, MOST_ROUNDS, MOST_ROW_MS, MOST_THREADS, Plan};
pub use row::Row;

use crate::harness::Error;
use message_path::{Floor, MessagePath};
use queues::bulk::Policy;
use tradewind::Communicator;
use words::Command;

/// Progress of the experiment.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It begins with this row.
    Begin(Case),
    /// It has measured this row.
    Row(Box<Row>),
    /// A mechanism cannot be measured here, and why.
    Skipped {
        /// The mechanism.
        mechanism: Mechanism,
        /// Why.
        why: String,
    },
}

/// Measures all rows of the plan between two ranks. Both call this with the same plan; `tell` is
/// called on both, what it is told on rank 0 counts.
///
/// ```
/// use measure::experiments::queues::{Event, Mechanism, Plan, run};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rows = std::sync::Mutex::new(Vec::new());
/// tradewind::local(2, |world| {
///     let plan = Plan { mechanisms: vec![Mechanism::Wide], threads: vec![1], sizes: vec![48], row_ms: 1, ..Plan::default() };
///     run(&world, &plan, |event| match event {
///         Event::Row(row) if world.rank() == 0 => rows.lock().expect("no thread panics").push(*row),
///         _ => {}
///     })
///     .expect("it can be measured");
///     Ok(())
/// })?;
/// let rows = rows.into_inner()?;
/// println!("{:?} ns", rows[0].latency_ns.expect("every mechanism has one").median);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the plan cannot be measured, there are not two ranks, a rank is gone, or a mechanism gives
/// wrong data.
pub fn run(world: &Communicator, plan: &Plan, mut tell: impl FnMut(Event)) -> Result<(), Error> {
    plan.check()?;
    if world.size() != 2 {
        let found = world.size().to_string();
        return Err(Error::Argument { what: "the number of ranks", found, expected: "2" });
    }
    let mut experiment = Experiment { world, floor: [open::floor(world)?], plan, tell: &mut tell };
    plan.groups()
        .into_iter()
        .try_for_each(|(mechanism, threads)| experiment.group(mechanism, threads))
}

/// The experiment on one job.
struct Experiment<'a, T> {
    world: &'a Communicator,
    floor: [Floor; 1],
    plan: &'a Plan,
    tell: &'a mut T,
}

impl<T: FnMut(Event)> Experiment<'_, T> {
    /// All rows of a mechanism with so many threads.
    fn group(&mut self, mechanism: Mechanism, threads: u32) -> Result<(), Error> {
        let world = self.world;
        let many = threads as usize;
        let remote = |command| open::remote(world, command);
        match mechanism {
            Mechanism::Express => self.sizes(mechanism, threads, open::words(world, many)?),
            Mechanism::OnePoll => self.sizes(mechanism, threads, open::polled(world, many)?),
            Mechanism::Wide => self.sizes(mechanism, threads, open::lines(world, many)?),
            Mechanism::TagOn => {
                let largest = self.plan.sizes_of(mechanism).into_iter().max().unwrap_or(0);
                self.sizes(mechanism, threads, open::tagged(world, many, largest)?)
            }
            Mechanism::Basic => self.sizes(mechanism, threads, open::ring(world)?),
            Mechanism::Channel => self.sizes(mechanism, threads, open::doubles(world)?),
            Mechanism::Write => self.sizes(mechanism, threads, remote(Command::Write)?),
            Mechanism::Read => self.sizes(mechanism, threads, remote(Command::Read)?),
            Mechanism::Accumulate => self.sizes(mechanism, threads, remote(Command::Accumulate)?),
            Mechanism::Bulk => self.bulk(mechanism, Policy::Automatic),
            Mechanism::BulkStaged => self.bulk(mechanism, Policy::Staged),
            Mechanism::BulkDirect => self.bulk(mechanism, Policy::Direct),
            Mechanism::Idle => {
                (self.tell)(Event::Begin(Case { mechanism, threads, bytes: 0 }));
                (self.tell)(Event::Row(Box::new(idle::measure(world)?)));
                Ok(())
            }
        }
    }

    fn bulk(&mut self, mechanism: Mechanism, policy: Policy) -> Result<(), Error> {
        let (ways, why) = open::bulk(self.world, policy)?;
        if let Some(why) = why {
            (self.tell)(Event::Skipped { mechanism, why });
            return Ok(());
        }
        self.sizes(mechanism, 1, ways)
    }

    fn sizes<W: MessagePath>(
        &mut self,
        mechanism: Mechanism,
        threads: u32,
        mut ways: Vec<W>,
    ) -> Result<(), Error> {
        for bytes in self.plan.sizes_of(mechanism) {
            let case = Case { mechanism, threads, bytes };
            (self.tell)(Event::Begin(case));
            let row = trial::measure(self.world, &mut self.floor, &mut ways, case, self.plan)?;
            (self.tell)(Event::Row(Box::new(row)));
        }
        // Neither rank closes an end that the other still uses.
        Ok(self.world.barrier()?)
    }
}
