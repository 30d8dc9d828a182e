//! The names of the collectives: blocking, nonblocking and persistent.
#![allow(non_snake_case, reason = "the names and rules of MPI")]

use crate::blocking;
use crate::collective_forms::{
    AddHandle, Narrow, collectives, decisive, examine, handles, run_or_leave, without_large,
};
use crate::collectives::{self, Blocks, Elements, TypedBlocks};
use crate::combining::{self, Prefix, Reduced, Reduction};
use crate::host::{self, Aint, Count, Handle, Pointer, call, pass};
use crate::kind::Kind;
use crate::names::export;
use crate::narrow::{self, Form};
use crate::neighbors;
use crate::selection::{self, Decisive};
use crate::take::{self, prepare};
use std::ffi::c_int;

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
    Bcast Bcast_c Ibcast Ibcast_c Bcast_init Bcast_init_c
    MPI_Bcast PMPI_Bcast MPI_Bcast_c PMPI_Bcast_c
    MPI_Ibcast PMPI_Ibcast MPI_Ibcast_c PMPI_Ibcast_c
    MPI_Bcast_init PMPI_Bcast_init MPI_Bcast_init_c PMPI_Bcast_init_c
    scalars(
        buffer: Pointer, count: N, datatype: Handle, root: c_int
    )
    [count of datatype]
    |call| collectives::bcast(call, elements(buffer, count, datatype), root);

    Gather Gather_c Igather Igather_c Gather_init Gather_init_c
    MPI_Gather PMPI_Gather MPI_Gather_c PMPI_Gather_c
    MPI_Igather PMPI_Igather MPI_Igather_c PMPI_Igather_c
    MPI_Gather_init PMPI_Gather_init MPI_Gather_init_c PMPI_Gather_init_c
    scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
        root: c_int,
    )
    [received of receive_type at root else sent of send_type]
    |call| collectives::gather(
        call, elements(send, sent, send_type), elements(receive, received, receive_type), root
    );

    Gatherv Gatherv_c Igatherv Igatherv_c Gatherv_init Gatherv_init_c
    MPI_Gatherv PMPI_Gatherv MPI_Gatherv_c PMPI_Gatherv_c
    MPI_Igatherv PMPI_Igatherv MPI_Igatherv_c PMPI_Igatherv_c
    MPI_Gatherv_init PMPI_Gatherv_init MPI_Gatherv_init_c PMPI_Gatherv_init_c
    [(send, sent, send_type), (receive, counts, displacements, receive_type); root] (
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, counts: *const N,
        displacements: *const D, receive_type: Handle, root: c_int,
    )
    |call| collectives::gatherv(
        call, elements(send, sent, send_type), blocks(receive, counts, displacements, receive_type),
        root
    );

    Scatter Scatter_c Iscatter Iscatter_c Scatter_init Scatter_init_c
    MPI_Scatter PMPI_Scatter MPI_Scatter_c PMPI_Scatter_c
    MPI_Iscatter PMPI_Iscatter MPI_Iscatter_c PMPI_Iscatter_c
    MPI_Scatter_init PMPI_Scatter_init MPI_Scatter_init_c PMPI_Scatter_init_c
    scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
        root: c_int,
    )
    [sent of send_type at root else received of receive_type]
    |call| collectives::scatter(
        call, elements(send, sent, send_type), elements(receive, received, receive_type), root
    );

    Scatterv Scatterv_c Iscatterv Iscatterv_c Scatterv_init Scatterv_init_c
    MPI_Scatterv PMPI_Scatterv MPI_Scatterv_c PMPI_Scatterv_c
    MPI_Iscatterv PMPI_Iscatterv MPI_Iscatterv_c PMPI_Iscatterv_c
    MPI_Scatterv_init PMPI_Scatterv_init MPI_Scatterv_init_c PMPI_Scatterv_init_c
    [(send, counts, displacements, send_type), (receive, received, receive_type); root] (
        send: Pointer, counts: *const N, displacements: *const D, send_type: Handle,
        receive: Pointer, received: N, receive_type: Handle, root: c_int,
    )
    |call| collectives::scatterv(
        call, blocks(send, counts, displacements, send_type),
        elements(receive, received, receive_type), root
    );

    Allgather Allgather_c Iallgather Iallgather_c Allgather_init Allgather_init_c
    MPI_Allgather PMPI_Allgather MPI_Allgather_c PMPI_Allgather_c
    MPI_Iallgather PMPI_Iallgather MPI_Iallgather_c PMPI_Iallgather_c
    MPI_Allgather_init PMPI_Allgather_init MPI_Allgather_init_c PMPI_Allgather_init_c
    scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
    )
    [received of receive_type]
    |call| collectives::allgather(
        call, elements(send, sent, send_type), elements(receive, received, receive_type)
    );

    Allgatherv Allgatherv_c Iallgatherv Iallgatherv_c Allgatherv_init Allgatherv_init_c
    MPI_Allgatherv PMPI_Allgatherv MPI_Allgatherv_c PMPI_Allgatherv_c
    MPI_Iallgatherv PMPI_Iallgatherv MPI_Iallgatherv_c PMPI_Iallgatherv_c
    MPI_Allgatherv_init PMPI_Allgatherv_init MPI_Allgatherv_init_c PMPI_Allgatherv_init_c
    [(send, sent, send_type), (receive, counts, displacements, receive_type)] (
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, counts: *const N,
        displacements: *const D, receive_type: Handle,
    )
    |call| collectives::allgatherv(
        call, elements(send, sent, send_type), blocks(receive, counts, displacements, receive_type)
    );

    Alltoall Alltoall_c Ialltoall Ialltoall_c Alltoall_init Alltoall_init_c
    MPI_Alltoall PMPI_Alltoall MPI_Alltoall_c PMPI_Alltoall_c
    MPI_Ialltoall PMPI_Ialltoall MPI_Ialltoall_c PMPI_Ialltoall_c
    MPI_Alltoall_init PMPI_Alltoall_init MPI_Alltoall_init_c PMPI_Alltoall_init_c
    scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
    )
    [received of receive_type]
    |call| collectives::alltoall(
        call, elements(send, sent, send_type), elements(receive, received, receive_type)
    );

    Alltoallv Alltoallv_c Ialltoallv Ialltoallv_c Alltoallv_init Alltoallv_init_c
    MPI_Alltoallv PMPI_Alltoallv MPI_Alltoallv_c PMPI_Alltoallv_c
    MPI_Ialltoallv PMPI_Ialltoallv MPI_Ialltoallv_c PMPI_Ialltoallv_c
    MPI_Alltoallv_init PMPI_Alltoallv_init MPI_Alltoallv_init_c PMPI_Alltoallv_init_c
    [(send, sent, send_at, send_type), (receive, received, receive_at, receive_type)] (
        send: Pointer, sent: *const N, send_at: *const D, send_type: Handle,
        receive: Pointer, received: *const N, receive_at: *const D, receive_type: Handle,
    )
    |call| collectives::alltoallv(
        call, blocks(send, sent, send_at, send_type),
        blocks(receive, received, receive_at, receive_type)
    );

    Alltoallw Alltoallw_c Ialltoallw Ialltoallw_c Alltoallw_init Alltoallw_init_c
    MPI_Alltoallw PMPI_Alltoallw MPI_Alltoallw_c PMPI_Alltoallw_c
    MPI_Ialltoallw PMPI_Ialltoallw MPI_Ialltoallw_c PMPI_Ialltoallw_c
    MPI_Alltoallw_init PMPI_Alltoallw_init MPI_Alltoallw_init_c PMPI_Alltoallw_init_c
    [(send, sent, send_at, send_types), (receive, received, receive_at, receive_types)] (
        send: Pointer, sent: *const N, send_at: *const D, send_types: Pointer,
        receive: Pointer, received: *const N, receive_at: *const D, receive_types: Pointer,
    )
    |call| collectives::alltoallw(
        call, typed(send, sent, send_at, send_types),
        typed(receive, received, receive_at, receive_types)
    );

    Reduce Reduce_c Ireduce Ireduce_c Reduce_init Reduce_init_c
    MPI_Reduce PMPI_Reduce MPI_Reduce_c PMPI_Reduce_c
    MPI_Ireduce PMPI_Ireduce MPI_Ireduce_c PMPI_Ireduce_c
    MPI_Reduce_init PMPI_Reduce_init MPI_Reduce_init_c PMPI_Reduce_init_c
    scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle, root: c_int,
    )
    [count of datatype]
    |call| combining::reduce(
        call, reduced(send, receive, count), reduction(datatype, operation), root
    );

    Allreduce Allreduce_c Iallreduce Iallreduce_c Allreduce_init Allreduce_init_c
    MPI_Allreduce PMPI_Allreduce MPI_Allreduce_c PMPI_Allreduce_c
    MPI_Iallreduce PMPI_Iallreduce MPI_Iallreduce_c PMPI_Iallreduce_c
    MPI_Allreduce_init PMPI_Allreduce_init MPI_Allreduce_init_c PMPI_Allreduce_init_c
    scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle,
    )
    [count of datatype]
    |call| combining::allreduce(
        call, reduced(send, receive, count), reduction(datatype, operation)
    );

    Reduce_scatter Reduce_scatter_c Ireduce_scatter Ireduce_scatter_c Reduce_scatter_init Reduce_scatter_init_c
    MPI_Reduce_scatter PMPI_Reduce_scatter MPI_Reduce_scatter_c PMPI_Reduce_scatter_c
    MPI_Ireduce_scatter PMPI_Ireduce_scatter MPI_Ireduce_scatter_c PMPI_Ireduce_scatter_c
    MPI_Reduce_scatter_init PMPI_Reduce_scatter_init MPI_Reduce_scatter_init_c PMPI_Reduce_scatter_init_c
    [(send, receive), counts, (datatype, operation)] (
        send: Pointer, receive: Pointer, counts: *const N, datatype: Handle, operation: Handle,
    )
    |call| combining::reduce_scatter(
        call, (send, receive), counts, reduction(datatype, operation)
    );

    Reduce_scatter_block Reduce_scatter_block_c Ireduce_scatter_block Ireduce_scatter_block_c Reduce_scatter_block_init Reduce_scatter_block_init_c
    MPI_Reduce_scatter_block PMPI_Reduce_scatter_block MPI_Reduce_scatter_block_c PMPI_Reduce_scatter_block_c
    MPI_Ireduce_scatter_block PMPI_Ireduce_scatter_block MPI_Ireduce_scatter_block_c PMPI_Ireduce_scatter_block_c
    MPI_Reduce_scatter_block_init PMPI_Reduce_scatter_block_init MPI_Reduce_scatter_block_init_c PMPI_Reduce_scatter_block_init_c
    scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle,
    )
    [count of datatype]
    |call| combining::reduce_scatter_block(
        call, reduced(send, receive, count), reduction(datatype, operation)
    );

    Scan Scan_c Iscan Iscan_c Scan_init Scan_init_c
    MPI_Scan PMPI_Scan MPI_Scan_c PMPI_Scan_c
    MPI_Iscan PMPI_Iscan MPI_Iscan_c PMPI_Iscan_c
    MPI_Scan_init PMPI_Scan_init MPI_Scan_init_c PMPI_Scan_init_c
    scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle,
    )
    [count of datatype]
    |call| combining::scan(
        call, reduced(send, receive, count), reduction(datatype, operation), Prefix::Inclusive
    );

    Exscan Exscan_c Iexscan Iexscan_c Exscan_init Exscan_init_c
    MPI_Exscan PMPI_Exscan MPI_Exscan_c PMPI_Exscan_c
    MPI_Iexscan PMPI_Iexscan MPI_Iexscan_c PMPI_Iexscan_c
    MPI_Exscan_init PMPI_Exscan_init MPI_Exscan_init_c PMPI_Exscan_init_c
    scalars(
        send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle,
    )
    [count of datatype]
    |call| combining::scan(
        call, reduced(send, receive, count), reduction(datatype, operation), Prefix::Exclusive
    );

    Neighbor_allgather Neighbor_allgather_c Ineighbor_allgather Ineighbor_allgather_c Neighbor_allgather_init Neighbor_allgather_init_c
    MPI_Neighbor_allgather PMPI_Neighbor_allgather MPI_Neighbor_allgather_c PMPI_Neighbor_allgather_c
    MPI_Ineighbor_allgather PMPI_Ineighbor_allgather MPI_Ineighbor_allgather_c PMPI_Ineighbor_allgather_c
    MPI_Neighbor_allgather_init PMPI_Neighbor_allgather_init MPI_Neighbor_allgather_init_c PMPI_Neighbor_allgather_init_c
    scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
    )
    |call| neighbors::neighbor_allgather(
        call, elements(send, sent, send_type), elements(receive, received, receive_type)
    );

    Neighbor_allgatherv Neighbor_allgatherv_c Ineighbor_allgatherv Ineighbor_allgatherv_c Neighbor_allgatherv_init Neighbor_allgatherv_init_c
    MPI_Neighbor_allgatherv PMPI_Neighbor_allgatherv MPI_Neighbor_allgatherv_c PMPI_Neighbor_allgatherv_c
    MPI_Ineighbor_allgatherv PMPI_Ineighbor_allgatherv MPI_Ineighbor_allgatherv_c PMPI_Ineighbor_allgatherv_c
    MPI_Neighbor_allgatherv_init PMPI_Neighbor_allgatherv_init MPI_Neighbor_allgatherv_init_c PMPI_Neighbor_allgatherv_init_c
    [(send, sent, send_type), (receive, counts, displacements, receive_type)] (
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, counts: *const N,
        displacements: *const D, receive_type: Handle,
    )
    |call| neighbors::neighbor_allgatherv(
        call, elements(send, sent, send_type), blocks(receive, counts, displacements, receive_type)
    );

    Neighbor_alltoall Neighbor_alltoall_c Ineighbor_alltoall Ineighbor_alltoall_c Neighbor_alltoall_init Neighbor_alltoall_init_c
    MPI_Neighbor_alltoall PMPI_Neighbor_alltoall MPI_Neighbor_alltoall_c PMPI_Neighbor_alltoall_c
    MPI_Ineighbor_alltoall PMPI_Ineighbor_alltoall MPI_Ineighbor_alltoall_c PMPI_Ineighbor_alltoall_c
    MPI_Neighbor_alltoall_init PMPI_Neighbor_alltoall_init MPI_Neighbor_alltoall_init_c PMPI_Neighbor_alltoall_init_c
    scalars(
        send: Pointer, sent: N, send_type: Handle, receive: Pointer, received: N, receive_type: Handle,
    )
    |call| neighbors::neighbor_alltoall(
        call, elements(send, sent, send_type), elements(receive, received, receive_type)
    );

    Neighbor_alltoallv Neighbor_alltoallv_c Ineighbor_alltoallv Ineighbor_alltoallv_c Neighbor_alltoallv_init Neighbor_alltoallv_init_c
    MPI_Neighbor_alltoallv PMPI_Neighbor_alltoallv MPI_Neighbor_alltoallv_c PMPI_Neighbor_alltoallv_c
    MPI_Ineighbor_alltoallv PMPI_Ineighbor_alltoallv MPI_Ineighbor_alltoallv_c PMPI_Ineighbor_alltoallv_c
    MPI_Neighbor_alltoallv_init PMPI_Neighbor_alltoallv_init MPI_Neighbor_alltoallv_init_c PMPI_Neighbor_alltoallv_init_c
    [(send, sent, send_at, send_type), (receive, received, receive_at, receive_type)] (
        send: Pointer, sent: *const N, send_at: *const D, send_type: Handle,
        receive: Pointer, received: *const N, receive_at: *const D, receive_type: Handle,
    )
    |call| neighbors::neighbor_alltoallv(
        call, blocks(send, sent, send_at, send_type),
        blocks(receive, received, receive_at, receive_type)
    );

    Neighbor_alltoallw Neighbor_alltoallw_c Ineighbor_alltoallw Ineighbor_alltoallw_c Neighbor_alltoallw_init Neighbor_alltoallw_init_c
    MPI_Neighbor_alltoallw PMPI_Neighbor_alltoallw MPI_Neighbor_alltoallw_c PMPI_Neighbor_alltoallw_c
    MPI_Ineighbor_alltoallw PMPI_Ineighbor_alltoallw MPI_Ineighbor_alltoallw_c PMPI_Ineighbor_alltoallw_c
    MPI_Neighbor_alltoallw_init PMPI_Neighbor_alltoallw_init MPI_Neighbor_alltoallw_init_c PMPI_Neighbor_alltoallw_init_c
    [(send, sent, send_at, send_types), (receive, received, receive_at, receive_types)] (
        send: Pointer, sent: *const N, send_at: *const Aint, send_types: Pointer,
        receive: Pointer, received: *const N, receive_at: *const Aint, receive_types: Pointer,
    )
    |call| neighbors::neighbor_alltoallw(
        call, typed(send, sent, send_at, send_types),
        typed(receive, received, receive_at, receive_types)
    );
}

export! {
    MPI_Barrier PMPI_Barrier(communicator: Handle) {
        examine!(Barrier Barrier(communicator: Handle) {
            run_or_leave!(
                Barrier, communicator, Decisive::None, blocking::run(),
                collectives::barrier,
                move || pass!(Barrier(communicator))
            )
        })
    }

    MPI_Ibarrier PMPI_Ibarrier(communicator: Handle, request: Pointer) {
        examine!(Ibarrier Ibarrier(communicator: Handle, request: Pointer) {
            run_or_leave!(
                Ibarrier, communicator, Decisive::None, take::take(request),
                collectives::barrier,
                move || pass!(Ibarrier(communicator, request))
            )
        })
    }

    MPI_Barrier_init PMPI_Barrier_init(communicator: Handle, info: Handle, request: Pointer) {
        let leave = || call!(Barrier_init(communicator, info, request));
        let communicator = (communicator, Vec::new());
        // SAFETY: the program passes the address of a handle.
        unsafe { prepare(Kind::Barrier_init, communicator, request, collectives::barrier, leave) }
    }
}
