//! The experiment on one job: every row of a plan between two ranks.

use super::mechanism::Mechanism;
use super::message_path::{Floor, MessagePath};
use super::plan::{Case, Plan};
use super::row::QueueRow;
use super::tagged::Form;
use super::words::Command;
use super::{idle, open, trial};
use crate::harness::Error;
use queues::bulk::Policy;
use tradewind::Communicator;

/// Progress of the experiment.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueProgress {
    /// It begins with this row.
    Begin(Case),
    /// It has measured this row.
    Row(Box<QueueRow>),
    /// A mechanism cannot be measured here, and why.
    Skipped {
        /// The mechanism.
        mechanism: Mechanism,
        /// The reason.
        why: String,
    },
}

/// Measures all rows of the plan between two ranks. Both call this with the same plan; `report` is
/// called on both; the calls on rank 0 count.
///
/// ```
/// use measure::experiments::queues::{Mechanism, Plan, QueueProgress, run};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rows = std::sync::Mutex::new(Vec::new());
/// tradewind::local(2, |world| {
///     let plan = Plan { mechanisms: vec![Mechanism::Wide], threads: vec![1], sizes: vec![48], row_ms: 1, ..Plan::default() };
///     run(&world, &plan, |event| match event {
///         QueueProgress::Row(row) if world.rank() == 0 => {
///             rows.lock().expect("no thread panics").push(*row)
///         }
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
/// If the plan cannot be measured, there are not two ranks, a rank has failed, or a mechanism
/// delivers wrong data.
pub fn run(
    world: &Communicator,
    plan: &Plan,
    mut report: impl FnMut(QueueProgress),
) -> Result<(), Error> {
    plan.check()?;
    if world.size() != 2 {
        let found = world.size().to_string();
        return Err(Error::Argument { what: "the number of ranks", found, expected: "2" });
    }
    // Nodes share no memory for a bare word.
    let floor = if world.nodes() > 1 { Vec::new() } else { vec![open::floor(world)?] };
    let mut experiment = QueueExperiment { world, floor, plan, report: &mut report };
    plan.groups()
        .into_iter()
        .try_for_each(|(mechanism, threads)| experiment.group(mechanism, threads))
}

/// The experiment on one job.
struct QueueExperiment<'a, T> {
    world: &'a Communicator,
    /// None between nodes.
    floor: Vec<Floor>,
    plan: &'a Plan,
    report: &'a mut T,
}

impl<T: FnMut(QueueProgress)> QueueExperiment<'_, T> {
    /// All rows of a mechanism with so many threads.
    fn group(&mut self, mechanism: Mechanism, threads: u32) -> Result<(), Error> {
        let world = self.world;
        let many = threads as usize;
        let remote = |command| open::remote(world, command);
        match mechanism {
            Mechanism::Express => self.sizes(mechanism, threads, open::words(world, many)?),
            Mechanism::OnePoll => self.sizes(mechanism, threads, open::polled(world, many)?),
            Mechanism::Wide => self.sizes(mechanism, threads, open::lines(world, many)?),
            Mechanism::TagOn => self.tagged(mechanism, threads, Form::Copied),
            Mechanism::TagOnResident => self.tagged(mechanism, threads, Form::Resident),
            Mechanism::TagOnMulticast => self.tagged(mechanism, threads, Form::Multicast),
            Mechanism::Basic => self.sizes(mechanism, threads, open::ring(world)?),
            Mechanism::BasicLocked => {
                self.sizes(mechanism, threads, open::locked_ring(world, many)?)
            }
            Mechanism::Append => {
                let ways = open::appended(world, many, self.largest(mechanism))?;
                self.sizes(mechanism, threads, ways)
            }
            Mechanism::Channel => self.sizes(mechanism, threads, open::doubles(world)?),
            Mechanism::Write => self.sizes(mechanism, threads, remote(Command::Write)?),
            Mechanism::Read => self.sizes(mechanism, threads, remote(Command::Read)?),
            Mechanism::Accumulate => self.sizes(mechanism, threads, remote(Command::Accumulate)?),
            Mechanism::Fetch => self.sizes(mechanism, threads, remote(Command::Fetch)?),
            Mechanism::Bulk => self.bulk(mechanism, Policy::Automatic),
            Mechanism::BulkStaged => self.bulk(mechanism, Policy::Staged),
            Mechanism::BulkDirect => self.bulk(mechanism, Policy::Direct),
            Mechanism::Idle => {
                (self.report)(QueueProgress::Begin(Case { mechanism, threads, bytes: 0 }));
                (self.report)(QueueProgress::Row(Box::new(idle::measure(world)?)));
                Ok(())
            }
        }
    }

    /// The longest message of a mechanism.
    fn largest(&self, mechanism: Mechanism) -> u64 {
        self.plan.sizes_of(mechanism).into_iter().max().unwrap_or(0)
    }

    fn tagged(&mut self, mechanism: Mechanism, threads: u32, form: Form) -> Result<(), Error> {
        let ways = open::tagged(self.world, threads as usize, self.largest(mechanism), form)?;
        self.sizes(mechanism, threads, ways)
    }

    fn bulk(&mut self, mechanism: Mechanism, policy: Policy) -> Result<(), Error> {
        let (ways, why) = open::bulk(self.world, policy)?;
        if let Some(why) = why {
            (self.report)(QueueProgress::Skipped { mechanism, why });
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
            (self.report)(QueueProgress::Begin(case));
            let row = trial::measure(self.world, &mut self.floor, &mut ways, case, self.plan)?;
            (self.report)(QueueProgress::Row(Box::new(row)));
        }
        // Neither rank closes an end that the other still uses.
        Ok(self.world.barrier()?)
    }
}
