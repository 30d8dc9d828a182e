// Times of collectives and of calls that are left to the MPI library, in microseconds. Prints a line for
// each row: its group, its name, the bytes of a block, the time, and of some groups further values.
//
//   rows GROUP... LENGTH...
//
// exposed   nonblocking and persistent collectives beside a computation that takes as long as the
//           collective alone: the time inside the start and the wait, of the slowest rank; the time
//           alone; the processor time of all threads of all ranks beyond the computation
// late      the same where each rank in turn starts late by half of the computation
// blocking  blocking collectives that follow one another, each rank as root in turn: of the slowest rank
// left      calls that are left to the MPI library at any length: messages to the next rank, also
//           while a collective is active, windows, a file, collectives without data or of
//           MPI_COMM_SELF, a test of a null request
// once      each collective of the other groups once, untimed, for a report of those that are taken
//
// Each time is the median of repetitions.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1 << 20, SAMPLES = 200, SAMPLES_OF_LONG = 30, FEWEST = 9, FIRST = 5, REPETITIONS = 9 };
// Time of the repetitions of one row, in seconds: with more ranks than processors a barrier may take
// milliseconds. There are fewer repetitions then, and at least the fewest.
static const double LIMIT = 0.05, LIMIT_OF_BLOCKING = 0.002;
// Time in seconds within which a message has arrived.
static const double MARGIN = 5e-6;
static int rank, size, counts[64], numbers[64], at[64];
static char *in, *out;
static MPI_Comm ring;
static volatile double sink;

// The blocking collectives; the nonblocking ones have the request as a further argument.
#define BYTE MPI_BYTE
#define SUM MPI_DOUBLE, MPI_SUM
#define COLLECTIVES(ROW)                                                                       \
    ROW(bcast, Bcast, (out, n, BYTE, root, world))                                             \
    ROW(gather, Gather, (in, n, BYTE, out, n, BYTE, root, world))                              \
    ROW(gatherv, Gatherv, (in, n, BYTE, out, counts, at, BYTE, root, world))                   \
    ROW(scatter, Scatter, (in, n, BYTE, out, n, BYTE, root, world))                            \
    ROW(scatterv, Scatterv, (in, counts, at, BYTE, out, n, BYTE, root, world))                 \
    ROW(allgather, Allgather, (in, n, BYTE, out, n, BYTE, world))                              \
    ROW(allgatherv, Allgatherv, (in, n, BYTE, out, counts, at, BYTE, world))                   \
    ROW(alltoall, Alltoall, (in, n, BYTE, out, n, BYTE, world))                                \
    ROW(alltoallv, Alltoallv, (in, counts, at, BYTE, out, counts, at, BYTE, world))            \
    ROW(reduce, Reduce, (in, out, n / 8, SUM, root, world))                                    \
    ROW(allreduce, Allreduce, (in, out, n / 8, SUM, world))                                    \
    ROW(reduce_scatter, Reduce_scatter, (in, out, numbers, SUM, world))                        \
    ROW(reduce_scatter_block, Reduce_scatter_block, (in, out, n / 8, SUM, world))              \
    ROW(scan, Scan, (in, out, n / 8, SUM, world))                                              \
    ROW(exscan, Exscan, (in, out, n / 8, SUM, world))                                          \
    ROW(neighbor_allgather, Neighbor_allgather, (in, n, BYTE, out, n, BYTE, ring))             \
    ROW(neighbor_alltoall, Neighbor_alltoall, (in, n, BYTE, out, n, BYTE, ring))               \
    ROW(neighbor_alltoallv, Neighbor_alltoallv, (in, counts, at, BYTE, out, counts, at, BYTE, ring))

#define NAME(name, function, arguments) #name,
static const char *names[] = { "barrier", COLLECTIVES(NAME) "bcast_init", "allreduce_init" };
enum { KINDS = sizeof names / sizeof *names - 2, PERSISTENT = 2 };

static void call(int kind, int n, int root) {
    MPI_Comm world = MPI_COMM_WORLD;
    int number = 0;
    if (kind == number++) MPI_Barrier(world);
#define CALL(name, function, arguments) else if (kind == number++) MPI_##function arguments;
    COLLECTIVES(CALL)
}

