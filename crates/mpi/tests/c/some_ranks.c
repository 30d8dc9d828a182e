// Collectives and a receive of any message, on ranks some of which run without the library.
#include "check.h"

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    MPI_Request request;
    int sum, next = (rank + 1) % size;
    MPI_Send(&rank, 1, MPI_INT, next, 7, MPI_COMM_WORLD);
    int received;
    MPI_Status status;
    MPI_Recv(&received, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    CHECK(received == (rank + size - 1) % size && status.MPI_TAG == 7);
    for (int i = 0; i < 10; i++) {
        MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum == size * (size - 1) / 2);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    printf("rank %d is done\n", rank);
    MPI_Finalize();
    return 0;
}
