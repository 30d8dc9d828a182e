// Arrays with a collective that fails, because the ranks pass different lengths: each function that
// completes several requests says so in the statuses. And errors after the end of the communicator.
#include "check.h"

enum { FAILED, GOOD, MESSAGE, ALL };

static int in[8], out[8], word, handled;
static MPI_Comm failing;
static MPI_Request requests[ALL];
static MPI_Status statuses[ALL];

static int class_of(int code) {
    int class;
    MPI_Error_class(code, &class);
    return class;
}

static void handle(MPI_Comm *communicator, int *code, ...) {
    (void)communicator;
    CHECK(class_of(*code) == MPI_ERR_OTHER);
    // MPICH 4 has other texts for codes that a program adds.
#if !defined(MPICH_NUMVERSION) || MPICH_NUMVERSION >= 50000000
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(*code, text, &length);
    CHECK(strstr(text, "MPI_Iallreduce on tradewind: "));
#endif
    handled++;
}

// A communicator whose errors call `handle`.
static void set_handler(MPI_Comm communicator) {
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(communicator, handler);
    MPI_Errhandler_free(&handler);
}

static void begin(void) {
    MPI_Comm_dup(MPI_COMM_WORLD, &failing);
    set_handler(failing);
    MPI_Iallreduce(in, out, rank == 0 ? 4 : 8, MPI_INT, MPI_SUM, failing, &requests[FAILED]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[GOOD]);
    MPI_Irecv(&word, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &requests[MESSAGE]);
    MPI_Send(&word, 1, MPI_INT, rank, 1, MPI_COMM_WORLD);
    for (int i = 0; i < ALL; i++) statuses[i].MPI_ERROR = -1;
}

// Checks the code of a call that has completed these requests, and their statuses.
static void check(int code, int count, const int *indices) {
    int has_failed = 0;
    for (int i = 0; i < count; i++) has_failed |= indices[i] == FAILED;
    CHECK(class_of(code) == (has_failed ? MPI_ERR_IN_STATUS : MPI_SUCCESS));
    for (int i = 0; i < count && has_failed; i++) {
        int wanted = indices[i] == FAILED ? MPI_ERR_OTHER : MPI_SUCCESS;
        CHECK(class_of(statuses[i].MPI_ERROR) == wanted);
    }
    for (int i = 0; i < count; i++) CHECK(requests[indices[i]] == MPI_REQUEST_NULL);
}

static void complete(int form) {
    int all[ALL] = { FAILED, GOOD, MESSAGE }, some[ALL], flag = 0, code = 0, count;
    begin();
    switch (form) {
    case 0: check(MPI_Waitall(ALL, requests, statuses), ALL, all); break;
    case 1:
        while (!flag) code = MPI_Testall(ALL, requests, &flag, statuses);
        check(code, ALL, all);
        break;
    case 2:
    case 3:
        for (int done = 0; done < ALL; done += count) {
            code = form == 2 ? MPI_Waitsome(ALL, requests, &count, some, statuses)
                             : MPI_Testsome(ALL, requests, &count, some, statuses);
            check(code, count, some);
        }
        break;
    default:
        CHECK(class_of(MPI_Waitall(ALL, requests, MPI_STATUSES_IGNORE)) == MPI_ERR_IN_STATUS);
    }
    MPI_Comm_free(&failing);
}

// The communicator has ended when the collective fails.
static void freed(void) {
    set_handler(MPI_COMM_SELF);
    begin();
    MPI_Comm_free(&failing);
    CHECK(class_of(MPI_Wait(&requests[FAILED], MPI_STATUS_IGNORE)) == MPI_ERR_OTHER);
    CHECK(MPI_Waitall(ALL, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    for (int form = 0; form < 5; form++) complete(form);
    CHECK(handled == 5);
    freed();
    CHECK(handled == 6);
    MPI_Finalize();
    return 0;
}
