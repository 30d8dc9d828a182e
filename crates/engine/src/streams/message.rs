//! The messages of a transfer: bytes to send, and destinations of bytes to receive.

use super::ring::RemoteBuffer;
use crate::error::Error;
use goal::arithmetic::{self, Arithmetic, ArithmeticError, DataType};
use shm::line_copy;
use shm::process_memory::{AccessFailure, read_guarded};
use smallvec::SmallVec;

/// Length of the pieces in which an offered message is read. Between them a rank serves the other
/// ranks.
const READ_PIECE: usize = 1 << 20;

/// Factor between the lengths from which messages are offered: in both directions; in one
/// direction, where both copies of a ring go on at the same time; and of bytes that the sender
/// copies for itself meanwhile, where both ranks compete for their cache lines.
const LATE_OFFER_FACTOR: u64 = 4;

/// Least number of bytes of the rank's own blocks that are copied beside a piece from another rank.
const LEAST_BESIDE: usize = 32 << 10;

/// Length of the pieces in which a rank copies its block for itself. Other ranks wait meanwhile.
const OWN_PIECE: usize = 64 << 10;

/// The unfinished messages of a rank in one call. Messages between two ranks keep their order.
#[derive(Debug, Default)]
pub(super) struct Messages<'a> {
    pub(super) sendings: SmallVec<[Sending<'a>; 2]>,
    pub(super) receivings: SmallVec<[Receiving<'a>; 2]>,
    pub(super) own: OwnBlocks<'a>,
    /// The first error of a result. The transfer continues, because the other ranks wait for the
    /// remaining pieces.
    pub(super) failure: Option<Box<Error>>,
}

/// A rank's blocks for itself that are to be copied.
#[derive(Debug, Default)]
pub(super) struct OwnBlocks<'a>(SmallVec<[(&'a [u8], &'a mut [u8]); 1]>);

impl<'a> OwnBlocks<'a> {
    /// Adds a block, of the same length on both sides.
    #[inline]
    pub(super) fn push(&mut self, from: &'a [u8], into: &'a mut [u8]) {
        self.0.push((from, into));
    }

    /// Returns whether exactly these bytes are to be copied.
    #[inline]
    pub(super) fn contains(&self, bytes: &[u8]) -> bool {
        self.0.iter().any(|(from, _)| std::ptr::eq(*from, bytes))
    }

    /// Removes the next bytes to copy, at most `longest`.
    #[inline]
    fn pop_piece(&mut self, longest: usize) -> Option<(&'a [u8], &'a mut [u8])> {
        // From the end: the order of copies within a rank has no meaning, and a removal from the
        // front would move all others.
        let (from, into) = self.0.pop()?;
        let (piece, rest) = from.split_at(from.len().min(longest));
        let (into, rest_into) = into.split_at_mut(piece.len());
        if !rest.is_empty() {
            self.0.push((rest, rest_into));
        }
        Some((piece, into))
    }
}

impl Messages<'_> {
    /// Returns whether all messages are finished.
    pub(super) fn is_empty(&self) -> bool {
        self.sendings.is_empty() && self.receivings.is_empty() && self.own.0.is_empty()
    }

    /// Copies a piece of this rank's blocks for itself. Returns whether there was one.
    #[inline]
    pub(super) fn copy_own(&mut self) -> bool {
        let Some((from, into)) = self.own.pop_piece(OWN_PIECE) else { return false };
        into.copy_from_slice(from);
        true
    }

    /// Returns a bit for each rank to which and from which this rank has a message.
    pub(super) fn mutual(&self) -> u64 {
        let to = self.sendings.iter().fold(0, |ranks, sending| ranks | 1u64 << sending.to);
        self.receivings.iter().fold(0, |ranks, receiving| ranks | to & 1 << receiving.from)
    }

    /// Returns whether a rank that has no message for this one waits for further pieces. It copies
    /// them while this rank copies its own block.
    pub(super) fn has_pieces_to_send(&self, mutual: u64) -> bool {
        // A rank that also sends has its own message to write meanwhile, and an offered message is
        // read without this rank.
        let is_one_way = |sending: &Sending<'_>| mutual >> sending.to & 1 == 0;
        self.sendings.iter().any(|sending| !sending.is_offered && is_one_way(sending))
    }

    /// Returns the number of bytes that other ranks are to read from this rank's memory.
    pub(super) fn offered_bytes(&self) -> u64 {
        let offered = self.sendings.iter().filter(|sending| sending.is_offered);
        offered.map(|sending| sending.bytes.len() as u64).sum()
    }

    /// Returns whether a message to or from a rank is unfinished.
    pub(super) fn awaits(&self, rank: u32) -> bool {
        self.sendings.iter().any(|sending| sending.to == rank)
            || self.receivings.iter().any(|receiving| receiving.from == rank)
    }
}

