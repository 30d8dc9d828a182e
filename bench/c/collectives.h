/* One measured collective: its buffers, its blocking and nonblocking call, and the check that its result is right.
 *
 * Bytes follow MPI's own convention: barrier has none; bcast, reduce, allreduce, scan and exscan count the whole message, all
 * others one block (the message of one pair of ranks). Elements are doubles. The v-forms have blocks of equal size, as in the
 * OSU benchmarks. */
#ifndef COLLECTIVES_H
#define COLLECTIVES_H

#include "measure.h"
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum operation {
    BARRIER, ALLREDUCE, ALLTOALL, BCAST, NEIGHBOR, REDUCE, SCATTER, GATHER, ALLGATHER, REDUCE_SCATTER, SCAN, EXSCAN,
    ALLTOALLV, ALLGATHERV, GATHERV, SCATTERV, NEIGHBOR_GATHER
};
static const char *const operation_names[] = {
    "barrier", "allreduce", "alltoall", "bcast", "neighbor", "reduce", "scatter", "gather", "allgather", "reducescatter", "scan",
    "exscan", "alltoallv", "allgatherv", "gatherv", "scatterv", "neighborgather"
};
enum { OPERATIONS = 17, NEIGHBORS = 4 };

struct collective {
    enum operation operation;
    int bytes;               /* as given on the command line */
    struct computation computation; /* that it runs under; none measures it alone only */
    int rank, ranks;
    int elements;            /* doubles in a block */
    int sends, receives;     /* blocks in the buffers, on a rank that is the root */
    double *send, *receive;  /* private memory, page aligned; bcast uses `receive` only */
    MPI_Comm communicator;   /* the world, or the periodic grid for neighbor */
    int neighbors[NEIGHBORS];
    int *counts, *places;    /* of the blocks of all ranks, in doubles */
};

