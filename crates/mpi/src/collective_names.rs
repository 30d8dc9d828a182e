//! The names of the nonblocking and the persistent collectives.
//!
//! Programs may also find the names with the suffix `_c` here that their MPI library lacks. Such a
//! call reaches the form with counts of 32 bits where the counts fit.
#![allow(non_snake_case, reason = "the names and rules of MPI")]

use crate::collectives::{self, Blocks, Elements, TypedBlocks};
use crate::combining::{self, Prefix, Reduced, Reduction};
use crate::host::{self, Aint, Count, Handle, Pointer, call};
use crate::names::export;
use crate::narrow::{self, Form};
use crate::neighbors;
use crate::report::Kind;
use crate::take::{prepare, take};
use std::ffi::c_int;

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

/// Adds the handles among the arguments of a call to a list.
trait AddHandle {
    fn add_to(self, _handles: &mut Vec<Handle>);
}

impl AddHandle for Handle {
    fn add_to(self, handles: &mut Vec<Handle>) {
        handles.push(self);
    }
}

macro_rules! without_handle {
    ($($type:ty),*) => {$(
        impl AddHandle for $type {
            fn add_to(self, _handles: &mut Vec<Handle>) {}
        }
    )*};
}

without_handle!(c_int, Count, Pointer);

impl<T> AddHandle for *const T {
    fn add_to(self, _handles: &mut Vec<Handle>) {}
}

/// The handles among these arguments.
macro_rules! handles {
    ($($argument:ident),*) => {{
        let mut handles = Vec::new();
        $($argument.add_to(&mut handles);)*
        handles
    }};
}

