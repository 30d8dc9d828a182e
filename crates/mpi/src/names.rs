//! The names that replace those of the MPI library: each function as `MPI_…` and as `PMPI_…`.
//!
//! The Fortran bindings of some MPI libraries call the `PMPI_` names, so both are taken over.
//! Those of the collectives are in `collective_names`.
#![allow(non_snake_case, reason = "the names and rules of MPI")]

use crate::abi::abi;
use crate::communicators;
use crate::completion;
use crate::host::{self, Handle, Pointer, call};
use crate::kept;
use crate::life;
use crate::persistent;
use crate::signatures::with_functions;
use std::ffi::c_int;

/// Defines functions under two names, in a module for each: that in brackets, and one with a `P` in
/// front. Neither calls the other: the loader may have bound that name to a function of a tool for MPI,
/// which calls this library in turn. An exception that an error handler of a C++ program throws passes
/// through them.
macro_rules! export {
    ($($module:ident [$($name:tt)*]($($argument:ident: $type:ty),*) $body:block)*) => {$(
        pub(crate) mod $module {
            use super::*;

            unsafe extern "C-unwind" fn run($($argument: $type),*) -> c_int $body

            #[unsafe(export_name = concat!($($name)*))]
            pub(crate) unsafe extern "C-unwind" fn exported($($argument: $type),*) -> c_int {
                // SAFETY: the same function with the same arguments.
                unsafe { run($($argument),*) }
            }

            #[unsafe(export_name = concat!("P", $($name)*))]
            unsafe extern "C-unwind" fn profiling($($argument: $type),*) -> c_int {
                // SAFETY: the same function with the same arguments.
                unsafe { run($($argument),*) }
            }
        }
    )*};
}
pub(crate) use export;

macro_rules! functions {
    ({ $($name:ident($($argument:ident: $type:ty),*) $body:expr;)* }
        { $($creator:ident($($between:ident: $between_type:ty),*);)* }) => {
        export! {
            $($name ["MPI_", stringify!($name)]($($argument: $type),*) { $body })*
            $($creator ["MPI_", stringify!($creator)](
                parent: Handle $(, $between: $between_type)*, new: Pointer
            ) {
                created(call!($creator(parent, $($between,)* new)), parent, new)
            })*
        }
    };
}

with_functions! { functions }

export! {
    // An extension of MPICH, which returns a truth value.
    Request_is_complete ["MPIX_Request_is_complete"](request: Handle) {
        completion::is_complete(request)
    }
}

/// Sets the communicator up that a call has created.
fn created(outcome: c_int, parent: Handle, new: Pointer) -> c_int {
    if communicators::is_active()
        && !host::is_inside()
        && let Some(abi) = abi()
    {
        let parent = abi.handle(parent);
        match outcome {
            // SAFETY: the MPI library has written the handle.
            0 => communicators::created(abi, parent, unsafe { abi.read(new, 0) }),
            _ => communicators::not_created(abi, parent, outcome),
        }
    }
    outcome
}
