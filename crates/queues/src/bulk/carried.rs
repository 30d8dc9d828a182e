//! Links between nodes: a message in pieces through a Basic ring, which the node service takes to
//! the receiver's node.
//!
//! The first piece of a message begins with the length of the message, and its handler is
//! [`FIRST`]. A sender that gives up has sent some of the pieces, and ends them with an empty piece
//! of the handler [`ABORT`], for which it keeps a line of its ring free.

use super::error::{BulkError, DirectAccessError};
use super::path::{DirectPath, Path, Policy, Received};
use crate::basic::{self, BasicHeader, BasicMessage};
use crate::error::{RecvError, SendError};
use shm::segment::Offset;
use std::time::Instant;

/// Handler of the first piece of a message.
const FIRST: u8 = 1;
/// Handler of the piece that ends a message which its sender has given up.
const ABORT: u8 = 2;
/// Bytes of the length in the first piece.
const LENGTH_BYTES: usize = 8;
/// Bytes of a line of a ring, with its header word: a message with so many more takes one line
/// more.
const LINE: usize = 64;

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
    /// [`BulkError::NodeServiceEnded`], [`BulkError::Corrupt`], and [`BulkError::NoDirectPath`] if
    /// the policy allows no other.
    pub fn send(&mut self, bytes: &[u8], deadline: Option<Instant>) -> Result<Path, BulkError> {
        let link = self.at;
        if self.policy == Policy::Direct {
            return Err(BulkError::NoDirectPath { link, reason: DirectAccessError::OtherNode });
        }
        let longest = self.ring.longest_message() - LINE;
        let (first, rest) = bytes.split_at(bytes.len().min(longest - LENGTH_BYTES));
        let length = (bytes.len() as u64).to_le_bytes();
        self.send_piece(FIRST, [&length, first], deadline).map_err(|why| of_send(link, why))?;
        for piece in rest.chunks(longest) {
            if let Err(why) = self.send_piece(0, [&[], piece], deadline) {
                // Into the line that the last piece has left free. It fails only if no receiver is
                // left.
                let abort = BasicHeader { handler: ABORT, ..BasicHeader::default() };
                let _ = self.ring.try_send(abort, &[]);
                return Err(of_send(link, why));
            }
        }
        Ok(Path::Carried)
    }

    /// Sends a piece, and leaves a line behind it free.
    fn send_piece(
        &mut self,
        handler: u8,
        [begin, data]: [&[u8]; 2],
        deadline: Option<Instant>,
    ) -> Result<(), SendError> {
        let header = BasicHeader { handler, ..BasicHeader::default() };
        let bytes = begin.len() + data.len();
        // Space for a piece that is a line longer, which is not sent. The second wait ends at once:
        // nothing else takes the space.
        drop(self.reserve(header, bytes + LINE, deadline)?);
        let mut buffer = self.reserve(header, bytes, deadline)?;
        let (first, second) = buffer.as_mut_slice().split_at_mut(begin.len());
        first.copy_from_slice(begin);
        second.copy_from_slice(data);
        buffer.finish();
        self.ring.publish();
        Ok(())
    }

    fn reserve(
        &mut self,
        header: BasicHeader,
        bytes: usize,
        deadline: Option<Instant>,
    ) -> Result<basic::Buffer<'_>, SendError> {
        match deadline {
            None => self.ring.reserve(header, bytes),
            Some(deadline) => self.ring.reserve_deadline(header, bytes, deadline),
        }
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
    /// A message that no receive has completed.
    begun: Option<Begun>,
}

/// The beginning of a message.
#[derive(Debug)]
struct Begun {
    /// Length of the whole message, as its sender has named it: not a size to allocate.
    length: u64,
    bytes: Vec<u8>,
}

impl CarriedReceiver {
    /// Creates the end of a link from the receiver from the ring at an offset.
    #[must_use]
    pub fn new(ring: basic::Receiver, at: Offset) -> Self {
        CarriedReceiver { ring, at, begun: None }
    }

