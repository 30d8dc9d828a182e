// Collectives whose arguments do not fit together, each on a communicator of its own: every rank gets
// an error or a result, and the world is as before.
#include "check.h"

enum { MOST = 64 };
static int in[MOST], out[16 * MOST];

// Starts the collective of a case, in which rank 0 differs from the others, and completes it.
static int differ(int number, MPI_Comm communicator) {
    MPI_Request requests[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
    int is_first = rank == 0, count = is_first ? 4 : 8, code = 0;
    switch (number) {
    case 0: code = MPI_Ibcast(in, count, MPI_INT, 0, communicator, requests); break;
    case 1: code = MPI_Ibcast(in, 12 - count, MPI_INT, 0, communicator, requests); break;
    case 2:
        code = MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, communicator, requests);
        break;
    case 3:
        code = MPI_Iallgather(in, count, MPI_INT, out, count, MPI_INT, communicator, requests);
        break;
    case 4:
        code = MPI_Igather(in, count, MPI_INT, out, count, MPI_INT, 0, communicator, requests);
        break;
    case 5:
        code = MPI_Ialltoall(in, count, MPI_INT, out, count, MPI_INT, communicator, requests);
        break;
    case 6:
        if (is_first) code = MPI_Ibarrier(communicator, requests);
        else code = MPI_Ibcast(in, 4, MPI_INT, 0, communicator, requests);
        break;
    case 7: code = MPI_Ibcast(in, 4, MPI_INT, is_first ? 0 : 1, communicator, requests); break;
    case 8:
        if (is_first) {
            MPI_Ibarrier(communicator, requests);
            code = MPI_Iallreduce(in, out, 4, MPI_INT, MPI_SUM, communicator, requests + 1);
        } else {
            code = MPI_Iallreduce(in, out, 4, MPI_INT, MPI_SUM, communicator, requests);
            MPI_Ibarrier(communicator, requests + 1);
        }
        break;
    default: return -1;
    }
    // An error of one of the requests stands in the statuses of some libraries.
    int waited = MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    return code ? code : waited;
}

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    int only = argc > 1 ? atoi(argv[1]) : -1;
    for (int number = 0; number < 9; number++) {
        if (only >= 0 && number != only) continue;
        MPI_Comm copy;
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
        int failed = differ(number, copy) != 0, all;
        MPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0) printf("case %d: an error on %d ranks\n", number, all), fflush(stdout);
        MPI_Comm_free(&copy);
        int sum = 0;
        MPI_Request request;
        MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum == size * (size - 1) / 2);
    }
    MPI_Finalize();
    return 0;
}
