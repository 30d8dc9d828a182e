//! The end of a link that sends.

use std::sync::Arc;
use std::time::Instant;

use shm::owned::OwnedBytes;
use shm::segment::{Offset, Segment};

use super::error::{DmaError, OpenError};
use super::header::{self, Header};
use super::layout::Place;
use super::process_memory;
use super::reach::Reach;
use super::turn::State;
use super::{DirectPath, Owner, Path, Policy, moving};
use crate::channel::End;
use crate::peer::Watch;
use crate::sync::Ordering;

/// The fewest bytes between two publications: each costs about as much as it moves a cache line or
/// two.
const LEAST_PIECE: u64 = 4096;

/// How much of the staging area the sender asks for ahead of the next message.
const AHEAD: u64 = 4096;

/// The end that sends. Held by one thread at a time.
#[derive(Debug)]
pub struct Sender {
    place: Place,
    /// How far this end is in the stream.
    filled: u64,
    /// How far the receiver was when it was asked last.
    emptied: u64,
    /// The receiver has to pass this place before anything new is sent: a message was given up
    /// there.
    cut: u64,
    /// The number of the last transfer that was offered.
    turn: u64,
    reach: Reach,
    policy: Policy,
    watch: Watch,
    /// Let go of after the end was closed (see `drop`).
    pub(super) owner: Option<Arc<Owner>>,
}

impl Sender {
    /// Opens the sending end of the link at `offset`. That can be done once.
    ///
    /// # Errors
    /// [`OpenError::NoLink`], [`OpenError::AlreadyOpened`], [`OpenError::Segment`],
    /// [`OpenError::Process`].
    pub fn open(segment: &Arc<Segment>, offset: Offset) -> Result<Self, OpenError> {
        let place = Place::open(segment, offset)?;
        place.take(End::Sender)?;
        let reach = Reach::new(&place, End::Sender);
        let (watch, policy) = (Watch::default(), Policy::Automatic);
        Ok(Sender {
            place,
            filled: 0,
            emptied: 0,
            cut: 0,
            turn: 0,
            reach,
            policy,
            watch,
            owner: None,
        })
    }

    /// Chooses how messages from private memory are sent from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Whether there is a direct path to the receiver's memory, and if not, why.
    pub fn direct_path(&mut self) -> DirectPath {
        self.reach.direct_path(&self.place)
    }

