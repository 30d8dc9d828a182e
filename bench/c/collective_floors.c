/* The floor of collectives of two processes: the same bytes moved by a few lines of C, without a library. Nothing is checked, no
 * length, no death, no other call, and there is no other communicator. No library can be much quicker for long.
 *
 * WAY BUDGET-MS OPERATION:BYTES:0...   with WAY
 *   staged  every message is copied into shared memory and out again
 *   pieces  the same through a ring of pieces, so that both copies go on at once
 *   read    the receiver copies from the sender's private memory (process_vm_readv)
 * Messages of a line go with their sequence word in all ways. The lines are those of blocking.c. */
#define _GNU_SOURCE
#include "measure.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE = 64, SHORT = 48, LONG = 16 << 10, RING = 16, PIECES = 8, PIECE = 32 << 10, STAGES = 2, LONGEST = 4 << 20 };

/* What one process writes and the other reads. */
struct side {
    struct {
        _Alignas(LINE) atomic_long sequence;
        char bytes[SHORT];
    } line[RING];
    _Alignas(LINE) atomic_long sent;  /* messages, or pieces */
    _Alignas(LINE) atomic_long taken; /* of the other side's */
    _Alignas(LINE) atomic_long arrived;
    _Alignas(LINE) double time_us;
    pid_t process;
    void *memory;
    _Alignas(4096) char stage[STAGES * LONGEST];
};

static struct side *sides;
static int me;
/* `into` is `to`, or `from` in a broadcast, which has one buffer. */
static char *from, *to, *into;
static const char *way;
/* Calls, and messages or pieces in each direction. */
static long calls, out, in;

