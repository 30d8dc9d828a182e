// A rank ends while the others wait for it: the last one, in a collective or where they create a
// communicator, or the first one, which has started the node service, in a receive of the MPI library.
#include "check.h"
#include <signal.h>

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (argc > 1 && strcmp(argv[1], "first") == 0) {
        int word;
        if (rank == 0) raise(9);
        MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == size - 1) {
        if (argc > 1 && strcmp(argv[1], "abort") == 0) MPI_Abort(MPI_COMM_WORLD, 3);
        raise(9);
    }
    MPI_Comm copy;
    if (argc > 1 && strcmp(argv[1], "creating") == 0) MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return 0;
}
