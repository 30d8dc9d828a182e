//! The functions by which a program leaves its error handler, and with it the MPI library, without a
//! return. A thread that did so on one rank would count as inside the library from then on, and
//! leave its collectives to that library, while the other ranks run them here.
//!
//! A jump does not say how far it goes. One that stays inside a function of the program which the MPI
//! library has called ends the marks all the same, although the thread is inside the library until
//! that function returns. What the function and the library call after it is then decided as if the
//! program had called it: in a library that calls its public functions itself, and in which other
//! ranks are then not inside it, ranks may decide differently. Programs of that kind are not known.
//! Nor does a jump out of a blocking collective that runs here end that collective.

use crate::host::{self, Pointer};
use crate::{requests, tolerance};
use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library that jumps.
type Jump = unsafe extern "C" fn(Pointer, c_int) -> !;

/// Ends the marks of this thread, and jumps.
///
/// # Safety
/// As the function of this name demands. Frames between here and there may have destructors of marks,
/// of waits and of memory, which do not run: the first two are ended here, and memory is lost.
unsafe fn jump(known: &AtomicPtr<()>, name: &CStr, environment: Pointer, value: c_int) -> ! {
    // Every jump of the process comes here, also those of signal handlers, so most do no more.
    if host::is_inside() {
        host::leave_all();
        requests::leave_waits();
        tolerance::leave_wait();
    }
    // Relaxed: the pointer leads to code, which the loader has published.
    let mut function = known.load(Ordering::Relaxed);
    if function.is_null() {
        // A constructor of another library jumps before that of this one has run.
        function = look_up(known, name);
    }
    if function.is_null() {
        std::process::abort();
    }
    // SAFETY: the C library's function of this name has this type.
    let function = unsafe { std::mem::transmute::<*mut (), Jump>(function) };
    // SAFETY: the caller's promise.
    unsafe { function(environment, value) }
}

/// Looks a function up, and keeps it.
#[cold]
fn look_up(known: &AtomicPtr<()>, name: &CStr) -> *mut () {
    let function = host::next_function(name).cast();
    known.store(function, Ordering::Relaxed);
    function
}

macro_rules! jumps {
    ($($name:ident $at:ident $text:literal;)*) => {
        $(
            static $at: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(environment: Pointer, value: c_int) -> ! {
                // SAFETY: the program's arguments, for the function of this name.
                unsafe { jump(&$at, $text, environment, value) }
            }
        )*

        /// Looks all of them up before the program runs: a signal handler that jumps must not, since
        /// the loader takes a lock for it.
        extern "C" fn look_all_up() {
            $(look_up(&$at, $text);)*
        }
    };
}

jumps! {
    longjmp LONGJMP c"longjmp";
    _longjmp UNDERSCORE_LONGJMP c"_longjmp";
    siglongjmp SIGLONGJMP c"siglongjmp";
    __longjmp_chk LONGJMP_CHK c"__longjmp_chk";
}

/// A constructor of this library.
#[used]
// SAFETY: the loader calls the functions of this section, which have this type, before the program.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = look_all_up;
