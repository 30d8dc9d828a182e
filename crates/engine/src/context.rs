//! The part of a communicator that both engines use: its ranks, its calls, and its shared state, as
//! one rank sees them.

use crate::error::{Error, Outcome, Straggler};
use crate::node::WakeupLine;
use crate::node::membership::Member;
use crate::protocol::arrival;
use crate::protocol::link_table::{ENTRIES, LinkProgress};
use crate::signature::Signature;
use crate::state::{CommunicatorState, EXCHANGE_WORDS, SleepersLine};
use crate::trace::Trace;
use crate::wait::{self, OwnTasks};
use shm::futex;
use shm::mapped::Mapped;
use shm::process::{ProcessError, ProcessHandle};
use shm::published_wait::Wait;
use shm::segment::Offset;
use shm::sync::{AtomicU64, Ordering};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Notifies ranks of tasks and completions.
#[derive(Clone, Debug)]
pub(crate) struct Wakeup {
    /// By rank of the communicator.
    pub(crate) words: Arc<Vec<Mapped<WakeupLine>>>,
}

impl Wakeup {
    pub(crate) fn notify(&self, rank: u32) {
        // The addition wakes the rank if it sleeps at the word.
        self.words[rank as usize].events.add(1);
    }
}

/// Numbers of the links of a communicator for which this rank has not found the block.
#[derive(Debug, Default)]
pub(crate) struct PendingLinks(Mutex<BTreeSet<u64>>);

impl PendingLinks {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that this rank does not need the entry of link `sequence` any more.
    pub(crate) fn end(&self, sequence: u64, progress: LinkProgress<'_>) {
        let mut pending = self.lock();
        pending.remove(&sequence);
        progress.record_found(pending.first().copied());
    }

    /// Returns whether this rank may publish the block of link `sequence`: an older link that uses
    /// the same entry comes first.
    pub(crate) fn may_publish(&self, sequence: u64) -> bool {
        let same_entry = |older: &u64| older % ENTRIES == sequence % ENTRIES;
        self.lock().range(..sequence).all(|older| !same_entry(older))
    }

    /// Returns whether all blocks have been found.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

/// A communicator as one rank sees it, without its engines.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) member: Arc<Member>,
    /// The ranks in the job, by rank in the communicator.
    pub(crate) members: Vec<u32>,
    /// This rank.
    pub(crate) rank: u32,
    pub(crate) state: Arc<CommunicatorState>,
    pub(crate) state_at: Offset,
    /// Marked by ranks that sleep until a flat collective completes or a piece moves.
    pub(crate) sleepers: Mapped<SleepersLine>,
    pub(crate) wakeup: Wakeup,
    /// Number of collectives started on this communicator.
    sequence: AtomicU64,
    /// Locked during an exchange.
    exchanges: Mutex<ExchangeTurns>,
    /// Shared with schedules that were dropped before their blocks were found.
    pub(crate) pending_links: Arc<PendingLinks>,
    /// The profile, and the communicator's name in it.
    pub(crate) trace: Option<(Arc<Trace>, u64)>,
}

impl Context {
    /// Opens the state of a communicator. `name` is the communicator's name in a profile, equal on
    /// all its ranks.
    pub(crate) fn new(
        member: Arc<Member>,
        members: Vec<u32>,
        rank: u32,
        state_at: Offset,
        name: u64,
    ) -> Result<Self, Error> {
        let ranks = members.len() as u32;
        let node = Arc::clone(member.node());
        let segment = node.segment();
        let state = Arc::new(CommunicatorState::new(segment, state_at, rank, ranks)?);
        if let Some(member) = members.get(rank as usize) {
            state.publish_member(*member);
        }
        let words =
            members.iter().map(|member| node.wakeup(*member)).collect::<Result<_, Error>>()?;
        Ok(Context {
            sleepers: Mapped::new(segment, state.sleepers_at())?,
            trace: member.trace().map(|trace| (trace, name)),
            member,
            members,
            rank,
            state,
            state_at,
            wakeup: Wakeup { words: Arc::new(words) },
            sequence: AtomicU64::new(0),
            exchanges: Mutex::default(),
            pending_links: Arc::default(),
        })
    }

    /// Returns the number of ranks.
    #[inline]
    pub(crate) fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// Returns the process of a rank of the communicator.
    pub(crate) fn process_of(&self, rank: u32) -> u32 {
        self.members.get(rank as usize).map_or(0, |member| self.member.node().process_of(*member))
    }

