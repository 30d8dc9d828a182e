/* Blocking collectives, back to back: microseconds a call. */
#include "batches.h"

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct options options = read_options(count, arguments, rank);
    for (int i = FIRST_ROW; i < count; i++) {
        struct collective c = open_collective(arguments[i]);
        begin_line("blocking", operation_names[c.operation], c.bytes, c.rank, c.ranks);
        measure_batches(&c, call_blocking, options.budget_us, "blocking_us");
        end_line(c.rank);
        close_collective(&c);
    }
    MPI_Finalize();
    return 0;
}
