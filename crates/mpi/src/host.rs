//! The functions of the MPI library, found at the first call.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A handle by value. MPICH's handles are integers of 32 bits: the upper half is then undefined
/// where a program passes one, and ignored by the library that receives it.
pub(crate) type Handle = isize;
/// A pointer to anything: buffers, handles in memory, statuses.
pub(crate) type Pointer = *mut c_void;
/// A count of the functions with the suffix `_c`.
pub(crate) type Count = i64;
/// An address or a displacement in bytes.
pub(crate) type Aint = isize;

/// Error class `MPI_ERR_INTERN` or its neighbour in every ABI; used where no ABI is known.
const NO_FUNCTION: c_int = 16;

/// A function of the MPI library with the type `F`, a function pointer.
pub(crate) struct Function<F> {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
    kind: PhantomData<F>,
}

// SAFETY: the only state is an atomic pointer to code, which all threads may call.
unsafe impl<F> Sync for Function<F> {}

/// Marks a function that the MPI library does not have.
const ABSENT: *mut c_void = ptr::without_provenance_mut(1);

impl<F: Copy> Function<F> {
    const fn new(name: &'static [u8]) -> Self {
        assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function pointer");
        let Ok(name) = CStr::from_bytes_with_nul(name) else { panic!("it ends with a zero") };
        Function { name, at: AtomicPtr::new(ptr::null_mut()), kind: PhantomData }
    }

    /// Returns the function; `None` if the MPI library does not have it.
    #[inline]
    pub(crate) fn find(&self) -> Option<F> {
        // Relaxed: the pointer leads to code and constant data, which the loader has published.
        let mut at = self.at.load(Ordering::Relaxed);
        if at.is_null() {
            at = self.look_up();
        }
        // SAFETY: `new` has checked that F has the size of a pointer; the pointer leads to the
        // function of this name, of the type that the table below states.
        (at != ABSENT).then(|| unsafe { std::mem::transmute_copy(&at) })
    }

    /// Returns the function if a call has looked it up and the MPI library has it.
    #[inline(always)]
    pub(crate) fn known(&self) -> Option<F> {
        // Relaxed, as in `find`.
        let at = self.at.load(Ordering::Relaxed);
        // SAFETY: as in `find`; null lies below the mark, too.
        (at > ABSENT).then(|| unsafe { std::mem::transmute_copy(&at) })
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        let found = function(self.name);
        if found.is_null() && !is_loaded() {
            // The program may load an MPI library later.
            return ABSENT;
        }
        let at = if found.is_null() { ABSENT } else { found };
        self.at.store(at, Ordering::Relaxed);
        at
    }
}

/// Returns whether the process has an MPI library by now.
pub(crate) fn is_loaded() -> bool {
    !function(c"PMPI_Init").is_null()
}

/// Returns the next definition of a function after this library's own, or null.
fn function(name: &CStr) -> *mut c_void {
    let next = next_function(name);
    if next.is_null() { in_libraries(name) } else { next }
}

