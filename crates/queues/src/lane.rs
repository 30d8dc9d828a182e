//! Lanes: messages between two processes that need not trust each other, one direction each.
//!
//! A lane is a [Basic](crate::basic) ring in memory of its own, which only the two processes have mapped, and a socket
//! between them over which the one wakes the other; the [post office](crate::post) makes both. The kernel tells each end
//! over the socket when the other's process has ended.
//!
//! Either end may write anything to the ring at any time. So the receiving end takes every message out before it looks at
//! it and checks every word it believes; what no honest sender writes is a [`LaneError::Corrupt`] that names the sender,
//! and the lane is closed. The sending end checks the one word it reads. Neither ever waits for the other but in the
//! blocking forms, and those have deadlines.

use crate::barrier::Barrier;
use crate::basic::ring::{Bell, Geometry, Interrupted, RingError, Seen};
use crate::basic::words::store_bytes;
use crate::basic::{Corruption, Header, LOOKS, UNCERTAIN, geometry, map, receiver, sender};
use crate::name::{QueueName, SourceName};
use crate::post::control::Control;
use crate::post::{Closing, LaneOffer};
use crate::table::{DestinationTable, SourceTable, TableError};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::time::Timespec;
use shm::handle::MappedSlice;
use shm::segment::{Offset, Segment};
use shm::sync::AtomicU64;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an end sleeps before it looks what the post office says. Another thread may have taken that from the socket.
const SLICE: Duration = Duration::from_millis(250);

/// After so many messages an end looks what the post office says, and after so many looks in vain whether the other end
/// is still there.
const NEWS: u32 = 256;

type Memory = MappedSlice<AtomicU64>;

/// The process at the other end of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partner {
    /// Its job's name.
    pub job: String,
    /// Which process of the job it is.
    pub process: u32,
    /// Its number in the system.
    pub pid: u32,
}

impl fmt::Display for Partner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {} of job {} (pid {})", self.process, self.job, self.pid)
    }
}

/// Why a lane cannot be used, now or any more. But for the first two, it is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// More than a message of a lane holds.
    #[error("a message of {bytes} bytes is too long for a lane: at most {most}")]
    Oversized {
        /// Its bytes.
        bytes: usize,
        /// The longest.
        most: usize,
    },
    /// The deadline is over.
    #[error("the deadline was over before {partner} did its part")]
    TimedOut {
        /// Who is at the other end.
        partner: Partner,
    },
    /// The other end has been dropped in an orderly way.
    #[error("{partner} has closed its end of the lane")]
    Closed {
        /// Who is at the other end.
        partner: Partner,
    },
    /// The process at the other end has ended.
    #[error("{partner} has gone")]
    Gone {
        /// Who was at the other end.
        partner: Partner,
    },
    /// The right to send here has been taken away.
    #[error("the right to exchange messages with {partner} has been revoked")]
    Revoked {
        /// Who is at the other end.
        partner: Partner,
    },
    /// The receive queue has been restricted to other sources.
    #[error("the receive queue does not accept messages between here and {partner}")]
    Refused {
        /// Who is at the other end.
        partner: Partner,
    },
    /// The receiving end has gone to another process, as the post office wanted.
    #[error("messages from {partner} are received by another process from now on")]
    Moved {
        /// Who sends.
        partner: Partner,
    },
    /// The other end has written what none writes.
    #[error("{partner} has spoilt the lane: {what}")]
    Corrupt {
        /// Who is at the other end.
        partner: Partner,
        /// What was found.
        what: Corruption,
    },
    /// The lane's memory cannot be had.
    #[error("the lane to {partner} cannot be used: {why}")]
    Unusable {
        /// Who is at the other end.
        partner: Partner,
        /// The reason.
        why: String,
    },
}

impl LaneError {
    /// Whether the lane is closed for good.
    pub fn is_final(&self) -> bool {
        !matches!(self, LaneError::Oversized { .. } | LaneError::TimedOut { .. })
    }
}

