//! Messages of a key-value space over TCP.
//!
//! | sender | bytes |
//! |---|---|
//! | client | [`HELLO_BYTES`]: "TWK1", u32 rank, u32 number of ranks, 16 random bytes |
//! | server | [`ANSWER_BYTES`]: "TWK1", 16 random bytes of the connection, 16 of the job, 16 of proof |
//! | client | 16 bytes of proof |
//! | both | frames: u32 length, a letter, contents |
//!
//! Numbers are little-endian.

pub use super::shared_secret::{Nonce, Proof};

const MAGIC: [u8; 4] = *b"TWK1";
/// Bytes of a hello.
pub const HELLO_BYTES: usize = 28;
/// Bytes of an answer.
pub const ANSWER_BYTES: usize = 52;
pub(super) const PROOF_BYTES: usize = 16;
/// Bytes of the length of a frame.
pub const LENGTH_BYTES: usize = 4;
/// Longest contents of a frame: the values of a hundred thousand ranks.
pub(super) const LONGEST_FRAME: usize = 64 << 20;

/// Keys with their values.
pub type Values = Vec<(String, String)>;

/// A message after the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// From a rank: it enters a fence, and has put these values since the last one. From the
    /// server: all ranks have entered it, and these are the values of all.
    Fence(Values),
    /// From a rank: it needs nothing any more.
    Finish,
    /// From the server: the exchange has failed, with the reason.
    Failed(String),
}

/// Encodes a hello.
pub fn hello(rank: u32, ranks: u32, nonce: &Nonce) -> Vec<u8> {
    [&MAGIC[..], &rank.to_le_bytes(), &ranks.to_le_bytes(), nonce].concat()
}

/// Decodes a hello: the rank, the number of ranks, the random bytes.
pub fn read_hello(bytes: &[u8]) -> Option<(u32, u32, Nonce)> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (rank, rest) = rest.split_first_chunk()?;
    let (ranks, rest) = rest.split_first_chunk()?;
    Some((u32::from_le_bytes(*rank), u32::from_le_bytes(*ranks), rest.try_into().ok()?))
}

/// Encodes an answer.
pub fn answer(of_server: &Nonce, of_job: &Nonce, proof: &Proof) -> Vec<u8> {
    [&MAGIC[..], of_server, of_job, proof].concat()
}

/// Decodes an answer: the random bytes of the connection and of the job, and the proof.
pub fn read_answer(bytes: &[u8]) -> Option<(Nonce, Nonce, Proof)> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (of_server, rest) = rest.split_first_chunk()?;
    let (of_job, rest) = rest.split_first_chunk()?;
    Some((*of_server, *of_job, rest.try_into().ok()?))
}

impl Frame {
    /// Encodes the frame with its length.
    pub fn encode(&self) -> Vec<u8> {
        let contents = match self {
            Frame::Fence(values) => {
                let texts = values.iter().flat_map(|(key, value)| [key, value]);
                texts.fold(vec![b'v'], |mut bytes, text| {
                    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
                    bytes.extend_from_slice(text.as_bytes());
                    bytes
                })
            }
            Frame::Finish => vec![b'f'],
            Frame::Failed(why) => [b"e", why.as_bytes()].concat(),
        };
        [&(contents.len() as u32).to_le_bytes()[..], &contents].concat()
    }

    /// Decodes the contents of a frame.
    pub fn decode(contents: &[u8]) -> Option<Frame> {
        let (letter, mut rest) = contents.split_first()?;
        match letter {
            b'v' => {
                let mut texts = Vec::new();
                // A length is compared with the bytes that are left before a text is copied, so a
                // frame takes no more memory than it has bytes.
                while !rest.is_empty() {
                    let (length, behind) = rest.split_first_chunk()?;
                    let (text, behind) =
                        behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                    texts.push(std::str::from_utf8(text).ok()?.to_owned());
                    rest = behind;
                }
                // An odd number of texts is a key without a value, and invalid as a whole.
                let mut texts = texts.into_iter();
                let mut values = Values::new();
                while let Some(key) = texts.next() {
                    values.push((key, texts.next()?));
                }
                Some(Frame::Fence(values))
            }
            b'f' => rest.is_empty().then_some(Frame::Finish),
            b'e' => Some(Frame::Failed(String::from_utf8_lossy(rest).into_owned())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_are_decoded_as_they_were_encoded(values in prop::collection::vec((".*", ".*"), 0..5)) {
            let frame = Frame::Fence(values);
            let bytes = frame.encode();
            prop_assert_eq!(bytes.len() - LENGTH_BYTES, u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize);
            prop_assert_eq!(Frame::decode(&bytes[LENGTH_BYTES..]), Some(frame));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = (Frame::decode(&bytes), read_hello(&bytes), read_answer(&bytes));
        }

        /// Short lengths, so that some of the texts end where the contents do.
        #[test]
        fn accepted_contents_have_one_meaning(
            letter in prop::sample::select(b"vfe".as_slice()),
            texts in prop::collection::vec((0..4u32, "[ab]{0,3}"), 0..5),
            cut in 0..8usize,
        ) {
            let mut contents = vec![letter];
            for (length, text) in texts {
                contents.extend_from_slice(&length.to_le_bytes());
                contents.extend_from_slice(text.as_bytes());
            }
            contents.truncate(contents.len().saturating_sub(cut).max(1));
            if let Some(frame) = Frame::decode(&contents) {
                prop_assert!(letter == b'e' || frame.encode()[LENGTH_BYTES..] == contents);
            }
        }

        #[test]
        fn a_length_beyond_the_contents_is_refused(length in 1..=u32::MAX, key in ".{0,4}") {
            let mut contents = vec![b'v'];
            contents.extend_from_slice(&(key.len() as u32).to_le_bytes());
            contents.extend_from_slice(key.as_bytes());
            contents.extend_from_slice(&length.to_le_bytes());
            prop_assert_eq!(Frame::decode(&contents), None);
        }
    }

    #[test]
    fn the_handshake_is_decoded_as_it_was_encoded() {
        let hello = hello(3, 7, &[5; 16]);
        assert_eq!((hello.len(), read_hello(&hello)), (HELLO_BYTES, Some((3, 7, [5; 16]))));
        let answer = answer(&[1; 16], &[2; 16], &[3; 16]);
        assert_eq!(answer.len(), ANSWER_BYTES);
        assert_eq!(read_answer(&answer), Some(([1; 16], [2; 16], [3; 16])));
        assert_eq!(read_hello(b"GET / HTTP/1.1\r\nHost: somebody"), None);
        for frame in [Frame::Finish, Frame::Failed("rank 3".into())] {
            assert_eq!(Frame::decode(&frame.encode()[LENGTH_BYTES..]), Some(frame));
        }
        assert_eq!(Frame::decode(b"vabc"), None);
        assert_eq!(Frame::decode(b""), None);
    }
}
