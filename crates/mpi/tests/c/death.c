// A rank ends while the others wait for it in a collective.
#include "check.h"
#include <signal.h>

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == size - 1) {
        if (argc > 1) MPI_Abort(MPI_COMM_WORLD, 3);
        raise(9);
    }
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return 0;
}
