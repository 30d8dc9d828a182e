/* Messages between rank 0 and rank 1: what a row asks for, and the messages themselves.
 *
 * bench/loops/src/messages.rs measures the same over tradewind. */
#ifndef MESSAGES_H
#define MESSAGES_H

#include "report.h"

enum { PING = 1, PONG = 2, GO_ON = 3 };

/* OPERATION:BYTES:COMPUTATION; only posted messages have a computation. */
struct row {
    char op[16];
    int bytes;
    struct computation computation;
    int rank, ranks;
};

static inline void stop(const struct row *row, const char *what) {
    fprintf(stderr, "rank %d: %s %d bytes: %s\n", row->rank, row->op, row->bytes, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static inline struct row read_row(const char *text) {
    struct row row;
    char amount[32];
    MPI_Comm_rank(MPI_COMM_WORLD, &row.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &row.ranks);
    if (sscanf(text, "%15[a-z]:%d:%31s", row.op, &row.bytes, amount) != 3 || !read_computation(amount, &row.computation) || row.bytes < 8 ||
        row.bytes % 8 || row.ranks != 2) {
        fprintf(stderr, "'%s' is no row for %d ranks: give OPERATION:BYTES:0, bytes in eights, to 2 ranks\n", text, row.ranks);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return row;
}

static inline void *memory(const struct row *row, size_t size) {
    void *found = NULL;
    if (posix_memalign(&found, 4096, size < 4096 ? 4096 : size)) {
        stop(row, "no memory");
        exit(1);
    }
    for (size_t i = 0; i < size; i++)
        ((char *)found)[i] = 1;
    return found;
}

/* Executes a batch. Returns rank 0's microseconds a message. */
typedef double batch(const struct row *row, int batch);

enum { LEAST_BATCHES = 10, MOST_BATCHES = 5000, WARM_UP = 10 };

/* Runs batches for the budget and prints the row's line. Rank 0's times count: every batch ends with an answer to it. */
static inline void measure_batches(const struct row *row, const char *program, batch *run, double budget_us) {
    double each_us = 0;
    /* The second time without what is done once. */
    for (int time = 0; time < 2; time++) {
        double start_us = wall_us();
        for (int b = 0; b < WARM_UP; b++)
            run(row, time * WARM_UP + b);
        each_us = agree((wall_us() - start_us) / WARM_UP);
    }
    int batches = repetitions_within(budget_us, each_us, LEAST_BATCHES, MOST_BATCHES);
    double *times = memory(row, sizeof *times * (size_t)batches);
    for (int b = 0; b < batches; b++)
        times[b] = run(row, 2 * WARM_UP + b);
    begin_line(program, row->op, row->bytes, row->rank, row->ranks);
    add_summary(row->rank, "message_us", times, batches);
    end_line(row->rank);
    free(times);
}

#endif
