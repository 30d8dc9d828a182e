//! Encoding and decoding of packets.

use bytemuck::{Pod, Zeroable};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// First four bytes behind the MAC: "TWW1".
pub const MAGIC: u32 = u32::from_le_bytes(*b"TWW1");
/// Version of the protocol.
pub const VERSION: u8 = 2;
/// Largest number of unacknowledged data packets of one node for another.
pub const WINDOW: u64 = 64;
/// Size of the longest piece of a message in a packet.
pub const LONGEST_PIECE: usize = 8192;

const DATA: u32 = 1;
const REQUEST: u32 = 2;
const ANSWER: u32 = 4;
/// Bytes of a packet before its message.
pub(crate) const HEADER: usize = size_of::<PacketHeader>();
/// Bytes of the MAC, which does not cover itself.
const MAC: usize = 8;
/// Bytes behind the MAC that are the same in all packets of a stream.
pub(super) const BEGINNING: usize = 24;

/// Secret of a job.
#[derive(Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Key(pub [u64; 2]);

/// Secrets do not go into logs.
impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key(…)")
    }
}

/// Header of a packet; [`wire`](super) describes the bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct PacketHeader {
    mac: u64,
    magic: u32,
    version: u8,
    zeros: [u8; 3],
    job: u64,
    source: u32,
    destination: u32,
    sequence: u64,
    acknowledged: u64,
    length: u32,
    flags: u32,
}

/// Returns a header with the fields that are equal in all packets of a stream, and the bytes of
/// these fields.
pub(super) fn beginning(
    job: u64,
    source: u32,
    destination: u32,
) -> (PacketHeader, [u8; BEGINNING]) {
    let header = PacketHeader {
        magic: MAGIC,
        version: VERSION,
        job,
        source,
        destination,
        ..PacketHeader::zeroed()
    };
    let mut same = [0; BEGINNING];
    same.copy_from_slice(&bytemuck::bytes_of(&header)[MAC..MAC + BEGINNING]);
    (header, same)
}

/// Header of a piece of a message; [`wire`](super) describes the bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[expect(missing_docs, reason = "the table of the module `wire` documents every field")]
pub struct MessageHeader {
    pub communicator: u32,
    pub signature: u32,
    pub sequence: u64,
    pub destination: u32,
    pub source: u32,
    pub member: u32,
    pub tag: u32,
    pub ordinal: u32,
    pub total: u32,
    pub offset: u32,
    pub length: u32,
}

/// Content of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Piece of a message.
    Data {
        /// Its number in its stream.
        sequence: u64,
        /// Header of the piece. Its length is that of the piece.
        header: MessageHeader,
        /// The piece.
        piece: Vec<u8>,
    },
    /// Request for the missing packets.
    Request {
        /// Its number among the requests of its source.
        sequence: u64,
        /// Bit i: the packet `acknowledged` + i has arrived.
        arrived: u64,
    },
    /// Answer to a request.
    Answer {
        /// The number of the request.
        sequence: u64,
        /// Bit i: the packet `acknowledged` + i has arrived.
        arrived: u64,
    },
    /// Acknowledgement only.
    Acknowledgement,
}

/// Packet between two nodes of a job.
///
/// ```
/// use kernel::wire::{Content, Key, Packet, WINDOW};
///
/// let key = Key([1, 2]);
/// let packet =
///     Packet { job: 7, source: 0, destination: 1, acknowledged: WINDOW, content: Content::Acknowledgement };
/// let mut bytes = packet.encode(&key);
/// assert_eq!(Packet::decode(&bytes, 7, &key), Ok(packet));
/// bytes[40] ^= 1;
/// assert!(Packet::decode(&bytes, 7, &key).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Number of its job.
    pub job: u64,
    /// Sending node.
    pub source: u32,
    /// Receiving node.
    pub destination: u32,
    /// All packets of the other stream with smaller numbers have arrived.
    pub acknowledged: u64,
    /// Content.
    pub content: Content,
}

/// Reason why bytes are not a packet of the job; the program drops and counts packets for the same
/// reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Lengths contradict each other.
    #[error("the packet was cut off, or something was appended: {found} bytes, not {expected}")]
    Truncated {
        /// Number of bytes.
        found: usize,
        /// Number of bytes according to the header, or the size of a header.
        expected: usize,
    },
    /// Another protocol or version, or values that no node sends.
    #[error("the packet is strange: {0}")]
    Strange(&'static str),
    /// A packet of another job.
    #[error("the packet belongs to job {0:#x}")]
    OtherJob(u64),
    /// The MAC is wrong.
    #[error("the packet is forged or damaged: its MAC is not that of the job")]
    Forged,
}

