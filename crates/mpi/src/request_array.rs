//! The requests of a call, those of this library and of the MPI library mixed, and their statuses.

use crate::abi::{Abi, STATUS_BYTES, abi, write_error, write_status};
use crate::host::{Handle, Pointer, call};
use crate::report::Clock;
use crate::requests::{Awaited, Ended, Look, end, is_own, look};
use std::ffi::c_int;
use std::sync::OnceLock;

static EMPTY_STATUS: OnceLock<[u8; STATUS_BYTES]> = OnceLock::new();

/// Notes the MPI library's status of a call without messages.
pub(crate) fn examine_empty_status(abi: &Abi) {
    EMPTY_STATUS.get_or_init(|| {
        let mut status = [0u8; STATUS_BYTES];
        let mut flag = 0;
        let at = status.as_mut_ptr().cast();
        abi.by_address(abi.request_null, |null| call!(Test(null, &raw mut flag, at)));
        status
    });
}

/// The requests and statuses of a call.
pub(crate) struct Array {
    pub(crate) abi: &'static Abi,
    pub(crate) requests: Pointer,
    pub(crate) count: usize,
    pub(crate) statuses: Pointer,
    /// Since the begin of the call.
    pub(crate) clock: Clock,
}

impl Array {
    /// The array of a call; `None` if none of its requests is of this library: the MPI library is not
    /// known, or the arguments are wrong, which it reports.
    pub(crate) fn new(count: c_int, requests: Pointer, statuses: Pointer) -> Option<Self> {
        if requests.is_null() {
            return None;
        }
        let count = usize::try_from(count).ok()?;
        Some(Array { abi: abi()?, requests, count, statuses, clock: Clock::start() })
    }

    pub(crate) fn get(&self, index: usize) -> Handle {
        // SAFETY: indices are below the count, and the program passes so many handles.
        unsafe { self.abi.read(self.requests, index) }
    }

    pub(crate) fn set(&self, index: usize, handle: Handle) {
        // SAFETY: as in `get`.
        unsafe { self.abi.write(self.requests, index, handle) };
    }

    /// The place for a status, unless the program ignores them.
    fn status(&self, place: usize) -> Option<Pointer> {
        let Array { abi, statuses, .. } = *self;
        let is_ignored = abi.ignores(statuses) || statuses.is_null();
        (!is_ignored).then(|| statuses.wrapping_byte_add(place * abi.status.bytes))
    }

    /// Writes the status of a call of this library to a place in the array of statuses.
    pub(crate) fn write_status(&self, place: usize, with_error: bool) {
        if let Some(status) = self.status(place) {
            write_empty_status(self.abi, status, with_error);
        }
    }

    pub(crate) fn look(&self, index: usize) -> Look {
        look(self.abi, self.get(index))
    }

    /// Ends a complete request of this library.
    pub(crate) fn end(&self, index: usize) -> c_int {
        self.ended(index, &end(self.get(index), &self.clock))
    }

    /// The handle of a request that has ended becomes null, or that of an inactive one. Reports its
    /// error.
    pub(crate) fn ended(&self, index: usize, ended: &Ended) -> c_int {
        if !ended.is_persistent {
            self.set(index, self.abi.request_null);
        }
        // An error handler may throw: by now nothing of the program refers to the handle, which may
        // be in use again.
        ended.report(self.abi);
        ended.outcome
    }

    /// Returns the outcome of a call that has completed several requests: that of the MPI library,
    /// or that some of this library have failed. `failures` are the places of their statuses among
    /// the `complete` ones, and their error codes.
    pub(crate) fn outcome(
        &self,
        of_library: c_int,
        (failures, complete): (&[(usize, c_int)], usize),
    ) -> c_int {
        if failures.is_empty() {
            return of_library;
        }
        // The MPI library writes the errors of all statuses only where one of its requests has one.
        let successes = (0..complete).filter(|_| of_library == 0).map(|place| (place, 0));
        for (place, error) in successes.chain(failures.iter().copied()) {
            if let Some(status) = self.status(place) {
                // SAFETY: the program passes a status for each request, and places are below their
                // number.
                unsafe { write_error(self.abi, status, error) };
            }
        }
        if of_library == 0 { self.abi.error_in_status } else { of_library }
    }

