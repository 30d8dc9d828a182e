// Calls unlike those of a measurement, or like them: an exchange on a line or a ring, and a broadcast of
// a type with gaps or without.
#include "check.h"

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    CHECK(argc == 2);
    int is_like = !strcmp(argv[1], "like");
    MPI_Comm grid;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &is_like, 0, &grid);
    int sent[2] = {rank, rank}, received[2] = {-1, -1};
    MPI_Request request;
    MPI_Ineighbor_alltoall(sent, 1, MPI_INT, received, 1, MPI_INT, grid, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Datatype gaps;
    MPI_Type_vector(2, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    int numbers[4] = {rank, rank, rank, rank};
    MPI_Ibcast(numbers, is_like ? 3 : 1, is_like ? MPI_INT : gaps, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(numbers[0] == 0 && numbers[2] == 0 && numbers[3] == rank);
    MPI_Type_free(&gaps);
    MPI_Comm_free(&grid);
    MPI_Finalize();
    return 0;
}
