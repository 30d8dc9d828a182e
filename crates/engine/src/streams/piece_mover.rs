//! Movement of the pieces of a transfer between the caller's memory and the rings.
//!
//! A long message may be offered instead of written: the ring then carries its address, and the
//! receiver reads the sender's memory itself, by one system call. The sender keeps the bytes as
//! they are until the receiver has taken the position. A sender that leaves early changes its guard
//! before its caller has the memory back, and the receiver reads the guard after the bytes: it
//! never accepts bytes that were changed. A receiver that cannot read the memory refuses, and the
//! sender writes the message to the ring after all.

use super::message::{FirstMessages, Messages, OwnBlocks, ReceiveSink, Receiving, Sending};
use super::ring::{OfferOutcome, OfferState, RemoteBuffer, StreamedMessage};
use super::ring_set::RingSet;
use super::words::PieceState;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::signature::{CallKind, Signature};
use shm::process_memory::{self, AccessFailure, read_guarded};
use smallvec::SmallVec;
use std::time::Duration;

/// Number of polls for the last parts of a copy before a rank sleeps between polls.
const PARTS_POLLS: u32 = 1000;

/// Length of these sleeps.
const PARTS_SLEEP: Duration = Duration::from_millis(1);

/// Result of a step of a copy that both ends make.
enum JointRead {
    /// Parts of the sender are missing.
    Nothing,
    /// This rank has joined, or copied a part.
    Part,
    /// No rank accesses the message any more.
    Over(OfferOutcome),
}

/// Returns the digest in the tags of this call's pieces. It differs between repetitions of a call.
pub(super) fn call_tag(sequence: u64, call: Signature) -> u32 {
    /// 2³² divided by the golden ratio: the products of consecutive numbers are far apart.
    const SPREAD: u32 = 0x9e37_79b1;
    (call.digest24() ^ ((sequence as u32).wrapping_mul(SPREAD) >> 8)) & 0xff_ffff
}

/// Returns the error of a message that differs from the expected one.
#[cold]
fn other_message(
    call: &'static str,
    (from, to): (u32, u32),
    found: StreamedMessage,
    wanted: StreamedMessage,
) -> Error {
    if found.behind == wanted.behind && found.tag != wanted.tag {
        return Error::MissingEdge { call, from, to };
    }
    if found.behind == wanted.behind {
        return Error::BlockLength { call, from, to, sent: found.bytes, expected: wanted.bytes };
    }
    Error::Argument {
        what: "the number of blocks that another rank has for this one",
        found: format!("{}, from rank {from} in {call}", found.behind + 1),
        expected: format!("{}: their lists of neighbours must agree", wanted.behind + 1),
    }
}

/// Moves the pieces of one call.
pub(super) struct PieceMover<'s> {
    pub(super) context: &'s Context,
    pub(super) rings: &'s mut RingSet,
    pub(super) sequence: u64,
    pub(super) call: Signature,
    call_tag: u32,
    /// See [`Messages::mutual`].
    pub(super) mutual: u64,
    /// Length from which messages are offered.
    single_copy_from: u64,
    /// Number of messages that are offered and have not been taken.
    offers: u32,
    /// Ranks that may write into this rank's memory, with the lengths of their messages.
    joined: SmallVec<[(u32, u64); 2]>,
    /// Pieces have moved since the last notification of sleepers.
    must_notify: bool,
}

impl<'s> PieceMover<'s> {
    pub(super) fn new(
        (context, rings): (&'s Context, &'s mut RingSet),
        sequence: u64,
        call: Signature,
        mutual: u64,
    ) -> Self {
        let single_copy_from = context.member.node().single_copy();
        let call_tag = call_tag(sequence, call);
        PieceMover {
            context,
            rings,
            sequence,
            call,
            call_tag,
            mutual,
            single_copy_from,
            offers: 0,
            joined: SmallVec::new(),
            must_notify: false,
        }
    }

