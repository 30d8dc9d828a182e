//! Basic, unshared: a ring of cache lines between one sender and one receiver of the same job.
//!
//! A message is composed where it will be read, and read where it was composed. No operation is a
//! read-modify-write; a message of at most [`LINE_BYTES`] bytes costs the transfer of one cache
//! line. Longer ones, up to a quarter of the ring ([`Sender::longest_message`]), occupy several
//! consecutive lines.
//!
//! | Send | Receive |
//! |---|---|
//! | reserve a buffer: [`Sender::reserve`] | receive the next message: [`Receiver::recv`] |
//! | write to it | read it |
//! | finish it: [`Buffer::finish`], then [`Sender::publish`] | release it: drop the [`Message`] |
//!
//! One store publishes several messages, and one handshake releases several ([`Receiver::batch`]).
//! Each operation that may wait has several forms: `try_…` never waits, the plain one waits,
//! `…_timeout` and `…_deadline` wait for a limited time. A waiting thread polls a bounded number of
//! times and then sleeps.
//!
//! A receiver can also be notified through an eventfd ([`Receiver::request_event`]) or, with
//! hundreds of others, through a poll set ([`Receiver::in_set`], [`crate::one_poll`]).
//!
//! Memory: [`bytes_for`] the ring, and one bit per line in the sender. The memory never grows: a
//! slow receiver slows its sender.
//!
//! The two ends trust each other to follow the protocol, as processes of one job do. Between jobs
//! the same ring is a [`connection`](crate::connection), which copies every message before it checks it.
//!
//! ```
//! use queues::basic::{Header, Receiver, Sender, bytes_for};
//! use shm::segment::{Backing, Offset, Segment};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segment = Arc::new(Segment::create(bytes_for(64)?, Backing::Memory)?);
//! segment.commit(Offset(0), bytes_for(64)?)?;
//! // Each in its own process or thread:
//! let mut sender = Sender::connect(&segment, Offset(0), 64)?;
//! let mut receiver = Receiver::connect(&segment, Offset(0), 64)?;
//!
//! let mut buffer = sender.reserve(Header::default(), 5)?;
//! buffer.as_mut_slice().copy_from_slice(b"hello");
//! buffer.finish();
//! sender.publish();
//! assert_eq!(receiver.recv()?.as_slice(), b"hello");
//! # Ok(())
//! # }
//! ```

use crate::error::{CreateError, RecvError, SendError};
use crate::one_poll::{PollSet, Polled};
use receiver::Found;
use ring::{ARRIVALS, Geometry, ROOM, RingError, Signal};
use sender::{Composing, Room};
use shm::event::{Event, Notify};
use shm::mapped::MappedSlice;
use shm::process::ProcessHandle;
use shm::segment::{Offset, Segment, SegmentError};
use shm::sync::AtomicU64;
use shm::wait::SpinPolicy;
use signal::FutexSignal;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) mod receiver;
pub(crate) mod ring;
pub(crate) mod sender;
mod signal;
mod stamp;
pub(crate) mod words;

pub use ring::Corruption;
pub use stamp::Header;

/// Size of the longest message that fits one cache line, in bytes.
pub const LINE_BYTES: usize = 56;

/// Polls before an end sleeps: a few microseconds, less than falling asleep and waking up. An end
/// that watches its peer checks that it is alive ten times a second.
const POLICY: SpinPolicy =
    SpinPolicy { eager: 0, spins: 100, yields: 0, slice: Duration::from_millis(100) };

type Memory = MappedSlice<AtomicU64>;

/// Returns the size of a ring of `lines` lines in bytes: 64 per line plus 256.
///
/// ```
/// assert_eq!(queues::basic::bytes_for(64)?, 64 * 64 + 256);
/// # Ok::<(), queues::error::CreateError>(())
/// ```
///
/// # Errors
///
/// [`CreateError::Size`] unless `lines` is a power of two from 4 to 65,536.
pub fn bytes_for(lines: u64) -> Result<u64, CreateError> {
    Ok(geometry(lines)?.words() as u64 * 8)
}

pub(crate) fn geometry(lines: u64) -> Result<Geometry, CreateError> {
    Geometry::new(lines).ok_or(CreateError::Size {
        object: "Basic ring",
        requested: lines,
        unit: "lines",
        limits: "a power of two from 4 to 65536",
    })
}

/// Maps the words of a ring at `at`.
pub(crate) fn map(
    segment: &Arc<Segment>,
    at: Offset,
    geometry: Geometry,
) -> Result<Memory, SegmentError> {
    MappedSlice::new(segment, at, geometry.words())
}

