//! Receiving end of a Basic ring between two processes of a job.

use super::header_word::{BasicHeader, HeaderWord};
use super::memory::{MappedRing, POLICY, geometry, map};
use super::ring::{ARRIVALS, Corruption, RingError, SPACE};
use super::ring_receiver::{MessageLocation, RingReceiver};
use super::signal::FutexSignal;
use super::words;
use crate::error::{CreateError, RecvError};
use crate::one_poll::{PollSet, Polled};
use crate::remote_waits::RemoteWaits;
use shm::event::{Event, Notify};
use shm::liveness::{PeerExit, RankLiveness};
use shm::process::ProcessHandle;
use shm::segment::{Offset, Segment};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Receiving end. A ring has exactly one.
#[derive(Debug)]
pub struct Receiver {
    ring: RingReceiver<MappedRing, FutexSignal>,
    /// Corruption of the ring, once it was detected.
    corruption: Option<Corruption>,
    /// Marks of waiting threads, if the sender is on another node.
    waits: Option<Arc<dyn RemoteWaits>>,
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
        let signal = FutexSignal::new(segment, at, ARRIVALS, SPACE)?;
        let ring = RingReceiver::new(map(segment, at, geometry)?, geometry, signal, POLICY);
        // The mapping has the size of the ring.
        let ring = ring.ok_or(CreateError::NotFound { object: "Basic ring", offset: at })?;
        Ok(Receiver { ring, corruption: None, waits: None })
    }

    /// Sets the sending process: when it has ended and its messages have been received, waiting
    /// returns [`RecvError::ProcessExited`] within a tenth of a second.
    #[must_use]
    pub fn watching(mut self, sender: ProcessHandle) -> Receiver {
        self.ring.signal_mut().peer = Some(sender);
        self
    }

    /// Adds a liveness check of the sending rank: waiting ends when it reports an exit, and its
    /// messages have been received. The check is dropped with the receiver.
    #[must_use]
    pub fn watching_rank(mut self, sender: Arc<dyn RankLiveness>) -> Receiver {
        let signal = self.ring.signal_mut();
        signal.rank = std::mem::take(&mut signal.rank).and(sender);
        self
    }

    /// Sets what connects the ring with a sender on another node: the event of the node service,
    /// which is notified of free space, and its marks of waiting threads.
    #[must_use]
    pub fn with_remote_sender(mut self, space: Event, waits: Arc<dyn RemoteWaits>) -> Receiver {
        self.ring.signal_mut().service = Some(space);
        self.waits = Some(waits);
        self
    }

    /// Takes messages, as long as they have at most `limit` bytes with their header words, and
    /// appends them, each filled up to a multiple of 8 bytes.
    pub(crate) fn take_encoded(
        &mut self,
        limit: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), RecvError> {
        let end = into.len() + limit;
        let taken = loop {
            let next = self.ring.next_bytes();
            let fits = |bytes: usize| into.len() + 8 + bytes.next_multiple_of(8) <= end;
            match next {
                Ok(Some(bytes)) if fits(bytes) => {}
                Ok(_) => break Ok(()),
                Err(error) => break Err(self.failed(error)),
            }
            // The length was loaded once more: another process may change the header word
            // meanwhile.
            let found = match self.ring.take() {
                Ok(Some(found)) if fits(found.bytes) => found,
                _ => break Err(RecvError::Corrupt),
            };
            let header_word = HeaderWord::Message { header: found.header, bytes: found.bytes };
            into.extend(header_word.encode(0).to_le_bytes());
            let start = into.len();
            into.resize(start + found.bytes.next_multiple_of(8), 0);
            words::load_bytes(self.ring.words(&found), &mut into[start..start + found.bytes]);
        };
        self.ring.release();
        taken
    }

    /// Adds the ring to a poll set of the same segment with this index, also for a sender that is
    /// already connected. The sender then executes a full fence in every
    /// [`Sender::publish`](super::Sender::publish).
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

    /// Requests one notification of the sender's [`Event`](shm::event::Event). Returns true if the
    /// condition already holds; then receive first. Half full means half of the ring's lines; up to
    /// a quarter of the lines received since the request may still count.
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
    pub fn recv(&mut self) -> Result<BasicMessage<'_>, RecvError> {
        self.recv_before(None)
    }

    /// Receives like [`Self::recv`], waiting for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`], and [`RecvError::Timeout`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<BasicMessage<'_>, RecvError> {
        self.recv_before(Instant::now().checked_add(timeout))
    }

    /// Receives like [`Self::recv`], waiting until `deadline` at the latest.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`], and [`RecvError::Timeout`].
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<BasicMessage<'_>, RecvError> {
        self.recv_before(Some(deadline))
    }

    fn recv_before(&mut self, deadline: Option<Instant>) -> Result<BasicMessage<'_>, RecvError> {
        let found = match self.waits.clone() {
            None => self.ring.take_by(deadline),
            Some(waits) => loop {
                match self.ring.take() {
                    Ok(None) => {}
                    Ok(Some(found)) => break Ok(found),
                    Err(error) => break Err(error),
                }
                if let Err(error) = self.ring.wait_beside_service(&*waits, deadline) {
                    break Err(error);
                }
            },
        };
        match found {
            Ok(found) => Ok(BasicMessage { receiver: self, found }),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Receives like [`Self::recv`], without waiting; `None` if there is no message. Does not check
    /// the watched process.
    ///
    /// # Errors
    ///
    /// [`RecvError::Closed`], [`RecvError::Corrupt`].
    pub fn try_recv(&mut self) -> Result<Option<BasicMessage<'_>>, RecvError> {
        match self.ring.take() {
            Ok(found) => Ok(found.map(|found| BasicMessage { receiver: self, found })),
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
            RingError::Interrupted => match self.ring.signal().interruption() {
                Ok(exit) => exit.into(),
                Err(pid) => RecvError::ProcessExited { pid },
            },
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

    fn exited(&self) -> Option<PeerExit> {
        self.ring.signal().rank.exited()
    }

    fn remote_waits(&self) -> Option<Arc<dyn RemoteWaits>> {
        self.waits.clone()
    }
}

/// Message in place, where its sender composed it. Dropping it releases its lines.
#[derive(Debug)]
pub struct BasicMessage<'a> {
    receiver: &'a mut Receiver,
    found: MessageLocation,
}

impl BasicMessage<'_> {
    /// Returns the sender and the handler.
    pub fn header(&self) -> BasicHeader {
        self.found.header
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        in_place(&self.receiver.ring, &self.found)
    }
}

impl Drop for BasicMessage<'_> {
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
    pub header: BasicHeader,
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
fn in_place<'a>(
    ring: &'a RingReceiver<MappedRing, FutexSignal>,
    found: &MessageLocation,
) -> &'a [u8] {
    let words = ring.words(found);
    // SAFETY: `words` covers the bytes of the message inside the mapping, which lives as long as
    // the borrowed ring. The sender belongs to this job and follows the protocol: it writes to
    // lines only after their release, which requires `&mut` access to the ring.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), found.bytes) }
}
