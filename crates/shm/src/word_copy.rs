//! Copies into and out of a segment shared with an untrusted process.
//!
//! [`SegmentMemory`](crate::memory::SegmentMemory) relies on a protocol that keeps two processes
//! from accessing the same bytes at once. Where the other process may break the protocol, because
//! its memory is corrupt or it belongs to another program, even reading would be a data race. The
//! functions of this module move every byte in an atomic word, or by instructions that the compiler
//! cannot see: a process that breaks the protocol corrupts the copied data and nothing else. A copy
//! costs about as much as a plain one.

use crate::segment::{Offset, Segment, SegmentError};
use crate::sync::{AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// Words of a line.
const LINE_WORDS: usize = 8;
/// Bytes of a line.
const LINE_BYTES: usize = LINE_WORDS * WORD;
/// Lines from which their last words are kept while they are copied. A stream of messages of four
/// lines took a quarter longer with that.
const KEPT_FROM: usize = 8;

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
    let (mut words, skip) = words(segment, at, bytes.len())?;
    // Relaxed throughout: the caller has acquired the word that publishes these bytes.
    let bytes_of = |word: &AtomicU64| word.load(Ordering::Relaxed).to_ne_bytes();
    let (head, rest) = bytes.split_at_mut(head_length(skip, bytes.len()));
    if !head.is_empty()
        && let Some(word) = words.split_off_first()
    {
        head.copy_from_slice(&bytes_of(word)[skip..skip + head.len()]);
    }
    load_words(words, rest);
    Ok(())
}

/// Copies the first bytes of these words into `bytes`, which has at most as many.
///
/// ```
/// use shm::sync::AtomicU64;
/// use shm::word_copy::{load_words, store_words};
///
/// let words = [const { AtomicU64::new(0) }; 2];
/// store_words(b"trade wind", &words);
/// let mut bytes = [0; 10];
/// load_words(&words, &mut bytes);
/// assert_eq!(&bytes, b"trade wind");
/// ```
#[inline]
pub fn load_words(words: &[AtomicU64], bytes: &mut [u8]) {
    let (chunks, tail) = bytes.as_chunks_mut::<WORD>();
    let (whole, last) = words.split_at(chunks.len().min(words.len()));
    let copied = blocks::load(whole, chunks);
    // Whole arrays, because a slice of unknown length costs a call of `memmove` for each word
    // wherever the compiler does not inline the copy.
    for (chunk, word) in chunks[copied..].iter_mut().zip(&whole[copied..]) {
        // Relaxed: the caller has acquired the word that publishes these bytes.
        *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    if let Some(word) = last.first() {
        tail.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..tail.len()]);
    }
}

/// Copies `bytes` into the first of these words, which have space for them. The rest of the last
/// word that is written is zero.
#[inline]
pub fn store_words(bytes: &[u8], words: &[AtomicU64]) {
    let (chunks, tail) = bytes.as_chunks::<WORD>();
    let (whole, last) = words.split_at(chunks.len().min(words.len()));
    store_whole(chunks, whole);
    if let Some(word) = last.first().filter(|_| !tail.is_empty()) {
        let mut padded = [0; WORD];
        padded[..tail.len()].copy_from_slice(tail);
        // Relaxed: the store that publishes the bytes releases them.
        word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
    }
}

/// Copies as [`load_words`] does from `words`, which are whole lines of 64 bytes. Stores the last word
/// of each line, as it was copied or as it is if nothing was copied from it, in `lasts`, which has
/// an element for each line.
///
/// ```
/// use shm::sync::AtomicU64;
/// use shm::word_copy::{load_lines, store_lines};
///
/// let words = [const { AtomicU64::new(7) }; 16];
/// let (mut written, mut read) = ([0; 2], [0; 2]);
/// store_lines(&[1; 70], &words, &mut written);
/// let mut bytes = [0; 70];
/// load_lines(&words, &mut bytes, &mut read);
/// assert_eq!(bytes, [1; 70]);
/// assert_eq!(written, [u64::from_ne_bytes([1; 8]), 7]);
/// assert_eq!(read, written);
/// ```
#[inline]
pub fn load_lines(words: &[AtomicU64], bytes: &mut [u8], lasts: &mut [u64]) {
    let (lines, _) = bytes.as_chunks_mut::<LINE_BYTES>();
    let copied = lines::load(words, lines, lasts);
    let words = &words[copied * LINE_WORDS..];
    load_words(words, &mut bytes[copied * LINE_BYTES..]);
    load_lasts(words, &mut lasts[copied..]);
}

/// Copies as [`store_words`] does to `words`, which are whole lines of 64 bytes. Stores the last word
/// of each line, as it is afterwards, in `lasts`, which has an element for each line.
#[inline]
pub fn store_lines(bytes: &[u8], words: &[AtomicU64], lasts: &mut [u64]) {
    let (lines, _) = bytes.as_chunks::<LINE_BYTES>();
    let copied = lines::store(lines, words, lasts);
    let words = &words[copied * LINE_WORDS..];
    store_words(&bytes[copied * LINE_BYTES..], words);
    load_lasts(words, &mut lasts[copied..]);
}

