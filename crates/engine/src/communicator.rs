//! Communicators: the ranks of a communicator and its numbered collectives, as one rank sees them.

mod blocking;
mod external;
pub(crate) mod input_readers;
mod link;
pub(crate) mod linked_schedule;
mod placement;
mod remnant;
pub(crate) mod request;
pub mod split;
mod stream;

use crate::argument::Argument;
use crate::communicator::remnant::{DroppedCommunicator, DroppedRuns, Left};
use crate::context::Context;
use crate::error::{Error, Exit, Outcome, Straggler};
use crate::flat::executor::FlatExecutor;
use crate::flat::pattern::FlatCollective;
use crate::flat::role::{ReducedBy, ResultRule};
use crate::memory::{MemoryHolder, Pending};
use crate::node::EngineKind;
use crate::node::membership::{Member, OwnerWork};
use crate::signature::Signature;
use crate::staging::{self, Staging};
use crate::state::FLAT_SLOTS;
use crate::streams::StreamsState;
use crate::trace::Trace;
use crate::wait::OwnTasks;
use crate::wait::{self, SleepersCondition};
use crate::window::{InflightWindow, RunNumber, StartedRun};
use shm::arena::Arena;
use shm::biased_mutex::BiasedMutex;
use shm::owned::OwnedBytes;
use shm::segment::Offset;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// A communicator on one node.
#[derive(Debug)]
pub struct Communicator {
    context: Context,
    flat: InflightWindow<FlatExecutor>,
    /// Created by the first blocking collective that streams.
    streams: BiasedMutex<StreamsState>,
}

impl Communicator {
    /// Creates the communicator of all ranks of the job.
    ///
    /// # Errors
    /// Returns an error if the segment does not have the expected layout.
    pub fn world(member: Arc<Member>) -> Result<Arc<Self>, Error> {
        let members = (0..member.node().ranks()).collect();
        let rank = member.rank();
        let at = member.node().world_state();
        Communicator::new(member, members, rank, at, 0)
    }

    /// `name` is the communicator's name in a profile, equal on all its ranks.
    fn new(
        member: Arc<Member>,
        members: Vec<u32>,
        rank: u32,
        state_at: Offset,
        name: u64,
    ) -> Result<Arc<Self>, Error> {
        let context = Context::new(member, members, rank, state_at, name)?;
        let memory = context.member.node().memory().clone();
        let state = Arc::clone(&context.state);
        let executor = FlatExecutor::new(memory, state, rank, context.size())?;
        let staging = staging_of(&context.member);
        let memory = Arc::clone(context.member.memory());
        let communicator = Arc::new(Communicator {
            flat: InflightWindow::new((executor, &memory), FLAT_SLOTS, staging),
            context,
            streams: BiasedMutex::default(),
        });
        memory.add_holder(Arc::downgrade(&communicator) as Weak<dyn MemoryHolder>);
        Ok(communicator)
    }

    /// Returns this rank in the communicator.
    pub fn rank(&self) -> u32 {
        self.context.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.context.size()
    }

    /// Returns this rank's membership in the job.
    pub fn member(&self) -> &Arc<Member> {
        &self.context.member
    }

    /// Returns the ranks in the job on this node, by rank in the communicator.
    pub fn members(&self) -> &[u32] {
        &self.context.members
    }

    /// Describes a rank of the communicator that others wait for.
    pub fn straggler(&self, rank: u32) -> Option<Straggler> {
        let member = *self.context.members.get(rank as usize)?;
        Some(self.member().node().straggler(member, rank))
    }

    /// Returns how a rank of the communicator left the job, if it did.
    pub fn exit_of(&self, rank: u32) -> Option<Exit> {
        self.member().node().exit_of(*self.context.members.get(rank as usize)?)
    }

    /// Returns this rank's part of the segment.
    pub fn arena(&self) -> &Arc<Arena> {
        self.member().arena()
    }

    /// Allocates zeroed memory with this alignment in this rank's part of the segment.
    ///
    /// # Errors
    /// Returns an error if that part is full.
    pub fn allocate(&self, bytes: u64, alignment: u64) -> Result<OwnedBytes, Error> {
        let member = self.member();
        Ok(member.with_reclaim(|| OwnedBytes::new(self.arena(), bytes, alignment))?)
    }