static void start(int kind, int n, MPI_Request *request) {
    MPI_Comm world = MPI_COMM_WORLD;
    int number = 0, root = 0;
    if (kind == number++) MPI_Ibarrier(world, request);
// The arguments of a row with the request behind them.
#define WITH_REQUEST(...) (__VA_ARGS__, request)
#define START(name, function, arguments) else if (kind == number++) MPI_I##name WITH_REQUEST arguments;
    COLLECTIVES(START)
}

static const char *name_of_nonblocking(int kind) {
    static char name[64];
    snprintf(name, sizeof name, "%s%s", kind < KINDS ? "i" : "", names[kind]);
    return name;
}

// The time of a clock in seconds.
static double read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

// Computes for a time, and returns the processor time that this took: other threads may have had the
// core meanwhile.
static double compute(double seconds) {
    double begin = read_clock(CLOCK_THREAD_CPUTIME_ID), end = MPI_Wtime() + seconds, x = 1;
    while (MPI_Wtime() < end)
        for (int i = 0; i < 50; i++) x = x * 1.0000001 + 1e-9;
    sink = x;
    return read_clock(CLOCK_THREAD_CPUTIME_ID) - begin;
}

static int ascending(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static double median(double *samples, int count) {
    qsort(samples, count, sizeof *samples, ascending);
    return samples[count / 2];
}

// Brings the ranks together: by messages, which the MPI library carries on both sides of a comparison, and
// by the clock of the node where each rank has a core. Ranks leave a barrier at different times, and
// tradewind's barrier, which replaces PMPI_Barrier, too, at others than the library's.
static void together(void) {
    double latest = read_clock(CLOCK_MONOTONIC), other;
    for (int step = 1; step < size; step *= 2) {
        int to = (rank + step) % size, from = (rank + size - step) % size;
        MPI_Sendrecv(&latest, 1, MPI_DOUBLE, to, 0, &other, 1, MPI_DOUBLE, from, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        if (other > latest) latest = other;
    }
    if (size > sysconf(_SC_NPROCESSORS_ONLN)) return;
    while (read_clock(CLOCK_MONOTONIC) < latest + MARGIN);
}

static double combined(double own, MPI_Op operation) {
    double all;
    MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, operation, MPI_COMM_WORLD);
    return all;
}

// The request of the persistent collective that is measured.
static MPI_Request persistent = MPI_REQUEST_NULL;

static void initialize(int kind, int n) {
#if MPI_VERSION >= 4
    MPI_Comm world = MPI_COMM_WORLD;
    if (kind == KINDS) MPI_Bcast_init(out, n, BYTE, 0, world, MPI_INFO_NULL, &persistent);
    if (kind > KINDS) MPI_Allreduce_init(in, out, n / 8, SUM, world, MPI_INFO_NULL, &persistent);
#endif
}

// Executes a collective beside a computation; alone if that takes no time. Returns the exposed time,
// and writes the processor time beyond the computation to `processor`.
static double sample(int kind, int bytes, double delay, double computation, double *processor) {
    MPI_Request own, *request = kind < KINDS ? &own : &persistent;
    together();
    if (delay > 0) compute(delay);
    double used = read_clock(CLOCK_PROCESS_CPUTIME_ID), computing = 0, begin = MPI_Wtime();
    if (kind < KINDS) start(kind, bytes, request);
    else MPI_Start(request);
    double started = MPI_Wtime(), computed = started;
    if (computation > 0) computing = compute(computation), computed = MPI_Wtime();
    MPI_Wait(request, MPI_STATUS_IGNORE);
    double end = MPI_Wtime();
    *processor = read_clock(CLOCK_PROCESS_CPUTIME_ID) - used - computing;
    return started - begin + end - computed;
}

// The median of the exposed time. Writes the processor time of all ranks to `processor`. A rank that
// is late is so in turn, and a sample is then the mean of as many calls as there are ranks.
static double exposed(int kind, int bytes, int is_late, double computation, double *processor) {
    static double samples[SAMPLES], processors[SAMPLES];
    double begin = MPI_Wtime();
    for (int i = 0; i < FIRST; i++) sample(kind, bytes, 0, computation, processor);
    double one = combined(MPI_Wtime() - begin, MPI_MAX) / FIRST;
    int turns = is_late ? size : 1, count = bytes >= 65536 ? SAMPLES_OF_LONG : SAMPLES;
    if (turns * one * count > LIMIT) count = LIMIT / (turns * one);
    if (count < FEWEST) count = FEWEST;
    for (int i = -count / 5; i < count; i++) {
        double sum = 0, used = 0;
        for (int turn = 0; turn < turns; turn++) {
            double delay = is_late && turn == rank ? computation / 2 : 0, more;
            sum += sample(kind, bytes, delay, computation, &more) / turns;
            used += more / turns;
        }
        if (i >= 0) samples[i] = sum, processors[i] = used;
    }
    *processor = combined(median(processors, count), MPI_SUM);
    return combined(median(samples, count), MPI_MAX);
}

static void measure_exposed(int kind, int bytes, int is_late) {
    double processor, alone = exposed(kind, bytes, 0, 0, &processor);
    double beside = exposed(kind, bytes, is_late, alone, &processor);
    if (rank == 0)
        printf("%s %s %d %.3f %.3f %.3f\n", is_late ? "late" : "exposed", name_of_nonblocking(kind),
               bytes, 1e6 * beside, 1e6 * alone, 1e6 * processor);
}

static double repeat(int kind, int n, int calls) {
    together();
    double begin = MPI_Wtime();
    for (int i = 0; i < calls; i++) call(kind, n, i % size);
    return combined((MPI_Wtime() - begin) / calls, MPI_MAX);
}

static void measure_blocking(int kind, int bytes) {
    double times[REPETITIONS];
    repeat(kind, bytes, 3);
    int calls = LIMIT_OF_BLOCKING / repeat(kind, bytes, 5);
    calls = calls < 2 ? 2 : calls > 1000 ? 1000 : calls;
    for (int i = 0; i < REPETITIONS; i++) times[i] = repeat(kind, bytes, calls);
    double time = median(times, REPETITIONS);
    if (rank == 0) printf("blocking %s %d %.4f\n", names[kind], bytes, 1e6 * time);
}

// Prints the median time of a statement that is executed `count` times in a row.
#define TIME(name, bytes, count, statement)                                                \
    do {                                                                                   \
        double samples[15];                                                                \
        for (int round = 0; round < 15; round++) {                                         \
            together();                                                                    \
            double begin = MPI_Wtime();                                                    \
            for (int i = 0; i < (count); i++) statement;                                   \
            samples[round] = 1e6 * (MPI_Wtime() - begin) / (count);                        \
        }                                                                                  \
        double time = median(samples, 15);                                                 \
        if (rank == 0) printf("left %s %d %.5f\n", name, bytes, time);                     \
    } while (0)

static void exchange(int bytes) {
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Request requests[2];
    MPI_Irecv(in, bytes, BYTE, before, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, bytes, BYTE, next, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

// A collective that is active for the first rank until the second one starts it.
static void beside_a_collective(void) {
    MPI_Request active = MPI_REQUEST_NULL;
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    if (rank == 0) MPI_Ibarrier(copy, &active);
    TIME("message_beside_ibarrier", 8, 1000, exchange(8));
    TIME("message_beside_ibarrier", 65536, 100, exchange(65536));
    if (rank > 0) MPI_Ibarrier(copy, &active);
    MPI_Wait(&active, MPI_STATUS_IGNORE);
    MPI_Comm_free(&copy);
}

static void windows(void) {
    int next = (rank + 1) % size;
    void *memory;
    MPI_Win window;
    MPI_Win_allocate(65536, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    MPI_Win_lock_all(0, window);
    TIME("put", 8, 1000, (MPI_Put(out, 8, BYTE, next, 0, 8, BYTE, window),
                          MPI_Win_flush(next, window)));
    TIME("put", 65536, 100, (MPI_Put(out, 65536, BYTE, next, 0, 65536, BYTE, window),
                             MPI_Win_flush(next, window)));
    MPI_Win_unlock_all(window);
    TIME("fence", 0, 50, MPI_Win_fence(0, window));
    MPI_Win_free(&window);
}

static void file(void) {
    char name[] = "/tmp/tradewind-rows-XXXXXX";
    if (rank == 0) close(mkstemp(name));
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_File file;
    MPI_Offset place = 65536 * (MPI_Offset)rank;
    int mode = MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
    MPI_File_open(MPI_COMM_WORLD, name, mode, MPI_INFO_NULL, &file);
    TIME("write_at_all", 65536, 20,
         MPI_File_write_at_all(file, place, out, 65536, BYTE, MPI_STATUS_IGNORE));
    MPI_File_close(&file);
}

static void measure_left(void) {
    MPI_Comm world = MPI_COMM_WORLD, self = MPI_COMM_SELF;
    MPI_Request none = MPI_REQUEST_NULL;
    MPI_Status *ignored = MPI_STATUS_IGNORE;
    int flag;
    TIME("message", 8, 1000, exchange(8));
    TIME("message", 65536, 100, exchange(65536));
    beside_a_collective();
    windows();
    file();
    TIME("test_of_null", 0, 100000, MPI_Test(&none, &flag, ignored));
    TIME("ibarrier_of_self", 0, 20000, (MPI_Ibarrier(self, &none), MPI_Wait(&none, ignored)));
    TIME("iallreduce_of_self", 8, 20000,
         (MPI_Iallreduce(in, out, 1, SUM, self, &none), MPI_Wait(&none, ignored)));
    TIME("allreduce_of_self", 8, 20000, MPI_Allreduce(in, out, 1, SUM, self));
    TIME("ibcast", 0, 20000, (MPI_Ibcast(in, 0, BYTE, 0, world, &none), MPI_Wait(&none, ignored)));
    TIME("bcast", 0, 100000, MPI_Bcast(in, 0, BYTE, 0, world));
    TIME("gather", 0, 100000, MPI_Gather(in, 0, BYTE, out, 0, BYTE, 0, world));
    TIME("scatter", 0, 100000, MPI_Scatter(in, 0, BYTE, out, 0, BYTE, 0, world));
    TIME("allreduce", 0, 20000, MPI_Allreduce(in, out, 0, SUM, world));
    TIME("reduce", 0, 100000, MPI_Reduce(in, out, 0, SUM, 0, world));
    TIME("allgather", 0, 100000, MPI_Allgather(in, 0, BYTE, out, 0, BYTE, world));
    TIME("scan", 0, 100000, MPI_Scan(in, out, 0, SUM, world));
}

// Each collective once, without any other one.
static void once(int kind, int bytes) {
    MPI_Request request;
    if (kind < KINDS) {
        call(kind, bytes, 0);
        start(kind, bytes, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Start(&persistent);
        MPI_Wait(&persistent, MPI_STATUS_IGNORE);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int periodic = 1, is_exposed = 0, is_late = 0, is_blocking = 0, is_left = 0, is_once = 0, first = 1;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
    in = calloc(size + 2, MOST);
    out = calloc(size + 2, MOST);
    for (; first < argc && atoi(argv[first]) == 0; first++) {
        is_exposed |= !strcmp(argv[first], "exposed");
        is_late |= !strcmp(argv[first], "late");
        is_blocking |= !strcmp(argv[first], "blocking");
        is_left |= !strcmp(argv[first], "left");
        is_once |= !strcmp(argv[first], "once");
    }
    if (is_left) measure_left();
    for (int kind = 0; kind < KINDS + (MPI_VERSION >= 4 ? PERSISTENT : 0); kind++)
        for (int argument = first; argument < (kind == 0 && argc > first ? first + 1 : argc); argument++) {
            int bytes = kind == 0 ? 0 : atoi(argv[argument]);
            for (int i = 0; i < size; i++) {
                counts[i] = bytes, numbers[i] = bytes / 8, at[i] = i * bytes;
            }
            initialize(kind, bytes);
            if (is_once) once(kind, bytes);
            if (is_exposed) measure_exposed(kind, bytes, 0);
            if (is_late) measure_exposed(kind, bytes, 1);
            if (is_blocking && kind < KINDS) measure_blocking(kind, bytes);
            if (kind >= KINDS) MPI_Request_free(&persistent);
            if (rank == 0) fflush(stdout);
        }
    MPI_Finalize();
    return 0;
}
