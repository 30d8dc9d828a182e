//! Basic, unshared: a ring of cache lines between one sender and one receiver of the same job.
//!
//! A message is composed where it will be read, and read where it was composed. Nothing is a
//! read-modify-write; a message of at most [`LINE_BYTES`] bytes costs the transfer of one cache
//! line. Longer ones, up to a quarter of the ring ([`Sender::longest_message`]), lie in one piece
//! over several lines.
//!
//! | to send | to receive |
//! |---|---|
//! | get a buffer: [`Sender::reserve`] | get the next message: [`Receiver::recv`] |
//! | write to it | look at it |
//! | release it: [`Buffer::finish`], then [`Sender::publish`] | release it: drop the [`Message`] |
//!
//! Several messages can be published by one store, and several released with one handshake
//! ([`Receiver::batch`]). Each operation that may have to wait has three forms: `try_…` never
//! waits, the plain one does, `…_by` until a deadline. To wait is to look a bounded number of times
//! and then to sleep.
//!
//! A receiver may also be told by an eventfd ([`Receiver::request_event`]) or, with hundreds of
//! others, through a poll set ([`Receiver::in_set`], [`crate::one_poll`]).
//!
//! Memory: [`bytes_for`] the ring, and a bit a line in the sender. A ring holds what fits, for
//! ever: a slow receiver slows its sender.
//!
//! The two ends trust each other to keep their hands off what is not theirs, as processes of one
//! job do. Between jobs the same ring is a [`crate::lane`], whose receiver takes every message out
//! before it looks.
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

use crate::event::{Event, Notify};
use crate::one_poll::{PollSet, Polled};
use bell::FutexBell;
use receiver::Found;
use ring::{ARRIVALS, Bell, Geometry, ROOM};
use sender::{Composing, Room};
use shm::mapped::MappedSlice;
use shm::process::ProcessHandle;
use shm::segment::{Offset, Segment, SegmentError};
use shm::sync::AtomicU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod bell;
pub(crate) mod receiver;
pub(crate) mod ring;
pub(crate) mod sender;
mod stamp;
pub(crate) mod words;

pub use ring::Corruption;
pub use stamp::Header;

/// The longest message that fits one cache line, in bytes.
pub const LINE_BYTES: usize = 56;

/// How often an end looks before it sleeps: a few microseconds, less than falling asleep and waking
/// up take.
pub(crate) const LOOKS: u32 = 100;

/// How long an end sleeps that may not be woken (see [`shm::fence`]).
pub(crate) const UNCERTAIN: Duration = Duration::from_millis(1);

type Memory = MappedSlice<AtomicU64>;

