// The time of threads that use collectives at once: each of the threads of every rank has a communicator
// of its own, on which it starts two allreduces and two broadcasts of mixed lengths in each round,
// computes, and completes them by MPI_Waitall. Prints the seconds of all rounds. The arguments are the
// number of threads and that of rounds. Results are checked.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 2048 };
static int rank, size, rounds;
static volatile double sink;

static void fail(int round) {
    fprintf(stderr, "rank %d, round %d: a wrong result\n", rank, round);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *work(void *argument) {
    MPI_Comm communicator = *(MPI_Comm *)argument;
    static const int lengths[] = { 1, 31, 128, MOST };
    double *in = malloc(2 * MOST * sizeof *in), *out = malloc(4 * MOST * sizeof *out);
    for (int round = 0; round < rounds; round++) {
        int count = lengths[round % 4], root = round % size;
        for (int i = 0; i < 2 * count; i++) in[i] = rank + round + i;
        for (int i = 0; i < 2 * count; i++) out[2 * MOST + i] = rank == root ? round + i : -1;
        MPI_Request requests[4];
        MPI_Iallreduce(in, out, count, MPI_DOUBLE, MPI_SUM, communicator, &requests[0]);
        MPI_Ibcast(out + 2 * MOST, count, MPI_DOUBLE, root, communicator, &requests[1]);
        MPI_Iallreduce(in + count, out + MOST, count, MPI_DOUBLE, MPI_SUM, communicator,
                       &requests[2]);
        MPI_Ibcast(out + 2 * MOST + count, count, MPI_DOUBLE, root, communicator, &requests[3]);
        double x = 1;
        for (int i = 0; i < 2000; i++) x = x * 1.0000001 + 1e-9;
        sink = x;
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        double ranks = size * (size - 1) / 2.0;
        for (int i = 0; i < 2 * count; i++) {
            double sum = size * (double)(round + i) + ranks;
            if ((i < count ? out[i] : out[MOST + i - count]) != sum) fail(round);
            if (out[2 * MOST + i] != round + i) fail(round);
        }
    }
    free(in);
    free(out);
    return NULL;
}

int main(int argc, char **argv) {
    int provided, threads = argc > 1 ? atoi(argv[1]) : 4;
    rounds = argc > 2 ? atoi(argv[2]) : 400;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (provided < MPI_THREAD_MULTIPLE) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Comm *communicators = malloc(threads * sizeof *communicators);
    pthread_t *started = malloc(threads * sizeof *started);
    for (int i = 0; i < threads; i++) MPI_Comm_dup(MPI_COMM_WORLD, &communicators[i]);
    double begin = MPI_Wtime();
    for (int i = 0; i < threads; i++) pthread_create(&started[i], NULL, work, &communicators[i]);
    for (int i = 0; i < threads; i++) pthread_join(started[i], NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("%.3f\n", MPI_Wtime() - begin);
    for (int i = 0; i < threads; i++) MPI_Comm_free(&communicators[i]);
    MPI_Finalize();
    return 0;
}
