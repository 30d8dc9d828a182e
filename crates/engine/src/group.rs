//! A communicator as one rank sees it: who belongs to it and its numbered collectives.

use crate::board::{Board, BoardLayout, EXCHANGE_WORDS, RING_SLOTS};
use crate::call::{Call, CallKind};
use crate::error::{Departure, Error, Laggard, Outcome};
use crate::lane::{Argument, Hold, Lane, Numbered, Plan, Run};
use crate::meeting::{Meeting, Pattern, Work};
use crate::member::{Grave, Member, OwnWork};
use crate::node::EngineKind;
use crate::pending::{Course, Pending};
use crate::program;
use crate::ring::{Attendance, ResultBinding, Ring};
use crate::run::Bell;
use crate::staging::{self, Staging};
use crate::streams::StreamsState;
use crate::trace::Trace;
use crate::wait;
use shm::arena::Arena;
use shm::mapped::Mapped;
use shm::owned::OwnedBytes;
use shm::segment::Offset;
use shm::sync::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

/// A meeting that a thread has come to and not yet left; see [`Group::come`].
#[derive(Debug)]
#[must_use = "the other ranks wait until it is left"]
pub struct Held(HeldRun);

#[derive(Debug)]
enum HeldRun {
    Begun(Numbered, ResultBinding),
    /// It found no slot.
    Queued(Box<Run<Ring>>),
}

/// A communicator on one node.
#[derive(Debug)]
pub struct Group {
    pub(crate) member: Arc<Member>,
    /// Ranks of the job, by rank of the communicator.
    pub(crate) members: Vec<u32>,
    pub(crate) rank: u32,
    pub(crate) board: Arc<Board>,
    board_at: Offset,
    pub(crate) ring: Lane<Ring>,
    /// Collectives started on this communicator.
    sequence: AtomicU64,
    /// Exchanges done; held while one is under way.
    pub(crate) exchanges: Mutex<u64>,
    pub(crate) bell: Bell,
    pub(crate) programs: AtomicU64,
    /// Made when the first long blocking collective needs them.
    pub(crate) streams: Mutex<StreamsState>,
    /// The profile, and what this communicator is called in it.
    pub(crate) trace: Option<(Arc<Trace>, u64)>,
}

impl Group {
    /// The communicator of all ranks of the job.
    ///
    /// # Errors
    /// When the segment is not laid out as expected.
    pub fn world(member: Arc<Member>) -> Result<Arc<Self>, Error> {
        let members = (0..member.node().ranks()).collect();
        let (rank, at) = (member.rank(), member.node().world_board());
        Group::new(member, members, rank, at, 0)
    }

    /// `name` is what the communicator is called in a profile, the same on all its ranks.
    fn new(
        member: Arc<Member>,
        members: Vec<u32>,
        rank: u32,
        board_at: Offset,
        name: u64,
    ) -> Result<Arc<Self>, Error> {
        let ranks = members.len() as u32;
        let node = Arc::clone(member.node());
        let board = Arc::new(Board::new(node.segment(), board_at, rank, ranks)?);
        let ring = Ring::new(node.memory().clone(), Arc::clone(&board), rank, ranks)?;
        let staging = Staging::new(Arc::clone(member.arena()));
        let words =
            members.iter().map(|member| node.bell(*member)).collect::<Result<_, Error>>()?;
        Ok(Arc::new(Group {
            ring: Lane::new(ring, RING_SLOTS, staging),
            trace: member.trace().map(|trace| (trace, name)),
            member,
            members,
            rank,
            board,
            board_at,
            sequence: AtomicU64::new(0),
            exchanges: Mutex::new(0),
            bell: Bell { words: Arc::new(words) },
            programs: AtomicU64::new(0),
            streams: Mutex::default(),
        }))
    }