/// Sending end. A ring has exactly one.
#[derive(Debug)]
pub struct Sender {
    ring: sender::Sender<Memory, FutexSignal>,
    /// What was found in a corrupt ring.
    corruption: Option<Corruption>,
}

impl Sender {
    /// Connects the sending end of a ring of `lines` lines at `at`, in committed, zeroed memory.
    ///
    /// # Errors
    ///
    /// [`CreateError::Size`], [`CreateError::Segment`].
    pub fn connect(segment: &Arc<Segment>, at: Offset, lines: u64) -> Result<Sender, CreateError> {
        let geometry = geometry(lines)?;
        let signal = FutexSignal::new(segment, at, ROOM, ARRIVALS)?;
        let ring = sender::Sender::new(map(segment, at, geometry)?, geometry, signal, POLICY);
        // The mapping has the size of the ring.
        let ring = ring.ok_or(CreateError::NotFound { object: "Basic ring", offset: at })?;
        Ok(Sender { ring, corruption: None })
    }

    /// Sets the receiving process: when it has ended, waiting returns [`SendError::ProcessExited`]
    /// within a tenth of a second.
    #[must_use]
    pub fn watching(mut self, receiver: ProcessHandle) -> Sender {
        self.ring.signal_mut().peer = Some(receiver);
        self
    }

    /// Sets the receiver's event, which this sender notifies on request, also on behalf of the poll
    /// set of the ring.
    #[must_use]
    pub fn with_event(mut self, event: Event) -> Sender {
        self.ring.signal_mut().event = Some(event);
        self
    }

    /// Returns the maximum size of a message in bytes: a quarter of the ring's lines, minus 8
    /// bytes.
    pub fn longest_message(&self) -> usize {
        self.ring.geometry().longest()
    }

    /// Reserves a buffer for a message of `bytes` bytes, waiting for free space. Publishes finished
    /// messages before it waits.
    ///
    /// # Errors
    ///
    /// [`SendError::TooLong`], [`SendError::Closed`], [`SendError::ProcessExited`],
    /// [`SendError::Corrupt`].
    pub fn reserve(&mut self, header: Header, bytes: usize) -> Result<Buffer<'_>, SendError> {
        self.reserve_before(header, bytes, None)
    }

    /// Reserves like [`Self::reserve`], waiting until `deadline` at the latest.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`], and [`SendError::Timeout`].
    pub fn reserve_deadline(
        &mut self,
        header: Header,
        bytes: usize,
        deadline: Instant,
    ) -> Result<Buffer<'_>, SendError> {
        self.reserve_before(header, bytes, Some(deadline))
    }

    fn reserve_before(
        &mut self,
        header: Header,
        bytes: usize,
        deadline: Option<Instant>,
    ) -> Result<Buffer<'_>, SendError> {
        match self.ring.wait_for_room(bytes, deadline) {
            Ok(room) => Ok(self.buffer(header, room)),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Reserves like [`Self::reserve`], without waiting; `None` if there is no free space.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`].
    pub fn try_reserve(
        &mut self,
        header: Header,
        bytes: usize,
    ) -> Result<Option<Buffer<'_>>, SendError> {
        match self.ring.room_for(bytes) {
            Ok(Some(room)) => Ok(Some(self.buffer(header, room))),
            Ok(None) => match self.ring.signal().check() {
                Ok(()) => Ok(None),
                Err(interrupted) => Err(self.failed(interrupted.into())),
            },
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Returns what was found in the ring after [`SendError::Corrupt`].
    pub fn corruption(&self) -> Option<Corruption> {
        self.corruption
    }

    #[cold]
    fn failed(&mut self, error: RingError) -> SendError {
        match error {
            RingError::Corrupt(corruption) => {
                self.corruption = Some(corruption);
                SendError::Corrupt
            }
            RingError::Closed => SendError::Closed,
            RingError::Oversized { most, .. } => SendError::TooLong { max: most as u32 },
            RingError::TimedOut => SendError::Timeout,
            RingError::Interrupted => {
                SendError::ProcessExited { pid: self.ring.signal().peer_pid() }
            }
        }
    }

    fn buffer(&mut self, header: Header, room: Room) -> Buffer<'_> {
        Buffer { composing: self.ring.compose(header, room) }
    }

    /// Publishes all finished messages with one store, and wakes the receiver if it sleeps.
    pub fn publish(&mut self) {
        self.ring.publish();
    }

    /// Sends a copy of one message, waiting for free space.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`].
    pub fn send(&mut self, header: Header, bytes: &[u8]) -> Result<(), SendError> {
        self.reserve(header, bytes.len())?.finish_with(bytes);
        self.publish();
        Ok(())
    }

    /// Sends like [`Self::send`], waiting for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve_deadline`].
    pub fn send_timeout(
        &mut self,
        header: Header,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), SendError> {
        let deadline = Instant::now().checked_add(timeout);
        self.reserve_before(header, bytes.len(), deadline)?.finish_with(bytes);
        self.publish();
        Ok(())
    }

    /// Sends like [`Self::send`], waiting until `deadline` at the latest.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve_deadline`].
    pub fn send_deadline(
        &mut self,
        header: Header,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<(), SendError> {
        self.reserve_deadline(header, bytes.len(), deadline)?.finish_with(bytes);
        self.publish();
        Ok(())
    }

    /// Sends like [`Self::send`], without waiting; `false` if there is no free space.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`].
    pub fn try_send(&mut self, header: Header, bytes: &[u8]) -> Result<bool, SendError> {
        let Some(buffer) = self.try_reserve(header, bytes.len())? else { return Ok(false) };
        buffer.finish_with(bytes);
        self.publish();
        Ok(true)
    }
}

