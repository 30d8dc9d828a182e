//! The names that replace those of the MPI library: each function as `MPI_…` and as `PMPI_…`.
//!
//! The Fortran bindings of some MPI libraries call the `PMPI_` names, so both are taken over.
//! Programs may also find the names with the suffix `_c` here that their MPI library lacks. Such a
//! call reaches the form with counts of 32 bits where the counts fit.
#![allow(non_snake_case, reason = "the names and rules of MPI")]

use crate::abi::abi;
use crate::collectives::{self, Blocks, Call, Elements, TypedBlocks};
use crate::combining::{self, Prefix, Reduced, Reduction};
use crate::communicators;
use crate::completion;
use crate::host::{self, Aint, Count, Handle, Pointer, call};
use crate::kept;
use crate::life;
use crate::narrow;
use crate::neighbors;
use crate::report::Kind;
use crate::take::take;
use std::ffi::c_int;

/// Defines functions under two names. An exception that an error handler of a C++ program throws
/// passes through them.
macro_rules! export {
    ($($name:ident $profiling:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int $body

        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $profiling($($argument: $type),*) -> c_int {
            // SAFETY: the same function with the same arguments.
            unsafe { $name($($argument),*) }
        }
    )*};
}

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
        let job = life::before_finalize();
        let outcome = call!(Finalize());
        drop(job);
        outcome
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

    MPI_Op_free PMPI_Op_free(operation: Pointer) {
        match abi().filter(|_| !host::is_inside()) {
            // SAFETY: the program passes the address of a handle.
            Some(abi) => unsafe { kept::op_free(abi, operation) },
            None => call!(Op_free(operation)),
        }
    }

    MPI_Type_free PMPI_Type_free(datatype: Pointer) {
        match abi().filter(|_| !host::is_inside()) {
            // SAFETY: the program passes the address of a handle.
            Some(abi) => unsafe { kept::type_free(abi, datatype) },
            None => call!(Type_free(datatype)),
        }
    }
}

