/* What the machine itself can do at this minute, without any library: one cache line back and forth between two processes on two
 * cores, copies within one core, and the time one iteration of the computation takes. With the argument `line` only the first,
 * in a few milliseconds: a virtual machine's two processors may be close together now and far apart a few seconds later. */
#define _GNU_SOURCE
#include "measure.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUND_TRIPS = 500, SAMPLES = 100, FEW_SAMPLES = 20 };

/* Binds this process to the `index`-th processor it may use; 0 when there is none. */
static int bind_to(int index) {
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && index-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            return sched_setaffinity(0, sizeof one, &one) == 0;
        }
    return 0;
}

static void wait_for(_Atomic uint32_t *word, uint32_t value) {
    while (atomic_load_explicit(word, memory_order_acquire) != value) {
    }
}

/* Nanoseconds for half a round trip of one line, or a negative number when there are not two processors. */
static double line_ns(uint32_t samples) {
    static double times[SAMPLES];
    _Atomic uint32_t *word =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (word == MAP_FAILED || sysconf(_SC_NPROCESSORS_ONLN) < 2)
        return -1;
    pid_t child = fork();
    if (child < 0)
        return -1;
    if (child == 0) {
        if (!bind_to(1))
            _exit(1);
        atomic_store_explicit(word, 1, memory_order_release);
        for (uint32_t i = 0; i < samples * ROUND_TRIPS; i++) {
            wait_for(word, 2 * i + 2);
            atomic_store_explicit(word, 2 * i + 3, memory_order_release);
        }
        _exit(0);
    }
    cpu_set_t before;
    sched_getaffinity(0, sizeof before, &before);
    bind_to(0);
    while (atomic_load_explicit(word, memory_order_acquire) == 0)
        if (waitpid(child, NULL, WNOHANG) == child) {
            sched_setaffinity(0, sizeof before, &before);
            return -1;
        }
    for (uint32_t s = 0, i = 0; s < samples; s++) {
        double start_us = wall_us();
        for (int r = 0; r < ROUND_TRIPS; r++, i++) {
            atomic_store_explicit(word, 2 * i + 2, memory_order_release);
            wait_for(word, 2 * i + 3);
        }
        times[s] = (wall_us() - start_us) * 1e3 / ROUND_TRIPS / 2;
    }
    waitpid(child, NULL, 0);
    sched_setaffinity(0, sizeof before, &before);
    sort(times, (int)samples);
    return percentile(times, (int)samples, 50);
}

/* Gigabytes a second of memcpy, for one size. */
static double copy_rate(size_t size) {
    static double times[SAMPLES];
    char *from = malloc(size), *to = malloc(size);
    if (!from || !to)
        return -1;
    memset(from, 1, size);
    memset(to, 2, size);
    int copies = (int)(((size_t)1 << 20) / size) + 1, samples = size > ((size_t)1 << 22) ? 5 : SAMPLES;
    for (int s = 0; s < samples; s++) {
        double start_us = wall_us();
        for (int i = 0; i < copies; i++) {
            memcpy(to, from, size);
            __asm__ volatile("" : : "r"(to) : "memory");
        }
        times[s] = (wall_us() - start_us) / copies;
    }
    free(from);
    free(to);
    sort(times, samples);
    return (double)size / percentile(times, samples, 50) * 1e-3;
}

static double iteration_ns(void) {
    enum { ITERATIONS = 20000 };
    static double times[SAMPLES];
    for (int s = 0; s < SAMPLES; s++) {
        double start_us = wall_us();
        iterate(ITERATIONS);
        times[s] = (wall_us() - start_us) * 1e3 / ITERATIONS;
    }
    sort(times, SAMPLES);
    return percentile(times, SAMPLES, 50);
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "line") == 0) {
        printf("{\"line_ns\":%.1f}\n", line_ns(FEW_SAMPLES));
        return 0;
    }
    double line = line_ns(SAMPLES);
    printf("{\"line_ns\":%.1f,\"copy_64KiB\":%.2f,\"copy_1MiB\":%.2f,\"copy_32MiB\":%.2f,\"iteration_ns\":%.4f}\n", line,
           copy_rate(1 << 16), copy_rate(1 << 20), copy_rate(1 << 25), iteration_ns());
    return 0;
}