/// Reserved buffer in the ring. Its initial contents are unspecified. Dropping it before
/// [`Buffer::finish`] discards the message.
#[derive(Debug)]
#[must_use = "an unfinished message is not sent"]
pub struct Buffer<'a> {
    composing: Composing<'a, Memory, FutexSignal>,
}

impl Buffer<'_> {
    /// Returns the bytes of the message, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let bytes = self.composing.bytes();
        let words = self.composing.words();
        // SAFETY: `words` covers `bytes` bytes of the mapping, which lives as long as the sender
        // that `self` borrows; the words are atomics, so their memory may be written through a
        // shared reference. `&mut self` makes this the process's only reference, and the receiver
        // does not read lines that it has released and that are not published.
        unsafe { std::slice::from_raw_parts_mut(words.as_ptr().cast::<u8>().cast_mut(), bytes) }
    }

    /// Finishes the message; the next [`Sender::publish`] makes it visible.
    pub fn finish(self) {
        self.composing.finish();
    }

    fn finish_with(self, bytes: &[u8]) {
        // In atomic words, although the receiver does not read these lines yet: in a connection,
        // which uses the same ring, the other end may be hostile.
        words::store_bytes(self.composing.words(), bytes);
        self.finish();
    }
}

/// Receiving end. A ring has exactly one.
#[derive(Debug)]
pub struct Receiver {
    ring: receiver::Receiver<Memory, FutexSignal>,
    /// What was found in a corrupt ring.
    corruption: Option<Corruption>,
}

impl Receiver {
    /// Connects the receiving end of a ring of `lines` lines at `at`.
    ///
    /// # Errors
    ///
    /// [`CreateError::Size`], [`CreateError::Segment`].
    pub fn connect(
        segment: &Arc<Segment>,
        at: Offset,
        lines: u64,
    ) -> Result<Receiver, CreateError> {
        let geometry = geometry(lines)?;
        let signal = FutexSignal::new(segment, at, ARRIVALS, ROOM)?;
        let ring =
            receiver::Receiver::new(map(segment, at, geometry)?, geometry, signal, POLICY, 0);
        // The mapping has the size of the ring.
        let ring = ring.ok_or(CreateError::NotFound { object: "Basic ring", offset: at })?;
        Ok(Receiver { ring, corruption: None })
    }

    /// Sets the sending process: when it has ended and its messages have been received, waiting
    /// returns [`RecvError::ProcessExited`] within a tenth of a second.
    #[must_use]
    pub fn watching(mut self, sender: ProcessHandle) -> Receiver {
        self.ring.signal_mut().peer = Some(sender);
        self
    }

    /// Adds the ring to a poll set of the same segment with this index, also for a sender that is
    /// already connected. The sender then executes a full fence in every [`Sender::publish`].
    ///
    /// # Errors
    ///
    /// [`CreateError::NoIndex`], [`CreateError::NotFound`] for a set of another segment.
    pub fn in_set(mut self, set: &PollSet, index: usize) -> Result<Receiver, CreateError> {
        let member = PollSet::connect(self.ring.signal().segment(), set.offset())?.member(index)?;
        self.ring.join(set.offset().0, index as u64);
        // The sender announces every message that it publishes after it has seen the membership.
        // Messages that it published before are announced here, on its behalf.
        if self.ring.is_ready() {
            member.announce(None);
        }
        Ok(self)
    }

    /// Requests one notification of the sender's [`Event`]. Returns true if the condition already
    /// holds; then receive first. Half full means half of the ring's lines; up to a quarter of the
    /// lines received since the request may still count.
    ///
    /// Always returns true where the kernel refuses `membarrier` to this process: the sender may
    /// then miss the request, so check again after a millisecond.
    pub fn request_event(&mut self, when: Notify) -> bool {
        self.ring.ask(when)
    }

