//! A rank's end of all matched messages: starts, polls and waits.

mod probes;
mod receives;
mod sends;
mod waiting;

use super::contexts::Contexts;
use super::error::MatchError;
use super::line::MessageHead;
use super::memory::Mailbox;
use super::remote::{RemoteExit, RemoteOptions, RemoteProgress};
use super::slab::Key;
use super::state::{Layout, State};
use shm::arena::Arena;
use shm::biased_mutex::BiasedMutex;
use shm::mapped::Mapped;
use shm::object::CreateError;
use shm::process_memory;
use shm::published_wait::Wait;
use shm::segment::Offset;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Credit of all senders together, and limits of the credit of each, in bytes.
const ALL_CREDIT: u64 = 64 << 20;
const LEAST_CREDIT: u64 = 64 << 10;
const MOST_CREDIT: u64 = 1 << 20;

/// Environment of an endpoint.
#[derive(Debug)]
pub struct EndpointOptions {
    /// This rank's part of the segment.
    pub arena: Arc<Arena>,
    /// This rank on the node.
    pub rank: u32,
    /// Number of ranks on the node.
    pub ranks: u32,
    /// Number of processors that the ranks share.
    pub cores: u32,
    /// Zeroed memory of [`MAILBOX_BYTES`](super::MAILBOX_BYTES) for each rank, the same on all.
    pub mailboxes: Offset,
    /// This rank reads long messages from their sender's memory; `None` if it measures whether that
    /// is fast, at the first of them.
    pub reads_directly: Option<bool>,
    /// The ranks' processes.
    pub processes: Arc<dyn Processes>,
    /// Ranks on other nodes, if there are any.
    pub remote: Option<RemoteOptions>,
    /// Communicators for which messages are received.
    pub contexts: Contexts,
}

/// Processes of the ranks of the node.
pub trait Processes: Send + Sync + std::fmt::Debug {
    /// Returns the process number of a rank.
    fn process_of(&self, rank: u32) -> u32;

    /// Returns true if a rank has left or failed.
    fn has_exited(&self, rank: u32) -> bool;
}

/// A rank's end of all matched messages of its job on one node, for any number of threads.
///
/// Operations that wait take a function. It returns a rank if that rank's exit ends the wait. That
/// of a receive has the sender that the receive waits for as its argument, once there is one.
#[derive(Debug)]
pub struct Endpoint {
    state: BiasedMutex<State>,
    own: Mapped<Mailbox>,
    doorbell: Mapped<AtomicU32>,
    processes: Arc<dyn Processes>,
    has_cores_for_all: bool,
    reads_directly: OnceLock<bool>,
    /// Number of threads that wait.
    waiting: AtomicU32,
    /// Number of ranks on the node.
    ranks: u32,
    /// Manner of waiting for ranks on other nodes, if there are any.
    progress: Option<RemoteProgress>,
    /// Time after which the drop gives up a rank on another node that reads nothing, and any rank that
    /// sends nothing of what was requested.
    leave_limit: Duration,
}

/// The value of [`Endpoint::leave_limit`] on one node, which has no node time-out.
const LEAVE_LIMIT_ON_ONE_NODE: Duration = Duration::from_secs(15);

/// A started send that is not complete.
#[derive(Debug)]
#[must_use = "the send is complete only after a wait"]
pub struct StartedSendKey {
    key: Key,
    /// Unsuccessful tests.
    tests: u32,
}

/// A posted receive.
#[derive(Debug)]
#[must_use = "the message is there only after a wait"]
pub struct PostedRecvKey {
    key: Key,
    /// Unsuccessful tests.
    tests: u32,
}

impl PostedRecvKey {
    fn new(key: Key) -> Self {
        PostedRecvKey { key, tests: 0 }
    }
}

/// A message that a probe has taken.
#[derive(Debug)]
pub struct TakenMessage {
    key: Key,
    head: MessageHead,
}

impl TakenMessage {
    /// Returns the sender and the description of the message.
    pub fn head(&self) -> MessageHead {
        self.head
    }
}

impl Endpoint {
    /// Creates the endpoint of a rank.
    ///
    /// # Errors
    /// [`CreateError::Segment`] if the mailboxes do not lie in the segment, [`CreateError::Size`]
    /// if the node has no such rank.
    pub fn new(options: EndpointOptions) -> Result<Self, CreateError> {
        let EndpointOptions {
            arena,
            rank,
            ranks,
            cores,
            mailboxes,
            reads_directly,
            processes,
            remote,
            contexts,
        } = options;
        let leave_limit =
            remote.as_ref().map_or(LEAVE_LIMIT_ON_ONE_NODE, |remote| remote.leave_limit);
        let (link, progress) = remote.map(|one| ((one.ranks, one.link), one.progress)).unzip();
        if rank >= ranks {
            return Err(CreateError::Size {
                object: "set of mailboxes",
                requested: ranks.into(),
                unit: "ranks",
                limits: "with this rank among them",
            });
        }
        shm::fence::register();
        // A filter may forbid the call even for this process itself. The bytes of a send are then
        // copied when it starts (`start_matched_send`).
        let probe = [7_u8; 8];
        let mut found = [0; 8];
        let address = probe.as_ptr() as u64;
        let read = process_memory::read(std::process::id(), address, &mut found);
        let layout = Arc::new(Layout {
            arena,
            rank,
            ranks,
            mailboxes,
            // The least credit admits four of the longest eager messages.
            credit: (ALL_CREDIT / u64::from(ranks)).clamp(LEAST_CREDIT, MOST_CREDIT),
            reads_itself: read.is_ok() && found == probe,
        });
        let state =
            State::new(Arc::clone(&layout), link, contexts).map_err(|error| match error {
                MatchError::Create(error) => error,
                // The other errors concern messages.
                _ => Mailbox::missing(mailboxes),
            })?;
        let own = layout.mailbox(rank).map_err(|_| Mailbox::missing(mailboxes))?;
        let doorbell = Mapped::new(own.segment(), Mailbox::doorbell_at(layout.mailbox_at(rank)))?;
        Ok(Endpoint {
            state: BiasedMutex::new(state),
            own,
            doorbell,
            processes,
            has_cores_for_all: ranks <= cores,
            reads_directly: reads_directly.map_or_else(OnceLock::new, OnceLock::from),
            waiting: AtomicU32::new(0),
            ranks,
            progress,
            leave_limit,
        })
    }