    /// Returns whether the process of a rank has ended, or the rank has left the job.
    pub(crate) fn has_ended(&self, rank: u32) -> bool {
        let exit =
            self.members.get(rank as usize).map(|member| self.member.node().exit_of(*member));
        // The node service, which records exits, may itself have ended.
        let has_exited = || match self.process_of(rank) {
            // The rank is about to write its number, or was killed before; the service records that.
            0 => false,
            process => match ProcessHandle::open(process) {
                Ok(process) => process.has_exited(),
                Err(error) => matches!(error, ProcessError::NoSuchProcess { .. }),
            },
        };
        exit.flatten().is_some() || has_exited()
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

    /// The sequence number of the last call.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// As [`begin`](Self::begin), for a link: the rank then looks its block up.
    pub(crate) fn begin_link(&self, call: Signature) -> u64 {
        let mut pending = self.pending_links.lock();
        let sequence = self.sequence.load(Ordering::Relaxed);
        pending.insert(sequence);
        // Before the start is visible: from then on other ranks may replace the entry of a link
        // that this rank does not record as pending.
        let oldest = pending.first().copied().unwrap_or(sequence);
        self.state.link_progress(self.rank).record_pending(oldest);
        self.begin(call)
    }

    /// Reverses [`begin`](Self::begin) for a call that could not start: the next call gets its
    /// number, as on all other ranks.
    #[cold]
    pub(crate) fn take_back(&self, sequence: u64) {
        // Calls of one communicator follow each other, so no later call has taken a number.
        self.sequence.store(sequence, Ordering::Relaxed);
        self.state.forget(sequence);
    }

    /// Records the start of a call in the profile.
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

    /// Returns the wait for a collective, as an observer of the job sees it.
    pub(crate) fn wait_for(&self, sequence: u64) -> Wait {
        Wait::Collective { state: self.state_at, ranks: self.size(), sequence }
    }

    /// Returns whether a rank is short of memory and waits for ranks that are, too.
    pub(crate) fn is_blocked(&self, rank: u32) -> bool {
        let member = self.members.get(rank as usize);
        member.is_some_and(|member| self.member.node().is_blocked(*member))
    }

    /// Executes this rank's own tasks in all communicators.
    pub(crate) fn progress(&self) -> Outcome<OwnTasks> {
        self.member.progress()
    }

    /// Allocates memory for all ranks in a call in which they wait for this one. If there is too
    /// little, waits for the ranks that can still release some. They do so in every wait.
    pub(crate) fn allocate_for_all(&self, bytes: u64, sequence: u64) -> Result<Offset, Error> {
        let member = &self.member;
        let memory = member.memory();
        let (mut turn, mut found) = (None, None);
        let has_memory = || {
            self.progress()?;
            found = member.allocate_in_turn(bytes, &mut turn);
            Ok(found.is_some())
        };
        let can_end = || match memory.may_end_shortage(member.reclaim()) {
            true => Ok(()),
            false => Err(memory.shortage(bytes)),
        };
        // A rank that waits for this one in the call may be that which would release memory.
        let deadline = Instant::now().checked_add(memory.limit());
        let policy = member.node().spin_policy();
        wait::for_slot(policy, deadline, || self.wait_for(sequence), has_memory, can_end)?;
        found.ok_or_else(|| memory.shortage(bytes))
    }

    /// As [`allocate_for_all`](Self::allocate_for_all), for a word that all ranks get in an
    /// exchange: also those that could not allocate take part in it.
    pub(crate) fn offer_to_all(&self, bytes: u64, sequence: u64) -> Offer {
        Offer::of(self.allocate_for_all(bytes, sequence))
    }

    /// Checks for a mismatch or a failed rank that prevents a collective from completing. `arrived`
    /// returns whether a rank that left in order had done its part before.
    pub(crate) fn check_liveness(
        &self,
        sequence: u64,
        call: Signature,
        arrived: impl Fn(u32) -> bool,
    ) -> Result<(), Error> {
        self.state.find_mismatch(sequence, call)?;
        self.member.liveness(&self.members).check(arrived)
    }

    /// Returns the ranks that have not started a collective.
    pub(crate) fn stragglers(&self, sequence: u64) -> Vec<Straggler> {
        let missing = self.state.not_yet(sequence).into_iter();
        missing.map(|rank| self.straggler(rank)).collect()
    }

    /// Describes a rank that a call waits for.
    pub(crate) fn straggler(&self, rank: u32) -> Straggler {
        self.member.node().straggler(self.members[rank as usize], rank)
    }

    /// Wakes the ranks that sleep until pieces of a stream move.
    pub(crate) fn wake_sleepers(&self) {
        if arrival::must_wake(&self.sleepers.word, || true) {
            futex::wake_all(&self.sleepers.word);
        }
    }

    /// Locks the exchanges for one collective.
    pub(crate) fn exchanges(&self) -> Exchanges<'_> {
        let turns = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        Exchanges { context: self, turns }
    }
}

