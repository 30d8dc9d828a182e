// Functions of the program that MPI_Finalize calls: they may still use MPI. With the argument "handler"
// also an error handler, which a blocking collective calls.
#include "check.h"

static MPI_Request pending, scattered;
static MPI_Datatype spread;
static int own = 1, all = -1, called, gaps[4] = { -1, -1, -1, -1 };

static void use(void) {
    int sum = -1;
    MPI_Request request;
    MPI_Comm copy;
    MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sum == size * (size - 1) / 2);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Ibarrier(copy, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_free(&copy);
}

// Completes collectives that were started before, after the type of one has been freed, and uses
// others.
static int last(MPI_Comm communicator, int key, void *value, void *extra) {
    MPI_Wait(&pending, MPI_STATUS_IGNORE);
    CHECK(all == size && pending == MPI_REQUEST_NULL);
    MPI_Type_free(&spread);
    CHECK(spread == MPI_DATATYPE_NULL);
    MPI_Wait(&scattered, MPI_STATUS_IGNORE);
    for (int i = 0; i < 4; i++) CHECK(gaps[i] == (rank && i % 2 ? -1 : i));
    use();
    called++;
    return MPI_SUCCESS;
}

static int of_a_copy(MPI_Comm communicator, int key, void *value, void *extra) {
    use();
    called++;
    return MPI_SUCCESS;
}

static void handle(MPI_Comm *communicator, int *code, ...) {
    use();
    called++;
}

// Every rank's call is wrong, so every rank's error handler starts collectives.
static void call_handler(void) {
    MPI_Errhandler handler;
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(copy, handler);
    MPI_Bcast(&own, 1, MPI_INT, size + 7, copy);
    CHECK(called == 1);
    called = 0;
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&copy);
}

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    if (argc > 1) call_handler();
    int key_of_self, key_of_copy;
    MPI_Comm copy;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, last, &key_of_self, NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, of_a_copy, &key_of_copy, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_set_attr(copy, key_of_copy, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key_of_self, NULL);
    MPI_Comm_free(&copy);
    CHECK(called == 1);
    MPI_Type_vector(2, 1, 2, MPI_INT, &spread);
    MPI_Type_commit(&spread);
    for (int i = 0; i < 4 && rank == 0; i++) gaps[i] = i;
    MPI_Ibcast(gaps, 1, spread, 0, MPI_COMM_WORLD, &scattered);
    if (rank == size - 1) usleep(2000);
    MPI_Iallreduce(&own, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &pending);
    MPI_Finalize();
    if (called != 2) return 1;
    printf("rank %d called\n", rank);
    return 0;
}
