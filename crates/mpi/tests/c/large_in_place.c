// Forms with counts of 64 bits, in place: the arguments that MPI ignores then cannot be read. MPI
// libraries before MPI 4 lack these forms.
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>

static int (*alltoallv)(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *,
                        const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm);
static int (*iallgatherv)(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *,
                          const MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Request *);

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    *(void **)&alltoallv = dlsym(RTLD_DEFAULT, "MPI_Alltoallv_c");
    *(void **)&iallgatherv = dlsym(RTLD_DEFAULT, "MPI_Iallgatherv_c");
    CHECK(alltoallv && iallgatherv);
    int data[64];
    MPI_Count counts[64];
    MPI_Aint offsets[64];
    void *nowhere = (void *)16;
    for (int i = 0; i < size; i++) counts[i] = 1, offsets[i] = i, data[i] = 10 * rank + i;
    CHECK(alltoallv(MPI_IN_PLACE, nowhere, nowhere, MPI_DATATYPE_NULL, data, counts, offsets, MPI_INT,
                    MPI_COMM_WORLD) == MPI_SUCCESS);
    for (int i = 0; i < size; i++) CHECK(data[i] == 10 * i + rank);
    MPI_Request request;
    for (int i = 0; i < size; i++) data[i] = i == rank ? 100 + rank : -1;
    CHECK(iallgatherv(MPI_IN_PLACE, (MPI_Count)1 << 40, MPI_DATATYPE_NULL, data, counts, offsets,
                      MPI_INT, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < size; i++) CHECK(data[i] == 100 + i);
    MPI_Finalize();
    return 0;
}
