//! Connection of this process to an object that its owner may free meanwhile.

use crate::announcements::{Announced, MAX_ANNOUNCEMENTS};
use crate::liveness::ProcessId;
use crate::object::{CreateError, Object, ObjectHeader};
use crate::process_table::{AttachError, End, Entry, MAX_PROCESSES, TakenBy};
use crate::segment::{Offset, Segment};
use std::sync::Arc;

/// Attempts to announce a connection while all entries are taken, at about a millisecond each: it
/// is checked whether their processes live. An entry is held for the time of a connection, which
/// waits for nothing.
const ATTEMPTS: usize = 100;

/// An object that this process has found by its offset, and of which it becomes a user. Its memory
/// stays allocated until the value is dropped, and as long as the process is a user.
#[derive(Debug)]
#[must_use = "the process is no user of the object yet"]
pub struct Connecting<'a, H: ObjectHeader> {
    object: Object<H>,
    /// This process.
    own: ProcessId,
    _announced: Announced<'a>,
}

impl<'a, H: ObjectHeader> Connecting<'a, H> {
    /// Finds the object at `offset`.
    ///
    /// # Errors
    /// [`CreateError::NotFound`] if something else lies there, [`CreateError::Segment`] if the
    /// header does not lie in the segment, [`CreateError::Busy`], [`CreateError::Process`].
    pub fn to(segment: &'a Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        let own = ProcessId::own()?;
        let announcements = segment.announcements();
        let mut attempts = (0..ATTEMPTS).map(|attempt| {
            if attempt > 0 {
                std::thread::yield_now();
            }
            announcements.announce(own, offset.0)
        });
        let busy = CreateError::Busy { object: H::NAME, offset, max: MAX_ANNOUNCEMENTS };
        let announced = attempts.find_map(|announced| announced).ok_or(busy)?;
        Ok(Connecting { object: Object::find(segment, offset)?, own, _announced: announced })
    }

    /// Maps the object and attaches this process to it.
    ///
    /// # Errors
    /// [`CreateError::Closed`], [`CreateError::TooMany`], the errors of `map`;
    /// [`CreateError::NotFound`] if the kind has no table.
    pub fn attach<T>(
        self,
        map: impl FnOnce(Object<H>) -> Result<T, CreateError>,
    ) -> Result<(T, Entry), CreateError> {
        self.attach_numbered(0, map, |_| {})
    }

    /// Maps the object and attaches this process to it, in one of the first `numbers` entries if
    /// possible. `recover` undoes what ended processes left in the object (see
    /// [`ProcessTable::attach_numbered`](crate::process_table::ProcessTable::attach_numbered)).
    ///
    /// # Errors
    /// Those of [`attach`](Self::attach).
    pub fn attach_numbered<T>(
        self,
        numbers: usize,
        map: impl FnOnce(Object<H>) -> Result<T, CreateError>,
        recover: impl FnOnce(&T),
    ) -> Result<(T, Entry), CreateError> {
        let object = H::NAME;
        let offset = self.object.offset();
        let table = self.object.processes().ok_or_else(|| Object::<H>::not_found(offset))?;
        let mapped = map(self.object.clone())?;
        match table.attach_numbered(self.own, numbers, || recover(&mapped)) {
            Ok(entry) => Ok((mapped, entry)),
            Err(AttachError::Closed) => {
                Err(CreateError::Closed { object, offset, owner: self.object.owner().pid() })
            }
            Err(AttachError::TooMany) => {
                Err(CreateError::TooMany { object, offset, max: MAX_PROCESSES })
            }
        }
    }

    /// Maps the object and takes one of its ends for this process, for good.
    ///
    /// # Errors
    /// [`CreateError::Taken`], the errors of `map`; [`CreateError::NotFound`] if the kind has no ends.
    pub fn take<T>(
        self,
        end: End,
        map: impl FnOnce(Object<H>) -> Result<T, CreateError>,
    ) -> Result<T, CreateError> {
        let object = H::NAME;
        let offset = self.object.offset();
        let ends = self.object.ends().ok_or_else(|| Object::<H>::not_found(offset))?;
        let mapped = map(self.object.clone())?;
        // Last: the exchange is for good, so nothing that can fail follows it.
        match ends.holder(end).take(self.own) {
            Ok(()) => Ok(mapped),
            Err(TakenBy(process)) => Err(CreateError::Taken { object, offset, end, process }),
        }
    }
}
