//! Append buffers: records from many senders to one receiver.
//!
//! The owner of the [`Receiver`] takes records out in the order in which they were appended; the
//! records of each [`Sender`] keep their order. Appending needs no action of the owner's processor.
//! A record is in the buffer as a whole or not at all. A sender that is stopped while it appends
//! blocks no other thread: the receiver voids its slot after some polls, and the sender appends its
//! record again when it resumes. The slot of a sender that is killed is recovered by others, as in
//! a [cache-line queue](crate::cache_line): the ring is the same, with longer slots.
//!
//! Memory: 2,368 bytes, and for each slot a record with 16 more bytes in whole cache lines; the
//! number of slots is that of the records, rounded up to a power of two.
//!
//! ```
//! use queues::append::{Receiver, Sender};
//! use shm::{arena::Arena, segment::{Backing, Segment}};
//! use std::sync::Arc;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
//! let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
//! let mut receiver = Receiver::create(&arena, 64, 100)?;
//! let sender = Sender::connect(&segment, receiver.offset())?;
//! std::thread::scope(|scope| {
//!     for thread in 0..2 {
//!         let sender = &sender;
//!         scope.spawn(move || (0..100_u8).try_for_each(|number| sender.send(&[thread, number])));
//!     }
//!     let (mut record, mut next) = (Vec::new(), [0, 0]);
//!     for _ in 0..200 {
//!         receiver.recv(&mut record)?;
//!         let [thread, number] = record[..] else { panic!("two bytes") };
//!         assert_eq!(number, next[thread as usize], "in the order of its sender");
//!         next[thread as usize] += 1;
//!     }
//!     Ok::<(), queues::error::RecvError>(())
//! })?;
//! # Ok(())
//! # }
//! ```

mod memory;
pub(crate) mod records;

use crate::error::{RecvError, SendError};
use crate::one_poll::{PollSet, SetMember};
use crate::remote_waits::{RemoteWaits, wait_beside};
use crate::slot_ring::{RecvState, SenderId, VoidPolicy, is_recovery_due};
use crate::sync::{Ordering, fence};
use memory::AppendMemory;
pub(crate) use memory::observe;
use shm::arena::Arena;
use shm::event::Event;
use shm::liveness::{ProcessWatch, RankLiveness, RankWatch};
use shm::object::CreateError;
use shm::process_table::Entry;
use shm::published_wait::Wait;
use shm::segment::{Offset, Segment};
use shm::wait::{Sleeper, SpinPolicy, Waiter, wait};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Receiving end of an append buffer, which owns it. Dropping it withdraws the buffer; its memory
/// returns to the arena if no living process holds a sender.
#[derive(Debug)]
pub struct Receiver {
    memory: AppendMemory,
    /// Arena of the memory, if this end owns it.
    arena: Option<Arc<Arena>>,
    state: RecvState,
    watched: RankWatch,
    remote: Option<RemoteSenders>,
}

/// Connection of a buffer with senders on other nodes.
#[derive(Debug)]
struct RemoteSenders {
    /// Event of the node service, which waits for free space.
    space: Event,
    waits: Arc<dyn RemoteWaits>,
}

/// Creates a buffer for records that the node service takes to the buffer of a receiver on another
/// node.
/// To release the memory, free the offset in the arena once no process uses the buffer any more.
///
/// # Errors
/// Those of [`Receiver::create`].
pub fn create_outgoing(
    arena: &Arena,
    records: u64,
    record_bytes: u64,
) -> Result<Offset, CreateError> {
    Ok(AppendMemory::create(arena, records, record_bytes)?.object().offset())
}

impl Receiver {
    /// Creates an empty buffer for `records` records of up to `record_bytes` bytes each.
    ///
    /// # Errors
    /// [`CreateError::Size`], [`CreateError::Arena`], [`CreateError::Process`].
    pub fn create(
        arena: &Arc<Arena>,
        records: u64,
        record_bytes: u64,
    ) -> Result<Self, CreateError> {
        let memory = AppendMemory::create(arena, records, record_bytes)?;
        Ok(Receiver::of(memory, Some(Arc::clone(arena))))
    }

