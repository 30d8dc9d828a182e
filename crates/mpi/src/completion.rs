//! The completion functions, for arrays in which requests of this library and of the MPI library
//! are mixed.
//!
//! To the MPI library a request of this library is inactive, so it receives an array as it is, and
//! completes its own requests. While a program waits for a request of this library, the MPI
//! library is driven, and while it waits for another one, tradewind is.

use crate::abi::{Abi, abi};
use crate::host::{self, Handle, Pointer, call, pass};
use crate::incomplete::Incomplete;
use crate::persistent;
use crate::private::poke;
use crate::request_array::{Array, Survey, write_empty_status, write_flag, write_number};
use crate::requests::{self, Awaited, Look, Pause, is_idle};
use crate::status_queries::{look_all, look_any, look_some};
use std::ffi::c_int;

/// The array of a call; `None` if the call concerns the MPI library alone, or has wrong arguments, which
/// that library reports.
#[inline]
fn array(count: c_int, requests: Pointer, statuses: Pointer) -> Option<Array> {
    if is_idle() { None } else { array_of_active(count, requests, statuses) }
}

/// As [`array`], while calls of this library are active. The MPI library also calls completion functions
/// itself, with requests of its own, but functions of the program that it calls may complete any request.
fn array_of_active(count: c_int, requests: Pointer, statuses: Pointer) -> Option<Array> {
    let array = Array::new(count, requests, statuses)?;
    (!host::is_inside() || !array.own().is_empty()).then_some(array)
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
        requests::rest(abi, &mut pause, Awaited::new);
    }
}

/// `MPI_Wait`.
pub(crate) fn wait(request: Pointer, status: Pointer) -> c_int {
    let Some(array) = array(1, request, status) else { return pass!(Wait(request, status)) };
    let own = (array.get(0), &array.clock);
    let drive = || {
        poke(array.abi);
        true
    };
    let Some(ended) = requests::wait(array.abi, own, &mut Pause::default(), drive) else {
        return until(array.abi, |flag| call!(Test(request, flag, status)));
    };
    array.write_status(0, false);
    array.ended(0, &ended)
}

/// `MPI_Test`.
pub(crate) fn test(request: Pointer, flag: *mut c_int, status: Pointer) -> c_int {
    let Some(array) = array(1, request, status) else { return pass!(Test(request, flag, status)) };
    match array.look(0) {
        Look::Foreign => {
            requests::make_progress();
            call!(Test(request, flag, status))
        }
        Look::Active => {
            test_in_vain(array.abi);
            write_flag(flag, false);
            0
        }
        Look::Complete(_) => {
            requests::record_success();
            write_flag(flag, true);
            array.write_status(0, false);
            array.end(0)
        }
    }
}

/// The rest of a test that has found requests of this library active.
fn test_in_vain(abi: &Abi) {
    poke(abi);
    requests::record_vain_test();
}

/// `MPI_Waitall`.
pub(crate) fn wait_all(count: c_int, requests: Pointer, statuses: Pointer) -> c_int {
    let Some(array) = array(count, requests, statuses) else {
        return pass!(Waitall(count, requests, statuses));
    };
    // MPICH advances generalized requests, such as those of collectives on files, only in completion
    // functions that receive them. So the MPI library tests the array until its own part of it is
    // complete, also while a request of this library is awaited.
    let mut library = None;
    let test = |flag| call!(Testall(count, requests, flag, statuses));
    let test_once = || {
        let mut flag = 0;
        let outcome = test(&raw mut flag);
        (outcome != 0 || flag != 0).then_some(outcome)
    };
    let (mut own, mut failures) = (0, Vec::new());
    let mut pause = Pause::default();
    for index in 0..array.count {
        let drive = || {
            match library {
                None => library = test_once(),
                Some(_) => poke(array.abi),
            }
            library.is_some()
        };
        let request = (array.get(index), &array.clock);
        let Some(ended) = requests::wait(array.abi, request, &mut pause, drive) else { continue };
        own += 1;
        note(&mut failures, index, array.ended(index, &ended));
    }
    drop(pause);
    // The MPI library's status of a null or an inactive request is that of a complete collective.
    let outcome = match library {
        Some(outcome) => outcome,
        None if own == array.count => {
            (0..array.count).for_each(|index| array.write_status(index, true));
            0
        }
        None if is_idle() => call!(Waitall(count, requests, statuses)),
        None => until(array.abi, test),
    };
    array.outcome(outcome, (&failures, array.count))
}

