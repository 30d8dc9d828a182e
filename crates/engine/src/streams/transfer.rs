//! The messages that a rank sends and receives in one call, moved piece by piece.

use super::ring::StreamedMessage;
use super::ring_set::RingSet;
use super::words::PieceState;
use crate::context::Context;
use crate::error::{Error, Outcome};
use crate::signature::{CallKind, Signature};
use crate::wait::{self, SleepersCondition};
use goal::arithmetic::{self, Arithmetic, ArithmeticError, DataType};
use smallvec::SmallVec;
use std::cell::RefCell;

/// A message to another rank.
#[derive(Debug)]
struct Sending<'a> {
    to: u32,
    bytes: &'a [u8],
    /// Number of later messages to the same rank. The receiver detects another number.
    behind: u64,
    /// The receiver detects another tag.
    tag: u64,
    done: usize,
    finished: bool,
}

impl<'a> Sending<'a> {
    /// Returns the bytes of the next piece.
    fn next_piece(&self, mutual: u64, longest: usize) -> &'a [u8] {
        let is_mutual = mutual >> self.to & 1 != 0;
        let length = piece_bytes(self.bytes.len(), is_mutual, longest);
        let rest = &self.bytes[self.done..];
        &rest[..length.min(rest.len())]
    }
}

/// A message from another rank.
#[derive(Debug)]
struct Receiving<'a> {
    from: u32,
    sink: ReceiveSink<'a>,
    /// Number of later messages from the same rank.
    behind: u64,
    tag: u64,
    done: usize,
    finished: bool,
}

/// Destination of received bytes.
#[derive(Debug)]
enum ReceiveSink<'a> {
    /// The bytes are copied.
    Copy(&'a mut [u8]),
    /// The bytes are combined with this rank's own, the lower rank's on the left.
    Fold {
        /// This rank's contribution.
        own: &'a [u8],
        /// The contribution is the left operand.
        own_is_left: bool,
        /// The operation.
        rule: (Arithmetic, DataType),
        /// Destination of the result.
        into: &'a mut [u8],
    },
    /// This many bytes are discarded, because the message has another length than expected.
    Discard(usize),
}

impl Receiving<'_> {
    /// Returns the length of the next piece.
    fn next_piece(&self, mutual: u64, longest: usize) -> usize {
        let expected = self.sink.length();
        let is_mutual = mutual >> self.from & 1 != 0;
        piece_bytes(expected, is_mutual, longest).min(expected - self.done)
    }
}

impl ReceiveSink<'_> {
    fn length(&self) -> usize {
        match self {
            ReceiveSink::Copy(into) | ReceiveSink::Fold { into, .. } => into.len(),
            ReceiveSink::Discard(bytes) => *bytes,
        }
    }

    /// Copies or combines a piece, which begins at byte `at` of the message.
    fn accept(&mut self, at: usize, piece: &[u8]) -> Result<(), ArithmeticError> {
        let range = at..at + piece.len();
        match self {
            ReceiveSink::Copy(into) => {
                into[range].copy_from_slice(piece);
                Ok(())
            }
            ReceiveSink::Fold { own, own_is_left, rule: (operation, data_type), into } => {
                let own = &own[range.clone()];
                let (left, right) = if *own_is_left { (own, piece) } else { (piece, own) };
                arithmetic::apply(*operation, *data_type, left, right, &mut into[range])
            }
            ReceiveSink::Discard(_) => Ok(()),
        }
    }
}

