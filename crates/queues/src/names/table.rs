//! Destination tables, which translate the name of a send into a receive queue, and inverse tables
//! with the sources from which a receive queue accepts messages.
//!
//! Each transmit queue has a table of its own (Ang et al. 1996, section 4.1 and figure 2), because
//! an entry also holds the name that the *receiver* has for this sender. In the paper the hardware
//! consults the table for every message, and only system software can change it. Here a lookup is
//! one load from memory that only the name server can write; all other processes map it read-only,
//! which the kernel's seals enforce.
//!
//! An entry is one word, so a reader sees either the old destination or the new one:
//!
//! | bits | contents |
//! |---|---|
//! | 0 to 13 | source name |
//! | 14 to 33 | receive queue's number on its node |
//! | 34 to 45 | node |
//! | 46 to 61 | generation: incremented by every change of the entry, modulo 65,536 |
//! | 62, 63 | 0 unknown, 1 open, 2 revoked, 3 its process has ended |
//!
//! The inverse table, which the paper describes and its hardware omits (footnote 3), has one bit
//! per source. The name server writes it, and the receiver checks it for every message.

use crate::id::{NAMES, NodeName, QueueIndex, QueueName, SourceName};
use shm::segment::{Offset, ReadOnlySegment, Segment, SegmentError};
use shm::sync::{AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const QUEUE_SHIFT: u32 = 14;
const NODE_SHIFT: u32 = 34;
const GENERATION_SHIFT: u32 = 46;
const STATE_SHIFT: u32 = 62;

/// Reason why a name has no destination.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The name has never had a destination: look the port up, or wait until it is open.
    #[error(
        "destination {name} is unknown to this transmit queue: look up the name of an open port"
    )]
    UnknownName {
        /// The name.
        name: QueueName,
    },
    /// The right to send there has been revoked.
    #[error("the right to send to destination {name} has been revoked")]
    RevokedName {
        /// The name.
        name: QueueName,
    },
    /// The process that had opened the port has ended.
    #[error("the process that received at destination {name} has ended")]
    ProcessGone {
        /// The name.
        name: QueueName,
    },
    /// All names are in use.
    #[error("all {names} names of the table are in use: revoked names are not reused")]
    TableFull {
        /// Number of names.
        names: u32,
    },
    /// The table's memory could not be created or mapped.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// Destination of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The node.
    pub node: NodeName,
    /// The receive queue on the node.
    pub queue: QueueIndex,
    /// Name of this sender in the receiver's job, to which replies go.
    pub source: SourceName,
    /// Generation of the entry; it changes when the name is re-pointed.
    pub generation: u16,
}

/// State of a name in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameState {
    /// The name has never had a destination.
    Unknown,
    /// The name has a destination.
    Open {
        /// The node.
        node: NodeName,
        /// The receive queue on the node.
        queue: QueueIndex,
        /// Name of the sender in the receiver's job.
        source: SourceName,
    },
    /// The right to send there has been revoked.
    Revoked,
    /// The process that received there has ended.
    Gone,
}

impl NameState {
    fn encode(self, generation: u16) -> u64 {
        let (state, destination) = match self {
            NameState::Unknown => (0, 0),
            NameState::Open { node, queue, source } => {
                let destination = u64::from(source.number())
                    | u64::from(queue.number()) << QUEUE_SHIFT
                    | u64::from(node.number()) << NODE_SHIFT;
                (1, destination)
            }
            NameState::Revoked => (2, 0),
            NameState::Gone => (3, 0),
        };
        state << STATE_SHIFT | u64::from(generation) << GENERATION_SHIFT | destination
    }
}

#[inline]
fn decode(word: u64, name: QueueName) -> Result<Destination, TableError> {
    match word >> STATE_SHIFT {
        1 => Ok(Destination {
            node: NodeName::from_bits(word >> NODE_SHIFT),
            queue: QueueIndex::from_bits(word >> QUEUE_SHIFT),
            source: SourceName::from_bits(word),
            generation: (word >> GENERATION_SHIFT) as u16,
        }),
        2 => Err(TableError::RevokedName { name }),
        3 => Err(TableError::ProcessGone { name }),
        _ => Err(TableError::UnknownName { name }),
    }
}

/// A transmit queue's table, mapped read-only by its process.
#[derive(Debug)]
pub struct DestinationTable {
    segment: ReadOnlySegment,
}

impl DestinationTable {
    /// Maps a table from the name server.
    ///
    /// # Errors
    ///
    /// [`TableError::Segment`] for an invalid descriptor.
    pub fn from_fd(file: OwnedFd) -> Result<DestinationTable, TableError> {
        Ok(DestinationTable { segment: ReadOnlySegment::from_fd(file)? })
    }