/// Loads the last words of lines.
#[inline]
fn load_lasts(words: &[AtomicU64], lasts: &mut [u64]) {
    for (line, last) in words.chunks_exact(LINE_WORDS).zip(lasts) {
        // Relaxed: as in `load_words`.
        *last = line[LINE_WORDS - 1].load(Ordering::Relaxed);
    }
}

/// Copies whole words.
#[inline]
fn store_whole(chunks: &[[u8; WORD]], words: &[AtomicU64]) {
    let copied = blocks::store(chunks, words);
    for (chunk, word) in chunks[copied..].iter().zip(&words[copied..]) {
        // Relaxed: the store that publishes the bytes releases them.
        word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
}

/// Copies `bytes` into the segment. The remaining bytes of the first and the last word are written
/// back unchanged, so no other thread may write to those words at the same time.
///
/// # Errors
/// [`SegmentError::OutOfBounds`] when the range, in whole words, leaves the segment.
pub fn store(segment: &Segment, at: Offset, bytes: &[u8]) -> Result<(), SegmentError> {
    let (mut words, skip) = words(segment, at, bytes.len())?;
    let merge = |word: &AtomicU64, from: usize, part: &[u8]| {
        let mut merged = word.load(Ordering::Relaxed).to_ne_bytes();
        merged[from..from + part.len()].copy_from_slice(part);
        word.store(u64::from_ne_bytes(merged), Ordering::Relaxed);
    };
    let (head, rest) = bytes.split_at(head_length(skip, bytes.len()));
    if !head.is_empty()
        && let Some(word) = words.split_off_first()
    {
        merge(word, skip, head);
    }
    let (chunks, tail) = rest.as_chunks::<WORD>();
    let (whole, last) = words.split_at(chunks.len());
    store_whole(chunks, whole);
    if let Some(word) = last.first() {
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

/// Copies of whole blocks of words, wider than a word where the processor can.
#[cfg(target_arch = "x86_64")]
mod blocks {
    use crate::sync::AtomicU64;
    use core::arch::asm;

    /// Words of a block.
    const WORDS: usize = 8;

    /// Copies whole blocks from the start of `from` to that of `to`, which is as long. Returns the
    /// number of words.
    pub(super) fn load(from: &[AtomicU64], to: &mut [[u8; 8]]) -> usize {
        let blocks = from.len().min(to.len()) / WORDS;
        // SAFETY: both slices have that many blocks. `to` is borrowed exclusively. Another process
        // may write to `from`: the words are atomic, and the copy reads each byte once.
        unsafe { copy(from.as_ptr().cast(), to.as_mut_ptr().cast(), blocks) };
        blocks * WORDS
    }

    /// Copies whole blocks from the start of `from` to that of `to`, which is as long. Returns the
    /// number of words.
    pub(super) fn store(from: &[[u8; 8]], to: &[AtomicU64]) -> usize {
        let blocks = from.len().min(to.len()) / WORDS;
        // SAFETY: both slices have that many blocks. Atomic words may be written through a shared
        // reference, also while others access them; the copy writes each byte once.
        unsafe { copy(from.as_ptr().cast(), to.as_ptr().cast::<u8>().cast_mut(), blocks) };
        blocks * WORDS
    }

    /// Copies blocks of 64 bytes.
    ///
    /// # Safety
    /// Both pointers are valid for that many blocks. Accesses of others to the same bytes are
    /// atomic.
    unsafe fn copy(from: *const u8, to: *mut u8, blocks: usize) {
        if blocks == 0 {
            return;
        }
        // SAFETY: the loop reads and writes 64 bytes `blocks` times, from 1 on, inside the ranges
        // that the caller has promised. The processor moves each byte by one access, as a relaxed
        // atomic access to it does, and the compiler assumes nothing about the values.
        unsafe {
            asm!(
                "2:",
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
                "movups [{to}], {a}",
                "movups [{to} + 16], {b}",
                "movups [{to} + 32], {c}",
                "movups [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "dec {blocks}",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                blocks = inout(reg) blocks => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
}

/// Copies of whole lines that also keep the last word of each line.
#[cfg(target_arch = "x86_64")]
mod lines {
    use super::{KEPT_FROM, LINE_BYTES, LINE_WORDS};
    use crate::sync::AtomicU64;
    use core::arch::asm;

    /// Copies whole lines from the start of `from` to that of `to`. Returns their number.
    #[inline]
    pub(super) fn load(
        from: &[AtomicU64],
        to: &mut [[u8; LINE_BYTES]],
        lasts: &mut [u64],
    ) -> usize {
        let count = (from.len() / LINE_WORDS).min(to.len()).min(lasts.len());
        if count < KEPT_FROM {
            return 0;
        }
        // SAFETY: all three slices have that many lines or words. `to` and `lasts` are borrowed
        // exclusively. Another process may write to `from`: the words are atomic, and the copy reads
        // each byte once.
        unsafe {
            copy(from.as_ptr().cast(), to.as_mut_ptr().cast(), lasts.as_mut_ptr(), count);
        }
        count
    }

    /// Copies whole lines from the start of `from` to that of `to`. Returns their number.
    #[inline]
    pub(super) fn store(from: &[[u8; LINE_BYTES]], to: &[AtomicU64], lasts: &mut [u64]) -> usize {
        let count = from.len().min(to.len() / LINE_WORDS).min(lasts.len());
        if count < KEPT_FROM {
            return 0;
        }
        // SAFETY: all three slices have that many lines or words. Atomic words may be written through
        // a shared reference, also while others access them; the copy writes each byte once. `lasts`
        // is borrowed exclusively.
        unsafe {
            let to = to.as_ptr().cast::<u8>().cast_mut();
            copy(from.as_ptr().cast(), to, lasts.as_mut_ptr(), count);
        }
        count
    }

    /// Copies lines of 64 bytes, and the last word of each to `lasts`.
    ///
    /// # Safety
    /// There is a line. The pointers are valid for that many lines and words. Accesses of others to
    /// the bytes of the lines are atomic.
    #[inline]
    unsafe fn copy(from: *const u8, to: *mut u8, lasts: *mut u64, lines: usize) {
        // SAFETY: the loop reads and writes 64 bytes and writes a word `lines` times, from 1 on,
        // inside the ranges that the caller has promised. The processor moves each byte by one
        // access, as a relaxed atomic access to it does, and the compiler assumes nothing about the
        // values. MOVHPS stores the upper half of the register: bytes 56 to 63 of the line.
        unsafe {
            asm!(
                "2:",
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
                "movups [{to}], {a}",
                "movups [{to} + 16], {b}",
                "movups [{to} + 32], {c}",
                "movups [{to} + 48], {d}",
                "movhps qword ptr [{lasts}], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "add {lasts}, 8",
                "dec {lines}",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                lasts = inout(reg) lasts => _,
                lines = inout(reg) lines => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
}

/// No copies of whole lines: words are copied by themselves.
#[cfg(not(target_arch = "x86_64"))]
mod lines {
    use super::LINE_BYTES;
    use crate::sync::AtomicU64;

    pub(super) fn load(_: &[AtomicU64], _: &mut [[u8; LINE_BYTES]], _: &mut [u64]) -> usize {
        0
    }

    pub(super) fn store(_: &[[u8; LINE_BYTES]], _: &[AtomicU64], _: &mut [u64]) -> usize {
        0
    }
}

/// No wider copies: every word is copied by itself.
#[cfg(not(target_arch = "x86_64"))]
mod blocks {
    use crate::sync::AtomicU64;

    pub(super) fn load(_: &[AtomicU64], _: &mut [[u8; 8]]) -> usize {
        0
    }

    pub(super) fn store(_: &[[u8; 8]], _: &[AtomicU64]) -> usize {
        0
    }
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
            writes in proptest::collection::vec((0..200usize, proptest::collection::vec(any::<u8>(), 0..300)), 1..20),
            from in 0..150usize,
            length in 0..350usize,
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

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn lines_and_their_last_words_agree_with_a_slice(
            bytes in proptest::collection::vec(any::<u8>(), 0..1300),
            before in proptest::collection::vec(any::<u64>(), 160),
            count in 0..20usize,
            length in 0..1300usize,
        ) {
            let words: Vec<AtomicU64> = before.iter().copied().map(AtomicU64::new).collect();
            let words = &words[..count * LINE_WORDS];
            let bytes = &bytes[..bytes.len().min(count * LINE_BYTES)];
            let mut model: Vec<u8> =
                before[..words.len()].iter().flat_map(|word| word.to_ne_bytes()).collect();
            model[..bytes.len()].copy_from_slice(bytes);
            model[bytes.len()..bytes.len().next_multiple_of(WORD)].fill(0);
            let lasts: Vec<u64> = model
                .chunks_exact(LINE_BYTES)
                .map(|line| u64::from_ne_bytes(*line.last_chunk().expect("a line")))
                .collect();
            let mut found = vec![1; count];
            store_lines(bytes, words, &mut found);
            prop_assert_eq!(&found, &lasts);
            let mut copy = vec![0; length.min(count * LINE_BYTES)];
            found.fill(1);
            load_lines(words, &mut copy, &mut found);
            prop_assert_eq!(&copy[..], &model[..copy.len()]);
            prop_assert_eq!(found, lasts);
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
