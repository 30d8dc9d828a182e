//! Functions with the suffix `_c` for MPI libraries that lack them: lists of counts of 64 bits
//! become lists of 32 bits where the counts fit. Programs find these functions in this library,
//! whatever theirs has.
#![allow(non_snake_case, reason = "the names of the MPI standard")]

use crate::abi::abi;
use crate::host::{self, Aint, Count, Handle, Pointer, call};
use crate::lists::Number;
use crate::topology::degrees;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, PoisonError};

type Lists = Vec<Vec<c_int>>;

/// The form of a collective.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Blocking,
    Nonblocking,
    /// Persistent, with these hints.
    Persistent(Handle),
}

/// Calls a collective of the MPI library in one of its forms, unless a number does not fit.
macro_rules! call_narrow {
    ($narrow:ident, ($request:ident, $form:ident),
        $blocking:ident $nonblocking:ident $persistent:ident($($argument:expr),*)) => {
        match $form {
            Form::Blocking => $narrow.call_now(stringify!($blocking), || {
                call!($blocking($($argument),*))
            }),
            Form::Nonblocking => $narrow.call(stringify!($nonblocking), $request, || {
                call!($nonblocking($($argument,)* $request))
            }),
            Form::Persistent(info) => $narrow.call(stringify!($persistent), $request, || {
                call!($persistent($($argument,)* info, $request))
            }),
        }
    };
}

/// Lists of active calls, which must live until the calls are complete, by request. A request that
/// the MPI library uses again belongs to another call, so its earlier lists are freed then.
static ACTIVE: Mutex<BTreeMap<Handle, Lists>> = Mutex::new(BTreeMap::new());

/// The lists of one call.
struct Narrowed {
    lists: Lists,
    fits: bool,
}

impl Narrowed {
    fn new() -> Self {
        Narrowed { lists: Vec::new(), fits: true }
    }

    /// The first `length` numbers of a list, or null in place of null.
    fn list<N: Number>(&mut self, numbers: *const N, length: usize) -> *const c_int {
        if numbers.is_null() {
            return ptr::null();
        }
        // SAFETY: MPI demands a number for each rank or neighbour.
        let wide = (0..length).map(|index| unsafe { *numbers.add(index) }.wide());
        let narrow: Option<Vec<c_int>> = wide.map(|number| c_int::try_from(number).ok()).collect();
        self.fits &= narrow.is_some();
        let list = narrow.unwrap_or_default();
        let at = list.as_ptr();
        self.lists.push(list);
        at
    }

    fn count(&mut self, count: Count) -> c_int {
        self.fits &= c_int::try_from(count).is_ok();
        count as c_int
    }

    /// As [`list`](Self::list), for a list of this buffer: with MPI_IN_PLACE it is not read.
    fn list_of<N: Number>(
        &mut self,
        buffer: Pointer,
        numbers: *const N,
        length: usize,
    ) -> *const c_int {
        if is_in_place(buffer) { ptr::null() } else { self.list(numbers, length) }
    }

    /// As [`count`](Self::count), for the count of this buffer: with MPI_IN_PLACE it is any.
    fn count_of(&mut self, buffer: Pointer, count: Count) -> c_int {
        if is_in_place(buffer) { 0 } else { self.count(count) }
    }

    /// Calls the MPI library, unless a number does not fit.
    fn call_now(self, name: &str, library: impl FnOnce() -> c_int) -> c_int {
        if self.fits { library() } else { host::missing(&format!("{name}_c")) }
    }

    /// Calls the MPI library, unless a number does not fit, and keeps the lists.
    fn call(self, name: &str, request: Pointer, library: impl FnOnce() -> c_int) -> c_int {
        let Some(abi) = abi().filter(|_| self.fits) else {
            return host::missing(&format!("{name}_c"));
        };
        let outcome = library();
        if outcome == 0 {
            // SAFETY: the MPI library has written the handle.
            let handle = unsafe { abi.read(request, 0) };
            ACTIVE.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, self.lists);
        }
        outcome
    }
}