    /// Connects the node service to the receiving end of an outgoing buffer.
    pub(crate) fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        Ok(Receiver::of(AppendMemory::find(segment, offset)?, None))
    }

    fn of(memory: AppendMemory, arena: Option<Arc<Arena>>) -> Self {
        let policy = VoidPolicy::for_words(memory.slot_words() as u32);
        let state = RecvState::with_policy(policy);
        Receiver { memory, arena, state, watched: RankWatch::default(), remote: None }
    }

    /// Sets what connects the buffer with senders on other nodes: the event of the node service,
    /// which is notified of free space on request, and its marks of waiting threads.
    #[must_use]
    pub fn with_remote_senders(mut self, space: Event, waits: Arc<dyn RemoteWaits>) -> Self {
        self.remote = Some(RemoteSenders { space, waits });
        self
    }

    /// Adds a liveness check: waiting ends when it reports that no sender is left. The check is
    /// dropped with the receiver.
    #[must_use]
    pub fn watching(mut self, senders: Arc<dyn RankLiveness>) -> Self {
        self.watched = std::mem::take(&mut self.watched).and(senders);
        self
    }

    /// Returns the maximum size of a record in bytes.
    pub fn record_bytes(&self) -> u64 {
        self.memory.record_bytes()
    }

    /// Returns whether a record waits, or a slot that blocks later records and that further polls
    /// will void.
    pub(crate) fn is_ready(&self) -> bool {
        self.memory.ring(SenderId::NONE).is_ready()
    }

    /// Closes the buffer to senders.
    pub(crate) fn close(&self) {
        self.memory.close();
    }

    /// Returns the offset of the buffer, to which senders connect.
    pub fn offset(&self) -> Offset {
        self.memory.object().offset()
    }

    /// Receives the oldest record into `record`, replacing its contents; returns whether there was
    /// one. Records behind that of a stopped sender are received after some polls.
    ///
    /// # Errors
    /// [`RecvError::Corrupt`].
    pub fn try_recv(&mut self, record: &mut Vec<u8>) -> Result<bool, RecvError> {
        let ring = self.memory.ring(SenderId::NONE);
        let max_bytes = self.memory.record_bytes();
        let received = records::receive(&ring, &mut self.state, max_bytes, record)?;
        if received {
            self.memory.senders_wakeup().notify();
            if let Some(RemoteSenders { space, .. }) = &self.remote {
                // The slot was released before the light fence in `notify`; the node service
                // requests, passes the heavy one and tries once more.
                let request = self.memory.space_request();
                request.serve(|| self.memory.is_space_due(), || space.notify());
            }
        }
        Ok(received)
    }

    /// Receives like [`Receiver::try_recv`], waiting for a record. The end of a sender does not end
    /// the wait, because another one may connect, but what [`watching`](Receiver::watching) reports
    /// does.
    ///
    /// # Errors
    /// [`RecvError::Corrupt`], [`RecvError::RankExited`], [`RecvError::NodeServiceEnded`].
    pub fn recv(&mut self, record: &mut Vec<u8>) -> Result<(), RecvError> {
        // Without a deadline the wait ends only with a result.
        while !self.recv_before(record, None)? {}
        Ok(())
    }

    /// Receives like [`Receiver::recv`], waiting for at most `timeout`; returns whether there was a
    /// record.
    ///
    /// # Errors
    /// Those of [`Receiver::recv`].
    pub fn recv_timeout(
        &mut self,
        record: &mut Vec<u8>,
        timeout: Duration,
    ) -> Result<bool, RecvError> {
        self.recv_before(record, Instant::now().checked_add(timeout))
    }

    /// Receives like [`Receiver::recv`], waiting until `deadline` at the latest; returns whether
    /// there was a record.
    ///
    /// # Errors
    /// Those of [`Receiver::recv`].
    pub fn recv_deadline(
        &mut self,
        record: &mut Vec<u8>,
        deadline: Instant,
    ) -> Result<bool, RecvError> {
        self.recv_before(record, Some(deadline))
    }

    fn recv_before(
        &mut self,
        record: &mut Vec<u8>,
        deadline: Option<Instant>,
    ) -> Result<bool, RecvError> {
        let waits = self.remote.as_ref().map(|remote| Arc::clone(&remote.waits));
        let mut waiter = RecordWait { receiver: self, record };
        let received = match waits {
            None => wait(&mut waiter, SpinPolicy::CHANNEL, deadline),
            Some(waits) => wait_beside(&*waits, &mut waiter, deadline),
        };
        received.unwrap_or(Ok(false))
    }
}

