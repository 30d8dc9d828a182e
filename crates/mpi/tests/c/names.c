// The names of one blocking collective, ten calls of each. Prints their number.
#include "check.h"

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    int names = 2;
    for (int time = 0; time < 10; time++) {
        int sum = 0, again = 0, large = size;
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        PMPI_Allreduce(&rank, &again, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == size * (size - 1) / 2 && again == sum);
#if MPI_VERSION >= 4
        MPI_Allreduce_c(&rank, &large, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(large == sum);
        PMPI_Allreduce_c(&rank, &large, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        CHECK(large == size - 1);
        names = 4;
#endif
    }
    if (rank == 0) printf("%d names\n", names);
    MPI_Finalize();
    return 0;
}