fn is_in_place(buffer: Pointer) -> bool {
    abi().is_some_and(|abi| abi.is_in_place(buffer))
}

/// Number of ranks that a rank exchanges data with.
fn ranks(communicator: Handle) -> usize {
    let mut is_inter = 0;
    let mut ranks = 0;
    call!(Comm_test_inter(communicator, &raw mut is_inter));
    match is_inter {
        0 => call!(Comm_size(communicator, &raw mut ranks)),
        _ => call!(Comm_remote_size(communicator, &raw mut ranks)),
    };
    ranks.max(0) as usize
}

/// Number of ranks if this one is the root, because only the root's lists count; none otherwise.
fn ranks_at_root(communicator: Handle, root: c_int) -> usize {
    let mut is_inter = 0;
    let mut rank = 0;
    call!(Comm_test_inter(communicator, &raw mut is_inter));
    call!(Comm_rank(communicator, &raw mut rank));
    // Between two groups the root passes MPI_ROOT, its group MPI_PROC_NULL, and the others its
    // rank.
    let is_root = match is_inter {
        0 => root == rank,
        _ => root < 0 && abi().is_some_and(|abi| root != abi.proc_null),
    };
    if is_root { ranks(communicator) } else { 0 }
}

/// Numbers of sources and destinations.
fn neighbors(communicator: Handle) -> (usize, usize) {
    abi().map_or((0, 0), |abi| degrees(abi, abi.handle(communicator)))
}

pub(crate) fn Igatherv(
    (send, sent, send_type): (Pointer, Count, Handle),
    (receive, counts, displacements, receive_type): (Pointer, *const Count, *const Aint, Handle),
    (root, communicator): (c_int, Handle),
    (request, form): (Pointer, Form),
) -> c_int {
    let mut narrow = Narrowed::new();
    let ranks = ranks_at_root(communicator, root);
    let n = narrow.count_of(send, sent);
    let c = narrow.list(counts, ranks);
    let d = narrow.list(displacements, ranks);
    call_narrow!(narrow, (request, form), Gatherv Igatherv Gatherv_init(send, n, send_type, receive, c, d, receive_type, root, communicator))
}

pub(crate) fn Iscatterv(
    (send, counts, displacements, send_type): (Pointer, *const Count, *const Aint, Handle),
    (receive, received, receive_type): (Pointer, Count, Handle),
    (root, communicator): (c_int, Handle),
    (request, form): (Pointer, Form),
) -> c_int {
    let mut narrow = Narrowed::new();
    let ranks = ranks_at_root(communicator, root);
    let n = narrow.count_of(receive, received);
    let c = narrow.list(counts, ranks);
    let d = narrow.list(displacements, ranks);
    call_narrow!(narrow, (request, form), Scatterv Iscatterv Scatterv_init(send, c, d, send_type, receive, n, receive_type, root, communicator))
}

pub(crate) fn Iallgatherv(
    (send, sent, send_type): (Pointer, Count, Handle),
    (receive, counts, displacements, receive_type): (Pointer, *const Count, *const Aint, Handle),
    communicator: Handle,
    (request, form): (Pointer, Form),
) -> c_int {
    let mut narrow = Narrowed::new();
    let ranks = ranks(communicator);
    let n = narrow.count_of(send, sent);
    let c = narrow.list(counts, ranks);
    let d = narrow.list(displacements, ranks);
    call_narrow!(narrow, (request, form), Allgatherv Iallgatherv Allgatherv_init(send, n, send_type, receive, c, d, receive_type, communicator))
}

pub(crate) fn Ialltoallv(
    (send, sent, send_at, send_type): (Pointer, *const Count, *const Aint, Handle),
    (receive, received, receive_at, receive_type): (Pointer, *const Count, *const Aint, Handle),
    communicator: Handle,
    (request, form): (Pointer, Form),
) -> c_int {
    let mut narrow = Narrowed::new();
    let ranks = ranks(communicator);
    let s = narrow.list_of(send, sent, ranks);
    let sd = narrow.list_of(send, send_at, ranks);
    let r = narrow.list(received, ranks);
    let rd = narrow.list(receive_at, ranks);
    call_narrow!(narrow, (request, form), Alltoallv Ialltoallv Alltoallv_init(send, s, sd, send_type, receive, r, rd, receive_type, communicator))
}

