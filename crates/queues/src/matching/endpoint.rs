//! A rank's end of all matched messages: starts, polls and waits.

use super::error::MatchError;
use super::line::{Envelope, MAX_RANKS};
use super::matcher::{Message, Pattern};
use super::memory::Mailbox;
use super::slab::Key;
use super::state::{Layout, OwnRecv, PolledRecv, StartedSend, State};
use shm::arena::Arena;
use shm::biased_mutex::BiasedMutex;
use shm::mapped::Mapped;
use shm::object::CreateError;
use shm::process_memory;
use shm::segment::Offset;
use shm::wait::{Sleeper, SpinPolicy, Waiter, wait};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Waiting while each waiting thread has a processor: some ten microseconds of polls.
const ALONE: SpinPolicy =
    SpinPolicy { eager: 1000, spins: 400, yields: 3, slice: Duration::from_millis(50) };

/// Waiting while threads share processors: the awaited one may need this one.
const CROWDED: SpinPolicy =
    SpinPolicy { eager: 2, spins: 0, yields: 16, slice: Duration::from_millis(50) };

/// Bytes that a slow copy moves during a poll, and the most polls for a copy: some milliseconds.
const BYTES_A_POLL: usize = 128;
const MOST_COPY_POLLS: usize = 1 << 17;

/// Polls for space in a ring before a send leaves its bytes in its own memory.
const SPACE_POLLS: u32 = 2000;

/// A waiting thread polls the ring of the sender that it waits for, and every so many polls all
/// rings.
const POLLS_OF_ONE: u32 = 16;

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
/// Operations that wait take a function that returns a rank whose exit ends the wait. That of a
/// receive has the sender that the receive waits for as its argument, once there is one.
#[derive(Debug)]
pub struct Endpoint {
    state: BiasedMutex<State>,
    own: Mapped<Mailbox>,
    processes: Arc<dyn Processes>,
    has_cores_for_all: bool,
    reads_directly: OnceLock<bool>,
    /// Number of threads that wait.
    waiting: AtomicU32,
}

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
    sender: u32,
    envelope: Envelope,
}

impl TakenMessage {
    /// Returns the envelope of the message.
    pub fn envelope(&self) -> Envelope {
        self.envelope
    }
}

impl Endpoint {
    /// Creates the endpoint of a rank.
    ///
    /// # Errors
    /// [`CreateError::Segment`] if the mailboxes do not lie in the segment, [`CreateError::Size`]
    /// for too many ranks.
    pub fn new(options: EndpointOptions) -> Result<Self, CreateError> {
        let EndpointOptions { arena, rank, ranks, cores, mailboxes, reads_directly, processes } =
            options;
        if ranks > MAX_RANKS || rank >= ranks {
            return Err(CreateError::Size {
                object: "set of mailboxes",
                requested: ranks.into(),
                unit: "ranks",
                limits: "at most 1048576, with this rank among them",
            });
        }
        shm::fence::register();
        let probe = [7_u8; 8];
        let mut found = [0; 8];
        let address = probe.as_ptr() as u64;
        let read = process_memory::read(std::process::id(), address, &mut found);
        let layout = Arc::new(Layout {
            arena,
            rank,
            ranks,
            mailboxes,
            credit: (ALL_CREDIT / u64::from(ranks)).clamp(LEAST_CREDIT, MOST_CREDIT),
            reads_itself: read.is_ok() && found == probe,
        });
        let state = State::new(Arc::clone(&layout)).map_err(|error| match error {
            MatchError::Create(error) => error,
            // The other errors concern messages.
            _ => Mailbox::missing(mailboxes),
        })?;
        let own = layout.mailbox(rank).map_err(|_| Mailbox::missing(mailboxes))?;
        Ok(Endpoint {
            state: BiasedMutex::new(state),
            own,
            processes,
            has_cores_for_all: ranks <= cores,
            reads_directly: reads_directly.map_or_else(OnceLock::new, OnceLock::from),
            waiting: AtomicU32::new(0),
        })
    }