/// Notes the failure of a request and the place of its status.
fn note(failures: &mut Vec<(usize, c_int)>, place: usize, outcome: c_int) {
    if outcome != 0 {
        failures.push((place, outcome));
    }
}

/// `MPI_Testall`.
pub(crate) fn test_all(
    count: c_int,
    requests: Pointer,
    flag: *mut c_int,
    statuses: Pointer,
) -> c_int {
    let Some(array) = array(count, requests, statuses) else {
        return pass!(Testall(count, requests, flag, statuses));
    };
    let Survey { complete: own, active } = array.survey();
    if active > 0 {
        let outcome = advance_library(&array, (count, flag));
        requests::record_vain_test();
        write_flag(flag, false);
        return outcome;
    }
    if own.is_empty() {
        requests::make_progress();
        return call!(Testall(count, requests, flag, statuses));
    }
    let mut copy = array.without_own();
    let outcome = call!(Testall(count, copy.requests(), flag, statuses));
    array.copy_back(copy);
    // SAFETY: the MPI library has written the flag.
    if outcome != 0 || unsafe { *flag } == 0 {
        return outcome;
    }
    requests::record_success();
    let mut failures = Vec::new();
    for index in own {
        note(&mut failures, index, array.end(index));
    }
    array.outcome(0, (&failures, array.count))
}

/// Lets the MPI library advance its requests of an array in which one of this library is active: it
/// must complete none, but MPICH advances generalized requests only in completion functions that
/// receive them. If one of them fails, the outcome and the statuses are those of `MPI_Testall`.
fn advance_library(array: &Array, (count, flag): (c_int, *mut c_int)) -> c_int {
    let abi = array.abi;
    let mut copy = array.without_own();
    let stand_in = if array.has_others(&mut copy) { Incomplete::new(abi) } else { None };
    let Some(stand_in) = stand_in else {
        poke(abi);
        return 0;
    };
    copy.set_own(abi, 0, stand_in.handle);
    let outcome = call!(Testall(count, copy.requests(), flag, array.statuses));
    array.copy_back(copy);
    outcome
}

/// The part of `MPI_Testany` and its kind that looks once. Returns `None` if no request is
/// complete. `library` receives the requests and the address of a flag.
///
/// `MPI_Request_get_status_any`, which `frees` nothing, receives no request of this library: where
/// the MPI library lacks it, an inactive request passes for a complete one.
fn any(
    array: &Array,
    index: *mut c_int,
    frees: bool,
    library: impl FnOnce(Pointer, *mut c_int) -> c_int,
) -> Option<c_int> {
    let abi = array.abi;
    let mut is_any_active = false;
    for own in 0..array.count {
        match array.look(own) {
            Look::Foreign => {}
            Look::Active => is_any_active = true,
            Look::Complete(_) => {
                write_number(index, own as c_int);
                array.write_status(0, false);
                return Some(if frees { array.end(own) } else { 0 });
            }
        }
    }
    let mut flag = 0;
    let outcome = match frees || !is_any_active {
        true => library(array.requests, &raw mut flag),
        false => library(array.without_own().requests(), &raw mut flag),
    };
    // The flag is also set where all requests that the MPI library has are inactive or null.
    // SAFETY: the MPI library has written the index if the flag is set.
    let has_found = || !is_any_active || unsafe { *index } != abi.undefined;
    if outcome != 0 || (flag != 0 && has_found()) { Some(outcome) } else { None }
}

