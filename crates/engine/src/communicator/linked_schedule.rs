//! Linked schedules, as one rank sees them: starting runs and waiting for them.

use crate::argument::{Argument, Binding};
use crate::communicator::Communicator;
use crate::communicator::placement::{BlockSearch, PlacedSchedule, Placement, UnplacedSchedule};
use crate::communicator::remnant::{DroppedRuns, Left};
use crate::error::{Error, Outcome};
use crate::linked::block::LinkIdentity;
use crate::linked::executor::LinkedExecutor;
use crate::memory::{MemoryHolder, Pending};
use crate::node::membership::{Member, OwnerWork};
use crate::signature::Signature;
use crate::wait::OwnTasks;
use crate::wait::{self, CountReached};
use crate::window::{InflightWindow, RunNumber, StartedRun};
use goal::graph::Access;
use goal::schedule::Schedule;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Instant;

/// A schedule linked with the schedules of the other ranks.
#[derive(Debug)]
pub struct LinkedSchedule {
    communicator: Arc<Communicator>,
    /// Sequence number of the link.
    sequence: u64,
    call: Signature,
    block_bytes: u64,
    placed: OnceLock<PlacedSchedule>,
    /// Locked by a thread that looks for the block or queues a run.
    placement: Mutex<Placement>,
}

impl LinkedSchedule {
    /// Returns a schedule that was linked by the call with this sequence number.
    pub(crate) fn with_block(
        communicator: Arc<Communicator>,
        (sequence, call): (u64, Signature),
        (placed, block_bytes): (PlacedSchedule, u64),
    ) -> Self {
        let placement = Mutex::new(Placement::Placed);
        let placed = OnceLock::from(placed);
        LinkedSchedule { communicator, sequence, call, block_bytes, placed, placement }
    }

    /// Returns a linked schedule with a block that this rank has not looked for.
    pub(crate) fn without_block(
        communicator: Arc<Communicator>,
        unplaced: UnplacedSchedule,
    ) -> Self {
        let LinkIdentity { sequence, call, .. } = unplaced.identity;
        let block_bytes = unplaced.layout.bytes();
        let placement = Mutex::new(Placement::Unplaced(Box::new(unplaced)));
        let placed = OnceLock::new();
        LinkedSchedule { communicator, sequence, call, block_bytes, placed, placement }
    }

    /// Returns the communicator.
    pub fn communicator(&self) -> &Arc<Communicator> {
        &self.communicator
    }

    /// Returns the signature that runs report when ranks are in different collectives.
    pub fn call(&self) -> Signature {
        self.call
    }

    /// Returns the length of its block in the arena of one of the ranks: the same on all ranks.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Returns the runs, if the schedule has been placed.
    #[inline]
    pub(crate) fn window(&self) -> Option<&InflightWindow<LinkedExecutor>> {
        self.placed.get().map(|placed| &placed.window)
    }

    /// Returns the runs, after placing the schedule if its block is known by now. Never waits.
    #[inline]
    pub(crate) fn placed(&self) -> Result<Option<&InflightWindow<LinkedExecutor>>, Error> {
        match self.window() {
            Some(window) => Ok(Some(window)),
            None => self.try_place().map(|_| self.window()),
        }
    }

    /// Looks for the block and places the schedule in it.
    #[cold]
    fn try_place(&self) -> Result<BlockSearch, Error> {
        let mut placement = self.placement();
        let unplaced = match &mut *placement {
            Placement::Unplaced(unplaced) => &mut **unplaced,
            // By another thread of this rank.
            Placement::Placed => return Ok(BlockSearch::Placed),
            Placement::Failed(error) => return Err(error.copy()),
        };
        let member = self.communicator.member();
        let search = unplaced.find_block(member);
        if let Ok(BlockSearch::NoMemory | BlockSearch::Busy | BlockSearch::Placed) = search {
            return search;
        }
        let before = std::mem::replace(&mut *placement, Placement::Placed);
        let placed = search.and_then(|search| match (search, before) {
            (BlockSearch::Found(block), Placement::Unplaced(unplaced)) => {
                unplaced.place(member, block).map(Some)
            }
            _ => Ok(None),
        });
        match placed {
            Ok(Some(placed)) => self.placed.get_or_init(|| placed).window.advance(),
            Ok(None) => {}
            Err(error) => {
                *placement = Placement::Failed(error.copy());
                return Err(error);
            }
        }
        Ok(BlockSearch::Placed)
    }

