// Arguments that are wrong on all ranks alike: the call returns the error of the MPI library, and the
// collectives that follow are as before.
#include "check.h"

static int in[64], out[64];

// A null address of requests while a collective is active.
static int nowhere(MPI_Comm communicator, MPI_Request *request) {
    MPI_Ibarrier(communicator, request);
    int code = MPI_Wait(NULL, MPI_STATUS_IGNORE);
    MPI_Wait(request, MPI_STATUS_IGNORE);
    return code;
}

static int call(int number, MPI_Comm communicator, MPI_Request *request) {
    switch (number) {
    case 0: return MPI_Ibarrier(MPI_COMM_NULL, request);
    case 1: return MPI_Ibcast(in, -1, MPI_INT, 0, communicator, request);
    case 2: return MPI_Ibcast(in, 1, MPI_INT, size, communicator, request);
    case 3: return MPI_Ibcast(in, 1, MPI_INT, -7, communicator, request);
    case 4: return MPI_Ibcast(in, 1, MPI_DATATYPE_NULL, 0, communicator, request);
    case 5: return MPI_Iallreduce(in, out, 1, MPI_INT, MPI_OP_NULL, communicator, request);
    case 6: return MPI_Iallreduce(in, out, -1, MPI_INT, MPI_SUM, communicator, request);
    case 7: return MPI_Iallgather(in, 1, MPI_INT, out, -1, MPI_INT, communicator, request);
    case 8: return MPI_Ineighbor_alltoall(in, 1, MPI_INT, out, 1, MPI_INT, communicator, request);
    case 9: return MPI_Iallreduce(in, out, 1, MPI_FLOAT, MPI_BOR, communicator, request);
    case 10: return MPI_Ireduce(in, out, 1, MPI_BYTE, MPI_MAX, 0, communicator, request);
    default: return nowhere(communicator, request);
    }
}

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int number = 0; number < 12; number++) {
        MPI_Request request = MPI_REQUEST_NULL;
        int class = 0, code = call(number, MPI_COMM_WORLD, &request);
        if (code) MPI_Error_class(code, &class);
        if (rank == 0) printf("case %d: class %d\n", number, class), fflush(stdout);
        if (code == 0 && request != MPI_REQUEST_NULL) MPI_Wait(&request, MPI_STATUS_IGNORE);
        int sum = 0;
        MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum == size * (size - 1) / 2);
    }
    MPI_Finalize();
    return 0;
}
