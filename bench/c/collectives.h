/* One measured collective: its buffers, its blocking and nonblocking call, and the check that its result is right.
 *
 * Bytes follow MPI's own convention: barrier has none, allreduce and bcast count the whole message, alltoall and
 * neighbor_alltoall count one block (the message of one pair of ranks). Elements are doubles. */
#ifndef COLLECTIVES_H
#define COLLECTIVES_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum operation { BARRIER, ALLREDUCE, ALLTOALL, BCAST, NEIGHBOR };
static const char *const operation_names[] = {"barrier", "allreduce", "alltoall", "bcast", "neighbor"};
enum { OPERATIONS = 5, NEIGHBORS = 4 };

struct collective {
    enum operation operation;
    int bytes;               /* as given on the command line */
    uint64_t iterations;     /* of the computation it runs under; 0 measures it alone only */
    int rank, ranks;
    int elements, blocks;    /* doubles in a block, blocks in a buffer */
    double *send, *receive;  /* private memory, page aligned; bcast uses `receive` only */
    MPI_Comm communicator;   /* the world, or the periodic grid for neighbor */
    int neighbors[NEIGHBORS];
};

static inline void stop(const struct collective *c, const char *what) {
    fprintf(stderr, "rank %d: %s %d bytes: %s\n", c->rank, operation_names[c->operation], c->bytes, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static inline double *buffer(const struct collective *c) {
    void *memory = NULL;
    size_t size = (size_t)c->elements * (size_t)c->blocks * sizeof(double);
    if (posix_memalign(&memory, 4096, size < 4096 ? 4096 : size))
        stop(c, "no memory for the buffers");
    else
        memset(memory, 0, size);
    return memory;
}

/* Reads OPERATION:BYTES:ITERATIONS and makes everything the calls need. */
static inline struct collective open_collective(const char *text) {
    struct collective c = {.communicator = MPI_COMM_WORLD, .blocks = 1};
    char name[16];
    unsigned long long iterations = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &c.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c.ranks);
    int found = sscanf(text, "%15[a-z]:%d:%llu", name, &c.bytes, &iterations);
    int operation = 0;
    while (found == 3 && operation < OPERATIONS && strcmp(name, operation_names[operation]))
        operation++;
    if (found != 3 || operation == OPERATIONS) {
        fprintf(stderr, "'%s' is no row: give OPERATION:BYTES:ITERATIONS, such as allreduce:8:0\n", text);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    c.operation = (enum operation)operation;
    c.iterations = iterations;
    c.elements = c.bytes / (int)sizeof(double);
    if (c.operation == ALLTOALL)
        c.blocks = c.ranks;
    if (c.operation == NEIGHBOR) {
        int dimensions[2] = {0, 0}, periodic[2] = {1, 1};
        MPI_Dims_create(c.ranks, 2, dimensions);
        MPI_Cart_create(MPI_COMM_WORLD, 2, dimensions, periodic, 0, &c.communicator);
        for (int d = 0; d < 2; d++)
            MPI_Cart_shift(c.communicator, d, 1, &c.neighbors[2 * d], &c.neighbors[2 * d + 1]);
        c.blocks = NEIGHBORS;
    }
    c.send = buffer(&c);
    c.receive = buffer(&c);
    return c;
}

static inline void close_collective(struct collective *c) {
    free(c->send);
    free(c->receive);
    if (c->operation == NEIGHBOR)
        MPI_Comm_free(&c->communicator);
}

static inline void fill(double *block, int elements, double value) {
    for (int i = 0; i < elements; i++)
        block[i] = value;
}

/* Computes this repetition's values: every element that will be sent is written anew, as a program does that has something to
   say. Were it not, the data would lie in both cores' caches from the first repetition on, and whoever copies it only once
   would never move it between them. */
static inline void prepare(struct collective *c, int root, int repetition) {
    for (int b = 0; b < c->blocks && c->operation != BARRIER; b++) {
        double value = c->operation == ALLTOALL ? c->rank * 1000.0 + b + repetition : c->rank * 1000.0 + repetition;
        double *receive = c->receive + (size_t)b * c->elements;
        fill(c->send + (size_t)b * c->elements, c->elements, value);
        if (c->operation == BCAST && c->rank == root)
            fill(receive, c->elements, value);
        else
            receive[0] = receive[c->elements - 1] = -1;
    }
}

/* Reads them back on the other side, every element or the first and the last of each block: a library that is fast because it
   does nothing does not pass. */
static inline void check(const struct collective *c, int root, int repetition, int every) {
    for (int b = 0; b < c->blocks && c->operation != BARRIER; b++) {
        double expected = repetition;
        switch (c->operation) {
        case ALLREDUCE: expected = c->ranks * (double)repetition + 1000.0 * c->ranks * (c->ranks - 1) / 2; break;
        case ALLTOALL: expected += b * 1000.0 + c->rank; break;
        case BCAST: expected += root * 1000.0; break;
        case NEIGHBOR: expected += c->neighbors[b] * 1000.0; break;
        case BARRIER: break;
        }
        const volatile double *block = c->receive + (size_t)b * c->elements;
        for (int i = 0; i < c->elements; i += every || c->elements < 2 ? 1 : c->elements - 1)
            if (block[i] != expected)
                stop(c, "the result is wrong");
    }
}

static inline void call_blocking(struct collective *c, int root) {
    switch (c->operation) {
    case BARRIER: MPI_Barrier(c->communicator); break;
    case ALLREDUCE: MPI_Allreduce(c->send, c->receive, c->elements, MPI_DOUBLE, MPI_SUM, c->communicator); break;
    case ALLTOALL:
        MPI_Alltoall(c->send, c->elements, MPI_DOUBLE, c->receive, c->elements, MPI_DOUBLE, c->communicator);
        break;
    case BCAST: MPI_Bcast(c->receive, c->elements, MPI_DOUBLE, root, c->communicator); break;
    case NEIGHBOR:
        MPI_Neighbor_alltoall(c->send, c->elements, MPI_DOUBLE, c->receive, c->elements, MPI_DOUBLE, c->communicator);
        break;
    }
}

static inline MPI_Request start(struct collective *c, int root) {
    MPI_Request request = MPI_REQUEST_NULL;
    switch (c->operation) {
    case BARRIER: MPI_Ibarrier(c->communicator, &request); break;
    case ALLREDUCE:
        MPI_Iallreduce(c->send, c->receive, c->elements, MPI_DOUBLE, MPI_SUM, c->communicator, &request);
        break;
    case ALLTOALL:
        MPI_Ialltoall(c->send, c->elements, MPI_DOUBLE, c->receive, c->elements, MPI_DOUBLE, c->communicator, &request);
        break;
    case BCAST: MPI_Ibcast(c->receive, c->elements, MPI_DOUBLE, root, c->communicator, &request); break;
    case NEIGHBOR:
        MPI_Ineighbor_alltoall(c->send, c->elements, MPI_DOUBLE, c->receive, c->elements, MPI_DOUBLE, c->communicator,
                               &request);
        break;
    }
    return request;
}

static inline void start_and_wait(struct collective *c, int root) {
    MPI_Request request = start(c, root);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

#endif
