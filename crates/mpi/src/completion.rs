//! The completion functions, for arrays in which requests of this library and of the MPI library
//! are mixed.
//!
//! For the MPI library a request of this library is inactive, so an array goes to it as it is, and
//! it looks after its own requests. While a program waits for a request of this library, the MPI
//! library is driven, and while it waits for another one, tradewind is.

use crate::abi::{Abi, STATUS_BYTES, abi, write_status};
use crate::host::{self, Handle, Pointer, call, pass};
use crate::persistent;
use crate::requests::{self, Ended, Look, Pause, end, is_idle, is_own, look};
use std::ffi::c_int;
use std::sync::OnceLock;

static EMPTY_STATUS: OnceLock<[u8; STATUS_BYTES]> = OnceLock::new();

/// Notes the MPI library's status of a call without messages.
pub(crate) fn examine_empty_status(abi: &Abi) {
    EMPTY_STATUS.get_or_init(|| {
        let mut status = [0u8; STATUS_BYTES];
        let (mut flag, mut null): (c_int, isize) = (0, 0);
        let request: Pointer = (&raw mut null).cast();
        // SAFETY: the variable is as large as the handles of every ABI.
        unsafe { abi.write(request, 0, abi.request_null) };
        call!(Test(request, &raw mut flag, status.as_mut_ptr().cast()));
        status
    });
}

/// Returns whether the call concerns the MPI library alone. It also calls completion functions
/// itself, with requests of its own, but functions of the program that it calls may complete any
/// request.
#[inline]
fn concerns_library_alone(count: c_int, requests: Pointer) -> bool {
    is_idle() || (host::is_inside() && !has_own(count, requests))
}

#[cold]
fn has_own(count: c_int, requests: Pointer) -> bool {
    let array = Array::new(count, requests, std::ptr::null_mut());
    array.is_some_and(|array| (0..array.count).any(|index| is_own(array.get(index))))
}

/// The requests and statuses of a call.
struct Array {
    abi: &'static Abi,
    requests: Pointer,
    count: usize,
    statuses: Pointer,
}

impl Array {
    /// The array of a call; `None` if the MPI library is not known, so none of its requests is of
    /// this library.
    fn new(count: c_int, requests: Pointer, statuses: Pointer) -> Option<Self> {
        let count = usize::try_from(count).ok()?;
        Some(Array { abi: abi()?, requests, count, statuses })
    }

    fn get(&self, index: usize) -> Handle {
        // SAFETY: indices are below the count, and the program passes so many handles.
        unsafe { self.abi.read(self.requests, index) }
    }

    fn set(&self, index: usize, handle: Handle) {
        // SAFETY: as in `get`.
        unsafe { self.abi.write(self.requests, index, handle) };
    }

    /// Writes the status of a call of this library to a place in the array of statuses.
    fn write_status(&self, place: usize, with_error: bool) {
        let abi = self.abi;
        let statuses = self.statuses;
        if abi.ignores(statuses) || statuses.is_null() {
            return;
        }
        let status = statuses.cast::<u8>().wrapping_add(place * abi.status.bytes).cast();
        let empty = EMPTY_STATUS.get().unwrap_or(&[0; STATUS_BYTES]);
        // SAFETY: the program passes a status for each request, and places are below their number.
        unsafe { write_status(abi, status, empty, with_error) };
    }

    fn look(&self, index: usize) -> Look {
        look(self.abi, self.get(index))
    }

    /// Ends a complete request of this library.
    fn end(&self, index: usize) -> c_int {
        self.ended(index, &end(self.get(index)))
    }

    /// The handle of a request that has ended becomes null, or that of an inactive one.
    fn ended(&self, index: usize, ended: &Ended) -> c_int {
        if !ended.is_persistent {
            self.set(index, self.abi.request_null);
        }
        ended.outcome
    }

