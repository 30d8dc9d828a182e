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
use std::ffi::c_int;

/// Defines functions under two names. Neither calls the other: the loader may have bound that name to
/// a function of a tool for MPI, which calls this library in turn. An exception that an error handler
/// of a C++ program throws passes through them.
macro_rules! export {
    ($($name:ident $profiling:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        mod $name {
            use super::*;
            pub(super) unsafe extern "C-unwind" fn run($($argument: $type),*) -> c_int $body
        }

        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the same function with the same arguments.
            unsafe { $name::run($($argument),*) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $profiling($($argument: $type),*) -> c_int {
            // SAFETY: the same function with the same arguments.
            unsafe { $name::run($($argument),*) }
        }
    )*};
}
pub(crate) use export;

export! {
    MPI_Init PMPI_Init(argc: *mut c_int, argv: Pointer) {
        life::before_initialization();
        let outcome = call!(Init(argc, argv));
        life::initialized(outcome);
        outcome
    }

    MPI_Init_thread PMPI_Init_thread(
        argc: *mut c_int,
        argv: Pointer,
        required: c_int,
        provided: *mut c_int,
    ) {
        life::before_initialization();
        let outcome = call!(Init_thread(argc, argv, required, provided));
        life::initialized(outcome);
        outcome
    }

    MPI_Finalize PMPI_Finalize() {
        life::finalize()
    }

    MPI_Wait PMPI_Wait(request: Pointer, status: Pointer) {
        completion::wait(request, status)
    }

    MPI_Test PMPI_Test(request: Pointer, flag: *mut c_int, status: Pointer) {
        completion::test(request, flag, status)
    }

    MPI_Waitall PMPI_Waitall(count: c_int, requests: Pointer, statuses: Pointer) {
        completion::wait_all(count, requests, statuses)
    }

    MPI_Testall PMPI_Testall(
        count: c_int,
        requests: Pointer,
        flag: *mut c_int,
        statuses: Pointer,
    ) {
        completion::test_all(count, requests, flag, statuses)
    }

    MPI_Waitany PMPI_Waitany(
        count: c_int,
        requests: Pointer,
        index: *mut c_int,
        status: Pointer,
    ) {
        completion::wait_any(count, requests, index, status)
    }

    MPI_Testany PMPI_Testany(
        count: c_int,
        requests: Pointer,
        index: *mut c_int,
        flag: *mut c_int,
        status: Pointer,
    ) {
        completion::test_any(count, requests, (index, flag), status, true)
    }

    MPI_Waitsome PMPI_Waitsome(
        count: c_int,
        requests: Pointer,
        outcount: *mut c_int,
        indices: *mut c_int,
        statuses: Pointer,
    ) {
        completion::wait_some(count, requests, (outcount, indices), statuses)
    }

    MPI_Testsome PMPI_Testsome(
        count: c_int,
        requests: Pointer,
        outcount: *mut c_int,
        indices: *mut c_int,
        statuses: Pointer,
    ) {
        completion::test_some(count, requests, (outcount, indices), statuses, true)
    }

    MPI_Request_get_status PMPI_Request_get_status(
        request: Handle,
        flag: *mut c_int,
        status: Pointer,
    ) {
        completion::get_status(request, flag, status)
    }

    MPI_Request_get_status_all PMPI_Request_get_status_all(
        count: c_int,
        requests: Pointer,
        flag: *mut c_int,
        statuses: Pointer,
    ) {
        completion::get_status_all(count, requests, flag, statuses)
    }

    MPI_Request_get_status_any PMPI_Request_get_status_any(
        count: c_int,
        requests: Pointer,
        index: *mut c_int,
        flag: *mut c_int,
        status: Pointer,
    ) {
        completion::test_any(count, requests, (index, flag), status, false)
    }

    MPI_Request_get_status_some PMPI_Request_get_status_some(
        count: c_int,
        requests: Pointer,
        outcount: *mut c_int,
        indices: *mut c_int,
        statuses: Pointer,
    ) {
        completion::test_some(count, requests, (outcount, indices), statuses, false)
    }

    MPI_Start PMPI_Start(request: Pointer) {
        persistent::start(request)
    }

    // An extension of MPICH, which returns a truth value.
    MPIX_Request_is_complete PMPIX_Request_is_complete(request: Handle) {
        completion::is_complete(request)
    }

    MPI_Startall PMPI_Startall(count: c_int, requests: Pointer) {
        persistent::start_all(count, requests)
    }

    MPI_Request_free PMPI_Request_free(request: Pointer) {
        completion::request_free(request)
    }

    // The library of files creates communicators by these same functions. As calls inside the MPI
    // library they are not served: its collectives on files complete in functions of its own.
    MPI_File_open PMPI_File_open(
        communicator: Handle,
        name: Pointer,
        mode: c_int,
        info: Handle,
        file: Pointer,
    ) {
        call!(File_open(communicator, name, mode, info, file))
    }

    // Also inside the MPI library: it may call a function of the program, which frees an object
    // that a call uses. The library's own objects are in no call.
    MPI_Op_free PMPI_Op_free(operation: Pointer) {
        match abi().filter(|_| !operation.is_null()) {
            // SAFETY: the program passes the address of a handle.
            Some(abi) => unsafe { kept::op_free(abi, operation) },
            None => call!(Op_free(operation)),
        }
    }

    MPI_Type_free PMPI_Type_free(datatype: Pointer) {
        match abi().filter(|_| !datatype.is_null()) {
            // SAFETY: the program passes the address of a handle.
            Some(abi) => unsafe { kept::type_free(abi, datatype) },
            None => call!(Type_free(datatype)),
        }
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
            0 => unsafe { communicators::created(abi, parent, new) },
            _ => communicators::not_created(abi, parent, outcome),
        }
    }
    outcome
}

