// Ends of a program that MPI does not allow: an active collective at MPI_Finalize, or none at all.
#include "check.h"

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    const char *form = argc > 1 ? argv[1] : "";
    MPI_Request request;
    int sum;
    if (strcmp(form, "one") != 0 || rank == 0)
        MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (strcmp(form, "exit") == 0 && rank == 0) exit(0);
    if (strcmp(form, "exits") == 0) exit(0);
    if (strcmp(form, "free") == 0) MPI_Request_free(&request);
    if (strcmp(form, "exit") == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