    /// Sends a message and waits until its buffer may be changed.
    ///
    /// # Errors
    /// [`MatchError::RankExited`], [`MatchError::Create`], [`MatchError::Corrupt`].
    #[inline]
    pub fn send(
        &self,
        to: u32,
        envelope: Envelope,
        bytes: &[u8],
        exited: impl Fn() -> Option<u32>,
    ) -> Result<(), MatchError> {
        let mut polls = 0;
        loop {
            let mut state = self.state.lock();
            if state.try_eager(to, envelope, bytes)? {
                return Ok(());
            }
            // A ring is full for as long as its receiver takes to empty it, if it is in a call.
            if polls == SPACE_POLLS || !self.may_spin() || !state.has_credit(to, bytes.len())? {
                break;
            }
            state.progress(&mut None, &None)?;
            polls += 1;
        }
        self.send_when_matched(to, envelope, bytes, exited)
    }

    /// Sends a message and waits until it is matched.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    #[cold]
    pub fn send_when_matched(
        &self,
        to: u32,
        envelope: Envelope,
        bytes: &[u8],
        exited: impl Fn() -> Option<u32>,
    ) -> Result<(), MatchError> {
        let key = self.state.lock().start_matched_send(to, envelope, bytes)?;
        self.wait_for_send(key, bytes, None, exited)
    }

    /// Sends a message if the ring to its receiver and the receiver have space for it now; false
    /// otherwise, and for messages of more than [`EAGER_BYTES`](super::EAGER_BYTES).
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn try_send(&self, to: u32, envelope: Envelope, bytes: &[u8]) -> Result<bool, MatchError> {
        self.state.lock().try_eager(to, envelope, bytes)
    }

    /// Starts a send; `None` if it is complete.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    #[inline]
    pub fn start_send(
        &self,
        to: u32,
        envelope: Envelope,
        bytes: &[u8],
        is_synchronous: bool,
    ) -> Result<Option<StartedSendKey>, MatchError> {
        let mut state = self.state.lock();
        let started = if !is_synchronous && state.try_eager(to, envelope, bytes)? {
            StartedSend::Complete
        } else {
            StartedSend::Pending(state.start_matched_send(to, envelope, bytes)?)
        };
        Ok(match started {
            StartedSend::Complete => None,
            StartedSend::Pending(key) => Some(StartedSendKey { key, tests: 0 }),
        })
    }

    /// Returns true if a send is complete; its key is then invalid. `bytes` is its buffer.
    ///
    /// # Errors
    /// [`MatchError::RankExited`], which some of the unsuccessful tests look for,
    /// [`MatchError::Create`], [`MatchError::Corrupt`]. The key is invalid after an error too.
    pub fn test_send(
        &self,
        send: &mut StartedSendKey,
        bytes: &[u8],
        exited: impl Fn() -> Option<u32>,
    ) -> Result<bool, MatchError> {
        let own = Some((send.key, bytes));
        let outcome = test(&mut send.tests, exited, || {
            let mut state = self.state.lock();
            state.progress(&mut None, &own)?;
            Ok(state.finish_send(send.key).then_some(()))
        });
        if let Err(error) = &outcome {
            self.state.lock().fail_send(send.key, bytes, error);
        }
        outcome.map(|complete| complete.is_some())
    }

    /// Waits for a send, whose key is invalid afterwards unless the wait has timed out.
    ///
    /// # Errors
    /// [`MatchError::Timeout`] and the errors of [`send`](Self::send).
    pub fn wait_send(
        &self,
        send: &StartedSendKey,
        bytes: &[u8],
        deadline: Option<Instant>,
        exited: impl Fn() -> Option<u32>,
    ) -> Result<(), MatchError> {
        self.wait_for_send(send.key, bytes, deadline, exited)
    }