    /// Returns whether a message is to be offered that this rank copies for itself as well.
    pub(super) fn offers_own(&self, messages: &Messages<'_>) -> bool {
        // A message that will take a buffer is not offered.
        let takes_buffer = |sending: &Sending<'_>| {
            let buffers = self.rings.buffers[sending.to as usize].as_ref();
            buffers.is_some_and(|buffers| buffers.has_one_for(sending.bytes.len() as u64))
        };
        let is_offered = |sending: &Sending<'_>| {
            sending.is_single_copy(self.mutual, self.single_copy_from) && !takes_buffer(sending)
        };
        messages.sendings.iter().any(|sending| sending.is_own && is_offered(sending))
    }

    /// Sends a piece to each rank with space for one in its ring.
    pub(super) fn send(&mut self, messages: &mut Messages<'_>) -> Outcome<bool> {
        let mut has_moved = false;
        let mut first = FirstMessages::default();
        for sending in &mut messages.sendings {
            if first.is_first(sending.to) {
                has_moved |= self.send_piece(sending)?;
            }
        }
        if has_moved {
            messages.sendings.retain(|sending| !sending.finished);
        }
        self.must_notify |= has_moved;
        Ok(has_moved)
    }

    /// Sends the next piece of a message, if there is space. Returns whether anything has changed.
    #[inline]
    fn send_piece(&mut self, sending: &mut Sending<'_>) -> Outcome<bool> {
        let Some(ring) = &mut self.rings.out[sending.to as usize] else { return Ok(false) };
        if sending.is_offered {
            let state = ring.offer_state();
            if state == OfferState::Pending {
                return Ok(self.write_part(sending));
            }
            self.offers -= 1;
            sending.is_offered = false;
            sending.finished = state == OfferState::Over(OfferOutcome::Read);
            // Not this message again, and none if the kernel refuses access.
            sending.must_write = !sending.finished;
            ring.takes_offers &= state != OfferState::Over(OfferOutcome::Refused);
            return Ok(true);
        }
        let bytes = sending.bytes.len() as u64;
        let buffers = &mut self.rings.buffers[sending.to as usize];
        if sending.done == 0 && sending.buffer.is_none() {
            sending.buffer = buffers.as_mut().and_then(|buffers| buffers.take(bytes));
        }
        let message = StreamedMessage::new(bytes, sending.behind, sending.tag);
        if ring.takes_offers && sending.is_single_copy(self.mutual, self.single_copy_from) {
            if !ring.is_writable(0) {
                return Ok(false);
            }
            let address = sending.bytes.as_ptr() as u64;
            let guard = self.rings.guard.published();
            ring.offer(RemoteBuffer { address, guard }, message, self.call_tag);
            self.offers += 1;
            sending.is_offered = true;
            return Ok(true);
        }
        let piece = sending.next_piece(self.mutual, ring.longest_piece());
        let place = buffers.as_ref().zip(sending.buffer);
        let place = place.map(|(buffers, number)| buffers.place(number, sending.done));
        if !ring.is_writable(if place.is_some() { 0 } else { piece.len() }) {
            return Ok(false);
        }
        ring.write(piece, message, self.call_tag, place)?;
        sending.done += piece.len();
        sending.finished = sending.done == sending.bytes.len();
        Ok(true)
    }

    /// Writes a part of an offered message into the receiver's memory, if it has joined and not all
    /// parts are claimed.
    fn write_part(&mut self, sending: &mut Sending<'_>) -> bool {
        let Some(ring) = &self.rings.out[sending.to as usize] else { return false };
        let Some(target) = ring.joined_target().filter(|_| !sending.is_claimed) else {
            return false;
        };
        let Some(part) = ring.parts().claim(sending.bytes.len() as u64) else {
            sending.is_claimed = true;
            return false;
        };
        let process = self.context.process_of(sending.to);
        let address = target.address.wrapping_add(part.start);
        let bytes = &sending.bytes[part.start as usize..part.end as usize];
        // In another PID namespace the number may be that of another process.
        let is_receiver = read_guarded(process, 0, &mut [], target.guard).unwrap_or(false);
        // SAFETY: the process has the receiver's guard, so it is the receiver. The receiver has
        // joined the copy of this message with a buffer of the message's length, which it has
        // checked, and keeps the buffer borrowed until all claimed parts are complete or this
        // process has ended (`settle`).
        let is_written =
            is_receiver && unsafe { process_memory::write(process, address, bytes) }.is_ok();
        ring.parts().complete(is_written);
        true
    }

    /// Receives a piece from each rank that has sent one.
    pub(super) fn receive(&mut self, messages: &mut Messages<'_>) -> Outcome<bool> {
        let mut has_moved = false;
        let mut first = FirstMessages::default();
        let Messages { receivings, own, failure, .. } = messages;
        for receiving in receivings.iter_mut() {
            if first.is_first(receiving.from) {
                has_moved |= self.receive_piece(receiving, own, failure)?;
            }
        }
        if has_moved {
            receivings.retain(|receiving| !receiving.finished);
        }
        Ok(has_moved)
    }

    /// Receives the next piece of a message, if it has arrived. Returns whether it has.
    #[inline]
    fn receive_piece(
        &mut self,
        receiving: &mut Receiving<'_>,
        own: &mut OwnBlocks<'_>,
        failure: &mut Option<Box<Error>>,
    ) -> Outcome<bool> {
        let Some(ring) = &mut self.rings.from[receiving.from as usize] else { return Ok(false) };
        match ring.poll(self.call_tag) {
            PieceState::Absent => return Ok(false),
            PieceState::Present => {}
            PieceState::Foreign => return Err(self.mismatch(receiving.from).into()),
        }
        let expected = receiving.sink.length() as u64;
        let wanted = StreamedMessage::new(expected, receiving.behind, receiving.tag);
        let found = ring.message();
        if found != wanted {
            let edge = (receiving.from, self.context.rank);
            let error = other_message(self.call.kind.name(), edge, found, wanted);
            // All pieces of a message state one length. If a later one states another, the sender's
            // memory is corrupt, and no piece behind it can be trusted.
            let is_drainable = receiving.done == 0;
            if !is_drainable || !matches!(error, Error::BlockLength { .. }) {
                return Err(error.into());
            }
            receiving.sink = ReceiveSink::Discard(found.bytes as usize);
            failure.get_or_insert_with(|| error.into());
        }
        if let Some(offered) = ring.offered() {
            return Ok(self.read_offered(receiving, offered));
        }
        // Both ends cut the message by the same rule, so the piece has this length.
        let length = receiving.next_piece(self.mutual, ring.longest_piece());
        let before = ring.next;
        let done = receiving.done;
        let buffers = &mut self.rings.buffers[receiving.from as usize];
        let place = match ring.buffer().zip(buffers.as_ref()) {
            Some((number, buffers)) => {
                let message = receiving.sink.length() as u64;
                Some(buffers.received_place(number, message, (done, length))?)
            }
            None => None,
        };
        let accepted = ring.read(length, place, |piece| receiving.sink.accept(done, piece, own))?;
        // A sender that sleeps has filled more than half of the ring, so it is woken before this
        // rank has read all of that.
        self.must_notify |= ring.has_passed_quarter(before);
        if let Err(arithmetic) = accepted {
            failure.get_or_insert_with(|| Error::of_reduction(arithmetic).into());
        }
        receiving.done += length;
        receiving.finished = receiving.done == receiving.sink.length();
        // The sender has written the message's last piece, and does not access the buffer before it
        // receives another message in it.
        if let Some((place, buffers)) = place.zip(buffers.as_mut()).filter(|_| receiving.finished) {
            buffers.add(place.number);
        }
        Ok(true)
    }

    /// Reads a piece of an offered message, or refuses the message. Returns whether anything has
    /// changed.
    fn read_offered(&mut self, receiving: &mut Receiving<'_>, offered: RemoteBuffer) -> bool {
        let is_mutual = self.mutual >> receiving.from & 1 != 0;
        let outcome = if !is_mutual && receiving.sink.joint_target().is_some() {
            match self.read_joint(receiving, offered) {
                JointRead::Nothing => return false,
                JointRead::Part => return true,
                JointRead::Over(outcome) => outcome,
            }
        } else {
            let source = (self.context.process_of(receiving.from), offered);
            match receiving.sink.read_offered(receiving.done, source) {
                Ok(Some(length)) => {
                    receiving.done += length;
                    if receiving.done < receiving.sink.length() {
                        return true;
                    }
                    OfferOutcome::Read
                }
                Ok(None) => OfferOutcome::NotThere,
                Err(AccessFailure::Forbidden(_) | AccessFailure::NoProcess) => {
                    OfferOutcome::Refused
                }
                Err(_) => OfferOutcome::NotThere,
            }
        };
        receiving.finished = outcome == OfferOutcome::Read;
        if !receiving.finished {
            receiving.done = 0;
        }
        // A sender that has ended or left early sends nothing more, and the wait for its next piece
        // reports that. All other senders write the message to the ring.
        if let Some(ring) = &mut self.rings.from[receiving.from as usize] {
            ring.pass_offered(outcome);
        }
        // The sender waits for this, and may sleep.
        self.must_notify = true;
        true
    }

    /// Reads a part of an offered message that its sender copies parts of as well.
    fn read_joint(&mut self, receiving: &mut Receiving<'_>, offered: RemoteBuffer) -> JointRead {
        let from = receiving.from;
        let process = self.context.process_of(from);
        let target = receiving.sink.joint_target();
        let ring = &self.rings.from[from as usize];
        let Some((into, ring)) = target.zip(ring.as_ref()) else { return JointRead::Nothing };
        let bytes = into.len() as u64;
        if !std::mem::replace(&mut receiving.is_joined, true) {
            // Recorded before the sender may write: see `settle`.
            self.joined.push((from, bytes));
            let guard = self.rings.guard.published();
            ring.join(RemoteBuffer { address: into.as_mut_ptr() as u64, guard });
            self.must_notify = true;
            return JointRead::Part;
        }
        if let Some(part) = ring.parts().claim(bytes) {
            let into = &mut into[part.start as usize..part.end as usize];
            let address = offered.address.wrapping_add(part.start);
            let read = read_guarded(process, address, into, offered.guard);
            ring.parts().complete(read.unwrap_or(false));
            return JointRead::Part;
        }
        let Some(is_copied) = ring.parts().outcome(bytes) else { return JointRead::Nothing };
        receiving.is_joined = false;
        self.joined.retain(|(joined, _)| *joined != from);
        JointRead::Over(if is_copied { OfferOutcome::Read } else { OfferOutcome::Refused })
    }

    /// Waits until no sender writes into this rank's memory any more.
    #[cold]
    fn settle(&self) {
        for &(from, bytes) in &self.joined {
            let Some(ring) = &self.rings.from[from as usize] else { continue };
            // No sender begins a part after this.
            while ring.parts().claim(bytes).is_some() {
                ring.parts().complete(false);
            }
            // A sender completes a part by one system call, unless it is stopped or ends. Its
            // writes end with the process.
            let mut polls = 0;
            while ring.parts().outcome(bytes).is_none() {
                polls += 1;
                if polls < PARTS_POLLS {
                    std::thread::yield_now();
                } else if self.context.has_ended(from) {
                    break;
                } else {
                    std::thread::sleep(PARTS_SLEEP);
                }
            }
        }
    }

    /// Returns whether a piece can be sent or received. As in [`send`](Self::send) and
    /// [`receive`](Self::receive), only the first message to or from a rank moves.
    pub(super) fn can_move(&mut self, messages: &Messages<'_>) -> bool {
        let mut first = FirstMessages::default();
        let can_receive = |receiving: &Receiving<'_>| {
            first.is_first(receiving.from) && self.can_receive(receiving)
        };
        if messages.receivings.iter().any(can_receive) {
            return true;
        }
        let mut first = FirstMessages::default();
        messages.sendings.iter().any(|sending| first.is_first(sending.to) && self.can_send(sending))
    }

    fn can_receive(&self, receiving: &Receiving<'_>) -> bool {
        let Some(ring) = &self.rings.from[receiving.from as usize] else { return false };
        if receiving.is_joined {
            // All parts are claimed.
            return ring.parts().outcome(receiving.sink.length() as u64).is_some();
        }
        ring.poll(self.call_tag) != PieceState::Absent
    }

    fn can_send(&mut self, sending: &Sending<'_>) -> bool {
        let Some(ring) = &mut self.rings.out[sending.to as usize] else { return false };
        if sending.is_offered {
            let can_write = !sending.is_claimed && ring.joined_target().is_some();
            return can_write || ring.offer_state() != OfferState::Pending;
        }
        if ring.takes_offers && sending.is_single_copy(self.mutual, self.single_copy_from) {
            return ring.is_writable(0);
        }
        let in_ring = || sending.next_piece(self.mutual, ring.longest_piece()).len();
        let length = if sending.buffer.is_some() { 0 } else { in_ring() };
        ring.is_writable(length)
    }

    /// Returns the error of a rank in another collective. If the piece is old, the rank's journal
    /// has overwritten the record of its call.
    fn mismatch(&self, rank: u32) -> Error {
        let found = self.context.state.find_mismatch(self.sequence, self.call);
        found.err().unwrap_or_else(|| {
            let none = Signature::new(CallKind::None, 0, 0);
            let calls =
                (0..self.context.size()).map(|other| if other == rank { none } else { self.call });
            Error::Mismatch { sequence: self.sequence, calls: calls.collect() }
        })
    }

    /// Wakes sleeping ranks after pieces have moved.
    pub(super) fn notify(&mut self) {
        // Once for all pieces of a round: the notification costs a fence.
        if std::mem::take(&mut self.must_notify) {
            self.context.wake_sleepers();
        }
    }
}

impl Drop for PieceMover<'_> {
    fn drop(&mut self) {
        // Also while the thread panics: the caller gets its memory back.
        if self.offers > 0 {
            self.rings.guard.withdraw();
        }
        if !self.joined.is_empty() {
            self.settle();
        }
    }
}
