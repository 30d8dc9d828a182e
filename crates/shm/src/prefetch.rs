//! Prefetching of cache lines and pages: hints that affect only timing and have no effect where the
//! processor or the kernel does not support them.

use crate::segment::{Offset, Segment};
use rustix::mm::{Advice, madvise};

/// Size of a cache line in bytes.
pub(crate) const LINE: usize = 64;

/// Intended use of prefetched lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Reading: other processors keep their copies.
    Read,
    /// Writing: other processors lose their copies.
    Write,
}

/// Prefetches all lines of a range.
///
/// ```
/// use shm::prefetch::{Purpose, prefetch};
/// let word = [0_u64; 8];
/// prefetch(word.as_ptr().cast(), size_of_val(&word), Purpose::Read);
/// ```
#[inline(always)]
pub fn prefetch(first: *const u8, bytes: usize, purpose: Purpose) {
    for line in (0..bytes).step_by(LINE) {
        prefetch_line(first.wrapping_add(line), purpose);
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn prefetch_line(line: *const u8, purpose: Purpose) {
    use core::arch::asm;
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    match purpose {
        // SAFETY: a prefetch accesses no memory and does not fault, whatever the address.
        Purpose::Read => unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) },
        // Inline assembly, because the intrinsic falls back to a prefetch for reading unless the
        // whole program is built for processors with PREFETCHW, which the baseline lacks.
        // SAFETY: as above; 64-bit processors without the instruction execute it as a no-op.
        Purpose::Write => unsafe {
            asm!("prefetchw byte ptr [{}]", in(reg) line, options(nostack, preserves_flags))
        },
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn prefetch_line(_: *const u8, _: Purpose) {}

/// Moves the lines of a range that this processor has written to the cache that all share. Another
/// processor then reads them from there, which takes less time than from this one's private cache.
///
/// ```
/// use shm::prefetch::demote;
/// let word = [0_u64; 8];
/// demote(word.as_ptr().cast(), size_of_val(&word));
/// ```
#[inline(always)]
pub fn demote(first: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(LINE) {
        demote_line(first.wrapping_add(line));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn demote_line(line: *const u8) {
    // CLDEMOTE [rdi], as bytes: not every assembler has the instruction.
    // SAFETY: a hint, which accesses no memory and does not fault, whatever the address; processors
    // without the instruction execute its encoding as a no-op.
    unsafe {
        core::arch::asm!(
            ".byte 0x0f, 0x1c, 0x07",
            in("rdi") line,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn demote_line(_: *const u8) {}

/// Enters committed pages into this process's page table now instead of at the first access to
/// each, which costs about a quarter of a microsecond per page. Has no effect before Linux 5.14.
pub fn populate(segment: &Segment, offset: Offset, bytes: u64) {
    let Ok(first) = segment.bytes_ptr(offset, bytes) else { return };
    let before = first.addr() % rustix::param::page_size();
    // SAFETY: the pages around the range lie in the segment's mapping, and the advice changes the
    // contents of no memory.
    let _ = unsafe {
        madvise(first.sub(before).cast(), before + bytes as usize, Advice::LinuxPopulateWrite)
    };
}