    /// Returns the engine that executes operations.
    pub fn engine(&self) -> EngineKind {
        self.member().node().engine()
    }

    /// Returns the recorder of this rank's profile, if one is recorded.
    pub fn trace(&self) -> Option<&Arc<Trace>> {
        self.context.trace.as_ref().map(|(trace, _)| trace)
    }

    /// Exchanges a few words: returns the words of all ranks, in rank order. Waits for all ranks.
    ///
    /// # Errors
    /// Returns an error if a rank has failed or is in another collective.
    pub fn exchange_words(&self, words: [u64; 6], call: Signature) -> Result<Vec<[u64; 6]>, Error> {
        let sequence = self.context.begin(call);
        self.context.exchanges().run(words, sequence, call)
    }

    /// Executes this rank's own tasks in all communicators of this node. Returns whether such tasks
    /// can appear again, so a caller that waits for another event must repeat the call.
    ///
    /// # Errors
    /// Returns an error if an operation of this rank fails.
    pub fn progress_own_work(&self) -> Result<bool, Error> {
        let tasks = self.context.progress()?;
        Ok(tasks == OwnTasks::Expected || self.member().has_own_work())
    }

    /// Executes this rank's own tasks in all communicators of this node, among which is the start of
    /// queued runs. Returns whether runs are still queued.
    ///
    /// # Errors
    /// Returns an error if an operation of this rank fails.
    pub fn advance_queued_runs(&self) -> Result<bool, Error> {
        self.context.progress()?;
        Ok(self.member().has_own_work() && self.member().has_queue())
    }

    /// Makes later calls of this rank start a run that found no slot or no memory. A run for which
    /// no memory will be free fails, as if it had not been started.
    #[inline]
    fn register_if_queued(self: &Arc<Self>, run: &StartedRun<FlatExecutor>) -> Outcome {
        if run.was_queued() { self.register_queued(run) } else { Ok(()) }
    }

