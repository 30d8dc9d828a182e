// A tool for MPI: counts some calls of the program, and passes them on by their other names.
#include <mpi.h>
#include <stdio.h>

static int starts, waits, blocking;

int MPI_Iallreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request) {
    starts++;
    return PMPI_Iallreduce(in, out, count, type, op, comm, request);
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    blocking++;
    return PMPI_Allreduce(in, out, count, type, op, comm);
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses) {
    waits++;
    return PMPI_Waitall(count, requests, statuses);
}

int MPI_Finalize(void) {
    printf("%d starts, %d waits, %d blocking\n", starts, waits, blocking);
    fflush(stdout);
    return PMPI_Finalize();
}
