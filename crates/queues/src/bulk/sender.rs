//! The sending end of a link.

use super::direct_access::DirectAccess;
use super::error::BulkError;
use super::header::{self, BulkHeader};
use super::memory::LinkMemory;
use super::owner::LinkOwner;
use super::path::{DirectPath, Path, Policy};
use super::shared_transfer::TransferState;
use crate::sync::Ordering;
use shm::liveness::ProcessWatch;
use shm::object::CreateError;
use shm::owned::OwnedBytes;
use shm::process_memory;
use shm::process_table::End;
use shm::segment::{Offset, Segment};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Fewest bytes between two publications: each costs about as much as the transfer of one or two
/// cache lines.
const MIN_PIECE: u64 = 4096;

/// Fewest bytes that the receiver copies alone while the sender computes: the sender stages fewer in
/// less time than a transfer takes to begin.
const MIN_UNATTENDED: usize = 32 << 10;

/// Bytes of the staging area that the sender prefetches for the next message.
const AHEAD: u64 = 4096;

/// The sending end. Used by one thread at a time.
#[derive(Debug)]
pub struct Sender {
    memory: LinkMemory,
    /// Position of this end in the stream.
    filled: u64,
    /// Position of the receiver, as last loaded.
    emptied: u64,
    /// Position of the last aborted message. The receiver has to pass it before anything new is
    /// sent.
    aborted_at: u64,
    /// Number of the last offered transfer.
    transfer: u64,
    access: DirectAccess,
    policy: Policy,
    watch: ProcessWatch,
    /// Dropped after the end was closed (see `drop`).
    owner: Option<Arc<LinkOwner>>,
}