/// The messages of a rank in one call. Messages between two ranks keep their order.
#[derive(Debug)]
pub struct Transfer<'a> {
    rank: u32,
    sendings: SmallVec<[Sending<'a>; 2]>,
    receivings: SmallVec<[Receiving<'a>; 2]>,
    /// The first error of a result. The transfer continues, because the other ranks wait for the
    /// remaining pieces.
    failure: Option<Box<Error>>,
}

/// Number of rounds in which no piece moves before a rank waits.
const IDLE_ROUNDS: u32 = 32;

/// Returns the length of the pieces of a message of `bytes` bytes. Both ends compute the same.
///
/// If the receiver has a message for the sender as well, both write at the same time and read
/// afterwards, and whole messages travel fastest. Otherwise the receiver reads one quarter while the
/// sender writes the next.
fn piece_bytes(bytes: usize, is_mutual: bool, longest: usize) -> usize {
    const LEAST: usize = 8 << 10;
    const LONGEST_QUARTER: usize = 32 << 10;
    let piece = if is_mutual { bytes } else { (bytes / 4).min(LONGEST_QUARTER) };
    piece.next_multiple_of(LEAST).clamp(LEAST, longest.max(LEAST))
}

impl<'a> Transfer<'a> {
    #[inline]
    pub(super) fn new(rank: u32) -> Self {
        Transfer { rank, sendings: SmallVec::new(), receivings: SmallVec::new(), failure: None }
    }

    /// Adds a message to another rank.
    #[inline]
    pub fn send(&mut self, to: u32, bytes: &'a [u8]) {
        self.send_tagged(to, 0, bytes);
    }

    /// Adds one of several messages to another rank.
    #[inline]
    pub(super) fn send_tagged(&mut self, to: u32, tag: u64, bytes: &'a [u8]) {
        self.sendings
            .iter_mut()
            .filter(|earlier| earlier.to == to)
            .for_each(|earlier| earlier.behind += 1);
        self.sendings.push(Sending { to, bytes, behind: 0, tag, done: 0, finished: false });
    }

    /// Adds a message from another rank.
    #[inline]
    pub fn receive(&mut self, from: u32, into: &'a mut [u8]) {
        self.receive_tagged(from, 0, into);
    }

    /// Adds one of several messages from another rank.
    #[inline]
    pub(super) fn receive_tagged(&mut self, from: u32, tag: u64, into: &'a mut [u8]) {
        self.expect(from, tag, ReceiveSink::Copy(into));
    }

    #[inline]
    fn expect(&mut self, from: u32, tag: u64, sink: ReceiveSink<'a>) {
        self.receivings
            .iter_mut()
            .filter(|earlier| earlier.from == from)
            .for_each(|earlier| earlier.behind += 1);
        self.receivings.push(Receiving { from, sink, behind: 0, tag, done: 0, finished: false });
    }

    /// Adds a message from another rank that is combined with this rank's contribution, in rank
    /// order.
    pub(super) fn fold(
        &mut self,
        from: u32,
        own: &'a [u8],
        rule: Option<(Arithmetic, DataType)>,
        into: &'a mut [u8],
    ) {
        // A reduction without a rule has no result.
        let Some(rule) = rule else { return };
        let own_is_left = self.rank < from;
        self.expect(from, 0, ReceiveSink::Fold { own, own_is_left, rule, into });
    }

    /// Moves all messages. Returns the first error of a result.
    ///
    /// # Errors
    /// Returns an error if the transfer has ended early.
    #[inline]
    pub(super) fn run(
        &mut self,
        context: &Context,
        rings: &mut RingSet,
        sequence: u64,
        call: Signature,
    ) -> Outcome<Option<Box<Error>>> {
        let mut mover = PieceMover {
            context,
            rings,
            sequence,
            call,
            call_tag: call_tag(sequence, call),
            mutual: self.mutual(),
            must_notify: false,
        };
        // Sending and receiving alternate, so two ranks that send to each other never wait for each
        // other's rings.
        let mut idle_rounds = 0;
        while !(self.sendings.is_empty() && self.receivings.is_empty()) {
            let has_moved = mover.send(self)? | mover.receive(self)?;
            mover.notify();
            idle_rounds = if has_moved { 0 } else { idle_rounds + 1 };
            // A short piece that is on its way arrives before a wait could begin.
            if idle_rounds > IDLE_ROUNDS {
                self.wait(&mut mover)?;
                idle_rounds = 0;
            }
        }
        Ok(self.failure.take())
    }

    /// Returns a bit for each rank to which and from which this rank has a message.
    fn mutual(&self) -> u64 {
        let to = self.sendings.iter().fold(0, |ranks, sending| ranks | 1u64 << sending.to);
        self.receivings.iter().fold(0, |ranks, receiving| ranks | to & 1 << receiving.from)
    }

    /// Waits until a piece can be sent or received.
    #[cold]
    fn wait(&self, mover: &mut PieceMover<'_>) -> Outcome {
        let context = mover.context;
        let sequence = mover.sequence;
        let call = mover.call;
        let broken = mover.rings.broken.clone();
        let check_liveness = || {
            // A rank that ended its transfer early sends no more pieces.
            if broken.is_set() {
                return Err(Error::Broken);
            }
            context.check_liveness(sequence, call, |rank| !self.awaits(rank))
        };
        let mover = RefCell::new(mover);
        let is_met = || self.can_move(&mut mover.borrow_mut());
        let can_move = SleepersCondition { word: &context.sleepers.word, is_met };
        wait::until(
            &can_move,
            context.member.node().spin_policy(),
            None,
            || context.progress(),
            check_liveness,
        )?;
        Ok(())
    }

    /// Returns whether a message to or from a rank is unfinished.
    fn awaits(&self, rank: u32) -> bool {
        self.sendings.iter().any(|sending| sending.to == rank)
            || self.receivings.iter().any(|receiving| receiving.from == rank)
    }

    /// Returns whether a piece can be sent or received.
    fn can_move(&self, mover: &mut PieceMover<'_>) -> bool {
        let has_arrived = |receiving: &Receiving<'_>| {
            let ring = &mover.rings.from[receiving.from as usize];
            ring.as_ref().is_some_and(|ring| ring.poll(mover.call_tag) != PieceState::Absent)
        };
        self.receivings.iter().any(has_arrived)
            || self.sendings.iter().any(|sending| {
                let ring = &mut mover.rings.out[sending.to as usize];
                ring.as_mut().is_some_and(|ring| {
                    ring.is_writable(sending.next_piece(mover.mutual, ring.longest_piece()).len())
                })
            })
    }
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
struct PieceMover<'s> {
    context: &'s Context,
    rings: &'s mut RingSet,
    sequence: u64,
    call: Signature,
    call_tag: u32,
    /// See [`Transfer::mutual`].
    mutual: u64,
    /// Pieces have moved since the last notification of sleepers.
    must_notify: bool,
}

