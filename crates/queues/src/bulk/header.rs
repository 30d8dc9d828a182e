//! The header before every message in the stream: one cache line with the message's path.

use shm::segment::Offset;

/// Bytes of a header in the stream.
pub(super) const BYTES: u64 = 64;

/// Path of a message, and the data of that path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BulkHeader {
    /// The message follows in the stream, padded to whole lines.
    Staged {
        /// Length of the message.
        bytes: u64,
    },
    /// The message lies in the sender's private memory.
    Direct {
        /// Length of the message.
        bytes: u64,
        /// Its address there.
        address: u64,
        /// Number of the transfer.
        transfer: u64,
    },
    /// The message lies in the segment.
    InPlace {
        /// Length of the message.
        bytes: u64,
        /// Its offset.
        at: Offset,
        /// Number of the transfer.
        transfer: u64,
    },
}

/// Returns the bytes that data of this length occupies in the stream: whole lines, so that every
/// header starts a line.
pub(super) fn padded(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(BYTES)
}

impl BulkHeader {
    /// Returns the length of the message.
    pub(super) fn bytes(self) -> u64 {
        match self {
            BulkHeader::Staged { bytes }
            | BulkHeader::Direct { bytes, .. }
            | BulkHeader::InPlace { bytes, .. } => bytes,
        }
    }

    pub(super) fn to_line(self) -> [u8; BYTES as usize] {
        let words = match self {
            BulkHeader::Staged { bytes } => [1, bytes, 0, 0],
            BulkHeader::Direct { bytes, address, transfer } => [2, bytes, address, transfer],
            BulkHeader::InPlace { bytes, at, transfer } => [3, bytes, at.0, transfer],
        };
        let mut line = [0; BYTES as usize];
        for (bytes, word) in line.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = u64::to_ne_bytes(word);
        }
        line
    }

    /// Decodes a line; `None` if it is not a header. A length above `isize::MAX` is rejected here,
    /// so that later sums of lengths and positions cannot overflow.
    pub(super) fn of_line(line: [u8; BYTES as usize]) -> Option<Self> {
        let (words, _) = line.as_chunks::<8>();
        let word = |index: usize| u64::from_ne_bytes(words[index]);
        let bytes = word(1);
        let transfer = word(3);
        if isize::try_from(bytes).is_err() {
            return None;
        }
        match word(0) {
            1 => Some(BulkHeader::Staged { bytes }),
            2 => Some(BulkHeader::Direct { bytes, address: word(2), transfer }),
            3 => Some(BulkHeader::InPlace { bytes, at: Offset(word(2)), transfer }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_a_round_trip_and_other_lines_are_rejected() {
        let direct = BulkHeader::Direct { bytes: 9, address: 77, transfer: 3 };
        let in_place = BulkHeader::InPlace { bytes: 9, at: Offset(64), transfer: 3 };
        for header in [BulkHeader::Staged { bytes: 5 }, direct, in_place] {
            assert_eq!(BulkHeader::of_line(header.to_line()), Some(header));
        }
        assert_eq!(BulkHeader::of_line([0; 64]), None);
        assert_eq!(BulkHeader::of_line([0xff; 64]), None);
    }
}
