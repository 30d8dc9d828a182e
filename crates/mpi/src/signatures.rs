//! The functions of the MPI library that this one replaces, a row for each. The names of both
//! libraries, the types, and the forms of the collectives follow from the rows.

/// Calls a macro with a row for each collective:
///
/// * its name at the begin of a name and inside one,
/// * what its length is made of ([`Lengths`](crate::kind::Lengths)),
/// * in brackets the [`Decisive`](crate::selection::Decisive) block, if the arguments name one,
/// * the arguments without the communicator and what follows it; `N` and `D` are the types of counts
///   and of displacements,
/// * the lengths of the lists of both buffers, by the communicator; none where no form has counts,
/// * the translation of the arguments for tradewind.
macro_rules! with_collectives {
    ($callback:ident) => {
        $callback! {
            Barrier barrier Nothing [] ()
                |call| collectives::barrier(call);
            Bcast bcast Block [received of receive_type] (
                receive: Pointer, received: N, receive_type: Handle, root: c_int
            ) lists none,
                |call| collectives::bcast(call, elements(receive, received, receive_type), root);
            Gather gather Blocks [received of receive_type at root else sent of send_type] (
                send: Pointer, sent: N, send_type: Handle,
                receive: Pointer, received: N, receive_type: Handle, root: c_int
            ) lists none,
                |call| collectives::gather(
                    call, elements(send, sent, send_type), elements(receive, received, receive_type), root
                );
            Gatherv gatherv Unknown [] (
                send: Pointer, sent: N, send_type: Handle, receive: Pointer, counts: *const N,
                displacements: *const D, receive_type: Handle, root: c_int
            ) lists |communicator| ranks_at_root(communicator, root),
                |call| collectives::gather(
                    call, elements(send, sent, send_type),
                    blocks(receive, counts, displacements, receive_type), root
                );
            Scatter scatter Blocks [sent of send_type at root else received of receive_type] (
                send: Pointer, sent: N, send_type: Handle,
                receive: Pointer, received: N, receive_type: Handle, root: c_int
            ) lists none,
                |call| collectives::scatter(
                    call, elements(send, sent, send_type), elements(receive, received, receive_type), root
                );
            Scatterv scatterv Unknown [] (
                send: Pointer, counts: *const N, displacements: *const D, send_type: Handle,
                receive: Pointer, received: N, receive_type: Handle, root: c_int
            ) lists |communicator| ranks_at_root(communicator, root),
                |call| collectives::scatter(
                    call, blocks(send, counts, displacements, send_type),
                    elements(receive, received, receive_type), root
                );
            Allgather allgather Blocks [received of receive_type] (
                send: Pointer, sent: N, send_type: Handle,
                receive: Pointer, received: N, receive_type: Handle
            ) lists none,
                |call| collectives::allgather(
                    call, elements(send, sent, send_type), elements(receive, received, receive_type)
                );
            Allgatherv allgatherv List [] (
                send: Pointer, sent: N, send_type: Handle, receive: Pointer, counts: *const N,
                displacements: *const D, receive_type: Handle
            ) lists ranks,
                |call| collectives::allgather(
                    call, elements(send, sent, send_type),
                    blocks(receive, counts, displacements, receive_type)
                );
            Alltoall alltoall Blocks [received of receive_type] (
                send: Pointer, sent: N, send_type: Handle,
                receive: Pointer, received: N, receive_type: Handle
            ) lists none,
                |call| collectives::alltoall(
                    call, elements(send, sent, send_type), elements(receive, received, receive_type)
                );
            Alltoallv alltoallv Unknown [] (
                send: Pointer, send_counts: *const N, send_at: *const D, send_type: Handle,
                receive: Pointer, counts: *const N, displacements: *const D, receive_type: Handle
            ) lists ranks,
                |call| collectives::alltoallv(
                    call, blocks(send, send_counts, send_at, send_type),
                    blocks(receive, counts, displacements, receive_type)
                );
            Alltoallw alltoallw Unknown [] (
                send: Pointer, send_counts: *const N, send_at: *const D, send_types: Types,
                receive: Pointer, counts: *const N, displacements: *const D, receive_types: Types
            ) lists ranks,
                |call| collectives::alltoallv(
                    call, typed(send, send_counts, send_at, send_types),
                    typed(receive, counts, displacements, receive_types)
                );
            Reduce reduce Block [count of datatype] (
                send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle,
                root: c_int
            ) lists none,
                |call| combining::reduce(
                    call, reduced(send, receive, count), reduction(datatype, operation), root
                );
            Allreduce allreduce Block [count of datatype] (
                send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle
            ) lists none,
                |call| combining::allreduce(
                    call, reduced(send, receive, count), reduction(datatype, operation)
                );
            Reduce_scatter reduce_scatter List [] (
                send: Pointer, receive: Pointer, number_list: *const N, datatype: Handle,
                operation: Handle
            ) lists own_group,
                |call| combining::reduce_scatter(
                    call, (send, receive), number_list, reduction(datatype, operation)
                );
            Reduce_scatter_block reduce_scatter_block Blocks [count of datatype] (
                send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle
            ) lists none,
                |call| combining::reduce_scatter_block(
                    call, reduced(send, receive, count), reduction(datatype, operation)
                );
            Scan scan Block [count of datatype] (
                send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle
            ) lists none,
                |call| combining::scan(
                    call, reduced(send, receive, count), reduction(datatype, operation),
                    Prefix::Inclusive
                );
            Exscan exscan Block [count of datatype] (
                send: Pointer, receive: Pointer, count: N, datatype: Handle, operation: Handle
            ) lists none,
                |call| combining::scan(
                    call, reduced(send, receive, count), reduction(datatype, operation),
                    Prefix::Exclusive
                );
            Neighbor_allgather neighbor_allgather Neighbors [] (
                send: Pointer, sent: N, send_type: Handle,
                receive: Pointer, received: N, receive_type: Handle
            ) lists none,
                |call| neighbors::neighbor_allgather(
                    call, elements(send, sent, send_type), elements(receive, received, receive_type)
                );
            Neighbor_allgatherv neighbor_allgatherv Neighbors [] (
                send: Pointer, sent: N, send_type: Handle, receive: Pointer, counts: *const N,
                displacements: *const D, receive_type: Handle
            ) lists neighbors_of,
                |call| neighbors::neighbor_allgather(
                    call, elements(send, sent, send_type),
                    blocks(receive, counts, displacements, receive_type)
                );
            Neighbor_alltoall neighbor_alltoall Neighbors [] (
                send: Pointer, sent: N, send_type: Handle,
                receive: Pointer, received: N, receive_type: Handle
            ) lists none,
                |call| neighbors::neighbor_alltoall(
                    call, elements(send, sent, send_type), elements(receive, received, receive_type)
                );
            Neighbor_alltoallv neighbor_alltoallv Neighbors [] (
                send: Pointer, send_counts: *const N, send_at: *const D, send_type: Handle,
                receive: Pointer, counts: *const N, displacements: *const D, receive_type: Handle
            ) lists neighbors_of,
                |call| neighbors::neighbor_alltoall(
                    call, blocks(send, send_counts, send_at, send_type),
                    blocks(receive, counts, displacements, receive_type)
                );
            Neighbor_alltoallw neighbor_alltoallw Neighbors [] (
                send: Pointer, send_counts: *const N, send_offsets: *const Offset, send_types: Types,
                receive: Pointer, counts: *const N, offsets: *const Offset, receive_types: Types
            ) lists neighbors_of,
                |call| neighbors::neighbor_alltoall(
                    call, typed(send, send_counts, send_offsets, send_types),
                    typed(receive, counts, offsets, receive_types)
                );
        }
    };
}