/// Sets the communicator up that a call has created.
fn created(outcome: c_int, parent: Handle, new: Pointer) -> c_int {
    if outcome == 0
        && communicators::is_active()
        && !host::is_inside()
        && let Some(abi) = abi()
    {
        // SAFETY: the MPI library has written the handle.
        unsafe { communicators::created(abi, abi.handle(parent), new) };
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

/// An argument of a function with the suffix `_c`, in the form without it.
trait Narrow {
    type Narrow;
    /// `None` if the value does not fit.
    fn narrow(self) -> Option<Self::Narrow>;
}

impl Narrow for Count {
    type Narrow = c_int;
    fn narrow(self) -> Option<c_int> {
        self.try_into().ok()
    }
}

macro_rules! unchanged {
    ($($type:ty),*) => {$(
        impl Narrow for $type {
            type Narrow = $type;
            fn narrow(self) -> Option<$type> {
                Some(self)
            }
        }
    )*};
}

unchanged!(c_int, Handle, Pointer);

/// Defines nonblocking collectives, with counts `N` and displacements `D` in both forms. `start`
/// translates the arguments for tradewind.
macro_rules! nonblocking {
    ($($int:ident $profiling_int:ident $large:ident $profiling_large:ident
        $host:ident $host_large:ident $lists:tt($($argument:ident: $type:ty),* $(,)?)
        |$call:ident| $start:expr;)*) => {
        mod int {
            use super::*;
            type N = c_int;
            type D = c_int;
            export! {$(
                $int $profiling_int($($argument: $type,)* communicator: Handle, request: Pointer) {
                    // SAFETY: the program passes the address of a handle.
                    unsafe {
                        take(Kind::$host, communicator, request, |abi, served| {
                            let $call = Call { abi, served };
                            $start
                        }, || call!($host($($argument,)* communicator, request)))
                    }
                }
            )*}
        }
        mod large {
            use super::*;
            type N = Count;
            type D = Aint;
            export! {$(
                $large $profiling_large($($argument: $type,)* communicator: Handle, request: Pointer) {
                    // SAFETY: the program passes the address of a handle.
                    unsafe {
                        take(Kind::$host, communicator, request, |abi, served| {
                            let $call = Call { abi, served };
                            $start
                        }, || match host::$host_large.find() {
                            Some(_) => call!($host_large($($argument,)* communicator, request)),
                            None => without_large!(
                                $lists $host $host_large ($($argument),*) communicator, request
                            ),
                        })
                    }
                }
            )*}
        }
    };
}

/// Calls the form with counts of 32 bits where the MPI library lacks the other one.
macro_rules! without_large {
    (scalars $host:ident $large:ident ($($argument:ident),*) $communicator:ident, $request:ident) => {
        (|| Some(call!($host($($argument.narrow()?,)* $communicator, $request))))()
            .unwrap_or_else(|| host::missing(stringify!($large)))
    };
    ([$($group:expr),*] $host:ident $large:ident ($($argument:ident),*)
        $communicator:ident, $request:ident) => {
        narrow::$host($($group,)* $communicator, $request)
    };
    ([$($group:expr),*; $root:ident] $host:ident $large:ident ($($argument:ident),*)
        $communicator:ident, $request:ident) => {
        narrow::$host($($group,)* ($root, $communicator), $request)
    };
}

fn elements(at: Pointer, count: impl Into<i64>, datatype: Handle) -> Elements {
    Elements { at, count: count.into(), datatype }
}

fn blocks<N, D>(
    at: Pointer,
    counts: *const N,
    displacements: *const D,
    datatype: Handle,
) -> Blocks<N, D> {
    Blocks { at, counts, displacements, datatype }
}

fn typed<N, D>(
    at: Pointer,
    counts: *const N,
    displacements: *const D,
    datatypes: Pointer,
) -> TypedBlocks<N, D> {
    TypedBlocks { at, counts, displacements, datatypes }
}

fn reduced(send: Pointer, receive: Pointer, count: impl Into<i64>) -> Reduced {
    Reduced { send, receive, count: count.into() }
}

fn reduction(datatype: Handle, operation: Handle) -> Reduction {
    Reduction { datatype, operation }
}

nonblocking! {
    MPI_Ibcast PMPI_Ibcast MPI_Ibcast_c PMPI_Ibcast_c Ibcast Ibcast_c scalars(
        buffer: Pointer, count: N, datatype: Handle, root: c_int
    ) |call| collectives::ibcast(call, elements(buffer, count, datatype), root);

    MPI_Igather PMPI_Igather MPI_Igather_c PMPI_Igather_c Igather Igather_c scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
        root: c_int,
    ) |call| collectives::igather(
        call, elements(send, sent, send_type), elements(receive, received, receive_type), root
    );

    MPI_Igatherv PMPI_Igatherv MPI_Igatherv_c PMPI_Igatherv_c Igatherv Igatherv_c
    [(send, sent, send_type), (receive, counts, displacements, receive_type); root] (
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, counts: *const N,
        displacements: *const D, receive_type: Handle, root: c_int,
    ) |call| collectives::igatherv(
        call, elements(send, sent, send_type), blocks(receive, counts, displacements, receive_type),
        root
    );

    MPI_Iscatter PMPI_Iscatter MPI_Iscatter_c PMPI_Iscatter_c Iscatter Iscatter_c scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
        root: c_int,
    ) |call| collectives::iscatter(
        call, elements(send, sent, send_type), elements(receive, received, receive_type), root
    );

    MPI_Iscatterv PMPI_Iscatterv MPI_Iscatterv_c PMPI_Iscatterv_c Iscatterv Iscatterv_c
    [(send, counts, displacements, send_type), (receive, received, receive_type); root] (
        send: Pointer, counts: *const N, displacements: *const D, send_type: Handle,
        receive: Pointer, received: N, receive_type: Handle, root: c_int,
    ) |call| collectives::iscatterv(
        call, blocks(send, counts, displacements, send_type),
        elements(receive, received, receive_type), root
    );

    MPI_Iallgather PMPI_Iallgather MPI_Iallgather_c PMPI_Iallgather_c
    Iallgather Iallgather_c scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
    ) |call| collectives::iallgather(
        call, elements(send, sent, send_type), elements(receive, received, receive_type)
    );

    MPI_Iallgatherv PMPI_Iallgatherv MPI_Iallgatherv_c PMPI_Iallgatherv_c
    Iallgatherv Iallgatherv_c
    [(send, sent, send_type), (receive, counts, displacements, receive_type)] (
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, counts: *const N,
        displacements: *const D, receive_type: Handle,
    ) |call| collectives::iallgatherv(
        call, elements(send, sent, send_type), blocks(receive, counts, displacements, receive_type)
    );

    MPI_Ialltoall PMPI_Ialltoall MPI_Ialltoall_c PMPI_Ialltoall_c Ialltoall Ialltoall_c scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
    ) |call| collectives::ialltoall(
        call, elements(send, sent, send_type), elements(receive, received, receive_type)
    );

    MPI_Ialltoallv PMPI_Ialltoallv MPI_Ialltoallv_c PMPI_Ialltoallv_c
    Ialltoallv Ialltoallv_c
    [(send, sent, send_at, send_type), (receive, received, receive_at, receive_type)] (
        send: Pointer, sent: *const N, send_at: *const D, send_type: Handle,
        receive: Pointer, received: *const N, receive_at: *const D, receive_type: Handle,
    ) |call| collectives::ialltoallv(
        call, blocks(send, sent, send_at, send_type),
        blocks(receive, received, receive_at, receive_type)
    );

    MPI_Ialltoallw PMPI_Ialltoallw MPI_Ialltoallw_c PMPI_Ialltoallw_c
    Ialltoallw Ialltoallw_c
    [(send, sent, send_at, send_types), (receive, received, receive_at, receive_types)] (
        send: Pointer, sent: *const N, send_at: *const D, send_types: Pointer,
        receive: Pointer, received: *const N, receive_at: *const D, receive_types: Pointer,
    ) |call| collectives::ialltoallw(
        call, typed(send, sent, send_at, send_types),
        typed(receive, received, receive_at, receive_types)
    );

    MPI_Ireduce PMPI_Ireduce MPI_Ireduce_c PMPI_Ireduce_c Ireduce Ireduce_c scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle, root: c_int,
    ) |call| combining::ireduce(
        call, reduced(send, receive, count), reduction(datatype, operation), root
    );

    MPI_Iallreduce PMPI_Iallreduce MPI_Iallreduce_c PMPI_Iallreduce_c
    Iallreduce Iallreduce_c scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle,
    ) |call| combining::iallreduce(
        call, reduced(send, receive, count), reduction(datatype, operation)
    );

    MPI_Ireduce_scatter PMPI_Ireduce_scatter MPI_Ireduce_scatter_c PMPI_Ireduce_scatter_c
    Ireduce_scatter Ireduce_scatter_c
    [(send, receive), counts, (datatype, operation)] (
        send: Pointer, receive: Pointer, counts: *const N, datatype: Handle, operation: Handle,
    ) |call| combining::ireduce_scatter(
        call, (send, receive), counts, reduction(datatype, operation)
    );

    MPI_Ireduce_scatter_block PMPI_Ireduce_scatter_block
    MPI_Ireduce_scatter_block_c PMPI_Ireduce_scatter_block_c
    Ireduce_scatter_block Ireduce_scatter_block_c scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle,
    ) |call| combining::ireduce_scatter_block(
        call, reduced(send, receive, count), reduction(datatype, operation)
    );

    MPI_Iscan PMPI_Iscan MPI_Iscan_c PMPI_Iscan_c Iscan Iscan_c scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle,
    ) |call| combining::iscan(
        call, reduced(send, receive, count), reduction(datatype, operation), Prefix::Inclusive
    );

    MPI_Iexscan PMPI_Iexscan MPI_Iexscan_c PMPI_Iexscan_c Iexscan Iexscan_c scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle,
    ) |call| combining::iscan(
        call, reduced(send, receive, count), reduction(datatype, operation), Prefix::Exclusive
    );

    MPI_Ineighbor_allgather PMPI_Ineighbor_allgather
    MPI_Ineighbor_allgather_c PMPI_Ineighbor_allgather_c
    Ineighbor_allgather Ineighbor_allgather_c scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
    ) |call| neighbors::ineighbor_allgather(
        call, elements(send, sent, send_type), elements(receive, received, receive_type)
    );

    MPI_Ineighbor_allgatherv PMPI_Ineighbor_allgatherv
    MPI_Ineighbor_allgatherv_c PMPI_Ineighbor_allgatherv_c
    Ineighbor_allgatherv Ineighbor_allgatherv_c
    [(send, sent, send_type), (receive, counts, displacements, receive_type)] (
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, counts: *const N,
        displacements: *const D, receive_type: Handle,
    ) |call| neighbors::ineighbor_allgatherv(
        call, elements(send, sent, send_type), blocks(receive, counts, displacements, receive_type)
    );

    MPI_Ineighbor_alltoall PMPI_Ineighbor_alltoall
    MPI_Ineighbor_alltoall_c PMPI_Ineighbor_alltoall_c
    Ineighbor_alltoall Ineighbor_alltoall_c scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
    ) |call| neighbors::ineighbor_alltoall(
        call, elements(send, sent, send_type), elements(receive, received, receive_type)
    );

    MPI_Ineighbor_alltoallv PMPI_Ineighbor_alltoallv
    MPI_Ineighbor_alltoallv_c PMPI_Ineighbor_alltoallv_c
    Ineighbor_alltoallv Ineighbor_alltoallv_c
    [(send, sent, send_at, send_type), (receive, received, receive_at, receive_type)] (
        send: Pointer, sent: *const N, send_at: *const D, send_type: Handle,
        receive: Pointer, received: *const N, receive_at: *const D, receive_type: Handle,
    ) |call| neighbors::ineighbor_alltoallv(
        call, blocks(send, sent, send_at, send_type),
        blocks(receive, received, receive_at, receive_type)
    );

    MPI_Ineighbor_alltoallw PMPI_Ineighbor_alltoallw
    MPI_Ineighbor_alltoallw_c PMPI_Ineighbor_alltoallw_c
    Ineighbor_alltoallw Ineighbor_alltoallw_c
    [(send, sent, send_at, send_types), (receive, received, receive_at, receive_types)] (
        send: Pointer, sent: *const N, send_at: *const Aint, send_types: Pointer,
        receive: Pointer, received: *const N, receive_at: *const Aint, receive_types: Pointer,
    ) |call| neighbors::ineighbor_alltoallw(
        call, typed(send, sent, send_at, send_types),
        typed(receive, received, receive_at, receive_types)
    );
}

export! {
    MPI_Ibarrier PMPI_Ibarrier(communicator: Handle, request: Pointer) {
        // SAFETY: the program passes the address of a handle.
        unsafe {
            take(
                Kind::Ibarrier,
                communicator,
                request,
                |abi, served| collectives::ibarrier(Call { abi, served }),
                || call!(Ibarrier(communicator, request)),
            )
        }
    }
}
