// More persistent collectives than the shared memory has space for, all of them at the same time.
#include "check.h"

enum { MANY = 200 };

int main(int argc, char **argv) {
    static int in[MANY], out[MANY];
    static MPI_Request requests[MANY];
    start(&argc, &argv, MPI_THREAD_SINGLE);
#ifdef HAS_PERSISTENT
    for (int i = 0; i < MANY; i++)
        MPI_Allreduce_init(&in[i], &out[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                           &requests[i]);
    for (int repeat = 0; repeat < 3; repeat++) {
        for (int i = 0; i < MANY; i++) in[i] = rank + i + repeat, out[i] = -1;
        for (int i = 0; i < MANY; i++) MPI_Start(&requests[i]);
        for (int i = 0; i < MANY; i++) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        for (int i = 0; i < MANY; i++) CHECK(out[i] == size * (size - 1) / 2 + size * (i + repeat));
    }
    for (int i = 0; i < MANY; i++) MPI_Request_free(&requests[i]);
#endif
    MPI_Finalize();
    return 0;
}
