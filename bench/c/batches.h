/* A collective by itself: batches of calls back to back, each batch after a barrier. Every call of a long message has new data
 * and a barrier of its own, both untimed.
 *
 * The root moves on with every call: no rank can run ahead and hide the latency in buffers. */
#ifndef BATCHES_H
#define BATCHES_H

#include "collectives.h"
#include "report.h"

enum { LONG = 16 << 10 };

typedef void call(struct collective *, int root);

static inline double batch(struct collective *c, call *call_once, int calls) {
    if (c->bytes >= LONG) {
        double spent_us = 0;
        for (int i = 0; i < calls; i++) {
            rewrite(c, i % c->ranks);
            MPI_Barrier(MPI_COMM_WORLD);
            double start_us = wall_us();
            call_once(c, i % c->ranks);
            spent_us += wall_us() - start_us;
        }
        return spent_us;
    }
    double start_us = wall_us();
    for (int i = 0; i < calls; i++)
        call_once(c, i % c->ranks);
    return wall_us() - start_us;
}

/* About what a call costs, all ranks of one opinion; warms up meanwhile. The batches grow until three took `enough_us`, and the
 * least counts, because a stolen processor makes a batch longer but never shorter. */
static inline double estimate(struct collective *c, call *call_once, double enough_us) {
    double least_us = 1e9;
    batch(c, call_once, c->ranks);
    for (int calls = c->ranks, long_enough = 0; long_enough < 3;) {
        double spent_us = agree(batch(c, call_once, calls));
        if (spent_us / calls < least_us)
            least_us = spent_us / calls;
        if (spent_us < enough_us)
            calls *= 2;
        else
            long_enough++;
    }
    return least_us;
}

/* Adds "name":[median, p10, p90, count] of one call in microseconds to the line, the maximum over the ranks for each batch.
 * Returns the median. */
static inline double measure_batches(struct collective *c, call *call_once, double budget_us, const char *name) {
    enum { BATCH_US = 100, LEAST_CALLS = 4, MOST_CALLS = 1000, LEAST_BATCHES = 5, MOST_BATCHES = 2000 };
    double each_us = estimate(c, call_once, budget_us / 20);
    /* Every rank is the root at least once. */
    int least = c->ranks > LEAST_CALLS ? c->ranks : LEAST_CALLS;
    int calls = repetitions_within(BATCH_US, each_us, least, MOST_CALLS);
    int batches = repetitions_within(budget_us, each_us * calls, LEAST_BATCHES, MOST_BATCHES);
    double *times = malloc(sizeof *times * (size_t)batches);
    if (!times)
        stop(c, "no memory for the times");
    for (int b = 0; b < batches; b++) {
        prepare(c, 0, b);
        MPI_Barrier(MPI_COMM_WORLD);
        times[b] = batch(c, call_once, calls) / calls;
        check(c, 0, b, 0);
    }
    combine(times, batches, MPI_MAX);
    add_summary(c->rank, name, times, batches);
    double median = percentile(times, batches, 50);
    free(times);
    return median;
}

#endif
