//! What goes before every message in the stream: one cache line that says how the message comes.

use shm::segment::Offset;

/// Bytes of a header in the stream.
pub(super) const BYTES: u64 = 64;

/// How a message comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// Its bytes follow in the stream, padded to whole lines.
    Staged {
        /// The length of the message.
        bytes: u64,
    },
    /// It lies in the sender's private memory.
    Direct {
        /// The length of the message.
        bytes: u64,
        /// Its address there.
        address: u64,
        /// The number of the transfer.
        turn: u64,
    },
    /// It lies in the segment.
    InPlace {
        /// The length of the message.
        bytes: u64,
        /// Where it starts.
        at: Offset,
        /// The number of the transfer.
        turn: u64,
    },
}

impl Header {
    /// The length of the message.
    pub(super) fn bytes(self) -> u64 {
        match self {
            Header::Staged { bytes }
            | Header::Direct { bytes, .. }
            | Header::InPlace { bytes, .. } => bytes,
        }
    }

    pub(super) fn to_line(self) -> [u8; BYTES as usize] {
        let words = match self {
            Header::Staged { bytes } => [1, bytes, 0, 0],
            Header::Direct { bytes, address, turn } => [2, bytes, address, turn],
            Header::InPlace { bytes, at, turn } => [3, bytes, at.0, turn],
        };
        let mut line = [0; BYTES as usize];
        for (place, word) in line.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = u64::to_ne_bytes(word);
        }
        line
    }

    /// `None`: no header, whoever wrote that.
    pub(super) fn of_line(line: [u8; BYTES as usize]) -> Option<Self> {
        let (words, _) = line.as_chunks::<8>();
        let word = |index: usize| u64::from_ne_bytes(words[index]);
        let (bytes, turn) = (word(1), word(3));
        if isize::try_from(bytes).is_err() {
            return None;
        }
        match word(0) {
            1 => Some(Header::Staged { bytes }),
            2 => Some(Header::Direct { bytes, address: word(2), turn }),
            3 => Some(Header::InPlace { bytes, at: Offset(word(2)), turn }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nonsense_is_not() {
        let direct = Header::Direct { bytes: 9, address: 77, turn: 3 };
        let in_place = Header::InPlace { bytes: 9, at: Offset(64), turn: 3 };
        for header in [Header::Staged { bytes: 5 }, direct, in_place] {
            assert_eq!(Header::of_line(header.to_line()), Some(header));
        }
        assert_eq!(Header::of_line([0; 64]), None);
        assert_eq!(Header::of_line([0xff; 64]), None);
    }
}
