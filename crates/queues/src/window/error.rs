//! What can go wrong with windows and the commands on them.

use goal::arithmetic::{ArithmeticError, DataType};
use shm::arena::ArenaError;
use shm::process::ProcessError;
use shm::segment::{Offset, SegmentError};

/// Why a window could not be exposed or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// There is something else at that place.
    #[error(
        "there is no window at {offset}: use the offset that `Window::offset` gave, in the same segment"
    )]
    NoWindow {
        /// Where it was looked for.
        offset: Offset,
    },
    /// The window's owner has withdrawn it.
    #[error("the window at {offset} was withdrawn by its owner, process {owner}")]
    Withdrawn {
        /// The window.
        offset: Offset,
        /// The number of the process that had exposed it.
        owner: u32,
    },
    /// As many handles are open as a window can have.
    #[error(
        "the window at {offset} has {most} open handles, the most there can be: share one among threads"
    )]
    TooManyHandles {
        /// The window.
        offset: Offset,
        /// How many there can be.
        most: usize,
    },
    /// The arena has no room for it.
    #[error("no room for a window: {0}")]
    Arena(#[from] ArenaError),
    /// The place does not lie in the segment.
    #[error("a window cannot lie there: {0}")]
    Segment(#[from] SegmentError),
    /// This process cannot name itself to the others.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Why a remote memory command was refused. Except where it says otherwise nothing was written or
/// read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The range leaves the window.
    #[error(
        "{length} bytes from byte {at} on do not lie in the window at {window}, which has {bytes} bytes"
    )]
    OutOfRange {
        /// The window.
        window: Offset,
        /// Where the range starts, in bytes of the window.
        at: u64,
        /// How many bytes it covers.
        length: u64,
        /// The bytes of the window.
        bytes: u64,
    },
    /// An element would not lie on a multiple of its size, so it could not be changed in one step.
    #[error(
        "byte {at} of the window at {window} is not a multiple of {size}, the size of an element there"
    )]
    Misaligned {
        /// The window.
        window: Offset,
        /// The place in the window, in bytes.
        at: u64,
        /// The size of an element in bytes.
        size: u64,
    },
    /// An index of an indirect command leads out of the window.
    #[error(
        "index {index}, number {position} of the index array, leads out of the window at {window}: from byte {at} on \
         it has room for {elements} elements"
    )]
    Index {
        /// The window.
        window: Offset,
        /// The place of the index in the array, from 0.
        position: usize,
        /// The index.
        index: u64,
        /// Where the indexed elements start, in bytes of the window.
        at: u64,
        /// How many there can be.
        elements: u64,
    },
    /// The data of an indirect command do not match its indices.
    #[error("{indices} indices need {indices} {data_type} elements, but there are {bytes} bytes")]
    IndicesAndDataDiffer {
        /// How many indices there are.
        indices: usize,
        /// The type of the elements.
        data_type: DataType,
        /// How many bytes there are.
        bytes: usize,
    },
    /// The operation cannot be computed. If an integer was divided by zero, all elements have been
    /// changed (see [`goal::arithmetic`]).
    #[error("accumulating into the window at {window}: {error}")]
    Arithmetic {
        /// The window.
        window: Offset,
        /// Why.
        error: ArithmeticError,
    },
    /// The window's owner has withdrawn it.
    #[error("the window at {window} was withdrawn by its owner, process {owner}")]
    Withdrawn {
        /// The window.
        window: Offset,
        /// The number of the process that had exposed it.
        owner: u32,
    },
    /// The process that owns the window has ended before the condition came true.
    #[error(
        "the word at byte {at} of the window at {window} has not reached {at_least}, and the owner, process {owner}, \
         has ended"
    )]
    OwnerGone {
        /// The window.
        window: Offset,
        /// The number that the process had.
        owner: u32,
        /// The place of the word, in bytes of the window.
        at: u64,
        /// What it was to reach.
        at_least: u64,
    },
}
