//! The three functions of MPI 4.1 for arrays that leave the requests as they are. Programs find
//! them here even if their MPI library has only the one for a single request.
//!
//! To the MPI library a request of this library is inactive; `completion` handles such requests, and
//! passes null requests in their places. An inactive persistent request of the MPI library counts as
//! complete here, because `MPI_Request_get_status` finds it so.

use crate::abi::abi;
use crate::host::{self, Pointer, call};
use crate::persistent;
use crate::request_array::{Array, write_flag, write_number};
use std::ffi::c_int;

/// Looks at each request in turn while `stop` returns the place of the next status: it receives the
/// index, whether the request is null or an inactive one of this library, and whether it is complete.
fn look_one_by_one(
    (count, requests, statuses): (c_int, Pointer, Pointer),
    mut stop: impl FnMut(usize, bool, bool) -> Option<usize>,
) -> c_int {
    let Some(array) = Array::new(count, requests, statuses) else {
        return host::Request_get_status_all.missing();
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
        let is_none = handle == array.abi.request_null || persistent::is_own(handle);
        place = stop(index, is_none, flag != 0);
    }
    0
}

/// `MPI_Request_get_status_all`.
pub(crate) fn look_all(
    count: c_int,
    requests: Pointer,
    flag: *mut c_int,
    statuses: Pointer,
) -> c_int {
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

/// `MPI_Request_get_status_any`.
pub(crate) fn look_any(
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
    look_one_by_one((count, requests, status), |place, is_none, is_complete| {
        if is_none {
            return Some(0);
        }
        write_number(index, if is_complete { place as c_int } else { undefined });
        write_flag(flag, is_complete);
        (!is_complete).then_some(0)
    })
}

/// `MPI_Request_get_status_some`.
pub(crate) fn look_some(
    count: c_int,
    requests: Pointer,
    (outcount, indices): (*mut c_int, *mut c_int),
    statuses: Pointer,
) -> c_int {
    if host::Request_get_status_some.find().is_some() {
        return call!(Request_get_status_some(count, requests, outcount, indices, statuses));
    }
    let (mut found, mut are_none) = (0, true);
    let outcome = look_one_by_one((count, requests, statuses), |index, is_none, is_complete| {
        are_none &= is_none;
        if is_complete && !is_none {
            // SAFETY: the program passes an index for each request.
            unsafe { *indices.add(found) = index as c_int };
            found += 1;
        }
        Some(found)
    });
    let undefined = abi().map_or(-1, |abi| abi.undefined);
    write_number(outcount, if are_none { undefined } else { found as c_int });
    outcome
}