    /// Cancels the request of [`Receiver::request_event`].
    pub fn cancel_event(&mut self) {
        self.ring.ask_for_nothing();
    }

    /// Returns whether a message or an error waits, with one load.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ring.is_ready()
    }

    /// Receives the next message, waiting for one.
    ///
    /// # Errors
    ///
    /// [`RecvError::Closed`] after the last message, [`RecvError::ProcessExited`],
    /// [`RecvError::Corrupt`].
    pub fn recv(&mut self) -> Result<Message<'_>, RecvError> {
        self.recv_before(None)
    }

    /// Receives like [`Self::recv`], waiting for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`], and [`RecvError::Timeout`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message<'_>, RecvError> {
        self.recv_before(Instant::now().checked_add(timeout))
    }

    /// Receives like [`Self::recv`], waiting until `deadline` at the latest.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`], and [`RecvError::Timeout`].
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<Message<'_>, RecvError> {
        self.recv_before(Some(deadline))
    }

    fn recv_before(&mut self, deadline: Option<Instant>) -> Result<Message<'_>, RecvError> {
        match self.ring.take_by(deadline) {
            Ok(found) => Ok(Message { receiver: self, found }),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Receives like [`Self::recv`], without waiting; `None` if there is no message. Does not check
    /// the watched process.
    ///
    /// # Errors
    ///
    /// [`RecvError::Closed`], [`RecvError::Corrupt`].
    pub fn try_recv(&mut self) -> Result<Option<Message<'_>>, RecvError> {
        match self.ring.take() {
            Ok(found) => Ok(found.map(|found| Message { receiver: self, found })),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Returns what was found in the ring after [`RecvError::Corrupt`].
    pub fn corruption(&self) -> Option<Corruption> {
        self.corruption
    }

    #[cold]
    fn failed(&mut self, error: RingError) -> RecvError {
        match error {
            RingError::Corrupt(corruption) => {
                self.corruption = Some(corruption);
                RecvError::Corrupt
            }
            // Only a sender's message can be too long.
            RingError::Closed | RingError::Oversized { .. } => RecvError::Closed,
            RingError::TimedOut => RecvError::Timeout,
            RingError::Interrupted => {
                RecvError::ProcessExited { pid: self.ring.signal().peer_pid() }
            }
        }
    }

    /// Starts a batch: messages that are released together when the returned value is dropped.
    pub fn batch(&mut self) -> Batch<'_> {
        Batch { receiver: self }
    }
}

/// A poll only reports that a message or an error waits; [`Receiver::try_recv`] then returns it.
/// Every poll reports a ring closed by its sender again, until the ring is removed from the slice.
impl Polled for Receiver {
    type Item = ();

    #[inline]
    fn take(&mut self) -> Option<()> {
        self.ring.is_ready().then_some(())
    }

    #[inline]
    fn is_ready(&self) -> bool {
        self.ring.is_ready()
    }
}

/// Message in place, where its sender composed it. Dropping it releases its lines.
#[derive(Debug)]
pub struct Message<'a> {
    receiver: &'a mut Receiver,
    found: Found,
}

impl Message<'_> {
    /// Returns the sender and the handler.
    pub fn header(&self) -> Header {
        self.found.header
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        in_place(&self.receiver.ring, &self.found)
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        self.receiver.ring.release();
    }
}

/// Batch of messages that stay in the ring until one handshake releases all of them.
#[derive(Debug)]
pub struct Batch<'a> {
    receiver: &'a mut Receiver,
}

/// Message of a [`Batch`].
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// Sender and handler.
    pub header: Header,
    /// Bytes of the message.
    pub bytes: &'a [u8],
}

impl Batch<'_> {
    /// Receives the next message; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`RecvError::Closed`], [`RecvError::Corrupt`].
    pub fn next_message(&mut self) -> Result<Option<Part<'_>>, RecvError> {
        match self.receiver.ring.take() {
            Ok(Some(found)) => Ok(Some(Part {
                header: found.header,
                bytes: in_place(&self.receiver.ring, &found),
            })),
            Ok(None) => Ok(None),
            Err(error) => Err(self.receiver.failed(error)),
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.receiver.ring.release();
    }
}

/// Returns the bytes of a received message, which is released only after the reference has ended.
fn in_place<'a>(ring: &'a receiver::Receiver<Memory, FutexSignal>, found: &Found) -> &'a [u8] {
    let words = ring.words(found);
    // SAFETY: `words` covers the bytes of the message inside the mapping, which lives as long as
    // the borrowed ring. The sender belongs to this job and follows the protocol: it writes to
    // lines only after their release, which requires `&mut` access to the ring.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), found.bytes) }
}
