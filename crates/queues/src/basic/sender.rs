//! Sending end of a Basic ring between two processes of a job.

use super::header_word::BasicHeader;
use super::memory::{MappedRing, POLICY, geometry, map};
use super::ring::{ARRIVALS, Corruption, RingError, SPACE, Signal};
use super::ring_sender::{FreeSpace, ReservedMessage, RingSender};
use super::signal::FutexSignal;
use super::words;
use crate::error::{CreateError, SendError};
use shm::event::Event;
use shm::liveness::RankLiveness;
use shm::process::ProcessHandle;
use shm::segment::{Offset, Segment};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sending end. A ring has exactly one.
#[derive(Debug)]
pub struct Sender {
    ring: RingSender<MappedRing, FutexSignal>,
    /// Corruption of the ring, once it was detected.
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
        let signal = FutexSignal::new(segment, at, SPACE, ARRIVALS)?;
        let ring = RingSender::new(map(segment, at, geometry)?, geometry, signal, POLICY);
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

    /// Adds a liveness check of the receiving rank: waiting ends when it reports an exit. The check is
    /// dropped with the sender.
    #[must_use]
    pub fn watching_rank(mut self, receiver: Arc<dyn RankLiveness>) -> Sender {
        let signal = self.ring.signal_mut();
        signal.rank = std::mem::take(&mut signal.rank).and(receiver);
        self
    }

    /// Sets the receiver's event, which this sender notifies on request, also on behalf of the poll
    /// set of the ring. A sender to another node notifies the node service instead,
    /// which receives from it, so this changes nothing there.
    #[must_use]
    pub fn with_event(mut self, event: Event) -> Sender {
        let signal = self.ring.signal_mut();
        signal.event = signal.service.clone().or(Some(event));
        self
    }

    /// Sets the event of the node service, which receives what this sender sends to another node.
    #[must_use]
    pub fn to_node_service(mut self, event: Event) -> Sender {
        let signal = self.ring.signal_mut();
        signal.event = Some(event.clone());
        signal.service = Some(event);
        self
    }

    /// Requests a notification of the node service's event when it has released space, until
    /// [`Self::stir`]. A heavy fence and one more attempt must follow.
    pub(crate) fn request_space(&self) {
        self.ring.mark_asleep();
    }

    /// Withdraws the request for space.
    pub(crate) fn stir(&self) {
        self.ring.stir();
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
    pub fn reserve(&mut self, header: BasicHeader, bytes: usize) -> Result<Buffer<'_>, SendError> {
        self.reserve_before(header, bytes, None)
    }

    /// Reserves like [`Self::reserve`], waiting until `deadline` at the latest.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`], and [`SendError::Timeout`].
    pub fn reserve_deadline(
        &mut self,
        header: BasicHeader,
        bytes: usize,
        deadline: Instant,
    ) -> Result<Buffer<'_>, SendError> {
        self.reserve_before(header, bytes, Some(deadline))
    }

    fn reserve_before(
        &mut self,
        header: BasicHeader,
        bytes: usize,
        deadline: Option<Instant>,
    ) -> Result<Buffer<'_>, SendError> {
        match self.ring.wait_for_space(bytes, deadline) {
            Ok(space) => Ok(self.buffer(header, space)),
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
        header: BasicHeader,
        bytes: usize,
    ) -> Result<Option<Buffer<'_>>, SendError> {
        match self.ring.space_for(bytes) {
            Ok(Some(space)) => Ok(Some(self.buffer(header, space))),
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
            RingError::Interrupted => match self.ring.signal().interruption() {
                Ok(exit) => exit.into(),
                Err(pid) => SendError::ProcessExited { pid },
            },
        }
    }

    fn buffer(&mut self, header: BasicHeader, space: FreeSpace) -> Buffer<'_> {
        Buffer { composing: self.ring.compose(header, space) }
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
    pub fn send(&mut self, header: BasicHeader, bytes: &[u8]) -> Result<(), SendError> {
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
        header: BasicHeader,
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
        header: BasicHeader,
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
    pub fn try_send(&mut self, header: BasicHeader, bytes: &[u8]) -> Result<bool, SendError> {
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
    composing: ReservedMessage<'a, MappedRing, FutexSignal>,
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

    pub(crate) fn finish_with(self, bytes: &[u8]) {
        // In atomic words, although the receiver does not read these lines yet: in a connection,
        // which uses the same ring, the other end may be hostile.
        words::store_bytes(self.composing.words(), bytes);
        self.finish();
    }
}