    /// Looks at all requests.
    fn survey(&self) -> Survey {
        let mut survey = Survey { complete: Vec::new(), active: 0 };
        for index in 0..self.count {
            match self.look(index) {
                Look::Foreign => {}
                Look::Active => survey.active += 1,
                Look::Complete(_) => survey.complete.push(index),
            }
        }
        survey
    }

    /// A copy of the handles in which those of this library are null.
    fn without(&self, own: &[usize]) -> Vec<u64> {
        let bytes = self.abi.handle_bytes() * self.count;
        let mut copy = vec![0u64; bytes.div_ceil(8)];
        // SAFETY: the program passes so many bytes of handles, and the copy is as long.
        unsafe {
            let to = copy.as_mut_ptr().cast::<u8>();
            to.copy_from_nonoverlapping(self.requests.cast(), bytes);
            own.iter().for_each(|index| self.abi.write(to.cast(), *index, self.abi.request_null));
        }
        copy
    }

    /// Copies the handles of the MPI library back.
    fn copy_back(&self, copy: &mut [u64], own: &[usize]) {
        for index in (0..self.count).filter(|index| !own.contains(index)) {
            // SAFETY: the copy has as many handles as the array.
            self.set(index, unsafe { self.abi.read(copy.as_mut_ptr().cast(), index) });
        }
    }
}

/// The requests of this library in an array.
struct Survey {
    /// Indices of complete ones.
    complete: Vec<usize>,
    /// Number of active ones.
    active: usize,
}

impl Survey {
    fn has_own(&self) -> bool {
        self.active > 0 || !self.complete.is_empty()
    }
}

/// Repeats a test of the MPI library until its flag is set, and advances tradewind meanwhile.
fn until(abi: &Abi, mut test: impl FnMut(*mut c_int) -> c_int) -> c_int {
    let mut pause = Pause::default();
    loop {
        let mut flag = 0;
        let outcome = test(&raw mut flag);
        if outcome != 0 || flag != 0 {
            return outcome;
        }
        pause.rest(abi);
    }
}

fn write_flag(flag: *mut c_int, value: bool) {
    // SAFETY: the program passes the address of a flag or a number.
    unsafe { *flag = c_int::from(value) };
}

fn write_number(to: *mut c_int, value: c_int) {
    // SAFETY: the program passes the address of a number.
    unsafe { *to = value };
}

/// `MPI_Wait`.
pub(crate) fn wait(request: Pointer, status: Pointer) -> c_int {
    if concerns_library_alone(1, request) {
        return pass!(Wait(request, status));
    }
    let Some(array) = Array::new(1, request, status) else { return call!(Wait(request, status)) };
    let Some(ended) = requests::wait(array.abi, array.get(0)) else {
        return until(array.abi, |flag| call!(Test(request, flag, status)));
    };
    array.write_status(0, false);
    array.ended(0, &ended)
}

/// `MPI_Test`.
pub(crate) fn test(request: Pointer, flag: *mut c_int, status: Pointer) -> c_int {
    let leave = || call!(Test(request, flag, status));
    if concerns_library_alone(1, request) {
        return pass!(Test(request, flag, status));
    }
    let Some(array) = Array::new(1, request, status) else { return leave() };
    match array.look(0) {
        Look::Foreign => {
            requests::advance_all(array.abi);
            leave()
        }
        Look::Active => {
            crate::communicators::poke(array.abi);
            write_flag(flag, false);
            0
        }
        Look::Complete(_) => {
            write_flag(flag, true);
            array.write_status(0, false);
            array.end(0)
        }
    }
}

/// `MPI_Waitall`.
pub(crate) fn wait_all(count: c_int, requests: Pointer, statuses: Pointer) -> c_int {
    let leave = || call!(Waitall(count, requests, statuses));
    if concerns_library_alone(count, requests) {
        return pass!(Waitall(count, requests, statuses));
    }
    let Some(array) = Array::new(count, requests, statuses) else { return leave() };
    let (mut own, mut failure) = (0, 0);
    for index in 0..array.count {
        let Some(ended) = requests::wait(array.abi, array.get(index)) else { continue };
        own += 1;
        let outcome = array.ended(index, &ended);
        failure = if outcome == 0 { failure } else { outcome };
    }
    // The MPI library's status of a null or an inactive request is that of a complete collective.
    let outcome = if own == array.count {
        (0..array.count).for_each(|index| array.write_status(index, true));
        0
    } else if is_idle() {
        leave()
    } else {
        until(array.abi, |flag| call!(Testall(count, requests, flag, statuses)))
    };
    if outcome == 0 { failure } else { outcome }
}

