//! Communicators: the ranks of a communicator and its numbered collectives, as one rank sees them.

mod link;
mod request;

pub use link::LinkedSchedule;
pub use request::Request;

use crate::argument::Argument;
use crate::error::{Error, Exit, Outcome, Straggler};
use crate::flat::arrivals::FlatArrivals;
use crate::flat::executor::FlatExecutor;
use crate::flat::pattern::{FlatCollective, Pattern, ReducedBy};
use crate::flat::result_binding::ResultBinding;
use crate::linked::executor::Wakeup;
use crate::node::EngineKind;
use crate::node::membership::{Member, OwnerWork};
use crate::signature::{CallKind, Signature};
use crate::staging::{self, Staging};
use crate::state::{CommunicatorState, EXCHANGE_WORDS, FLAT_SLOTS, StateLayout};
use crate::streams::StreamsState;
use crate::trace::Trace;
use crate::wait;
use crate::window::{BlockingStart, Executor, InflightWindow, Run, RunNumber};
use request::Execution;
use shm::arena::Arena;
use shm::owned::OwnedBytes;
use shm::segment::Offset;
use shm::sync::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

/// A blocking collective that has been started; see [`Communicator::start_blocking`].
#[derive(Debug)]
#[must_use = "the other ranks wait until it is left"]
pub struct BlockingRun(BlockingState);

#[derive(Debug)]
enum BlockingState {
    Begun(RunNumber, ResultBinding),
    /// No slot was free.
    Queued(Box<Run<FlatExecutor>>),
}

