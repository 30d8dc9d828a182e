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
/// A list of types, with elements as large as the handles of the ABI.
pub(crate) type Types = *const c_void;

/// A displacement in bytes that is as large in the functions without the suffix `_c`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Offset(pub(crate) Aint);

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

    /// Result of a call if the MPI library does not have the function.
    #[cold]
    pub(crate) fn missing(&self) -> c_int {
        let name = self.name.to_string_lossy();
        let name = name.trim_start_matches('P');
        log::error!("the MPI library of this program has no {name}");
        NO_FUNCTION
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

/// Calls a function of the MPI library by its name without `MPI_`, or a collective by the path to its
/// form. An exception of a C++ program, thrown by a function of the program that the library calls,
/// passes through and ends the mark. The arguments must be those that the program has passed, or valid
/// for the function as the MPI standard demands.
macro_rules! call {
    ($($name:ident)::+($($argument:expr),* $(,)?)) => {
        match $crate::host::$($name)::+.find() {
            Some(function) => {
                let _inside = $crate::host::Inside::enter();
                // SAFETY: the arguments fulfil what the MPI standard demands of a caller, see
                // above.
                #[allow(unused_unsafe)]
                unsafe { function($($argument),*) }
            }
            None => $crate::host::$($name)::+.missing(),
        }
    };
}
pub(crate) use call;

/// As [`call`], without the mark, which costs some nanoseconds: for callers that have set it, and
/// for functions that pass through anyway if a call from inside the MPI library reaches this
/// library.
macro_rules! pass {
    ($($name:ident)::+($($argument:expr),* $(,)?)) => {
        match $crate::host::$($name)::+.find() {
            // SAFETY: the arguments fulfil what the MPI standard demands of a caller.
            #[allow(unused_unsafe)]
            Some(function) => unsafe { function($($argument),*) },
            None => $crate::host::$($name)::+.missing(),
        }
    };
}
pub(crate) use pass;

/// Defines functions of the MPI library; their names begin with these letters.
macro_rules! functions {
    ($begin:literal: $($name:ident($($type:ty),* $(,)?);)*) => {$(
        pub(crate) static $name: Function<unsafe extern "C-unwind" fn($($type),*) -> c_int> =
            Function::new(concat!($begin, stringify!($name), "\0").as_bytes());
    )*};
}

/// Defines the functions that this library replaces.
macro_rules! replaced {
    ({ $($name:ident($($argument:ident: $type:ty),*) $body:expr;)* }
        { $($creator:ident($($between:ident: $between_type:ty),*);)* }) => {
        functions! { "PMPI_":
            $($name($($type),*);)*
            $($creator(Handle, $($between_type,)* Pointer);)*
        }
    };
}

/// Defines the collectives, a module for each with one for each type of counts.
macro_rules! collectives {
    ($($Name:ident $name:ident $lengths:ident $decisive:tt $arguments:tt $(lists $lists:expr,)?
        |$call:ident| $start:expr;)*) => {$(
        pub(crate) mod $name {
            forms! { int c_int, c_int, "": $Name $name $arguments }
            $(forms! { large Count, Aint, "_c": $Name $name $arguments $lists })?
        }
    )*};
}

/// Defines the forms of a collective with these types of counts and displacements.
macro_rules! forms {
    ($width:ident $N:ty, $D:ty, $suffix:literal: $Name:ident $name:ident
        ($($argument:ident: $type:ty),*) $($lists:expr)?) => {
        pub(crate) mod $width {
            use $crate::host::*;
            #[allow(dead_code, reason = "some collectives have no counts, or no displacements")]
            type N = $N;
            #[allow(dead_code, reason = "as above")]
            type D = $D;

            pub(crate) static blocking: Function<
                unsafe extern "C-unwind" fn($($type,)* Handle) -> c_int,
            > = Function::new(concat!("PMPI_", stringify!($Name), $suffix, "\0").as_bytes());
            pub(crate) static nonblocking: Function<
                unsafe extern "C-unwind" fn($($type,)* Handle, Pointer) -> c_int,
            > = Function::new(concat!("PMPI_I", stringify!($name), $suffix, "\0").as_bytes());
            pub(crate) static persistent: Function<
                unsafe extern "C-unwind" fn($($type,)* Handle, Handle, Pointer) -> c_int,
            > = Function::new(concat!("PMPI_", stringify!($Name), "_init", $suffix, "\0").as_bytes());
        }
    };
}

#[allow(non_upper_case_globals, reason = "the names of the MPI standard, and those of forms")]
mod table {
    use super::{Aint, Function, Handle, Pointer, c_char, c_int};
    use crate::signatures::{with_collectives, with_functions};

    with_functions! { replaced }

    // The communicator follows the arguments, then in the nonblocking forms the request, and in the
    // persistent ones the info and the request.
    with_collectives! { collectives }

    functions! { "PMPI_":
        Get_library_version(*mut c_char, *mut c_int);
        Abi_get_version(*mut c_int, *mut c_int);

        Comm_size(Handle, *mut c_int);
        Comm_rank(Handle, *mut c_int);
        Comm_group(Handle, Pointer);
        Comm_test_inter(Handle, *mut c_int);
        Comm_remote_size(Handle, *mut c_int);
        Comm_idup(Handle, Pointer, Pointer);
        Comm_free(Pointer);
        Cart_get(Handle, c_int, *mut c_int, *mut c_int, *mut c_int);
        Cartdim_get(Handle, *mut c_int);
        Graph_neighbors(Handle, c_int, c_int, *mut c_int);
        Graph_neighbors_count(Handle, c_int, *mut c_int);
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
        Add_error_code(c_int, *mut c_int);
        Add_error_string(c_int, *const c_char);
        Error_string(c_int, *mut c_char, *mut c_int);
        Comm_get_parent(Pointer);
        Publish_name(*const c_char, Handle, *const c_char);
        Unpublish_name(*const c_char, Handle, *const c_char);
        Lookup_name(*const c_char, Handle, *mut c_char);

        Type_size(Handle, *mut c_int);
        Type_get_extent(Handle, *mut Aint, *mut Aint);
        Type_get_true_extent(Handle, *mut Aint, *mut Aint);
        Type_commit(Pointer);
        Type_create_hindexed(c_int, *const c_int, *const Aint, Handle, Pointer);
        Pack(Pointer, c_int, Handle, Pointer, c_int, *mut c_int, Handle);
        Unpack(Pointer, c_int, *mut c_int, Pointer, c_int, Handle, Handle);
        Reduce_local(Pointer, Pointer, c_int, Handle, Handle);

        Iprobe(c_int, c_int, Handle, *mut c_int, Pointer);
        Recv_init(Pointer, c_int, Handle, c_int, c_int, Handle, Pointer);
        Grequest_start(Pointer, Pointer, Pointer, Pointer, Pointer);
        Grequest_complete(Handle);
    }

    functions! { "PMPIX_":
        // Of MPICH.
        Request_is_complete(Handle);
        // Of the libraries that go on after the failure of a process.
        Comm_is_revoked(Handle, *mut c_int);
        Comm_revoke(Handle);
        Comm_shrink(Handle, Pointer);
        Comm_agree(Handle, *mut c_int);
        Comm_iagree(Handle, *mut c_int, Pointer);
    }
}
pub(crate) use table::*;
// Those that this library calls itself, by their names in MPI.
pub(crate) use {
    allgather::int::nonblocking as Iallgather, allreduce::int::blocking as Allreduce,
    allreduce::int::nonblocking as Iallreduce, barrier::int::blocking as Barrier,
    reduce::int::blocking as Reduce,
};