/// Wait for a record.
struct RecordWait<'a> {
    receiver: &'a mut Receiver,
    record: &'a mut Vec<u8>,
}

impl Waiter for RecordWait<'_> {
    type Output = Result<bool, RecvError>;

    fn sleeper(&self) -> impl Sleeper {
        self.receiver.memory.receiver_wakeup()
    }

    fn poll(&mut self) -> Option<Self::Output> {
        Some(self.receiver.try_recv(self.record)).filter(|received| *received != Ok(false))
    }

    fn check(&mut self) -> Option<Self::Output> {
        let exit = self.receiver.watched.exited()?;
        // What it sent before comes first.
        Some(self.poll().unwrap_or(Err(exit.into())))
    }

    fn describe(&self) -> Wait {
        Wait::QueueMessage { queue: self.receiver.memory.object().offset() }
    }

    fn must_poll(&mut self) -> bool {
        self.receiver.memory.ring(SenderId::NONE).is_ready()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // A living sender keeps the memory; its next send finds the buffer withdrawn.
        match &self.arena {
            Some(arena) => self.memory.retire(arena),
            None => self.memory.close(),
        }
    }
}

/// Sender of records to a buffer of any process. Any number of threads may use it at once.
#[derive(Debug)]
pub struct Sender {
    memory: AppendMemory,
    entry: Entry,
    watched: RankWatch,
    service: Option<NodeService>,
}

/// The node service, which receives what a sender sends to another node: its event, and the index
/// of the buffer in its poll set.
#[derive(Debug)]
struct NodeService {
    member: SetMember,
    event: Event,
}