    fn wait_for_send(
        &self,
        send: Key,
        bytes: &[u8],
        deadline: Option<Instant>,
        exited: impl Fn() -> Option<u32>,
    ) -> Result<(), MatchError> {
        let own = Some((send, bytes));
        let outcome = self.wait_for_copy(bytes.len(), deadline, exited, || {
            let mut state = self.state.lock();
            state.progress(&mut None, &own)?;
            Ok(state.finish_send(send).then_some(()))
        });
        match &outcome {
            Err(MatchError::Timeout) | Ok(()) => {}
            Err(error) => self.state.lock().fail_send(send, bytes, error),
        }
        outcome
    }

    /// Drops a started send: its bytes are copied unless they have been read, and the message is
    /// still delivered.
    pub fn drop_send(&self, send: StartedSendKey, bytes: &[u8]) {
        self.state.lock().drop_send(send.key, bytes);
    }

    /// Receives a message.
    ///
    /// # Errors
    /// [`MatchError::Truncated`], [`MatchError::RankExited`], [`MatchError::Create`],
    /// [`MatchError::Corrupt`].
    #[inline]
    pub fn recv(
        &self,
        pattern: Pattern,
        buffer: &mut [u8],
        exited: impl Fn(Option<u32>) -> Option<u32>,
    ) -> Result<Envelope, MatchError> {
        let posted = {
            let mut state = self.state.lock();
            if let Some(envelope) = state.recv_first(&pattern, buffer)? {
                return Ok(envelope);
            }
            PostedRecvKey::new(state.post(pattern, buffer.len() as u64)?)
        };
        self.complete(posted, pattern.source, buffer, exited)
    }

    /// Waits for a receive, and drops it after an error: it must not take a later message.
    #[inline]
    fn complete(
        &self,
        posted: PostedRecvKey,
        source: Option<u32>,
        buffer: &mut [u8],
        exited: impl Fn(Option<u32>) -> Option<u32>,
    ) -> Result<Envelope, MatchError> {
        let outcome = self.wait_recv(&posted, source, buffer, None, exited);
        if outcome.is_err() {
            // The first error is reported.
            let _ = self.drop_recv(posted);
        }
        outcome
    }

    /// Posts a receive into a buffer of so many bytes.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    #[inline]
    pub fn post_recv(
        &self,
        pattern: Pattern,
        capacity: usize,
    ) -> Result<PostedRecvKey, MatchError> {
        self.state.lock().post(pattern, capacity as u64).map(PostedRecvKey::new)
    }

