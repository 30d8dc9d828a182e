/* The pipelined solve of a banded lower-triangular system, a column of the grid a rank and a message for every value (Rosing
 * and Saltz, "Low Latency Messages on Distributed Memory Multiprocessors", 1995, section 4), over MPI.
 *
 * crates/tradewind/examples/banded_solve is the same program over tradewind: the same matrix, loop, check and figures. A solve
 * lasts from when the first rank begins until the last has finished; it is divided into filling, until the last rank has
 * its first product, computation, the last rank's same loop without communication, and communication, what remains.
 *
 * Three ways of sending and receiving, because libraries differ in which is the best. */
/* The check is bit for bit, so no compiler may fuse a product and a sum in one place and not in the other. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include "measure.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* Couplings of the five-point operator to the neighbours of the same row and of the same column of the grid. */
static const double ACROSS = 1.0, DOWN = 0.5;

enum version { SEND_RECEIVE, AHEAD, PERSISTENT, ALONE };
static const char *const version_names[] = {"send-receive", "receives posted ahead", "persistent"};
enum { VERSIONS = 3 };

/* Receives posted, or sends not completed, at a time: enough to hide the latency, few enough to stay in the first-level cache. */
enum { WINDOW = 16 };

struct solver {
    int rank, ranks, rows, solve;
    double *across, *down, *right_hand_side, *solution;
    double incoming[WINDOW], outgoing[WINDOW];
    MPI_Request receives[WINDOW], sends[WINDOW], fixed_receives[WINDOW], fixed_sends[WINDOW];
};

struct moments {
    double first_begun, last_begun, filled, ended;
};