/// Ranks of which the first message has been found. Only the first message to or from a rank moves,
/// so messages between two ranks keep their order.
#[derive(Debug, Default)]
pub(super) struct FirstMessages(u64);

impl FirstMessages {
    /// Returns whether this is the first message of a rank. There are fewer ranks than bits.
    pub(super) fn is_first(&mut self, rank: u32) -> bool {
        let before = self.0;
        // Streams have at most `MOST_RANKS` ranks, so the shift stays below the number of bits.
        self.0 |= 1 << rank;
        self.0 != before
    }
}

/// A message to another rank.
#[derive(Debug)]
pub(super) struct Sending<'a> {
    pub(super) to: u32,
    pub(super) bytes: &'a [u8],
    /// Number of later messages to the same rank. The receiver detects another number.
    pub(super) behind: u64,
    /// The receiver detects another tag.
    pub(super) tag: u64,
    /// The receiver combines the message with its own contribution.
    pub(super) is_operand: bool,
    /// This rank copies the same bytes for itself.
    pub(super) is_own: bool,
    /// Number of the buffer that the message takes.
    pub(super) buffer: Option<u8>,
    pub(super) done: usize,
    pub(super) finished: bool,
    /// The message is offered, and the receiver has not taken it.
    pub(super) is_offered: bool,
    /// The message is offered, and all parts that both ends copy are claimed.
    pub(super) is_claimed: bool,
    /// The message has been offered in vain.
    pub(super) must_write: bool,
}

impl<'a> Sending<'a> {
    #[inline]
    pub(super) fn new(to: u32, tag: u64, bytes: &'a [u8]) -> Self {
        Sending {
            to,
            bytes,
            behind: 0,
            tag,
            is_operand: false,
            is_own: false,
            buffer: None,
            done: 0,
            finished: false,
            is_offered: false,
            is_claimed: false,
            must_write: false,
        }
    }

    /// Returns whether the message is offered, if messages in both directions are from `least`
    /// bytes on, and the receiver reads the memory of this process.
    pub(super) fn is_single_copy(&self, mutual: u64, least: u64) -> bool {
        let is_mutual = mutual >> self.to & 1 != 0;
        // Decided by the sender alone: the receiver takes what the ring carries, an address or a
        // piece.
        let is_early = is_mutual && !self.is_own;
        let least = if is_early { least } else { least.saturating_mul(LATE_OFFER_FACTOR) };
        // A ring delivers an operand of a reduction piece by piece into the first-level cache. A
        // copy of it into private memory would be a second one. Both copies through a buffer that
        // lies in the caches take less than the kernel's one.
        let is_whole = self.done == 0 && self.buffer.is_none();
        let can_offer = !self.is_operand && is_whole && !self.must_write;
        can_offer && self.bytes.len() as u64 >= least
    }

    /// Returns the bytes of the next piece.
    pub(super) fn next_piece(&self, mutual: u64, longest: usize) -> &'a [u8] {
        let is_mutual = mutual >> self.to & 1 != 0;
        // From the whole length, not from the rest: the receiver computes the same cut.
        let length = piece_bytes(self.bytes.len(), is_mutual, longest);
        let rest = &self.bytes[self.done..];
        &rest[..length.min(rest.len())]
    }
}

/// A message from another rank.
#[derive(Debug)]
pub(super) struct Receiving<'a> {
    pub(super) from: u32,
    pub(super) sink: ReceiveSink<'a>,
    /// Number of later messages from the same rank.
    pub(super) behind: u64,
    pub(super) tag: u64,
    pub(super) done: usize,
    pub(super) finished: bool,
    /// The message is offered, and its sender takes part in the copy.
    pub(super) is_joined: bool,
}

