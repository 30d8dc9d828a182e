//! Objects in a segment that other processes find by their offset: labelled on creation, checked on
//! connection, freed when no process uses them.
//!
//! An object is a header ([`ObjectHeader`]) and the memory behind it. Its first word is a
//! [`Label`]: it is stored last on creation, so that a process that finds it also finds a complete
//! object, and erased before the memory is freed. Two kinds of objects record the processes that
//! use them: those with a [`ProcessTable`], to which any number of processes attach, and those with
//! two ends, each of which one process takes. Processes become users of both by
//! [`Connecting`](crate::connecting::Connecting).

use crate::arena::{Arena, ArenaError, Retired};
use crate::liveness::ProcessId;
use crate::mapped::{Mapped, MappedSlice};
use crate::process::ProcessError;
use crate::process_table::{End, Ends, ProcessTable, TakenBy};
use crate::segment::{Offset, Segment, SegmentError};
use crate::shared::Shared;
use crate::sync::{AtomicU64, Ordering};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

pub use crate::label::Label;

/// Error of creating an object or connecting to one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The requested size is not supported.
    #[error("cannot create a {object} of {requested} {unit}: choose {limits}")]
    Size {
        /// Kind of object.
        object: &'static str,
        /// Requested size.
        requested: u64,
        /// Unit of the size.
        unit: &'static str,
        /// Sizes that are supported.
        limits: &'static str,
    },
    /// No object of this kind lies at the offset.
    #[error(
        "there is no {object} at {offset}: connect to the offset that its creator returned, in the \
         same segment"
    )]
    NotFound {
        /// Kind of object.
        object: &'static str,
        /// Requested offset.
        offset: Offset,
    },
    /// The object carries values of another type.
    #[error(
        "the {object} at {offset} was not created for {requested}: connect with the type of its \
         creation"
    )]
    OtherType {
        /// Kind of object.
        object: &'static str,
        /// Offset of the object.
        offset: Offset,
        /// Requested type.
        requested: &'static str,
    },
    /// The owner has closed the object.
    #[error("the {object} at {offset} was closed by its owner, process {owner}")]
    Closed {
        /// Kind of object.
        object: &'static str,
        /// Offset of the object.
        offset: Offset,
        /// Process number of the owner.
        owner: u32,
    },
    /// The number of connected handles is at its maximum.
    #[error(
        "the {object} at {offset} has {max} connected handles, the maximum: share one among threads"
    )]
    TooMany {
        /// Kind of object.
        object: &'static str,
        /// Offset of the object.
        offset: Offset,
        /// Maximum number of handles.
        max: usize,
    },
    /// The end was connected to before; that is possible once.
    #[error(
        "the {end} of the {object} at {offset} {}: create one for each pair",
        TakenBy(*.process)
    )]
    Taken {
        /// Kind of object.
        object: &'static str,
        /// Offset of the object.
        offset: Offset,
        /// The end.
        end: End,
        /// Number of the process that holds it; `None` if it has been closed or withdrawn since.
        process: Option<u32>,
    },
    /// Too many threads connect to objects of the segment at this moment.
    #[error(
        "{max} threads are connecting to objects of this segment, the maximum at a time, so none \
         can connect to the {object} at {offset}: connect again"
    )]
    Busy {
        /// Kind of object.
        object: &'static str,
        /// Requested offset.
        offset: Offset,
        /// Maximum number of threads.
        max: usize,
    },
    /// The object has receivers that exclude the new one.
    #[error(
        "the {object} at {offset} has a receiver that excludes another one: drop that receiver \
         first"
    )]
    Held {
        /// Kind of object.
        object: &'static str,
        /// Offset of the object.
        offset: Offset,
    },
    /// The index is out of range.
    #[error("the {object} at {offset} has {count} queues, so none of index {index}")]
    NoIndex {
        /// Kind of object.
        object: &'static str,
        /// Offset of the object.
        offset: Offset,
        /// Number of queues.
        count: usize,
        /// Requested index.
        index: usize,
    },
    /// The range lies outside the segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The arena has no memory left.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// The identity of this process is unavailable.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

// SAFETY: a transparent wrapper of an `AtomicU64`; every word read from it is checked.
unsafe impl Shared for Label {}

/// Header of an object of one kind.
pub trait ObjectHeader: Shared {
    /// Number of the kind: four ASCII letters.
    const KIND: u32;

    /// Name of the kind in error messages.
    const NAME: &'static str;

    /// True if the arena lists objects of this kind for an observer of the job.
    const IS_QUEUE: bool = false;

    /// Returns the label.
    fn label(&self) -> &Label;

    /// Returns the word with the identity of the owner, if the kind records it.
    fn owner(&self) -> Option<&AtomicU64> {
        None
    }

    /// Returns the table of attached processes, if the kind has one.
    fn processes(&self) -> Option<&ProcessTable> {
        None
    }

    /// Returns the holders of the sending and the receiving end, if the kind has ends.
    fn ends(&self) -> Option<&Ends> {
        None
    }
}

/// Mapped object, as seen by any process.
pub struct Object<H: ObjectHeader> {
    header: Mapped<H>,
    offset: Offset,
    parameter: u32,
}

impl<H: ObjectHeader> fmt::Debug for Object<H> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct(H::NAME)
            .field("offset", &self.offset)
            .field("parameter", &self.parameter)
            .finish_non_exhaustive()
    }
}

impl<H: ObjectHeader> Clone for Object<H> {
    fn clone(&self) -> Self {
        let Object { header, offset, parameter } = self;
        Object { header: header.clone(), offset: *offset, parameter: *parameter }
    }
}

impl<H: ObjectHeader> Deref for Object<H> {
    type Target = H;

    #[inline(always)]
    fn deref(&self) -> &H {
        &self.header
    }
}

