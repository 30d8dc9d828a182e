//! All that a rank sends and receives in one call, piece by piece.

use super::Streams;
use super::ring::{Message, PIECE_BYTES, PieceRing};
use super::words::Found;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::protocol::arrival;
use crate::signature::{CallKind, Signature};
use crate::wait::{self, WaitCondition};
use goal::arithmetic::{self, Arithmetic, ArithmeticError, DataType};
use shm::futex;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::time::Duration;

/// Bytes for another rank.
#[derive(Debug)]
struct Sending<'a> {
    to: u32,
    bytes: &'a [u8],
    /// How many messages to the same rank follow: a rank that expects another number is found out.
    behind: u64,
    /// One that expects another tag, too.
    tag: u64,
    done: usize,
    finished: bool,
}

/// Bytes from another rank.
#[derive(Debug)]
struct Receiving<'a> {
    from: u32,
    target: Target<'a>,
    /// How many messages from the same rank follow.
    behind: u64,
    tag: u64,
    done: usize,
    finished: bool,
}

/// What becomes of received bytes.
#[derive(Debug)]
enum Target<'a> {
    /// They are copied.
    Into(&'a mut [u8]),
    /// They are combined with this rank's own, the lower rank's on the left.
    Fold {
        /// This rank's contribution.
        own: &'a [u8],
        /// Whether that stands on the left.
        own_is_left: bool,
        /// How.
        rule: (Arithmetic, DataType),
        /// Where the result goes.
        into: &'a mut [u8],
    },
}

impl Target<'_> {
    fn length(&self) -> usize {
        match self {
            Target::Into(into) | Target::Fold { into, .. } => into.len(),
        }
    }

    /// Does with a piece, which begins at byte `at` of the message, what is to be done.
    fn take(&mut self, at: usize, piece: &[u8]) -> Result<(), ArithmeticError> {
        let range = at..at + piece.len();
        match self {
            Target::Into(into) => {
                into[range].copy_from_slice(piece);
                Ok(())
            }
            Target::Fold { own, own_is_left, rule: (operation, data_type), into } => {
                let (own, into) = (&own[range.clone()], &mut into[range]);
                let (left, right) = if *own_is_left { (own, piece) } else { (piece, own) };
                arithmetic::apply(*operation, *data_type, left, right, into)
            }
        }
    }
}

