//! Checks that memory can be read or written, before a copy that could end the process by a fault.
//!
//! The kernel reports memory that cannot be read to its own copies by an error (EFAULT), and to
//! those of a process by SIGBUS or SIGSEGV. Its pages are therefore populated first, which reports
//! the same condition by an error (MADV_POPULATE_READ, _WRITE). Kernels before 5.14 check nothing.
//!
//! The answer holds until the memory is unmapped, protected or shortened. No process can shorten a
//! segment that [is sealed](crate::segment::Segment::is_sealed).

use crate::segment::{Offset, Segment};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use std::io::{Error, ErrorKind, Result};

/// Checks a range of a segment.
///
/// # Errors
/// The system's reason if the range cannot be read; `InvalidInput` when it leaves the segment.
///
/// ```
/// use shm::readable;
/// use shm::segment::{Backing, Offset, Segment};
///
/// let segment = Segment::create(4096, Backing::Memory)?;
/// readable::check_segment(&segment, Offset(100), 50)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_segment(segment: &Segment, at: Offset, length: u64) -> Result<()> {
    let start = segment.bytes_ptr(at, length).map_err(outside)?;
    Ok(populate(start, length as usize, Advice::LinuxPopulateRead)?)
}

/// Commits all pages of a range of a segment, so that it can be read and written.
///
/// # Errors
/// The system's reason if it has no memory; `InvalidInput` when the range leaves the segment.
pub fn populate_segment(segment: &Segment, at: Offset, length: u64) -> Result<()> {
    let start = segment.bytes_ptr(at, length).map_err(outside)?;
    Ok(populate(start, length as usize, Advice::LinuxPopulateWrite)?)
}

fn outside(error: crate::segment::SegmentError) -> Error {
    Error::new(ErrorKind::InvalidInput, error.to_string())
}

/// Checks memory of this process that a program may have unmapped or protected since it was
/// borrowed.
///
/// # Errors
/// The system's reason if the memory cannot be read.
///
/// ```
/// shm::readable::check_slice(b"trade wind")?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn check_slice(bytes: &[u8]) -> Result<()> {
    Ok(populate(bytes.as_ptr(), bytes.len(), Advice::LinuxPopulateRead)?)
}

fn populate(start: *const u8, length: usize, advice: Advice) -> std::result::Result<(), Errno> {
    /// Memory that can be read.
    static KNOWN: u8 = 0;
    if length == 0 {
        return Ok(());
    }
    match populate_pages(start, length, advice) {
        // Either the kernel lacks both advices, or the memory is protected.
        Err(Errno::INVAL)
            if populate_pages(&raw const KNOWN, 1, Advice::LinuxPopulateRead).is_err() =>
        {
            Ok(())
        }
        populated => populated,
    }
}

fn populate_pages(
    start: *const u8,
    length: usize,
    advice: Advice,
) -> std::result::Result<(), Errno> {
    let skip = start.addr() % rustix::param::page_size();
    let first = start.wrapping_sub(skip).cast_mut().cast();
    loop {
        // SAFETY: both advices map pages that an access would map, and change no contents. The
        // kernel checks the addresses.
        match unsafe { madvise(first, skip + length, advice) } {
            Err(Errno::INTR) => {}
            advised => return advised,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Backing;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

    #[test]
    fn the_end_of_a_shortened_file_is_reported() {
        let file = memfd_create("shortened", MemfdFlags::CLOEXEC).expect("a descriptor");
        let page = rustix::param::page_size() as u64;
        // A segment of three pages and the page behind it.
        ftruncate(&file, 4 * page).expect("it grows");
        let segment = Segment::from_fd(file.try_clone().expect("a descriptor")).expect("mapped");
        check_segment(&segment, Offset(7), 3 * page - 7).expect("all of it is there");
        ftruncate(&file, page).expect("it shrinks");
        check_segment(&segment, Offset(7), page - 7).expect("the first page is there");
        check_segment(&segment, Offset(7), page).expect_err("the second page is not there");
        populate_segment(&segment, Offset(7), page - 7).expect("the first page is there");
        populate_segment(&segment, Offset(7), page).expect_err("the second page is not there");
        check_segment(&segment, Offset(7), 0).expect("nothing is read");
    }

    #[test]
    fn protected_memory_is_reported() {
        let page = rustix::param::page_size();
        // SAFETY: the kernel chooses free addresses.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                2 * page,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let start = start.expect("address space");
        // SAFETY: the pages were mapped above, and nothing else uses them.
        let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), 2 * page) };
        check_slice(bytes).expect("both pages can be read");
        // SAFETY: no access to the second page follows.
        unsafe { mprotect(start.wrapping_byte_add(page), page, MprotectFlags::empty()) }
            .expect("it is mapped");
        check_slice(&bytes[..page]).expect("the first page can be read");
        check_slice(&bytes[page - 1..=page]).expect_err("the second page cannot be read");
    }

    #[test]
    fn ranges_outside_the_segment_are_refused() {
        let segment = Segment::create(4096, Backing::Memory).expect("a page");
        let outside = check_segment(&segment, Offset(4000), 97).expect_err("outside");
        assert_eq!(outside.kind(), ErrorKind::InvalidInput);
    }
}
