//! Links between nodes: a message in pieces through a Basic ring, which a carrier takes to the
//! receiver's node.
//!
//! The first piece of a message begins with the length of the message, and its handler is
//! [`FIRST`]. A sender that gives up has sent some of the pieces: the first piece of the next
//! message ends what was received of this one.

use super::error::{BulkError, DirectAccessError};
use super::path::{DirectPath, Path, Policy, Received};
use crate::basic::{self, BasicHeader};
use crate::error::{RecvError, SendError};
use shm::segment::Offset;
use std::time::Instant;

/// Handler of the first piece of a message.
const FIRST: u8 = 1;
/// Bytes of the length in the first piece.
const LENGTH_BYTES: usize = 8;

/// Number of lines of the rings of a link with so many bytes of staging area. Four pieces fit into
/// a ring, and as much as one of 1024 lines holds may be under way between the nodes.
#[must_use]
pub fn lines_for(staging: u64) -> u64 {
    (staging / 64).clamp(16, 1024).next_power_of_two()
}

/// The sending end of a link to another node.
#[derive(Debug)]
pub struct CarriedSender {
    ring: basic::Sender,
    at: Offset,
    policy: Policy,
}

impl CarriedSender {
    /// Creates the end of a link from the sender to the ring at an offset, which is carried.
    #[must_use]
    pub fn new(ring: basic::Sender, at: Offset) -> Self {
        CarriedSender { ring, at, policy: Policy::Automatic }
    }

    /// Sets the path for later messages. None is direct.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Sends a message. Blocks until `bytes` may be modified, at most until the deadline.
    ///
    /// # Errors
    /// [`BulkError::Timeout`], [`BulkError::Closed`], [`BulkError::RankExited`],
    /// [`BulkError::CarrierEnded`], [`BulkError::Corrupt`], and [`BulkError::NoDirectPath`] if the
    /// policy allows no other.
    pub fn send(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<Path, BulkError> {
        let link = self.at;
        if self.policy == Policy::Direct {
            return Err(BulkError::NoDirectPath { link, reason: DirectAccessError::OtherNode });
        }
        let failed = |why| of_send(link, why);
        let longest = self.ring.longest_message();
        let (first, rest) = bytes.split_at(bytes.len().min(longest - LENGTH_BYTES));
        let header = BasicHeader { handler: FIRST, ..BasicHeader::default() };
        let length = LENGTH_BYTES + first.len();
        let mut buffer = match deadline {
            None => self.ring.reserve(header, length),
            Some(deadline) => self.ring.reserve_deadline(header, length, deadline),
        }
        .map_err(failed)?;
        let (length, data) = buffer.as_mut_slice().split_at_mut(LENGTH_BYTES);
        length.copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        data.copy_from_slice(first);
        buffer.finish();
        self.ring.publish();
        for piece in rest.chunks(longest) {
            let header = BasicHeader::default();
            let sent = match deadline {
                None => self.ring.send(header, piece),
                Some(deadline) => self.ring.send_deadline(header, piece, deadline),
            };
            sent.map_err(failed)?;
        }
        Ok(Path::Carried)
    }

    /// Returns the offset of the ring on this node.
    pub fn link(&self) -> Offset {
        self.at
    }
}

impl DirectPath {
    /// The state of a link between nodes, which has no direct path.
    #[must_use]
    pub fn between_nodes() -> Self {
        DirectPath { here: Err(DirectAccessError::OtherNode), there: false }
    }
}

/// The receiving end of a link from another node.
#[derive(Debug)]
pub struct CarriedReceiver {
    ring: basic::Receiver,
    at: Offset,
    /// First piece of a message for which the buffer was too short: its length, and its bytes.
    begun: Option<(u64, Vec<u8>)>,
}

impl CarriedReceiver {
    /// Creates the end of a link from the receiver from the ring at an offset.
    #[must_use]
    pub fn new(ring: basic::Receiver, at: Offset) -> Self {
        CarriedReceiver { ring, at, begun: None }
    }