impl Sender {
    /// Connects to the buffer at `offset`.
    ///
    /// # Errors
    /// [`CreateError::NotFound`], [`CreateError::Closed`], [`CreateError::TooMany`],
    /// [`CreateError::Segment`], [`CreateError::Process`].
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        let (memory, entry) = AppendMemory::connect(segment, offset)?;
        Ok(Sender { memory, entry, watched: RankWatch::default(), service: None })
    }

    /// Sets the event of the node service, which receives from this buffer, the member of its poll
    /// set with this index, and takes the records to another node.
    ///
    /// # Errors
    /// [`CreateError::NoIndex`].
    pub fn to_node_service(
        mut self,
        (set, index): (&PollSet, usize),
        event: Event,
    ) -> Result<Self, CreateError> {
        self.service = Some(NodeService { member: set.member(index)?, event });
        Ok(self)
    }

    /// Adds a liveness check, instead of that of the process that owns the buffer: waiting for
    /// space ends when it reports an exit. The check is dropped with the sender.
    #[must_use]
    pub fn watching(mut self, receiver: Arc<dyn RankLiveness>) -> Self {
        self.watched = std::mem::take(&mut self.watched).and(receiver);
        self
    }

    /// Returns the maximum size of a record in bytes.
    pub fn record_bytes(&self) -> u64 {
        self.memory.record_bytes()
    }

    /// Appends a record if there is free space. The record is available to the receiver on return.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::TooLong`], [`SendError::Closed`], [`SendError::Corrupt`].
    pub fn try_send(&self, record: &[u8]) -> Result<(), SendError> {
        let sent = self.append(record);
        if sent == Err(SendError::Full) && is_recovery_due() {
            self.recover();
        }
        sent
    }

    fn append(&self, record: &[u8]) -> Result<(), SendError> {
        let max = self.record_bytes();
        if record.len() as u64 > max {
            return Err(SendError::TooLong { max: max as u32 });
        }
        // A receiver that withdraws after this check leaves the memory allocated, because this handle
        // is attached: the append is then harmless, and its record is lost with the buffer.
        if self.memory.processes().is_closed() {
            return Err(SendError::Closed);
        }
        records::send(&self.memory.ring(AppendMemory::sender(&self.entry)), record)?;
        self.announce();
        Ok(())
    }

    /// Requests a notification of the node service's event when there is space. A heavy fence
    /// and one more attempt must follow.
    pub(crate) fn request_space(&self) {
        self.memory.request_space();
    }

    /// Notifies the receiver of a record that was just published by an exchange.
    fn announce(&self) {
        self.memory.receiver_wakeup().notify();
        if let Some(NodeService { member, event }) = &self.service {
            member.announce(Some(event));
        }
    }

    /// Recovers slots of killed senders if they block the buffer.
    #[cold]
    fn recover(&self) {
        if self.memory.ring(AppendMemory::sender(&self.entry)).recover_if_stuck() {
            // Orders the recovered slots before the load of the wake-up word: the receiver may not
            // have been notified of voided slots that it can skip.
            fence(Ordering::SeqCst);
            self.announce();
        }
    }

    /// Appends like [`Sender::try_send`], waiting for free space.
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::Closed`], [`SendError::ProcessExited`] or
    /// [`SendError::RankExited`], [`SendError::NodeServiceEnded`], [`SendError::Corrupt`].
    pub fn send(&self, record: &[u8]) -> Result<(), SendError> {
        self.send_before(record, None)
    }

    /// Appends like [`Sender::send`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// [`SendError::Timeout`] and those of [`Sender::send`].
    pub fn send_timeout(&self, record: &[u8], timeout: Duration) -> Result<(), SendError> {
        self.send_before(record, Instant::now().checked_add(timeout))
    }

    /// Appends like [`Sender::send`], waiting until `deadline` at the latest.
    ///
    /// # Errors
    /// [`SendError::Timeout`] and those of [`Sender::send`].
    pub fn send_deadline(&self, record: &[u8], deadline: Instant) -> Result<(), SendError> {
        self.send_before(record, Some(deadline))
    }

    fn send_before(&self, record: &[u8], deadline: Option<Instant>) -> Result<(), SendError> {
        let watch = ProcessWatch::default();
        wait(&mut SpaceWait { sender: self, record, watch }, SpinPolicy::CHANNEL, deadline)
            .unwrap_or(Err(SendError::Timeout))
    }
}

/// Wait for space for a record.
struct SpaceWait<'a> {
    sender: &'a Sender,
    record: &'a [u8],
    watch: ProcessWatch,
}

impl Waiter for SpaceWait<'_> {
    type Output = Result<(), SendError>;

    // If the receiver is dead already, a sender must not sleep for a slice before it reports that.
    const CHECKS_BEFORE_SLEEP: bool = true;

    fn sleeper(&self) -> impl Sleeper {
        self.sender.memory.senders_wakeup()
    }

    fn poll(&mut self) -> Option<Self::Output> {
        Some(self.sender.append(self.record)).filter(|sent| *sent != Err(SendError::Full))
    }

    fn describe(&self) -> Wait {
        Wait::QueueSpace { queue: self.sender.memory.object().offset() }
    }

    fn check(&mut self) -> Option<Self::Output> {
        self.sender.recover();
        let owner = self.sender.memory.object().owner();
        let error = match &self.sender.watched {
            RankWatch(None) if self.watch.has_ended(owner) => {
                SendError::ProcessExited { pid: owner.pid() }
            }
            watched => watched.exited()?.into(),
        };
        // It may have received a record before it ended.
        Some(self.poll().unwrap_or(Err(error)))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.memory.processes().detach(&self.entry);
    }
}
