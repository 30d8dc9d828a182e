//! Memory that one process writes and others only read, enforced by file seals.

use super::backing;
use super::error::SegmentError;
use super::mapping::{file_bytes, map_file};
use crate::sync::{AtomicU64, Ordering};
use rustix::fs::SealFlags;
use rustix::mm::ProtFlags;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// Seals that a file needs before it may be read in place: against new writers, and against a
/// change of size (SIGBUS).
pub(super) const SEALS: SealFlags =
    SealFlags::FUTURE_WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// Word that another process may change at any time and this one cannot.
#[derive(Debug)]
#[repr(transparent)]
pub struct ReadOnlyWord(AtomicU64);

impl ReadOnlyWord {
    /// Loads the value; earlier writes of its writer are then visible.
    #[inline]
    pub fn load(&self) -> u64 {
        // Acquire: pairs with the Release store of the segment's creator.
        self.0.load(Ordering::Acquire)
    }
}

/// Read-only mapping of a segment that another process created with
/// [`Segment::create_for_readers`](super::Segment::create_for_readers). It stays mapped until the
/// value is dropped.
pub struct ReadOnlySegment {
    base: NonNull<u8>,
    bytes: u64,
    file: OwnedFd,
}

// SAFETY: the mapping belongs to the value, not to a thread, and is only read, by atomic loads.
unsafe impl Send for ReadOnlySegment {}
// SAFETY: as above.
unsafe impl Sync for ReadOnlySegment {}

impl fmt::Debug for ReadOnlySegment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ReadOnlySegment")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl ReadOnlySegment {
    /// Maps a segment for reading.
    ///
    /// # Errors
    ///
    /// [`SegmentError::NotSealed`] for a file that could be shortened or written to,
    /// [`SegmentError::Size`] for an empty one, [`SegmentError::Map`].
    pub fn from_fd(file: OwnedFd) -> Result<ReadOnlySegment, SegmentError> {
        let place = backing::describe(&file);
        if !rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS)) {
            return Err(SegmentError::NotSealed { place });
        }
        let bytes = file_bytes(&file, &place)?;
        let base = map_file(&file, bytes, &place, ProtFlags::READ)?;
        Ok(ReadOnlySegment { base, bytes, file })
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the whole segment as words.
    #[inline]
    pub fn words(&self) -> &[ReadOnlyWord] {
        // SAFETY: the mapping is page-aligned, `bytes` long and lives as long as `self`. It keeps
        // its size (the seals were checked) and its creator committed it. Other processes change it
        // by atomic stores of words; this type only performs atomic loads, which never write: on
        // x86_64 and aarch64 those of eight bytes are plain loads.
        unsafe {
            std::slice::from_raw_parts(
                self.base.as_ptr().cast(),
                self.bytes as usize / size_of::<ReadOnlyWord>(),
            )
        }
    }
}

impl AsFd for ReadOnlySegment {
    /// Returns the file, which grants read access to its holder.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for ReadOnlySegment {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `from_fd` created; every reference into it borrowed
        // `self` and has ended. A failure would leave the mapping in place, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Backing, Offset, Segment};
    use super::*;
    use rustix::fs::FallocateFlags;
    use rustix::io::Errno;
    use rustix::mm::MprotectFlags;

    fn descriptor(segment: &Segment) -> OwnedFd {
        segment.as_fd().try_clone_to_owned().expect("a free descriptor")
    }

    #[test]
    fn the_creator_writes_and_readers_read() {
        let segment = Segment::create_for_readers(5000).expect("two pages");
        let reader = ReadOnlySegment::from_fd(descriptor(&segment)).expect("sealed");
        assert_eq!(reader.bytes(), 8192);
        assert_eq!(reader.words().len(), 1024);
        segment.at::<AtomicU64>(Offset(8184)).expect("inside").store(7, Ordering::Release);
        assert_eq!(reader.words()[1023].load(), 7);
    }

    #[test]
    fn readers_cannot_obtain_write_access() {
        let segment = Segment::create_for_readers(4096).expect("a page");
        let file = descriptor(&segment);
        assert!(matches!(Segment::from_fd(descriptor(&segment)), Err(SegmentError::Map { .. })));
        assert_eq!(rustix::io::pwrite(&file, b"x", 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&file, 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&file, 8192), Err(Errno::PERM));
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(&file, hole, 0, 4096), Err(Errno::PERM));
        assert_eq!(rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE), Err(Errno::PERM));
        let reader = ReadOnlySegment::from_fd(file).expect("sealed");
        let read_write = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the mapping belongs to the reader and stays readable whatever the result.
        let upgraded =
            unsafe { rustix::mm::mprotect(reader.base.as_ptr().cast(), 4096, read_write) };
        assert_eq!(upgraded, Err(Errno::ACCESS));
        // Opening the same file by its name in /proc is refused as well.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader.file));
        let again =
            std::fs::File::options().read(true).write(true).open(path).expect("the same user");
        assert!(matches!(Segment::from_fd(again.into()), Err(SegmentError::Map { .. })));
    }

    #[test]
    fn unsealed_files_are_refused() {
        let ordinary = Segment::create(4096, Backing::Memory).expect("a page");
        assert!(matches!(
            ReadOnlySegment::from_fd(descriptor(&ordinary)),
            Err(SegmentError::NotSealed { .. })
        ));
        let file = std::fs::File::open("/proc/self/exe").expect("this program");
        assert!(matches!(
            ReadOnlySegment::from_fd(file.into()),
            Err(SegmentError::NotSealed { .. })
        ));
    }
}