/// Memory that one rank offers to all ranks of a call, or why it has none.
#[derive(Debug)]
pub(crate) struct Offer {
    word: u64,
    /// Known to this rank only.
    failure: Option<Error>,
}

/// Word of an offer where the rank is short of memory.
const NO_MEMORY: u64 = u64::MAX;

/// Word of an offer where something else has failed.
const FAILED: u64 = u64::MAX - 1;

impl Offer {
    /// The offer of a rank from which none is expected.
    pub(crate) fn none() -> Self {
        Offer { word: 0, failure: None }
    }

    pub(crate) fn of(allocated: Result<Offset, Error>) -> Self {
        match allocated {
            Ok(at) => Offer { word: at.0, failure: None },
            Err(error) if error.is_shortage() => Offer { word: NO_MEMORY, failure: Some(error) },
            Err(error) => Offer { word: FAILED, failure: Some(error) },
        }
    }

    /// Returns the word for the exchange.
    pub(crate) fn word(&self) -> u64 {
        self.word
    }

    /// Returns the memory that this rank has offered.
    pub(crate) fn memory(&self) -> Option<Offset> {
        let is_allocated = self.word != 0 && self.failure.is_none();
        is_allocated.then_some(Offset(self.word))
    }

    /// Returns the memory of the `word` that `rank` has offered. If that rank is short of memory, all
    /// get the same error of this purpose; if something else has failed there, only the others do.
    pub(crate) fn accept(
        self,
        (rank, word): (u32, u64),
        purpose: impl FnOnce() -> String,
    ) -> Result<Offset, Error> {
        match (word, self.failure) {
            (NO_MEMORY, _) => Err(Error::NoMemory(format!(
                "rank {rank} of the communicator has no memory for {}: set TRADEWIND_ARENA_MIB to \
                 more",
                purpose()
            ))),
            (FAILED, Some(error)) => Err(error),
            (FAILED, None) => Err(Error::Environment(format!(
                "rank {rank} of the communicator has failed to allocate {}: see its own error",
                purpose()
            ))),
            (at, _) => Ok(Offset(at)),
        }
    }

    /// As [`accept`](Self::accept), where every rank offers memory.
    pub(crate) fn accept_all(
        self,
        words: impl Iterator<Item = u64>,
        purpose: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        let is_failed = |&(_, word): &(u32, u64)| word >= FAILED;
        let failed = (0..).zip(words).find(is_failed);
        failed.map_or(Ok(()), |failed| self.accept(failed, purpose).map(drop))
    }
}

/// This rank's exchanges so far.
#[derive(Debug, Default)]
struct ExchangeTurns {
    next: u64,
    /// One ended on this rank alone, after its arrival: the wait was given up, or an operation of this
    /// rank has failed. The next one would add a second arrival to it, and the others would take the
    /// words of a rank that has not arrived for those of this exchange.
    is_broken: bool,
}

/// The exchanges of one collective. The lock keeps those of two threads apart.
pub(crate) struct Exchanges<'a> {
    context: &'a Context,
    turns: MutexGuard<'a, ExchangeTurns>,
}

impl Exchanges<'_> {
    /// Exchanges words between all ranks, within the collective of this number. Returns the words
    /// of every rank, in rank order.
    pub(crate) fn run(
        &mut self,
        words: [u64; EXCHANGE_WORDS],
        sequence: u64,
        call: Signature,
    ) -> Result<Vec<[u64; EXCHANGE_WORDS]>, Error> {
        if self.turns.is_broken {
            return Err(Error::Broken);
        }
        // The turn counts even if the exchange fails, as on the other ranks.
        let turn = self.turns.next;
        self.turns.next += 1;
        let context = self.context;
        let liveness = context.member.liveness(&context.members);
        let check_liveness = || {
            // First: ranks in another collective are the cause if a rank has left because of them.
            context.state.find_mismatch_before(turn, sequence, call)?;
            liveness.check(|rank| context.state.has_exchanged(rank, turn))
        };
        let outcome = context.state.exchange(
            turn,
            words,
            (sequence, call),
            context.member.node().spin_policy(),
            || context.progress(),
            check_liveness,
        );
        self.turns.is_broken = match &outcome {
            // The ranks have read the same words: all are done with the exchange.
            Ok(_) => false,
            Err(Error::Mismatch { .. }) => !context.state.is_exchanged(turn),
            // These errors are those of each later exchange, and name the cause.
            Err(Error::RankFailed { .. } | Error::ServiceFailed) => false,
            Err(_) => true,
        };
        outcome
    }
}
