// An error handler throws, through the MPI library and the preload library; later calls of the thread
// are taken over as before.
#include <mpi.h>
#include <stdio.h>

struct Failure {
    int code;
};

static void fail(MPI_Comm *, int *code, ...) {
    throw Failure{*code};
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(fail, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    int caught = 0, wrong = 0;
    for (int i = 0; i < 10; i++) {
        MPI_Request request;
        int value = 0;
        try {
            MPI_Ibcast(&value, 1, MPI_INT, size + 7, MPI_COMM_WORLD, &request);
        } catch (const Failure &) {
            caught++;
        }
        int sum = 0;
        MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong += sum != size * (size - 1) / 2;
    }
    // A collective that fails when it is waited for, with a request that is null by then.
    MPI_Comm copy;
    MPI_Request failed;
    int values[2] = {}, sums[2], failures = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Iallreduce(values, sums, rank == 0 ? 1 : 2, MPI_INT, MPI_SUM, copy, &failed);
    try {
        MPI_Wait(&failed, MPI_STATUS_IGNORE);
    } catch (const Failure &) {
        failures++;
    }
    wrong += failures != 1 || failed != MPI_REQUEST_NULL;
    MPI_Comm_free(&copy);
    printf("rank %d caught %d\n", rank, caught);
    MPI_Errhandler_free(&handler);
    MPI_Finalize();
    return caught != 10 || wrong != 0;
}
