// Times of calls while many nonblocking collectives are outstanding. Starts allreduces of 8 bytes and
// barriers in turns, and completes them in four orders. Prints a line for each number of outstanding
// calls: the number, then the medians of nanoseconds a call on the slowest rank: of the starts, and of
// MPI_Waitall, MPI_Wait from the last to the first, MPI_Waitany on a reversed array of 64 at a time, and
// MPI_Test until each is complete. The arguments are numbers of outstanding calls. Sums are checked.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { REPETITIONS = 5, ORDERS = 4, AT_A_TIME = 64 };
static int rank, size;
static double *in, *out;
static MPI_Request *requests;

static int ascending(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static void start(int count) {
    for (int i = 0; i < count; i++) {
        in[i] = rank + i;
        out[i] = -1;
        if (i % 2)
            MPI_Ibarrier(MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Iallreduce(&in[i], &out[i], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    }
}

static void complete(int order, int count) {
    int index, flag;
    switch (order) {
    case 0: MPI_Waitall(count, requests, MPI_STATUSES_IGNORE); break;
    case 1:
        for (int i = count; i-- > 0;) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        break;
    case 2:
        for (int i = 0; i < count / 2; i++) {
            MPI_Request request = requests[i];
            requests[i] = requests[count - 1 - i];
            requests[count - 1 - i] = request;
        }
        for (int first = 0; first < count; first += AT_A_TIME) {
            int length = count - first < AT_A_TIME ? count - first : AT_A_TIME;
            for (int i = 0; i < length; i++)
                MPI_Waitany(length, &requests[first], &index, MPI_STATUS_IGNORE);
        }
        break;
    default:
        for (int i = 0; i < count; i++)
            for (flag = 0; !flag;) MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
    }
}

static void check(int count) {
    for (int i = 0; i < count; i++) {
        double expected = i % 2 ? -1 : (double)size * i + size * (size - 1) / 2.0;
        if (out[i] != expected || requests[i] != MPI_REQUEST_NULL) {
            fprintf(stderr, "rank %d, call %d: %g instead of %g\n", rank, i, out[i], expected);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int argument = 1; argument < argc; argument++) {
        int count = atoi(argv[argument]);
        in = malloc(count * sizeof *in);
        out = malloc(count * sizeof *out);
        requests = malloc(count * sizeof *requests);
        double times[1 + ORDERS][ORDERS * REPETITIONS], medians[1 + ORDERS], slowest[1 + ORDERS];
        for (int i = 0; i < ORDERS * REPETITIONS; i++) {
            int order = i % ORDERS;
            MPI_Barrier(MPI_COMM_WORLD);
            double begin = MPI_Wtime();
            start(count);
            double started = MPI_Wtime();
            complete(order, count);
            times[0][i] = 1e9 * (started - begin) / count;
            times[1 + order][i / ORDERS] = 1e9 * (MPI_Wtime() - started) / count;
            check(count);
        }
        for (int row = 0; row <= ORDERS; row++) {
            int length = row == 0 ? ORDERS * REPETITIONS : REPETITIONS;
            qsort(times[row], length, sizeof(double), ascending);
            medians[row] = times[row][length / 2];
        }
        MPI_Reduce(medians, slowest, 1 + ORDERS, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0)
            printf("%d %.0f %.0f %.0f %.0f %.0f\n", count, slowest[0], slowest[1], slowest[2],
                   slowest[3], slowest[4]);
        free(in);
        free(out);
        free(requests);
    }
    MPI_Finalize();
    return 0;
}
