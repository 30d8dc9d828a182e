/* Nonblocking collectives alone and underneath a computation, without a single MPI_Test.
 *
 * Exposed time is what the collective adds to the computation: for each repetition the maximum over the ranks of the time from
 * before the start to after the wait, less that rank's median time for the computation alone. Repetitions with and without the
 * collective alternate, so that both see the same machine. */
#include "batches.h"

struct times {
    double *wall, *processor;
};

static struct times allocate(const struct collective *c, int repetitions) {
    struct times t = {malloc(sizeof(double) * (size_t)repetitions), malloc(sizeof(double) * (size_t)repetitions)};
    if (!t.wall || !t.processor)
        stop(c, "no memory for the times");
    return t;
}

static void compute_alone(const struct collective *c, struct options *options, struct times t, int repetition) {
    MPI_Barrier(MPI_COMM_WORLD);
    skew(&options->random, c->computation, options->skew_percent);
    double processor = processor_us(), wall = wall_us();
    compute(c->computation);
    t.wall[repetition] = wall_us() - wall;
    t.processor[repetition] = processor_us() - processor;
}

static void compute_over(struct collective *c, struct options *options, struct times t, int repetition) {
    int root = repetition % c->ranks;
    prepare(c, root, repetition);
    MPI_Barrier(MPI_COMM_WORLD);
    skew(&options->random, c->computation, options->skew_percent);
    double processor = processor_us(), wall = wall_us();
    MPI_Request request = start(c, root);
    compute(c->computation);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    t.wall[repetition] = wall_us() - wall;
    t.processor[repetition] = processor_us() - processor;
    check(c, root, repetition, 1);
}

static double median_of(const double *values, int count) {
    double *copy = malloc(sizeof *copy * (size_t)count);
    memcpy(copy, values, sizeof *copy * (size_t)count);
    sort(copy, count);
    double median = percentile(copy, count, 50);
    free(copy);
    return median;
}

static void measure_exposed(struct collective *c, struct options *options, double alone_us) {
    enum { LEAST = 20, MOST = 2000 };
    double start_us = wall_us();
    compute(c->computation);
    double computation_us = agree(wall_us() - start_us);
    int repetitions = repetitions_within(options->budget_us, 2 * computation_us + 2 * alone_us, LEAST, MOST);
    struct times computation = allocate(c, repetitions), total = allocate(c, repetitions);
    for (int r = 0; r < repetitions; r++) {
        compute_alone(c, options, computation, r);
        compute_over(c, options, total, r);
    }
    double *exposed = malloc(sizeof *exposed * (size_t)repetitions);
    double wall = median_of(computation.wall, repetitions), processor = median_of(computation.processor, repetitions);
    for (int r = 0; r < repetitions; r++) {
        exposed[r] = total.wall[r] - wall;
        total.processor[r] -= processor;
    }
    combine(exposed, repetitions, MPI_MAX);
    combine(total.wall, repetitions, MPI_MAX);
    combine(computation.wall, repetitions, MPI_MAX);
    combine(total.processor, repetitions, MPI_SUM);
    add_summary(c->rank, "compute_us", computation.wall, repetitions);
    add_summary(c->rank, "total_us", total.wall, repetitions);
    add_summary(c->rank, "exposed_us", exposed, repetitions);
    add_summary(c->rank, "processor_us", total.processor, repetitions);
    free(exposed);
    free(computation.wall);
    free(computation.processor);
    free(total.wall);
    free(total.processor);
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct options options = read_options(count, arguments, rank);
    for (int i = FIRST_ROW; i < count; i++) {
        struct collective c = open_collective(arguments[i]);
        begin_line("overlap", operation_names[c.operation], c.bytes, c.rank, c.ranks);
        double alone_us = measure_batches(&c, start_and_wait, options.budget_us, "alone_us");
        if (c.computation.amount > 0)
            measure_exposed(&c, &options, alone_us);
        end_line(c.rank);
        close_collective(&c);
    }
    MPI_Finalize();
    return 0;
}
