//! Sizes of files and their mapping into this process.

use super::error::SegmentError;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

/// Returns the size of a received file, if it can be mapped.
pub(super) fn file_bytes(file: &OwnedFd, place: &str) -> Result<u64, SegmentError> {
    let unusable = |source: Errno| SegmentError::Map {
        bytes: 0,
        place: place.to_owned(),
        source: source.into(),
    };
    let bytes = rustix::fs::fstat(file).map_err(unusable)?.st_size.cast_unsigned();
    if bytes == 0 || isize::try_from(bytes).is_err() {
        return Err(SegmentError::Size { bytes });
    }
    Ok(bytes)
}

/// Returns the size of the segment in a file of so many bytes, which has one page more; 0 if it is
/// too short.
pub(super) fn segment_bytes(file: u64) -> u64 {
    let page = page_bytes();
    (file / page).saturating_sub(1) * page
}

/// Maps a whole file as shared memory.
pub(super) fn map_file(
    file: &OwnedFd,
    bytes: u64,
    place: &str,
    protection: ProtFlags,
) -> Result<NonNull<u8>, SegmentError> {
    let failed =
        |source: Errno| SegmentError::Map { bytes, place: place.to_owned(), source: source.into() };
    let length = usize::try_from(bytes).map_err(|_| SegmentError::Size { bytes })?;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address chosen by the kernel replaces no existing mapping.
    let address =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, flags, file, 0) };
    NonNull::new(address.map_err(failed)?.cast()).ok_or_else(|| failed(Errno::FAULT))
}

/// Rounds a size in bytes up to whole pages.
pub(super) fn whole_pages(bytes: u64) -> Result<u64, SegmentError> {
    let rounded = bytes.checked_next_multiple_of(page_bytes()).filter(|&rounded| rounded != 0);
    rounded.filter(|&rounded| isize::try_from(rounded).is_ok()).ok_or(SegmentError::Size { bytes })
}

/// Returns the page size of this machine in bytes.
pub(super) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}
