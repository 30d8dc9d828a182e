//! Frames of records: what those of messages and of flows have in common.

pub(crate) mod flows;
pub mod messages;

/// Bytes of records in a frame after which another frame begins.
pub(crate) const BATCH_BYTES: usize = 64 << 10;

/// Returns the length of the longest frame of records of at most so many bytes: a batch, and the
/// record that has completed it.
pub(crate) const fn longest_frame(record_bytes: usize) -> u64 {
    (BATCH_BYTES + record_bytes) as u64
}

/// Returns the bytes of a head, which consists of words.
#[inline]
pub(crate) fn encode_head<const WORDS: usize, const BYTES: usize>(
    words: [u64; WORDS],
) -> [u8; BYTES] {
    const { assert!(BYTES == 8 * WORDS) };
    let mut head = [0; BYTES];
    for (place, word) in head.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    head
}

/// Returns the words of a head.
#[inline]
pub(crate) fn decode_head<const WORDS: usize, const BYTES: usize>(
    head: &[u8; BYTES],
) -> [u64; WORDS] {
    const { assert!(BYTES == 8 * WORDS) };
    let (words, _) = head.as_chunks::<8>();
    std::array::from_fn(|place| u64::from_le_bytes(words[place]))
}

/// Returns true if a frame consists of whole records. `split_first` returns the rest of a frame
/// behind its first record, or `None` if it does not begin with a whole one.
pub(crate) fn are_whole(mut frame: &[u8], split_first: impl Fn(&[u8]) -> Option<&[u8]>) -> bool {
    while !frame.is_empty() {
        match split_first(frame) {
            Some(rest) => frame = rest,
            None => return false,
        }
    }
    true
}
