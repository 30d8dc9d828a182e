// Exposed time of nonblocking collectives beside a computation that takes as long as the collective
// alone: the time inside the start and the wait. Prints a line for each collective and length:
// name, bytes of a block, time alone, exposed time, processor time; medians in microseconds. The times
// are those of the slowest rank, the processor time that of all threads of all ranks beyond the
// computation.
// The arguments are lengths. With the argument "message" it prints the times of calls that are left
// to the MPI library: messages to the next rank, as isend, irecv and waitall, also while a
// collective is active; windows; a file; a test of a null request; a collective.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KINDS = 5, MOST = 1 << 20, SAMPLES = 200, SAMPLES_OF_LONG = 30, FEWEST = 15, FIRST = 5 };
// Time of the repetitions of one measurement, in seconds: with more ranks than processors a barrier
// may take milliseconds. There are fewer repetitions then, and at least the fewest.
static const double LIMIT = 0.1;
static const char *names[KINDS] = { "ibarrier", "iallreduce", "ialltoall", "ibcast",
                                    "ineighbor_alltoall" };
static int rank, size;
static char *in, *out;
static MPI_Comm ring;
static volatile double sink;

static void start(int kind, int bytes, MPI_Request *request) {
    MPI_Comm world = MPI_COMM_WORLD;
    switch (kind) {
    case 0: MPI_Ibarrier(world, request); break;
    case 1: MPI_Iallreduce(in, out, bytes / 8, MPI_DOUBLE, MPI_SUM, world, request); break;
    case 2: MPI_Ialltoall(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, world, request); break;
    case 3: MPI_Ibcast(out, bytes, MPI_BYTE, 0, world, request); break;
    default: MPI_Ineighbor_alltoall(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, ring, request);
    }
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

// Executes a collective beside a computation; alone if that takes no time. Returns the exposed time,
// and writes the processor time beyond the computation to `processor`.
static double sample(int kind, int bytes, double computation, double *processor) {
    MPI_Request request;
    MPI_Barrier(MPI_COMM_WORLD);
    double used = read_clock(CLOCK_PROCESS_CPUTIME_ID), computing = 0, begin = MPI_Wtime();
    start(kind, bytes, &request);
    double started = MPI_Wtime(), computed = started;
    if (computation > 0) computing = compute(computation), computed = MPI_Wtime();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    double end = MPI_Wtime();
    *processor = read_clock(CLOCK_PROCESS_CPUTIME_ID) - used - computing;
    return started - begin + end - computed;
}

// Number of repetitions of a measurement, the same on all ranks.
static int repetitions(int kind, int bytes, double computation) {
    double processor, begin = MPI_Wtime(), own, slowest;
    for (int i = 0; i < FIRST; i++) sample(kind, bytes, computation, &processor);
    own = (MPI_Wtime() - begin) / FIRST;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    int most = bytes >= 65536 ? SAMPLES_OF_LONG : SAMPLES;
    if (slowest * most <= LIMIT) return most;
    int count = LIMIT / slowest;
    return count < FEWEST ? FEWEST : count;
}

// The median of the exposed time. Writes the processor time of all ranks to `processor`.
static double exposed(int kind, int bytes, double computation, double *processor) {
    static double samples[SAMPLES], processors[SAMPLES];
    int count = repetitions(kind, bytes, computation), warm_up = count / 5;
    for (int i = 0; i < warm_up; i++) sample(kind, bytes, computation, processor);
    for (int i = 0; i < count; i++) samples[i] = sample(kind, bytes, computation, &processors[i]);
    double own = median(processors, count), slowest;
    MPI_Allreduce(&own, processor, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    own = median(samples, count);
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

// Prints the median time of a statement that is executed `count` times in a row.
#define TIME(name, bytes, count, statement)                                                \
    do {                                                                                   \
        double samples[15];                                                                \
        for (int round = 0; round < 15; round++) {                                         \
            MPI_Barrier(MPI_COMM_WORLD);                                                   \
            double begin = MPI_Wtime();                                                    \
            for (int i = 0; i < (count); i++) statement;                                   \
            samples[round] = 1e6 * (MPI_Wtime() - begin) / (count);                        \
        }                                                                                  \
        double time = median(samples, 15);                                                 \
        if (rank == 0) printf("%s %d %.5f %.5f 0\n", name, bytes, time, time);             \
    } while (0)

static void exchange(int bytes) {
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Request requests[2];
    MPI_Irecv(in, bytes, MPI_BYTE, before, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, bytes, MPI_BYTE, next, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

// A collective that is active for the first rank until the second one starts it.
static void beside_a_collective(void) {
    MPI_Request active = MPI_REQUEST_NULL;
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    if (rank == 0) MPI_Ibarrier(copy, &active);
    TIME("message_beside_ibarrier", 8, 20000, exchange(8));
    TIME("message_beside_ibarrier", 65536, 1000, exchange(65536));
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
    TIME("put", 8, 20000, (MPI_Put(out, 8, MPI_BYTE, next, 0, 8, MPI_BYTE, window),
                           MPI_Win_flush(next, window)));
    TIME("put", 65536, 1000, (MPI_Put(out, 65536, MPI_BYTE, next, 0, 65536, MPI_BYTE, window),
                              MPI_Win_flush(next, window)));
    TIME("get", 8, 20000, (MPI_Get(in, 8, MPI_BYTE, next, 0, 8, MPI_BYTE, window),
                           MPI_Win_flush(next, window)));
    MPI_Win_unlock_all(window);
    TIME("fence", 0, 500, MPI_Win_fence(0, window));
    MPI_Win_free(&window);
}

static void files(void) {
    char name[] = "/tmp/tradewind-overlap-XXXXXX";
    if (rank == 0) close(mkstemp(name));
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_File file;
    MPI_Offset at = 65536 * (MPI_Offset)rank;
    int mode = MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
    MPI_File_open(MPI_COMM_WORLD, name, mode, MPI_INFO_NULL, &file);
    TIME("write_at", 65536, 200,
         MPI_File_write_at(file, at, out, 65536, MPI_BYTE, MPI_STATUS_IGNORE));
    TIME("read_at", 65536, 200, MPI_File_read_at(file, at, in, 65536, MPI_BYTE, MPI_STATUS_IGNORE));
    TIME("write_at_all", 65536, 50,
         MPI_File_write_at_all(file, at, out, 65536, MPI_BYTE, MPI_STATUS_IGNORE));
    MPI_File_close(&file);
}

static void left(void) {
    MPI_Request none = MPI_REQUEST_NULL;
    int flag;
    TIME("message", 8, 20000, exchange(8));
    TIME("message", 65536, 1000, exchange(65536));
    beside_a_collective();
    windows();
    files();
    TIME("test_of_null", 0, 100000, MPI_Test(&none, &flag, MPI_STATUS_IGNORE));
    TIME("ibarrier_of_self", 0, 20000, (MPI_Ibarrier(MPI_COMM_SELF, &none),
                                        MPI_Wait(&none, MPI_STATUS_IGNORE)));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int periodic = 1;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
    in = calloc(size + 2, MOST);
    out = calloc(size + 2, MOST);
    if (argc == 2 && strcmp(argv[1], "message") == 0) {
        left();
        argc = 1;
    }
    for (int kind = 0; kind < KINDS; kind++)
        for (int argument = 1; argument < (kind == 0 && argc > 2 ? 2 : argc); argument++) {
            int bytes = atoi(argv[argument]);
            double processor, alone = exposed(kind, bytes, 0, &processor);
            double beside = exposed(kind, bytes, alone, &processor);
            if (rank == 0) {
                printf("%s %d %.2f %.2f %.2f\n", names[kind], bytes, 1e6 * alone, 1e6 * beside,
                       1e6 * processor);
                fflush(stdout);
            }
        }
    MPI_Finalize();
    return 0;
}