/// `MPI_Waitany`.
pub(crate) fn wait_any(
    count: c_int,
    requests: Pointer,
    index: *mut c_int,
    status: Pointer,
) -> c_int {
    let Some(array) = array(count, requests, status) else {
        return pass!(Waitany(count, requests, index, status));
    };
    let mut pause = Pause::default();
    loop {
        let library = |requests, flag| call!(Testany(count, requests, index, flag, status));
        if let Some(outcome) = any(&array, index, true, library) {
            return outcome;
        }
        requests::rest(array.abi, &mut pause, || array.own());
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
    let library = |requests, flag| match frees {
        true => pass!(Testany(count, requests, index, flag, status)),
        false => look_any(count, requests, (index, flag), status),
    };
    let Some(array) = array(count, requests, status) else { return library(requests, flag) };
    let found = any(&array, index, frees, library);
    write_flag(flag, found.is_some());
    match found {
        Some(_) => requests::record_success(),
        None => {
            write_number(index, array.abi.undefined);
            requests::make_progress();
            test_in_vain(array.abi);
        }
    }
    found.unwrap_or(0)
}

/// The part of `MPI_Testsome` and its kind that looks once. `library` receives the requests, as in
/// [`any`].
fn some(
    array: &Array,
    (outcount, indices): (*mut c_int, *mut c_int),
    frees: bool,
    library: impl FnOnce(Pointer) -> c_int,
) -> c_int {
    let survey = array.survey();
    let outcome = match frees || !survey.has_own() {
        true => library(array.requests),
        false => library(array.without_own().requests()),
    };
    if !survey.has_own() || outcome != 0 {
        return outcome;
    }
    // SAFETY: the MPI library has written the number.
    let mut found = usize::try_from(unsafe { *outcount }).unwrap_or(0);
    let mut failures = Vec::new();
    for own in survey.complete {
        // SAFETY: the program passes an index for each request.
        unsafe { *indices.add(found) = own as c_int };
        array.write_status(found, true);
        note(&mut failures, found, if frees { array.end(own) } else { 0 });
        found += 1;
    }
    write_number(outcount, found as c_int);
    array.outcome(0, (&failures, found))
}

/// `MPI_Waitsome`.
pub(crate) fn wait_some(
    count: c_int,
    requests: Pointer,
    (outcount, indices): (*mut c_int, *mut c_int),
    statuses: Pointer,
) -> c_int {
    let Some(array) = array(count, requests, statuses) else {
        return pass!(Waitsome(count, requests, outcount, indices, statuses));
    };
    let mut pause = Pause::default();
    loop {
        let library = |requests| call!(Testsome(count, requests, outcount, indices, statuses));
        let outcome = some(&array, (outcount, indices), true, library);
        // SAFETY: the number is written by now. It is MPI_UNDEFINED if no request is active.
        if outcome != 0 || unsafe { *outcount } != 0 {
            return outcome;
        }
        requests::rest(array.abi, &mut pause, || array.own());
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
    let library = |requests| match frees {
        true => pass!(Testsome(count, requests, outcount, indices, statuses)),
        false => look_some(count, requests, (outcount, indices), statuses),
    };
    let Some(array) = array(count, requests, statuses) else { return library(requests) };
    let outcome = some(&array, (outcount, indices), frees, library);
    requests::make_progress();
    // SAFETY: the number is written by now.
    if outcome == 0 && unsafe { *outcount } == 0 {
        test_in_vain(array.abi);
    } else {
        poke(array.abi);
        requests::record_success();
    }
    outcome
}

/// `MPI_Request_get_status`.
pub(crate) fn get_status(passed: Handle, flag: *mut c_int, status: Pointer) -> c_int {
    let leave = || pass!(Request_get_status(passed, flag, status));
    let Some(abi) = abi().filter(|_| !is_idle()) else { return leave() };
    match requests::look(abi, abi.handle(passed)) {
        Look::Foreign => return call!(Request_get_status(passed, flag, status)),
        Look::Active => {
            test_in_vain(abi);
            write_flag(flag, false);
        }
        Look::Complete(_) => {
            write_flag(flag, true);
            write_empty_status(abi, status, false);
        }
    }
    0
}

/// `MPIX_Request_is_complete`.
pub(crate) fn is_complete(passed: Handle) -> c_int {
    let leave = || pass!(Request_is_complete(passed));
    let Some(abi) = abi().filter(|_| !is_idle()) else { return leave() };
    match requests::look(abi, abi.handle(passed)) {
        Look::Foreign => leave(),
        Look::Active => 0,
        Look::Complete(_) => 1,
    }
}

/// `MPI_Request_get_status_all`.
pub(crate) fn get_status_all(
    count: c_int,
    requests: Pointer,
    flag: *mut c_int,
    statuses: Pointer,
) -> c_int {
    let Some(array) = array(count, requests, statuses) else {
        return look_all(count, requests, flag, statuses);
    };
    if array.survey().active > 0 {
        test_in_vain(array.abi);
        write_flag(flag, false);
        return 0;
    }
    let mut copy = array.without_own();
    look_all(count, copy.requests(), flag, statuses)
}

/// `MPI_Request_free`.
pub(crate) fn request_free(request: Pointer) -> c_int {
    if persistent::free(request) {
        return 0;
    }
    if let Some(array) = array(1, request, std::ptr::null_mut())
        && requests::free(array.get(0))
    {
        array.set(0, array.abi.request_null);
        return 0;
    }
    call!(Request_free(request))
}
