/* What one MPI_Test of a collective that cannot finish yet costs: rank 0 asks while the others still compute. */
#include "collectives.h"
#include "report.h"

enum { CALLS = 100, REPETITIONS = 500 };

/* Microseconds a call, or a negative number when the collective finished meanwhile. */
static double ask(struct collective *c) {
    MPI_Request request = start(c, 0);
    int finished = 0;
    double start_us = wall_us();
    for (int i = 0; i < CALLS && !finished; i++)
        MPI_Test(&request, &finished, MPI_STATUS_IGNORE);
    double each_us = (wall_us() - start_us) / CALLS;
    if (finished)
        return -1;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return each_us;
}

static void measure(struct collective *c) {
    static double times[REPETITIONS];
    int kept = 0;
    for (int r = 0; r < REPETITIONS; r++) {
        prepare(c, 0, r);
        MPI_Barrier(MPI_COMM_WORLD);
        if (c->rank == 0) {
            times[kept] = ask(c);
            kept += times[kept] >= 0;
        } else {
            compute(c->computation);
            start_and_wait(c, 0);
        }
        check(c, 0, r, 0);
    }
    if (c->rank == 0 && kept < REPETITIONS / 2)
        stop(c, "it finished while it was being tested: give more iterations");
    begin_line("test_cost", operation_names[c->operation], c->bytes, c->rank, c->ranks);
    if (c->rank == 0)
        add_summary(c->rank, "test_us", times, kept);
    end_line(c->rank);
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    read_options(count, arguments, rank);
    for (int i = FIRST_ROW; i < count; i++) {
        struct collective c = open_collective(arguments[i]);
        measure(&c);
        close_collective(&c);
    }
    MPI_Finalize();
    return 0;
}
