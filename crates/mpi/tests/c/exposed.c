// A reduction whose last part takes 20 ms, which the rank executes in the function that completes it.
#include "check.h"

static void slow(void *in, void *inout, int *length, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *length; i++) ((int *)inout)[i] += ((int *)in)[i];
    usleep(20 * 1000);
}

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    CHECK(argc == 2);
    const char *way = argv[1];
    MPI_Op op;
    MPI_Op_create(slow, 1, &op);
    int own = rank + 1, sum = 0, flag = 0, index = 0, count = 0;
    // The second one is null.
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Iallreduce(&own, &sum, 1, MPI_INT, op, MPI_COMM_WORLD, requests);
    if (!strcmp(way, "Wait")) MPI_Wait(requests, MPI_STATUS_IGNORE);
    if (!strcmp(way, "Waitall")) MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    if (!strcmp(way, "Waitany")) MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
    if (!strcmp(way, "Waitsome")) MPI_Waitsome(2, requests, &count, &index, MPI_STATUSES_IGNORE);
    while (!strcmp(way, "Test") && !flag) MPI_Test(requests, &flag, MPI_STATUS_IGNORE);
    while (!strcmp(way, "Testall") && !flag)
        MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
    while (!strcmp(way, "Testany") && !flag)
        MPI_Testany(2, requests, &index, &flag, MPI_STATUS_IGNORE);
    while (!strcmp(way, "Testsome") && count == 0)
        MPI_Testsome(2, requests, &count, &index, MPI_STATUSES_IGNORE);
    CHECK(requests[0] == MPI_REQUEST_NULL && sum == size * (size + 1) / 2);
    MPI_Op_free(&op);
    MPI_Finalize();
    return 0;
}