    #[cold]
    fn register_queued(self: &Arc<Self>, run: &StartedRun<FlatExecutor>) -> Outcome {
        self.context.member.register(Arc::downgrade(self) as Weak<dyn OwnerWork>);
        // Without a shortage the run waits for a slot only, and a later call starts it.
        if !self.context.member.memory().is_short() {
            return Ok(());
        }
        match self.advance_queued(run) {
            Err(error) if self.flat.withdraw(run) => {
                self.context.take_back(run.number.sequence);
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Starts queued runs if there are slots and memory.
    fn advance_queued(&self, run: &StartedRun<FlatExecutor>) -> Outcome {
        self.context.member.advance_queued(|| self.flat.advance_for(run))
    }

    /// Refuses a collective that can never start, before other ranks can see it: all ranks refuse a
    /// collective for which there will never be memory, and the first to do so continues with its
    /// next call.
    #[inline(always)]
    pub(crate) fn check(&self, collective: &FlatCollective, arguments: &[Argument<'_>]) -> Outcome {
        self.check_buffers(collective, arguments)?;
        let Some(bytes) = self.flat.executor.large_bytes(collective) else { return Ok(()) };
        Ok(staging::check(self.arena(), bytes)?)
    }

    /// Checks that the buffers have the lengths the collective copies.
    #[inline(always)]
    fn check_buffers(&self, collective: &FlatCollective, arguments: &[Argument<'_>]) -> Outcome {
        match arguments {
            [] if !collective.has_buffers() => Ok(()),
            [input, output] => {
                let role = self.flat.executor.role(collective);
                if role.contributes {
                    input.check(0, collective.contribution_bytes(), true)?;
                }
                match role.result {
                    ResultRule::Nothing => Ok(()),
                    _ => output.check(1, collective.result_bytes(&role), false),
                }
            }
            _ => {
                let expected = if collective.has_buffers() { 2 } else { 0 };
                Err(Error::BufferCount { expected, found: arguments.len() }.into())
            }
        }
    }

    /// Waits for a flat collective.
    pub(crate) fn wait_flat(
        &self,
        run: &StartedRun<FlatExecutor>,
        deadline: Option<Instant>,
    ) -> Outcome<bool> {
        if self.flat.is_complete(run) {
            return Ok(true);
        }
        if run.was_queued() {
            // This rank's arrival is published only when the run has a slot, so other ranks may
            // wait for this one meanwhile: start it as soon as one is free.
            let has_begun = || {
                self.advance_queued(run)?;
                self.context.progress()?;
                Ok(self.flat.has_begun(run))
            };
            let check_liveness = || self.check_flat_liveness(run.number, &run.call);
            if !wait::for_slot(
                self.context.member.node().spin_policy(),
                deadline,
                || self.context.wait_for(run.number.sequence),
                has_begun,
                check_liveness,
            )? {
                return Ok(false);
            }
        }
        // A pinned run keeps its slot while this thread waits. The pin fails if the run has been
        // retired, which only happens to complete runs.
        if self.flat.is_complete(run) || !self.flat.pin(run) {
            return Ok(true);
        }
        let outcome = self.wait_begun(run.number, &run.call, deadline);
        self.flat.unpin(run);
        outcome
    }

    /// Checks for a mismatch, a failed rank or a cycle of ranks without memory that prevents a
    /// collective from completing.
    pub(crate) fn check_flat_liveness(
        &self,
        number: RunNumber,
        collective: &FlatCollective,
    ) -> Result<(), Error> {
        let arrived = |rank| self.flat.arrived(rank, number.run);
        self.context.check_liveness(number.sequence, collective.call, arrived)?;
        self.context.member.check_shortage()
    }

    /// Waits for a flat collective that has its slot.
    fn wait_begun(
        &self,
        number: RunNumber,
        collective: &FlatCollective,
        deadline: Option<Instant>,
    ) -> Outcome<bool> {
        let executor = &self.flat.executor;
        let run = number.run;
        let spin_policy = self.context.member.node().spin_policy();
        let check_liveness = || self.check_flat_liveness(number, collective);
        let subject = || self.context.wait_for(number.sequence);
        match executor.reduced_by(collective) {
            ReducedBy::Reader => {
                let is_met = || executor.have_all_arrived(run, collective);
                let awaited = SleepersCondition { word: &executor.sleepers.word, is_met };
                wait::until(
                    &awaited,
                    spin_policy,
                    deadline,
                    subject,
                    || self.context.progress(),
                    check_liveness,
                )
            }
            ReducedBy::Chunks => {
                // A waiting rank executes chunks until none is left. The completion word then comes
                // from the rank that finishes last.
                let progress = || {
                    let helped = executor.help(run, collective)?;
                    Ok(self.context.progress()? | helped.into())
                };
                let work = executor.work_of(run);
                wait::until(&work, spin_policy, deadline, subject, progress, check_liveness)
            }
        }
    }
}

/// Returns empty staging in the arena of a rank.
fn staging_of(member: &Member) -> Staging {
    let node = member.node();
    Staging::new(Arc::clone(member.arena()), (node.ranks(), node.cores()))
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // Before the state is released, which holds the location of the rings.
        self.close_streams();
        let Context { member, state, state_at, rank, pending_links, .. } = &self.context;
        let state_at = (*state_at != member.node().world_state()).then_some(*state_at);
        let is_owner = *rank == 0;
        if !self.flat.is_needed() && pending_links.is_empty() {
            if let Some(at) = state_at {
                member.release_shared(at, self.context.size(), is_owner);
            }
            member.end_some();
            return;
        }
        // Requests were dropped before their collectives were complete, or another rank has not
        // read the contributions of this one.
        let memory = member.node().memory().clone();
        let executor = FlatExecutor::new(memory, Arc::clone(state), *rank, self.context.size());
        // The state has been mapped before, so this cannot fail; the state would stay allocated.
        let Ok(executor) = executor else { return };
        let window = self.flat.leave(executor, staging_of(member));
        let pending_links = Arc::clone(pending_links);
        let dropped = DroppedCommunicator { window, pending_links, state_at, is_owner };
        DroppedRuns::leave(&self.context, Left::Communicator(dropped));
    }
}

impl MemoryHolder for Communicator {
    fn reclaim(&self) -> Pending {
        self.flat.reclaim(|rank| self.context.is_blocked(rank))
    }
}

impl OwnerWork for Communicator {
    fn progress_own(&self, _member: &Member) -> Outcome<OwnTasks> {
        Ok(self.flat.advance_own()?.into())
    }

    fn is_idle(&self) -> bool {
        !self.has_queue()
    }

    fn has_queue(&self) -> bool {
        self.flat.has_queue()
    }
}
