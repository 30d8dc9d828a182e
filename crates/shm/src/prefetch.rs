//! Asking for cache lines and pages before they are used: hints that change nothing but time, and
//! do nothing where the processor or the kernel does not know them.

use crate::segment::{Offset, Segment};
use rustix::mm::{Advice, madvise};

/// Bytes of a cache line.
const LINE: usize = 64;

/// What the lines are wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be read: other processors keep their copies.
    Read,
    /// To be written: other processors lose theirs.
    Write,
}

/// Asks for all lines of a range.
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
fn prefetch_line(line: *const u8, purpose: Purpose) {
    use core::arch::asm;
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    match purpose {
        // SAFETY: a prefetch touches nothing and does not fault, whatever the address.
        Purpose::Read => unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) },
        // The intrinsic becomes a prefetch for reading, unless the whole program is built for
        // processors that have the instruction, which is not part of the baseline. SAFETY: as
        // above; processors of 64 bits that do not have it take it for one that does nothing.
        Purpose::Write => unsafe {
            asm!("prefetchw byte ptr [{}]", in(reg) line, options(nostack, preserves_flags))
        },
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch_line(_: *const u8, _: Purpose) {}

/// Lets the kernel enter committed pages into this process's page table now instead of at the first
/// touch of each, which costs about a quarter of a microsecond a page. Kernels before 5.14 do
/// nothing.
pub fn populate(segment: &Segment, offset: Offset, bytes: u64) {
    let Ok(first) = segment.bytes_ptr(offset, bytes) else { return };
    let before = first.addr() % rustix::param::page_size();
    // SAFETY: the pages around the range lie in the segment's mapping; the advice changes what no
    // memory holds.
    let _ = unsafe {
        madvise(first.sub(before).cast(), before + bytes as usize, Advice::LinuxPopulateWrite)
    };
}
