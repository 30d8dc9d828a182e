// Blocking collectives of three lengths, with nonblocking ones and messages among them.
#include "check.h"

enum { MOST = 1 << 16, TIMES = 10 };
static double in[MOST / 8], out[MOST / 8];

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int lengths[] = { 8, 1024, MOST };
    for (int i = 0; i < MOST / 8; i++) in[i] = rank + i;
    for (int time = 0; time < TIMES; time++)
        for (int length = 0; length < 3; length++) {
            int count = lengths[length] / 8, next = (rank + 1) % size;
            double sum, token = rank, received;
            MPI_Request requests[2];
            MPI_Isend(&token, 1, MPI_DOUBLE, next, 0, MPI_COMM_WORLD, &requests[0]);
            MPI_Iallreduce(in, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
            MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            MPI_Recv(&received, 1, MPI_DOUBLE, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            CHECK(received == (rank + size - 1) % size);
            CHECK(sum == size * (size - 1) / 2);
            for (int i = 0; i < count; i++) CHECK(out[i] == size * (size - 1) / 2 + i * size);
        }
    MPI_Finalize();
    return 0;
}
