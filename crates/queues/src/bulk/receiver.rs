//! The receiving end of a link.

use super::direct_access::DirectAccess;
use super::error::BulkError;
use super::header::{self, BulkHeader};
use super::memory::LinkMemory;
use super::owner::LinkOwner;
use super::path::{DirectPath, Path, Received};
use crate::sync::Ordering;
use shm::liveness::ProcessWatch;
use shm::object::CreateError;
use shm::process_memory;
use shm::process_table::End;
use shm::segment::{Offset, Segment};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The receiving end. Used by one thread at a time.
#[derive(Debug)]
pub struct Receiver {
    memory: LinkMemory,
    /// Position of this end in the stream.
    at: u64,
    /// Position that the sender has been notified of.
    published: u64,
    access: DirectAccess,
    watch: ProcessWatch,
    /// Dropped after the end was closed (see `drop`).
    owner: Option<Arc<LinkOwner>>,
}

impl Receiver {
    /// Connects to the receiving end of the link at `offset`. That is possible once.
    ///
    /// # Errors
    /// [`CreateError::NotFound`], [`CreateError::Taken`], [`CreateError::Segment`],
    /// [`CreateError::Process`].
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        let memory = LinkMemory::connect(segment, offset, End::Receiver)?;
        let access = DirectAccess::new(&memory, End::Receiver);
        let watch = ProcessWatch::default();
        Ok(Receiver { memory, at: 0, published: 0, access, watch, owner: None })
    }

    /// Keeps the link's memory allocated as long as this end.
    pub(super) fn keep_owner(&mut self, owner: Arc<LinkOwner>) {
        self.owner = Some(owner);
    }

    /// Returns whether there is a direct path to the sender's memory, and if not, the reason.
    pub fn direct_path(&mut self) -> DirectPath {
        self.access.direct_path(&self.memory)
    }

    /// Receives the next message into `buffer`. Blocks until it has arrived.
    ///
    /// # Errors
    /// [`BulkError::TooLong`], [`BulkError::Closed`], [`BulkError::ProcessExited`],
    /// [`BulkError::Copy`], [`BulkError::Corrupt`]. After all but the first, the contents of the
    /// buffer are unspecified.
    pub fn recv(&mut self, buffer: &mut [u8]) -> Result<Received, BulkError> {
        self.recv_before(buffer, None)
    }

    /// Receives as [`Receiver::recv`] does, but waits at most for `timeout` for a message to begin.
    ///
    /// # Errors
    /// Those of [`Receiver::recv_deadline`].
    pub fn recv_timeout(
        &mut self,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<Received, BulkError> {
        self.recv_before(buffer, Instant::now().checked_add(timeout))
    }

    /// Receives as [`Receiver::recv`] does, but waits at most until `deadline` for a message to
    /// begin. A message that has begun is received to its end.
    ///
    /// # Errors
    /// [`BulkError::Timeout`] and those of [`Receiver::recv`].
    pub fn recv_deadline(
        &mut self,
        buffer: &mut [u8],
        deadline: Instant,
    ) -> Result<Received, BulkError> {
        self.recv_before(buffer, Some(deadline))
    }

    fn recv_before(
        &mut self,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<Received, BulkError> {
        loop {
            let header = self.next_header(deadline)?;
            let bytes = header.bytes();
            let capacity = buffer.len() as u64;
            if bytes > capacity {
                return Err(BulkError::TooLong { link: self.link(), bytes, capacity });
            }
            let buffer = &mut buffer[..bytes as usize];
            let received = match header {
                BulkHeader::Staged { .. } => self.unstage(buffer)?.then_some(Path::Staged),
                BulkHeader::Direct { address, transfer, .. } => {
                    self.copy(address, transfer, buffer)?.then_some(Path::Direct)
                }
                BulkHeader::InPlace { at, transfer, .. } => {
                    let copied =
                        self.inspect(at, bytes, transfer, |there| buffer.copy_from_slice(there))?;
                    copied.map(|()| Path::InPlace)
                }
            };
            // An aborted or withdrawn message counts as never sent: continue with the next.
            if let Some(path) = received {
                return Ok(Received { bytes: bytes as usize, path });
            }
        }
    }

    /// Receives the next message and passes it to `read`: in place if it lies in the segment,
    /// otherwise from a buffer into which it is copied.
    ///
    /// # Errors
    /// [`BulkError::Closed`], [`BulkError::ProcessExited`], [`BulkError::Copy`],
    /// [`BulkError::Corrupt`].
    pub fn recv_with<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, BulkError> {
        let mut read = Some(read);
        loop {
            let header = self.next_header(None)?;
            let bytes = header.bytes();
            let result = if let BulkHeader::InPlace { at, transfer, .. } = header {
                self.inspect(at, bytes, transfer, |there| read.take().map(|read| read(there)))?
                    .flatten()
            } else {
                let mut buffer = vec![0; bytes as usize];
                let received = match header {
                    BulkHeader::Direct { address, transfer, .. } => {
                        self.copy(address, transfer, &mut buffer)?
                    }
                    _ => self.unstage(&mut buffer)?,
                };
                received.then(|| read.take().map(|read| read(&buffer))).flatten()
            };
            if let Some(result) = result {
                return Ok(result);
            }
        }
    }

    /// Waits for a header. It stays the next item of the stream.
    fn next_header(&mut self, deadline: Option<Instant>) -> Result<BulkHeader, BulkError> {
        let memory = &self.memory;
        let at = self.at;
        let poll = || match available(memory, at, at) {
            // The sender publishes before it closes. So the second look at the stream, after the
            // closed bit was seen, finds everything that it sent.
            Ok(0) => {
                memory.wakeup(End::Sender).is_closed().then(|| match available(memory, at, at) {
                    Ok(0) => Err(BulkError::Closed { link: memory.offset() }),
                    other => other,
                })
            }
            other => Some(other),
        };
        let there = memory.wait(End::Receiver, &mut self.watch, deadline, poll)??;
        let mut line = [0; header::BYTES as usize];
        if there < header::BYTES || self.memory.unstage(self.at, &mut line).is_err() {
            return Err(self.broken());
        }
        BulkHeader::of_line(line).ok_or_else(|| self.broken())
    }

    /// Copies a message out of the staging area while the sender copies it in. Returns false if the
    /// sender has aborted it.
    fn unstage(&mut self, buffer: &mut [u8]) -> Result<bool, BulkError> {
        let begin = self.at;
        self.at += header::BYTES;
        let max = (self.memory.staging() / 4) as usize;
        let mut rest = buffer;
        while !rest.is_empty() {
            let there = self.wait_for_bytes(begin)?;
            if there == 0 {
                self.publish();
                return Ok(false);
            }
            let count = rest.len().min(there as usize).min(max);
            let (now, later) = rest.split_at_mut(count);
            self.memory.unstage(self.at, now).map_err(|_| self.broken())?;
            self.at += header::padded(count);
            rest = later;
            if self.at - self.published >= max as u64 {
                self.publish();
            }
        }
        self.publish();
        Ok(true)
    }

    /// Waits for more bytes of the message that begins at `begin`. Returns 0 if it was aborted
    /// here.
    fn wait_for_bytes(&mut self, begin: u64) -> Result<u64, BulkError> {
        let memory = &self.memory;
        let at = self.at;
        let poll = || match available(memory, begin, at) {
            // Acquire: pairs with the Release in `Sender::abort_message`.
            Ok(0) if memory.header.sent.aborted_at.load(Ordering::Acquire) == at => Some(Ok(0)),
            Ok(0) => {
                memory.wakeup(End::Sender).is_closed().then(|| match available(memory, begin, at) {
                    Ok(0) => Err(BulkError::Closed { link: memory.offset() }),
                    other => other,
                })
            }
            other => Some(other),
        };
        memory.wait(End::Receiver, &mut self.watch, None, poll)?
    }

    /// Copies a message from the sender's memory, together with the sender. Returns false if the
    /// sender has withdrawn it.
    fn copy(&mut self, address: u64, number: u64, buffer: &mut [u8]) -> Result<bool, BulkError> {
        let memory = &self.memory;
        let link = memory.offset();
        let transfer = &memory.header.transfer;
        let bytes = buffer.len() as u64;
        let target = buffer.as_mut_ptr();
        let joined = transfer.join(number, target as u64);
        let outcome = if joined {
            memory.wakeup(End::Sender).notify();
            let process = self.access.peer(memory).ok();
            let copied = process.map_or(Ok(()), |process| {
                transfer.parts.copy_parts(bytes, |part| {
                    let start = part.start;
                    let count = part.end - part.start;
                    // SAFETY: the part lies in `buffer`, which is borrowed exclusively, and no
                    // other part overlaps it: the sender, which writes into the buffer too, claims
                    // its parts from the same counter.
                    let part = unsafe {
                        std::slice::from_raw_parts_mut(target.add(start as usize), count as usize)
                    };
                    let moved = process_memory::read(process, address.wrapping_add(start), part);
                    moved.map_err(|failure| BulkError::of_access(link, process, count, failure))
                })
            });
            memory.wakeup(End::Sender).notify();
            // The sender may write into the buffer until all parts are done, so this returns only
            // when they are, or when the sender is dead.
            let all = memory
                .wait(End::Receiver, &mut self.watch, None, || transfer.parts.outcome(bytes))?;
            transfer.finish(number);
            copied.and(if all { Ok(true) } else { Err(BulkError::Corrupt { link }) })
        } else {
            Ok(false)
        };
        self.pass_header();
        outcome
    }

    /// Passes a message that lies in the segment to `read`. Returns `None` if the sender has
    /// withdrawn it.
    fn inspect<R>(
        &mut self,
        at: Offset,
        bytes: u64,
        number: u64,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, BulkError> {
        let transfer = &self.memory.header.transfer;
        let result =
            transfer.join(number, 0).then(|| self.memory.memory().inspect(at, bytes, read));
        if result.is_some() {
            transfer.finish(number);
        }
        self.pass_header();
        // No sender offers a range outside the segment: the header was overwritten.
        result.transpose().map_err(|_| self.broken())
    }

    /// Advances past a header without data in the stream.
    fn pass_header(&mut self) {
        self.at += header::BYTES;
        self.publish();
    }

    /// Publishes the position of this end.
    fn publish(&mut self) {
        self.published = self.at;
        // Release: pairs with the Acquire in `Sender::wait_for_credit`; all bytes before have been
        // read.
        self.memory.header.received.emptied.store(self.at, Ordering::Release);
        self.memory.wakeup(End::Sender).notify();
    }

    /// Returns the offset of the link.
    pub fn link(&self) -> Offset {
        self.memory.offset()
    }

    #[cold]
    fn broken(&self) -> BulkError {
        BulkError::Corrupt { link: self.memory.offset() }
    }
}

/// Returns the number of bytes available at position `at` of the stream. If the message that begins
/// at `begin` was aborted, only bytes of that message count.
fn available(memory: &LinkMemory, begin: u64, at: u64) -> Result<u64, BulkError> {
    // Acquire, both: pair with the Release in `Sender::publish` and `abort_message`. The abort is
    // loaded second: the sender stores it before it fills anything later, so a load of `filled`
    // that covers later bytes is followed by one that sees the abort.
    let filled = memory.header.sent.filled.load(Ordering::Acquire);
    let aborted_at = memory.header.sent.aborted_at.load(Ordering::Acquire);
    let end = if aborted_at > begin { aborted_at.min(filled) } else { filled };
    match end.checked_sub(at) {
        Some(there) if there <= memory.staging() => Ok(there),
        _ => Err(BulkError::Corrupt { link: memory.offset() }),
    }
}

impl Drop for Receiver {
    /// Closes the end and wakes a waiting sender.
    fn drop(&mut self) {
        self.memory.close(End::Receiver);
    }
}