/// Calls a macro with the other functions in two groups: a row with the name, the arguments, and what it
/// does here; and for each that creates a communicator, collectively over another one, the name and the
/// arguments between the two.
macro_rules! with_functions {
    ($callback:ident) => {
        $callback! {{
            Init(argc: *mut c_int, argv: Pointer) life::initialize(|| call!(Init(argc, argv)));
            Init_thread(argc: *mut c_int, argv: Pointer, required: c_int, provided: *mut c_int)
                life::initialize(|| call!(Init_thread(argc, argv, required, provided)));
            Finalize() life::finalize();
            Wait(request: Pointer, status: Pointer) completion::wait(request, status);
            Test(request: Pointer, flag: *mut c_int, status: Pointer)
                completion::test(request, flag, status);
            Waitall(count: c_int, requests: Pointer, statuses: Pointer)
                completion::wait_all(count, requests, statuses);
            Testall(count: c_int, requests: Pointer, flag: *mut c_int, statuses: Pointer)
                completion::test_all(count, requests, flag, statuses);
            Waitany(count: c_int, requests: Pointer, index: *mut c_int, status: Pointer)
                completion::wait_any(count, requests, index, status);
            Testany(
                count: c_int, requests: Pointer, index: *mut c_int, flag: *mut c_int, status: Pointer
            ) completion::test_any(count, requests, (index, flag), status, true);
            Waitsome(
                count: c_int, requests: Pointer, outcount: *mut c_int, indices: *mut c_int,
                statuses: Pointer
            ) completion::wait_some(count, requests, (outcount, indices), statuses);
            Testsome(
                count: c_int, requests: Pointer, outcount: *mut c_int, indices: *mut c_int,
                statuses: Pointer
            ) completion::test_some(count, requests, (outcount, indices), statuses, true);
            Request_get_status(request: Handle, flag: *mut c_int, status: Pointer)
                completion::get_status(request, flag, status);
            Request_get_status_all(
                count: c_int, requests: Pointer, flag: *mut c_int, statuses: Pointer
            ) completion::get_status_all(count, requests, flag, statuses);
            Request_get_status_any(
                count: c_int, requests: Pointer, index: *mut c_int, flag: *mut c_int, status: Pointer
            ) completion::test_any(count, requests, (index, flag), status, false);
            Request_get_status_some(
                count: c_int, requests: Pointer, outcount: *mut c_int, indices: *mut c_int,
                statuses: Pointer
            ) completion::test_some(count, requests, (outcount, indices), statuses, false);
            Start(request: Pointer) persistent::start(request);
            Startall(count: c_int, requests: Pointer) persistent::start_all(count, requests);
            Request_free(request: Pointer) completion::request_free(request);
            // The library of files creates communicators by the functions below. As calls inside
            // the MPI library they are not served: its collectives on files complete in functions of
            // its own.
            File_open(communicator: Handle, name: Pointer, mode: c_int, info: Handle, file: Pointer)
                call!(File_open(communicator, name, mode, info, file));
            Op_free(operation: Pointer) kept::op_free(operation);
            Type_free(datatype: Pointer) kept::type_free(datatype);
        } {
            Comm_dup();
            Comm_dup_with_info(info: Handle);
            Comm_split(color: c_int, key: c_int);
            Comm_split_type(kind: c_int, key: c_int, info: Handle);
            Comm_create(group: Handle);
            Cart_create(
                count: c_int, dimensions: *const c_int, periodic: *const c_int, reorder: c_int
            );
            Cart_sub(remaining: *const c_int);
            Graph_create(count: c_int, index: *const c_int, edges: *const c_int, reorder: c_int);
            Dist_graph_create(
                count: c_int, sources: *const c_int, degrees: *const c_int,
                destinations: *const c_int, weights: *const c_int, info: Handle, reorder: c_int
            );
            Dist_graph_create_adjacent(
                indegree: c_int, sources: *const c_int, source_weights: *const c_int,
                outdegree: c_int, destinations: *const c_int, destination_weights: *const c_int,
                info: Handle, reorder: c_int
            );
        }}
    };
}

pub(crate) use {with_collectives, with_functions};
