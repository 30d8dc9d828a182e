//! Observation of a segment by a process that is not part of its job.

use super::backing;
use super::error::SegmentError;
use super::mapping::{file_bytes, segment_bytes};
use super::offset::Offset;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Descriptor of a segment through which its bytes are read, without a mapping.
///
/// A mapping would allocate the pages that it touches, and a file that was shortened would kill the
/// reader by SIGBUS. A read of a page that was never written returns zeros and allocates nothing,
/// and one behind the end fails.
///
/// # Examples
///
/// ```
/// use shm::segment::{Backing, Offset, Segment, SegmentReader};
/// use shm::sync::{AtomicU64, Ordering};
///
/// # fn main() -> Result<(), shm::segment::SegmentError> {
/// let segment = Segment::create(4096, Backing::Memory)?;
/// let reader = SegmentReader::from_fd(segment.for_reading()?)?;
/// segment.at::<AtomicU64>(Offset(8))?.store(7, Ordering::Relaxed);
/// assert_eq!(reader.words(Offset(0)), Some([0, 7]));
/// assert_eq!(reader.words::<2>(Offset(4088)), None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SegmentReader {
    file: OwnedFd,
    bytes: u64,
}

impl SegmentReader {
    /// Wraps a descriptor that another process has passed on.
    ///
    /// # Errors
    /// [`SegmentError::Size`] for an empty file, [`SegmentError::Map`] for a descriptor of none.
    pub fn from_fd(file: OwnedFd) -> Result<SegmentReader, SegmentError> {
        let bytes = segment_bytes(file_bytes(&file, &backing::describe(&file))?);
        Ok(SegmentReader { file, bytes })
    }

    /// Reads `N` words at an offset; `None` if they do not lie in the segment. The copy is not
    /// atomic: words that change meanwhile may be of different moments.
    pub fn words<const N: usize>(&self, at: Offset) -> Option<[u64; N]> {
        let mut words = [[0; 8]; N];
        self.read(at, words.as_flattened_mut())?;
        Some(words.map(u64::from_ne_bytes))
    }

    /// Reads `count` words at an offset, as [`words`](Self::words) does.
    pub fn word_list(&self, at: Offset, count: usize) -> Option<Vec<u64>> {
        // Checked before the allocation, because the count may come from the segment.
        self.check(at, (count as u64).checked_mul(8)?)?;
        let mut words = vec![[0; 8]; count];
        self.read(at, words.as_flattened_mut())?;
        Some(words.into_iter().map(u64::from_ne_bytes).collect())
    }

    fn check(&self, at: Offset, length: u64) -> Option<()> {
        at.0.checked_add(length).filter(|end| *end <= self.bytes).map(|_| ())
    }

    fn read(&self, at: Offset, bytes: &mut [u8]) -> Option<()> {
        self.check(at, bytes.len() as u64)?;
        let mut done = 0;
        while done < bytes.len() {
            let from = at.0.checked_add(done as u64)?;
            match rustix::io::pread(&self.file, &mut bytes[done..], from) {
                Ok(0) => return None,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                // An offset beyond the largest file, or a descriptor without offsets.
                Err(_) => return None,
            }
        }
        Some(())
    }
}
