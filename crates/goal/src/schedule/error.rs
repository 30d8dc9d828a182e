//! Errors in the bytes of a schedule.

use super::records::{MAGIC, VERSION};

/// Error in the bytes of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Fewer bytes than a header, or another number than that in the header.
    #[error(
        "a schedule of {expected} bytes was announced, {found} are there: it was cut off or something was appended"
    )]
    Length {
        /// Length in the header (64 where there is none).
        expected: u64,
        /// Actual length.
        found: u64,
    },
    /// The memory does not start at a multiple of eight.
    #[error(
        "a schedule starts at a multiple of eight bytes: copy it with Schedule::from_bytes first"
    )]
    Alignment,
    /// Other bytes altogether.
    #[error("not a schedule: the magic number is {found:#010x} instead of {MAGIC:#010x}")]
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// Written by another version.
    #[error(
        "schedule layout version {found} is not the version {VERSION} this program reads: compile the graph again"
    )]
    Version {
        /// Its version.
        found: u16,
    },
    /// The checksum does not match.
    #[error(
        "the schedule is damaged: its checksum is {found:#018x} instead of {expected:#018x}: compile the graph again"
    )]
    Checksum {
        /// Value in the header.
        expected: u64,
        /// Value computed from the bytes.
        found: u64,
    },
    /// Counts, offsets or codes that no compiler writes.
    #[error("the schedule is damaged at operation {operation}: {what}: compile the graph again")]
    Operation {
        /// Index of the record.
        operation: u32,
        /// The problem.
        what: &'static str,
    },
    /// Header fields that contradict each other.
    #[error("the schedule is damaged: {what}: compile the graph again")]
    Header {
        /// The problem.
        what: &'static str,
    },
}