impl PieceMover<'_> {
    /// Sends a piece to each rank with space for one in its ring.
    fn send(&mut self, transfer: &mut Transfer<'_>) -> Outcome<bool> {
        let mut has_moved = false;
        // The ranks to which a message has been tried. There are fewer ranks than bits. Only the
        // first message to a rank moves, so messages between two ranks keep their order.
        let mut handled = 0u64;
        for sending in &mut transfer.sendings {
            let Some(ring) = &mut self.rings.out[sending.to as usize] else { continue };
            let bit = 1 << sending.to;
            let piece = sending.next_piece(self.mutual, ring.longest_piece());
            if handled & bit != 0 || !ring.is_writable(piece.len()) {
                handled |= bit;
                continue;
            }
            handled |= bit;
            let bytes = sending.bytes.len() as u64;
            let message = StreamedMessage::new(bytes, sending.behind, sending.tag);
            ring.write(piece, message, self.call_tag)?;
            sending.done += piece.len();
            sending.finished = sending.done == sending.bytes.len();
            has_moved = true;
        }
        if has_moved {
            transfer.sendings.retain(|sending| !sending.finished);
        }
        self.must_notify |= has_moved;
        Ok(has_moved)
    }

    /// Receives a piece from each rank that has sent one.
    fn receive(&mut self, transfer: &mut Transfer<'_>) -> Outcome<bool> {
        let mut has_moved = false;
        let mut handled = 0u64;
        for receiving in &mut transfer.receivings {
            let Some(ring) = &mut self.rings.from[receiving.from as usize] else { continue };
            let bit = 1 << receiving.from;
            let state =
                if handled & bit == 0 { ring.poll(self.call_tag) } else { PieceState::Absent };
            handled |= bit;
            match state {
                PieceState::Absent => continue,
                PieceState::Present => {
                    let Receiving { behind, tag, .. } = *receiving;
                    let expected = receiving.sink.length() as u64;
                    let wanted = StreamedMessage::new(expected, behind, tag);
                    let found = ring.message();
                    if found != wanted {
                        let edge = (receiving.from, self.context.rank);
                        let error = other_message(self.call.kind.name(), edge, found, wanted);
                        // All pieces of a message state one length. If a later one states another,
                        // the sender's memory is corrupt, and no piece behind it can be trusted.
                        let is_drainable = receiving.done == 0;
                        if !is_drainable || !matches!(error, Error::BlockLength { .. }) {
                            return Err(error.into());
                        }
                        receiving.sink = ReceiveSink::Discard(found.bytes as usize);
                        transfer.failure.get_or_insert_with(|| error.into());
                    }
                }
                PieceState::Foreign => return Err(self.mismatch(receiving.from).into()),
            }
            // Both ends cut the message by the same rule, so the piece has this length.
            let length = receiving.next_piece(self.mutual, ring.longest_piece());
            let before = ring.next;
            let accepted =
                ring.read(length, |piece| receiving.sink.accept(receiving.done, piece))?;
            // A sender that sleeps has filled more than half of the ring, so it is woken before
            // this rank has read all of that.
            self.must_notify |= ring.has_passed_quarter(before);
            if let Err(failure) = accepted {
                let rank = self.context.rank;
                transfer.failure.get_or_insert_with(|| Error::of_reduction(failure, rank).into());
            }
            receiving.done += length;
            receiving.finished = receiving.done == receiving.sink.length();
            has_moved = true;
        }
        if has_moved {
            transfer.receivings.retain(|receiving| !receiving.finished);
        }
        Ok(has_moved)
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
    fn notify(&mut self) {
        // Once for all pieces of a round: the notification costs a fence.
        if std::mem::take(&mut self.must_notify) {
            self.context.wake_sleepers();
        }
    }
}