/// Defines nonblocking and persistent collectives, with counts `N` and displacements `D` in both
/// forms. `start` translates the arguments for tradewind.
macro_rules! collectives {
    ($($host:ident $host_large:ident $init:ident $init_large:ident
        $int:ident $profiling_int:ident $large:ident $profiling_large:ident
        $int_init:ident $profiling_int_init:ident $large_init:ident $profiling_large_init:ident
        $lists:tt($($argument:ident: $type:ty),* $(,)?) |$call:ident| $start:expr;)*) => {
        mod int {
            use super::*;
            type N = c_int;
            type D = c_int;
            export! {$(
                $int $profiling_int($($argument: $type,)* communicator: Handle, request: Pointer) {
                    // SAFETY: the program passes the address of a handle.
                    unsafe {
                        take(
                            Kind::$host,
                            communicator,
                            request,
                            |$call| $start,
                            || call!($host($($argument,)* communicator, request)),
                        )
                    }
                }

                $int_init $profiling_int_init(
                    $($argument: $type,)*
                    communicator: Handle,
                    info: Handle,
                    request: Pointer,
                ) {
                    // SAFETY: the program passes the address of a handle.
                    unsafe {
                        prepare(
                            Kind::$init,
                            (communicator, handles!($($argument),*)),
                            request,
                            move |$call| $start,
                            || call!($init($($argument,)* communicator, info, request)),
                        )
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
                    let leave = || match host::$host_large.find() {
                        Some(_) => call!($host_large($($argument,)* communicator, request)),
                        None => without_large!(
                            $lists $host $host $host_large ($($argument),*)
                            communicator, (request, Form::Nonblocking), [communicator, request]
                        ),
                    };
                    // SAFETY: the program passes the address of a handle.
                    unsafe { take(Kind::$host, communicator, request, |$call| $start, leave) }
                }

                $large_init $profiling_large_init(
                    $($argument: $type,)*
                    communicator: Handle,
                    info: Handle,
                    request: Pointer,
                ) {
                    let leave = || match host::$init_large.find() {
                        Some(_) => call!($init_large($($argument,)* communicator, info, request)),
                        None => without_large!(
                            $lists $host $init $init_large ($($argument),*)
                            communicator, (request, Form::Persistent(info)),
                            [communicator, info, request]
                        ),
                    };
                    let handles = handles!($($argument),*);
                    // SAFETY: the program passes the address of a handle.
                    unsafe {
                        prepare(
                            Kind::$init,
                            (communicator, handles),
                            request,
                            move |$call| $start,
                            leave,
                        )
                    }
                }
            )*}
        }
    };
}

/// Calls the form with counts of 32 bits where the MPI library lacks the other one.
macro_rules! without_large {
    (scalars $narrow:ident $host:ident $large:ident ($($argument:ident),*)
        $communicator:ident, $form:expr, [$($last:ident),*]) => {
        (|| Some(call!($host($($argument.narrow()?,)* $($last),*))))()
            .unwrap_or_else(|| host::missing(stringify!($large)))
    };
    ([$($group:expr),*] $narrow:ident $host:ident $large:ident ($($argument:ident),*)
        $communicator:ident, $form:expr, [$($last:ident),*]) => {
        narrow::$narrow($($group,)* $communicator, $form)
    };
    ([$($group:expr),*; $root:ident] $narrow:ident $host:ident $large:ident ($($argument:ident),*)
        $communicator:ident, $form:expr, [$($last:ident),*]) => {
        narrow::$narrow($($group,)* ($root, $communicator), $form)
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

collectives! {
    Ibcast Ibcast_c Bcast_init Bcast_init_c
    MPI_Ibcast PMPI_Ibcast MPI_Ibcast_c PMPI_Ibcast_c
    MPI_Bcast_init PMPI_Bcast_init MPI_Bcast_init_c PMPI_Bcast_init_c
    scalars(
        buffer: Pointer, count: N, datatype: Handle, root: c_int
    )
    |call| collectives::ibcast(call, elements(buffer, count, datatype), root);

    Igather Igather_c Gather_init Gather_init_c
    MPI_Igather PMPI_Igather MPI_Igather_c PMPI_Igather_c
    MPI_Gather_init PMPI_Gather_init MPI_Gather_init_c PMPI_Gather_init_c
    scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
        root: c_int,
    )
    |call| collectives::igather(
        call, elements(send, sent, send_type), elements(receive, received, receive_type), root
    );

    Igatherv Igatherv_c Gatherv_init Gatherv_init_c
    MPI_Igatherv PMPI_Igatherv MPI_Igatherv_c PMPI_Igatherv_c
    MPI_Gatherv_init PMPI_Gatherv_init MPI_Gatherv_init_c PMPI_Gatherv_init_c
    [(send, sent, send_type), (receive, counts, displacements, receive_type); root] (
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, counts: *const N,
        displacements: *const D, receive_type: Handle, root: c_int,
    )
    |call| collectives::igatherv(
        call, elements(send, sent, send_type), blocks(receive, counts, displacements, receive_type),
        root
    );

    Iscatter Iscatter_c Scatter_init Scatter_init_c
    MPI_Iscatter PMPI_Iscatter MPI_Iscatter_c PMPI_Iscatter_c
    MPI_Scatter_init PMPI_Scatter_init MPI_Scatter_init_c PMPI_Scatter_init_c
    scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
        root: c_int,
    )
    |call| collectives::iscatter(
        call, elements(send, sent, send_type), elements(receive, received, receive_type), root
    );

    Iscatterv Iscatterv_c Scatterv_init Scatterv_init_c
    MPI_Iscatterv PMPI_Iscatterv MPI_Iscatterv_c PMPI_Iscatterv_c
    MPI_Scatterv_init PMPI_Scatterv_init MPI_Scatterv_init_c PMPI_Scatterv_init_c
    [(send, counts, displacements, send_type), (receive, received, receive_type); root] (
        send: Pointer, counts: *const N, displacements: *const D, send_type: Handle,
        receive: Pointer, received: N, receive_type: Handle, root: c_int,
    )
    |call| collectives::iscatterv(
        call, blocks(send, counts, displacements, send_type),
        elements(receive, received, receive_type), root
    );

    Iallgather Iallgather_c Allgather_init Allgather_init_c
    MPI_Iallgather PMPI_Iallgather MPI_Iallgather_c PMPI_Iallgather_c
    MPI_Allgather_init PMPI_Allgather_init MPI_Allgather_init_c PMPI_Allgather_init_c
    scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
    )
    |call| collectives::iallgather(
        call, elements(send, sent, send_type), elements(receive, received, receive_type)
    );

    Iallgatherv Iallgatherv_c Allgatherv_init Allgatherv_init_c
    MPI_Iallgatherv PMPI_Iallgatherv MPI_Iallgatherv_c PMPI_Iallgatherv_c
    MPI_Allgatherv_init PMPI_Allgatherv_init MPI_Allgatherv_init_c PMPI_Allgatherv_init_c
    [(send, sent, send_type), (receive, counts, displacements, receive_type)] (
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, counts: *const N,
        displacements: *const D, receive_type: Handle,
    )
    |call| collectives::iallgatherv(
        call, elements(send, sent, send_type), blocks(receive, counts, displacements, receive_type)
    );

    Ialltoall Ialltoall_c Alltoall_init Alltoall_init_c
    MPI_Ialltoall PMPI_Ialltoall MPI_Ialltoall_c PMPI_Ialltoall_c
    MPI_Alltoall_init PMPI_Alltoall_init MPI_Alltoall_init_c PMPI_Alltoall_init_c
    scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
    )
    |call| collectives::ialltoall(
        call, elements(send, sent, send_type), elements(receive, received, receive_type)
    );

    Ialltoallv Ialltoallv_c Alltoallv_init Alltoallv_init_c
    MPI_Ialltoallv PMPI_Ialltoallv MPI_Ialltoallv_c PMPI_Ialltoallv_c
    MPI_Alltoallv_init PMPI_Alltoallv_init MPI_Alltoallv_init_c PMPI_Alltoallv_init_c
    [(send, sent, send_at, send_type), (receive, received, receive_at, receive_type)] (
        send: Pointer, sent: *const N, send_at: *const D, send_type: Handle,
        receive: Pointer, received: *const N, receive_at: *const D, receive_type: Handle,
    )
    |call| collectives::ialltoallv(
        call, blocks(send, sent, send_at, send_type),
        blocks(receive, received, receive_at, receive_type)
    );

    Ialltoallw Ialltoallw_c Alltoallw_init Alltoallw_init_c
    MPI_Ialltoallw PMPI_Ialltoallw MPI_Ialltoallw_c PMPI_Ialltoallw_c
    MPI_Alltoallw_init PMPI_Alltoallw_init MPI_Alltoallw_init_c PMPI_Alltoallw_init_c
    [(send, sent, send_at, send_types), (receive, received, receive_at, receive_types)] (
        send: Pointer, sent: *const N, send_at: *const D, send_types: Pointer,
        receive: Pointer, received: *const N, receive_at: *const D, receive_types: Pointer,
    )
    |call| collectives::ialltoallw(
        call, typed(send, sent, send_at, send_types),
        typed(receive, received, receive_at, receive_types)
    );

    Ireduce Ireduce_c Reduce_init Reduce_init_c
    MPI_Ireduce PMPI_Ireduce MPI_Ireduce_c PMPI_Ireduce_c
    MPI_Reduce_init PMPI_Reduce_init MPI_Reduce_init_c PMPI_Reduce_init_c
    scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle, root: c_int,
    )
    |call| combining::ireduce(
        call, reduced(send, receive, count), reduction(datatype, operation), root
    );

    Iallreduce Iallreduce_c Allreduce_init Allreduce_init_c
    MPI_Iallreduce PMPI_Iallreduce MPI_Iallreduce_c PMPI_Iallreduce_c
    MPI_Allreduce_init PMPI_Allreduce_init MPI_Allreduce_init_c PMPI_Allreduce_init_c
    scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle,
    )
    |call| combining::iallreduce(
        call, reduced(send, receive, count), reduction(datatype, operation)
    );

    Ireduce_scatter Ireduce_scatter_c Reduce_scatter_init Reduce_scatter_init_c
    MPI_Ireduce_scatter PMPI_Ireduce_scatter MPI_Ireduce_scatter_c PMPI_Ireduce_scatter_c
    MPI_Reduce_scatter_init PMPI_Reduce_scatter_init MPI_Reduce_scatter_init_c PMPI_Reduce_scatter_init_c
    [(send, receive), counts, (datatype, operation)] (
        send: Pointer, receive: Pointer, counts: *const N, datatype: Handle, operation: Handle,
    )
    |call| combining::ireduce_scatter(
        call, (send, receive), counts, reduction(datatype, operation)
    );

    Ireduce_scatter_block Ireduce_scatter_block_c Reduce_scatter_block_init Reduce_scatter_block_init_c
    MPI_Ireduce_scatter_block PMPI_Ireduce_scatter_block MPI_Ireduce_scatter_block_c PMPI_Ireduce_scatter_block_c
    MPI_Reduce_scatter_block_init PMPI_Reduce_scatter_block_init MPI_Reduce_scatter_block_init_c PMPI_Reduce_scatter_block_init_c
    scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle,
    )
    |call| combining::ireduce_scatter_block(
        call, reduced(send, receive, count), reduction(datatype, operation)
    );

    Iscan Iscan_c Scan_init Scan_init_c
    MPI_Iscan PMPI_Iscan MPI_Iscan_c PMPI_Iscan_c
    MPI_Scan_init PMPI_Scan_init MPI_Scan_init_c PMPI_Scan_init_c
    scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle,
    )
    |call| combining::iscan(
        call, reduced(send, receive, count), reduction(datatype, operation), Prefix::Inclusive
    );

    Iexscan Iexscan_c Exscan_init Exscan_init_c
    MPI_Iexscan PMPI_Iexscan MPI_Iexscan_c PMPI_Iexscan_c
    MPI_Exscan_init PMPI_Exscan_init MPI_Exscan_init_c PMPI_Exscan_init_c
    scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle,
    )
    |call| combining::iscan(
        call, reduced(send, receive, count), reduction(datatype, operation), Prefix::Exclusive
    );

    Ineighbor_allgather Ineighbor_allgather_c Neighbor_allgather_init Neighbor_allgather_init_c
    MPI_Ineighbor_allgather PMPI_Ineighbor_allgather MPI_Ineighbor_allgather_c PMPI_Ineighbor_allgather_c
    MPI_Neighbor_allgather_init PMPI_Neighbor_allgather_init MPI_Neighbor_allgather_init_c PMPI_Neighbor_allgather_init_c
    scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
    )
    |call| neighbors::ineighbor_allgather(
        call, elements(send, sent, send_type), elements(receive, received, receive_type)
    );

    Ineighbor_allgatherv Ineighbor_allgatherv_c Neighbor_allgatherv_init Neighbor_allgatherv_init_c
    MPI_Ineighbor_allgatherv PMPI_Ineighbor_allgatherv MPI_Ineighbor_allgatherv_c PMPI_Ineighbor_allgatherv_c
    MPI_Neighbor_allgatherv_init PMPI_Neighbor_allgatherv_init MPI_Neighbor_allgatherv_init_c PMPI_Neighbor_allgatherv_init_c
    [(send, sent, send_type), (receive, counts, displacements, receive_type)] (
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, counts: *const N,
        displacements: *const D, receive_type: Handle,
    )
    |call| neighbors::ineighbor_allgatherv(
        call, elements(send, sent, send_type), blocks(receive, counts, displacements, receive_type)
    );

    Ineighbor_alltoall Ineighbor_alltoall_c Neighbor_alltoall_init Neighbor_alltoall_init_c
    MPI_Ineighbor_alltoall PMPI_Ineighbor_alltoall MPI_Ineighbor_alltoall_c PMPI_Ineighbor_alltoall_c
    MPI_Neighbor_alltoall_init PMPI_Neighbor_alltoall_init MPI_Neighbor_alltoall_init_c PMPI_Neighbor_alltoall_init_c
    scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
    )
    |call| neighbors::ineighbor_alltoall(
        call, elements(send, sent, send_type), elements(receive, received, receive_type)
    );

    Ineighbor_alltoallv Ineighbor_alltoallv_c Neighbor_alltoallv_init Neighbor_alltoallv_init_c
    MPI_Ineighbor_alltoallv PMPI_Ineighbor_alltoallv MPI_Ineighbor_alltoallv_c PMPI_Ineighbor_alltoallv_c
    MPI_Neighbor_alltoallv_init PMPI_Neighbor_alltoallv_init MPI_Neighbor_alltoallv_init_c PMPI_Neighbor_alltoallv_init_c
    [(send, sent, send_at, send_type), (receive, received, receive_at, receive_type)] (
        send: Pointer, sent: *const N, send_at: *const D, send_type: Handle,
        receive: Pointer, received: *const N, receive_at: *const D, receive_type: Handle,
    )
    |call| neighbors::ineighbor_alltoallv(
        call, blocks(send, sent, send_at, send_type),
        blocks(receive, received, receive_at, receive_type)
    );

    Ineighbor_alltoallw Ineighbor_alltoallw_c Neighbor_alltoallw_init Neighbor_alltoallw_init_c
    MPI_Ineighbor_alltoallw PMPI_Ineighbor_alltoallw MPI_Ineighbor_alltoallw_c PMPI_Ineighbor_alltoallw_c
    MPI_Neighbor_alltoallw_init PMPI_Neighbor_alltoallw_init MPI_Neighbor_alltoallw_init_c PMPI_Neighbor_alltoallw_init_c
    [(send, sent, send_at, send_types), (receive, received, receive_at, receive_types)] (
        send: Pointer, sent: *const N, send_at: *const Aint, send_types: Pointer,
        receive: Pointer, received: *const N, receive_at: *const Aint, receive_types: Pointer,
    )
    |call| neighbors::ineighbor_alltoallw(
        call, typed(send, sent, send_at, send_types),
        typed(receive, received, receive_at, receive_types)
    );
}

export! {
    MPI_Ibarrier PMPI_Ibarrier(communicator: Handle, request: Pointer) {
        let leave = || call!(Ibarrier(communicator, request));
        // SAFETY: the program passes the address of a handle.
        unsafe { take(Kind::Ibarrier, communicator, request, collectives::ibarrier, leave) }
    }

    MPI_Barrier_init PMPI_Barrier_init(communicator: Handle, info: Handle, request: Pointer) {
        let leave = || call!(Barrier_init(communicator, info, request));
        let communicator = (communicator, Vec::new());
        // SAFETY: the program passes the address of a handle.
        unsafe { prepare(Kind::Barrier_init, communicator, request, collectives::ibarrier, leave) }
    }
}
