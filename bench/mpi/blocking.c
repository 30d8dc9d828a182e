// Times of blocking collectives. Prints a line for each collective and length: name, bytes of a
// block, time of a call in microseconds, of the slowest rank: the median of repetitions. Each rank
// is the root in turn. The arguments are lengths.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { KINDS = 13, MOST = 1 << 20, REPETITIONS = 9 };
static const char *names[KINDS] = { "barrier", "bcast", "reduce", "allreduce", "gather", "scatter",
                                    "allgather", "alltoall", "alltoallv", "reduce_scatter_block",
                                    "scan", "exscan", "neighbor_alltoall" };
static int rank, size, counts[64], at[64];
static char *in, *out;
static MPI_Comm ring;

static void call(int kind, int n, int root) {
    MPI_Comm world = MPI_COMM_WORLD;
    switch (kind) {
    case 0: MPI_Barrier(world); break;
    case 1: MPI_Bcast(out, n, MPI_BYTE, root, world); break;
    case 2: MPI_Reduce(in, out, n / 8, MPI_DOUBLE, MPI_SUM, root, world); break;
    case 3: MPI_Allreduce(in, out, n / 8, MPI_DOUBLE, MPI_SUM, world); break;
    case 4: MPI_Gather(in, n, MPI_BYTE, out, n, MPI_BYTE, root, world); break;
    case 5: MPI_Scatter(in, n, MPI_BYTE, out, n, MPI_BYTE, root, world); break;
    case 6: MPI_Allgather(in, n, MPI_BYTE, out, n, MPI_BYTE, world); break;
    case 7: MPI_Alltoall(in, n, MPI_BYTE, out, n, MPI_BYTE, world); break;
    case 8: MPI_Alltoallv(in, counts, at, MPI_BYTE, out, counts, at, MPI_BYTE, world); break;
    case 9: MPI_Reduce_scatter_block(in, out, n / 8, MPI_DOUBLE, MPI_SUM, world); break;
    case 10: MPI_Scan(in, out, n / 8, MPI_DOUBLE, MPI_SUM, world); break;
    case 11: MPI_Exscan(in, out, n / 8, MPI_DOUBLE, MPI_SUM, world); break;
    default: MPI_Neighbor_alltoall(in, n, MPI_BYTE, out, n, MPI_BYTE, ring);
    }
}

static int ascending(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static double repeat(int kind, int n, int calls) {
    double begin, own, slowest;
    MPI_Barrier(MPI_COMM_WORLD);
    begin = MPI_Wtime();
    for (int i = 0; i < calls; i++) call(kind, n, i % size);
    own = (MPI_Wtime() - begin) / calls;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int periodic = 1;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
    in = calloc(size + 2, MOST);
    out = calloc(size + 2, MOST);
    for (int kind = 0; kind < KINDS; kind++)
        for (int argument = 1; argument < (kind == 0 ? 2 : argc); argument++) {
            int bytes = kind == 0 ? 0 : atoi(argv[argument]);
            double times[REPETITIONS];
            for (int i = 0; i < size; i++) counts[i] = bytes, at[i] = i * bytes;
            repeat(kind, bytes, 3);
            int calls = 0.002 / repeat(kind, bytes, 5);
            calls = calls < 2 ? 2 : calls > 1000 ? 1000 : calls;
            for (int i = 0; i < REPETITIONS; i++) times[i] = repeat(kind, bytes, calls);
            qsort(times, REPETITIONS, sizeof *times, ascending);
            if (rank == 0) printf("%s %d %.3f\n", names[kind], bytes, 1e6 * times[REPETITIONS / 2]);
        }
    MPI_Finalize();
    return 0;
}