    /// Returns the envelope of the message if a receive is complete; its key is then invalid.
    /// `source` is the sender, if the receive names one. After an error the receive is to be
    /// [dropped](Self::drop_recv).
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv). Some of the unsuccessful tests look for a rank that has
    /// exited.
    pub fn test_recv(
        &self,
        recv: &mut PostedRecvKey,
        source: Option<u32>,
        buffer: &mut [u8],
        exited: impl Fn(Option<u32>) -> Option<u32>,
    ) -> Result<Option<Envelope>, MatchError> {
        let posted = recv.key;
        let mut own = Some(OwnRecv { posted, buffer });
        let exited = || exited(self.awaited(posted, source));
        let outcome = test(&mut recv.tests, exited, || self.poll_recv(&mut own, None, true));
        if !matches!(outcome, Ok(Some(_)) | Err(MatchError::Truncated { .. })) {
            self.detach(&own);
        }
        outcome
    }

    /// Waits for a receive. Its key is invalid after success; after an error other than a time-out
    /// the receive is to be [dropped](Self::drop_recv). `source` is the sender, if the receive names
    /// one.
    ///
    /// # Errors
    /// [`MatchError::Timeout`] and the errors of [`recv`](Self::recv).
    #[inline]
    pub fn wait_recv(
        &self,
        recv: &PostedRecvKey,
        source: Option<u32>,
        buffer: &mut [u8],
        deadline: Option<Instant>,
        exited: impl Fn(Option<u32>) -> Option<u32>,
    ) -> Result<Envelope, MatchError> {
        let posted = recv.key;
        let mut own = Some(OwnRecv { posted, buffer });
        let mut polls = 0_u32;
        let exited = || exited(self.awaited(posted, source));
        let outcome = self.wait(deadline, exited, || {
            let polls_all =
                polls % POLLS_OF_ONE == POLLS_OF_ONE - 1 || polls > ALONE.eager + ALONE.spins;
            polls += 1;
            self.poll_recv(&mut own, source, polls_all)
        });
        if !matches!(outcome, Ok(_) | Err(MatchError::Truncated { .. })) {
            self.detach(&own);
        }
        // Relaxed: a thread that waits has counted itself before it last held the lock.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            // Behind this message there may be those of other threads, which sleep.
            self.own.wakeup().notify();
        }
        outcome
    }

    /// Returns the sender that a receive waits for: that of its message, or else its source.
    fn awaited(&self, posted: Key, source: Option<u32>) -> Option<u32> {
        self.state.lock().sender_of(posted).or(source)
    }

    /// Keeps what arrives later for a receive that a call leaves incomplete.
    fn detach(&self, own: &Option<OwnRecv<'_>>) {
        if let Some(own) = own {
            self.state.lock().detach(own);
        }
    }

    #[inline]
    fn poll_recv(
        &self,
        own: &mut Option<OwnRecv<'_>>,
        source: Option<u32>,
        polls_all: bool,
    ) -> Result<Option<Envelope>, MatchError> {
        let mut state = self.state.lock();
        match source {
            Some(source) if !polls_all => state.progress_from(source, own)?,
            _ => state.progress(own, &None)?,
        }
        let Some(recv) = own else { return Ok(None) };
        match state.poll_recv(recv)? {
            PolledRecv::Pending => Ok(None),
            PolledRecv::Complete(envelope) => Ok(Some(envelope)),
            PolledRecv::Read(message, sender, offer, envelope) => {
                drop(state);
                let length = recv.buffer.len().min(envelope.bytes as usize);
                let is_read = self.read(sender, offer, &mut recv.buffer[..length]);
                let mut state = self.state.lock();
                state.finish_read(message, sender, offer, None, is_read)?;
                match state.poll_recv(recv)? {
                    PolledRecv::Complete(envelope) => Ok(Some(envelope)),
                    _ => Ok(None),
                }
            }
        }
    }

    /// Reads an offered message from its sender's memory; false if that is not possible.
    fn read(&self, sender: u32, offer: super::line::Offer, buffer: &mut [u8]) -> bool {
        *self.reads_directly.get_or_init(process_memory::is_fast)
            && process_memory::read_guarded(
                self.processes.process_of(sender),
                offer.address,
                buffer,
                offer.guard,
            )
            .unwrap_or(false)
    }

    /// Reads the offered messages of receives whose owners are not in a call. Their senders may
    /// wait for that, and the owners for these senders.
    fn read_for_others(&self) -> Result<(), MatchError> {
        loop {
            let next = self.state.lock().next_unread();
            let Some((message, sender, offer, bytes)) = next else { return Ok(()) };
            let mut data = vec![0; bytes as usize];
            let is_read = self.read(sender, offer, &mut data);
            self.state.lock().finish_read(message, sender, offer, Some(data), is_read)?;
        }
    }

    /// Takes what has arrived, and continues what is queued. For a thread of the rank that waits
    /// for something else. Returns true if operations are left that need more such calls.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn progress(&self) -> Result<bool, MatchError> {
        self.state.lock().progress(&mut None, &None)?;
        self.read_for_others()?;
        Ok(self.state.lock().has_pending())
    }

    /// Cancels a receive. Returns false if a message has matched it; the receive is then to be
    /// waited for.
    pub fn cancel_recv(&self, recv: &PostedRecvKey) -> bool {
        self.state.lock().matcher.unpost(recv.key)
    }

    /// Drops a receive, and discards the message that it has matched.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn drop_recv(&self, recv: PostedRecvKey) -> Result<(), MatchError> {
        self.state.lock().drop_recv(recv.key)
    }

    /// Returns the envelope of the first message that a receive would match now.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn probe_now(&self, pattern: &Pattern) -> Result<Option<Envelope>, MatchError> {
        self.with_message(pattern, |_, _, message| message.envelope)
    }

    /// Waits for a message and returns its envelope.
    ///
    /// # Errors
    /// [`MatchError::RankExited`], [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn probe(
        &self,
        pattern: &Pattern,
        exited: impl Fn() -> Option<u32>,
    ) -> Result<Envelope, MatchError> {
        self.wait(None, exited, || self.probe_now(pattern))
    }

    /// Takes the first message that a receive would match now.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn take_now(&self, pattern: &Pattern) -> Result<Option<TakenMessage>, MatchError> {
        self.with_message(pattern, |state, key, message| {
            let (sender, envelope) = (message.sender, message.envelope);
            state.matcher.take_unexpected(key);
            TakenMessage { key, sender, envelope }
        })
    }

    /// Waits for a message and takes it.
    ///
    /// # Errors
    /// [`MatchError::RankExited`], [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn take(
        &self,
        pattern: &Pattern,
        exited: impl Fn() -> Option<u32>,
    ) -> Result<TakenMessage, MatchError> {
        self.wait(None, exited, || self.take_now(pattern))
    }

    fn with_message<R>(
        &self,
        pattern: &Pattern,
        select: impl FnOnce(&mut State, Key, MessageHead) -> R,
    ) -> Result<Option<R>, MatchError> {
        let mut state = self.state.lock();
        state.progress(&mut None, &None)?;
        let Some(key) = state.matcher.find_message(pattern) else { return Ok(None) };
        let head = state.matcher.messages.get(key).map(|message: &Message| MessageHead {
            sender: message.sender,
            envelope: message.envelope,
        });
        Ok(head.map(|head| select(&mut state, key, head)))
    }

    /// Receives a taken message.
    ///
    /// # Errors
    /// The errors of [`recv`](Self::recv).
    pub fn recv_taken(
        &self,
        message: TakenMessage,
        buffer: &mut [u8],
        exited: impl Fn(Option<u32>) -> Option<u32>,
    ) -> Result<Envelope, MatchError> {
        let TakenMessage { key, sender, envelope } = message;
        let pattern =
            Pattern { context: envelope.context, source: Some(sender), tag: Some(envelope.tag) };
        let posted = self.state.lock().post_for(key, pattern, buffer.len() as u64)?;
        self.complete(PostedRecvKey::new(posted), Some(sender), buffer, exited)
    }

    /// Discards a taken message.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn discard(&self, message: &TakenMessage) -> Result<(), MatchError> {
        self.state.lock().discard(message.key)
    }

    /// Discards the messages of a communicator that no receive has matched.
    ///
    /// # Errors
    /// [`MatchError::Create`], [`MatchError::Corrupt`].
    pub fn discard_context(&self, context: u32) -> Result<(), MatchError> {
        let mut state = self.state.lock();
        state.progress(&mut None, &None)?;
        state.discard_context(context)
    }

    /// Returns true if polling is no waste: every rank has a processor, and one thread of this rank
    /// waits at most.
    fn may_spin(&self) -> bool {
        // Relaxed: a hint.
        self.has_cores_for_all && self.waiting.load(Ordering::Relaxed) <= 1
    }

    /// Waits until `poll` returns a result, or the rank that `exited` returns has exited.
    #[inline]
    fn wait<R>(
        &self,
        deadline: Option<Instant>,
        exited: impl Fn() -> Option<u32>,
        poll: impl FnMut() -> Result<Option<R>, MatchError>,
    ) -> Result<R, MatchError> {
        self.wait_for_copy(0, deadline, exited, poll)
    }

    /// As [`wait`](Self::wait), while another rank, which has a processor, may copy so many bytes.
    #[inline]
    fn wait_for_copy<R>(
        &self,
        bytes: usize,
        deadline: Option<Instant>,
        exited: impl Fn() -> Option<u32>,
        mut poll: impl FnMut() -> Result<Option<R>, MatchError>,
    ) -> Result<R, MatchError> {
        /// Polls before the thread counts as waiting.
        const FIRST_POLLS: u32 = 100;
        let polls = if self.may_spin() { FIRST_POLLS } else { 1 };
        for _ in 0..polls {
            if let Some(result) = poll()? {
                return Ok(result);
            }
        }
        self.wait_long(bytes, deadline, exited, poll)
    }

    #[cold]
    fn wait_long<R>(
        &self,
        bytes: usize,
        deadline: Option<Instant>,
        exited: impl Fn() -> Option<u32>,
        poll: impl FnMut() -> Result<Option<R>, MatchError>,
    ) -> Result<R, MatchError> {
        // Relaxed: a hint.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let policy = if self.may_spin() {
            let copy = (bytes / BYTES_A_POLL).min(MOST_COPY_POLLS) as u32;
            SpinPolicy { eager: ALONE.eager + copy, ..ALONE }
        } else {
            CROWDED
        };
        let outcome = wait(&mut MessageWait { endpoint: self, exited, poll }, policy, deadline);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        outcome.unwrap_or(Err(MatchError::Timeout))
    }
}

