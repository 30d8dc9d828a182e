//! The end of a link that receives.

use std::sync::Arc;
use std::time::Instant;

use shm::segment::{Offset, Segment};

use super::error::{DmaError, OpenError};
use super::header::{self, Header};
use super::layout::Place;
use super::process_memory;
use super::reach::Reach;
use super::sender::padded;
use super::{DirectPath, Owner, Path, Received, moving};
use crate::channel::End;
use crate::peer::Watch;
use crate::sync::Ordering;

/// The end that receives. Held by one thread at a time.
#[derive(Debug)]
pub struct Receiver {
    place: Place,
    /// How far this end is in the stream.
    at: u64,
    /// How far it has told the sender.
    published: u64,
    reach: Reach,
    watch: Watch,
    /// Let go of after the end was closed (see `drop`).
    pub(super) owner: Option<Arc<Owner>>,
}

impl Receiver {
    /// Opens the receiving end of the link at `offset`. That can be done once.
    ///
    /// # Errors
    /// [`OpenError::NoLink`], [`OpenError::AlreadyOpened`], [`OpenError::Segment`],
    /// [`OpenError::Process`].
    pub fn open(segment: &Arc<Segment>, offset: Offset) -> Result<Self, OpenError> {
        let place = Place::open(segment, offset)?;
        place.take(End::Receiver)?;
        let reach = Reach::new(&place, End::Receiver);
        Ok(Receiver { place, at: 0, published: 0, reach, watch: Watch::default(), owner: None })
    }

    /// Whether there is a direct path to the sender's memory, and if not, why.
    pub fn direct_path(&mut self) -> DirectPath {
        self.reach.direct_path(&self.place)
    }

