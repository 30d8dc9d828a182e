//! The functions by which a program leaves its error handler, and with it the MPI library, without a
//! return. A thread that did so on one rank would count as inside the library from then on, and
//! leave its collectives to that library, while the other ranks run them here.

use crate::host::{self, Pointer, leave_all};
use std::ffi::{CStr, c_int};

/// A function of the C library that jumps.
type Jump = unsafe extern "C" fn(Pointer, c_int) -> !;

/// Ends the marks of this thread, and jumps.
///
/// # Safety
/// As the function of this name demands. No frame between here and there has a destructor other than
/// those of the marks.
unsafe fn jump(name: &CStr, environment: Pointer, value: c_int) -> ! {
    leave_all();
    let function = host::next_function(name);
    if function.is_null() {
        std::process::abort();
    }
    // SAFETY: the C library's function of this name has this type.
    let function = unsafe { std::mem::transmute::<Pointer, Jump>(function) };
    // SAFETY: the caller's promise.
    unsafe { function(environment, value) }
}

macro_rules! jumps {
    ($($name:ident $text:literal;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(environment: Pointer, value: c_int) -> ! {
            // SAFETY: the program's arguments, for the function of this name.
            unsafe { jump($text, environment, value) }
        }
    )*};
}

jumps! {
    longjmp c"longjmp";
    _longjmp c"_longjmp";
    siglongjmp c"siglongjmp";
    __longjmp_chk c"__longjmp_chk";
}
