//! Copies between this core's cache and that of another core, which has written the source or read
//! the destination last.

use crate::prefetch::{LINE, Purpose, prefetch_line};

/// Length from which lines are prefetched. Shorter copies take the same time without.
const PREFETCHED_FROM: usize = 8 << 10;

/// Number of lines between the line that is copied and the line that is prefetched. Between 16 and
/// 64 lines the time of a copy differed by 2 %.
const AHEAD: usize = 24;

/// As [`AHEAD`], of the lines of the destination, for writing. Between 4 and 16 lines the time differed
/// by 2 %.
const AHEAD_TO_WRITE: usize = 8;

/// Length from which the lines of the destination are prefetched. Collectives of 64 KiB took 5 % less
/// with that, those of 256 KiB in pieces of this length 2 to 4 %, and those of 8 KiB as long.
const PREFETCHED_TO_WRITE_FROM: usize = 32 << 10;

/// Distance of the streams of a copy in several streams: the processor prefetches up to the end of a
/// page only, and separately in each page, so several pages at once have more lines on their way.
const PAGE: usize = 4 << 10;

/// Number of these streams. With four, a copy took 5 % longer, with sixteen as long.
const STREAMS: usize = 8;

/// Bytes of a group of pages that are copied in turn.
const GROUP: usize = STREAMS * PAGE;

/// Length from which a copy is made in several streams. Where the sender prefetches as well, collectives
/// of 64 to 256 KiB took 1 to 3 % less than with streams from 128 KiB on.
const IN_STREAMS_FROM: usize = GROUP;

/// Copies bytes that another core has written. It takes up to a quarter less time than a plain copy,
/// as measured from 64 KiB on: the lines arrive while earlier ones are copied.
///
/// ```
/// let from = [7; 20_000];
/// let mut into = [0; 20_000];
/// shm::line_copy::copy(&from, &mut into);
/// assert_eq!(from, into);
/// ```
///
/// # Panics
/// Panics if the slices have different lengths.
#[inline]
pub fn copy(from: &[u8], into: &mut [u8]) {
    assert_eq!(from.len(), into.len(), "a copy has one length");
    // SAFETY: both ranges are slices of this length, and a mutable slice overlaps no other.
    unsafe { copy_raw(from.as_ptr(), into.as_mut_ptr(), from.len()) }
}

/// As [`copy`], and copies `beside`, bytes in this core's cache, meanwhile: they fill the time in
/// which the lines of the other core arrive.
///
/// ```
/// let (from, beside_from) = ([7; 100_000], [9; 100_000]);
/// let (mut into, mut beside_into) = ([0; 100_000], [0; 100_000]);
/// shm::line_copy::copy_beside(&from, &mut into, (&beside_from, &mut beside_into));
/// assert_eq!((from, beside_from), (into, beside_into));
/// ```
///
/// # Panics
/// Panics if the slices have different lengths.
pub fn copy_beside(from: &[u8], into: &mut [u8], beside: (&[u8], &mut [u8])) {
    let lengths = [into.len(), beside.0.len(), beside.1.len()];
    assert_eq!(lengths, [from.len(); 3], "both copies have one length");
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        done = from.len() / GROUP * GROUP;
        let pointers = (beside.0.as_ptr(), beside.1.as_mut_ptr());
        // SAFETY: the processor has the instructions; all ranges are slices of at least this length,
        // and a mutable slice overlaps no other.
        unsafe { copy_groups(from.as_ptr(), into.as_mut_ptr(), done, Some(pointers)) }
    }
    copy(&from[done..], &mut into[done..]);
    beside.1[done..].copy_from_slice(&beside.0[done..]);
}

/// As [`copy`], of `bytes` bytes.
///
/// # Safety
/// `from` can be read and `into` written for `bytes` bytes, the ranges do not overlap, and no other
/// thread writes to the first or accesses the second during the call.
#[inline]
pub(crate) unsafe fn copy_raw(from: *const u8, into: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= PREFETCHED_FROM && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has the instructions; the rest is this function's own contract.
        return unsafe {
            if bytes < IN_STREAMS_FROM {
                copy_lines(from, into, bytes);
            } else {
                copy_streams(from, into, bytes);
            }
        };
    }
    // SAFETY: see this function's contract.
    unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) }
}

/// Copies bytes of this core to memory that another core has read: its lines lie in that core's cache,
/// or in the one that all share. A store to such a line waits for the line, and fewer stores wait at
/// once than prefetches.
///
/// # Safety
/// `from` can be read and `into` written for `bytes` bytes, the ranges do not overlap, and no other
/// thread writes to the first or accesses the second during the call.
#[inline]
pub(crate) unsafe fn copy_out_raw(from: *const u8, into: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= PREFETCHED_TO_WRITE_FROM && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has the instructions; the rest is this function's own contract.
        return unsafe { copy_out_lines(from, into, bytes) };
    }
    // SAFETY: see this function's contract.
    unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) }
}