/// `MPI_Testall`.
pub(crate) fn test_all(
    count: c_int,
    requests: Pointer,
    flag: *mut c_int,
    statuses: Pointer,
) -> c_int {
    let leave = || call!(Testall(count, requests, flag, statuses));
    if concerns_library_alone(count, requests) {
        return pass!(Testall(count, requests, flag, statuses));
    }
    let Some(array) = Array::new(count, requests, statuses) else { return leave() };
    let Survey { complete: own, active } = array.survey();
    if active > 0 {
        crate::communicators::poke(array.abi);
        write_flag(flag, false);
        return 0;
    }
    if own.is_empty() {
        requests::advance_all(array.abi);
        return leave();
    }
    let mut copy = array.without(&own);
    let outcome = call!(Testall(count, copy.as_mut_ptr().cast(), flag, statuses));
    array.copy_back(&mut copy, &own);
    // SAFETY: the MPI library has written the flag.
    if outcome != 0 || unsafe { *flag } == 0 {
        return outcome;
    }
    own.iter().map(|index| array.end(*index)).fold(0, |failure, outcome| match outcome {
        0 => failure,
        outcome => outcome,
    })
}

/// The part of `MPI_Testany` and its kind that looks once. Returns `None` if no request is
/// complete.
fn any(
    array: &Array,
    index: *mut c_int,
    frees: bool,
    library: impl FnOnce(*mut c_int) -> c_int,
) -> Option<c_int> {
    let abi = array.abi;
    let mut active = false;
    for own in 0..array.count {
        match array.look(own) {
            Look::Foreign => {}
            Look::Active => active = true,
            Look::Complete(_) => {
                write_number(index, own as c_int);
                array.write_status(0, false);
                return Some(if frees { array.end(own) } else { 0 });
            }
        }
    }
    let mut flag = 0;
    let outcome = library(&raw mut flag);
    // SAFETY: the MPI library has written the index if the flag is set.
    let none_is_active = || unsafe { *index } == abi.undefined;
    if outcome != 0 || (flag != 0 && !(active && none_is_active())) { Some(outcome) } else { None }
}

/// `MPI_Waitany`.
pub(crate) fn wait_any(
    count: c_int,
    requests: Pointer,
    index: *mut c_int,
    status: Pointer,
) -> c_int {
    let leave = || call!(Waitany(count, requests, index, status));
    if concerns_library_alone(count, requests) {
        return pass!(Waitany(count, requests, index, status));
    }
    let Some(array) = Array::new(count, requests, status) else { return leave() };
    let mut pause = Pause::default();
    loop {
        let library = |flag| call!(Testany(count, requests, index, flag, status));
        if let Some(outcome) = any(&array, index, true, library) {
            return outcome;
        }
        pause.rest(array.abi);
    }
}

/// `MPI_Testany`, and with `frees` false `MPI_Request_get_status_any`.
pub(crate) fn test_any(
    count: c_int,
    requests: Pointer,
    (index, flag): (*mut c_int, *mut c_int),
    status: Pointer,
    frees: bool,
) -> c_int {
    let library = |flag| match frees {
        true => pass!(Testany(count, requests, index, flag, status)),
        false => look_any(count, requests, (index, flag), status),
    };
    if concerns_library_alone(count, requests) {
        return library(flag);
    }
    let Some(array) = Array::new(count, requests, status) else { return library(flag) };
    let found = any(&array, index, frees, library);
    write_flag(flag, found.is_some());
    if found.is_none() {
        write_number(index, array.abi.undefined);
        crate::communicators::poke(array.abi);
        requests::advance_all(array.abi);
    }
    found.unwrap_or(0)
}