    /// This rank in the communicator.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks belong to it.
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// This rank's membership in the job.
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// How a rank of the communicator left the job, if it did.
    pub fn departure(&self, rank: u32) -> Option<Departure> {
        self.member.node().departure(*self.members.get(rank as usize)?)
    }

    /// This rank's part of the segment.
    pub fn arena(&self) -> &Arc<Arena> {
        self.member.arena()
    }

    /// Takes zeroed memory of this rank's part of the segment.
    ///
    /// # Errors
    /// When it is full.
    pub fn allocate(&self, bytes: u64) -> Result<OwnedBytes, Error> {
        Ok(OwnedBytes::new(self.member.arena(), bytes)?)
    }

    /// Who runs operations.
    pub fn engine(&self) -> EngineKind {
        self.member.node().engine()
    }

    /// Takes the next number of a collective and notes what it is.
    #[inline]
    pub(crate) fn begin(&self, call: Call) -> u64 {
        // Not a read-modify-write: a program starts the collectives of one communicator one after
        // the other. If it does not, two of them get one number, which then names the wrong call in
        // an error.
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        self.board.note(sequence, call);
        sequence
    }

    /// A call that could not be begun has not taken place: the next one gets its number, as on all
    /// other ranks.
    #[cold]
    pub(crate) fn take_back(&self, sequence: u64) {
        self.sequence.store(sequence, Ordering::Relaxed);
        self.board.forget(sequence);
    }