/// What can go wrong with a ring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BasicError {
    /// A number of lines that no ring has.
    #[error(
        "a ring of {lines} lines cannot be: take a power of two from {} to {}",
        ring::MIN_LINES,
        ring::MAX_LINES
    )]
    Lines {
        /// The number asked for.
        lines: u64,
    },
    /// The ring does not lie in the segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// More than a message of this ring holds.
    #[error("a message of {bytes} bytes is too long: this ring's messages have at most {most}")]
    Oversized {
        /// Its bytes.
        bytes: usize,
        /// The longest.
        most: usize,
    },
    /// The other end has been closed: dropped in an orderly way.
    #[error("the other end of the ring has been closed")]
    Closed,
    /// The deadline is over.
    #[error("the deadline was over before the other end of the ring did its part")]
    TimedOut,
    /// The process that was watched has ended without closing its end.
    #[error("process {pid} at the other end of the ring has ended")]
    PeerGone {
        /// Its number.
        pid: u32,
    },
    /// The ring's memory holds what no end of it writes.
    #[error("the ring is spoilt: {0}")]
    Corrupt(#[from] Corruption),
    /// The poll set that the ring is to be in does not lie in its segment, or has no such index.
    #[error("the ring cannot be in the poll set: {0}")]
    NotInSet(#[from] crate::error::CreateError),
}

/// The size of a ring of so many lines, in bytes: 64 a line and 256.
///
/// ```
/// assert_eq!(queues::basic::bytes_for(64)?, 64 * 64 + 256);
/// # Ok::<(), queues::basic::BasicError>(())
/// ```
///
/// # Errors
///
/// [`BasicError::Lines`] unless `lines` is a power of two from 4 to 65,536.
pub fn bytes_for(lines: u64) -> Result<u64, BasicError> {
    Ok(geometry(lines)?.words() as u64 * 8)
}

pub(crate) fn geometry(lines: u64) -> Result<Geometry, BasicError> {
    Geometry::new(lines).ok_or(BasicError::Lines { lines })
}

/// The words of a ring at `at`.
pub(crate) fn map(
    segment: &Arc<Segment>,
    at: Offset,
    geometry: Geometry,
) -> Result<Memory, SegmentError> {
    MappedSlice::new(segment, at, geometry.words())
}

/// The sending end. There must be one, and nobody else writes to the ring.
#[derive(Debug)]
pub struct Sender {
    ring: sender::Sender<Memory, FutexBell>,
}

impl Sender {
    /// The sending end of the ring of `lines` lines at `at`, whose memory is committed and zero.
    ///
    /// # Errors
    ///
    /// [`BasicError::Lines`], [`BasicError::Segment`].
    pub fn connect(segment: &Arc<Segment>, at: Offset, lines: u64) -> Result<Sender, BasicError> {
        let geometry = geometry(lines)?;
        let bell = FutexBell::new(segment, at, ROOM, ARRIVALS)?;
        let ring = sender::Sender::new(map(segment, at, geometry)?, geometry, bell, LOOKS);
        ring.map(|ring| Sender { ring }).ok_or(BasicError::Lines { lines })
    }

    /// Waiting ends with [`BasicError::PeerGone`], within a tenth of a second, when this process
    /// has ended.
    #[must_use]
    pub fn watching(mut self, receiver: ProcessHandle) -> Sender {
        self.ring.bell_mut().peer = Some(receiver);
        self
    }

    /// A sender that notifies the receiver's event when the receiver asks for that. The event is
    /// also notified for the poll set of the ring.
    #[must_use]
    pub fn with_event(mut self, event: Event) -> Sender {
        self.ring.bell_mut().event = Some(event);
        self
    }

    /// The longest message in bytes: what fits a quarter of the ring's lines, less 8 bytes.
    pub fn longest_message(&self) -> usize {
        self.ring.geometry().longest()
    }

    /// Gets a buffer for a message of `bytes` bytes; waits for room, and publishes what was
    /// composed before it does.
    ///
    /// # Errors
    ///
    /// [`BasicError::Oversized`], [`BasicError::Closed`], [`BasicError::PeerGone`],
    /// [`BasicError::Corrupt`].
    pub fn reserve(&mut self, header: Header, bytes: usize) -> Result<Buffer<'_>, BasicError> {
        self.reserve_before(header, bytes, None)
    }

    /// As [`Self::reserve`], but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`], and [`BasicError::TimedOut`].
    pub fn reserve_deadline(
        &mut self,
        header: Header,
        bytes: usize,
        deadline: Instant,
    ) -> Result<Buffer<'_>, BasicError> {
        self.reserve_before(header, bytes, Some(deadline))
    }

    fn reserve_before(
        &mut self,
        header: Header,
        bytes: usize,
        deadline: Option<Instant>,
    ) -> Result<Buffer<'_>, BasicError> {
        match self.ring.wait_for_room(bytes, deadline) {
            Ok(room) => Ok(self.buffer(header, room)),
            Err(error) => Err(self.ring.bell().explain(error)),
        }
    }

    /// As [`Self::reserve`]; `None` if there is no room now.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`].
    pub fn try_reserve(
        &mut self,
        header: Header,
        bytes: usize,
    ) -> Result<Option<Buffer<'_>>, BasicError> {
        match self.ring.room_for(bytes) {
            Ok(Some(room)) => Ok(Some(self.buffer(header, room))),
            Ok(None) => {
                self.ring.bell().check().map(|()| None).map_err(|_| self.ring.bell().gone())
            }
            Err(error) => Err(self.ring.bell().explain(error)),
        }
    }

    fn buffer(&mut self, header: Header, room: Room) -> Buffer<'_> {
        Buffer { composing: self.ring.compose(header, room) }
    }

    /// Publishes everything composed and finished, by one store, and wakes the receiver if it
    /// sleeps.
    pub fn publish(&mut self) {
        self.ring.publish();
    }

    /// Sends one message that lies elsewhere; waits for room.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`].
    pub fn send(&mut self, header: Header, bytes: &[u8]) -> Result<(), BasicError> {
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
    ) -> Result<(), BasicError> {
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
    ) -> Result<(), BasicError> {
        self.reserve_deadline(header, bytes.len(), deadline)?.finish_with(bytes);
        self.publish();
        Ok(())
    }

    /// As [`Self::send`]; `false` if there is no room now.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`].
    pub fn try_send(&mut self, header: Header, bytes: &[u8]) -> Result<bool, BasicError> {
        let Some(buffer) = self.try_reserve(header, bytes.len())? else { return Ok(false) };
        buffer.finish_with(bytes);
        self.publish();
        Ok(true)
    }
}