/// The part of `MPI_Testsome` and its kind that looks once.
fn some(
    array: &Array,
    (outcount, indices): (*mut c_int, *mut c_int),
    frees: bool,
    library: impl FnOnce() -> c_int,
) -> c_int {
    let survey = array.survey();
    let outcome = library();
    if !survey.has_own() || outcome != 0 {
        return outcome;
    }
    // SAFETY: the MPI library has written the number.
    let mut found = usize::try_from(unsafe { *outcount }).unwrap_or(0);
    let mut failure = 0;
    for own in survey.complete {
        // SAFETY: the program passes an index for each request.
        unsafe { *indices.add(found) = own as c_int };
        array.write_status(found, true);
        found += 1;
        let outcome = if frees { array.end(own) } else { 0 };
        failure = if outcome == 0 { failure } else { outcome };
    }
    write_number(outcount, found as c_int);
    failure
}

/// `MPI_Waitsome`.
pub(crate) fn wait_some(
    count: c_int,
    requests: Pointer,
    (outcount, indices): (*mut c_int, *mut c_int),
    statuses: Pointer,
) -> c_int {
    let leave = || call!(Waitsome(count, requests, outcount, indices, statuses));
    if concerns_library_alone(count, requests) {
        return pass!(Waitsome(count, requests, outcount, indices, statuses));
    }
    let Some(array) = Array::new(count, requests, statuses) else { return leave() };
    let mut pause = Pause::default();
    loop {
        let library = || call!(Testsome(count, requests, outcount, indices, statuses));
        let outcome = some(&array, (outcount, indices), true, library);
        // SAFETY: the number is written by now. It is MPI_UNDEFINED if no request is active.
        if outcome != 0 || unsafe { *outcount } != 0 {
            return outcome;
        }
        pause.rest(array.abi);
    }
}

/// `MPI_Testsome`, and with `frees` false `MPI_Request_get_status_some`.
pub(crate) fn test_some(
    count: c_int,
    requests: Pointer,
    (outcount, indices): (*mut c_int, *mut c_int),
    statuses: Pointer,
    frees: bool,
) -> c_int {
    let library = || match frees {
        true => pass!(Testsome(count, requests, outcount, indices, statuses)),
        false => look_some(count, requests, (outcount, indices), statuses),
    };
    if concerns_library_alone(count, requests) {
        return library();
    }
    let Some(array) = Array::new(count, requests, statuses) else { return library() };
    let outcome = some(&array, (outcount, indices), frees, library);
    crate::communicators::poke(array.abi);
    requests::advance_all(array.abi);
    outcome
}

/// `MPI_Request_get_status`.
pub(crate) fn get_status(passed: Handle, flag: *mut c_int, status: Pointer) -> c_int {
    let leave = || call!(Request_get_status(passed, flag, status));
    if is_idle() {
        return pass!(Request_get_status(passed, flag, status));
    }
    let Some(abi) = abi() else { return leave() };
    let mut in_memory: isize = 0;
    let request: Pointer = (&raw mut in_memory).cast();
    // SAFETY: the variable is as large as the handles of every ABI.
    unsafe { abi.write(request, 0, passed) };
    let array = Array { abi, requests: request, count: 1, statuses: status };
    match array.look(0) {
        Look::Foreign => return leave(),
        Look::Active => {
            crate::communicators::poke(abi);
            write_flag(flag, false);
        }
        Look::Complete(_) => {
            write_flag(flag, true);
            array.write_status(0, false);
        }
    }
    0
}