    /// Receives the next message into `buffer` and waits for it if it has not come.
    ///
    /// # Errors
    /// [`DmaError::TooLong`], [`DmaError::Closed`], [`DmaError::PeerGone`], [`DmaError::Moving`],
    /// [`DmaError::Broken`]. After all but the first, what the buffer holds means nothing.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Received, DmaError> {
        self.receive_before(buffer, None)
    }

    /// As [`Receiver::receive`], but waits no longer than `deadline` for a message to begin. One
    /// that has begun is received to its end.
    ///
    /// # Errors
    /// [`DmaError::DeadlinePassed`] and those of [`Receiver::receive`].
    pub fn receive_until(
        &mut self,
        buffer: &mut [u8],
        deadline: Instant,
    ) -> Result<Received, DmaError> {
        self.receive_before(buffer, Some(deadline))
    }

    fn receive_before(
        &mut self,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<Received, DmaError> {
        loop {
            let header = self.next_header(deadline)?;
            let (bytes, room) = (header.bytes(), buffer.len() as u64);
            if bytes > room {
                return Err(DmaError::TooLong { link: self.link(), bytes, room });
            }
            let buffer = &mut buffer[..bytes as usize];
            let received = match header {
                Header::Staged { .. } => self.unstage(buffer)?.then_some(Path::Staged),
                Header::Direct { address, turn, .. } => {
                    self.copy(address, turn, buffer)?.then_some(Path::Direct)
                }
                Header::InPlace { at, turn, .. } => {
                    let copied =
                        self.inspect(at, bytes, turn, |there| buffer.copy_from_slice(there))?;
                    copied.map(|()| Path::InPlace)
                }
            };
            // A message that the sender has given up was never sent: go on to the next.
            if let Some(path) = received {
                return Ok(Received { bytes: bytes as usize, path });
            }
        }
    }

    /// Receives the next message and lends it to `read`: in place if it lies in the segment,
    /// otherwise from a buffer that it is copied to.
    ///
    /// # Errors
    /// [`DmaError::Closed`], [`DmaError::PeerGone`], [`DmaError::Moving`], [`DmaError::Broken`].
    pub fn receive_with<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, DmaError> {
        let mut read = Some(read);
        loop {
            let header = self.next_header(None)?;
            let bytes = header.bytes();
            let result = if let Header::InPlace { at, turn, .. } = header {
                self.inspect(at, bytes, turn, |there| read.take().map(|read| read(there)))?
                    .flatten()
            } else {
                let mut buffer = vec![0; bytes as usize];
                let received = match header {
                    Header::Direct { address, turn, .. } => {
                        self.copy(address, turn, &mut buffer)?
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

    /// Waits for a header; does not go past it.
    fn next_header(&mut self, deadline: Option<Instant>) -> Result<Header, DmaError> {
        let (place, at) = (&self.place, self.at);
        let look = || match available(place, at, at) {
            Ok(0) => place.bell(End::Sender).is_closed().then(|| match available(place, at, at) {
                Ok(0) => Err(DmaError::Closed { link: place.offset() }),
                other => other,
            }),
            other => Some(other),
        };
        let there = place.wait(End::Receiver, &mut self.watch, deadline, look)??;
        let mut line = [0; header::BYTES as usize];
        if there < header::BYTES || self.place.unstage(self.at, &mut line).is_err() {
            return Err(self.broken());
        }
        Header::of_line(line).ok_or_else(|| self.broken())
    }

    /// Copies a message out of the staging area while the sender copies it in; gives false if the
    /// sender has given it up.
    fn unstage(&mut self, buffer: &mut [u8]) -> Result<bool, DmaError> {
        let begin = self.at;
        self.at += header::BYTES;
        let most = (self.place.staging() / 4) as usize;
        let mut rest = buffer;
        while !rest.is_empty() {
            let (place, at) = (&self.place, self.at);
            let look = || match available(place, begin, at) {
                // Acquire: pairs with the Release in `Sender::give_up`.
                Ok(0) if place.head.filled.cut.load(Ordering::Acquire) == at => Some(Ok(0)),
                Ok(0) => {
                    place.bell(End::Sender).is_closed().then(|| match available(place, begin, at) {
                        Ok(0) => Err(DmaError::Closed { link: place.offset() }),
                        other => other,
                    })
                }
                other => Some(other),
            };
            let there = place.wait(End::Receiver, &mut self.watch, None, look)??;
            if there == 0 {
                self.publish();
                return Ok(false);
            }
            let count = rest.len().min(there as usize).min(most);
            let (now, later) = rest.split_at_mut(count);
            self.place.unstage(self.at, now).map_err(|_| self.broken())?;
            self.at += padded(count);
            rest = later;
            if self.at - self.published >= most as u64 {
                self.publish();
            }
        }
        self.publish();
        Ok(true)
    }

    /// Copies a message from the sender's memory, together with the sender; gives false if that has
    /// withdrawn it.
    fn copy(&mut self, address: u64, number: u64, buffer: &mut [u8]) -> Result<bool, DmaError> {
        let (place, link) = (&self.place, self.place.offset());
        let turn = &place.head.turn;
        let (bytes, target) = (buffer.len() as u64, buffer.as_mut_ptr());
        let joined = turn.join(number, target as u64);
        let outcome = if joined {
            place.bell(End::Sender).wake();
            let process = self.reach.find_out(place).ok();
            let copied = process.map_or(Ok(()), |process| {
                turn.copy_parts(bytes, |start, count| {
                    // SAFETY: the part lies in `buffer`, which is borrowed exclusively, and no
                    // other part overlaps it: the sender, who writes into the buffer too, claims
                    // its parts from the same counter.
                    let part = unsafe {
                        std::slice::from_raw_parts_mut(target.add(start as usize), count as usize)
                    };
                    let moved = process_memory::read(process, address.wrapping_add(start), part);
                    moved.map_err(|refusal| moving(link, process, count, refusal))
                })
            });
            place.bell(End::Sender).wake();
            // The sender may write into the buffer until then, so that this returns only when it is
            // done or dead.
            let all = place.wait(End::Receiver, &mut self.watch, None, || turn.progress(bytes))?;
            turn.finish(number);
            copied.and(if all { Ok(true) } else { Err(DmaError::Broken { link }) })
        } else {
            Ok(false)
        };
        self.pass_header();
        outcome
    }

    /// Lends a message that lies in the segment; gives `None` if the sender has withdrawn it.
    fn inspect<R>(
        &mut self,
        at: Offset,
        bytes: u64,
        number: u64,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, DmaError> {
        let turn = &self.place.head.turn;
        let result = turn.join(number, 0).then(|| self.place.memory().inspect(at, bytes, read));
        if result.is_some() {
            turn.finish(number);
        }
        self.pass_header();
        // A place outside the segment is nonsense.
        result.transpose().map_err(|_| self.broken())
    }

    /// Goes on behind a header without data.
    fn pass_header(&mut self) {
        self.at += header::BYTES;
        self.publish();
    }

    /// Tells the sender how far this end is.
    fn publish(&mut self) {
        self.published = self.at;
        // Release: pairs with the Acquire in `Sender::wait_for_room`; everything before has been
        // read.
        self.place.head.emptied.emptied.store(self.at, Ordering::Release);
        self.place.bell(End::Sender).wake();
    }

    /// Where the link lies.
    pub fn link(&self) -> Offset {
        self.place.offset()
    }

    #[cold]
    fn broken(&self) -> DmaError {
        DmaError::Broken { link: self.place.offset() }
    }
}

/// How many bytes of the stream have come from position `at` on, of the message that begins at
/// `begin` if the sender has given that up.
fn available(place: &Place, begin: u64, at: u64) -> Result<u64, DmaError> {
    // Acquire, both: pair with the Release in `Sender::publish` and `give_up`. The cut comes
    // second: whoever sees bytes that were filled after it sees the cut.
    let filled = place.head.filled.filled.load(Ordering::Acquire);
    let cut = place.head.filled.cut.load(Ordering::Acquire);
    let end = if cut > begin { cut.min(filled) } else { filled };
    match end.checked_sub(at) {
        Some(there) if there <= place.staging() => Ok(there),
        _ => Err(DmaError::Broken { link: place.offset() }),
    }
}

impl Drop for Receiver {
    /// A sender that waits is told at once.
    fn drop(&mut self) {
        self.place.close(End::Receiver);
    }
}
