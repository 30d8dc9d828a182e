//! Errors of the binary format.

use super::layout::{MAGIC, NODE};
use crate::portable::NotPortable;

/// Error of bytes that are no binary GOAL file, or of graphs that cannot become one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BinaryError {
    /// The file ends too early.
    #[error("the file is cut off: {what} would end at byte {needed}, but there are {found} bytes")]
    Truncated {
        /// The section that does not fit.
        what: &'static str,
        /// The end.
        needed: u64,
        /// The length of the file.
        found: u64,
    },
    /// Another kind of file.
    #[error(
        "not a binary GOAL file: it begins with {found} instead of {MAGIC}; is it a text file?"
    )]
    Magic {
        /// The first eight bytes.
        found: u64,
    },
    /// No rank at all.
    #[error("the file is damaged: it holds no rank")]
    NoRanks,
    /// A section is not where the one before it ends, or ends before it starts.
    #[error(
        "the file is damaged: the section of rank {rank} goes from offset {start} to {end}, expected it to start at \
         {expected} and to hold at least 8 bytes"
    )]
    Section {
        /// The rank.
        rank: u32,
        /// Its start, from byte 8.
        start: u64,
        /// Its end, from byte 8.
        end: u64,
        /// The expected start.
        expected: u64,
    },
    /// Bytes behind the last section.
    #[error("the file is damaged: {found} bytes follow the last rank: was something appended?")]
    Trailing {
        /// The number.
        found: u64,
    },
    /// Nodes of another size: another program's format.
    #[error(
        "the file holds nodes of {found} bytes, this program reads version 1 with nodes of {NODE} bytes: convert the text file again"
    )]
    NodeSize {
        /// Bytes in a node.
        found: u64,
    },
    /// The counts of a section do not add up to its length.
    #[error(
        "the file is damaged: the section of rank {rank} has {length} bytes, which {nodes} nodes, {roots} roots and \
         their edges do not fill"
    )]
    SectionLength {
        /// The rank.
        rank: u32,
        /// Bytes of its section.
        length: u64,
        /// Number of nodes in its header.
        nodes: u32,
        /// Number of roots in its header.
        roots: u32,
    },
    /// A node that no program writes.
    #[error("the file is damaged: node {node} of rank {rank}: {what}")]
    Node {
        /// The rank.
        rank: u32,
        /// The node.
        node: u32,
        /// The problem.
        what: &'static str,
    },
    /// The roots are not the nodes without dependencies.
    #[error("the file is damaged: the roots of rank {rank} are not its nodes without dependencies")]
    Roots {
        /// The rank.
        rank: u32,
    },
    /// The graphs cannot be written.
    #[error(transparent)]
    NotPortable(#[from] NotPortable),
}