/// What an end of a lane came with.
#[derive(Debug)]
pub(crate) struct LaneParts {
    pub(crate) offer: LaneOffer,
    pub(crate) memory: OwnedFd,
    pub(crate) socket: OwnedFd,
}

/// Sleeping on a socket, and on what the post office says.
#[derive(Debug)]
struct SocketBell {
    socket: OwnedFd,
    control: Arc<Control>,
    lane: u32,
    barrier: Barrier,
}

impl SocketBell {
    fn new(control: &Arc<Control>, lane: u32, socket: OwnedFd) -> SocketBell {
        SocketBell { socket, control: Arc::clone(control), lane, barrier: Barrier::of_this_process() }
    }

    /// Takes what has been rung. Bounded, because the other end can ring all the time.
    fn drain(&self) {
        let mut rings = [0u8; 8];
        for _ in 0..16 {
            if recv(&self.socket, &mut rings, RecvFlags::DONTWAIT).is_err() {
                return;
            }
        }
    }

    /// Whether the other end of the socket is closed.
    fn has_hung_up(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut watched = [PollFd::new(&self.socket, PollFlags::empty())];
        // An error says nothing about the other end.
        poll(&mut watched, Some(&now)).is_ok() && watched[0].revents().contains(PollFlags::HUP)
    }
}

impl Bell for SocketBell {
    #[inline]
    fn light(&self) {
        self.barrier.light();
    }

    fn heavy(&self) -> bool {
        self.barrier.heavy()
    }

