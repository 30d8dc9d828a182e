// A collective whose lengths differ, so that it runs on tradewind in rank 0 and in the MPI library
// in the others; of "ibcast" the other way round. The arguments are its name and, optionally,
// "return" for an error handler that returns.
#include "check.h"

enum { LONG = 1 << 17, LONGEST = 257 << 20 };
static double in[4 * LONG / 8], out[4 * LONG / 8];

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    int count = rank == 0 ? 1 : LONG / 8;
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    if (argc > 2) MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
    // Calls that fit come first.
    MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_SUM, copy);
    MPI_Allreduce(in, out, LONG / 8, MPI_DOUBLE, MPI_SUM, copy);
    if (!strcmp(argv[1], "allreduce")) {
        MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, copy);
    } else if (!strcmp(argv[1], "bcast")) {
        // The root does not wait, and then waits in the MPI library.
        MPI_Bcast(in, count, MPI_DOUBLE, 0, copy);
        if (rank == 0) MPI_Recv(out, 1, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else if (rank == 1) MPI_Send(out, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
    } else if (!strcmp(argv[1], "ibcast")) {
        // The receivers send nothing, and no library sends anything that reaches them.
        int longest = rank == 0 ? LONGEST : 1;
        char *data = malloc(longest);
        MPI_Request request;
        MPI_Ibcast(data, longest, MPI_BYTE, 0, copy, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        free(data);
    } else if (!strcmp(argv[1], "long_ialltoall")) {
        int block = rank == 0 ? 1 : LONGEST / size;
        char *data = malloc(2 * (size_t)LONGEST);
        MPI_Request request;
        MPI_Ialltoall(data, block, MPI_BYTE, data + LONGEST, block, MPI_BYTE, copy, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        free(data);
    } else {
        MPI_Request request;
        MPI_Ialltoall(in, count, MPI_DOUBLE, out, count, MPI_DOUBLE, copy, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
