//! Copies into and out of a segment shared with an untrusted process.
//!
//! [`SegmentMemory`](crate::memory::SegmentMemory) relies on a protocol that keeps two processes
//! from accessing the same bytes at once. Where the other process may break the protocol, because
//! its memory is corrupt or it belongs to another program, even reading would be a data race. The
//! functions of this module move every byte in an atomic word: a process that breaks the protocol
//! corrupts the copied data and nothing else. The loads and stores are ordinary instructions on the
//! supported processors, so a copy costs about as much as a plain one.

use crate::segment::{Offset, Segment, SegmentError};
use crate::sync::{AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// Copies from the segment into `bytes`.
///
/// # Errors
/// [`SegmentError::OutOfBounds`] when the range, in whole words, leaves the segment.
///
/// ```
/// use shm::word_copy::{load, store};
/// use shm::segment::{Backing, Offset, Segment};
///
/// # fn main() -> Result<(), shm::segment::SegmentError> {
/// let segment = Segment::create(4096, Backing::Memory)?;
/// store(&segment, Offset(13), b"trade wind")?;
/// let mut bytes = [0; 10];
/// load(&segment, Offset(13), &mut bytes)?;
/// assert_eq!(&bytes, b"trade wind");
/// # Ok(())
/// # }
/// ```
pub fn load(segment: &Segment, at: Offset, bytes: &mut [u8]) -> Result<(), SegmentError> {
    let (words, skip) = words(segment, at, bytes.len())?;
    // Relaxed throughout: the caller has acquired the word that publishes these bytes.
    let mut words = words.iter().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    let (head, rest) = bytes.split_at_mut(head_length(skip, bytes.len()));
    if !head.is_empty() {
        let word = words.next().unwrap_or_default();
        head.copy_from_slice(&word[skip..skip + head.len()]);
    }
    // Whole arrays, because a slice of unknown length costs a call of `memmove` for each word
    // wherever the compiler does not inline the copy.
    let (chunks, tail) = rest.as_chunks_mut::<WORD>();
    for (chunk, word) in chunks.iter_mut().zip(words.by_ref()) {
        *chunk = word;
    }
    if !tail.is_empty()
        && let Some(word) = words.next()
    {
        tail.copy_from_slice(&word[..tail.len()]);
    }
    Ok(())
}

/// Copies `bytes` into the segment. The remaining bytes of the first and the last word are written
/// back unchanged, so no other thread may write to those words at the same time.
///
/// # Errors
/// [`SegmentError::OutOfBounds`] when the range, in whole words, leaves the segment.
pub fn store(segment: &Segment, at: Offset, bytes: &[u8]) -> Result<(), SegmentError> {
    let (words, skip) = words(segment, at, bytes.len())?;
    let mut words = words.iter();
    let merge = |word: &AtomicU64, from: usize, part: &[u8]| {
        let mut merged = word.load(Ordering::Relaxed).to_ne_bytes();
        merged[from..from + part.len()].copy_from_slice(part);
        word.store(u64::from_ne_bytes(merged), Ordering::Relaxed);
    };
    let (head, rest) = bytes.split_at(head_length(skip, bytes.len()));
    if !head.is_empty()
        && let Some(word) = words.next()
    {
        merge(word, skip, head);
    }
    let (chunks, tail) = rest.as_chunks::<WORD>();
    for (chunk, word) in chunks.iter().zip(words.by_ref()) {
        // Relaxed: the store that publishes the bytes releases them.
        word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    if !tail.is_empty()
        && let Some(word) = words.next()
    {
        merge(word, 0, tail);
    }
    Ok(())
}

/// Returns the words that cover a range, and the number of bytes of the first word before it.
fn words(
    segment: &Segment,
    at: Offset,
    length: usize,
) -> Result<(&[AtomicU64], usize), SegmentError> {
    let skip = at.0 as usize % WORD;
    let first = Offset(at.0 - skip as u64);
    // A saturated count lies outside every segment, which `slice_at` reports.
    let count = length.saturating_add(skip).div_ceil(WORD);
    Ok((segment.slice_at(first, if length == 0 { 0 } else { count })?, skip))
}

/// Number of bytes of a range before its first whole word.
fn head_length(skip: usize, length: usize) -> usize {
    if skip == 0 { 0 } else { (WORD - skip).min(length) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Backing;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn copies_agree_with_a_slice(
            writes in proptest::collection::vec((0..200usize, proptest::collection::vec(any::<u8>(), 0..90)), 1..20),
            from in 0..150usize,
            length in 0..150usize,
        ) {
            let segment = Segment::create(4096, Backing::Memory).expect("a page");
            let mut model = [0u8; 512];
            for (at, bytes) in &writes {
                store(&segment, Offset(*at as u64), bytes).expect("inside");
                model[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            let mut copy = vec![0; length];
            load(&segment, Offset(from as u64), &mut copy).expect("inside");
            prop_assert_eq!(&copy, &model[from..from + length]);
        }
    }

    #[test]
    fn ranges_outside_the_segment_are_refused() {
        let segment = Segment::create(4096, Backing::Memory).expect("a page");
        assert!(store(&segment, Offset(4090), &[1; 7]).is_err());
        assert!(load(&segment, Offset(u64::MAX - 3), &mut [0; 64]).is_err());
        assert!(load(&segment, Offset(4089), &mut [0; 7]).is_ok());
        assert!(load(&segment, Offset(4096), &mut []).is_ok());
    }
}