/// A message that is being composed in the ring. It holds what an earlier message left there.
/// Dropped before it is finished, it has never been.
#[derive(Debug)]
#[must_use = "a message that is not finished is not sent"]
pub struct Buffer<'a> {
    composing: Composing<'a, Memory, FutexBell>,
}

impl Buffer<'_> {
    /// The bytes of the message, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let bytes = self.composing.bytes();
        let words = self.composing.words();
        // SAFETY: `words` covers `bytes` bytes of the mapping, which lives as long as the sender
        // that `self` borrows; the words are atomics, whose memory may be written through a shared
        // reference. `&mut self` makes it this process's only reference; the receiver does not look
        // at lines that it has released and that are not published.
        unsafe { std::slice::from_raw_parts_mut(words.as_ptr().cast::<u8>().cast_mut(), bytes) }
    }

    /// Adds the message to those that the next [`Sender::publish`] makes visible.
    pub fn finish(self) {
        self.composing.finish();
    }

    fn finish_with(self, bytes: &[u8]) {
        words::store_bytes(self.composing.words(), bytes);
        self.finish();
    }
}

/// The receiving end. There must be one.
#[derive(Debug)]
pub struct Receiver {
    ring: receiver::Receiver<Memory, FutexBell>,
}

impl Receiver {
    /// The receiving end of the ring of `lines` lines at `at`.
    ///
    /// # Errors
    ///
    /// [`BasicError::Lines`], [`BasicError::Segment`].
    pub fn connect(segment: &Arc<Segment>, at: Offset, lines: u64) -> Result<Receiver, BasicError> {
        let geometry = geometry(lines)?;
        let bell = FutexBell::new(segment, at, ARRIVALS, ROOM)?;
        let ring = receiver::Receiver::new(map(segment, at, geometry)?, geometry, bell, LOOKS, 0);
        ring.map(|ring| Receiver { ring }).ok_or(BasicError::Lines { lines })
    }

    /// Waiting ends with [`BasicError::PeerGone`], within a tenth of a second, when this process
    /// has ended and what it had sent has been received.
    #[must_use]
    pub fn watching(mut self, sender: ProcessHandle) -> Receiver {
        self.ring.bell_mut().peer = Some(sender);
        self
    }

    /// Has the sender announce its messages in a poll set of the same segment, with this index:
    /// from now on, also those of a sender that was opened before. The sender then passes a full
    /// fence with every [`Sender::publish`].
    ///
    /// # Errors
    ///
    /// [`BasicError::NotInSet`].
    pub fn in_set(mut self, set: &PollSet, index: usize) -> Result<Receiver, BasicError> {
        let member = PollSet::connect(self.ring.bell().segment(), set.offset())?.member(index)?;
        self.ring.join(set.offset().0, index as u64);
        if self.ring.is_ready() {
            member.announce(None);
        }
        Ok(self)
    }