impl Sender {
    /// Connects to the sending end of the link at `offset`. That is possible once.
    ///
    /// # Errors
    /// [`CreateError::NotFound`], [`CreateError::Taken`], [`CreateError::Segment`],
    /// [`CreateError::Process`].
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        let memory = LinkMemory::connect(segment, offset, End::Sender)?;
        let access = DirectAccess::new(&memory, End::Sender);
        Ok(Sender {
            memory,
            filled: 0,
            emptied: 0,
            aborted_at: 0,
            transfer: 0,
            access,
            policy: Policy::Automatic,
            watch: ProcessWatch::default(),
            owner: None,
        })
    }

    /// Keeps the link's memory allocated as long as this end.
    pub(super) fn keep_owner(&mut self, owner: Arc<LinkOwner>) {
        self.owner = Some(owner);
    }

    /// Sets the path for later messages from private memory.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Returns whether there is a direct path to the receiver's memory, and if not, the reason.
    pub fn direct_path(&mut self) -> DirectPath {
        self.access.direct_path(&self.memory)
    }

    /// Sends a message. Blocks until `bytes` may be modified, and returns the path that was used.
    ///
    /// # Errors
    /// [`BulkError::Closed`], [`BulkError::ProcessExited`], [`BulkError::NoDirectPath`] if the policy
    /// allows no other, [`BulkError::Copy`], [`BulkError::Corrupt`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<Path, BulkError> {
        self.send_before(bytes, None)
    }

    /// Sends a message as [`Sender::send`] does, but fails if the receiver has not freed space, or
    /// not joined a direct transfer, within `timeout`.
    ///
    /// # Errors
    /// Those of [`Sender::send_deadline`].
    pub fn send_timeout(&mut self, bytes: &[u8], timeout: Duration) -> Result<Path, BulkError> {
        self.send_before(bytes, Instant::now().checked_add(timeout))
    }

    /// Sends a message as [`Sender::send`] does, but fails if the receiver has not freed space, or
    /// not joined a direct transfer, by the deadline. A direct transfer that both ends have begun
    /// is completed in any case.
    ///
    /// # Errors
    /// [`BulkError::Timeout`] and those of [`Sender::send`].
    pub fn send_deadline(&mut self, bytes: &[u8], deadline: Instant) -> Result<Path, BulkError> {
        self.send_before(bytes, Some(deadline))
    }

    /// Sends a message while `compute` runs in this thread: the receiver copies it alone, so the
    /// transfer adds almost nothing to the computation. Returns the result of `compute`, and the path
    /// that was used, when `bytes` may be modified.
    ///
    /// Short messages, and those that the receiver may not read from this process's memory, are sent
    /// as by [`Sender::send`] before the computation begins.
    ///
    /// ```
    /// use queues::bulk;
    /// # use shm::{arena::Arena, segment::{Backing, Segment}};
    /// # use std::sync::Arc;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let segment = Arc::new(Segment::create(4 << 20, Backing::Memory)?);
    /// # let arena = Arc::new(Arena::new(segment, 0..4 << 20)?);
    /// let (mut sender, mut receiver) = bulk::pair(&arena, bulk::DEFAULT_STAGING_BYTES)?;
    /// let message = vec![7; 1 << 20];
    /// std::thread::scope(|scope| {
    ///     let received = scope.spawn(move || {
    ///         let mut buffer = vec![0; 1 << 20];
    ///         receiver.recv(&mut buffer).map(|_| buffer)
    ///     });
    ///     let (sum, sent) = sender.send_while(&message, || (1..=1000).sum::<u32>());
    ///     sent?;
    ///     assert_eq!(sum, 500_500);
    ///     assert_eq!(received.join().expect("no panic")?, message);
    ///     Ok::<(), bulk::BulkError>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Sender::send`], beside the result of `compute`, which runs in any case.
    pub fn send_while<R>(
        &mut self,
        bytes: &[u8],
        compute: impl FnOnce() -> R,
    ) -> (R, Result<Path, BulkError>) {
        let is_unattended = self.policy != Policy::Staged
            && bytes.len() >= MIN_UNATTENDED
            && self.direct_path().there;
        if !is_unattended {
            let sent = self.send(bytes);
            return (compute(), sent);
        }
        let offered = self.publish_offer(None, direct_header(bytes));
        // The receiver reads from `bytes` from here on, so the transfer ends before a panic goes on.
        let result = catch_unwind(AssertUnwindSafe(compute));
        let sent = offered
            .and_then(|()| self.await_join(None))
            .and_then(|()| self.copy_direct(bytes))
            .map(|()| Path::Direct);
        (result.unwrap_or_else(|panic| resume_unwind(panic)), sent)
    }

    fn send_before(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<Path, BulkError> {
        if self.is_direct(bytes.len())? {
            self.send_direct(bytes, deadline).map(|()| Path::Direct)
        } else {
            self.send_staged(bytes, deadline).map(|()| Path::Staged)
        }
    }

    fn is_direct(&mut self, bytes: usize) -> Result<bool, BulkError> {
        match self.policy {
            Policy::Staged => Ok(false),
            // Two copies through memory that lies in no private cache cost less than system calls
            // that look up every page.
            Policy::Automatic if bytes as u64 <= 2 * self.memory.staging() => Ok(false),
            policy => {
                let DirectPath { here, there } = self.direct_path();
                match here {
                    Err(reason) if !there && policy == Policy::Direct => {
                        Err(BulkError::NoDirectPath { link: self.memory.offset(), reason })
                    }
                    here => Ok(there || here.is_ok()),
                }
            }
        }
    }

    /// Sends bytes of the link's segment without a copy: the receiver reads them in place. Blocks
    /// until it has.
    ///
    /// # Errors
    /// [`BulkError::OtherSegment`], [`BulkError::Closed`], [`BulkError::ProcessExited`],
    /// [`BulkError::Corrupt`].
    pub fn send_in_place(&mut self, bytes: &OwnedBytes) -> Result<Path, BulkError> {
        let link = self.memory.offset();
        let there = self.memory.memory().segment().bytes_ptr(bytes.offset(), bytes.bytes());
        if there.is_ok_and(|there| there.cast_const() != bytes.as_slice().as_ptr()) {
            return Err(BulkError::OtherSegment { link });
        }
        self.offer(None, |transfer| BulkHeader::InPlace {
            bytes: bytes.bytes(),
            at: bytes.offset(),
            transfer,
        })?;
        let memory = &self.memory;
        let number = self.transfer;
        memory.wait(End::Sender, &mut self.watch, None, || {
            memory.header.transfer.is(number, TransferState::Done).then_some(())
        })?;
        Ok(Path::InPlace)
    }

    fn send_direct(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<(), BulkError> {
        self.offer(deadline, direct_header(bytes))?;
        self.copy_direct(bytes)
    }

    /// Copies parts of a transfer that the receiver has joined, and waits until all are done.
    fn copy_direct(&mut self, bytes: &[u8]) -> Result<(), BulkError> {
        let length = bytes.len() as u64;
        let memory = &self.memory;
        let link = memory.offset();
        let shared = &memory.header.transfer;
        if let Ok(process) = self.access.peer(memory) {
            // Relaxed: the state, loaded with Acquire when the receiver joined, published it.
            let target = shared.target.load(Ordering::Relaxed);
            let copied = shared.parts.copy_parts(length, |part| {
                let start = part.start;
                let count = part.end - part.start;
                let part = &bytes[start as usize..(start + count) as usize];
                // SAFETY: the probe has verified that this number is the process at the other end.
                // That process has joined this transfer with a buffer of this length at `target`,
                // and waits until all parts are done before it uses the buffer.
                let moved =
                    unsafe { process_memory::write(process, target.wrapping_add(start), part) };
                moved.map_err(|failure| BulkError::of_access(link, process, count, failure))
            });
            memory.wakeup(End::Receiver).notify();
            copied?;
        }
        // The receiver reads from `bytes` until then, so the deadline no longer applies.
        let all =
            memory.wait(End::Sender, &mut self.watch, None, || shared.parts.outcome(length))?;
        if all { Ok(()) } else { Err(BulkError::Corrupt { link }) }
    }

    /// Offers a transfer and waits until the receiver has joined it.
    fn offer(
        &mut self,
        deadline: Option<Instant>,
        header: impl Fn(u64) -> BulkHeader,
    ) -> Result<(), BulkError> {
        self.publish_offer(deadline, header)?;
        self.await_join(deadline)
    }

    /// Offers a transfer, which the receiver may then join at any time.
    fn publish_offer(
        &mut self,
        deadline: Option<Instant>,
        header: impl Fn(u64) -> BulkHeader,
    ) -> Result<(), BulkError> {
        self.wait_for_credit(header::BYTES, deadline)?;
        let memory = &self.memory;
        let last = self.transfer;
        let transfer = &memory.header.transfer;
        let is_over = || transfer.is_over(last).then_some(());
        memory.wait(End::Sender, &mut self.watch, deadline, is_over)?;
        self.transfer += 1;
        let number = self.transfer;
        // The offer comes before its header: a receiver that reads the header finds the offer.
        transfer.offer(number);
        self.memory.stage(self.filled, &header(number).to_line()).map_err(|_| self.broken())?;
        self.publish(header::BYTES);
        Ok(())
    }

    /// Waits until the receiver has joined the offered transfer, and otherwise withdraws it.
    fn await_join(&mut self, deadline: Option<Instant>) -> Result<(), BulkError> {
        let memory = &self.memory;
        let number = self.transfer;
        let transfer = &memory.header.transfer;
        let poll = || {
            let joined = transfer.is(number, TransferState::Joined)
                || transfer.is(number, TransferState::Done);
            (joined || memory.wakeup(End::Receiver).is_closed()).then_some(joined)
        };
        match memory.wait(End::Sender, &mut self.watch, deadline, poll) {
            Ok(true) => Ok(()),
            // Too late to withdraw: the receiver has joined meanwhile.
            _ if !transfer.withdraw(number) => Ok(()),
            Ok(false) => Err(self.closed()),
            Err(error) => Err(error),
        }
    }

    fn send_staged(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<(), BulkError> {
        let piece = piece_bytes(bytes.len(), self.memory.staging());
        let (head, rest) = bytes.split_at(bytes.len().min(piece));
        let header = BulkHeader::Staged { bytes: bytes.len() as u64 };
        self.wait_for_credit(header::BYTES + header::padded(head.len()), deadline)?;
        self.memory.stage(self.filled, &header.to_line()).map_err(|_| self.broken())?;
        self.memory.stage(self.filled + header::BYTES, head).map_err(|_| self.broken())?;
        self.publish(header::BYTES + header::padded(head.len()));
        for next in rest.chunks(piece) {
            if let Err(error) = self.wait_for_credit(header::padded(next.len()), deadline) {
                self.abort_message();
                return Err(error);
            }
            self.memory.stage(self.filled, next).map_err(|_| self.broken())?;
            self.publish(header::padded(next.len()));
        }
        let ahead = (header::BYTES + header::padded(bytes.len())).min(AHEAD);
        self.memory.prefetch_ahead(self.filled, ahead);
        Ok(())
    }

    /// Aborts a message of which a part is published. The receiver discards that part; nothing new
    /// is sent before it has.
    fn abort_message(&mut self) {
        self.aborted_at = self.filled;
        // Release: pairs with the Acquire in `Receiver::available`, which loads it before it uses
        // bytes that were filled later.
        self.memory.header.sent.aborted_at.store(self.aborted_at, Ordering::Release);
        self.memory.wakeup(End::Receiver).notify();
    }

    /// Waits until the staging area has space for `bytes` more.
    fn wait_for_credit(&mut self, bytes: u64, deadline: Option<Instant>) -> Result<(), BulkError> {
        let memory = &self.memory;
        let filled = self.filled;
        let aborted_at = self.aborted_at;
        // The receiver has passed the last aborted message, and the new bytes end less than one
        // staging area ahead of it.
        let has_credit = |emptied: u64| {
            emptied >= aborted_at && filled + bytes <= emptied.saturating_add(memory.staging())
        };
        // The credit of the last load suffices as a rule, and saves the line that the receiver
        // writes.
        if has_credit(self.emptied) && !memory.wakeup(End::Receiver).is_closed() {
            return Ok(());
        }
        let poll = || {
            // Acquire: pairs with the Release in `Receiver::publish`. The receiver has read all
            // bytes before this position, so they may be overwritten.
            let emptied = memory.header.received.emptied.load(Ordering::Acquire);
            // The receiver cannot be ahead of the sender: another process wrote this.
            if emptied > filled {
                return Some(Err(BulkError::Corrupt { link: memory.offset() }));
            }
            if memory.wakeup(End::Receiver).is_closed() {
                return Some(Err(BulkError::Closed { link: memory.offset() }));
            }
            has_credit(emptied).then_some(Ok(emptied))
        };
        self.emptied = memory.wait(End::Sender, &mut self.watch, deadline, poll)??;
        Ok(())
    }

    /// Publishes `bytes` more of the stream.
    fn publish(&mut self, bytes: u64) {
        self.filled += bytes;
        // Release: pairs with the Acquire in `Receiver::available`; the bytes are visible with it.
        self.memory.header.sent.filled.store(self.filled, Ordering::Release);
        self.memory.wakeup(End::Receiver).notify();
    }

    /// Returns the offset of the link.
    pub fn link(&self) -> Offset {
        self.memory.offset()
    }

    #[cold]
    fn closed(&self) -> BulkError {
        BulkError::Closed { link: self.memory.offset() }
    }

    #[cold]
    fn broken(&self) -> BulkError {
        BulkError::Corrupt { link: self.memory.offset() }
    }
}

/// The header of a direct transfer, by the number of the transfer.
fn direct_header(bytes: &[u8]) -> impl Fn(u64) -> BulkHeader + use<> {
    let address = bytes.as_ptr() as u64;
    let bytes = bytes.len() as u64;
    move |transfer| BulkHeader::Direct { bytes, address, transfer }
}

impl Drop for Sender {
    /// Closes the end. The receiver gets all sent messages and then [`BulkError::Closed`].
    fn drop(&mut self) {
        self.memory.close(End::Sender);
    }
}

/// Returns the number of bytes staged between two publications: about an eighth of the message, so
/// that the receiver copies out while the sender copies in, and at most a quarter of the staging
/// area. A multiple of a line.
fn piece_bytes(bytes: usize, staging: u64) -> usize {
    let max = (staging / 4).min(16 << 10);
    (bytes as u64 / 8).next_multiple_of(header::BYTES).clamp(MIN_PIECE.min(max), max) as usize
}