    /// Receives the next message into `buffer`. Blocks until it has arrived; until the deadline, if
    /// none has begun.
    ///
    /// # Errors
    /// [`BulkError::TooLong`], [`BulkError::Timeout`], [`BulkError::Closed`],
    /// [`BulkError::RankExited`], [`BulkError::CarrierEnded`], [`BulkError::Corrupt`].
    pub fn recv(
        &mut self,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<Received, BulkError> {
        let bytes = self.next_length(deadline)?;
        let link = self.at;
        let capacity = buffer.len() as u64;
        if bytes > capacity {
            return Err(BulkError::TooLong { link, bytes, capacity });
        }
        self.fill(buffer)
    }

    /// Receives the next message and passes it to `read`.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv) but the first two.
    pub fn recv_with<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, BulkError> {
        loop {
            let bytes = self.next_length(None)?;
            let mut buffer = Vec::new();
            // A damaged length is no reason to end the process.
            buffer.try_reserve_exact(bytes as usize).map_err(|_| self.broken())?;
            buffer.resize(bytes as usize, 0);
            match self.fill(&mut buffer) {
                // Given up by its sender, and a longer one has begun.
                Err(BulkError::TooLong { .. }) => {}
                received => return received.map(|received| read(&buffer[..received.bytes])),
            }
        }
    }

    /// Waits for the first piece of a message, and keeps it. Returns the length of the message.
    fn next_length(&mut self, deadline: Option<Instant>) -> Result<u64, BulkError> {
        if let Some((bytes, _)) = &self.begun {
            return Ok(*bytes);
        }
        let link = self.at;
        loop {
            let piece = match deadline {
                None => self.ring.recv(),
                Some(deadline) => self.ring.recv_deadline(deadline),
            };
            let piece = piece.map_err(|why| of_recv(link, why))?;
            // What precedes it belongs to no message any more.
            if piece.header().handler == FIRST {
                let begun = first_piece(piece.as_slice()).ok_or(BulkError::Corrupt { link })?;
                let length = begun.0;
                self.begun = Some((length, begun.1.to_vec()));
                return Ok(length);
            }
        }
    }

    /// Receives the pieces of the message that has begun, or of one that follows after its sender
    /// has given it up. The former fits into the buffer.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Received, BulkError> {
        let link = self.at;
        let (mut bytes, first) = self.begun.take().ok_or_else(|| self.broken())?;
        let mut filled = first.len();
        buffer[..filled].copy_from_slice(&first);
        while (filled as u64) < bytes {
            let piece = self.ring.recv().map_err(|why| of_recv(link, why))?;
            let mut data = piece.as_slice();
            if piece.header().handler == FIRST {
                (bytes, data) = first_piece(data).ok_or(BulkError::Corrupt { link })?;
                filled = 0;
                let capacity = buffer.len() as u64;
                if bytes > capacity {
                    self.begun = Some((bytes, data.to_vec()));
                    return Err(BulkError::TooLong { link, bytes, capacity });
                }
            }
            if data.len() as u64 > bytes - filled as u64 {
                return Err(BulkError::Corrupt { link });
            }
            buffer[filled..filled + data.len()].copy_from_slice(data);
            filled += data.len();
        }
        Ok(Received { bytes: filled, path: Path::Carried })
    }

    /// Returns the offset of the ring on this node.
    pub fn link(&self) -> Offset {
        self.at
    }

    #[cold]
    fn broken(&self) -> BulkError {
        BulkError::Corrupt { link: self.at }
    }
}

/// Splits a first piece into the length of its message and the bytes; `None` if these are more.
fn first_piece(piece: &[u8]) -> Option<(u64, &[u8])> {
    let (length, data) = piece.split_first_chunk::<LENGTH_BYTES>()?;
    let length = u64::from_le_bytes(*length);
    (data.len() as u64 <= length).then_some((length, data))
}

fn of_send(link: Offset, why: SendError) -> BulkError {
    match why {
        SendError::Timeout => BulkError::Timeout { link },
        SendError::Closed => BulkError::Closed { link },
        SendError::RankExited { rank } => BulkError::RankExited { link, rank },
        SendError::CarrierEnded => BulkError::CarrierEnded { link },
        _ => BulkError::Corrupt { link },
    }
}

fn of_recv(link: Offset, why: RecvError) -> BulkError {
    match why {
        RecvError::Timeout => BulkError::Timeout { link },
        RecvError::Closed => BulkError::Closed { link },
        RecvError::RankExited { rank } => BulkError::RankExited { link, rank },
        RecvError::CarrierEnded => BulkError::CarrierEnded { link },
        _ => BulkError::Corrupt { link },
    }
}
