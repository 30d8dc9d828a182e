//! Errors of the commands on windows.

use goal::arithmetic::{ArithmeticError, DataType};
use shm::segment::Offset;

/// Reason why a remote memory command failed. Nothing was written, except where a variant says
/// otherwise. On a window of another node [`Withdrawn`](WindowError::Withdrawn),
/// [`RankExited`](WindowError::RankExited), [`NodeServiceEnded`](WindowError::NodeServiceEnded) and
/// [`Corrupt`](WindowError::Corrupt) may follow the execution of the command, or of pieces of a long
/// one: its answer is lost then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// The range exceeds the window.
    #[error(
        "{length} bytes from byte {at} on do not lie in the window at {window}, which has {bytes} \
         bytes"
    )]
    OutOfRange {
        /// Offset of the window.
        window: Offset,
        /// Start of the range, in bytes of the window.
        at: u64,
        /// Length of the range in bytes.
        length: u64,
        /// Size of the window in bytes.
        bytes: u64,
    },
    /// The element is not aligned to its size, so that it cannot be changed in one step.
    #[error(
        "byte {at} of the window at {window} is not a multiple of {size}, the size of an element \
         there"
    )]
    Misaligned {
        /// Offset of the window.
        window: Offset,
        /// Position in the window, in bytes.
        at: u64,
        /// Size of an element in bytes.
        size: u64,
    },
    /// The elements are longer than the words that a window changes in one step.
    #[error(
        "an element of {data_type} has {} bytes, but a window changes at most 8 in one step: use \
         shorter elements, or put and get",
        .data_type.bytes()
    )]
    ElementTooLong {
        /// Type of the elements.
        data_type: DataType,
    },
    /// An index of a scatter or gather exceeds the window.
    #[error(
        "index {index}, number {position} of the index array, exceeds the window at {window}: from \
         byte {at} on it holds {elements} elements"
    )]
    Index {
        /// Offset of the window.
        window: Offset,
        /// Position of the index in the array, from 0.
        position: usize,
        /// The index.
        index: u64,
        /// Start of the indexed elements, in bytes of the window.
        at: u64,
        /// Number of elements from there on.
        elements: u64,
    },
    /// The data of a scatter or gather do not match its indices.
    #[error("{indices} indices need {indices} {data_type} elements, but there are {bytes} bytes")]
    IndicesAndDataDiffer {
        /// Number of indices.
        indices: usize,
        /// Type of the elements.
        data_type: DataType,
        /// Number of data bytes.
        bytes: usize,
    },
    /// The operation cannot be computed. If an integer was divided by zero, all elements have been
    /// changed (see [`goal::arithmetic`]).
    #[error("accumulating into the window at {window}: {error}")]
    Arithmetic {
        /// Offset of the window.
        window: Offset,
        /// Reason.
        error: ArithmeticError,
    },
    /// The owner has withdrawn the window.
    #[error("the window at {window} was withdrawn by its owner, process {owner}")]
    Withdrawn {
        /// Offset of the window.
        window: Offset,
        /// Number of the process that created it.
        owner: u32,
    },
    /// The rank that owns the window has failed, its node was lost, or it had left before the first
    /// command. Commands on windows of other nodes return it.
    #[error("rank {rank}, which owned the window, has left or failed")]
    RankExited {
        /// Its rank.
        rank: u32,
    },
    /// The node service of this node, which carries commands to other nodes, has ended.
    #[error(
        "the node service, which carries commands to other nodes, has ended: start the job again"
    )]
    NodeServiceEnded,
    /// This rank had no memory left for the channels to a window of another node, or has left. All later
    /// commands of the handle return it, too: the windows must be opened again.
    #[error(
        "no channels to the window of rank {rank} on another node can be opened: this rank has left \
         the job, or has no memory left; free buffers, queues and windows that are no longer used, and \
         open the windows again"
    )]
    NotOpened {
        /// The rank that owns the window.
        rank: u32,
    },
    /// The memory of the channels to a window of another node holds what no node service writes.
    #[error(
        "the channels to the window at {window} of another node are corrupt: another program has \
         overwritten their memory"
    )]
    Corrupt {
        /// Offset of the window on its node.
        window: Offset,
    },
    /// The process that owns the window has ended before the condition came true.
    #[error(
        "the word at byte {at} of the window at {window} has not reached {at_least}, and the \
         owner, process {owner}, has ended"
    )]
    OwnerGone {
        /// Offset of the window.
        window: Offset,
        /// Number that the process had.
        owner: u32,
        /// Position of the word, in bytes of the window.
        at: u64,
        /// Value that was waited for.
        at_least: u64,
    },
}