/// Polls once. Some of the unsuccessful `tests` look for the exit of a rank, so that a loop of tests
/// ends.
fn test<R>(
    tests: &mut u32,
    exited: impl Fn() -> Option<u32>,
    mut poll: impl FnMut() -> Result<Option<R>, MatchError>,
) -> Result<Option<R>, MatchError> {
    /// Tests of which one looks.
    const INTERVAL: u32 = 64;
    let found = poll()?;
    if found.is_some() {
        return Ok(found);
    }
    *tests = tests.wrapping_add(1);
    let Some(rank) = tests.is_multiple_of(INTERVAL).then(&exited).flatten() else {
        return Ok(None);
    };
    // The last messages of a rank that has exited come first, and may be of another rank.
    let found = poll()?;
    if found.is_none() && exited() == Some(rank) {
        return Err(MatchError::RankExited { rank });
    }
    Ok(found)
}

/// Envelope of an unexpected message, and its sender's rank on the node.
struct MessageHead {
    sender: u32,
    envelope: Envelope,
}

impl Drop for Endpoint {
    /// Waits until the messages of dropped requests have been read, or their receivers have exited
    /// or wait in the same way.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.state.lock().close();
        let processes = Arc::clone(&self.processes);
        let has_exited = |rank: u32| processes.has_exited(rank);
        // The result is that nothing is left; an error leaves nothing that could be sent.
        let _ = self.wait(
            None,
            || None,
            || {
                let mut state = self.state.lock();
                state.progress(&mut None, &None)?;
                Ok((!state.has_unsent(has_exited)).then_some(()))
            },
        );
    }
}