    /// Returns the destination of a name: one load.
    ///
    /// ```
    /// use queues::id::{NodeName, QueueIndex, QueueName, SourceName};
    /// use queues::names::{DestinationTable, TableError, TableWriter};
    /// use std::os::fd::AsFd;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let writer = TableWriter::create(512)?;
    /// let table = DestinationTable::from_fd(writer.as_fd().try_clone_to_owned()?)?;
    /// let name = QueueName::new(3).expect("below 16,384");
    /// assert!(matches!(table.lookup(name), Err(TableError::UnknownName { .. })));
    ///
    /// writer.enter(name, NodeName::default(), QueueIndex::new(77).expect("small"), SourceName::default())?;
    /// assert_eq!(table.lookup(name)?.queue.number(), 77);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`TableError::UnknownName`], [`TableError::RevokedName`], [`TableError::ProcessGone`].
    #[inline]
    pub fn lookup(&self, name: QueueName) -> Result<Destination, TableError> {
        // A name beyond the table has never had a destination.
        decode(
            self.segment.words().get(usize::from(name.number())).map_or(0, |word| word.load()),
            name,
        )
    }
}

/// A transmit queue's table, as the name server writes it.
#[derive(Debug)]
pub struct TableWriter {
    segment: Segment,
    names: u16,
}

impl TableWriter {
    /// Creates a table for names below `names` (at most [`NAMES`]): 8 bytes each, in whole pages.
    ///
    /// # Errors
    ///
    /// [`TableError::Segment`], [`TableError::TableFull`] for more than [`NAMES`].
    pub fn create(names: u16) -> Result<TableWriter, TableError> {
        if names > NAMES {
            return Err(TableError::TableFull { names: NAMES.into() });
        }
        let segment = Segment::create_for_readers(u64::from(names.max(1)) * 8)?;
        Ok(TableWriter { segment, names })
    }

    /// Sets the destination of a name, and returns its generation.
    ///
    /// # Errors
    ///
    /// [`TableError::TableFull`] for a name beyond the table.
    pub fn enter(
        &self,
        name: QueueName,
        node: NodeName,
        queue: QueueIndex,
        source: SourceName,
    ) -> Result<u16, TableError> {
        self.set(name, NameState::Open { node, queue, source })
    }

    /// Revokes a name.
    ///
    /// # Errors
    ///
    /// [`TableError::TableFull`] for a name beyond the table.
    pub fn revoke(&self, name: QueueName) -> Result<u16, TableError> {
        self.set(name, NameState::Revoked)
    }

    /// Writes an entry if it differs from the current one, and returns its generation.
    ///
    /// # Errors
    ///
    /// [`TableError::TableFull`] for a name beyond the table.
    pub fn set(&self, name: QueueName, state_of_name: NameState) -> Result<u16, TableError> {
        if name.number() >= self.names {
            return Err(TableError::TableFull { names: self.names.into() });
        }
        let entry = self.segment.at::<AtomicU64>(Offset(u64::from(name.number()) * 8))?;
        // Relaxed: the name server is the only writer; all other mappings are read-only. So load
        // and store need no exchange.
        let before = entry.load(Ordering::Relaxed);
        let generation = (before >> GENERATION_SHIFT) as u16;
        if before == state_of_name.encode(generation) {
            return Ok(generation);
        }
        // A new generation even for a destination that returns: a sender compares it to detect that
        // its cached connection belongs to a former destination.
        let next = generation.wrapping_add(1);
        // Release: pairs with the Acquire load of `ReadOnlyWord::load`. A process that sees the
        // entry sees everything that was set up for it.
        entry.store(state_of_name.encode(next), Ordering::Release);
        Ok(next)
    }
}

impl AsFd for TableWriter {
    /// Returns the descriptor for the process of the transmit queue.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.segment.as_fd()
    }
}

/// Words of an inverse table: one bit per source.
const SOURCE_WORDS: u64 = NAMES as u64 / 64;

/// The sources that a receive queue accepts, mapped read-only by its process.
#[derive(Debug)]
pub struct SourceTable {
    segment: ReadOnlySegment,
}

impl SourceTable {
    /// Maps an inverse table from the name server.
    ///
    /// # Errors
    ///
    /// [`TableError::Segment`] for an invalid descriptor.
    pub fn from_fd(file: OwnedFd) -> Result<SourceTable, TableError> {
        Ok(SourceTable { segment: ReadOnlySegment::from_fd(file)? })
    }

    /// Returns true if messages of this source may be delivered: one load.
    #[inline]
    pub fn accepts(&self, source: SourceName) -> bool {
        let word = self
            .segment
            .words()
            .get(usize::from(source.number() / 64))
            .map_or(0, |word| word.load());
        // A set bit refuses, so that zeroed memory accepts all sources.
        word >> (source.number() % 64) & 1 == 0
    }
}

/// An inverse table, as the name server writes it. A new one accepts all sources.
#[derive(Debug)]
pub struct SourceTableWriter {
    segment: Segment,
}

