/* Clocks, the computation, the random skew and percentiles: what every program here measures with.
 *
 * bench/loops/src/measure.rs is the same text in Rust. Change both or neither: the comparison is only fair while the two
 * sides run one algorithm. */
#ifndef MEASURE_H
#define MEASURE_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Microseconds on the monotonic clock. */
static inline double wall_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

/* Microseconds of user and system time this process and all its threads have used. */
static inline double processor_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

/* Work of a rank between start and wait: iterations in registers, or, as if an accelerator computed, nanoseconds of sleep. */
struct computation {
    uint64_t amount; /* 0: none */
    int is_idle;
};

/* Reads an amount, such as 300000 or, of sleep, 8000000ns. Returns whether it is one. */
static inline int read_computation(const char *text, struct computation *computation) {
    char *end;
    *computation = (struct computation){strtoull(text, &end, 10), 0};
    computation->is_idle = end != text && strcmp(end, "ns") == 0;
    return end != text && (*end == 0 || computation->is_idle);
}

/* A fixed amount of work, in registers only. The count is fixed once for all ranks, so that a processor stolen meanwhile shows
 * as time. Each step depends on the one before: no compiler makes it shorter, no vector unit makes it faster. */
static __attribute__((noinline)) void iterate(uint64_t iterations) {
    uint64_t x = 88172645463325252u;
    for (uint64_t i = 0; i < iterations; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    __asm__ volatile("" : : "r"(x));
}

static inline void compute(struct computation computation) {
    struct timespec left = {(time_t)(computation.amount / 1000000000u), (long)(computation.amount % 1000000000u)};
    if (!computation.is_idle)
        iterate(computation.amount);
    else
        while (nanosleep(&left, &left) && errno == EINTR)
            continue;
}

/* The next number of a splitmix64 sequence (Steele, Lea, Flood 2014, figure 16). */
static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A delay of up to `percent` of the computation, so that no library profits from ranks that start in step. */
static inline void skew(uint64_t *random, struct computation computation, int percent) {
    computation.amount = next_random(random) % (computation.amount * (uint64_t)percent / 100 + 1);
    compute(computation);
}

static int ascending(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

/* Sorts `values` in place; what `percentile` needs. */
static inline void sort(double *values, int count) { qsort(values, (size_t)count, sizeof *values, ascending); }

/* The value below which `percent` of the sorted values lie (nearest rank). */
static inline double percentile(const double *sorted, int count, int percent) {
    return sorted[(int)((count - 1) * (percent / 100.0) + 0.5)];
}

/* How many repetitions of `each_us` fit `budget_us`, within bounds. */
static inline int repetitions_within(double budget_us, double each_us, int least, int most) {
    double fit = each_us > 0 ? budget_us / each_us : most;
    return fit < least ? least : fit > most ? most : (int)fit;
}

#endif