    /// Sends bytes of this process's private memory, and waits until they may be changed again:
    /// they are in the staging area or in the receiver's buffer. Gives the path that they took.
    ///
    /// # Errors
    /// [`DmaError::Closed`], [`DmaError::PeerGone`], [`DmaError::NoDirectPath`] if the policy
    /// allows no other, [`DmaError::Moving`], [`DmaError::Broken`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<Path, DmaError> {
        self.send_before(bytes, None)
    }

    /// As [`Sender::send`], but gives up if the receiver has not made room, or not come, by the
    /// deadline. A direct transfer that both sides have begun is finished all the same.
    ///
    /// # Errors
    /// [`DmaError::DeadlinePassed`] and those of [`Sender::send`].
    pub fn send_until(&mut self, bytes: &[u8], deadline: Instant) -> Result<Path, DmaError> {
        self.send_before(bytes, Some(deadline))
    }

    fn send_before(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<Path, DmaError> {
        if self.goes_directly(bytes.len())? {
            self.send_directly(bytes, deadline).map(|()| Path::Direct)
        } else {
            self.send_staged(bytes, deadline).map(|()| Path::Staged)
        }
    }

    fn goes_directly(&mut self, bytes: usize) -> Result<bool, DmaError> {
        match self.policy {
            Policy::Staged => Ok(false),
            // Two copies through memory that nobody's cache holds cost less than system calls that
            // look up every page.
            Policy::Automatic if bytes as u64 <= 2 * self.place.staging() => Ok(false),
            policy => {
                let DirectPath { here, there } = self.direct_path();
                match here {
                    Err(reason) if !there && policy == Policy::Direct => {
                        Err(DmaError::NoDirectPath { link: self.place.offset(), reason })
                    }
                    here => Ok(there || here.is_ok()),
                }
            }
        }
    }

    /// Sends bytes that lie in the segment without copying them: the receiver reads them where they
    /// are, and this waits until it has. They must lie in the segment of the link.
    ///
    /// # Errors
    /// [`DmaError::OtherSegment`], [`DmaError::Closed`], [`DmaError::PeerGone`],
    /// [`DmaError::Broken`].
    pub fn send_in_place(&mut self, bytes: &OwnedBytes) -> Result<Path, DmaError> {
        let link = self.place.offset();
        let there = self.place.memory().segment().bytes_ptr(bytes.offset(), bytes.bytes());
        if there.is_ok_and(|there| there.cast_const() != bytes.as_slice().as_ptr()) {
            return Err(DmaError::OtherSegment { link });
        }
        self.offer(None, |turn| Header::InPlace {
            bytes: bytes.bytes(),
            at: bytes.offset(),
            turn,
        })?;
        let (place, turn) = (&self.place, self.turn);
        place.wait(End::Sender, &mut self.watch, None, || {
            place.head.turn.is(turn, State::Done).then_some(())
        })?;
        Ok(Path::InPlace)
    }

    fn send_directly(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<(), DmaError> {
        let (address, length) = (bytes.as_ptr() as u64, bytes.len() as u64);
        self.offer(deadline, |turn| Header::Direct { bytes: length, address, turn })?;
        let (place, link) = (&self.place, self.place.offset());
        let shared = &place.head.turn;
        if let Ok(process) = self.reach.find_out(place) {
            // Relaxed: the state, loaded with Acquire when the receiver joined, published it.
            let target = shared.target.load(Ordering::Relaxed);
            let copied = shared.copy_parts(length, |start, count| {
                let part = &bytes[start as usize..(start + count) as usize];
                // SAFETY: the probe has shown that this number means the process at the other end;
                // that has joined this transfer with a buffer of this length at `target`, and waits
                // until all parts are done.
                let moved =
                    unsafe { process_memory::write(process, target.wrapping_add(start), part) };
                moved.map_err(|refusal| moving(link, process, count, refusal))
            });
            place.bell(End::Receiver).wake();
            copied?;
        }
        // The bytes are lent to the receiver until then, so that no deadline counts any more.
        let all = place.wait(End::Sender, &mut self.watch, None, || shared.progress(length))?;
        if all { Ok(()) } else { Err(DmaError::Broken { link }) }
    }

    /// Offers a transfer and waits until the receiver has joined it.
    fn offer(
        &mut self,
        deadline: Option<Instant>,
        header: impl Fn(u64) -> Header,
    ) -> Result<(), DmaError> {
        self.wait_for_room(header::BYTES, deadline)?;
        let (place, last) = (&self.place, self.turn);
        let turn = &place.head.turn;
        place.wait(End::Sender, &mut self.watch, deadline, || turn.is_over(last).then_some(()))?;
        self.turn += 1;
        let number = self.turn;
        turn.offer(number);
        self.place.stage(self.filled, &header(number).to_line()).map_err(|_| self.broken())?;
        self.publish(header::BYTES);
        let (place, turn) = (&self.place, &self.place.head.turn);
        let look = || {
            let come = turn.is(number, State::Joined) || turn.is(number, State::Done);
            (come || place.bell(End::Receiver).is_closed()).then_some(come)
        };
        let waited = place.wait(End::Sender, &mut self.watch, deadline, look);
        match waited {
            Ok(true) => Ok(()),
            // Too late to take it back: the receiver is at it.
            _ if !turn.withdraw(number) => Ok(()),
            Ok(false) => Err(self.closed()),
            Err(error) => Err(error),
        }
    }

    fn send_staged(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<(), DmaError> {
        let piece = piece_bytes(bytes.len(), self.place.staging());
        let first = bytes.len().min(piece);
        let header = Header::Staged { bytes: bytes.len() as u64 };
        self.wait_for_room(header::BYTES + padded(first), deadline)?;
        self.place.stage(self.filled, &header.to_line()).map_err(|_| self.broken())?;
        let (head, rest) = bytes.split_at(first);
        self.place.stage(self.filled + header::BYTES, head).map_err(|_| self.broken())?;
        self.publish(header::BYTES + padded(first));
        for next in rest.chunks(piece) {
            if let Err(error) = self.wait_for_room(padded(next.len()), deadline) {
                self.give_up();
                return Err(error);
            }
            self.place.stage(self.filled, next).map_err(|_| self.broken())?;
            self.publish(padded(next.len()));
        }
        self.place.claim_ahead(self.filled, (header::BYTES + padded(bytes.len())).min(AHEAD));
        Ok(())
    }

    /// Leaves a message half sent. The receiver throws away what it has of it; nothing new is sent
    /// before.
    fn give_up(&mut self) {
        self.cut = self.filled;
        // Release: pairs with the Acquire in `Receiver::available`, which looks at it before it
        // uses what was filled later.
        self.place.head.filled.cut.store(self.cut, Ordering::Release);
        self.place.bell(End::Receiver).wake();
    }

    /// Waits until there is room for `bytes` more in the staging area.
    fn wait_for_room(&mut self, bytes: u64, deadline: Option<Instant>) -> Result<(), DmaError> {
        let (place, filled, cut) = (&self.place, self.filled, self.cut);
        let has_room = |emptied: u64| {
            emptied >= cut && filled + bytes <= emptied.saturating_add(place.staging())
        };
        if has_room(self.emptied) && !place.bell(End::Receiver).is_closed() {
            return Ok(());
        }
        let look = || {
            // Acquire: pairs with the Release in `Receiver::publish`; what was read is not
            // overwritten before.
            let emptied = place.head.emptied.emptied.load(Ordering::Acquire);
            if emptied > filled {
                return Some(Err(DmaError::Broken { link: place.offset() }));
            }
            if place.bell(End::Receiver).is_closed() {
                return Some(Err(DmaError::Closed { link: place.offset() }));
            }
            has_room(emptied).then_some(Ok(emptied))
        };
        self.emptied = place.wait(End::Sender, &mut self.watch, deadline, look)??;
        Ok(())
    }

    /// Publishes `bytes` more of the stream.
    fn publish(&mut self, bytes: u64) {
        self.filled += bytes;
        // Release: pairs with the Acquire in `Receiver::available`; the bytes are there.
        self.place.head.filled.filled.store(self.filled, Ordering::Release);
        self.place.bell(End::Receiver).wake();
    }

    /// Where the link lies.
    pub fn link(&self) -> Offset {
        self.place.offset()
    }

    #[cold]
    fn closed(&self) -> DmaError {
        DmaError::Closed { link: self.place.offset() }
    }

    #[cold]
    fn broken(&self) -> DmaError {
        DmaError::Broken { link: self.place.offset() }
    }
}

impl Drop for Sender {
    /// The receiver gets everything that was sent, and then learns that it was all.
    fn drop(&mut self) {
        self.place.close(End::Sender);
    }
}

/// Whole lines, so that every header starts a line.
pub(super) fn padded(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(header::BYTES)
}

/// How many bytes are staged between two publications: about an eighth of the message, so that the
/// receiver copies out while the sender copies in, and never more than a quarter of the staging
/// area. Whole lines.
fn piece_bytes(bytes: usize, staging: u64) -> usize {
    let most = (staging / 4).min(16 << 10);
    (bytes as u64 / 8).next_multiple_of(header::BYTES).clamp(LEAST_PIECE.min(most), most) as usize
}