/// Returns the next definition of a function in the libraries that were loaded at the start, or null.
pub(crate) fn next_function(name: &CStr) -> *mut c_void {
    // SAFETY: the name is terminated. RTLD_NEXT searches the libraries behind this one, so the
    // functions of this library are not found.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Returns the address of a data symbol, or null. An executable may hold a copy of a library's
/// variable, so the search begins with the executable.
pub(crate) fn variable(name: &CStr) -> *mut c_void {
    // SAFETY: the name is terminated.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if first.is_null() { in_libraries(name) } else { first }
}

/// Searches the MPI libraries themselves. Python loads them outside the scope that RTLD_NEXT
/// searches.
fn in_libraries(name: &CStr) -> *mut c_void {
    let libraries = libraries();
    let found = libraries.iter().map(|library| {
        // SAFETY: the library stays loaded, because `libraries` holds a reference to it.
        unsafe { libc::dlsym(ptr::without_provenance_mut(*library), name.as_ptr()) }
    });
    found.into_iter().find(|at| !at.is_null()).unwrap_or(ptr::null_mut())
}

/// The loaded libraries with the name of an MPI library, as handles of `dlopen`.
fn libraries() -> Vec<usize> {
    static LIBRARIES: OnceLock<Vec<usize>> = OnceLock::new();
    if let Some(known) = LIBRARIES.get() {
        return known.clone();
    }
    let mut found = Vec::new();
    // SAFETY: `note` receives the pointer to `found`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast()) };
    // A later library may be the first one of MPI, so an empty list is not kept.
    if found.is_empty() { found } else { LIBRARIES.get_or_init(|| found).clone() }
}

unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _size: usize, found: Pointer) -> c_int {
    // SAFETY: the loader passes a valid description.
    let name = unsafe { (*info).dlpi_name };
    // SAFETY: the list of `libraries`, to which nothing else refers during its call.
    let found = unsafe { &mut *found.cast::<Vec<usize>>() };
    if name.is_null() {
        return 0;
    }
    // SAFETY: the loader's names are terminated.
    let path = unsafe { CStr::from_ptr(name) }.to_bytes();
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    if file.starts_with(b"libmpi") || file.starts_with(b"libpmpi") {
        // SAFETY: with RTLD_NOLOAD the call only takes a reference to a loaded library.
        let library = unsafe { libc::dlopen(name, libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        if !library.is_null() {
            found.push(library.addr());
        }
    }
    0
}

/// The values of a thread that every call reads. They are one thread-local variable, because each
/// access to such a variable calls the loader, which takes a third of the time of the shortest
/// collectives.
#[derive(Debug)]
pub(crate) struct Thread {
    /// Calls of the MPI library that this thread is inside.
    depth: Cell<u32>,
    /// The last communicator that was looked up, what `communicators` has found for it, and the
    /// number of changes at that time.
    pub(crate) remembered: Cell<(Handle, *const c_void, u64)>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            depth: Cell::new(0),
            remembered: Cell::new((0, ptr::null(), 0)),
        }
    };
}

/// Calls a function with the values of this thread.
#[inline]
pub(crate) fn with_thread<T>(call: impl FnOnce(&Thread) -> T) -> T {
    // The compiler does not always inline `with`, and would then store what `call` refers to.
    let thread = THREAD.with(ptr::from_ref);
    // SAFETY: a variable without a destructor lasts as long as its thread, which is this one.
    call(unsafe { &*thread })
}

impl Thread {
    /// Returns whether this thread is inside the MPI library. Its own calls of MPI functions reach
    /// this library too, and pass through.
    #[inline]
    pub(crate) fn is_inside(&self) -> bool {
        self.depth.get() > 0
    }

    /// Marks this thread as inside the MPI library.
    #[inline]
    pub(crate) fn enter(&self) -> Inside {
        self.depth.set(self.depth.get() + 1);
        Inside(self)
    }
}

/// Returns whether this thread is inside the MPI library.
#[inline]
pub(crate) fn is_inside() -> bool {
    with_thread(Thread::is_inside)
}

/// Ends all marks of this thread, which leaves the MPI library by a jump.
pub(crate) fn leave_all() {
    with_thread(|thread| thread.depth.set(0));
}

/// The mark of a thread that is inside the MPI library.
pub(crate) struct Inside(*const Thread);

impl Inside {
    #[inline]
    pub(crate) fn enter() -> Self {
        with_thread(Thread::enter)
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the mark stays on its thread, because a pointer is not sent to others. The values
        // of a thread have no destructor, so they last as long as the thread.
        let depth = unsafe { &(*self.0).depth };
        // A function of the program may have jumped past other marks, inside the MPI library.
        depth.set(depth.get().saturating_sub(1));
    }
}

/// Calls a function of the MPI library by its name without `MPI_`. An exception of a C++ program,
/// thrown by a function of the program that the library calls, passes through and ends the mark. The arguments must be those
/// that the program has passed, or valid for the function as the MPI standard demands.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        match $crate::host::$name.find() {
            Some(function) => {
                let _inside = $crate::host::Inside::enter();
                // SAFETY: the arguments fulfil what the MPI standard demands of a caller, see
                // above.
                #[allow(unused_unsafe)]
                unsafe { function($($argument),*) }
            }
            None => $crate::host::missing(stringify!($name)),
        }
    };
}
pub(crate) use call;