/// Defines the functions that create a communicator, collectively over their first argument.
macro_rules! creators {
    ($($name:ident $profiling:ident $host:ident(
        $parent:ident: Handle, $($argument:ident: $type:ty,)* => $new:ident
    );)*) => {
        export! {$(
            $name $profiling($parent: Handle, $($argument: $type,)* $new: Pointer) {
                let outcome = call!($host($parent, $($argument,)* $new));
                created(outcome, $parent, $new)
            }
        )*}
    };
}

creators! {
    MPI_Comm_dup PMPI_Comm_dup Comm_dup(parent: Handle, => new);
    MPI_Comm_dup_with_info PMPI_Comm_dup_with_info Comm_dup_with_info(
        parent: Handle, info: Handle, => new
    );
    MPI_Comm_split PMPI_Comm_split Comm_split(parent: Handle, color: c_int, key: c_int, => new);
    MPI_Comm_split_type PMPI_Comm_split_type Comm_split_type(
        parent: Handle, kind: c_int, key: c_int, info: Handle, => new
    );
    MPI_Comm_create PMPI_Comm_create Comm_create(parent: Handle, group: Handle, => new);
    MPI_Cart_create PMPI_Cart_create Cart_create(
        parent: Handle, count: c_int, dimensions: *const c_int, periodic: *const c_int, reorder: c_int,
        => new
    );
    MPI_Cart_sub PMPI_Cart_sub Cart_sub(parent: Handle, remaining: *const c_int, => new);
    MPI_Graph_create PMPI_Graph_create Graph_create(
        parent: Handle, count: c_int, index: *const c_int, edges: *const c_int, reorder: c_int, => new
    );
    MPI_Dist_graph_create PMPI_Dist_graph_create Dist_graph_create(
        parent: Handle, count: c_int, sources: *const c_int, degrees: *const c_int,
        destinations: *const c_int, weights: *const c_int, info: Handle, reorder: c_int, => new
    );
    MPI_Dist_graph_create_adjacent PMPI_Dist_graph_create_adjacent Dist_graph_create_adjacent(
        parent: Handle, indegree: c_int, sources: *const c_int, source_weights: *const c_int,
        outdegree: c_int, destinations: *const c_int, destination_weights: *const c_int, info: Handle,
        reorder: c_int, => new
    );
}
