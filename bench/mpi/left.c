// Times of blocking collectives without data, and of the test of a null request, in nanoseconds: what
// a call costs that is left to the MPI library. Run it without the preload library, with it, and with a
// table by which these collectives run on tradewind at other lengths.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { CALLS = 1000000, REPETITIONS = 9 };
static int rank;
static char in[64], out[64];

static int ascending(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

#define TIME(name, call)                                                                   \
    do {                                                                                   \
        double times[REPETITIONS];                                                         \
        for (int i = 0; i < REPETITIONS; i++) {                                            \
            double begin = MPI_Wtime();                                                    \
            for (int j = 0; j < CALLS; j++) call;                                          \
            times[i] = 1e9 * (MPI_Wtime() - begin) / CALLS;                                \
            MPI_Barrier(MPI_COMM_WORLD);                                                   \
        }                                                                                  \
        qsort(times, REPETITIONS, sizeof *times, ascending);                               \
        if (rank == 0) printf("%s %.2f\n", name, times[REPETITIONS / 2]);                  \
    } while (0)

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Request request = MPI_REQUEST_NULL;
    int flag;
    TIME("bcast", MPI_Bcast(in, 0, MPI_BYTE, 0, world));
    TIME("gather", MPI_Gather(in, 0, MPI_BYTE, out, 0, MPI_BYTE, 0, world));
    TIME("scatter", MPI_Scatter(in, 0, MPI_BYTE, out, 0, MPI_BYTE, 0, world));
    TIME("allreduce", MPI_Allreduce(in, out, 0, MPI_DOUBLE, MPI_SUM, world));
    TIME("reduce", MPI_Reduce(in, out, 0, MPI_DOUBLE, MPI_SUM, 0, world));
    TIME("allgather", MPI_Allgather(in, 0, MPI_BYTE, out, 0, MPI_BYTE, world));
    TIME("scan", MPI_Scan(in, out, 0, MPI_DOUBLE, MPI_SUM, world));
    TIME("test", MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
    MPI_Finalize();
    return 0;
}