/// As [`call`], without the mark, which costs some nanoseconds: for callers that have set it, and
/// for functions that pass through anyway if a call from inside the MPI library reaches this
/// library.
macro_rules! pass {
    ($name:ident($($argument:expr),* $(,)?)) => {
        match $crate::host::$name.find() {
            // SAFETY: the arguments fulfil what the MPI standard demands of a caller.
            #[allow(unused_unsafe)]
            Some(function) => unsafe { function($($argument),*) },
            None => $crate::host::missing(stringify!($name)),
        }
    };
}
pub(crate) use pass;

/// Result of a call that the MPI library does not have.
#[cold]
pub(crate) fn missing(name: &str) -> c_int {
    log::error!("the MPI library of this program has no MPI_{name}");
    NO_FUNCTION
}

macro_rules! functions {
    ($($name:ident($($type:ty),* $(,)?);)*) => {$(
        pub(crate) static $name: Function<unsafe extern "C-unwind" fn($($type),*) -> c_int> =
            Function::new(concat!("PMPI_", stringify!($name), "\0").as_bytes());
    )*};
}

#[allow(non_upper_case_globals, reason = "the names of the MPI standard")]
mod table {
    use super::{Aint, Count, Function, Handle, Pointer, c_char, c_int};

    functions! {
        Init(*mut c_int, Pointer);
        Init_thread(*mut c_int, Pointer, c_int, *mut c_int);
        Finalize();
        Get_library_version(*mut c_char, *mut c_int);
        Abi_get_version(*mut c_int, *mut c_int);

        Comm_size(Handle, *mut c_int);
        Comm_rank(Handle, *mut c_int);
        Comm_group(Handle, Pointer);
        Comm_test_inter(Handle, *mut c_int);
        Comm_remote_size(Handle, *mut c_int);
        Comm_dup(Handle, Pointer);
        Comm_idup(Handle, Pointer, Pointer);
        Comm_dup_with_info(Handle, Handle, Pointer);
        Comm_split(Handle, c_int, c_int, Pointer);
        Comm_split_type(Handle, c_int, c_int, Handle, Pointer);
        Comm_create(Handle, Handle, Pointer);
        Comm_free(Pointer);
        File_open(Handle, Pointer, c_int, Handle, Pointer);
        Cart_create(Handle, c_int, *const c_int, *const c_int, c_int, Pointer);
        Cart_sub(Handle, *const c_int, Pointer);
        Cart_get(Handle, c_int, *mut c_int, *mut c_int, *mut c_int);
        Cartdim_get(Handle, *mut c_int);
        Graph_create(Handle, c_int, *const c_int, *const c_int, c_int, Pointer);
        Graph_neighbors(Handle, c_int, c_int, *mut c_int);
        Graph_neighbors_count(Handle, c_int, *mut c_int);
        Dist_graph_create(
            Handle, c_int, *const c_int, *const c_int, *const c_int, *const c_int, Handle, c_int, Pointer,
        );
        Dist_graph_create_adjacent(
            Handle, c_int, *const c_int, *const c_int, c_int, *const c_int, *const c_int, Handle, c_int,
            Pointer,
        );
        Dist_graph_neighbors(Handle, c_int, *mut c_int, *mut c_int, c_int, *mut c_int, *mut c_int);
        Dist_graph_neighbors_count(Handle, *mut c_int, *mut c_int, *mut c_int);
        Topo_test(Handle, *mut c_int);
        Group_translate_ranks(Handle, c_int, *const c_int, Handle, *mut c_int);
        Group_free(Pointer);
        Comm_create_keyval(Pointer, Pointer, *mut c_int, Pointer);
        Comm_free_keyval(*mut c_int);
        Comm_set_attr(Handle, c_int, Pointer);
        Comm_get_attr(Handle, c_int, Pointer, *mut c_int);
        Comm_delete_attr(Handle, c_int);
        Comm_call_errhandler(Handle, c_int);
        Comm_get_errhandler(Handle, Pointer);
        Comm_set_errhandler(Handle, Handle);
        Errhandler_free(Pointer);
        Error_class(c_int, *mut c_int);
        Comm_get_parent(Pointer);
        Publish_name(*const c_char, Handle, *const c_char);
        Unpublish_name(*const c_char, Handle, *const c_char);
        Lookup_name(*const c_char, Handle, *mut c_char);

        Type_size(Handle, *mut c_int);
        Type_get_extent(Handle, *mut Aint, *mut Aint);
        Type_get_true_extent(Handle, *mut Aint, *mut Aint);
        Type_commit(Pointer);
        Type_free(Pointer);
        Type_create_hindexed(c_int, *const c_int, *const Aint, Handle, Pointer);
        Pack(Pointer, c_int, Handle, Pointer, c_int, *mut c_int, Handle);
        Unpack(Pointer, c_int, *mut c_int, Pointer, c_int, Handle, Handle);
        Reduce_local(Pointer, Pointer, c_int, Handle, Handle);
        Op_free(Pointer);

        Iprobe(c_int, c_int, Handle, *mut c_int, Pointer);
        Recv_init(Pointer, c_int, Handle, c_int, c_int, Handle, Pointer);
        Grequest_start(Pointer, Pointer, Pointer, Pointer, Pointer);
        Grequest_complete(Handle);
        Request_free(Pointer);
        Start(Pointer);
        Startall(c_int, Pointer);
        Wait(Pointer, Pointer);
        Test(Pointer, *mut c_int, Pointer);
        Waitall(c_int, Pointer, Pointer);
        Testall(c_int, Pointer, *mut c_int, Pointer);
        Waitany(c_int, Pointer, *mut c_int, Pointer);
        Testany(c_int, Pointer, *mut c_int, *mut c_int, Pointer);
        Waitsome(c_int, Pointer, *mut c_int, *mut c_int, Pointer);
        Testsome(c_int, Pointer, *mut c_int, *mut c_int, Pointer);
        Request_get_status(Handle, *mut c_int, Pointer);
        Request_get_status_all(c_int, Pointer, *mut c_int, Pointer);
        Request_get_status_any(c_int, Pointer, *mut c_int, *mut c_int, Pointer);
        Request_get_status_some(c_int, Pointer, *mut c_int, *mut c_int, Pointer);
    }