/// Destination of received bytes.
#[derive(Debug)]
pub(super) enum ReceiveSink<'a> {
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
    pub(super) fn next_piece(&self, mutual: u64, longest: usize) -> usize {
        // A message of another length is discarded whole: its sink then has the length that the
        // sender states, so both ends still cut alike.
        let expected = self.sink.length();
        let is_mutual = mutual >> self.from & 1 != 0;
        piece_bytes(expected, is_mutual, longest).min(expected - self.done)
    }
}

impl ReceiveSink<'_> {
    pub(super) fn length(&self) -> usize {
        match self {
            ReceiveSink::Copy(into) | ReceiveSink::Fold { into, .. } => into.len(),
            ReceiveSink::Discard(bytes) => *bytes,
        }
    }

    /// Returns the memory of a message that its sender may copy part of.
    pub(super) fn joint_target(&mut self) -> Option<&mut [u8]> {
        match self {
            ReceiveSink::Copy(into) => Some(into),
            ReceiveSink::Fold { .. } | ReceiveSink::Discard(_) => None,
        }
    }

    /// Copies or combines a piece, which begins at byte `at` of the message. Beside a copy it copies
    /// as much of the rank's own blocks.
    pub(super) fn accept(
        &mut self,
        at: usize,
        piece: &[u8],
        own: &mut OwnBlocks<'_>,
    ) -> Result<(), ArithmeticError> {
        let range = at..at + piece.len();
        match self {
            ReceiveSink::Copy(into) => {
                let (beside, alone) = match own.pop_piece(piece.len()) {
                    Some((from, to)) if from.len() >= LEAST_BESIDE => {
                        let (beside, alone) = piece.split_at(from.len());
                        let start = range.start;
                        let into = &mut into[start..start + beside.len()];
                        line_copy::copy_beside(beside, into, (from, to));
                        (beside.len(), alone)
                    }
                    Some((from, to)) => {
                        to.copy_from_slice(from);
                        (0, piece)
                    }
                    None => (0, piece),
                };
                line_copy::copy(alone, &mut into[range.start + beside..range.end]);
                Ok(())
            }
            ReceiveSink::Fold { own, own_is_left, rule: (operation, data_type), into } => {
                let own = &own[range.clone()];
                // Rank order, whichever rank computes: both ranks get the same bits.
                let (left, right) = if *own_is_left { (own, piece) } else { (piece, own) };
                arithmetic::apply(*operation, *data_type, left, right, &mut into[range])
            }
            ReceiveSink::Discard(_) => Ok(()),
        }
    }

    /// Reads the next piece of a message that lies in the private memory of another process, from
    /// byte `at` on. Returns its length, or `None` if the message is not there any more.
    pub(super) fn read_offered(
        &mut self,
        at: usize,
        (process, offered): (u32, RemoteBuffer),
    ) -> Result<Option<usize>, AccessFailure> {
        let rest = self.length() - at;
        let address = offered.address.wrapping_add(at as u64);
        match self {
            // Passed without a copy: the error is recorded already, and the sender waits for the
            // outcome.
            ReceiveSink::Discard(_) => Ok(Some(rest)),
            ReceiveSink::Copy(into) => {
                let length = rest.min(READ_PIECE);
                let piece = &mut into[at..at + length];
                Ok(read_guarded(process, address, piece, offered.guard)?.then_some(length))
            }
            // No rank offers an operand: the sender's memory is corrupt.
            ReceiveSink::Fold { .. } => Ok(None),
        }
    }
}

/// Returns the length of the pieces of a message of `bytes` bytes. Both ends compute the same.
///
/// If the receiver has a message for the sender as well, both write at the same time and read
/// afterwards, and whole messages are fastest. Otherwise the receiver reads one quarter while
/// the sender writes the next.
fn piece_bytes(bytes: usize, is_mutual: bool, longest: usize) -> usize {
    const LEAST: usize = 8 << 10;
    const LONGEST_QUARTER: usize = 32 << 10;
    let piece = if is_mutual { bytes } else { (bytes / 4).min(LONGEST_QUARTER) };
    // Whole positions of the ring, so consecutive pieces leave no gap between them.
    piece.next_multiple_of(LEAST).clamp(LEAST, longest.max(LEAST))
}
