//! Segment: one sparse file in memory that every process of a job maps once and never moves.
//!
//! The file has its full size from the start and receives memory step by step: [`Segment::commit`]
//! reserves pages *before* they are accessed. Accessing a page that a full file system cannot
//! supply kills the process with SIGBUS; reserving it first turns the same condition into an error.
//! Each process maps the file at another address, so positions in it are given by [`Offset`].
//!
//! The file is one page longer than the segment. The page holds the announcements of processes that
//! connect to [objects](crate::object).

use crate::announcements::{Announcements, WORDS};
use crate::descriptor::LastingDescriptor;
use crate::shared::Shared;
use crate::sync::AtomicU64;
use mapping::{file_bytes, map_file, page_bytes, segment_bytes, whole_pages};
use rustix::fs::{FallocateFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

mod backing;
mod error;
mod mapping;
mod offset;
mod read_only;
mod reader;

pub use backing::Backing;
pub use error::SegmentError;
pub use offset::Offset;
pub use read_only::{ReadOnlySegment, ReadOnlyWord};
pub use reader::SegmentReader;

/// Memory shared by all ranks of a job on a node. It stays mapped until the value is dropped.
///
/// # Examples
///
/// ```
/// use shm::segment::{Backing, Offset, Segment};
/// use shm::sync::{AtomicU32, Ordering};
/// use std::os::fd::AsFd;
///
/// # fn main() -> Result<(), shm::segment::SegmentError> {
/// let segment = Segment::create(1 << 20, Backing::Memory)?;
/// segment.commit(Offset(4096), 64)?;
/// let word: &AtomicU32 = segment.at(Offset(4096))?;
/// word.store(7, Ordering::Release);
///
/// // Another process would receive the descriptor from the broker.
/// let descriptor = segment.as_fd().try_clone_to_owned().expect("a free descriptor");
/// let same = Segment::from_fd(descriptor)?;
/// assert_eq!(same.at::<AtomicU32>(Offset(4096))?.load(Ordering::Acquire), 7);
/// # Ok(())
/// # }
/// ```
pub struct Segment {
    base: NonNull<u8>,
    /// Size without the page behind the segment.
    bytes: u64,
    /// Size of the file.
    mapped: u64,
    file: LastingDescriptor,
    place: String,
}

// SAFETY: the mapping belongs to the value, not to a thread. References into it exist for `Shared`
// types only.
unsafe impl Send for Segment {}
// SAFETY: as above; `&Segment` returns addresses, and references to types that allow concurrent
// access.
unsafe impl Sync for Segment {}

impl fmt::Debug for Segment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Segment")
            .field("bytes", &self.bytes)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Segment {
    /// Creates a segment of `bytes` bytes (rounded up to whole pages), all zero, and maps it. Only
    /// the first page is committed, and one behind the segment.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Size`], [`SegmentError::FileSizeLimit`], [`SegmentError::Create`],
    /// [`SegmentError::NoSpace`] or [`SegmentError::Reserve`] for the first page,
    /// [`SegmentError::Map`].
    pub fn create(bytes: u64, backing: Backing) -> Result<Segment, SegmentError> {
        let bytes = whole_pages(bytes)?;
        let mapped = whole_pages(bytes.saturating_add(page_bytes()))?;
        let (file, place) = backing.create(mapped)?;
        let segment = Segment::map(file, bytes, mapped, place)?;
        // Detects a file system that cannot reserve pages before the job starts.
        segment.commit(Offset(0), page_bytes())?;
        segment.reserve(bytes, mapped)?;
        Ok(segment)
    }

    /// Creates a fully committed segment of anonymous memory that only the returned value can write
    /// to: the file is sealed against every later way of writing (F_SEAL_FUTURE_WRITE), also by
    /// this process. Holders of the descriptor map it with [`ReadOnlySegment::from_fd`].
    ///
    /// ```
    /// use shm::segment::{Offset, ReadOnlySegment, Segment};
    /// use shm::sync::{AtomicU64, Ordering};
    /// use std::os::fd::AsFd;
    ///
    /// # fn main() -> Result<(), shm::segment::SegmentError> {
    /// let segment = Segment::create_for_readers(4096)?;
    /// let descriptor = || segment.as_fd().try_clone_to_owned().expect("a free descriptor");
    /// let reader = ReadOnlySegment::from_fd(descriptor())?;
    /// segment.at::<AtomicU64>(Offset(8))?.store(7, Ordering::Release);
    /// assert_eq!(reader.words()[1].load(), 7);
    /// assert!(Segment::from_fd(descriptor()).is_err(), "mapping it for writing is refused");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Segment::create`], and [`SegmentError::Seal`].
    pub fn create_for_readers(bytes: u64) -> Result<Segment, SegmentError> {
        let bytes = whole_pages(bytes)?;
        let (file, place) = backing::unsealed_memory(bytes)?;
        let segment = Segment::map(file, bytes, bytes, place)?;
        segment.commit(Offset(0), bytes)?;
        // The existing mapping may continue to write: the seal affects only later mappings.
        rustix::fs::fcntl_add_seals(&segment.file, read_only::SEALS | SealFlags::SEAL)
            .map_err(|error| SegmentError::Seal { source: error.into() })?;
        Ok(segment)
    }

    /// Maps a segment that another process created and passed on (see [`crate::broker`]).
    ///
    /// A segment created with [`Backing::Memory`] is sealed and cannot shrink. With
    /// [`Backing::Directory`] a process that holds the descriptor could shrink it; the ranks of a
    /// job trust each other that far.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Size`] for a file without a segment, [`SegmentError::Map`] if the descriptor
    /// cannot be mapped for writing.
    pub fn from_fd(file: OwnedFd) -> Result<Segment, SegmentError> {
        let place = backing::describe(&file);
        let mapped = file_bytes(&file, &place)?;
        let segment = Segment::map(file, segment_bytes(mapped), mapped, place)?;
        match segment.bytes {
            0 => Err(SegmentError::Size { bytes: 0 }),
            _ => Ok(segment),
        }
    }

    /// Returns a descriptor through which the segment can be read and not written.
    ///
    /// # Errors
    /// [`SegmentError::Create`] if `/proc` is not mounted, or no descriptor is free.
    pub fn for_reading(&self) -> Result<OwnedFd, SegmentError> {
        // Opening the file anew is the only way to a descriptor with fewer rights.
        let path = format!("/proc/self/fd/{}", self.file.as_fd().as_raw_fd());
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|error| {
            SegmentError::Create { place: self.place.clone(), source: error.into() }
        })
    }

    fn map(file: OwnedFd, bytes: u64, mapped: u64, place: String) -> Result<Segment, SegmentError> {
        let base = map_file(&file, mapped, &place, ProtFlags::READ | ProtFlags::WRITE)?;
        let file = LastingDescriptor::new(file);
        Ok(Segment { base, bytes, mapped, file, place })
    }

    /// Returns the announcements of processes that connect to objects; a table without entries for
    /// a segment that was created for readers.
    pub(crate) fn announcements(&self) -> Announcements<'_> {
        let behind = (self.mapped - self.bytes) as usize / size_of::<AtomicU64>();
        // SAFETY: the words lie in the mapping, which lives as long as `self`, and start at a page.
        // Only this function refers to them; atomics accept every bit pattern.
        let words = unsafe {
            let first = self.base.as_ptr().add(self.bytes as usize).cast::<AtomicU64>();
            std::slice::from_raw_parts(first, behind.min(WORDS))
        };
        Announcements::in_words(words)
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the kernel guarantees the size of the file, so that no access inside it can
    /// raise SIGBUS because the file was shortened.
    ///
    /// ```
    /// use shm::segment::{Backing, Segment};
    /// # fn main() -> Result<(), shm::segment::SegmentError> {
    /// assert!(Segment::create(1, Backing::Memory)?.is_sealed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_sealed(&self) -> bool {
        rustix::fs::fcntl_get_seals(&self.file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
    }

    /// Reserves the pages under `length` bytes at `offset`, so that accessing them cannot fail.
    /// Keeps their contents; reserving twice is allowed.
    ///
    /// # Errors
    ///
    /// [`SegmentError::NoSpace`] if memory is exhausted, [`SegmentError::Reserve`] for any other
    /// refusal, [`SegmentError::OutOfBounds`].
    pub fn commit(&self, offset: Offset, length: u64) -> Result<(), SegmentError> {
        self.check(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        let page = page_bytes();
        let start = offset.0 / page * page;
        self.reserve(start, (offset.0 + length).next_multiple_of(page).min(self.bytes))
    }

    /// Reserves the pages from `start` to `end` of the file.
    fn reserve(&self, start: u64, end: u64) -> Result<(), SegmentError> {
        // RLIMIT_FSIZE does not apply inside the file's size (no SIGXFSZ): it was checked when the
        // file was created.
        loop {
            let outcome = match self.file.is_intact() {
                true => {
                    rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, start, end - start)
                }
                false => self.populate(start, end),
            };
            match outcome {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::NOSPC | Errno::NOMEM | Errno::DQUOT) => {
                    return Err(SegmentError::NoSpace {
                        needed: end - start,
                        left: backing::available_bytes(&self.file),
                        place: self.place.clone(),
                    });
                }
                Err(error) => {
                    return Err(SegmentError::Reserve {
                        place: self.place.clone(),
                        source: error.into(),
                    });
                }
            }
        }
    }

    /// Lets the system supply the pages from `start` to `end` of the mapping, since the program has
    /// closed the file.
    fn populate(&self, start: u64, end: u64) -> Result<(), Errno> {
        /// From linux/mman.h; Linux 5.14.
        const MADV_POPULATE_WRITE: libc::c_int = 23;
        // SAFETY: the pages are those of this mapping, and keep their contents.
        let outcome = unsafe {
            let first = self.base.as_ptr().add(start as usize);
            libc::madvise(first.cast(), (end - start) as usize, MADV_POPULATE_WRITE)
        };
        match outcome {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        }
    }

    /// Returns the `T` at `offset`, with bounds and alignment checked. The memory must have been
    /// committed, by any process.
    ///
    /// # Errors
    ///
    /// [`SegmentError::OutOfBounds`], [`SegmentError::Misaligned`].
    #[inline]
    pub fn at<T: Shared>(&self, offset: Offset) -> Result<&T, SegmentError> {
        self.slice_at(offset, 1).map(|slice| &slice[0])
    }

    /// Returns `count` consecutive values of type `T` from `offset` on.
    ///
    /// ```
    /// use shm::segment::{Backing, Offset, Segment};
    /// use shm::sync::AtomicU64;
    /// # fn main() -> Result<(), shm::segment::SegmentError> {
    /// let segment = Segment::create(4096, Backing::Memory)?;
    /// assert_eq!(segment.slice_at::<AtomicU64>(Offset(64), 8)?.len(), 8);
    /// assert!(segment.slice_at::<AtomicU64>(Offset(64), 8 << 20).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SegmentError::OutOfBounds`], [`SegmentError::Misaligned`].
    #[inline]
    pub fn slice_at<T: Shared>(&self, offset: Offset, count: usize) -> Result<&[T], SegmentError> {
        let length = (size_of::<T>() as u64).saturating_mul(count as u64);
        let address = self.bytes_ptr(offset, length)?.cast::<T>();
        if !address.is_aligned() {
            let type_name = std::any::type_name::<T>();
            return Err(SegmentError::Misaligned { offset, alignment: align_of::<T>(), type_name });
        }
        // SAFETY: `bytes_ptr` checked that the values lie in the mapping, which lives as long as
        // `self`; the address is aligned; `Shared` makes every bit pattern valid and every change
        // by others atomic or inside an `UnsafeCell`.
        Ok(unsafe { std::slice::from_raw_parts(address, count) })
    }

    /// Returns the address of `length` bytes at `offset`, for data areas. The address stays valid
    /// as long as the segment lives.
    ///
    /// Obtaining the address is safe, using it is not: the bytes must be committed, and a protocol
    /// must grant access to them.
    ///
    /// ```
    /// use shm::segment::{Backing, Offset, Segment};
    /// # fn main() -> Result<(), shm::segment::SegmentError> {
    /// let segment = Segment::create(4096, Backing::Memory)?;
    /// let bytes = segment.bytes_ptr(Offset(128), 4)?;
    /// // SAFETY: the first page is committed and no other thread uses this segment.
    /// unsafe { bytes.write(1) };
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SegmentError::OutOfBounds`].
    #[inline]
    pub fn bytes_ptr(&self, offset: Offset, length: u64) -> Result<*mut u8, SegmentError> {
        self.check(offset, length)?;
        // SAFETY: the offset lies in the mapping (or one past its end); the mapping's size fits an
        // `isize`.
        Ok(unsafe { self.base.as_ptr().add(offset.0 as usize) })
    }

    #[inline]
    fn check(&self, offset: Offset, length: u64) -> Result<(), SegmentError> {
        match offset.0.checked_add(length) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(SegmentError::OutOfBounds { offset, length, bytes: self.bytes }),
        }
    }
}

impl AsFd for Segment {
    /// Returns the file, to be passed to another process.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` created; every reference into it borrowed `self`
        // and has ended. A failure would leave the mapping in place, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped as usize) };
    }
}