static inline void stop(const struct collective *c, const char *what) {
    fprintf(stderr, "rank %d: %s %d bytes: %s\n", c->rank, operation_names[c->operation], c->bytes, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static inline double *buffer(const struct collective *c, int blocks) {
    void *memory = NULL;
    size_t size = (size_t)c->elements * (size_t)blocks * sizeof(double);
    if (posix_memalign(&memory, 4096, size < 4096 ? 4096 : size))
        stop(c, "no memory for the buffers");
    else
        memset(memory, 0, size);
    return memory;
}

static inline int is_of_grid(enum operation operation) {
    return operation == NEIGHBOR || operation == NEIGHBOR_GATHER;
}

/* How many blocks the operation sends and receives. */
static inline void count_blocks(struct collective *c) {
    c->sends = c->receives = 1;
    switch (c->operation) {
    case ALLTOALL: case ALLTOALLV: c->sends = c->receives = c->ranks; break;
    case SCATTER: case SCATTERV: case REDUCE_SCATTER: c->sends = c->ranks; break;
    case GATHER: case GATHERV: case ALLGATHER: case ALLGATHERV: c->receives = c->ranks; break;
    case NEIGHBOR: c->sends = c->receives = NEIGHBORS; break;
    case NEIGHBOR_GATHER: c->receives = NEIGHBORS; break;
    default: break;
    }
}

/* Reads OPERATION:BYTES:COMPUTATION and makes everything the calls need. A computation is as measure.h reads it. */
static inline struct collective open_collective(const char *text) {
    struct collective c = {.communicator = MPI_COMM_WORLD};
    char name[16], amount[32];
    MPI_Comm_rank(MPI_COMM_WORLD, &c.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c.ranks);
    int found = sscanf(text, "%15[a-z]:%d:%31s", name, &c.bytes, amount);
    int operation = 0;
    while (found == 3 && operation < OPERATIONS && strcmp(name, operation_names[operation]))
        operation++;
    if (found != 3 || operation == OPERATIONS || !read_computation(amount, &c.computation)) {
        fprintf(stderr, "'%s' is no row: give OPERATION:BYTES:COMPUTATION, such as allreduce:8:0\n", text);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    c.operation = (enum operation)operation;
    c.elements = c.bytes / (int)sizeof(double);
    if (is_of_grid(c.operation)) {
        int dimensions[2] = {0, 0}, periodic[2] = {1, 1};
        MPI_Dims_create(c.ranks, 2, dimensions);
        MPI_Cart_create(MPI_COMM_WORLD, 2, dimensions, periodic, 0, &c.communicator);
        for (int d = 0; d < 2; d++)
            MPI_Cart_shift(c.communicator, d, 1, &c.neighbors[2 * d], &c.neighbors[2 * d + 1]);
    }
    count_blocks(&c);
    c.send = buffer(&c, c.sends);
    c.receive = buffer(&c, c.receives);
    c.counts = malloc(sizeof *c.counts * (size_t)c.ranks);
    c.places = malloc(sizeof *c.places * (size_t)c.ranks);
    if (!c.counts || !c.places)
        stop(&c, "no memory for the counts");
    for (int i = 0; i < c.ranks; i++) {
        c.counts[i] = c.elements;
        c.places[i] = i * c.elements;
    }
    return c;
}

static inline void close_collective(struct collective *c) {
    free(c->send);
    free(c->receive);
    free(c->counts);
    free(c->places);
    if (is_of_grid(c->operation))
        MPI_Comm_free(&c->communicator);
}

static inline void fill(double *block, int elements, double value) {
    for (int i = 0; i < elements; i++)
        block[i] = value;
}

/* Computes this repetition's values: every element that will be sent is written anew, as in a program with changing
   data. Otherwise the data would lie in both cores' caches from the first repetition on, and a library that copies once would
   never move it between them. */
static inline void prepare(struct collective *c, int root, int repetition) {
    if (c->operation == BARRIER)
        return;
    for (int b = 0; b < c->sends; b++) {
        double value = c->rank * 1000.0 + repetition;
        switch (c->operation) {
        case ALLTOALL: case ALLTOALLV: case REDUCE_SCATTER: value += b; break;
        /* Every root sends the same values. */
        case SCATTER: case SCATTERV: value = b * 1000.0 + repetition; break;
        default: break;
        }
        fill(c->send + (size_t)b * c->elements, c->elements, value);
    }
    for (int b = 0; b < c->receives; b++) {
        double *receive = c->receive + (size_t)b * c->elements;
        if (c->operation == BCAST && c->rank == root)
            fill(receive, c->elements, c->rank * 1000.0 + repetition);
        else
            receive[0] = receive[c->elements - 1] = -1;
    }
}

/* Writes the values that this rank sends anew, so that they lie in its cache only. */
static inline void rewrite(struct collective *c, int root) {
    int sends_it = c->operation == BCAST && c->rank == root;
    double *blocks = sends_it ? c->receive : c->send;
    for (int b = 0; b < (sends_it ? c->receives : c->sends); b++) {
        double *block = blocks + (size_t)b * c->elements;
        fill(block, c->elements, *(volatile double *)block);
    }
}

/* What is to be in block b of what this rank received. */
static inline double expected_value(const struct collective *c, int root, int repetition, int b) {
    switch (c->operation) {
    case BARRIER: break;
    case ALLREDUCE: case REDUCE: return c->ranks * (double)repetition + 1000.0 * c->ranks * (c->ranks - 1) / 2;
    case ALLTOALL: case ALLTOALLV: return repetition + b * 1000.0 + c->rank;
    case BCAST: return repetition + root * 1000.0;
    case NEIGHBOR: case NEIGHBOR_GATHER: return repetition + c->neighbors[b] * 1000.0;
    case SCATTER: case SCATTERV: return repetition + c->rank * 1000.0;
    case GATHER: case GATHERV: case ALLGATHER: case ALLGATHERV: return repetition + b * 1000.0;
    case REDUCE_SCATTER: return c->ranks * (double)(repetition + c->rank) + 1000.0 * c->ranks * (c->ranks - 1) / 2;
    case SCAN: return (c->rank + 1) * (double)repetition + 1000.0 * c->rank * (c->rank + 1) / 2;
    case EXSCAN: return c->rank * (double)repetition + 1000.0 * c->rank * (c->rank - 1) / 2;
    }
    return repetition;
}

/* Reads them back on the other side, every element or the first and the last of each block: a library that is fast because it
   does nothing does not pass. Every rank has been the root before. */
static inline void check(const struct collective *c, int root, int repetition, int every) {
    if (c->operation == BARRIER || (c->operation == EXSCAN && c->rank == 0))
        return;
    for (int b = 0; b < c->receives; b++) {
        double expected = expected_value(c, root, repetition, b);
        const volatile double *block = c->receive + (size_t)b * c->elements;
        for (int i = 0; i < c->elements; i += every || c->elements < 2 ? 1 : c->elements - 1)
            if (block[i] != expected)
                stop(c, "the result is wrong");
    }
}

static inline void call_blocking(struct collective *c, int root) {
    const MPI_Datatype type = MPI_DOUBLE;
    const int n = c->elements;
    double *send = c->send, *receive = c->receive;
    MPI_Comm world = c->communicator;
    switch (c->operation) {
    case BARRIER: MPI_Barrier(world); break;
    case ALLREDUCE: MPI_Allreduce(send, receive, n, type, MPI_SUM, world); break;
    case ALLTOALL: MPI_Alltoall(send, n, type, receive, n, type, world); break;
    case BCAST: MPI_Bcast(receive, n, type, root, world); break;
    case NEIGHBOR: MPI_Neighbor_alltoall(send, n, type, receive, n, type, world); break;
    case REDUCE: MPI_Reduce(send, receive, n, type, MPI_SUM, root, world); break;
    case SCATTER: MPI_Scatter(send, n, type, receive, n, type, root, world); break;
    case GATHER: MPI_Gather(send, n, type, receive, n, type, root, world); break;
    case ALLGATHER: MPI_Allgather(send, n, type, receive, n, type, world); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(send, receive, n, type, MPI_SUM, world); break;
    case SCAN: MPI_Scan(send, receive, n, type, MPI_SUM, world); break;
    case EXSCAN: MPI_Exscan(send, receive, n, type, MPI_SUM, world); break;
    case ALLTOALLV: MPI_Alltoallv(send, c->counts, c->places, type, receive, c->counts, c->places, type, world); break;
    case ALLGATHERV: MPI_Allgatherv(send, n, type, receive, c->counts, c->places, type, world); break;
    case GATHERV: MPI_Gatherv(send, n, type, receive, c->counts, c->places, type, root, world); break;
    case SCATTERV: MPI_Scatterv(send, c->counts, c->places, type, receive, n, type, root, world); break;
    case NEIGHBOR_GATHER: MPI_Neighbor_allgather(send, n, type, receive, n, type, world); break;
    }
}

/* Only those that bench/peers measures under a computation. */
static inline MPI_Request start(struct collective *c, int root) {
    const MPI_Datatype type = MPI_DOUBLE;
    const int n = c->elements;
    double *send = c->send, *receive = c->receive;
    MPI_Comm world = c->communicator;
    MPI_Request request = MPI_REQUEST_NULL;
    switch (c->operation) {
    case BARRIER: MPI_Ibarrier(world, &request); break;
    case ALLREDUCE: MPI_Iallreduce(send, receive, n, type, MPI_SUM, world, &request); break;
    case ALLTOALL: MPI_Ialltoall(send, n, type, receive, n, type, world, &request); break;
    case BCAST: MPI_Ibcast(receive, n, type, root, world, &request); break;
    case NEIGHBOR: MPI_Ineighbor_alltoall(send, n, type, receive, n, type, world, &request); break;
    default: stop(c, "is measured by its blocking call only");
    }
    return request;
}

static inline void start_and_wait(struct collective *c, int root) {
    MPI_Request request = start(c, root);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

#endif