    /// Asks that the [`Event`] that the sender was given be notified once. True if there is a
    /// reason already; then receive first. A half is half of the ring's lines; what has been
    /// received since the request may still count, up to a quarter.
    ///
    /// It is always true where the kernel refuses `membarrier` to this process: the sender may then
    /// miss the request, so look again after a millisecond.
    pub fn request_event(&mut self, when: Notify) -> bool {
        self.ring.ask(when)
    }

    /// Takes back what [`Receiver::request_event`] asked for.
    pub fn cancel_event(&mut self) {
        self.ring.ask_for_nothing();
    }

    /// Whether a message (or an error) waits: one load.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ring.is_ready()
    }

    /// The next message; waits for it.
    ///
    /// # Errors
    ///
    /// [`BasicError::Closed`] after the last message, [`BasicError::PeerGone`],
    /// [`BasicError::Corrupt`].
    pub fn recv(&mut self) -> Result<Message<'_>, BasicError> {
        self.recv_before(None)
    }

    /// Receives like [`Self::recv`], waiting for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`], and [`BasicError::TimedOut`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message<'_>, BasicError> {
        self.recv_before(Instant::now().checked_add(timeout))
    }

    /// Receives like [`Self::recv`], waiting until `deadline` at the latest.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`], and [`BasicError::TimedOut`].
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<Message<'_>, BasicError> {
        self.recv_before(Some(deadline))
    }

    fn recv_before(&mut self, deadline: Option<Instant>) -> Result<Message<'_>, BasicError> {
        match self.ring.take_by(deadline) {
            Ok(found) => Ok(Message { receiver: self, found }),
            Err(error) => Err(self.ring.bell().explain(error)),
        }
    }

    /// As [`Self::recv`]; `None` if there is no message now. Does not notice the end of a
    /// process that is watched.
    ///
    /// # Errors
    ///
    /// [`BasicError::Closed`], [`BasicError::Corrupt`].
    pub fn try_recv(&mut self) -> Result<Option<Message<'_>>, BasicError> {
        match self.ring.take() {
            Ok(found) => Ok(found.map(|found| Message { receiver: self, found })),
            Err(error) => Err(self.ring.bell().explain(error)),
        }
    }

    /// Receives several messages that are released together, when the value is dropped.
    pub fn batch(&mut self) -> Batch<'_> {
        Batch { receiver: self }
    }
}

/// A poll only says that something waits; [`Receiver::try_recv`] then gives the message where it
/// lies, or the error. A ring whose sender has closed it is found again by every poll, until it is
/// taken out of the slice.
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

/// A message, where its sender composed it. Dropping it releases its lines.
#[derive(Debug)]
pub struct Message<'a> {
    receiver: &'a mut Receiver,
    found: Found,
}

impl Message<'_> {
    /// Who sent it, and for which handler.
    pub fn header(&self) -> Header {
        self.found.header
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        in_place(&self.receiver.ring, &self.found)
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        self.receiver.ring.release();
    }
}

/// Messages that stay in the ring until all of them are released with one handshake.
#[derive(Debug)]
pub struct Batch<'a> {
    receiver: &'a mut Receiver,
}

/// A message of a [`Batch`].
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// Who sent it, and for which handler.
    pub header: Header,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Batch<'_> {
    /// The next message; `None` if there is none now.
    ///
    /// # Errors
    ///
    /// [`BasicError::Closed`], [`BasicError::Corrupt`].
    pub fn next_message(&mut self) -> Result<Option<Part<'_>>, BasicError> {
        match self.receiver.ring.take() {
            Ok(Some(found)) => Ok(Some(Part {
                header: found.header,
                bytes: in_place(&self.receiver.ring, &found),
            })),
            Ok(None) => Ok(None),
            Err(error) => Err(self.receiver.ring.bell().explain(error)),
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.receiver.ring.release();
    }
}

/// The bytes of a message that has been taken and is released only when the reference has ended.
fn in_place<'a>(ring: &'a receiver::Receiver<Memory, FutexBell>, found: &Found) -> &'a [u8] {
    let words = ring.words(found);
    // SAFETY: `words` covers the message's bytes, inside the mapping, which lives as long as the
    // ring that is borrowed. The sender is of this job and keeps to the protocol: it writes to
    // lines only after their release, which takes `&mut` of the ring.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), found.bytes) }
}