static void pause_once(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void wait_for(atomic_long *word, long value) {
    while (atomic_load_explicit(word, memory_order_acquire) < value)
        pause_once();
}

static void set(atomic_long *word, long value) { atomic_store_explicit(word, value, memory_order_release); }

static void barrier(void) {
    static long number;
    set(&sides[me].arrived, ++number);
    wait_for(&sides[!me].arrived, number);
}

/* A line with the call's number in it, to the other process, from it, or both. */
static void exchange_line(size_t bytes, int sends, int receives) {
    long number = ++calls;
    if (sends) {
        memcpy(sides[me].line[number % RING].bytes, from, bytes);
        set(&sides[me].line[number % RING].sequence, number);
    }
    if (receives) {
        wait_for(&sides[!me].line[number % RING].sequence, number);
        memcpy(into, sides[!me].line[number % RING].bytes, bytes);
    }
}

static void exchange_staged(size_t sent, size_t received, size_t own) {
    if (sent) {
        wait_for(&sides[!me].taken, out + 1 - STAGES);
        memcpy(sides[me].stage + out % STAGES * LONGEST, from, sent);
        set(&sides[me].sent, ++out);
    }
    memcpy(into + received, from + sent, own);
    if (received) {
        wait_for(&sides[!me].sent, in + 1);
        memcpy(into, sides[!me].stage + in % STAGES * LONGEST, received);
        set(&sides[me].taken, ++in);
    }
}

static void exchange_pieces(size_t sent, size_t received, size_t own) {
    size_t sent_done = 0, received_done = 0;
    int kept = 0;
    while (sent_done < sent || received_done < received || !kept) {
        if (sent_done < sent && atomic_load_explicit(&sides[!me].taken, memory_order_acquire) > out - PIECES) {
            size_t piece = sent - sent_done < PIECE ? sent - sent_done : PIECE;
            memcpy(sides[me].stage + out % PIECES * PIECE, from + sent_done, piece);
            sent_done += piece;
            set(&sides[me].sent, ++out);
        }
        if (received_done < received && atomic_load_explicit(&sides[!me].sent, memory_order_acquire) > in) {
            size_t piece = received - received_done < PIECE ? received - received_done : PIECE;
            memcpy(into + received_done, sides[!me].stage + in % PIECES * PIECE, piece);
            received_done += piece;
            set(&sides[me].taken, ++in);
        }
        if (!kept)
            memcpy(into + received, from + sent, own);
        kept = 1;
    }
}

static void exchange_read(size_t sent, size_t received, size_t own) {
    if (sent)
        set(&sides[me].sent, ++out);
    if (received) {
        wait_for(&sides[!me].sent, ++in);
        struct iovec here = {into, received}, there = {sides[!me].memory, received};
        if (process_vm_readv(sides[!me].process, &here, 1, &there, 1, 0) != (ssize_t)received)
            _exit(1);
        set(&sides[me].taken, in);
    }
    memcpy(into + received, from + sent, own);
    if (sent)
        wait_for(&sides[!me].taken, out);
}

/* One call: what this process sends, receives and keeps of a message of `bytes`. 0 if there is no such floor. */
static int call(const char *operation, size_t bytes) {
    static long root;
    int is_root = root++ % 2 == me;
    int both = !strncmp(operation, "alltoall", 8) || !strncmp(operation, "allgather", 9);
    int neighbor = !strcmp(operation, "neighbor"), bcast = !strcmp(operation, "bcast");
    int scatter = !strncmp(operation, "scatter", 7), gather = !strncmp(operation, "gather", 6);
    int joins = !strcmp(operation, "barrier") || !strcmp(operation, "allreduce");
    int sends = joins || both || neighbor || (gather ? !is_root : is_root);
    int receives = joins || both || neighbor || (gather ? is_root : !is_root);
    into = bcast ? from : to;
    if (!joins && !both && !neighbor && !bcast && !scatter && !gather)
        return 0;
    if (bytes <= SHORT) {
        if (!joins && !bcast)
            return 0;
        exchange_line(bytes, sends, receives);
        return 1;
    }
    size_t message = neighbor ? 2 * bytes : bytes;
    size_t own = both || neighbor ? message : (scatter || gather) && is_root ? bytes : 0;
    if (joins || 2 * message > LONGEST)
        return 0;
    if (!strcmp(way, "staged"))
        exchange_staged(sends ? message : 0, receives ? message : 0, own);
    else if (!strcmp(way, "pieces"))
        exchange_pieces(sends ? message : 0, receives ? message : 0, own);
    else
        exchange_read(sends ? message : 0, receives ? message : 0, own);
    return 1;
}

/* The slower process's time of a call in a batch. */
static double batch_us(const char *operation, size_t bytes, int count) {
    double spent_us = 0;
    barrier();
    if (bytes < LONG) {
        double start_us = wall_us();
        for (int i = 0; i < count; i++)
            call(operation, bytes);
        spent_us = wall_us() - start_us;
    } else {
        /* As in batches.h: new data for every call. Of a neighbour exchange, for two blocks each way. */
        for (int i = 0; i < count; i++) {
            memset(from, me + i, 4 * bytes < LONGEST ? 4 * bytes : LONGEST);
            barrier();
            double start_us = wall_us();
            call(operation, bytes);
            spent_us += wall_us() - start_us;
        }
    }
    sides[me].time_us = spent_us / count;
    barrier();
    double slower_us = sides[0].time_us > sides[1].time_us ? sides[0].time_us : sides[1].time_us;
    barrier();
    return slower_us;
}

static void measure(const char *operation, size_t bytes, double budget_us) {
    enum { BATCH_US = 100, LEAST_CALLS = 4, MOST_CALLS = 1000, LEAST_BATCHES = 5, MOST_BATCHES = 2000 };
    static double times[MOST_BATCHES];
    if (!call(operation, bytes))
        return;
    barrier();
    double each_us = 1e9;
    for (int i = 0; i < 20; i++) {
        double seen_us = batch_us(operation, bytes, 20);
        each_us = seen_us < each_us ? seen_us : each_us;
    }
    int count = repetitions_within(BATCH_US, each_us, LEAST_CALLS, MOST_CALLS) / 2 * 2;
    int batches = repetitions_within(budget_us, each_us * count, LEAST_BATCHES, MOST_BATCHES);
    for (int b = 0; b < batches; b++)
        times[b] = batch_us(operation, bytes, count);
    sort(times, batches);
    if (me == 0)
        printf("{\"program\":\"blocking\",\"op\":\"%s\",\"bytes\":%zu,\"ranks\":2,\"blocking_us\":[%.5f,%.5f,%.5f,%d]}\n", operation,
               bytes, percentile(times, batches, 50), percentile(times, batches, 10), percentile(times, batches, 90), batches);
}

/* Binds this process to the `index`-th processor it may use. */
static void bind_to(int index) {
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && index-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

int main(int count, char **arguments) {
    if (count < 4) {
        fprintf(stderr, "usage: %s staged|pieces|read BUDGET-MS OPERATION:BYTES:0...\n", arguments[0]);
        return 2;
    }
    way = arguments[1];
    sides = mmap(NULL, 2 * sizeof *sides, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sides == MAP_FAILED)
        return 1;
    memset(sides, 0, 2 * sizeof *sides);
    pid_t child = fork();
    if (child < 0)
        return 1;
    me = child == 0;
    /* The other process ends with this one, and may read its memory. */
    if (me)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    bind_to(me);
    from = aligned_alloc(4096, LONGEST);
    to = aligned_alloc(4096, LONGEST);
    if (!from || !to)
        return 1;
    memset(from, me + 1, LONGEST);
    memset(to, 0, LONGEST);
    sides[me].process = getpid();
    sides[me].memory = from;
    barrier();
    for (int i = 3; i < count; i++) {
        char operation[32];
        size_t bytes;
        if (sscanf(arguments[i], "%31[^:]:%zu", operation, &bytes) == 2)
            measure(operation, bytes, atof(arguments[2]) * 1e3);
    }
    barrier();
    int status = 0;
    return me || (waitpid(child, &status, 0) == child && status == 0) ? 0 : 1;
}
