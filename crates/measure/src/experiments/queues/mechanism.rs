//! Bounds of the mechanisms: their sizes, threads and nodes.

use super::append::NAME_BYTES;
use super::parts::CAPACITY;
use super::ring::LINES;
use crate::rows::Mechanism;
use queues::cache_line::LINE_DATA;
use queues::internode::MAX_RECORD_BYTES;
use std::ops::RangeInclusive;

/// The longest message that is measured, in bytes.
pub(super) const MOST_BYTES: u64 = 1 << 26;
/// Largest size at which Express is measured: 26 words.
const MOST_IN_WORDS: u64 = 128;
/// The same for lines: as many as a queue holds.
const MOST_IN_LINES: u64 = (CAPACITY * LINE_DATA) as u64;
/// A quarter of a ring, less the word that says what it is.
const MOST_IN_A_RING: u64 = LINES / 4 * 64 - 8;
/// The longest data that is tagged on here.
const MOST_TAGGED_ON: u64 = 1 << 20;
/// The longest record between nodes, less what names its sender.
const MOST_APPENDED: u64 = MAX_RECORD_BYTES - NAME_BYTES as u64;
/// Smallest size at which the paths of bulk transfers are distinguished.
const LEAST_ON_A_PATH: u64 = 1024;

impl Mechanism {
    /// The name in a sentence.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Mechanism::Express => "Express",
            Mechanism::Wide => "Wide Express",
            Mechanism::TagOn => "Tag-On",
            Mechanism::Basic => "Basic",
            Mechanism::Bulk => "DMA",
            other => other.name(),
        }
    }

    /// The one size that it is measured with, whatever sizes are asked for.
    pub(super) const fn only_bytes(self) -> Option<u64> {
        match self {
            Mechanism::Channel
            | Mechanism::Write
            | Mechanism::Iput
            | Mechanism::Read
            | Mechanism::Accumulate
            | Mechanism::Fetch => Some(8),
            Mechanism::Idle => Some(0),
            _ => None,
        }
    }

    /// Returns true if it is measured with messages of this size.
    pub(super) fn carries(self, bytes: u64) -> bool {
        self.sizes().contains(&bytes)
    }

    /// The sizes that it is measured with, in bytes.
    pub(super) fn sizes(self) -> RangeInclusive<u64> {
        match (self, self.only_bytes()) {
            (_, Some(only)) => only..=only,
            (Mechanism::Express | Mechanism::OnePoll, _) => 0..=MOST_IN_WORDS,
            (Mechanism::Wide, _) => 0..=MOST_IN_LINES,
            (Mechanism::TagOn | Mechanism::TagOnResident | Mechanism::TagOnMulticast, _) => {
                0..=MOST_TAGGED_ON
            }
            (Mechanism::Append, _) => 0..=MOST_APPENDED,
            (Mechanism::Basic | Mechanism::BasicLocked, _) => 0..=MOST_IN_A_RING,
            (Mechanism::BulkStaged | Mechanism::BulkDirect, _) => LEAST_ON_A_PATH..=MOST_BYTES,
            _ => 0..=MOST_BYTES,
        }
    }

    /// Returns true if it also moves messages between nodes.
    pub const fn crosses_nodes(self) -> bool {
        !matches!(self, Mechanism::BulkStaged | Mechanism::BulkDirect | Mechanism::Idle)
    }

    /// Returns true if several threads send through one of it.
    pub(super) const fn is_shared(self) -> bool {
        matches!(
            self,
            Mechanism::Express
                | Mechanism::OnePoll
                | Mechanism::Wide
                | Mechanism::TagOn
                | Mechanism::TagOnResident
                | Mechanism::BasicLocked
                | Mechanism::Append
        )
    }
}