/// Copies line by line, and prefetches those of the destination.
///
/// # Safety
/// As for [`copy_out_raw`]; the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_out_lines(from: *const u8, into: *mut u8, bytes: usize) {
    let whole = bytes / LINE * LINE;
    for at in (0..whole).step_by(LINE) {
        // Not beyond the end: what follows may be a piece that the other core has yet to read.
        if at + AHEAD_TO_WRITE * LINE < bytes {
            prefetch_line(into.wrapping_add(at + AHEAD_TO_WRITE * LINE), Purpose::Write);
        }
        // SAFETY: the line lies below `bytes` in both ranges, which the caller has checked.
        unsafe { copy_line(from.add(at), into.add(at)) }
    }
    // SAFETY: the rest of both ranges.
    unsafe { std::ptr::copy_nonoverlapping(from.add(whole), into.add(whole), bytes - whole) }
}

/// Copies several pages at a time, a line of each in turn.
///
/// # Safety
/// As for [`copy_raw`]; the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_streams(from: *const u8, into: *mut u8, bytes: usize) {
    let whole = bytes / GROUP * GROUP;
    // SAFETY: this function's contract, for a part of both ranges and for the rest.
    unsafe {
        copy_groups(from, into, whole, None);
        copy_lines(from.add(whole), into.add(whole), bytes - whole);
    }
}

/// Copies groups of pages, and as many bytes beside them, line by line in their order.
///
/// # Safety
/// As for [`copy_raw`], for both copies; the processor has AVX; `bytes` is a multiple of [`GROUP`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_groups(
    from: *const u8,
    into: *mut u8,
    bytes: usize,
    beside: Option<(*const u8, *mut u8)>,
) {
    for group in (0..bytes).step_by(GROUP) {
        for line in (0..PAGE).step_by(LINE) {
            for at in (group + line..group + line + GROUP).step_by(PAGE) {
                // SAFETY: the line lies in the group, so below `bytes`, in both ranges.
                unsafe { copy_line(from.add(at), into.add(at)) }
            }
            let Some((from, into)) = beside else { continue };
            let first = group + line * STREAMS;
            for at in (first..first + LINE * STREAMS).step_by(LINE) {
                // SAFETY: as above: the group's lines, as many for each line of a page as it has
                // pages.
                unsafe { copy_line(from.add(at), into.add(at)) }
            }
        }
    }
}

/// Copies a line in halves, because the vectors of the baseline are quarters: a copy then took
/// longer than `memcpy`.
///
/// # Safety
/// As for [`copy_raw`], for the bytes of a line; the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
unsafe fn copy_line(from: *const u8, into: *mut u8) {
    use core::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};
    let source: *const __m256i = from.cast();
    let target: *mut __m256i = into.cast();
    // SAFETY: this function's contract; these instructions need no alignment.
    unsafe {
        let halves = (_mm256_loadu_si256(source), _mm256_loadu_si256(source.add(1)));
        _mm256_storeu_si256(target, halves.0);
        _mm256_storeu_si256(target.add(1), halves.1);
    }
}

/// Copies line by line.
///
/// # Safety
/// As for [`copy_raw`]; the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_lines(from: *const u8, into: *mut u8, bytes: usize) {
    let whole = bytes / LINE * LINE;
    for at in (0..whole).step_by(LINE) {
        // Not beyond the end: what follows may be the place that the other core writes next.
        if at + AHEAD * LINE < bytes {
            prefetch_line(from.wrapping_add(at + AHEAD * LINE), Purpose::Read);
        }
        // SAFETY: the line lies below `bytes` in both ranges, which the caller has checked.
        unsafe { copy_line(from.add(at), into.add(at)) }
    }
    // SAFETY: the rest of both ranges.
    unsafe { std::ptr::copy_nonoverlapping(from.add(whole), into.add(whole), bytes - whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_all_lengths_and_alignments() {
        const BYTES: usize = 200_000;
        let from: Vec<u8> = (0..BYTES as u32).map(|number| ((number * 7) >> 2) as u8 | 1).collect();
        for (start, target, bytes) in [
            (0, 0, 0),
            (1, 3, 100),
            (0, 0, 8 << 10),
            (5, 9, (8 << 10) + 63),
            (63, 1, 31_001),
            (1, 2, IN_STREAMS_FROM + 4097),
            (0, 0, 4 * IN_STREAMS_FROM),
            (17, 5, 4 * IN_STREAMS_FROM + 32_001),
        ] {
            let mut into = vec![0; BYTES];
            copy(&from[start..start + bytes], &mut into[target..target + bytes]);
            assert_eq!(into[target..target + bytes], from[start..start + bytes]);
            assert!(into[..target].iter().chain(&into[target + bytes..]).all(|byte| *byte == 0));
            let mut into = vec![0; BYTES];
            // SAFETY: both ranges lie in their vectors, which this thread alone accesses.
            unsafe { copy_out_raw(from[start..].as_ptr(), into[target..].as_mut_ptr(), bytes) };
            assert_eq!(into[target..target + bytes], from[start..start + bytes]);
            assert!(into[..target].iter().chain(&into[target + bytes..]).all(|byte| *byte == 0));
            let mut into = [vec![0; bytes], vec![0; bytes]];
            let beside_from = &from[BYTES - start - bytes..BYTES - start];
            let [first, second] = &mut into;
            copy_beside(&from[start..start + bytes], first, (beside_from, second));
            assert_eq!(first, &from[start..start + bytes]);
            assert_eq!(second, beside_from);
        }
    }
}
