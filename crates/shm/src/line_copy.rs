//! Copies of bytes that another core has written: their cache lines lie in its cache.

use crate::prefetch::{LINE, Purpose, prefetch_line};

/// Length from which lines are prefetched. Shorter copies take the same time without.
const PREFETCHED_FROM: usize = 8 << 10;

/// Number of lines between the line that is copied and the line that is prefetched. Between 16 and
/// 64 lines the time of a copy differed by 2 %.
const AHEAD: usize = 24;

/// Copies bytes that another core has written. It takes up to 7 % less time than a plain copy: the
/// lines arrive while earlier ones are copied.
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
        return unsafe { copy_lines(from, into, bytes) };
    }
    // SAFETY: see this function's contract.
    unsafe { std::ptr::copy_nonoverlapping(from, into, bytes) }
}

/// Copies line by line. Halves of lines, because the vectors of the baseline are quarters: the copy
/// then took longer than `memcpy`.
///
/// # Safety
/// As for [`copy_raw`]; the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_lines(from: *const u8, into: *mut u8, bytes: usize) {
    use core::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};
    let whole = bytes / LINE * LINE;
    for at in (0..whole).step_by(LINE) {
        // Not beyond the end: what follows may be the place that the other core writes next.
        if at + AHEAD * LINE < bytes {
            prefetch_line(from.wrapping_add(at + AHEAD * LINE), Purpose::Read);
        }
        // SAFETY: the line lies below `bytes` in both ranges, which the caller has checked; these
        // instructions need no alignment.
        unsafe {
            let source: *const __m256i = from.add(at).cast();
            let target: *mut __m256i = into.add(at).cast();
            let halves = (_mm256_loadu_si256(source), _mm256_loadu_si256(source.add(1)));
            _mm256_storeu_si256(target, halves.0);
            _mm256_storeu_si256(target.add(1), halves.1);
        }
    }
    // SAFETY: the rest of both ranges.
    unsafe { std::ptr::copy_nonoverlapping(from.add(whole), into.add(whole), bytes - whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_all_lengths_and_alignments() {
        let from: Vec<u8> = (0..40_000_u32).map(|number| ((number * 7) >> 2) as u8).collect();
        for (start, target, bytes) in
            [(0, 0, 0), (1, 3, 100), (0, 0, 8 << 10), (5, 9, (8 << 10) + 63), (63, 1, 39_001)]
        {
            let mut into = vec![0; 40_000];
            copy(&from[start..start + bytes], &mut into[target..target + bytes]);
            assert_eq!(into[target..target + bytes], from[start..start + bytes]);
            assert!(into[..target].iter().chain(&into[target + bytes..]).all(|byte| *byte == 0));
        }
    }
}