/// What a rank sends and receives in one call. Messages between two ranks keep their order.
#[derive(Debug)]
pub(crate) struct Transfer<'a> {
    me: u32,
    sendings: SmallVec<[Sending<'a>; 8]>,
    receivings: SmallVec<[Receiving<'a>; 8]>,
    failure: Option<ArithmeticError>,
}

/// Pieces of a message: a quarter of it, so that writing and reading overlap, in bounds that pay.
fn piece_bytes(message: usize) -> usize {
    const LEAST: usize = 4 << 10;
    (message / 4).next_multiple_of(LEAST).clamp(LEAST, PIECE_BYTES as usize)
}

impl<'a> Transfer<'a> {
    pub(super) fn new(me: u32) -> Self {
        Transfer { me, sendings: SmallVec::new(), receivings: SmallVec::new(), failure: None }
    }

    /// Sends bytes to another rank.
    pub(crate) fn send(&mut self, to: u32, bytes: &'a [u8]) {
        self.send_tagged(to, 0, bytes);
    }

    /// Sends one of several messages to another rank.
    pub(crate) fn send_tagged(&mut self, to: u32, tag: u64, bytes: &'a [u8]) {
        self.sendings
            .iter_mut()
            .filter(|earlier| earlier.to == to)
            .for_each(|earlier| earlier.behind += 1);
        self.sendings.push(Sending { to, bytes, behind: 0, tag, done: 0, finished: false });
    }

    /// Receives bytes from another rank.
    pub(crate) fn receive(&mut self, from: u32, into: &'a mut [u8]) {
        self.receive_tagged(from, 0, into);
    }

    /// Receives one of several messages from another rank.
    pub(crate) fn receive_tagged(&mut self, from: u32, tag: u64, into: &'a mut [u8]) {
        self.expect(from, tag, Target::Into(into));
    }

    fn expect(&mut self, from: u32, tag: u64, target: Target<'a>) {
        self.receivings
            .iter_mut()
            .filter(|earlier| earlier.from == from)
            .for_each(|earlier| earlier.behind += 1);
        self.receivings.push(Receiving { from, target, behind: 0, tag, done: 0, finished: false });
    }

    /// Receives bytes from another rank and combines them with this rank's, in rank order.
    pub(crate) fn fold(
        &mut self,
        from: u32,
        own: &'a [u8],
        rule: Option<(Arithmetic, DataType)>,
        into: &'a mut [u8],
    ) {
        // A reduction without a rule has no result.
        let Some(rule) = rule else { return };
        self.expect(from, 0, Target::Fold { own, own_is_left: self.me < from, rule, into });
    }

    /// Carries everything out.
    pub(super) fn run(
        mut self,
        communicator: &Communicator,
        streams: &mut Streams,
        sequence: u64,
        call: Signature,
    ) -> Result<(), Error> {
        let mut step = Step {
            communicator,
            streams,
            sequence,
            call,
            stamp: stamp(sequence, call),
            told: true,
        };
        while !(self.sendings.is_empty() && self.receivings.is_empty()) {
            let moved = step.send(&mut self)? | step.receive(&mut self)?;
            step.tell();
            if !moved {
                self.wait(&mut step)?;
            }
        }
        self.failure
            .map_or(Ok(()), |failure| Err(Error::of_reduction(failure, communicator.rank())))
    }

    /// Waits until there is a piece to take or room for one.
    #[cold]
    fn wait(&self, step: &mut Step<'_>) -> Result<(), Error> {
        let (communicator, sequence, call) = (step.communicator, step.sequence, step.call);
        let broken = step.streams.broken.clone();
        let check_liveness = || {
            if broken.is_set() {
                return Err(Error::Broken);
            }
            communicator.state.find_mismatch(sequence, call)?;
            communicator.member.liveness(&communicator.members).check(|rank| !self.awaits(rank))
        };
        let movement = Movement { transfer: self, step: RefCell::new(step) };
        wait::until(
            &movement,
            communicator.member.node().spin_policy(),
            None,
            || communicator.progress(),
            check_liveness,
        )?;
        Ok(())
    }

    /// Whether something is still to be sent to a rank or received from it.
    fn awaits(&self, rank: u32) -> bool {
        self.sendings.iter().any(|sending| sending.to == rank)
            || self.receivings.iter().any(|receiving| receiving.from == rank)
    }

    /// Whether a piece can be sent or received.
    fn can_move(&self, step: &mut Step<'_>) -> bool {
        let has_arrived = |receiving: &Receiving<'_>| {
            let ring = &step.streams.from[receiving.from as usize];
            ring.as_ref().is_some_and(|ring| ring.look(step.stamp) != Found::Nothing)
        };
        self.receivings.iter().any(has_arrived)
            || self.sendings.iter().any(|sending| {
                let ring = &mut step.streams.out[sending.to as usize];
                ring.as_mut().is_some_and(PieceRing::has_room)
            })
    }
}

/// What a piece of this call is marked with. The same call made again is another one.
fn stamp(sequence: u64, call: Signature) -> u32 {
    /// 2³² over the golden ratio: neighbouring numbers lie far apart.
    const SPREAD: u32 = 0x9e37_79b1;
    (call.digest24() ^ ((sequence as u32).wrapping_mul(SPREAD) >> 8)) & 0xff_ffff
}

/// Pieces that can be moved, as something to wait for.
struct Movement<'m, 'a, 's> {
    transfer: &'m Transfer<'a>,
    step: RefCell<&'m mut Step<'s>>,
}

impl WaitCondition for Movement<'_, '_, '_> {
    type Mark = u32;

    fn is_met(&self) -> bool {
        self.transfer.can_move(&mut self.step.borrow_mut())
    }

    fn prepare_sleep(&self) -> Option<u32> {
        let communicator = self.step.borrow().communicator;
        arrival::mark(communicator.flat.executor.sleepers(), || self.is_met())
    }

    fn sleep(&self, mark: u32, limit: Duration) {
        futex::wait(self.step.borrow().communicator.flat.executor.sleepers(), mark, Some(limit));
    }
}