    fn placement(&self) -> MutexGuard<'_, Placement> {
        self.placement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the placement, unless it is locked: the caller may be the search for the block of this
    /// schedule, or hold a lock that this search takes.
    fn try_placement(&self) -> Option<MutexGuard<'_, Placement>> {
        match self.placement.try_lock() {
            Ok(placement) => Some(placement),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Starts a run: now, or when there is a block and a slot. Never waits.
    pub(crate) fn start_run(
        &self,
        arguments: &[Argument<'_>],
    ) -> Result<StartedRun<LinkedExecutor>, Error> {
        let context = &self.communicator.context;
        if let Some(window) = self.placed()? {
            let program = &window.executor.program;
            check_arguments(&program.linked(program.rank).schedule, arguments)?;
            let sequence = context.begin(self.call);
            context.trace_call_begun(sequence);
            let started = window.start(sequence, &(), arguments);
            return Ok(started.inspect_err(|_| context.take_back(sequence))?);
        }
        let mut placement = self.placement();
        let Placement::Unplaced(unplaced) = &mut *placement else {
            // Another thread of this rank has placed the schedule meanwhile.
            drop(placement);
            return self.start_run(arguments);
        };
        let UnplacedSchedule { linked, layout, runs, turn: block_turn, .. } = &mut **unplaced;
        check_arguments(&linked.ranks[context.rank as usize].schedule, arguments)?;
        let sequence = context.begin(self.call);
        context.trace_call_begun(sequence);
        // The block shows which buffers need memory of their own; until then all count.
        let private = arguments.iter().filter(|argument| argument.binding == Binding::Private);
        let needed: u64 = private.map(|argument| argument.length).sum();
        let memory = context.member.memory();
        let turn = (needed > 0).then(|| {
            // Before the run: its reserve would keep the block out of its memory. The run takes
            // its memory beside that of the block.
            block_turn.get_or_insert_with(|| memory.enqueue(layout.bytes()));
            memory.enqueue(needed.saturating_add(layout.bytes()))
        });
        Ok(runs.push(RunNumber { run: runs.len(), sequence }, &(), arguments, turn))
    }

    /// Starts queued runs, if there is a block for them now.
    pub(crate) fn advance_for(&self, run: &StartedRun<LinkedExecutor>) -> Result<(), Error> {
        match self.placed()? {
            Some(window) => {
                let member = self.communicator.member();
                Ok(member.advance_queued(|| window.advance_for(run))?)
            }
            None => Ok(()),
        }
    }

    /// Starts a run that was queued just now, if there is memory. A run for which no memory will be
    /// free fails, as if it had not been started.
    #[cold]
    pub(crate) fn advance_new(&self, run: &StartedRun<LinkedExecutor>) -> Result<(), Error> {
        match self.advance_for(run) {
            Err(error) if self.window().is_some_and(|window| window.withdraw(run)) => {
                self.communicator.context.take_back(run.number.sequence);
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a run has its slot. A run without a block has none.
    #[inline]
    pub(crate) fn has_begun(&self, run: &StartedRun<LinkedExecutor>) -> bool {
        self.window().is_some_and(|window| window.has_begun(run))
    }

    /// Returns whether a run is complete. A run without a block is not.
    #[inline]
    pub(crate) fn is_complete(&self, run: &StartedRun<LinkedExecutor>) -> bool {
        self.window().is_some_and(|window| window.is_complete(run))
    }

    /// Fetches the results of a complete run.
    #[inline]
    pub(crate) fn collect(
        &self,
        run: &mut StartedRun<LinkedExecutor>,
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        // Only a placed schedule has complete runs.
        self.window().map_or(Ok(()), |window| window.collect(run, outputs))
    }

    /// Returns whether a rank executes operations itself, in its own calls.
    #[inline]
    pub(crate) fn needs_owner(&self) -> bool {
        self.window().is_some_and(|window| window.executor.program.linked.needs_owner)
    }

    /// Abandons a run.
    pub(crate) fn abandon(&self, run: &StartedRun<LinkedExecutor>) {
        if let Some(window) = self.window() {
            return window.abandon(run);
        }
        match &mut *self.placement() {
            Placement::Unplaced(unplaced) => unplaced.runs.abandon(run.number.run),
            // By another thread of this rank, after the look above.
            Placement::Placed => {
                if let Some(window) = self.window() {
                    window.abandon(run);
                }
            }
            Placement::Failed(_) => {}
        }
    }

    /// Waits until the schedule is placed. Returns `None` when the deadline has passed.
    #[cold]
    fn wait_until_placed(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Option<&InflightWindow<LinkedExecutor>>, Error> {
        let context = &self.communicator.context;
        let is_placed = || {
            context.progress()?;
            Ok(self.placed()?.is_some())
        };
        let check_liveness = || self.check_placement();
        let spin_policy = context.member.node().spin_policy();
        let subject = || context.wait_for(self.sequence);
        wait::for_slot(spin_policy, deadline, subject, is_placed, check_liveness)?;
        Ok(self.window())
    }

    /// Checks for what prevents the schedule from being placed.
    fn check_placement(&self) -> Result<(), Error> {
        let context = &self.communicator.context;
        let arrived = |rank| context.state.link_progress(rank).is_past(self.sequence);
        context.check_liveness(self.sequence, self.call, arrived)?;
        self.check_memory()
    }

    /// Checks for what prevents a run from completing.
    pub(crate) fn check_run(&self, run: &StartedRun<LinkedExecutor>) -> Result<(), Error> {
        match self.window() {
            Some(window) => self.check_liveness(window, run),
            None => self.check_placement(),
        }
    }

    /// Returns an error if the schedule waits for memory that no rank has, and no run of this rank
    /// will release some.
    fn check_memory(&self) -> Result<(), Error> {
        let context = &self.communicator.context;
        let memory = context.member.memory();
        if !context.state.not_yet(self.sequence).is_empty()
            || !matches!(self.try_place()?, BlockSearch::NoMemory)
            || memory.may_end_shortage(context.member.reclaim())
        {
            return Ok(());
        }
        let needed = match &*self.placement() {
            Placement::Unplaced(unplaced) => unplaced.layout.bytes(),
            Placement::Placed | Placement::Failed(_) => return Ok(()),
        };
        Err(Error::NoMemory(format!(
            "no rank has memory for the {needed} bytes that runs of {} need: set \
             TRADEWIND_ARENA_MIB to more",
            self.call.describe(self.sequence, true)
        )))
    }

    /// Waits for a run of this schedule.
    pub(crate) fn wait(
        &self,
        run: &StartedRun<LinkedExecutor>,
        deadline: Option<Instant>,
    ) -> Outcome<bool> {
        let window = match self.window() {
            Some(window) => window,
            None => match self.wait_until_placed(deadline)? {
                Some(window) => window,
                None => return Ok(false),
            },
        };
        let context = &self.communicator.context;
        let program = &window.executor.program;
        let spin_policy = context.member.node().spin_policy();
        let subject = || context.wait_for(run.number.sequence);
        if run.was_queued() {
            let has_begun = || {
                context.member.advance_queued(|| window.advance_for(run))?;
                context.progress()?;
                Ok(window.has_begun(run))
            };
            let check_liveness = || self.check_liveness(window, run);
            if !wait::for_slot(spin_policy, deadline, subject, has_begun, check_liveness)? {
                return Ok(false);
            }
        }
        if program.linked.needs_owner {
            return self.wait_with_tasks(window, run, deadline);
        }
        let (word, threshold) = program.completion(run.number.run, program.rank);
        wait::until(
            &CountReached(word, threshold),
            spin_policy,
            deadline,
            subject,
            || context.progress(),
            || self.check_liveness(window, run),
        )
    }

    /// Checks for a mismatch, a failed rank or a cycle of ranks without memory that prevents a run
    /// from completing.
    fn check_liveness(
        &self,
        window: &InflightWindow<LinkedExecutor>,
        run: &StartedRun<LinkedExecutor>,
    ) -> Result<(), Error> {
        let context = &self.communicator.context;
        // A rank in another collective when this rank linked did not take part in the link. Its
        // later calls have other numbers, so the link's number shows it.
        context.state.find_mismatch(self.sequence, self.call)?;
        // A rank that never started the call is the cause; report it before ranks that left because
        // of it.
        let arrived = |rank| window.arrived(rank, run.number.run);
        context.check_liveness(run.number.sequence, self.call, arrived)?;
        let program = &window.executor.program;
        // If ranks execute operations themselves, a rank that left has done its part only if its
        // own run is complete.
        context.member.liveness(&context.members).check(|rank| {
            let (word, threshold) = program.completion(run.number.run, rank);
            !program.linked.needs_owner || word.reached(threshold)
        })?;
        context.member.check_shortage()
    }

    /// Waits for a run in which other ranks both defer tasks to this rank and complete its
    /// operations. Sleeps at the wakeup line, which counts both kinds of events.
    fn wait_with_tasks(
        &self,
        window: &InflightWindow<LinkedExecutor>,
        run: &StartedRun<LinkedExecutor>,
        deadline: Option<Instant>,
    ) -> Outcome<bool> {
        let context = &self.communicator.context;
        let spin_policy = context.member.node().spin_policy();
        let wakeup = &context.wakeup.words[context.rank as usize].events;
        loop {
            // Read before the poll: an event after the poll changes the count, so the wait below
            // ends at once.
            let seen = wakeup.count();
            let tasks = context.progress()?;
            if tasks.were_any() {
                continue;
            }
            if window.is_complete(run) {
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
            let interval = if tasks == OwnTasks::Expected {
                wait::TASK_INTERVAL
            } else {
                wait::LIVENESS_INTERVAL
            };
            let next_check = Some(Instant::now() + interval);
            let is_notified = wait::until(
                &CountReached(wakeup, seen.wrapping_add(1)),
                spin_policy,
                deadline.min(next_check).or(next_check),
                || context.wait_for(run.number.sequence),
                || Ok(OwnTasks::None),
                || Ok(()),
            )?;
            if !is_notified && let Err(error) = self.check_liveness(window, run) {
                // A failed rank may have finished its part before it ended.
                if context.progress()?.were_any() || window.is_complete(run) {
                    continue;
                }
                return Err(error.into());
            }
        }
    }
}

impl MemoryHolder for LinkedSchedule {
    fn reclaim(&self) -> Pending {
        let context = &self.communicator.context;
        let is_blocked = |rank| context.is_blocked(rank);
        if let Some(window) = self.window() {
            return window.reclaim(is_blocked);
        }
        let Some(placement) = self.try_placement() else { return Pending::Awaited };
        match &*placement {
            Placement::Unplaced(unplaced) => unplaced.pending(is_blocked),
            Placement::Placed | Placement::Failed(_) => Pending::Nothing,
        }
    }
}

impl OwnerWork for LinkedSchedule {
    fn progress_own(&self, _member: &Member) -> Outcome<OwnTasks> {
        // The error of a link belongs to its requests, not to the call that makes progress.
        let Ok(Some(window)) = self.placed() else { return Ok(OwnTasks::None) };
        Ok(window.advance_own()?.into())
    }

    fn is_idle(&self) -> bool {
        match self.placed.get() {
            Some(placed) => placed.is_idle(),
            None => self.try_placement().is_some_and(|placement| match &*placement {
                Placement::Unplaced(_) | Placement::Placed => false,
                Placement::Failed(_) => true,
            }),
        }
    }

    fn has_queue(&self) -> bool {
        if let Some(window) = self.window() {
            return window.has_queue();
        }
        // Without a place all runs are queued. Another thread that holds the lock may queue one.
        self.try_placement().is_none_or(|placement| match &*placement {
            Placement::Unplaced(unplaced) => !unplaced.runs.is_empty(),
            // By another thread of this rank, after the look above.
            Placement::Placed => true,
            Placement::Failed(_) => false,
        })
    }
}

impl Drop for LinkedSchedule {
    fn drop(&mut self) {
        // Runs without requests may be incomplete, and other ranks may need the entry.
        let placement = self.placement.get_mut().unwrap_or_else(PoisonError::into_inner);
        let left = match (self.placed.take(), std::mem::replace(placement, Placement::Placed)) {
            (Some(placed), _) => Left::Placed(placed),
            (None, Placement::Unplaced(unplaced)) => Left::Unplaced(unplaced),
            (None, Placement::Placed | Placement::Failed(_)) => return,
        };
        DroppedRuns::leave(&self.communicator.context, left);
    }
}

/// Checks the buffers of a run against those that the schedule declares.
fn check_arguments(schedule: &Schedule, arguments: &[Argument<'_>]) -> Result<(), Error> {
    let buffers = schedule.view().buffers();
    if buffers.len() != arguments.len() {
        return Err(Error::BufferCount { expected: buffers.len(), found: arguments.len() });
    }
    for (buffer, (record, argument)) in buffers.iter().zip(arguments).enumerate() {
        argument.check(buffer, record.length, record.access != Access::Output as u32)?;
    }
    Ok(())
}