impl<H: ObjectHeader> Object<H> {
    /// Creates an object with `trailing` bytes behind its header in zeroed memory of the arena,
    /// owned by this process. `prepare` initialises it before other processes can find it. Frees
    /// [retired](Object::retire) objects of the arena first.
    ///
    /// # Errors
    /// [`CreateError::Arena`], [`CreateError::Process`], and the error of `prepare`; the memory is
    /// then free again.
    pub fn create<T>(
        arena: &Arena,
        trailing: u64,
        parameter: u32,
        prepare: impl FnOnce(&Self) -> Result<T, CreateError>,
    ) -> Result<(Self, T), CreateError> {
        arena.free_retired();
        let bytes = (size_of::<H>() as u64).saturating_add(trailing);
        // Processors fetch lines in aligned pairs.
        let offset = arena.allocate_zeroed(bytes, 128)?;
        let create = || {
            let object =
                Object { header: Mapped::<H>::new(arena.segment(), offset)?, offset, parameter };
            if let Some(owner) = object.header.owner() {
                // Relaxed: the label publishes it.
                owner.store(ProcessId::own()?.0, Ordering::Relaxed);
            }
            let prepared = prepare(&object)?;
            object.header.label().publish(Self::label_with(parameter));
            if H::IS_QUEUE {
                arena.list(offset);
            }
            Ok((object, prepared))
        };
        create().inspect_err(|_| {
            // Cannot fail: the memory came from this arena.
            let _ = arena.free(offset);
        })
    }

    /// Finds the object at `offset`. The owner must not free its memory meanwhile. If it may, the
    /// object is found by [`Connecting`](crate::connecting::Connecting).
    ///
    /// # Errors
    /// [`CreateError::NotFound`] if something else lies there, [`CreateError::Segment`] if the
    /// header does not lie in the segment.
    pub fn find(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        let header = Mapped::<H>::new(segment, offset)?;
        // The memory may have been overwritten since the creation, so the parameter and all words
        // of the header are checked by the kind, and the trailing memory by its mapping.
        let label = header.label().find();
        if label >> 32 != u64::from(H::KIND) {
            return Err(Self::not_found(offset));
        }
        Ok(Object { header, offset, parameter: label as u32 })
    }

    fn label_with(parameter: u32) -> u64 {
        u64::from(H::KIND) << 32 | u64::from(parameter)
    }

    /// Returns the error for an offset without a valid object of this kind.
    pub fn not_found(offset: Offset) -> CreateError {
        CreateError::NotFound { object: H::NAME, offset }
    }

    /// Returns true if the memory still holds the object that this handle was connected to, or
    /// another one of the same kind and parameter.
    pub fn is_labelled(&self) -> bool {
        self.header.label().find() == Self::label_with(self.parameter)
    }

    /// Maps `count` values from `skip` bytes behind the header on.
    ///
    /// # Errors
    /// [`CreateError::Segment`] if they do not lie in the segment.
    pub fn trailing<T: Shared>(
        &self,
        skip: u64,
        count: usize,
    ) -> Result<MappedSlice<T>, CreateError> {
        Ok(MappedSlice::new(self.segment(), self.behind_header(skip), count)?)
    }

    /// Returns the offset `skip` bytes behind the header. It may lie outside the segment.
    pub fn behind_header(&self, skip: u64) -> Offset {
        Offset(self.offset.0.saturating_add(size_of::<H>() as u64).saturating_add(skip))
    }

    /// Returns the offset of the object, to which other processes connect.
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// Returns the parameter in the label.
    pub fn parameter(&self) -> u32 {
        self.parameter
    }

    /// Returns the segment that contains the object.
    pub fn segment(&self) -> &Arc<Segment> {
        self.header.segment()
    }

    /// Returns the owner; [`ProcessId::NONE`] if the kind does not record it.
    pub fn owner(&self) -> ProcessId {
        // Relaxed: the label published it.
        self.header.owner().map_or(ProcessId::NONE, |word| ProcessId(word.load(Ordering::Relaxed)))
    }

    /// Closes the object for new users; returns true if no living process uses it. The caller has
    /// withdrawn the ends, if the object has any.
    pub fn close(&self) -> bool {
        // The table is closed first, so no process can attach between the check and a free. A
        // released end stays released, and the end of a dead process stays unused.
        let attached = self.header.processes().is_some_and(|table| {
            table.close();
            table.has_living()
        });
        let held = self.header.ends().is_some_and(|ends| !ends.are_free());
        !attached && !held
    }

    /// Closes the object and frees it as soon as no process uses it: now, or when an object is
    /// created in the arena later.
    pub fn retire(&self, arena: &Arena) {
        if !self.try_free(arena) {
            arena.free_later(Box::new(self.clone()));
        }
    }

    /// Erases the label, so that later connections fail, and frees the memory, or retires it if a
    /// process is connecting. No process may use the object any more.
    pub fn free(&self, arena: &Arena) {
        self.header.label().erase();
        let erased = Erased(self.offset);
        if !erased.try_free(arena) {
            arena.free_later(Box::new(erased));
        }
    }
}

impl<H: ObjectHeader> Retired for Object<H> {
    fn try_free(&self, arena: &Arena) -> bool {
        let unused = self.close();
        if unused {
            self.free(arena);
        }
        unused
    }
}

/// Memory of an object without label and without users.
#[derive(Debug)]
struct Erased(Offset);

impl Retired for Erased {
    fn try_free(&self, arena: &Arena) -> bool {
        // A process that has announced the object before its label was erased may still write into
        // the words by which processes become users.
        let unused = !arena.segment().announcements().includes(self.0.0);
        if unused {
            // Cannot fail: the memory came from this arena and is freed once.
            let _ = arena.free(self.0);
        }
        unused
    }
}