    fn sleep(&self, seen: Seen, deadline: Option<Instant>) -> Result<(), Interrupted> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slice = if seen.certain { SLICE } else { UNCERTAIN };
        let limit = Timespec::try_from(left.map_or(slice, |left| left.min(slice))).ok();
        let mut watched =
            [PollFd::new(&self.socket, PollFlags::IN), PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN)];
        // Interrupted by a signal or out of memory: look again.
        let _ = poll(&mut watched[..self.control.watchable(1)], limit.as_ref());
        let hung_up = watched[0].revents().contains(PollFlags::HUP);
        self.drain();
        self.control.hear();
        if hung_up || self.control.has_notice(self.lane) { Err(Interrupted) } else { Ok(()) }
    }

    fn ring(&self) {
        // A full socket wakes as well. These flags go with the call: the other end cannot change them.
        let _ = send(&self.socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    fn check(&self) -> Result<(), Interrupted> {
        self.control.hear();
        if self.has_hung_up() || self.control.has_notice(self.lane) { Err(Interrupted) } else { Ok(()) }
    }
}

/// What both ends have in common.
#[derive(Debug)]
struct End {
    control: Arc<Control>,
    lane: u32,
    partner: Partner,
    /// Why the lane cannot be used any more.
    failed: Option<LaneError>,
    /// Counts down to the next look at the news.
    patience: u32,
    /// Whether the post office is to learn that this end has been dropped.
    announces: bool,
}

impl End {
    fn new(control: &Arc<Control>, offer: &LaneOffer) -> End {
        let partner = offer.partner.clone();
        End { control: Arc::clone(control), lane: offer.lane, partner, failed: None, patience: NEWS, announces: true }
    }

    /// Whether it is time to look what has happened.
    fn is_time(&mut self) -> bool {
        self.patience = self.patience.saturating_sub(1);
        let now = self.patience == 0;
        if now {
            self.patience = NEWS;
        }
        now
    }

    fn fail(&mut self, error: LaneError) -> LaneError {
        self.failed = Some(error.clone());
        error
    }

    /// Why the post office has closed the lane; if it has not, why `otherwise`.
    fn closed(&mut self, otherwise: impl FnOnce(Partner) -> LaneError) -> LaneError {
        let partner = self.partner.clone();
        self.control.hear();
        let error = match self.control.closing(self.lane) {
            Some(Closing::Revoked) => LaneError::Revoked { partner },
            Some(Closing::Refused) => LaneError::Refused { partner },
            Some(Closing::Gone) => LaneError::Gone { partner },
            None => otherwise(partner),
        };
        self.fail(error)
    }

    fn explain(&mut self, error: RingError) -> LaneError {
        let partner = self.partner.clone();
        match error {
            RingError::Oversized { bytes, most } => LaneError::Oversized { bytes, most },
            RingError::TimedOut => LaneError::TimedOut { partner },
            RingError::Corrupt(what) => self.fail(LaneError::Corrupt { partner, what }),
            RingError::Closed => match self.closed(|partner| LaneError::Closed { partner }) {
                // It closed its end before it ended.
                LaneError::Gone { partner } => self.fail(LaneError::Closed { partner }),
                error => error,
            },
            RingError::Interrupted => self.closed(|partner| LaneError::Gone { partner }),
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.control.forget_lane(self.lane, self.announces);
    }
}

/// The memory of a lane, mapped.
fn open_ring(offer: &LaneOffer, memory: OwnedFd) -> Result<(Arc<Segment>, Memory, Geometry), LaneError> {
    let unusable = |why: String| LaneError::Unusable { partner: offer.partner.clone(), why };
    let geometry = geometry(offer.lines.into()).map_err(|error| unusable(error.to_string()))?;
    let segment = Segment::from_fd(memory).map_err(|error| unusable(error.to_string()))?;
    // Not sealed, it could be shortened under this process's feet, which kills.
    if !segment.is_sealed() {
        return Err(unusable("its memory is not sealed".to_owned()));
    }
    let segment = Arc::new(segment);
    let memory = map(&segment, Offset(0), geometry).map_err(|error| unusable(error.to_string()))?;
    Ok((segment, memory, geometry))
}

fn too_small(offer: &LaneOffer) -> LaneError {
    LaneError::Unusable { partner: offer.partner.clone(), why: "its memory is too small".to_owned() }
}

/// The sending end, for the messages of one transmit queue to one name.
#[derive(Debug)]
pub struct LaneSender {
    ring: sender::Sender<Memory, SocketBell>,
    end: End,
    table: Arc<DestinationTable>,
    name: QueueName,
    source: SourceName,
    /// The table entry for which the lane was opened, and the one that was seen last.
    opened_for: u16,
    generation: u16,
}

impl LaneSender {
    pub(crate) fn new(
        control: &Arc<Control>,
        table: Arc<DestinationTable>,
        name: QueueName,
        parts: LaneParts,
    ) -> Result<LaneSender, LaneError> {
        let LaneParts { offer, memory, socket } = parts;
        let end = End::new(control, &offer);
        let (_, memory, geometry) = open_ring(&offer, memory)?;
        let generation = table.lookup(name).map_or(0, |destination| destination.generation);
        let ring = sender::Sender::new(memory, geometry, SocketBell::new(control, offer.lane, socket), LOOKS);
        let ring = ring.ok_or_else(|| too_small(&offer))?;
        Ok(LaneSender { ring, end, table, name, source: offer.source, opened_for: generation, generation })
    }

    /// Who receives.
    pub fn partner(&self) -> &Partner {
        &self.end.partner
    }

    /// The longest message in bytes.
    pub fn longest_message(&self) -> usize {
        self.ring.geometry().longest()
    }

    /// Whether the name has come to lead somewhere else since the lane was opened.
    pub(crate) fn is_outdated(&self) -> bool {
        self.table.lookup(self.name).is_ok_and(|destination| destination.generation != self.opened_for)
    }

    /// Sends a message to one of the receiver's handlers; waits for room.
    ///
    /// # Errors
    ///
    /// [`LaneError`]. What was sent before a partner went may have been received or not.
    pub fn send(&mut self, handler: u8, bytes: &[u8]) -> Result<(), LaneError> {
        self.send_until(handler, bytes, None)
    }

    /// As [`Self::send`], but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`Self::send`], and [`LaneError::TimedOut`].
    pub fn send_by(&mut self, handler: u8, bytes: &[u8], deadline: Instant) -> Result<(), LaneError> {
        self.send_until(handler, bytes, Some(deadline))
    }

    fn send_until(&mut self, handler: u8, bytes: &[u8], deadline: Option<Instant>) -> Result<(), LaneError> {
        self.translate()?;
        let room = self.ring.wait_for_room(bytes.len(), deadline).map_err(|error| self.end.explain(error))?;
        self.compose(handler, bytes, room);
        self.publish();
        Ok(())
    }

    /// As [`Self::send`]; `false` if there is no room now.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_send(&mut self, handler: u8, bytes: &[u8]) -> Result<bool, LaneError> {
        let put = self.try_put(handler, bytes)?;
        self.publish();
        Ok(put)
    }

    /// As [`Self::try_send`], but the message is seen only after [`Self::publish`], together with others.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn try_put(&mut self, handler: u8, bytes: &[u8]) -> Result<bool, LaneError> {
        self.translate()?;
        let room = self.ring.room_for(bytes.len()).map_err(|error| self.end.explain(error))?;
        let found = room.is_some();
        if let Some(room) = room {
            self.compose(handler, bytes, room);
        }
        Ok(found)
    }

    /// Makes visible what has been put, by one store.
    pub fn publish(&mut self) {
        self.ring.publish();
    }

    fn compose(&mut self, handler: u8, bytes: &[u8], room: sender::Room) {
        let message = self.ring.compose(Header { source: self.source, handler }, room);
        store_bytes(message.words(), bytes);
        message.finish();
    }

    /// Every message is sent to a name: whether that still leads here costs one load.
    fn translate(&mut self) -> Result<(), LaneError> {
        if let Some(failed) = &self.end.failed {
            return Err(failed.clone());
        }
        let partner = || self.end.partner.clone();
        match self.table.lookup(self.name) {
            Ok(destination) if destination.generation == self.generation => {}
            // Re-pointed. If the receiving end goes with it, nothing changes here; if the receiver has gone, it shows.
            Ok(destination) => {
                self.generation = destination.generation;
                self.end.patience = 1;
            }
            Err(TableError::ProcessGone { .. }) => {
                let error = LaneError::Gone { partner: partner() };
                return Err(self.end.fail(error));
            }
            Err(_) => {
                let error = LaneError::Revoked { partner: partner() };
                return Err(self.end.fail(error));
            }
        }
        if self.end.is_time() && self.ring.bell().check().is_err() {
            return Err(self.end.explain(RingError::Interrupted));
        }
        Ok(())
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct LaneReceiver {
    ring: receiver::Receiver<Memory, SocketBell>,
    end: End,
    segment: Arc<Segment>,
    sources: Arc<SourceTable>,
    source: SourceName,
}

impl LaneReceiver {
    pub(crate) fn new(
        control: &Arc<Control>,
        sources: Arc<SourceTable>,
        position: u64,
        parts: LaneParts,
    ) -> Result<LaneReceiver, LaneError> {
        let LaneParts { offer, memory, socket } = parts;
        let end = End::new(control, &offer);
        let (segment, memory, geometry) = open_ring(&offer, memory)?;
        let bell = SocketBell::new(control, offer.lane, socket);
        let ring = receiver::Receiver::new(memory, geometry, bell, LOOKS, position);
        let ring = ring.ok_or_else(|| too_small(&offer))?;
        Ok(LaneReceiver { ring, end, segment, sources, source: offer.source })
    }

    /// Who sends.
    pub fn partner(&self) -> &Partner {
        &self.end.partner
    }

    /// The name to which an answer goes, if the sender's process receives and the rules allow it.
    pub fn source(&self) -> SourceName {
        self.source
    }

    /// Takes the next message out, in place of what `bytes` held; waits for it. Gives its handler.
    ///
    /// # Errors
    ///
    /// [`LaneError`]. A partner's messages come before the news of its end.
    pub fn receive(&mut self, bytes: &mut Vec<u8>) -> Result<u8, LaneError> {
        self.receive_until(bytes, None)
    }

    /// As [`Self::receive`], but waits until `deadline` at most.
    ///
    /// # Errors
    ///
    /// As [`Self::receive`], and [`LaneError::TimedOut`].
    pub fn receive_by(&mut self, bytes: &mut Vec<u8>, deadline: Instant) -> Result<u8, LaneError> {
        self.receive_until(bytes, Some(deadline))
    }

    fn receive_until(&mut self, bytes: &mut Vec<u8>, deadline: Option<Instant>) -> Result<u8, LaneError> {
        loop {
            if let Some(handler) = self.try_receive(bytes)? {
                return Ok(handler);
            }
            match self.ring.wait_for_message(deadline) {
                Ok(()) => {}
                Err(RingError::Interrupted) => self.look_at_news()?,
                Err(error) => return Err(self.end.explain(error)),
            }
        }
    }

    /// As [`Self::receive`]; `None` if there is no message now.
    ///
    /// # Errors
    ///
    /// As [`Self::receive`].
    pub fn try_receive(&mut self, bytes: &mut Vec<u8>) -> Result<Option<u8>, LaneError> {
        if let Some(failed) = &self.end.failed {
            return Err(failed.clone());
        }
        if self.end.is_time() {
            self.look_at_news()?;
        }
        let header = match self.ring.copy_next(bytes) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(error) => return Err(self.end.explain(error)),
        };
        if header.source != self.source {
            let what = Corruption::Source { found: header.source.number(), expected: self.source.number() };
            return Err(self.end.explain(RingError::Corrupt(what)));
        }
        if !self.sources.accepts(self.source) {
            let error = LaneError::Refused { partner: self.end.partner.clone() };
            return Err(self.end.fail(error));
        }
        Ok(Some(header.handler))
    }

    /// What the post office says, and whether the sender is still there.
    fn look_at_news(&mut self) -> Result<(), LaneError> {
        if self.ring.bell().check().is_ok() {
            return Ok(());
        }
        if self.end.control.is_to_move(self.end.lane) {
            return Err(self.hand_over());
        }
        match self.end.control.closing(self.end.lane) {
            // What it sent before it went comes first.
            Some(Closing::Gone) | None if self.ring.is_ready() => Ok(()),
            _ => Err(self.end.explain(RingError::Interrupted)),
        }
    }

    /// Gives the receiving end back to the post office, which passes it on to another process.
    fn hand_over(&mut self) -> LaneError {
        let position = self.ring.leave();
        let socket = self.ring.bell().socket.as_fd();
        // Without the post office nobody can receive it; the sender learns that when the socket closes.
        self.end.announces = self.end.control.hand_over(self.end.lane, position, self.segment.as_fd(), socket).is_err();
        let error = LaneError::Moved { partner: self.end.partner.clone() };
        self.end.fail(error)
    }

    /// Has the sender ring from now on. After that, look once more before sleeping on the descriptor ([`AsFd`]): until it is
    /// readable, if nothing was there. [`Self::disarm`] when awake.
    ///
    /// Gives whether the sender is sure to ring; if not, sleep no longer than a millisecond.
    pub fn arm(&mut self) -> bool {
        self.ring.announce_sleep();
        self.ring.bell().heavy()
    }

    /// As [`Self::arm`], for several lanes before one barrier.
    pub(crate) fn announce_sleep(&self) {
        self.ring.announce_sleep();
    }

    /// Takes what has been rung and asks the sender not to ring any more.
    pub fn disarm(&mut self) {
        self.ring.stir();
        self.ring.bell().drain();
        // It may have been a farewell.
        self.hasten();
    }

    /// Has the next look for a message ask the post office, too.
    pub(crate) fn hasten(&mut self) {
        self.end.patience = 1;
    }

    /// Whether a message or an error waits.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.end.failed.is_some() || self.ring.is_ready()
    }

    /// As [`Self::disarm`] where nothing has been rung.
    pub(crate) fn stir(&self) {
        self.ring.stir();
    }
}

impl AsFd for LaneReceiver {
    /// Readable when something has been rung, or the sender's process has gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.bell().socket.as_fd()
    }
}
