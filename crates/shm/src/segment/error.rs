//! Errors of segments.

use super::offset::Offset;
use std::fmt;

/// Error of a segment operation. Sizes are in bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// A size of 0, or one that this machine cannot address.
    #[error(
        "a segment of {bytes} bytes cannot be mapped: ask for at least 1 and at most {} bytes",
        isize::MAX
    )]
    Size {
        /// Requested size.
        bytes: u64,
    },
    /// The segment exceeds the process's limit on file sizes (RLIMIT_FSIZE).
    #[error(
        "the segment needs {}, but this process may only create files of {} (RLIMIT_FSIZE): raise \
         it with `ulimit -f unlimited`",
        Size(*needed),
        Size(*limit)
    )]
    FileSizeLimit {
        /// Size of the segment.
        needed: u64,
        /// Limit of the process.
        limit: u64,
    },
    /// The file system (or the machine) has no memory left for the pages.
    #[error(
        "{place} has {} left of the {} needed: enlarge it or set TRADEWIND_SEGMENT_DIR to a \
         directory with more space",
        Left(*left),
        Size(*needed)
    )]
    NoSpace {
        /// Bytes to be reserved.
        needed: u64,
        /// Available bytes, if the file system reports them.
        left: Option<u64>,
        /// Description of the full file system.
        place: String,
    },
    /// The file could not be created.
    #[error(
        "cannot create a segment in {place}: {source}; set TRADEWIND_SEGMENT_DIR to a writable \
         directory on a tmpfs"
    )]
    Create {
        /// Description of the file system.
        place: String,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The file system cannot reserve pages, so running full would raise SIGBUS.
    #[error(
        "{place} cannot reserve memory: {source}; set TRADEWIND_SEGMENT_DIR to a directory on a \
         tmpfs"
    )]
    Reserve {
        /// Description of the file system.
        place: String,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The file could not be mapped.
    #[error("cannot map the {} of {place}: {source}; check `ulimit -v`", Size(*bytes))]
    Map {
        /// Size of the segment.
        bytes: u64,
        /// Description of the file.
        place: String,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The kernel does not seal the file against writers (Linux before 5.1).
    #[error("cannot create a segment for readers: {source}; this requires Linux 5.1 or later")]
    Seal {
        /// Error of the system call.
        source: std::io::Error,
    },
    /// A descriptor meant for readers refers to a file that its holders could write to or shorten.
    #[error(
        "refused: {place} is not sealed against writing and shortening; pass a segment made by \
         `create_for_readers`"
    )]
    NotSealed {
        /// Description of the file.
        place: String,
    },
    /// The range lies outside the segment.
    #[error("{length} bytes at {offset} do not lie in a segment of {bytes} bytes")]
    OutOfBounds {
        /// First byte of the access.
        offset: Offset,
        /// Length of the range.
        length: u64,
        /// Size of the segment.
        bytes: u64,
    },
    /// The result would overwrite part of an operand before that part is read.
    #[error(
        "{length} bytes at {offset} overlap an operand in part: the result must coincide with the \
         operand or be disjoint from it"
    )]
    Overlap {
        /// First byte of the result.
        offset: Offset,
        /// Length of the range.
        length: u64,
    },
    /// The offset does not satisfy the alignment of the type.
    #[error("{offset} is not a multiple of {alignment}, the alignment of {type_name}")]
    Misaligned {
        /// The offset.
        offset: Offset,
        /// Required alignment.
        alignment: usize,
        /// Requested type.
        type_name: &'static str,
    },
}

/// Formats a number of bytes with a unit.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        match UNITS.into_iter().find(|&(_, shift)| self.0 >> shift != 0) {
            Some((unit, shift)) if self.0.trailing_zeros() >= shift => {
                write!(formatter, "{} {unit}", self.0 >> shift)
            }
            Some((unit, shift)) => {
                write!(formatter, "{:.1} {unit}", self.0 as f64 / (1u64 << shift) as f64)
            }
            None => write!(formatter, "{} bytes", self.0),
        }
    }
}

/// Formats the available bytes, if known.
struct Left(Option<u64>);

impl fmt::Display for Left {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => Size(bytes).fmt(formatter),
            None => formatter.write_str("too little"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_space_names_file_system_and_remedy() {
        let place = "the shared-memory file system at /x".to_owned();
        let error = SegmentError::NoSpace { needed: 64 << 20, left: Some(4 << 20), place };
        assert_eq!(
            error.to_string(),
            "the shared-memory file system at /x has 4 MiB left of the 64 MiB needed: enlarge it or set \
             TRADEWIND_SEGMENT_DIR to a directory with more space"
        );
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(Size(100).to_string(), "100 bytes");
        assert_eq!(Size(1536).to_string(), "1.5 KiB");
        assert_eq!(Size(3 << 40).to_string(), "3 TiB");
    }
}
