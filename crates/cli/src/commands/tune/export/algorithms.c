/* Times collectives of an MPI library, with whatever algorithms its environment selects.
 *
 * PROGRAM BUDGET-MS OPERATION:BYTES...
 *
 * Rank 0 prints the library's file, then a line "OPERATION,BYTES,MICROSECONDS" for each argument: the median over batches of calls
 * back to back, of the slowest rank in each batch. Roots take turns, so no rank can run ahead of the others. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_BATCHES = 5, MOST_BATCHES = 501 };
static const double BATCH_SECONDS = 100e-6;

static int rank, ranks;
static double *input, *output;

static void call(const char *operation, int count, int root) {
    MPI_Comm world = MPI_COMM_WORLD;
    if (!strcmp(operation, "barrier"))
        MPI_Barrier(world);
    else if (!strcmp(operation, "bcast"))
        MPI_Bcast(input, count, MPI_DOUBLE, root, world);
    else if (!strcmp(operation, "reduce"))
        MPI_Reduce(input, output, count, MPI_DOUBLE, MPI_SUM, root, world);
    else if (!strcmp(operation, "allreduce"))
        MPI_Allreduce(input, output, count, MPI_DOUBLE, MPI_SUM, world);
    else if (!strcmp(operation, "allgather"))
        MPI_Allgather(input, count, MPI_DOUBLE, output, count, MPI_DOUBLE, world);
    else if (!strcmp(operation, "alltoall"))
        MPI_Alltoall(input, count, MPI_DOUBLE, output, count, MPI_DOUBLE, world);
    else
        MPI_Abort(world, 2);
}

/* Seconds of a batch on the slowest rank; the same on all ranks. */
static double batch(const char *operation, int count, int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        call(operation, count, i % ranks);
    double own = MPI_Wtime() - start, slowest;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int by_value(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static double median_seconds(const char *operation, int count, double budget_seconds) {
    int calls = ranks;
    double spent = batch(operation, count, calls);
    while ((spent = batch(operation, count, calls)) < BATCH_SECONDS)
        calls *= 2;
    int batches = (int)(budget_seconds / spent);
    batches = batches < LEAST_BATCHES ? LEAST_BATCHES : batches > MOST_BATCHES ? MOST_BATCHES : batches;
    double times[MOST_BATCHES];
    for (int i = 0; i < batches; i++)
        times[i] = batch(operation, count, calls) / calls;
    qsort(times, (size_t)batches, sizeof *times, by_value);
    return times[batches / 2];
}

int main(int arguments, char **values) {
    MPI_Init(&arguments, &values);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    Dl_info library;
    if (rank == 0 && dladdr((void *)MPI_Init, &library))
        printf("%s\n", library.dli_fname);
    double budget_seconds = atof(values[1]) / 1000;
    for (int i = 2; i < arguments; i++) {
        char operation[32];
        long bytes;
        if (sscanf(values[i], "%31[a-z]:%ld", operation, &bytes) != 2)
            MPI_Abort(MPI_COMM_WORLD, 2);
        size_t space = (size_t)(bytes + 8) * (size_t)ranks;
        input = calloc(1, space);
        output = calloc(1, space);
        if (!input || !output)
            MPI_Abort(MPI_COMM_WORLD, 2);
        double seconds = median_seconds(operation, (int)(bytes / 8), budget_seconds);
        if (rank == 0)
            printf("%s,%ld,%.4f\n", operation, bytes, seconds * 1e6);
        free(input);
        free(output);
    }
    MPI_Finalize();
    return 0;
}
