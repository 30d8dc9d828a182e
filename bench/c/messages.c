/* One way from rank 0 to rank 1: half a round trip of a small message, the time from message to message in a stream, and half
 * a round trip of large ones, of which every byte is written before and read after it. Also an exchange that is started before a
 * computation and completed after it. MPI has one way to send: "pingpong", "stream" and "written" are "latency", "rate" and
 * "large" here, and other ways in bench/loops. */
#include "messages.h"
#include <string.h>

enum { ROUND_TRIPS = 100, WINDOW = 64, WINDOWS = 8 };

static uint64_t *sent, *received;

/* Eight bytes that say which message it is, and as many more as the row has. */
static void send(const struct row *row, int tag, uint64_t number) {
    sent[0] = number;
    MPI_Send(sent, row->bytes, MPI_BYTE, 1 - row->rank, tag, MPI_COMM_WORLD);
}

static void receive(const struct row *row, int tag, uint64_t number) {
    MPI_Recv(received, row->bytes, MPI_BYTE, 1 - row->rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (received[0] != number)
        stop(row, "a message is wrong");
}

static double latency(const struct row *row, int batch) {
    double start_us = wall_us();
    for (int i = 0; i < ROUND_TRIPS; i++) {
        uint64_t number = (uint64_t)batch * ROUND_TRIPS + (uint64_t)i;
        if (row->rank == 0) {
            send(row, PING, number);
            receive(row, PONG, number);
        } else {
            receive(row, PING, number);
            send(row, PONG, number);
        }
    }
    return (wall_us() - start_us) / ROUND_TRIPS / 2;
}

/* Windows of 64 messages, each answered by one, as the OSU benchmarks have it. */
static double rate(const struct row *row, int batch) {
    MPI_Request requests[WINDOW];
    size_t words = (size_t)row->bytes / 8;
    double start_us = wall_us();
    for (int w = 0; w < WINDOWS; w++) {
        uint64_t first = ((uint64_t)batch * WINDOWS + (uint64_t)w) * WINDOW;
        for (uint64_t i = 0; i < WINDOW; i++) {
            if (row->rank == 0) {
                sent[i * words] = first + i;
                MPI_Isend(&sent[i * words], row->bytes, MPI_BYTE, 1, PING, MPI_COMM_WORLD, &requests[i]);
            } else {
                MPI_Irecv(&received[i * words], row->bytes, MPI_BYTE, 0, PING, MPI_COMM_WORLD, &requests[i]);
            }
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (row->rank == 0) {
            receive(row, PONG, first);
        } else {
            for (uint64_t i = 0; i < WINDOW; i++)
                if (received[i * words] != first + i)
                    stop(row, "a message is wrong");
            send(row, PONG, first);
        }
    }
    return (wall_us() - start_us) / WINDOWS / WINDOW;
}

static void fill(uint64_t *words, size_t count, uint64_t first) {
    for (size_t i = 0; i < count; i++)
        words[i] = first + i;
}

/* The sum of all words, and so a look at every byte. */
static uint64_t sum(const uint64_t *words, size_t count) {
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += words[i];
    return total;
}

static void receive_large(const struct row *row, uint64_t first) {
    size_t words = (size_t)row->bytes / 8;
    MPI_Recv(received, row->bytes, MPI_BYTE, 1 - row->rank, PING, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (sum(received, words) != words * first + words * (words - 1) / 2)
        stop(row, "a message is wrong");
}

/* One message there and one back, each written anew by the program before, untimed, and read by the program after, timed. */
static double large(const struct row *row, int batch) {
    fill(sent, (size_t)row->bytes / 8, (uint64_t)batch * 3 + (uint64_t)row->rank);
    uint64_t expected = (uint64_t)batch * 3 + 1 - (uint64_t)row->rank;
    MPI_Barrier(MPI_COMM_WORLD);
    double start_us = wall_us();
    if (row->rank == 0) {
        MPI_Send(sent, row->bytes, MPI_BYTE, 1, PING, MPI_COMM_WORLD);
        receive_large(row, expected);
    } else {
        receive_large(row, expected);
        MPI_Send(sent, row->bytes, MPI_BYTE, 0, PING, MPI_COMM_WORLD);
    }
    return (wall_us() - start_us) / 2;
}

/* One message each way, both received into what was posted before. */
static void exchange(const struct row *row, MPI_Request *requests) {
    MPI_Irecv(received, row->bytes, MPI_BYTE, 1 - row->rank, PING, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(sent, row->bytes, MPI_BYTE, 1 - row->rank, PING, MPI_COMM_WORLD, &requests[1]);
}

static double posted(const struct row *row, int batch) {
    MPI_Request requests[2];
    sent[0] = (uint64_t)batch;
    MPI_Barrier(MPI_COMM_WORLD);
    double start_us = wall_us();
    exchange(row, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    double time_us = wall_us() - start_us;
    if (received[0] != (uint64_t)batch)
        stop(row, "a message is wrong");
    return agree(time_us);
}

static double median_of(const double *values, int count) {
    double *copy = malloc(sizeof *copy * (size_t)count);
    memcpy(copy, values, sizeof *copy * (size_t)count);
    sort(copy, count);
    double median = percentile(copy, count, 50);
    free(copy);
    return median;
}

/* What an exchange adds to a computation, as overlap.c has it for a collective. */
static void measure_posted(const struct row *row, struct options *options) {
    enum { LEAST = 20, MOST = 2000 };
    size_t words = (size_t)row->bytes / 8;
    double start_us = wall_us();
    compute(row->computation);
    double computation_us = agree(wall_us() - start_us);
    int repetitions = repetitions_within(options->budget_us, 3 * computation_us, LEAST, MOST);
    double *computation = malloc(sizeof(double) * (size_t)repetitions), *total = malloc(sizeof(double) * (size_t)repetitions);
    for (int r = 0; r < repetitions; r++) {
        MPI_Barrier(MPI_COMM_WORLD);
        skew(&options->random, row->computation, options->skew_percent);
        start_us = wall_us();
        compute(row->computation);
        computation[r] = wall_us() - start_us;
        fill(sent, words, (uint64_t)r * 3 + (uint64_t)row->rank);
        MPI_Barrier(MPI_COMM_WORLD);
        skew(&options->random, row->computation, options->skew_percent);
        MPI_Request requests[2];
        start_us = wall_us();
        exchange(row, requests);
        compute(row->computation);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        total[r] = wall_us() - start_us;
        if (sum(received, words) != words * ((uint64_t)r * 3 + 1 - (uint64_t)row->rank) + words * (words - 1) / 2)
            stop(row, "a message is wrong");
    }
    double alone = median_of(computation, repetitions);
    for (int r = 0; r < repetitions; r++)
        total[r] -= alone;
    combine(total, repetitions, MPI_MAX);
    begin_line("messages", row->op, row->bytes, row->rank, row->ranks);
    add_summary(row->rank, "message_us", total, repetitions);
    end_line(row->rank);
    free(computation);
    free(total);
}

static batch *of_name(const struct row *row) {
    if (strcmp(row->op, "latency") == 0 || strcmp(row->op, "pingpong") == 0)
        return latency;
    if (strcmp(row->op, "rate") == 0 || strcmp(row->op, "stream") == 0)
        return rate;
    if (strcmp(row->op, "posted") == 0)
        return posted;
    if (strcmp(row->op, "large") == 0 || strcmp(row->op, "written") == 0)
        return large;
    stop(row, "no such operation: latency, rate, large, pingpong, written, stream or posted");
    return NULL;
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct options options = read_options(count, arguments, rank);
    for (int i = FIRST_ROW; i < count; i++) {
        struct row row = read_row(arguments[i]);
        size_t size = (size_t)row.bytes * WINDOW;
        sent = memory(&row, size);
        received = memory(&row, size);
        if (row.computation.amount > 0)
            measure_posted(&row, &options);
        else
            measure_batches(&row, "messages", of_name(&row), options.budget_us);
        free(sent);
        free(received);
    }
    MPI_Finalize();
    return 0;
}