static void stop(const struct solver *s, const char *what) {
    fprintf(stderr, "rank %d: %s\n", s->rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double *numbers(const struct solver *s) {
    double *made = calloc((size_t)s->rows, sizeof *made);
    if (!made)
        stop(s, "no memory for a column: give fewer rows");
    return made;
}

/* The two diagonals of column `column` of the incompletely factored matrix. */
static void make_column(int column, int rows, double *across, double *down) {
    for (int row = 0; row < rows; row++)
        across[row] = INFINITY;
    for (int c = 0; c <= column; c++) {
        double above = INFINITY;
        for (int row = 0; row < rows; row++)
            above = across[row] = 2.0 * (ACROSS + DOWN) - ACROSS * ACROSS / across[row] - DOWN * DOWN / above;
    }
    double above = INFINITY;
    for (int row = 0; row < rows; row++) {
        double pivot = across[row];
        across[row] = -ACROSS / pivot;
        down[row] = row == 0 ? 0.0 : -DOWN / above;
        above = pivot;
    }
}

/* Some number between -1 and 1, another one in every solve. */
static double right_hand_side(int row, int column, int solve) {
    return ((row * 131LL + column * 17LL + solve * 7LL) % 1009 - 504.0) / 505.0;
}

static void prepare(struct solver *s) {
    for (int row = 0; row < s->rows; row++) {
        s->right_hand_side[row] = right_hand_side(row, s->rank, s->solve);
        s->solution[row] = NAN;
    }
}

/* How many of this rank's values differ from the serial solution. */
static long long wrong(const struct solver *s) {
    double *across = numbers(s), *down = numbers(s), *products = numbers(s), *solution = numbers(s);
    for (int column = 0; column <= s->rank; column++) {
        make_column(column, s->rows, across, down);
        double above = 0.0;
        for (int row = 0; row < s->rows; row++) {
            above = right_hand_side(row, column, s->solve) - products[row] - down[row] * above;
            products[row] = across[row] * above;
            solution[row] = above;
        }
    }
    long long different = 0;
    for (int row = 0; row < s->rows; row++)
        different += memcmp(&s->solution[row], &solution[row], sizeof *solution) != 0;
    free(across);
    free(down);
    free(products);
    free(solution);
    return different;
}

static inline double receive(struct solver *s, enum version version, int row, double incoming) {
    int from = s->rank - 1, place = row % WINDOW;
    switch (version) {
    case ALONE: return incoming;
    case SEND_RECEIVE:
        MPI_Recv(&incoming, 1, MPI_DOUBLE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return incoming;
    case AHEAD:
        MPI_Wait(&s->receives[place], MPI_STATUS_IGNORE);
        incoming = s->incoming[place];
        if (row + WINDOW < s->rows)
            MPI_Irecv(&s->incoming[place], 1, MPI_DOUBLE, from, 0, MPI_COMM_WORLD, &s->receives[place]);
        return incoming;
    case PERSISTENT:
        MPI_Wait(&s->fixed_receives[place], MPI_STATUS_IGNORE);
        incoming = s->incoming[place];
        if (row + WINDOW < s->rows)
            MPI_Start(&s->fixed_receives[place]);
        return incoming;
    }
    return incoming;
}

static inline void send(struct solver *s, enum version version, int row, double product) {
    int to = s->rank + 1, place = row % WINDOW;
    switch (version) {
    case ALONE: __asm__ volatile("" : : "m"(product)); break;
    case SEND_RECEIVE: MPI_Send(&product, 1, MPI_DOUBLE, to, 0, MPI_COMM_WORLD); break;
    case AHEAD:
        MPI_Wait(&s->sends[place], MPI_STATUS_IGNORE);
        s->outgoing[place] = product;
        MPI_Isend(&s->outgoing[place], 1, MPI_DOUBLE, to, 0, MPI_COMM_WORLD, &s->sends[place]);
        break;
    case PERSISTENT:
        MPI_Wait(&s->fixed_sends[place], MPI_STATUS_IGNORE);
        s->outgoing[place] = product;
        MPI_Start(&s->fixed_sends[place]);
        break;
    }
}

/* Posts the first receives, which no message has to wait for. */
static void open_window(struct solver *s, enum version version) {
    for (int place = 0; place < WINDOW && place < s->rows && s->rank > 0; place++) {
        if (version == AHEAD)
            MPI_Irecv(&s->incoming[place], 1, MPI_DOUBLE, s->rank - 1, 0, MPI_COMM_WORLD, &s->receives[place]);
        if (version == PERSISTENT)
            MPI_Start(&s->fixed_receives[place]);
    }
}

static void close_window(struct solver *s, enum version version) {
    if (version == AHEAD)
        MPI_Waitall(WINDOW, s->sends, MPI_STATUSES_IGNORE);
    if (version == PERSISTENT && s->rank + 1 < s->ranks)
        MPI_Waitall(WINDOW, s->fixed_sends, MPI_STATUSES_IGNORE);
}

/* The loop itself, this rank's column from top to bottom. Returns when it had the first product. */
static inline __attribute__((always_inline)) double sweep_of(struct solver *s, enum version version) {
    int first = s->rank == 0, last = s->rank + 1 == s->ranks;
    double filled = 0.0, above = 0.0, nothing = 0.0;
    /* Unknown to the compiler, so that it is subtracted as any other product. */
    __asm__ volatile("" : "+m"(nothing));
    for (int row = 0; row < s->rows; row++) {
        double product = first ? 0.0 : receive(s, version, row, nothing);
        if (row == 0)
            filled = wall_us();
        above = s->right_hand_side[row] - product - s->down[row] * above;
        s->solution[row] = above;
        if (!last)
            send(s, version, row, s->across[row] * above);
    }
    return filled;
}

static __attribute__((noinline)) double sweep(struct solver *s, enum version version) {
    switch (version) {
    case SEND_RECEIVE: return sweep_of(s, SEND_RECEIVE);
    case AHEAD: return sweep_of(s, AHEAD);
    case PERSISTENT: return sweep_of(s, PERSISTENT);
    case ALONE: return sweep_of(s, ALONE);
    }
    return 0.0;
}

/* One solve, begun by all ranks together; its moments on the ranks that count. */
static struct moments timed(struct solver *s, enum version version) {
    int first = s->rank == 0, last = s->rank + 1 == s->ranks;
    open_window(s, version);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = wall_us();
    double filled = sweep(s, version);
    double ended = wall_us();
    close_window(s, version);
    double all[4] = {first ? begun : 0.0, last ? begun : 0.0, last ? filled : 0.0, last ? ended : 0.0};
    MPI_Allreduce(MPI_IN_PLACE, all, 4, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return (struct moments){all[0], all[1], all[2], all[3]};
}

static double median(double *values, int count) {
    sort(values, count);
    return percentile(values, count, 50);
}

/* So many solves: the medians of total, filling and computation. Returns the number of wrong values of this rank. */
static long long measure_round(struct solver *s, enum version version, int solves, double *figures) {
    double *totals = malloc(sizeof *totals * 3 * (size_t)solves);
    if (!totals)
        stop(s, "no memory for the times: give fewer solves");
    double *fills = totals + solves, *computations = fills + solves;
    long long different = 0;
    for (int i = 0; i < solves; i++) {
        s->solve++;
        prepare(s);
        struct moments alone = timed(s, ALONE);
        prepare(s);
        struct moments together = timed(s, version);
        computations[i] = alone.ended - alone.last_begun;
        totals[i] = together.ended - together.first_begun;
        fills[i] = together.filled - together.first_begun;
        different += wrong(s);
    }
    figures[0] = median(totals, solves);
    figures[1] = median(fills, solves);
    figures[2] = median(computations, solves);
    free(totals);
    return different;
}

static void add(const char *name, double *values, int count) {
    sort(values, count);
    printf(",\"%s\":[%.5f,%.5f,%.5f,%d]", name, percentile(values, count, 50), percentile(values, count, 10),
           percentile(values, count, 90), count);
}

static void open_solver(struct solver *s, int rows) {
    MPI_Comm_rank(MPI_COMM_WORLD, &s->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s->ranks);
    s->rows = rows;
    s->across = numbers(s);
    s->down = numbers(s);
    s->right_hand_side = numbers(s);
    s->solution = numbers(s);
    make_column(s->rank, rows, s->across, s->down);
    int from = s->rank > 0 ? s->rank - 1 : MPI_PROC_NULL, to = s->rank + 1 < s->ranks ? s->rank + 1 : MPI_PROC_NULL;
    for (int place = 0; place < WINDOW; place++) {
        s->receives[place] = s->sends[place] = MPI_REQUEST_NULL;
        MPI_Recv_init(&s->incoming[place], 1, MPI_DOUBLE, from, 0, MPI_COMM_WORLD, &s->fixed_receives[place]);
        MPI_Send_init(&s->outgoing[place], 1, MPI_DOUBLE, to, 0, MPI_COMM_WORLD, &s->fixed_sends[place]);
    }
}

static void close_solver(struct solver *s) {
    for (int place = 0; place < WINDOW; place++) {
        MPI_Request_free(&s->fixed_receives[place]);
        MPI_Request_free(&s->fixed_sends[place]);
    }
    free(s->across);
    free(s->down);
    free(s->right_hand_side);
    free(s->solution);
}

static int argument(int count, char **arguments, int index, int otherwise) {
    int given = count > index ? atoi(arguments[index]) : otherwise;
    if (given < 1) {
        fprintf(stderr, "usage: %s [ROWS [ROUNDS [SOLVES]]], each at least 1\n", arguments[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return given;
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    struct solver s = {0};
    int rounds = argument(count, arguments, 2, 7), solves = argument(count, arguments, 3, 20);
    open_solver(&s, argument(count, arguments, 1, 2048));
    double *figures[VERSIONS][3];
    long long different[VERSIONS] = {0};
    for (int v = 0; v < VERSIONS; v++)
        for (int f = 0; f < 3; f++)
            if (!(figures[v][f] = malloc(sizeof(double) * (size_t)rounds)))
                stop(&s, "no memory for the times: give fewer rounds");
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < VERSIONS; turn++) {
            int v = (round + turn) % VERSIONS;
            double found[3];
            different[v] += measure_round(&s, (enum version)v, solves, found);
            figures[v][0][round] = found[2] / s.rows;
            figures[v][1][round] = (found[0] - found[1] - found[2]) / s.rows;
            figures[v][2][round] = found[1];
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, different, VERSIONS, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    long long all_wrong = 0;
    for (int v = 0; v < VERSIONS; v++) {
        if (s.rank == 0) {
            printf("{\"program\":\"banded_solve\",\"version\":\"%s\",\"ranks\":%d,\"rows\":%d", version_names[v], s.ranks,
                   s.rows);
            add("computation_us", figures[v][0], rounds);
            add("communication_us", figures[v][1], rounds);
            add("fill_us", figures[v][2], rounds);
            printf(",\"wrong\":%lld}\n", different[v]);
        }
        all_wrong += different[v];
        for (int f = 0; f < 3; f++)
            free(figures[v][f]);
    }
    if (all_wrong)
        stop(&s, "values differ from the serial solution");
    close_solver(&s);
    MPI_Finalize();
    return 0;
}