/// A communicator on one node.
#[derive(Debug)]
pub struct Communicator {
    pub(crate) member: Arc<Member>,
    /// The ranks in the job, by rank in the communicator.
    pub(crate) members: Vec<u32>,
    pub(crate) rank: u32,
    pub(crate) state: Arc<CommunicatorState>,
    state_at: Offset,
    pub(crate) flat: InflightWindow<FlatExecutor>,
    /// Number of collectives started on this communicator.
    sequence: AtomicU64,
    /// Number of exchanges; locked during an exchange.
    pub(crate) exchanges: Mutex<u64>,
    pub(crate) wakeup: Wakeup,
    pub(crate) programs: AtomicU64,
    /// Created by the first long blocking collective.
    pub(crate) streams: Mutex<StreamsState>,
    /// The profile, and the communicator's name in it.
    pub(crate) trace: Option<(Arc<Trace>, u64)>,
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
        let ranks = members.len() as u32;
        let node = Arc::clone(member.node());
        let state = Arc::new(CommunicatorState::new(node.segment(), state_at, rank, ranks)?);
        let executor = FlatExecutor::new(node.memory().clone(), Arc::clone(&state), rank, ranks)?;
        let staging = Staging::new(Arc::clone(member.arena()));
        let words =
            members.iter().map(|member| node.wakeup(*member)).collect::<Result<_, Error>>()?;
        Ok(Arc::new(Communicator {
            flat: InflightWindow::new(executor, FLAT_SLOTS, staging),
            trace: member.trace().map(|trace| (trace, name)),
            member,
            members,
            rank,
            state,
            state_at,
            sequence: AtomicU64::new(0),
            exchanges: Mutex::new(0),
            wakeup: Wakeup { words: Arc::new(words) },
            programs: AtomicU64::new(0),
            streams: Mutex::default(),
        }))
    }

    /// Returns this rank in the communicator.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// Returns this rank's membership in the job.
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Returns how a rank of the communicator left the job, if it did.
    pub fn exit_of(&self, rank: u32) -> Option<Exit> {
        self.member.node().exit_of(*self.members.get(rank as usize)?)
    }

    /// Returns this rank's part of the segment.
    pub fn arena(&self) -> &Arc<Arena> {
        self.member.arena()
    }

    /// Allocates zeroed memory in this rank's part of the segment.
    ///
    /// # Errors
    /// Returns an error if that part is full.
    pub fn allocate(&self, bytes: u64) -> Result<OwnedBytes, Error> {
        Ok(OwnedBytes::new(self.member.arena(), bytes)?)
    }

    /// Returns the engine that executes operations.
    pub fn engine(&self) -> EngineKind {
        self.member.node().engine()
    }

    /// Takes the next sequence number and records the call in the journal.
    #[inline]
    pub(crate) fn begin(&self, call: Signature) -> u64 {
        // A load and a store instead of a read-modify-write: a program starts the collectives of
        // one communicator one after the other. If it does not, two collectives get one number, and
        // an error then names the wrong call.
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        self.state.note(sequence, call);
        sequence
    }

    /// Reverses [`begin`](Self::begin) for a call that could not start: the next call gets its
    /// number, as on all other ranks.
    #[cold]
    pub(crate) fn take_back(&self, sequence: u64) {
        self.sequence.store(sequence, Ordering::Relaxed);
        self.state.forget(sequence);
    }

    /// Starts a flat collective: buffer 0 is the contribution, buffer 1 the result (no buffers in a
    /// barrier). Never waits.
    ///
    /// # Errors
    /// Returns an error if the arena is full.
    #[inline]
    pub fn start_flat(
        self: &Arc<Self>,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
    ) -> Result<Request, Error> {
        self.check(collective, arguments)?;
        let sequence = self.begin(collective.call);
        self.trace_call_begun(sequence);
        let started = self.flat.start(sequence, collective, arguments);
        let run = started.inspect_err(|_| self.take_back(sequence))?;
        self.register_if_queued(&run);
        Ok(Request::new(Execution::Flat(Arc::clone(self), run)))
    }

    /// Makes later calls of this rank start a run that found no slot.
    #[inline]
    fn register_if_queued(self: &Arc<Self>, run: &Run<FlatExecutor>) {
        if run.was_queued() {
            self.member.register(Arc::downgrade(self) as Weak<dyn OwnerWork>);
        }
    }

    /// Returns the recorder of this rank's profile, if one is recorded.
    pub fn trace(&self) -> Option<&Arc<Trace>> {
        self.trace.as_ref().map(|(trace, _)| trace)
    }

    #[inline]
    pub(crate) fn trace_call_begun(&self, sequence: u64) {
        if let Some((trace, name)) = &self.trace {
            trace.call_begun(*name, sequence);
        }
    }

    /// Records that this rank has observed the completion of its call, or (no call) has abandoned
    /// it.
    #[inline]
    pub(crate) fn trace_call_ended(&self, sequence: u64, call: Option<Signature>) {
        match (&self.trace, call) {
            (Some((trace, name)), Some(call)) => trace.call_ended(*name, sequence, call),
            (Some((trace, name)), None) => trace.call_abandoned(*name, sequence),
            (None, _) => {}
        }
    }

    /// Runs a flat collective: starts it, waits, and fetches the results, which [`Request`] does in
    /// steps.
    ///
    /// # Errors
    /// As [`start_flat`](Self::start_flat), [`Request::wait`] and [`Request::collect`].
    #[inline]
    pub fn run_flat(
        self: &Arc<Self>,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        let held = self.start_blocking(collective, arguments)?;
        self.finish_blocking(held, collective, outputs)
    }

    /// Starts a blocking collective. This thread must call
    /// [`finish_blocking`](Self::finish_blocking) before any other operation on the communicator.
    /// The two calls are [`run_flat`](Self::run_flat) for callers with input and output in the same
    /// memory.
    ///
    /// # Errors
    /// As [`start_flat`](Self::start_flat).
    #[inline(always)]
    pub fn start_blocking(
        self: &Arc<Self>,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
    ) -> Outcome<BlockingRun> {
        self.check(collective, arguments)?;
        let sequence = self.begin(collective.call);
        self.trace_call_begun(sequence);
        match self.flat.start_blocking(sequence, collective, arguments) {
            BlockingStart::Begun(run) => Ok(BlockingRun(BlockingState::Begun(
                RunNumber { run, sequence },
                FlatExecutor::bindings(arguments),
            ))),
            otherwise => self.start_blocking_later(otherwise, sequence, collective, arguments),
        }
    }

    /// Waits for the collective and fetches its results.
    ///
    /// # Errors
    /// As [`Request::wait`] and [`Request::collect`].
    #[inline(always)]
    pub fn finish_blocking(
        self: &Arc<Self>,
        held: BlockingRun,
        collective: &FlatCollective,
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        let (number, bindings) = match held.0 {
            BlockingState::Begun(number, bindings) => (number, bindings),
            BlockingState::Queued(run) => return self.finish_queued(*run, collective, outputs),
        };
        if self.flat.executor.is_complete(number.run, collective) {
            self.flat.executor.prefetch_next(number.run, collective);
        } else {
            self.wait_blocking(number, collective, bindings)?;
        }
        self.trace_call_ended(number.sequence, Some(collective.call));
        self.flat.fetch_blocking(number, collective, bindings, outputs)
    }

    fn wait_blocking(
        &self,
        number: RunNumber,
        collective: &FlatCollective,
        bindings: ResultBinding,
    ) -> Outcome {
        self.wait_begun(number, collective, None).map(|_| ()).map_err(|error| {
            self.trace_call_ended(number.sequence, None);
            self.flat.abandon_blocking(number, collective, bindings);
            error.into()
        })
    }

    /// Handles a collective that has not begun immediately.
    #[cold]
    fn start_blocking_later(
        self: &Arc<Self>,
        first: BlockingStart,
        sequence: u64,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
    ) -> Outcome<BlockingRun> {
        let hold = if matches!(first, BlockingStart::NoSlot) {
            self.retry_start(sequence, collective, arguments)
        } else {
            first
        };
        match hold {
            BlockingStart::Begun(run) => Ok(BlockingRun(BlockingState::Begun(
                RunNumber { run, sequence },
                FlatExecutor::bindings(arguments),
            ))),
            BlockingStart::NoSlot => self.queue(sequence, collective, arguments),
            BlockingStart::Refused(error) => {
                self.take_back(sequence);
                Err(error)
            }
            BlockingStart::Failed(error) => Err(error),
        }
    }

    /// Retries for a short time: a rank that does not wait for others is soon ahead of them by all
    /// slots.
    fn retry_start(
        &self,
        sequence: u64,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
    ) -> BlockingStart {
        for _ in 0..self.member.node().spin_policy().tries() {
            // Long enough for the other ranks to free several slots: each poll takes the line with
            // their run states away from them.
            (0..32).for_each(|_| std::hint::spin_loop());
            let held = self.flat.start_blocking(sequence, collective, arguments);
            if !matches!(held, BlockingStart::NoSlot) {
                return held;
            }
        }
        BlockingStart::NoSlot
    }

    fn queue(
        self: &Arc<Self>,
        sequence: u64,
        collective: &FlatCollective,
        arguments: &[Argument<'_>],
    ) -> Outcome<BlockingRun> {
        let started = self.flat.start(sequence, collective, arguments);
        let run = started.inspect_err(|_| self.take_back(sequence))?;
        self.register_if_queued(&run);
        Ok(BlockingRun(BlockingState::Queued(Box::new(run))))
    }

    #[cold]
    fn finish_queued(
        &self,
        mut run: Run<FlatExecutor>,
        collective: &FlatCollective,
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        self.wait_flat(&run, None).inspect_err(|_| {
            if self.flat.withdraw(&run) {
                self.take_back(run.number.sequence)
            } else {
                self.flat.abandon(&run)
            }
        })?;
        self.trace_call_ended(run.number.sequence, Some(collective.call));
        self.flat.collect(&mut run, outputs)
    }

    /// Refuses a collective that can never start, before other ranks can see it: all ranks refuse a
    /// collective for which there will never be memory, and the first to do so continues with its
    /// next call.
    #[inline]
    pub(crate) fn check(&self, collective: &FlatCollective, arguments: &[Argument<'_>]) -> Outcome {
        self.check_buffers(collective, arguments)?;
        let Some(bytes) = self.flat.executor.large_bytes(collective) else { return Ok(()) };
        Ok(staging::check(self.arena(), bytes)?)
    }

    /// Checks that the buffers have the lengths the collective copies.
    #[inline]
    fn check_buffers(&self, collective: &FlatCollective, arguments: &[Argument<'_>]) -> Outcome {
        match arguments {
            [] if collective.pattern == Pattern::Barrier => Ok(()),
            [input, output] => {
                if collective.contributes(self.rank) {
                    input.check(0, collective.contribution_bytes(), true)?;
                }
                let expected = collective.result_bytes(self.rank, self.size());
                if collective.receives(self.rank) {
                    output.check(1, expected, false)
                } else {
                    Ok(())
                }
            }
            _ => {
                let expected = if collective.pattern == Pattern::Barrier { 0 } else { 2 };
                Err(Error::BufferCount { expected, found: arguments.len() }.into())
            }
        }
    }

    /// Exchanges words between all ranks, within the collective of this number.
    pub(crate) fn exchange(
        &self,
        exchanges: &mut u64,
        words: [u64; EXCHANGE_WORDS],
        sequence: u64,
        call: Signature,
    ) -> Result<Vec<[u64; EXCHANGE_WORDS]>, Error> {
        let turn = *exchanges;
        *exchanges += 1;
        let liveness = self.member.liveness(&self.members);
        let spin_policy = self.member.node().spin_policy();
        let check_liveness = || {
            self.state.find_mismatch_before(turn, sequence, call)?;
            liveness.check(|rank| self.state.has_exchanged(rank, turn))
        };
        self.state.exchange(
            turn,
            words,
            (sequence, call),
            spin_policy,
            || self.progress(),
            check_liveness,
        )
    }

    /// Exchanges a few words: returns the words of all ranks, in rank order. Waits for all ranks.
    ///
    /// # Errors
    /// Returns an error if a rank has failed or is in another collective.
    pub fn exchange_words(&self, words: [u64; 6], call: Signature) -> Result<Vec<[u64; 6]>, Error> {
        let sequence = self.begin(call);
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        self.exchange(&mut exchanges, words, sequence, call)
    }

    /// Creates a communicator for each colour, with ranks ordered by key, then by rank in this
    /// communicator. A rank without a colour is a member of none.
    ///
    /// # Errors
    /// Returns an error if a rank has failed or is in another collective, or if the first rank of a
    /// new communicator has no memory for it.
    pub fn split(
        self: &Arc<Self>,
        color: Option<u32>,
        key: i64,
    ) -> Result<Option<Arc<Communicator>>, Error> {
        let call = Signature::new(CallKind::Split, 0, 0);
        let sequence = self.begin(call);
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = [
            u64::from(color.is_some()),
            u64::from(color.unwrap_or(0)),
            key.cast_unsigned(),
            0,
            0,
            0,
        ];
        let all = self.exchange(&mut exchanges, mine, sequence, call)?;
        let mut chosen: Vec<u32> = (0..self.size())
            .filter(|rank| color.is_some() && all[*rank as usize][..2] == mine[..2])
            .collect();
        chosen.sort_by_key(|rank| (all[*rank as usize][2].cast_signed(), *rank));
        let leads = chosen.first() == Some(&self.rank);
        let bytes = StateLayout::new(chosen.len().max(1) as u32).bytes();
        let state =
            if leads { self.member.allocate_shared(bytes).map_or(u64::MAX, |at| at.0) } else { 0 };
        let trace = self.member.trace().filter(|_| leads);
        let name = trace.map_or(0, |trace| trace.name_communicator(self.member.rank()));
        let answers = self.exchange(&mut exchanges, [state, name, 0, 0, 0, 0], sequence, call)?;
        let Some(leader) = chosen.first() else { return Ok(None) };
        let [state, name, ..] = answers[*leader as usize];
        if state == u64::MAX {
            return Err(Error::Environment(format!(
                "rank {leader} has no room for a communicator of {} ranks ({bytes} bytes): set TRADEWIND_ARENA_MIB to more",
                chosen.len()
            )));
        }
        let rank = chosen.iter().position(|rank| *rank == self.rank).unwrap_or(0) as u32;
        let members = chosen.iter().map(|rank| self.members[*rank as usize]).collect();
        Communicator::new(Arc::clone(&self.member), members, rank, Offset(state), name).map(Some)
    }

    /// Executes this rank's own tasks in all communicators of this node. Returns whether such tasks
    /// can appear again, so a caller that waits for another event must repeat the call.
    ///
    /// # Errors
    /// Returns an error if an operation of this rank fails.
    pub fn progress_own_work(&self) -> Result<bool, Error> {
        self.progress()?;
        Ok(self.member.has_own_work())
    }

    /// Executes this rank's own tasks in all communicators. Returns whether there were any.
    pub(crate) fn progress(&self) -> Result<bool, Error> {
        self.member.progress()
    }

    /// Waits for a flat collective.
    pub(crate) fn wait_flat(
        &self,
        run: &Run<FlatExecutor>,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        if self.flat.is_complete(run) {
            return Ok(true);
        }
        if run.was_queued() {
            let has_begun = || {
                self.flat.advance_for(run)?;
                self.progress()?;
                Ok(self.flat.has_begun(run))
            };
            let check_liveness = || self.check_flat_liveness(run.number, &run.call);
            if !wait::for_slot(
                self.member.node().spin_policy(),
                deadline,
                has_begun,
                check_liveness,
            )? {
                return Ok(false);
            }
        }
        if self.flat.is_complete(run) || !self.flat.pin(run) {
            return Ok(true);
        }
        let outcome = self.wait_begun(run.number, &run.call, deadline);
        self.flat.unpin(run);
        outcome
    }

    /// Checks for a mismatch or a failed rank that prevents a collective from completing.
    fn check_flat_liveness(
        &self,
        number: RunNumber,
        collective: &FlatCollective,
    ) -> Result<(), Error> {
        self.state.find_mismatch(number.sequence, collective.call)?;
        self.member.liveness(&self.members).check(|rank| self.flat.arrived(rank, number.run))
    }

    /// Waits for a flat collective that has its slot.
    fn wait_begun(
        &self,
        number: RunNumber,
        collective: &FlatCollective,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let executor = &self.flat.executor;
        let run = number.run;
        let spin_policy = self.member.node().spin_policy();
        let check_liveness = || self.check_flat_liveness(number, collective);
        match executor.reduced_by(collective) {
            ReducedBy::Reader => {
                let awaited = FlatArrivals { executor, run, collective };
                wait::until(&awaited, spin_policy, deadline, || self.progress(), check_liveness)
            }
            ReducedBy::Chunks => {
                let progress = || {
                    let helped = executor.help(run, collective)?;
                    Ok(self.progress()? || helped)
                };
                wait::until(&executor.work_of(run), spin_policy, deadline, progress, check_liveness)
            }
        }
    }

    /// Returns the ranks that have not started a collective.
    pub(crate) fn stragglers(&self, sequence: u64) -> Vec<Straggler> {
        let node = self.member.node();
        self.state
            .not_yet(sequence)
            .into_iter()
            .map(|rank| node.straggler(self.members[rank as usize], rank))
            .collect()
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.close_streams();
        if self.state_at != self.member.node().world_state() {
            self.member.release_shared(self.state_at, self.size(), self.rank == 0);
        }
    }
}

impl OwnerWork for Communicator {
    fn progress_own(&self) -> Result<bool, Error> {
        self.flat.advance();
        Ok(false)
    }

    fn is_idle(&self) -> bool {
        !self.flat.has_queue()
    }
}