    /// Returns why nothing follows from the rank on another node at a place, if that is so.
    pub fn remote_exit(&self, place: u32) -> Option<RemoteExit> {
        let rank = place.checked_sub(self.ranks)?;
        let state = self.state.lock();
        let link_failed = || state.remote_has_failed().then_some(RemoteExit::LinkFailed);
        state.remote_exit(rank).or_else(link_failed)
    }

    /// Returns the exit of the rank on another node at a place itself, as
    /// [`remote_exit`](Self::remote_exit) does while the transport works.
    pub fn own_remote_exit(&self, place: u32) -> Option<RemoteExit> {
        self.state.lock().remote_exit(place.checked_sub(self.ranks)?)
    }

    /// Discards the messages in a communicator of the rank at a place, which is no member of it, also
    /// those that arrive later. Its messages in other communicators are not concerned.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn refuse(&self, context: u32, place: u32) -> Result<(), MatchError> {
        self.state.lock().refuse_sender(context, place)
    }

    /// Returns true if nothing follows from any rank on another node.
    pub fn remote_has_failed(&self) -> bool {
        self.state.lock().remote_has_failed()
    }

    /// Reads an offered message from its sender's memory; false if that is not possible.
    fn read(&self, sender: u32, offer: super::line::Offer, buffer: &mut [u8]) -> bool {
        sender < self.ranks
            && *self.reads_directly.get_or_init(process_memory::is_fast)
            && process_memory::read_guarded(
                self.processes.process_of(sender),
                offer.address,
                buffer,
                offer.guard,
            )
            .unwrap_or(false)
    }

    /// Reads the offered messages of receives with owners outside a call. Their senders may wait
    /// for that, and the owners for these senders.
    fn read_for_others(&self) -> Result<(), MatchError> {
        loop {
            let next = self.state.lock().next_unread();
            let Some((message, sender, offer, bytes)) = next else { return Ok(()) };
            // Without the lock: the message is in the state `Reading`, so no other thread reads it.
            let mut data = vec![0; bytes as usize];
            let is_read = self.read(sender, offer, &mut data);
            self.state.lock().finish_read(message, sender, offer, Some(data), is_read)?;
        }
    }

    /// Takes what has arrived, and continues what is queued. For a thread of the rank that waits
    /// for something else, while the [doorbell](Self::doorbell) is not 0. Returns true if
    /// operations are left that need more such calls.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn progress(&self) -> Result<bool, MatchError> {
        let mut state = self.state.lock();
        state.look(false);
        state.progress(&mut None, &None)?;
        drop(state);
        // After the poll, which may have brought offers, and before `settle`, which counts what is
        // left.
        self.read_for_others()?;
        self.state.lock().settle()
    }

    /// Returns the word that is 0 as long as [`progress`](Self::progress) has nothing to do: no
    /// operation of this rank is incomplete, and no sender has found its ring to this rank full.
    pub fn doorbell(&self) -> &Mapped<AtomicU32> {
        &self.doorbell
    }
}

impl Drop for Endpoint {
    /// Waits until the messages of dropped requests have been read, or their receivers have exited
    /// or wait in the same way. Gives up a rank on another node if its connection is full and takes
    /// nothing for the node time-out. A rank that has not matched a message may compute, so it is
    /// not given up. Takes the bytes that it has requested, for which sends of other ranks wait, for at
    /// most the node time-out: a sender that is in no call sends nothing, and may wait for this rank.
    /// The process leaves the node services and connections afterwards, with a time limit of their own.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // Other ranks then no longer count sends to this one (`has_unsent`), so two ranks that drop
        // their endpoints do not wait for each other.
        self.state.lock().close();
        let processes = Arc::clone(&self.processes);
        let has_exited = |rank: u32| processes.has_exited(rank);
        let end = Instant::now() + self.leave_limit;
        // The result is that nothing is left; an error leaves nothing that could be sent.
        let _ = self.wait(
            || Wait::Send { to: None },
            None,
            || None,
            || {
                let mut state = self.state.lock();
                state.progress(&mut None, &None)?;
                state.give_up_silent(self.leave_limit);
                let waits = state.has_unsent(has_exited)
                    || Instant::now() < end && state.has_requested(has_exited);
                Ok((!waits).then_some(()))
            },
        );
    }
}