pub(crate) fn Ialltoallw(
    (send, sent, send_at, send_types): (Pointer, *const Count, *const Aint, Pointer),
    (receive, received, receive_at, receive_types): (Pointer, *const Count, *const Aint, Pointer),
    communicator: Handle,
    (request, form): (Pointer, Form),
) -> c_int {
    let mut narrow = Narrowed::new();
    let ranks = ranks(communicator);
    let s = narrow.list_of(send, sent, ranks);
    let sd = narrow.list_of(send, send_at, ranks);
    let r = narrow.list(received, ranks);
    let rd = narrow.list(receive_at, ranks);
    call_narrow!(narrow, (request, form), Alltoallw Ialltoallw Alltoallw_init(send, s, sd, send_types, receive, r, rd, receive_types, communicator))
}

pub(crate) fn Ireduce_scatter(
    (send, receive): (Pointer, Pointer),
    counts: *const Count,
    (datatype, operation): (Handle, Handle),
    communicator: Handle,
    (request, form): (Pointer, Form),
) -> c_int {
    let mut narrow = Narrowed::new();
    let mut ranks = 0;
    call!(Comm_size(communicator, &raw mut ranks));
    let c = narrow.list(counts, ranks.max(0) as usize);
    call_narrow!(narrow, (request, form), Reduce_scatter Ireduce_scatter Reduce_scatter_init(send, receive, c, datatype, operation, communicator))
}

pub(crate) fn Ineighbor_allgatherv(
    (send, sent, send_type): (Pointer, Count, Handle),
    (receive, counts, displacements, receive_type): (Pointer, *const Count, *const Aint, Handle),
    communicator: Handle,
    (request, form): (Pointer, Form),
) -> c_int {
    let mut narrow = Narrowed::new();
    let (sources, _) = neighbors(communicator);
    let n = narrow.count(sent);
    let c = narrow.list(counts, sources);
    let d = narrow.list(displacements, sources);
    call_narrow!(narrow, (request, form), Neighbor_allgatherv Ineighbor_allgatherv Neighbor_allgatherv_init(send, n, send_type, receive, c, d, receive_type, communicator))
}

pub(crate) fn Ineighbor_alltoallv(
    (send, sent, send_at, send_type): (Pointer, *const Count, *const Aint, Handle),
    (receive, received, receive_at, receive_type): (Pointer, *const Count, *const Aint, Handle),
    communicator: Handle,
    (request, form): (Pointer, Form),
) -> c_int {
    let mut narrow = Narrowed::new();
    let (sources, destinations) = neighbors(communicator);
    let s = narrow.list(sent, destinations);
    let sd = narrow.list(send_at, destinations);
    let r = narrow.list(received, sources);
    let rd = narrow.list(receive_at, sources);
    call_narrow!(narrow, (request, form), Neighbor_alltoallv Ineighbor_alltoallv Neighbor_alltoallv_init(send, s, sd, send_type, receive, r, rd, receive_type, communicator))
}

pub(crate) fn Ineighbor_alltoallw(
    (send, sent, send_at, send_types): (Pointer, *const Count, *const Aint, Pointer),
    (receive, received, receive_at, receive_types): (Pointer, *const Count, *const Aint, Pointer),
    communicator: Handle,
    (request, form): (Pointer, Form),
) -> c_int {
    let mut narrow = Narrowed::new();
    let (sources, destinations) = neighbors(communicator);
    let s = narrow.list(sent, destinations);
    let r = narrow.list(received, sources);
    call_narrow!(narrow, (request, form), Neighbor_alltoallw Ineighbor_alltoallw Neighbor_alltoallw_init(send, s, send_at, send_types, receive, r, receive_at, receive_types, communicator))
}
