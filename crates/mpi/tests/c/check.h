// Checks of the test programs: a failed one ends the job.
#pragma once
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Open MPI has the persistent collectives of MPI 4, although it is of MPI 3.1.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAS_PERSISTENT
#endif

static int rank, size;

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "rank %d of %d, %s:%d: %s\n", rank, size, __FILE__, __LINE__,   \
                    #condition);                                                            \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                   \
        }                                                                                   \
    } while (0)

static inline void start(int *argc, char ***argv, int wanted) {
    int provided;
    MPI_Init_thread(argc, argv, wanted, &provided);
    if (wanted == MPI_THREAD_MULTIPLE && provided != wanted) {
        printf("no threads\n");
        MPI_Finalize();
        exit(0);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}
