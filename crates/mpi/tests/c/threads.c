// Three threads, each with a communicator of its own. In some rounds a rank is late, so that all others
// wait for long in all their threads.
#include "check.h"
#include <pthread.h>

static MPI_Comm communicators[3];

static void *work(void *number) {
    MPI_Comm communicator = communicators[(long)number];
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int i = 0; i < 200; i++) {
        int largest = -1, received = -1, value = rank + i;
        MPI_Request requests[3];
        if (i % 20 < 6 && rank == i / 20 % size) usleep(2000);
        MPI_Irecv(&received, 1, MPI_INT, before, 0, communicator, &requests[0]);
        MPI_Iallreduce(&value, &largest, 1, MPI_INT, MPI_MAX, communicator, &requests[1]);
        MPI_Isend(&value, 1, MPI_INT, next, 0, communicator, &requests[2]);
        // Threads test their arrays at the same time.
        for (int done = i % 2; !done;) MPI_Testall(3, requests, &done, MPI_STATUSES_IGNORE);
        if (i % 3 == 0) MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        for (int left = i % 3 == 1 ? 3 : 0, index; left > 0; left--)
            MPI_Waitany(3, requests, &index, MPI_STATUS_IGNORE);
        for (int count = i % 3 == 2 ? 0 : MPI_UNDEFINED, indices[3]; count != MPI_UNDEFINED;)
            MPI_Waitsome(3, requests, &count, indices, MPI_STATUSES_IGNORE);
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        CHECK(largest == size - 1 + i && received == before + i);
    }
    return NULL;
}

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_MULTIPLE);
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) MPI_Comm_dup(MPI_COMM_WORLD, &communicators[i]);
    for (long i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (long i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    for (long i = 0; i < 3; i++) MPI_Comm_free(&communicators[i]);
    MPI_Finalize();
    return 0;
}
