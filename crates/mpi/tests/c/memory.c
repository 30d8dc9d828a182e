// Thousands of collectives under way, with less shared memory than they need (the test sets
// TRADEWIND_ARENA_MIB). With the argument "die" the last rank ends while the others' starts wait.
#include "check.h"
#include <signal.h>

enum { COUNT = 2000, COMMUNICATORS = 3, LONG = 1200 << 10, RANKS = 8 };

static unsigned long long state;

static int next(int below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (int)(state >> 33) % below;
}

// A collective with blocks of `words` words, and its buffers.
typedef struct {
    int kind, words, root;
    long long *in, *out;
} Collective;

static long long element(int number, int of, int index) {
    return number * 1000000ll + of * 100000000000ll + index;
}

static void start_one(Collective *one, int number, MPI_Comm comm, MPI_Request *request) {
    int words = one->words, root = one->root, blocks = one->kind == 3 ? size : 1;
    int counts[RANKS], offsets[RANKS];
    MPI_Datatype type = MPI_LONG_LONG;
    one->in = malloc(8 * (size_t)words * blocks);
    one->out = malloc(8 * (size_t)words * size);
    for (int i = 0; i < words * blocks; i++) one->in[i] = element(number, rank, i);
    for (int i = 0; i < size; i++) counts[i] = words, offsets[i] = i * words;
    switch (one->kind) {
    case 0: MPI_Ibarrier(comm, request); break;
    case 1:
        if (rank == root) memcpy(one->out, one->in, 8 * (size_t)words);
        MPI_Ibcast(one->out, words, type, root, comm, request);
        break;
    case 2: MPI_Iallgather(one->in, words, type, one->out, words, type, comm, request); break;
    case 3: MPI_Ialltoall(one->in, words, type, one->out, words, type, comm, request); break;
    case 4: MPI_Iallreduce(one->in, one->out, words, type, MPI_SUM, comm, request); break;
    case 5: MPI_Igatherv(one->in, words, type, one->out, counts, offsets, type, root, comm, request); break;
    case 6: MPI_Iscan(one->in, one->out, words, type, MPI_SUM, comm, request); break;
    default: MPI_Iallreduce(one->in, one->out, words, type, MPI_LXOR, comm, request); break;
    }
}

static void check_one(Collective *one, int number) {
    int words = one->words, all = one->kind == 6 ? rank + 1 : size;
    long long *out = one->out;
    for (int i = 0; i < words; i++) {
        long long sum = 0, odd = 0;
        for (int of = 0; of < all; of++) sum += element(number, of, i), odd ^= element(number, of, i) != 0;
        switch (one->kind) {
        case 1: CHECK(out[i] == element(number, one->root, i)); break;
        case 4: case 6: CHECK(out[i] == sum); break;
        case 7: CHECK(out[i] == odd); break;
        case 5: if (rank != one->root) break; // fall through
        case 2: for (int of = 0; of < size; of++) CHECK(out[of * words + i] == element(number, of, i)); break;
        case 3: for (int of = 0; of < size; of++) CHECK(out[of * words + i] == element(number, of, rank * words + i)); break;
        }
    }
    free(one->in), free(one->out);
}

// All ranks start the same collectives in one order and complete them in orders of their own.
static void many_are_under_way(void) {
    static Collective all[COUNT];
    static MPI_Request requests[COUNT];
    MPI_Comm comms[COMMUNICATORS] = { MPI_COMM_WORLD };
    for (int i = 1; i < COMMUNICATORS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    state = 1;
    for (int i = 0; i < COUNT; i++) {
        int length = next(16);
        int words = length < 12 ? 1 + next(60) : length < 15 ? 600 + next(2000) : 10000 + next(5000);
        all[i] = (Collective) { next(8), words, next(size), NULL, NULL };
        start_one(&all[i], i, comms[next(COMMUNICATORS)], &requests[i]);
    }
    state = rank + 2;
    for (int left = COUNT; left > 0; left--) {
        int index = next(COUNT), flag = 0;
        while (requests[index] == MPI_REQUEST_NULL) index = (index + 1) % COUNT;
        switch (next(3)) {
        case 0: MPI_Wait(&requests[index], MPI_STATUS_IGNORE); break;
        case 1: while (!flag) MPI_Test(&requests[index], &flag, MPI_STATUS_IGNORE); break;
        default: MPI_Waitany(COUNT, requests, &index, MPI_STATUS_IGNORE); break;
        }
        check_one(&all[index], index);
    }
    for (int i = 1; i < COMMUNICATORS; i++) MPI_Comm_free(&comms[i]);
}

// The last rank waits for a message in the MPI library while the first one completes collectives for
// which there is memory only when the last one has taken results out of its own.
static void memory_is_freed_inside_the_library(int count) {
    static char in[LONG], out[4][LONG];
    MPI_Request requests[4];
    int word = 0;
    for (int i = 0; i < count; i++)
        MPI_Iallreduce(in, out[i], LONG, MPI_INT8_T, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    if (rank == size - 1) MPI_Recv(&word, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    if (rank == 0) MPI_Send(&word, 1, MPI_INT, size - 1, 3, MPI_COMM_WORLD);
}

// The last rank starts fewer collectives than the others, whose starts wait for memory, and ends.
static void one_rank_dies(void) {
    static char in[LONG], out[20][LONG];
    MPI_Request requests[20];
    int count = rank == size - 1 ? 3 : 20;
    for (int i = 0; i < count; i++)
        MPI_Iallreduce(in, out[i], LONG, MPI_INT8_T, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    if (rank == size - 1) raise(9);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    if (argc > 1) one_rank_dies();
    for (int count = 1; count <= 4; count++) memory_is_freed_inside_the_library(count);
    many_are_under_way();
    MPI_Finalize();
    return 0;
}