/// Wait of a thread for messages.
struct MessageWait<'a, E, P> {
    endpoint: &'a Endpoint,
    exited: E,
    poll: P,
}

impl<R, E, P> Waiter for MessageWait<'_, E, P>
where
    E: Fn() -> Option<u32>,
    P: FnMut() -> Result<Option<R>, MatchError>,
{
    type Output = Result<R, MatchError>;

    // A rank that has exited already is reported before the first sleep, and messages of other
    // receives are read.
    const CHECKS_BEFORE_SLEEP: bool = true;

    fn sleeper(&self) -> impl Sleeper {
        self.endpoint.own.wakeup()
    }

    fn poll(&mut self) -> Option<Self::Output> {
        (self.poll)().transpose()
    }

    fn check(&mut self) -> Option<Self::Output> {
        // Before the rings are polled: the last messages of a rank that has exited come first.
        let exited = (self.exited)();
        // All rings, and new ones: the thread may sleep next.
        if let Err(error) = self.endpoint.progress() {
            return Some(Err(error));
        }
        self.poll().or_else(|| {
            // A receive may have matched a message of another rank meanwhile.
            let rank = exited.filter(|rank| (self.exited)() == Some(*rank))?;
            Some(Err(MatchError::RankExited { rank }))
        })
    }
}
