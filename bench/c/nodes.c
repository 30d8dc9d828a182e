/* Between nodes: half a round trip, a barrier, and an exchange of eight rounds by itself and under a computation.
 *
 * A round begins when both messages of the round before have passed. MPI has no collective of that form, so the program does
 * between nodes what a library without offload does for one: the first round is started, the rest follows in the wait. Nothing is
 * tested in between. measure::nodes of the workspace is the same in Rust. */
#include "report.h"
#include <string.h>

enum { ROUNDS = 8, BYTES = 8, WARM_UP = 20 };

static int rank_here, ranks;

static char message[1 << 20];
static int message_bytes;

static void trips(int count) {
    for (int i = 0; i < count; i++) {
        if (rank_here == 0) {
            MPI_Send(message, message_bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(message, message_bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank_here == 1) {
            MPI_Recv(message, message_bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(message, message_bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
    }
}

static void barriers(int count) {
    for (int i = 0; i < count; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

static char out[BYTES], back[BYTES];

static void start_round(MPI_Request requests[2]) {
    MPI_Irecv(back, BYTES, MPI_BYTE, (rank_here + ranks - 1) % ranks, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, BYTES, MPI_BYTE, (rank_here + 1) % ranks, 1, MPI_COMM_WORLD, &requests[1]);
}

static void finish(MPI_Request requests[2]) {
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int round = 1; round < ROUNDS; round++) {
        start_round(requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
}

static void exchanges(int count) {
    MPI_Request requests[2];
    for (int i = 0; i < count; i++) {
        start_round(requests);
        finish(requests);
    }
}

/* Microseconds of one call, the slowest rank's. */
static double each(void (*calls)(int), int count) {
    calls(WARM_UP);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = wall_us();
    calls(count);
    return agree((wall_us() - begin) / count);
}

static void print_of(const char *what, int bytes, double value) {
    if (rank_here == 0)
        printf("{\"what\":\"%s\",\"bytes\":%d,\"nodes\":%d,\"value\":%.3f}\n", what, bytes, ranks, value);
}

static void print(const char *what, double value) {
    print_of(what, 0, value);
}

/* How many steps take so long here, the same everywhere: the slowest core's number. */
static uint64_t steps(double microseconds) {
    const uint64_t tried = 1000000;
    double best = 1e18;
    for (int i = 0; i < 15; i++) {
        double begin = wall_us();
        compute(tried);
        double spent = wall_us() - begin;
        best = spent < best ? spent : best;
    }
    return (uint64_t)(microseconds / agree(best) * tried);
}

static void under_computation(double computation_us, int laps) {
    uint64_t work = steps(computation_us);
    double *bare = calloc((size_t)laps * 4, sizeof *bare);
    if (!bare)
        MPI_Abort(MPI_COMM_WORLD, 1);
    double *over = bare + laps, *processor_bare = over + laps, *processor_over = processor_bare + laps;
    for (int lap = 0; lap < laps; lap++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double used = processor_us(), begin = wall_us();
        compute(work);
        bare[lap] = wall_us() - begin;
        processor_bare[lap] = processor_us() - used;
        MPI_Barrier(MPI_COMM_WORLD);
        used = processor_us(), begin = wall_us();
        MPI_Request requests[2];
        start_round(requests);
        compute(work);
        finish(requests);
        over[lap] = wall_us() - begin;
        processor_over[lap] = processor_us() - used;
    }
    sort(bare, laps);
    sort(processor_bare, laps);
    double usual = percentile(bare, laps, 50), usually_used = percentile(processor_bare, laps, 50);
    double *total = malloc(sizeof *total * (size_t)laps);
    if (!total)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memcpy(total, over, sizeof *total * (size_t)laps);
    for (int lap = 0; lap < laps; lap++) {
        over[lap] -= usual;
        processor_over[lap] -= usually_used;
    }
    combine(over, laps, MPI_MAX);
    combine(total, laps, MPI_MAX);
    combine(processor_over, laps, MPI_SUM);
    sort(over, laps);
    sort(total, laps);
    sort(processor_over, laps);
    print("exchange under computation, total", percentile(total, laps, 50));
    print("exchange under computation, exposed", percentile(over, laps, 50));
    print("processor time of an exchange, all nodes", percentile(processor_over, laps, 50));
    free(bare);
    free(total);
}

/* nodes CALLS COMPUTATION-US */
int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_here);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count != 3 || ranks < 2) {
        fprintf(stderr, "usage, on two ranks or more: %s CALLS COMPUTATION-US\n", arguments[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int calls = atoi(arguments[1]);
    static const int messages[] = {BYTES, 64, 512, 4096, 65536, 1 << 20};
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        message_bytes = messages[i];
        print_of("ping-pong, half a round trip", message_bytes, each(trips, calls) / 2);
    }
    print("barrier", each(barriers, calls));
    print("exchange alone", each(exchanges, calls / 4 + 1));
    under_computation(atof(arguments[2]), calls / 4 + 1);
    MPI_Finalize();
    return 0;
}