    /// Receives the next message into `buffer`. Blocks until it has arrived, at most until the
    /// deadline; what has arrived until then is kept for the next receive.
    ///
    /// # Errors
    /// [`BulkError::TooLong`], [`BulkError::Timeout`], [`BulkError::Closed`],
    /// [`BulkError::RankExited`], [`BulkError::NodeServiceEnded`], [`BulkError::Corrupt`].
    pub fn recv(
        &mut self,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<Received, BulkError> {
        let link = self.at;
        loop {
            let begun = self.next_begun(deadline)?;
            let bytes = begun.length;
            let capacity = buffer.len() as u64;
            if bytes > capacity {
                self.begun = Some(begun);
                return Err(BulkError::TooLong { link, bytes, capacity });
            }
            if let Some(received) = self.fill(buffer, begun, deadline)? {
                return Ok(received);
            }
        }
    }

    /// Receives the next message and passes it to `read`.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv) but the first two.
    pub fn recv_with<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, BulkError> {
        let link = self.at;
        let mut begun = self.next_begun(None)?;
        while (begun.bytes.len() as u64) < begun.length {
            let piece = receive(&mut self.ring, None).map_err(|why| of_recv(link, why))?;
            let data = piece.as_slice();
            match piece.header().handler {
                FIRST => begun = first_piece(data).ok_or(BulkError::Corrupt { link })?,
                ABORT => {
                    drop(piece);
                    begun = self.next_begun(None)?;
                }
                _ => {
                    // Grows by what has arrived. A damaged length is no reason to end the process.
                    let is_too_long = data.len() as u64 > begun.length - begun.bytes.len() as u64;
                    if is_too_long || begun.bytes.try_reserve(data.len()).is_err() {
                        return Err(BulkError::Corrupt { link });
                    }
                    begun.bytes.extend_from_slice(data);
                }
            }
        }
        Ok(read(&begun.bytes))
    }

    /// Takes the message that has begun, or waits for the first piece of one.
    fn next_begun(&mut self, deadline: Option<Instant>) -> Result<Begun, BulkError> {
        let link = self.at;
        if let Some(begun) = self.begun.take() {
            return Ok(begun);
        }
        loop {
            let piece = receive(&mut self.ring, deadline).map_err(|why| of_recv(link, why))?;
            // What precedes it belongs to no message any more.
            if piece.header().handler == FIRST {
                return first_piece(piece.as_slice()).ok_or(BulkError::Corrupt { link });
            }
        }
    }

    /// Receives the other pieces of a message that fits into the buffer; `None` if its sender has
    /// given it up.
    fn fill(
        &mut self,
        buffer: &mut [u8],
        begun: Begun,
        deadline: Option<Instant>,
    ) -> Result<Option<Received>, BulkError> {
        let link = self.at;
        let length = begun.length;
        let mut filled = begun.bytes.len();
        buffer[..filled].copy_from_slice(&begun.bytes);
        while (filled as u64) < length {
            let piece = match receive(&mut self.ring, deadline) {
                Ok(piece) => piece,
                Err(why) => {
                    self.begun = Some(Begun { length, bytes: buffer[..filled].to_vec() });
                    return Err(of_recv(link, why));
                }
            };
            let data = piece.as_slice();
            match piece.header().handler {
                FIRST => {
                    self.begun = Some(first_piece(data).ok_or(BulkError::Corrupt { link })?);
                    return Ok(None);
                }
                ABORT => return Ok(None),
                _ if data.len() as u64 > length - filled as u64 => {
                    return Err(BulkError::Corrupt { link });
                }
                _ => {
                    buffer[filled..filled + data.len()].copy_from_slice(data);
                    filled += data.len();
                }
            }
        }
        Ok(Some(Received { bytes: filled, path: Path::Carried }))
    }

    /// Returns the offset of the ring on this node.
    pub fn link(&self) -> Offset {
        self.at
    }
}

fn receive(
    ring: &mut basic::Receiver,
    deadline: Option<Instant>,
) -> Result<BasicMessage<'_>, RecvError> {
    match deadline {
        None => ring.recv(),
        Some(deadline) => ring.recv_deadline(deadline),
    }
}

/// Reads a first piece; `None` if it has more bytes than its message.
fn first_piece(piece: &[u8]) -> Option<Begun> {
    let (length, data) = piece.split_first_chunk::<LENGTH_BYTES>()?;
    let length = u64::from_le_bytes(*length);
    (data.len() as u64 <= length).then(|| Begun { length, bytes: data.to_vec() })
}

fn of_send(link: Offset, why: SendError) -> BulkError {
    match why {
        SendError::Timeout => BulkError::Timeout { link },
        SendError::Closed => BulkError::Closed { link },
        SendError::RankExited { rank } => BulkError::RankExited { link, rank },
        SendError::NodeServiceEnded => BulkError::NodeServiceEnded { link },
        _ => BulkError::Corrupt { link },
    }
}

fn of_recv(link: Offset, why: RecvError) -> BulkError {
    match why {
        RecvError::Timeout => BulkError::Timeout { link },
        RecvError::Closed => BulkError::Closed { link },
        RecvError::RankExited { rank } => BulkError::RankExited { link, rank },
        RecvError::NodeServiceEnded => BulkError::NodeServiceEnded { link },
        _ => BulkError::Corrupt { link },
    }
}