/// What moves pieces.
struct Step<'s> {
    communicator: &'s Communicator,
    streams: &'s mut Streams,
    sequence: u64,
    call: Signature,
    stamp: u32,
    /// Whether sleepers know of all that was moved.
    told: bool,
}

impl Step<'_> {
    /// Sends a piece to each rank that has room for one.
    fn send(&mut self, transfer: &mut Transfer<'_>) -> Result<bool, Error> {
        let (mut moved, mut first) = (false, 0u64);
        for sending in &mut transfer.sendings {
            let Some(ring) = &mut self.streams.out[sending.to as usize] else { continue };
            // Only the first message to each rank: ranks are fewer than the bits.
            let bit = 1 << sending.to;
            if first & bit != 0 || !ring.has_room() {
                first |= bit;
                continue;
            }
            first |= bit;
            let rest = &sending.bytes[sending.done..];
            let length = rest.len().min(piece_bytes(sending.bytes.len()));
            ring.put(
                &rest[..length],
                Message {
                    bytes: sending.bytes.len() as u64,
                    behind: sending.behind,
                    tag: sending.tag,
                },
                self.stamp,
            )?;
            sending.done += length;
            sending.finished = sending.done == sending.bytes.len();
            moved = true;
        }
        transfer.sendings.retain(|sending| !sending.finished);
        self.told &= !moved;
        Ok(moved)
    }

    /// Takes a piece from each rank that has sent one.
    fn receive(&mut self, transfer: &mut Transfer<'_>) -> Result<bool, Error> {
        let (mut moved, mut first) = (false, 0u64);
        for receiving in &mut transfer.receivings {
            let Some(ring) = &mut self.streams.from[receiving.from as usize] else { continue };
            let bit = 1 << receiving.from;
            let found = if first & bit == 0 { ring.look(self.stamp) } else { Found::Nothing };
            first |= bit;
            let expected = receiving.target.length();
            match found {
                Found::Nothing => continue,
                Found::Piece => {
                    let (behind, tag) = (receiving.behind, receiving.tag);
                    let wanted = Message { bytes: expected as u64, behind, tag };
                    let found = ring.message();
                    if found != wanted {
                        return Err(self.other_message(receiving.from, found, wanted));
                    }
                }
                Found::Stranger => return Err(self.mismatch(receiving.from)),
            }
            let length = (expected - receiving.done).min(piece_bytes(expected));
            let taken = ring.take(length, |piece| receiving.target.take(receiving.done, piece))?;
            transfer.failure = transfer.failure.or(taken.err());
            receiving.done += length;
            receiving.finished = receiving.done == expected;
            moved = true;
        }
        transfer.receivings.retain(|receiving| !receiving.finished);
        self.told &= !moved;
        Ok(moved)
    }

    /// Another rank has another message than this one expects.
    #[cold]
    fn other_message(&self, from: u32, found: Message, wanted: Message) -> Error {
        let (to, call) = (self.communicator.rank(), self.call.kind.name());
        if found.behind == wanted.behind && found.tag != wanted.tag {
            return Error::MissingEdge { call, from, to };
        }
        if found.behind == wanted.behind {
            return Error::BlockLength {
                call,
                from,
                to,
                sent: found.bytes,
                expected: wanted.bytes,
            };
        }
        Error::Argument {
            what: "the number of blocks that another rank has for this one",
            found: format!("{}, from rank {from} in {call}", found.behind + 1),
            expected: format!("{}: their lists of neighbours must agree", wanted.behind + 1),
        }
    }

    /// Another rank is in another collective. Its journal has gone on if the piece it left is from
    /// long ago.
    fn mismatch(&self, rank: u32) -> Error {
        let found = self.communicator.state.find_mismatch(self.sequence, self.call);
        found.err().unwrap_or_else(|| {
            let none = Signature::new(CallKind::None, 0, 0);
            let calls = (0..self.communicator.size())
                .map(|other| if other == rank { none } else { self.call });
            Error::Mismatch { sequence: self.sequence, calls: calls.collect() }
        })
    }

    /// Wakes those who sleep until pieces move.
    fn tell(&mut self) {
        if !std::mem::replace(&mut self.told, true) {
            let sleepers = self.communicator.flat.executor.sleepers();
            if arrival::must_wake(sleepers, || true) {
                futex::wake_all(sleepers);
            }
        }
    }
}