impl Packet {
    /// Returns the packet as the UDP payload of a datagram. A piece is cut at [`LONGEST_PIECE`].
    pub fn encode(&self, key: &Key) -> Vec<u8> {
        let mut header = PacketHeader {
            magic: MAGIC,
            version: VERSION,
            job: self.job,
            source: self.source,
            destination: self.destination,
            acknowledged: self.acknowledged,
            ..PacketHeader::zeroed()
        };
        let mut message = Vec::new();
        match &self.content {
            Content::Data { sequence, header: of_message, piece } => {
                // A longer one would not fit into the program's packets, and the receiver would
                // drop it.
                let piece = &piece[..piece.len().min(LONGEST_PIECE)];
                (header.flags, header.sequence) = (DATA, *sequence);
                let of_message = MessageHeader { length: piece.len() as u32, ..*of_message };
                message.extend_from_slice(bytemuck::bytes_of(&of_message));
                message.extend_from_slice(piece);
            }
            Content::Request { sequence, arrived } => {
                (header.flags, header.sequence) = (REQUEST, *sequence);
                message.extend_from_slice(&arrived.to_le_bytes());
            }
            Content::Answer { sequence, arrived } => {
                (header.flags, header.sequence) = (ANSWER, *sequence);
                message.extend_from_slice(&arrived.to_le_bytes());
            }
            Content::Acknowledgement => {}
        }
        header.length = message.len() as u32;
        let mut bytes = bytemuck::bytes_of(&header).to_vec();
        bytes.append(&mut message);
        // Last: the MAC covers all other bytes of the packet.
        seal(&mut bytes, key);
        bytes
    }

    /// Returns the packet in these bytes, as the program reads them.
    ///
    /// # Errors
    /// The reason why the program would drop it.
    pub fn decode(bytes: &[u8], job: u64, key: &Key) -> Result<Self, DecodeError> {
        use DecodeError::{Forged, OtherJob, Strange, Truncated};
        let found = bytes.len();
        let longest = HEADER + size_of::<MessageHeader>() + LONGEST_PIECE;
        if !(HEADER..=longest).contains(&found) {
            return Err(Truncated { found, expected: HEADER });
        }
        // Cheap checks first, then the MAC: most foreign packets cost no hash. Only authenticated
        // bytes are interpreted behind it.
        let header: PacketHeader = bytemuck::pod_read_unaligned(&bytes[..HEADER]);
        if header.magic != MAGIC || header.version != VERSION || header.zeros != [0; 3] {
            return Err(Strange("another protocol or version"));
        }
        if header.job != job {
            return Err(OtherJob(header.job));
        }
        if header.length as usize != found - HEADER {
            return Err(Truncated {
                found,
                expected: HEADER.saturating_add(header.length as usize),
            });
        }
        if header.mac != mac(&bytes[MAC..], key) {
            return Err(Forged);
        }
        if header.source == header.destination {
            return Err(Strange("from a node to itself"));
        }
        // Streams begin at this number, so that elements of maps, initially zero, are valid.
        if header.acknowledged < WINDOW {
            return Err(Strange("a number before the first"));
        }
        let content = Content::decode(&header, &bytes[HEADER..])?;
        let PacketHeader { source, destination, acknowledged, .. } = header;
        Ok(Packet { job, source, destination, acknowledged, content })
    }
}

impl Content {
    fn decode(header: &PacketHeader, message: &[u8]) -> Result<Self, DecodeError> {
        use DecodeError::Strange;
        match (header.flags, message.split_at_checked(size_of::<MessageHeader>())) {
            // The length must be that of the kind: no byte of an authenticated packet is left
            // unread.
            (DATA, Some((of_message, piece))) if header.sequence >= WINDOW => {
                let of_message: MessageHeader = bytemuck::pod_read_unaligned(of_message);
                if of_message.length as usize != piece.len() {
                    return Err(Strange("a message of another length"));
                }
                Ok(Content::Data {
                    sequence: header.sequence,
                    header: of_message,
                    piece: piece.to_vec(),
                })
            }
            (REQUEST, None) if message.len() == size_of::<u64>() => Ok(Content::Request {
                sequence: header.sequence,
                arrived: bytemuck::pod_read_unaligned(message),
            }),
            (ANSWER, None) if message.len() == size_of::<u64>() => Ok(Content::Answer {
                sequence: header.sequence,
                arrived: bytemuck::pod_read_unaligned(message),
            }),
            (0, None) if message.is_empty() => Ok(Content::Acknowledgement),
            _ => Err(Strange("flags or lengths that no node sends")),
        }
    }
}

/// Writes the MAC into the first eight bytes of a packet. Shorter slices stay unchanged.
pub fn seal(bytes: &mut [u8], key: &Key) {
    let Some((place, rest)) = bytes.split_at_mut_checked(MAC) else { return };
    place.copy_from_slice(&mac(rest, key).to_le_bytes());
}

fn mac(bytes: &[u8], key: &Key) -> u64 {
    // SipHash-2-4 (Aumasson, Bernstein, 2012). The program continues from a precomputed state
    // (`siphash.rs`), with the same result.
    let mut hasher = SipHasher24::new_with_keys(key.0[0], key.0[1]);
    hasher.write(bytes);
    hasher.finish()
}

const _: () = assert!(size_of::<PacketHeader>() == 56 && size_of::<MessageHeader>() == 48);

#[cfg(test)]
mod tests {
    use super::*;

    /// From the paper's appendix A: key 00…0f, message 00…0e.
    #[test]
    fn the_mac_is_the_papers() {
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(
            mac(&message, &Key([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908])),
            0xa129_ca61_49be_45e5
        );
    }
}
