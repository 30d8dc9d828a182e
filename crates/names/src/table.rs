//! Destination tables, which translate the name of a send.
//!
//! Each program has a table of its own (Ang et al. 1996, section 4.1 and figure 2), because an entry
//! also holds the name that the *receiver* has for this sender. In the paper the hardware consults
//! the table for every message, and only system software can change it. Here a lookup is one load
//! from memory that only the name server can write; the program maps it read-only, which the
//! kernel's seals enforce.
//!
//! An entry is one word, so a reader sees either the old destination or the new one:
//!
//! | bits | contents |
//! |---|---|
//! | 0 to 13 | source name |
//! | 46 to 61 | generation: incremented by every change of the entry, modulo 65,536 |
//! | 62, 63 | 0 unknown, 1 open, 2 excluded, 3 its process has ended |

use queues::id::{QueueName, SourceName};
use shm::segment::{Offset, ReadOnlySegment, Segment, SegmentError};
use shm::sync::{AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const GENERATION_SHIFT: u32 = 46;
const STATE_SHIFT: u32 = 62;

/// State of a name in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameState {
    /// The name has never had a destination.
    Unknown,
    /// The name has a destination, which has this name for the sender.
    Open(SourceName),
    /// The receiver excludes the sender.
    Excluded,
    /// The process that received there has ended.
    Gone,
}

/// An entry of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) state: NameState,
    /// The number of changes of the entry, modulo 65,536.
    pub(crate) generation: u16,
}

impl Entry {
    fn encode(self) -> u64 {
        let (state, source) = match self.state {
            NameState::Unknown => (0, 0),
            NameState::Open(source) => (1, u64::from(source.number())),
            NameState::Excluded => (2, 0),
            NameState::Gone => (3, 0),
        };
        state << STATE_SHIFT | u64::from(self.generation) << GENERATION_SHIFT | source
    }

    #[inline]
    fn decode(word: u64) -> Entry {
        let state = match word >> STATE_SHIFT {
            1 => NameState::Open(SourceName::from_bits(word)),
            2 => NameState::Excluded,
            3 => NameState::Gone,
            _ => NameState::Unknown,
        };
        Entry { state, generation: (word >> GENERATION_SHIFT) as u16 }
    }
}

/// A program's table, mapped read-only by its process.
#[derive(Debug)]
pub(crate) struct DestinationTable {
    segment: ReadOnlySegment,
}

impl DestinationTable {
    /// Maps a table from the name server. The error is that of an invalid descriptor.
    pub(crate) fn from_fd(file: OwnedFd) -> Result<DestinationTable, SegmentError> {
        Ok(DestinationTable { segment: ReadOnlySegment::from_fd(file)? })
    }

    /// Returns the entry of a name: one load. A name beyond the table has never had a destination.
    #[inline]
    pub(crate) fn entry(&self, name: QueueName) -> Entry {
        let words = self.segment.words();
        Entry::decode(words.get(usize::from(name.number())).map_or(0, |word| word.load()))
    }
}

/// A program's table, as the name server writes it.
#[derive(Debug)]
pub(crate) struct TableWriter {
    segment: Segment,
    names: u16,
}

impl TableWriter {
    /// Creates a table for names below `names`: 8 bytes each, in whole pages.
    pub(crate) fn create(names: u16) -> Result<TableWriter, SegmentError> {
        let segment = Segment::create_for_readers(u64::from(names.max(1)) * 8)?;
        Ok(TableWriter { segment, names })
    }

    /// Writes the entry of a name if its state differs from the current one, or if it has another
    /// destination (`is_moved`). A name beyond the table stays unknown.
    pub(crate) fn set(&self, name: QueueName, state: NameState, is_moved: bool) {
        let place = Offset(u64::from(name.number()) * 8);
        let Ok(word) = self.segment.at::<AtomicU64>(place) else { return };
        // Relaxed: the name server is the only writer; all other mappings are read-only. So load
        // and store need no exchange.
        let before = Entry::decode(word.load(Ordering::Relaxed));
        if name.number() >= self.names || before.state == state && !is_moved {
            return;
        }
        // Also for a destination that returns: a sender compares the generation to detect that its
        // connection belongs to a former destination.
        let generation = before.generation.wrapping_add(1);
        // Release: pairs with the Acquire load of `ReadOnlyWord::load`. A process that sees the
        // entry sees everything that was set up for it.
        word.store(Entry { state, generation }.encode(), Ordering::Release);
    }
}

impl AsFd for TableWriter {
    /// Returns the descriptor for the process of the program.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.segment.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use queues::id::NAMES;

    fn table(names: u16) -> (TableWriter, DestinationTable) {
        let writer = TableWriter::create(names).expect("some pages");
        let reader =
            DestinationTable::from_fd(writer.as_fd().try_clone_to_owned().expect("a descriptor"));
        (writer, reader.expect("sealed"))
    }

    fn name(number: u16) -> QueueName {
        QueueName::new(number).expect("below 16,384")
    }

    proptest! {
        /// The reference is a map from names to states, with the number of changes.
        #[test]
        fn entries_hold_what_was_set(
            changes in prop::collection::vec((0..6u16, 0..4u8, 0..NAMES, any::<bool>()), 0..40),
        ) {
            let (writer, reader) = table(4);
            let mut expected = [(NameState::Unknown, 0); 6];
            for (number, kind, source, is_moved) in changes {
                let source = SourceName::new(source).expect("in range");
                let state = match kind {
                    0 => NameState::Unknown,
                    1 => NameState::Open(source),
                    2 => NameState::Excluded,
                    _ => NameState::Gone,
                };
                let entry = &mut expected[usize::from(number)];
                if number < 4 {
                    entry.1 += u16::from(entry.0 != state || is_moved);
                    entry.0 = state;
                }
                writer.set(name(number), state, is_moved);
                for (number, (state, generation)) in (0..).zip(expected) {
                    prop_assert_eq!(reader.entry(name(number)), Entry { state, generation });
                }
            }
        }

        #[test]
        fn entries_are_decoded_as_they_were_encoded(source in 0..NAMES, generation: u16, word: u64) {
            let source = SourceName::new(source).expect("in range");
            let entry = Entry { state: NameState::Open(source), generation };
            prop_assert_eq!(Entry::decode(entry.encode()), entry);
            // Any word has a meaning.
            let _ = Entry::decode(word);
        }
    }
}
