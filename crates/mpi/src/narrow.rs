//! Arguments of the functions with the suffix `_c`, for MPI libraries that lack these: a call reaches
//! the function with counts of 32 bits where all its numbers fit. Programs find the names with the
//! suffix in this library, whatever theirs has.

use crate::abi::abi;
use crate::host::{Aint, Count, Handle, Offset, Pointer, Types, call};
use crate::lists::Number;
use crate::topology::degrees;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// An argument of a collective. Those of a buffer follow its address.
pub(crate) trait Argument: Copy {
    /// Type of the argument with counts of 32 bits.
    type Narrow;

    /// The argument with counts of 32 bits.
    fn narrow(self, narrowed: &mut Narrowed) -> Self::Narrow;

    /// The handle of a type or an operation.
    fn handle(self) -> Option<Handle> {
        None
    }
}

macro_rules! unchanged {
    ($($type:ty),*) => {$(
        impl Argument for $type {
            type Narrow = $type;
            fn narrow(self, _narrowed: &mut Narrowed) -> $type {
                self
            }
        }
    )*};
}

// A root, lists of types, and lists that the form with counts of 32 bits has.
unchanged!(c_int, Types, *const Offset, *const c_int);

impl Argument for Handle {
    type Narrow = Handle;

    fn narrow(self, _narrowed: &mut Narrowed) -> Handle {
        self
    }

    fn handle(self) -> Option<Handle> {
        Some(self)
    }
}

impl Argument for Pointer {
    type Narrow = Pointer;

    fn narrow(self, narrowed: &mut Narrowed) -> Pointer {
        narrowed.buffers += 1;
        narrowed.is_in_place = abi().is_some_and(|abi| abi.is_in_place(self));
        self
    }
}

impl Argument for Count {
    type Narrow = c_int;

    fn narrow(self, narrowed: &mut Narrowed) -> c_int {
        let count = c_int::try_from(self);
        // With MPI_IN_PLACE it is any.
        narrowed.fits &= count.is_ok() || narrowed.is_in_place;
        count.unwrap_or(0)
    }
}

macro_rules! lists {
    ($($type:ty),*) => {$(
        impl Argument for *const $type {
            type Narrow = *const c_int;
            fn narrow(self, narrowed: &mut Narrowed) -> *const c_int {
                narrowed.list(self)
            }
        }
    )*};
}

lists!(Count, Aint);

type Lists = Vec<Vec<c_int>>;

/// Lists of active calls, which must live until the calls are complete, by request. A request that
/// the MPI library uses again belongs to another call, so its earlier lists are freed then.
static ACTIVE: Mutex<BTreeMap<Handle, Lists>> = Mutex::new(BTreeMap::new());

/// Facts about the arguments of a call while they become those with counts of 32 bits.
pub(crate) struct Narrowed {
    lists: Lists,
    fits: bool,
    /// Lengths of the lists of the first buffer and of the second one.
    lengths: [usize; 2],
    /// Number of buffers so far.
    buffers: usize,
    /// The last buffer is MPI_IN_PLACE: its numbers are not read.
    is_in_place: bool,
}

impl Narrowed {
    /// No argument yet. `lengths` are those of the lists, by the communicator.
    pub(crate) fn new(communicator: Handle, lengths: impl FnOnce(Handle) -> [usize; 2]) -> Self {
        let lengths = lengths(communicator);
        Narrowed { lists: Vec::new(), fits: true, lengths, buffers: 0, is_in_place: false }
    }

    /// The numbers of a list, or null in place of null.
    fn list<N: Number>(&mut self, numbers: *const N) -> *const c_int {
        if numbers.is_null() || self.is_in_place {
            return ptr::null();
        }
        let length = self.lengths[usize::from(self.buffers > 1)];
        // SAFETY: MPI demands a number for each rank or neighbour.
        let wide = (0..length).map(|index| unsafe { *numbers.add(index) }.wide());
        let narrow: Option<Vec<c_int>> = wide.map(|number| c_int::try_from(number).ok()).collect();
        self.fits &= narrow.is_some();
        let list = narrow.unwrap_or_default();
        let at = list.as_ptr();
        self.lists.push(list);
        at
    }

    /// Calls the MPI library, or `missing` if a number does not fit. Keeps the lists of a call that
    /// writes a request.
    pub(crate) fn call(
        self,
        request: Option<Pointer>,
        missing: impl FnOnce() -> c_int,
        library: impl FnOnce() -> c_int,
    ) -> c_int {
        let request = request.filter(|_| !self.lists.is_empty()).map(|request| (abi(), request));
        let kept = match request {
            _ if !self.fits => return missing(),
            Some((None, _)) => return missing(),
            Some((Some(abi), request)) => Some((abi, request)),
            None => None,
        };
        let outcome = library();
        if let Some((abi, request)) = kept.filter(|_| outcome == 0) {
            // SAFETY: the MPI library has written the handle.
            let handle = unsafe { abi.read(request, 0) };
            ACTIVE.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, self.lists);
        }
        outcome
    }
}

/// No lists.
pub(crate) fn none(_communicator: Handle) -> [usize; 2] {
    [0; 2]
}

/// Lists for the ranks that a rank exchanges data with.
pub(crate) fn ranks(communicator: Handle) -> [usize; 2] {
    let (mut is_inter, mut ranks) = (0, 0);
    call!(Comm_test_inter(communicator, &raw mut is_inter));
    match is_inter {
        0 => call!(Comm_size(communicator, &raw mut ranks)),
        _ => call!(Comm_remote_size(communicator, &raw mut ranks)),
    };
    [ranks.max(0) as usize; 2]
}

/// Lists for these ranks at the root; those of other ranks do not count.
pub(crate) fn ranks_at_root(communicator: Handle, root: c_int) -> [usize; 2] {
    let (mut is_inter, mut rank) = (0, 0);
    call!(Comm_test_inter(communicator, &raw mut is_inter));
    call!(Comm_rank(communicator, &raw mut rank));
    // Between two groups the root passes MPI_ROOT, its group MPI_PROC_NULL, and the others its
    // rank.
    let is_root = match is_inter {
        0 => root == rank,
        _ => root < 0 && abi().is_some_and(|abi| root != abi.proc_null),
    };
    if is_root { ranks(communicator) } else { [0; 2] }
}

/// Lists for the ranks of this rank's group.
pub(crate) fn own_group(communicator: Handle) -> [usize; 2] {
    let mut ranks = 0;
    call!(Comm_size(communicator, &raw mut ranks));
    [ranks.max(0) as usize; 2]
}

/// Lists for the destinations and for the sources.
pub(crate) fn neighbors_of(communicator: Handle) -> [usize; 2] {
    abi().map_or([0; 2], |abi| {
        let [sources, destinations] = degrees(abi, abi.handle(communicator));
        [destinations, sources]
    })
}