    /// Starts a meeting of all ranks: buffer 0 is the contribution, buffer 1 the result (none in a
    /// barrier).
    ///
    /// # Errors
    /// When the arena is full. Never waits.
    #[inline]
    pub fn meet(
        self: &Arc<Self>,
        meeting: &Meeting,
        arguments: &[Argument<'_>],
    ) -> Result<Pending, Error> {
        self.check(meeting, arguments)?;
        let sequence = self.begin(meeting.call);
        self.trace_call_begun(sequence);
        let started = self.ring.start(sequence, meeting, arguments);
        let run = started.inspect_err(|_| self.take_back(sequence))?;
        self.look_after(&run);
        Ok(Pending::new(Course::Meeting(Arc::clone(self), run)))
    }

    /// Has later calls of this rank start a run that found no slot.
    #[inline]
    fn look_after(self: &Arc<Self>, run: &Run<Ring>) {
        if run.was_queued() {
            self.member.register(Arc::downgrade(self) as Weak<dyn OwnWork>);
        }
    }

    /// Where this rank's profile is recorded, if it is.
    pub fn trace(&self) -> Option<&Arc<Trace>> {
        self.trace.as_ref().map(|(trace, _)| trace)
    }

    #[inline]
    pub(crate) fn trace_call_begun(&self, sequence: u64) {
        if let Some((trace, name)) = &self.trace {
            trace.call_begun(*name, sequence);
        }
    }

    /// This rank has seen that its call is complete, or (no call) will not look any more.
    #[inline]
    pub(crate) fn trace_call_ended(&self, sequence: u64, call: Option<Call>) {
        match (&self.trace, call) {
            (Some((trace, name)), Some(call)) => trace.call_ended(*name, sequence, call),
            (Some((trace, name)), None) => trace.call_abandoned(*name, sequence),
            (None, _) => {}
        }
    }

    /// Holds a meeting of all ranks: starts it, waits, and fetches the results, as [`Pending`] does
    /// in steps.
    ///
    /// # Errors
    /// As [`meet`](Self::meet), [`Pending::wait`] and [`Pending::collect`].
    #[inline]
    pub fn meet_and_wait(
        self: &Arc<Self>,
        meeting: &Meeting,
        arguments: &[Argument<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        let held = self.come(meeting, arguments)?;
        self.leave(held, meeting, outputs)
    }

    /// Comes to a meeting that this thread ends with [`leave`](Self::leave) before it does anything
    /// else here: the first half of [`meet_and_wait`](Self::meet_and_wait), for callers whose input
    /// and output are the same memory.
    ///
    /// # Errors
    /// As [`meet`](Self::meet).
    #[inline(always)]
    pub fn come(self: &Arc<Self>, meeting: &Meeting, arguments: &[Argument<'_>]) -> Outcome<Held> {
        self.check(meeting, arguments)?;
        let sequence = self.begin(meeting.call);
        self.trace_call_begun(sequence);
        match self.ring.hold(sequence, meeting, arguments) {
            Hold::Begun(run) => {
                Ok(Held(HeldRun::Begun(Numbered { run, sequence }, Ring::bindings(arguments))))
            }
            otherwise => self.come_later(otherwise, sequence, meeting, arguments),
        }
    }

    /// Waits for the meeting and fetches its results.
    ///
    /// # Errors
    /// As [`Pending::wait`] and [`Pending::collect`].
    #[inline(always)]
    pub fn leave(
        self: &Arc<Self>,
        held: Held,
        meeting: &Meeting,
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        let (number, bindings) = match held.0 {
            HeldRun::Begun(number, bindings) => (number, bindings),
            HeldRun::Queued(run) => return self.leave_queue(*run, meeting, outputs),
        };
        if self.ring.plan.is_complete(number.run, meeting) {
            self.ring.plan.look_ahead(number.run, meeting);
        } else {
            self.wait_held(number, meeting, bindings)?;
        }
        self.trace_call_ended(number.sequence, Some(meeting.call));
        self.ring.fetch_held(number, meeting, bindings, outputs)
    }

    fn wait_held(&self, number: Numbered, meeting: &Meeting, bindings: ResultBinding) -> Outcome {
        self.wait_begun(number, meeting, None).map(|_| ()).map_err(|error| {
            self.trace_call_ended(number.sequence, None);
            self.ring.give_up(number, meeting, bindings);
            error.into()
        })
    }

    /// What to do when a meeting has not begun at once.
    #[cold]
    fn come_later(
        self: &Arc<Self>,
        first: Hold,
        sequence: u64,
        meeting: &Meeting,
        arguments: &[Argument<'_>],
    ) -> Outcome<Held> {
        let hold = if matches!(first, Hold::NoSlot) {
            self.hold_soon(sequence, meeting, arguments)
        } else {
            first
        };
        match hold {
            Hold::Begun(run) => {
                Ok(Held(HeldRun::Begun(Numbered { run, sequence }, Ring::bindings(arguments))))
            }
            Hold::NoSlot => self.queue(sequence, meeting, arguments),
            Hold::Refused(error) => {
                self.take_back(sequence);
                Err(error)
            }
            Hold::Failed(error) => Err(error),
        }
    }

    /// Tries again for a while: who does not wait for others soon runs ahead of them by all slots.
    fn hold_soon(&self, sequence: u64, meeting: &Meeting, arguments: &[Argument<'_>]) -> Hold {
        for _ in 0..self.member.node().patience().tries() {
            // Long enough for the others to free several slots: looking costs them the line that
            // says so.
            (0..32).for_each(|_| std::hint::spin_loop());
            let held = self.ring.hold(sequence, meeting, arguments);
            if !matches!(held, Hold::NoSlot) {
                return held;
            }
        }
        Hold::NoSlot
    }

    fn queue(
        self: &Arc<Self>,
        sequence: u64,
        meeting: &Meeting,
        arguments: &[Argument<'_>],
    ) -> Outcome<Held> {
        let started = self.ring.start(sequence, meeting, arguments);
        let run = started.inspect_err(|_| self.take_back(sequence))?;
        self.look_after(&run);
        Ok(Held(HeldRun::Queued(Box::new(run))))
    }

    #[cold]
    fn leave_queue(
        &self,
        mut run: Run<Ring>,
        meeting: &Meeting,
        outputs: &mut [&mut [u8]],
    ) -> Outcome {
        self.wait_meeting(&run, None).inspect_err(|_| {
            if self.ring.withdraw(&run) {
                self.take_back(run.number.sequence)
            } else {
                self.ring.abandon(&run)
            }
        })?;
        self.trace_call_ended(run.number.sequence, Some(meeting.call));
        self.ring.collect(&mut run, outputs)
    }

    /// Refuses what cannot be begun, before it is noted for others to see: all ranks refuse what
    /// there will never be memory for, and the first to do so go on to their next call.
    #[inline]
    pub(crate) fn check(&self, meeting: &Meeting, arguments: &[Argument<'_>]) -> Outcome {
        self.check_buffers(meeting, arguments)?;
        let Some(bytes) = self.ring.plan.large_bytes(meeting) else { return Ok(()) };
        Ok(staging::check(self.arena(), bytes)?)
    }

    /// The bytes that a meeting copies are those that its buffers have.
    #[inline]
    fn check_buffers(&self, meeting: &Meeting, arguments: &[Argument<'_>]) -> Outcome {
        match arguments {
            [] if meeting.pattern == Pattern::Barrier => Ok(()),
            [input, output] => {
                if meeting.contributes(self.rank) {
                    input.check(0, meeting.contribution_bytes(), true)?;
                }
                let expected = meeting.result_bytes(self.rank, self.size());
                if meeting.listens(self.rank) { output.check(1, expected, false) } else { Ok(()) }
            }
            _ => {
                let expected = if meeting.pattern == Pattern::Barrier { 0 } else { 2 };
                Err(Error::BufferCount { expected, found: arguments.len() }.into())
            }
        }
    }

    /// One exchange of words between all ranks, within the collective of this number.
    pub(crate) fn exchange(
        &self,
        exchanges: &mut u64,
        words: [u64; EXCHANGE_WORDS],
        sequence: u64,
        call: Call,
    ) -> Result<Vec<[u64; EXCHANGE_WORDS]>, Error> {
        let turn = *exchanges;
        *exchanges += 1;
        let watch = self.member.watch(&self.members);
        let patience = self.member.node().patience();
        let look_out = || {
            self.board.find_mismatch_before(turn, sequence, call)?;
            watch.check(|rank| self.board.has_exchanged(rank, turn))
        };
        self.board.exchange(turn, words, (sequence, call), patience, || self.progress(), look_out)
    }

    /// Every rank gives a few words and gets those of all, in rank order. Waits for all ranks.
    ///
    /// # Errors
    /// When a rank is in another collective, or gone.
    pub fn exchange_words(&self, words: [u64; 6], call: Call) -> Result<Vec<[u64; 6]>, Error> {
        let sequence = self.begin(call);
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        self.exchange(&mut exchanges, words, sequence, call)
    }

    /// A communicator for each colour, ranks ordered by key, then by rank here; `None` colour:
    /// belongs to none.
    ///
    /// # Errors
    /// When a rank is in another collective, or gone, or the first rank of a new communicator has
    /// no room for it.
    pub fn split(
        self: &Arc<Self>,
        color: Option<u32>,
        key: i64,
    ) -> Result<Option<Arc<Group>>, Error> {
        let call = Call::new(CallKind::Split, 0, 0);
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
        let bytes = BoardLayout::new(chosen.len().max(1) as u32).bytes();
        let board =
            if leads { self.member.allocate_shared(bytes).map_or(u64::MAX, |at| at.0) } else { 0 };
        let trace = self.member.trace().filter(|_| leads);
        let name = trace.map_or(0, |trace| trace.name_communicator(self.member.rank()));
        let answers = self.exchange(&mut exchanges, [board, name, 0, 0, 0, 0], sequence, call)?;
        let Some(leader) = chosen.first() else { return Ok(None) };
        let [board, name, ..] = answers[*leader as usize];
        if board == u64::MAX {
            return Err(Error::Environment(format!(
                "rank {leader} has no room for a communicator of {} ranks ({bytes} bytes): set TRADEWIND_ARENA_MIB to more",
                chosen.len()
            )));
        }
        let rank = chosen.iter().position(|rank| *rank == self.rank).unwrap_or(0) as u32;
        let members = chosen.iter().map(|rank| self.members[*rank as usize]).collect();
        Group::new(Arc::clone(&self.member), members, rank, Offset(board), name).map(Some)
    }

    /// Does what only this rank can do, in any communicator of this node, for one who waits for
    /// something else. True when it has to be done again and again.
    ///
    /// # Errors
    /// When this rank's own operations fail.
    pub fn look_after_own_work(&self) -> Result<bool, Error> {
        self.progress()?;
        Ok(self.member.has_own_work())
    }

    /// Does what only this rank can do, in any communicator; true when there was anything.
    pub(crate) fn progress(&self) -> Result<bool, Error> {
        self.member.progress()
    }

    /// Waits for a meeting.
    pub(crate) fn wait_meeting(
        &self,
        run: &Run<Ring>,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        if self.ring.is_complete(run) {
            return Ok(true);
        }
        if run.was_queued() {
            let has_begun = || {
                self.ring.advance_for(run)?;
                self.progress()?;
                Ok(self.ring.has_begun(run))
            };
            let look_out = || self.look_out_for(run.number, &run.call);
            if !wait::for_slot(self.member.node().patience(), deadline, has_begun, look_out)? {
                return Ok(false);
            }
        }
        if self.ring.is_complete(run) || !self.ring.pin(run) {
            return Ok(true);
        }
        let outcome = self.wait_begun(run.number, &run.call, deadline);
        self.ring.unpin(run);
        outcome
    }

    /// Whether anything keeps a meeting from ever taking place.
    fn look_out_for(&self, number: Numbered, meeting: &Meeting) -> Result<(), Error> {
        self.board.find_mismatch(number.sequence, meeting.call)?;
        self.member.watch(&self.members).check(|rank| self.ring.came(rank, number.run))
    }

    /// Waits for a meeting that has its slot.
    fn wait_begun(
        &self,
        number: Numbered,
        meeting: &Meeting,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let (ring, run) = (&self.ring.plan, number.run);
        let patience = self.member.node().patience();
        let look_out = || self.look_out_for(number, meeting);
        match ring.work(meeting) {
            Work::Owner => {
                let awaited = Attendance { ring, run, meeting };
                wait::until(&awaited, patience, deadline, || self.progress(), look_out)
            }
            Work::Claimed => {
                let progress = || {
                    let helped = ring.help(run, meeting)?;
                    Ok(self.progress()? || helped)
                };
                wait::until(&ring.work_of(run), patience, deadline, progress, look_out)
            }
        }
    }

    /// Ranks that have not come to a collective.
    pub(crate) fn laggards(&self, sequence: u64) -> Vec<Laggard> {
        let node = self.member.node();
        self.board
            .not_yet(sequence)
            .into_iter()
            .map(|rank| node.laggard(self.members[rank as usize], rank))
            .collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.close_streams();
        if self.board_at != self.member.node().world_board() {
            let_go(&self.member, self.board_at, self.size(), self.rank == 0);
        }
    }
}

/// Lets go of shared memory, which begins with a release line; its owner sees to it that it is
/// freed when all have.
pub(crate) fn let_go(member: &Member, at: Offset, users: u32, owner: bool) {
    let Ok(release) = Mapped::<program::ReleaseLine>::new(member.node().segment(), at) else {
        return;
    };
    // Release: pairs with the Acquire in `allocate_shared`.
    release.released.fetch_add(1, Ordering::Release);
    if owner {
        member.bury(Grave { at, users, release });
    }
}

impl OwnWork for Group {
    fn progress_own(&self) -> Result<bool, Error> {
        self.ring.advance();
        Ok(false)
    }

    fn rests(&self) -> bool {
        !self.ring.has_queue()
    }
}
