/* The command line, times of all ranks brought together, and one JSON line for each row. */
#ifndef REPORT_H
#define REPORT_H

#include "measure.h"
#include <mpi.h>
#include <stdio.h>

struct options {
    double budget_us; /* for each measurement of a row */
    uint64_t random;  /* the state the skews come from; each rank adds its number to the seed */
    int skew_percent; /* the largest skew, in percent of the computation */
};

enum { FIRST_ROW = 4 };

/* PROGRAM BUDGET-MS SEED SKEW-PERCENT OPERATION:BYTES:COMPUTATION ... */
static inline struct options read_options(int count, char **arguments, int rank) {
    if (count <= FIRST_ROW) {
        fprintf(stderr, "usage: %s BUDGET-MS SEED SKEW-PERCENT OPERATION:BYTES:COMPUTATION...\n", arguments[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return (struct options){atof(arguments[1]) * 1e3, strtoull(arguments[2], NULL, 10) + (uint64_t)rank, atoi(arguments[3])};
}

/* The largest value any rank has, for all: counts derived from it are the same everywhere. */
static inline double agree(double mine) {
    double largest;
    MPI_Allreduce(&mine, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return largest;
}

/* Each repetition's value over all ranks: the largest (times) or the sum (processor time). */
static inline void combine(double *values, int count, MPI_Op how) {
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, how, MPI_COMM_WORLD);
}

/* The lines are rank 0's. */
static inline void begin_line(const char *program, const char *op, int bytes, int rank, int ranks) {
    if (rank == 0)
        printf("{\"program\":\"%s\",\"op\":\"%s\",\"bytes\":%d,\"ranks\":%d", program, op, bytes, ranks);
}

/* Adds "name":[median, p10, p90, count] of the values, which it sorts. */
static inline void add_summary(int rank, const char *name, double *values, int count) {
    sort(values, count);
    if (rank == 0)
        printf(",\"%s\":[%.5f,%.5f,%.5f,%d]", name, percentile(values, count, 50), percentile(values, count, 10),
               percentile(values, count, 90), count);
}

static inline void end_line(int rank) {
    if (rank == 0) {
        printf("}\n");
        fflush(stdout);
    }
}

#endif