/// `MPI_Request_get_status_all`.
pub(crate) fn get_status_all(
    count: c_int,
    requests: Pointer,
    flag: *mut c_int,
    statuses: Pointer,
) -> c_int {
    let leave = || look_all(count, requests, flag, statuses);
    if concerns_library_alone(count, requests) {
        return leave();
    }
    let Some(array) = Array::new(count, requests, statuses) else { return leave() };
    let Survey { complete: own, active } = array.survey();
    if active > 0 {
        crate::communicators::poke(array.abi);
        write_flag(flag, false);
        return 0;
    }
    let mut copy = array.without(&own);
    look_all(count, copy.as_mut_ptr().cast(), flag, statuses)
}

// MPI 4.1 has added the three functions for arrays that leave the requests as they are. Programs
// find them here even if their MPI library has only the one for a single request.

/// Looks at each request in turn until `stop` returns a result: it receives the index, whether the
/// request is null, whether it is complete, and the place of the next status.
fn look_one_by_one(
    (count, requests, statuses): (c_int, Pointer, Pointer),
    mut stop: impl FnMut(usize, bool, bool) -> Option<usize>,
) -> c_int {
    let Some(array) = Array::new(count, requests, statuses) else {
        return host::missing("Request_get_status_all");
    };
    let mut place = Some(0);
    for index in 0..array.count {
        let Some(at) = place else { break };
        let status = match array.abi.ignores(statuses) {
            true => statuses,
            false => statuses.wrapping_byte_add(at * array.abi.status.bytes),
        };
        let handle = array.get(index);
        let mut flag = 0;
        let outcome = call!(Request_get_status(handle, &raw mut flag, status));
        if outcome != 0 {
            return outcome;
        }
        place = stop(index, handle == array.abi.request_null, flag != 0);
    }
    0
}

fn look_all(count: c_int, requests: Pointer, flag: *mut c_int, statuses: Pointer) -> c_int {
    if host::Request_get_status_all.find().is_some() {
        return call!(Request_get_status_all(count, requests, flag, statuses));
    }
    write_flag(flag, true);
    look_one_by_one((count, requests, statuses), |index, _, is_complete| {
        if !is_complete {
            write_flag(flag, false);
        }
        is_complete.then_some(index + 1)
    })
}

fn look_any(
    count: c_int,
    requests: Pointer,
    (index, flag): (*mut c_int, *mut c_int),
    status: Pointer,
) -> c_int {
    if host::Request_get_status_any.find().is_some() {
        return call!(Request_get_status_any(count, requests, index, flag, status));
    }
    let undefined = abi().map_or(-1, |abi| abi.undefined);
    write_number(index, undefined);
    write_flag(flag, true);
    if let Some(array) = Array::new(1, requests, status) {
        array.write_status(0, true);
    }
    look_one_by_one((count, requests, status), |place, is_null, is_complete| {
        if is_null {
            return Some(0);
        }
        write_number(index, if is_complete { place as c_int } else { undefined });
        write_flag(flag, is_complete);
        (!is_complete).then_some(0)
    })
}

fn look_some(
    count: c_int,
    requests: Pointer,
    (outcount, indices): (*mut c_int, *mut c_int),
    statuses: Pointer,
) -> c_int {
    if host::Request_get_status_some.find().is_some() {
        return call!(Request_get_status_some(count, requests, outcount, indices, statuses));
    }
    let (mut found, mut are_null) = (0, true);
    let outcome = look_one_by_one((count, requests, statuses), |index, is_null, is_complete| {
        are_null &= is_null;
        if is_complete && !is_null {
            // SAFETY: the program passes an index for each request.
            unsafe { *indices.add(found) = index as c_int };
            found += 1;
        }
        Some(found)
    });
    let undefined = abi().map_or(-1, |abi| abi.undefined);
    write_number(outcount, if are_null { undefined } else { found as c_int });
    outcome
}

/// `MPI_Request_free`.
pub(crate) fn request_free(request: Pointer) -> c_int {
    if persistent::free(request) {
        return 0;
    }
    if !concerns_library_alone(1, request)
        && let Some(array) = Array::new(1, request, std::ptr::null_mut())
        && requests::free(array.get(0))
    {
        array.set(0, array.abi.request_null);
        return 0;
    }
    call!(Request_free(request))
}