impl SourceTableWriter {
    /// Creates an inverse table: one page.
    ///
    /// # Errors
    ///
    /// [`TableError::Segment`].
    pub fn create() -> Result<SourceTableWriter, TableError> {
        Ok(SourceTableWriter { segment: Segment::create_for_readers(SOURCE_WORDS * 8)? })
    }

    /// Accepts or refuses a source from now on.
    ///
    /// ```
    /// use queues::id::SourceName;
    /// use queues::names::{SourceTable, SourceTableWriter};
    /// use std::os::fd::AsFd;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let writer = SourceTableWriter::create()?;
    /// let sources = SourceTable::from_fd(writer.as_fd().try_clone_to_owned()?)?;
    /// let source = SourceName::new(100).expect("below 16,384");
    /// assert!(sources.accepts(source));
    /// writer.set(source, false)?;
    /// assert!(!sources.accepts(source));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// None in practice: the table has a bit for every source name.
    pub fn set(&self, source: SourceName, accepts: bool) -> Result<(), TableError> {
        let word = self.segment.at::<AtomicU64>(Offset(u64::from(source.number() / 64) * 8))?;
        let bits = word.load(Ordering::Relaxed);
        let bit = 1 << (source.number() % 64);
        // Only the name server writes, so a load and a store suffice. Release: pairs with the
        // Acquire load of `ReadOnlyWord::load`.
        word.store(if accepts { bits & !bit } else { bits | bit }, Ordering::Release);
        Ok(())
    }
}

impl AsFd for SourceTableWriter {
    /// Returns the descriptor for the process of the receive queue.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.segment.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{NODES, QUEUES};
    use proptest::prelude::*;

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
        #[test]
        fn an_entry_holds_the_destination_that_was_set(
            place in (0..NAMES, 0..NODES, 0..QUEUES, 0..NAMES),
        ) {
            let (writer, reader) = table(NAMES);
            let node = NodeName::new(place.1).expect("in range");
            let queue = QueueIndex::new(place.2).expect("in range");
            let source = SourceName::new(place.3).expect("in range");
            let generation = writer.enter(name(place.0), node, queue, source).expect("in range");
            let found = reader.lookup(name(place.0)).expect("entered");
            prop_assert_eq!(found, Destination { node, queue, source, generation });
        }

        #[test]
        fn every_word_decodes_to_a_destination_or_an_error(word: u64) {
            let _ = decode(word, name(0));
        }
    }

    #[test]
    fn the_generation_changes_with_every_change_of_the_entry() {
        let (writer, reader) = table(8);
        let node = NodeName::default();
        let source = SourceName::default();
        let queue = |number| QueueIndex::new(number).expect("small");
        assert_eq!(writer.enter(name(5), node, queue(1), source).expect("inside"), 1);
        assert_eq!(
            writer.enter(name(5), node, queue(1), source).expect("inside"),
            1,
            "nothing new"
        );
        assert_eq!(writer.enter(name(5), node, queue(2), source).expect("inside"), 2);
        assert_eq!(writer.revoke(name(5)).expect("inside"), 3);
        assert!(
            matches!(reader.lookup(name(5)), Err(TableError::RevokedName { name }) if name.number() == 5)
        );
        writer.set(name(5), NameState::Gone).expect("inside");
        assert!(matches!(reader.lookup(name(5)), Err(TableError::ProcessGone { .. })));
        assert_eq!(writer.enter(name(5), node, queue(2), source).expect("inside"), 5);
        assert_eq!(reader.lookup(name(5)).expect("open").queue, queue(2));
        assert!(matches!(reader.lookup(name(6)), Err(TableError::UnknownName { .. })));
    }

    #[test]
    fn names_beyond_the_table_are_errors() {
        let (writer, reader) = table(8);
        assert!(matches!(writer.revoke(name(8)), Err(TableError::TableFull { names: 8 })));
        assert!(matches!(reader.lookup(name(8)), Err(TableError::UnknownName { .. })));
        assert!(matches!(reader.lookup(name(NAMES - 1)), Err(TableError::UnknownName { .. })));
        assert!(matches!(TableWriter::create(NAMES + 1), Err(TableError::TableFull { .. })));
    }

    #[test]
    fn sources_are_accepted_one_by_one() {
        let writer = SourceTableWriter::create().expect("a page");
        let reader =
            SourceTable::from_fd(writer.as_fd().try_clone_to_owned().expect("a descriptor"))
                .expect("sealed");
        let source = |number| SourceName::new(number).expect("below 16,384");
        writer.set(source(64), false).expect("inside");
        writer.set(source(NAMES - 1), false).expect("inside");
        let refused: Vec<u16> =
            (0..NAMES).filter(|&number| !reader.accepts(source(number))).collect();
        assert_eq!(refused, [64, NAMES - 1]);
        writer.set(source(64), true).expect("inside");
        assert!(reader.accepts(source(64)));
    }
}