    macro_rules! collectives {
        ($($blocking:ident $blocking_large:ident $name:ident $large:ident
            $init:ident $init_large:ident($($type:ty),* $(,)?);)*) => {
            mod int {
                use super::*;
                type N = c_int;
                type D = c_int;
                functions! {
                    $($blocking($($type,)* Handle);)*
                    $($name($($type,)* Handle, Pointer);)*
                    $($init($($type,)* Handle, Handle, Pointer);)*
                }
            }
            mod large {
                use super::*;
                type N = Count;
                type D = Aint;
                functions! {
                    $($blocking_large($($type,)* Handle);)*
                    $($large($($type,)* Handle, Pointer);)*
                    $($init_large($($type,)* Handle, Handle, Pointer);)*
                }
            }
            pub(crate) use int::*;
            pub(crate) use large::*;
        };
    }

    // N is the type of counts, D that of displacements. The communicator follows, then in the
    // nonblocking forms the request, and in the persistent ones the info and the request.
    collectives! {
        Bcast Bcast_c Ibcast Ibcast_c Bcast_init Bcast_init_c(Pointer, N, Handle, c_int);
        Gather Gather_c Igather Igather_c Gather_init Gather_init_c(Pointer, N, Handle, Pointer, N, Handle, c_int);
        Gatherv Gatherv_c Igatherv Igatherv_c Gatherv_init Gatherv_init_c(Pointer, N, Handle, Pointer, *const N, *const D, Handle, c_int);
        Scatter Scatter_c Iscatter Iscatter_c Scatter_init Scatter_init_c(Pointer, N, Handle, Pointer, N, Handle, c_int);
        Scatterv Scatterv_c Iscatterv Iscatterv_c Scatterv_init Scatterv_init_c(Pointer, *const N, *const D, Handle, Pointer, N, Handle, c_int);
        Allgather Allgather_c Iallgather Iallgather_c Allgather_init Allgather_init_c(Pointer, N, Handle, Pointer, N, Handle);
        Allgatherv Allgatherv_c Iallgatherv Iallgatherv_c Allgatherv_init Allgatherv_init_c(Pointer, N, Handle, Pointer, *const N, *const D, Handle);
        Alltoall Alltoall_c Ialltoall Ialltoall_c Alltoall_init Alltoall_init_c(Pointer, N, Handle, Pointer, N, Handle);
        Alltoallv Alltoallv_c Ialltoallv Ialltoallv_c Alltoallv_init Alltoallv_init_c(Pointer, *const N, *const D, Handle, Pointer, *const N, *const D, Handle);
        Alltoallw Alltoallw_c Ialltoallw Ialltoallw_c Alltoallw_init Alltoallw_init_c(Pointer, *const N, *const D, Pointer, Pointer, *const N, *const D, Pointer);
        Reduce Reduce_c Ireduce Ireduce_c Reduce_init Reduce_init_c(Pointer, Pointer, N, Handle, Handle, c_int);
        Allreduce Allreduce_c Iallreduce Iallreduce_c Allreduce_init Allreduce_init_c(Pointer, Pointer, N, Handle, Handle);
        Reduce_scatter Reduce_scatter_c Ireduce_scatter Ireduce_scatter_c Reduce_scatter_init Reduce_scatter_init_c(Pointer, Pointer, *const N, Handle, Handle);
        Reduce_scatter_block Reduce_scatter_block_c Ireduce_scatter_block Ireduce_scatter_block_c Reduce_scatter_block_init Reduce_scatter_block_init_c(Pointer, Pointer, N, Handle, Handle);
        Scan Scan_c Iscan Iscan_c Scan_init Scan_init_c(Pointer, Pointer, N, Handle, Handle);
        Exscan Exscan_c Iexscan Iexscan_c Exscan_init Exscan_init_c(Pointer, Pointer, N, Handle, Handle);
        Neighbor_allgather Neighbor_allgather_c Ineighbor_allgather Ineighbor_allgather_c Neighbor_allgather_init Neighbor_allgather_init_c(Pointer, N, Handle, Pointer, N, Handle);
        Neighbor_allgatherv Neighbor_allgatherv_c Ineighbor_allgatherv Ineighbor_allgatherv_c Neighbor_allgatherv_init Neighbor_allgatherv_init_c(Pointer, N, Handle, Pointer, *const N, *const D, Handle);
        Neighbor_alltoall Neighbor_alltoall_c Ineighbor_alltoall Ineighbor_alltoall_c Neighbor_alltoall_init Neighbor_alltoall_init_c(Pointer, N, Handle, Pointer, N, Handle);
        Neighbor_alltoallv Neighbor_alltoallv_c Ineighbor_alltoallv Ineighbor_alltoallv_c Neighbor_alltoallv_init Neighbor_alltoallv_init_c(Pointer, *const N, *const D, Handle, Pointer, *const N, *const D, Handle);
        Neighbor_alltoallw Neighbor_alltoallw_c Ineighbor_alltoallw Ineighbor_alltoallw_c Neighbor_alltoallw_init Neighbor_alltoallw_init_c(Pointer, *const N, *const Aint, Pointer, Pointer, *const N, *const Aint, Pointer);
    }

    macro_rules! extensions {
        ($($name:ident($($type:ty),*);)*) => {$(
            pub(crate) static $name: Function<unsafe extern "C-unwind" fn($($type),*) -> c_int> =
                Function::new(concat!("PMPIX_", stringify!($name), "\0").as_bytes());
        )*};
    }

    extensions! {
        // Of MPICH.
        Request_is_complete(Handle);
        // Of the libraries that go on after the failure of a process.
        Comm_is_revoked(Handle, *mut c_int);
        Comm_revoke(Handle);
        Comm_shrink(Handle, Pointer);
        Comm_agree(Handle, *mut c_int);
        Comm_iagree(Handle, *mut c_int, Pointer);
    }

    functions! {
        Barrier(Handle);
        Ibarrier(Handle, Pointer);
        Barrier_init(Handle, Handle, Pointer);
    }
}
pub(crate) use table::*;
