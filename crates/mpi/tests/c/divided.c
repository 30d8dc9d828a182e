// A program that errs on one rank, so that its ranks are divided between tradewind and the MPI library: the job
// has to end. The argument names the call.
#include "check.h"

static int out[64], in[64];

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    int errs = rank == 0, wrong = errs ? -1 : 1;
    MPI_Comm copy, other;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
    if (!strcmp(argv[1], "start")) {
        // The wrong rank goes on.
        MPI_Iallreduce(out, in, wrong, MPI_INT, MPI_SUM, copy, &request);
    } else if (!strcmp(argv[1], "root")) {
        MPI_Ibcast(out, 1, MPI_INT, errs ? size : 0, copy, &request);
    } else if (!strcmp(argv[1], "type")) {
        MPI_Igather(out, 1, errs ? MPI_DATATYPE_NULL : MPI_INT, in, 1, MPI_INT, 1, copy, &request);
    } else if (!strcmp(argv[1], "neighbors")) {
        int next = (rank + 1) % size, before = (rank + size - 1) % size;
        MPI_Dist_graph_create_adjacent(copy, 1, &before, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED, MPI_INFO_NULL,
                                       0, &other);
        MPI_Comm_set_errhandler(other, MPI_ERRORS_RETURN);
        MPI_Ineighbor_alltoall(out, wrong, MPI_INT, in, wrong, MPI_INT, other, &request);
    }
    if (!errs) MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (errs) MPI_Recv(in, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
