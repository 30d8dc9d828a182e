/* Half a round trip between one thread of rank 0 and two threads of rank 1, which share what they receive from and what they
 * answer through. Whichever of the two gets a message answers it. And half a round trip while two threads of each rank send to
 * one another. */
#include "messages.h"
#include <pthread.h>
#include <string.h>

enum { THREADS = 2, ROUND_TRIPS = 1000 };

static void answer(const struct row *row, uint64_t messages) {
    uint64_t number;
    for (uint64_t i = 0; i < messages; i++) {
        MPI_Recv(&number, row->bytes, MPI_BYTE, 0, PING, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&number, row->bytes, MPI_BYTE, 0, PONG, MPI_COMM_WORLD);
    }
}

static pthread_barrier_t both;

static void *answer_half(void *row) {
    pthread_barrier_wait(&both);
    answer(row, ROUND_TRIPS / THREADS);
    return NULL;
}

/* Rank 1's second thread lives for a batch; rank 0 is told when both are there. */
static double latency(const struct row *row, int batch) {
    uint64_t number = 0;
    if (row->rank == 1) {
        pthread_t second;
        if (pthread_create(&second, NULL, answer_half, (void *)row))
            stop(row, "cannot start a thread");
        pthread_barrier_wait(&both);
        MPI_Send(&number, 1, MPI_BYTE, 0, GO_ON, MPI_COMM_WORLD);
        answer(row, ROUND_TRIPS / THREADS);
        pthread_join(second, NULL);
        return 0;
    }
    MPI_Recv(&number, 1, MPI_BYTE, 1, GO_ON, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double start_us = wall_us();
    for (int i = 0; i < ROUND_TRIPS; i++) {
        uint64_t sent = (uint64_t)batch * ROUND_TRIPS + (uint64_t)i;
        MPI_Send(&sent, row->bytes, MPI_BYTE, 1, PING, MPI_COMM_WORLD);
        MPI_Recv(&number, row->bytes, MPI_BYTE, 1, PONG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (number != sent)
            stop(row, "a message is wrong");
    }
    return (wall_us() - start_us) / ROUND_TRIPS / 2;
}

struct pair {
    const struct row *row;
    int number;
    uint64_t first;
};

/* Round trips between a thread of each rank, told from those of the other threads by their tag. */
static void *round_trips(void *argument) {
    const struct pair *pair = argument;
    const struct row *row = pair->row;
    for (uint64_t i = 0; i < ROUND_TRIPS; i++) {
        uint64_t number = pair->first + i, found = number;
        if (row->rank == 0)
            MPI_Send(&number, row->bytes, MPI_BYTE, 1, PING + pair->number, MPI_COMM_WORLD);
        MPI_Recv(&found, row->bytes, MPI_BYTE, 1 - row->rank, PING + pair->number, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (row->rank == 1)
            MPI_Send(&found, row->bytes, MPI_BYTE, 0, PING + pair->number, MPI_COMM_WORLD);
        if (found != number)
            stop(row, "a message is wrong");
    }
    return NULL;
}

/* Two threads of each rank at the same time: the time of all round trips, for half of one of each pair. */
static double pairs(const struct row *row, int batch) {
    struct pair both_pairs[THREADS];
    for (int i = 0; i < THREADS; i++)
        both_pairs[i] = (struct pair){row, i, (uint64_t)batch * ROUND_TRIPS};
    MPI_Barrier(MPI_COMM_WORLD);
    double start_us = wall_us();
    pthread_t second;
    if (pthread_create(&second, NULL, round_trips, &both_pairs[1]))
        stop(row, "cannot start a thread");
    round_trips(&both_pairs[0]);
    pthread_join(second, NULL);
    return agree((wall_us() - start_us) / ROUND_TRIPS / 2);
}

int main(int count, char **arguments) {
    int provided, rank;
    MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct options options = read_options(count, arguments, rank);
    for (int i = FIRST_ROW; i < count; i++) {
        struct row row = read_row(arguments[i]);
        if (provided != MPI_THREAD_MULTIPLE)
            stop(&row, "the library does not let threads call it");
        if (row.bytes != sizeof(uint64_t))
            stop(&row, "threads send 8 bytes");
        pthread_barrier_init(&both, NULL, THREADS);
        measure_batches(&row, "threads", strcmp(row.op, "pairs") == 0 ? pairs : latency, options.budget_us);
        pthread_barrier_destroy(&both);
    }
    MPI_Finalize();
    return 0;
}
