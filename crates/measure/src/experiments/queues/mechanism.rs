//! The mechanisms that can be measured, with their names on the command line.

use super::append::NAME_BYTES;
use super::parts::CAPACITY;
use super::ring::LINES;
use queues::cache_line::LINE_DATA;
use queues::internode::MAX_RECORD_BYTES;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// The longest message that is measured, in bytes.
pub const MOST_BYTES: u64 = 1 << 26;

/// A mechanism that moves messages from one rank to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// Express: words of five bytes, as many as the message needs.
    Express,
    /// The same, received through the poll of 512 queues, of which it is the last.
    OnePoll,
    /// Wide Express: lines of 48 bytes, as many as the message needs.
    Wide,
    /// Tag-On: a header in a line that refers to the data in a buffer of the segment.
    TagOn,
    /// Tag-On of data that lie in the sender's pool already.
    TagOnResident,
    /// Tag-On to both ranks at once: the data of a message lie once on each node.
    TagOnMulticast,
    /// Basic, unshared: a ring in which messages of up to a quarter of it lie in one piece.
    Basic,
    /// The same, with a lock around each send and each receive, for several threads.
    BasicLocked,
    /// A record in an append buffer.
    Append,
    /// One double through a channel.
    Channel,
    /// A remote write of eight bytes; the target polls its own window, or waits between nodes.
    Write,
    /// A remote read of eight bytes that their owner has changed; the reader polls.
    Read,
    /// A remote accumulate of eight bytes; the target polls its own window, or waits between nodes.
    Accumulate,
    /// A conditional fetch of eight bytes, which completes when their owner has changed them.
    Fetch,
    /// A bulk transfer between private buffers on the path that the library chooses.
    Bulk,
    /// A bulk transfer through the staging area.
    BulkStaged,
    /// A bulk transfer from private memory to private memory.
    BulkDirect,
    /// Nothing: eight receivers that sleep.
    Idle,
}

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
    /// All of them.
    pub const ALL: [Mechanism; 18] = [
        Mechanism::Express,
        Mechanism::OnePoll,
        Mechanism::Wide,
        Mechanism::TagOn,
        Mechanism::TagOnResident,
        Mechanism::TagOnMulticast,
        Mechanism::Basic,
        Mechanism::BasicLocked,
        Mechanism::Append,
        Mechanism::Channel,
        Mechanism::Write,
        Mechanism::Read,
        Mechanism::Accumulate,
        Mechanism::Fetch,
        Mechanism::Bulk,
        Mechanism::BulkStaged,
        Mechanism::BulkDirect,
        Mechanism::Idle,
    ];

    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Express => "express",
            Mechanism::OnePoll => "one-poll",
            Mechanism::Wide => "wide",
            Mechanism::TagOn => "tag-on",
            Mechanism::TagOnResident => "tag-on-resident",
            Mechanism::TagOnMulticast => "tag-on-multicast",
            Mechanism::Basic => "basic",
            Mechanism::BasicLocked => "basic-locked",
            Mechanism::Append => "append",
            Mechanism::Channel => "channel",
            Mechanism::Write => "write",
            Mechanism::Read => "read",
            Mechanism::Accumulate => "accumulate",
            Mechanism::Fetch => "fetch",
            Mechanism::Bulk => "bulk",
            Mechanism::BulkStaged => "bulk-staged",
            Mechanism::BulkDirect => "bulk-direct",
            Mechanism::Idle => "idle",
        }
    }

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
            | Mechanism::Read
            | Mechanism::Accumulate
            | Mechanism::Fetch => Some(8),
            Mechanism::Idle => Some(0),
            _ => None,
        }
    }

    /// Returns true if it is measured with messages of this size.
    pub fn carries(self, bytes: u64) -> bool {
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
    pub const fn is_shared(self) -> bool {
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

impl std::fmt::Display for Mechanism {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(self.name())
    }
}

impl std::str::FromStr for Mechanism {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name);
        found.ok_or_else(|| {
            format!(
                "there is no such mechanism: choose among {}",
                Mechanism::ALL.map(Mechanism::name).join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_everywhere() {
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.name().parse(), Ok(mechanism));
            assert_eq!(
                serde_json::to_string(&mechanism).expect("a name"),
                format!("\"{mechanism}\"")
            );
        }
        assert!("pigeon".parse::<Mechanism>().is_err_and(|why| why.contains("one-poll")));
    }
}