    /// The active and complete requests of this library.
    pub(crate) fn own(&self) -> Awaited {
        (0..self.count).map(|index| self.get(index)).filter(|handle| is_own(*handle)).collect()
    }

    /// Looks at all requests.
    pub(crate) fn survey(&self) -> Survey {
        let mut survey = Survey::default();
        for index in 0..self.count {
            match self.look(index) {
                Look::Foreign => {}
                Look::Active => survey.active += 1,
                Look::Complete(_) => survey.complete.push(index),
            }
        }
        survey
    }

    /// A copy of the handles in which those of this library's active and complete requests are null.
    pub(crate) fn without_own(&self) -> WithoutOwn {
        let bytes = self.abi.handle_bytes() * self.count;
        let mut handles = vec![0u64; bytes.div_ceil(8)];
        let own = (0..self.count).filter(|index| is_own(self.get(*index))).collect();
        // SAFETY: the program passes so many bytes of handles, and the copy is as long.
        unsafe {
            let to = handles.as_mut_ptr().cast::<u8>();
            to.copy_from_nonoverlapping(self.requests.cast(), bytes);
        }
        let mut copy = WithoutOwn { handles, own };
        for place in 0..copy.own.len() {
            copy.set_own(self.abi, place, self.abi.request_null);
        }
        copy
    }

    /// Returns whether a request of the MPI library, or an inactive one, is in the copy.
    pub(crate) fn has_others(&self, copy: &mut WithoutOwn) -> bool {
        let handles = copy.requests();
        // SAFETY: the copy has as many handles as the array.
        (0..self.count).any(|at| unsafe { self.abi.read(handles, at) } != self.abi.request_null)
    }

    /// Copies the handles of the MPI library back.
    pub(crate) fn copy_back(&self, mut copy: WithoutOwn) {
        let handles = copy.requests();
        let mut own = copy.own.into_iter().peekable();
        for index in 0..self.count {
            if own.next_if_eq(&index).is_none() {
                // SAFETY: the copy has as many handles as the array.
                self.set(index, unsafe { self.abi.read(handles, index) });
            }
        }
    }
}

/// The requests of an array without those of this library.
pub(crate) struct WithoutOwn {
    handles: Vec<u64>,
    /// Indices of the requests of this library, ascending.
    own: Vec<usize>,
}

impl WithoutOwn {
    /// The array for the MPI library.
    pub(crate) fn requests(&mut self) -> Pointer {
        self.handles.as_mut_ptr().cast()
    }

    /// Puts another handle in the place of one of this library's requests.
    pub(crate) fn set_own(&mut self, abi: &Abi, place: usize, handle: Handle) {
        if let Some(index) = self.own.get(place).copied() {
            // SAFETY: the index is one of the array, because the copy has the array's length.
            unsafe { abi.write(self.requests(), index, handle) };
        }
    }
}

/// The requests of this library in an array.
#[derive(Default)]
pub(crate) struct Survey {
    /// Indices of complete ones.
    pub(crate) complete: Vec<usize>,
    /// Number of active ones. A wait surveys at each look: without complete ones it allocates nothing.
    pub(crate) active: usize,
}

impl Survey {
    pub(crate) fn has_own(&self) -> bool {
        self.active > 0 || !self.complete.is_empty()
    }
}

/// Writes the status of a call of this library, unless the program ignores it. In a status of a single
/// completion the field `MPI_ERROR` keeps its value, as the MPI standard demands.
pub(crate) fn write_empty_status(abi: &Abi, status: Pointer, with_error: bool) {
    let empty = EMPTY_STATUS.get().unwrap_or(&[0; STATUS_BYTES]);
    // SAFETY: the program passes a status for each request, and places are below their number.
    unsafe { write_status(abi, status, empty, with_error) };
}

pub(crate) fn write_flag(flag: *mut c_int, value: bool) {
    // SAFETY: the program passes the address of a flag or a number.
    unsafe { *flag = c_int::from(value) };
}

pub(crate) fn write_number(to: *mut c_int, value: c_int) {
    // SAFETY: the program passes the address of a number.
    unsafe { *to = value };
}
