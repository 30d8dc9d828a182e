// The last rank dies while collectives of the others wait for it ("kill"), or revokes their
// communicators ("revoke"). The others get errors of the classes of both, in every completion
// function, and go on. Further
// forms: "blocking" collectives, also with "revoke", and "abort" by an error handler.
#include "check.h"
#include <mpi-ext.h>
#include <signal.h>
#include <unistd.h>

enum { WAIT, TEST, ALL, ANY, SOME, STATUS, HANDLED, PERSISTENT, FORMS };

static MPI_Comm comms[FORMS];
static int calls, code_of_call, aborts;
static MPI_Comm comm_of_call;

static void handler(MPI_Comm *comm, int *code, ...) {
    calls++;
    comm_of_call = *comm;
    code_of_call = *code;
    if (aborts) MPI_Abort(MPI_COMM_WORLD, 3);
}

static int is_failure(int code) {
    int class;
    MPI_Error_class(code, &class);
    return class == MPIX_ERR_REVOKED || class == MPIX_ERR_PROC_FAILED;
}

static void leave(int signal) {
    (void)signal;
    _exit(0);
}

// Waits for a start that has failed, or for a request that fails.
static void expect_failure(int code, MPI_Request *request) {
    if (code == MPI_SUCCESS) code = MPI_Wait(request, MPI_STATUS_IGNORE);
    CHECK(is_failure(code));
}

static void complete(int form, MPI_Request *requests) {
    MPI_Status statuses[2];
    int code = MPI_SUCCESS, flag = 0, index = -1, count = 0, indices[2];
    switch (form) {
    case TEST:
        while (code == MPI_SUCCESS && !flag) code = MPI_Test(requests, &flag, statuses);
        break;
    case ALL:
        code = MPI_Waitall(2, requests, statuses);
        CHECK(code == MPI_ERR_IN_STATUS);
        for (int i = 0; i < 2; i++) CHECK(is_failure(statuses[i].MPI_ERROR));
        CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
        return;
    case ANY:
        code = MPI_Waitany(2, requests, &index, statuses);
        CHECK(index >= 0 && is_failure(code));
        expect_failure(MPI_SUCCESS, &requests[1 - index]);
        return;
    case SOME:
        code = MPI_Waitsome(2, requests, &count, indices, statuses);
        CHECK(code == MPI_ERR_IN_STATUS && count >= 1);
        for (int i = 0; i < count; i++) CHECK(is_failure(statuses[i].MPI_ERROR));
        if (count == 1) expect_failure(MPI_SUCCESS, &requests[1 - indices[0]]);
        return;
    case STATUS:
        while (code == MPI_SUCCESS && !flag) code = MPI_Request_get_status(*requests, &flag, statuses);
        // The error belongs to the completion.
        expect_failure(MPI_SUCCESS, requests);
        return;
    default:
        code = MPI_Wait(requests, statuses);
    }
    CHECK(is_failure(code));
    if (form == HANDLED) CHECK(calls == 1 && comm_of_call == comms[form] && code_of_call == code);
}

// All know the failed process after an agreement, which reports it until it is acknowledged.
static void expect_failed(MPI_Comm comm, int failed) {
    MPI_Group group, whole;
    int count, first = 0, there, acknowledged, all = 6 | 1 << rank, class;
    MPI_Error_class(MPIX_Comm_agree(comm, &all), &class);
    CHECK(class == (failed ? MPIX_ERR_PROC_FAILED : MPI_SUCCESS) && (all & 6) == 6);
    MPIX_Comm_get_failed(comm, &group);
    MPI_Group_size(group, &count);
    CHECK(count == failed);
    if (failed) {
        MPI_Comm_group(comm, &whole);
        MPI_Group_translate_ranks(group, 1, &first, whole, &there);
        CHECK(there == size - 1);
        MPI_Group_free(&whole);
        MPI_Group_free(&group);
    }
    CHECK(MPIX_Comm_ack_failed(comm, size, &acknowledged) == MPI_SUCCESS && acknowledged == failed);
    all = 6 | 1 << rank;
    CHECK(MPIX_Comm_agree(comm, &all) == MPI_SUCCESS && (all & 6) == 6);
}

static void go_on(MPI_Comm broken, int survivors) {
    MPI_Comm shrunken, copy;
    MPI_Request request;
    CHECK(MPIX_Comm_shrink(broken, &shrunken) == MPI_SUCCESS);
    int n, own, sum = -1;
    MPI_Comm_size(shrunken, &n);
    MPI_Comm_rank(shrunken, &own);
    CHECK(n == survivors);
    MPI_Comm_dup(shrunken, &copy);
    for (int i = 0; i < 20; i++) {
        MPI_Comm comm = i % 2 ? shrunken : copy;
        MPI_Iallreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum == n * (n - 1) / 2);
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK(sum == n * n * (n - 1) / 2);
    }
    MPI_Comm_free(&copy);
    MPI_Comm_free(&shrunken);
}

static void start_all(int *values, MPI_Request requests[FORMS][2]) {
    for (int form = 0; form < FORMS; form++) {
        MPI_Comm comm = comms[form];
        int *own = &values[2 * form];
        if (form == PERSISTENT) {
            MPI_Start(&requests[form][0]);
        } else {
            MPI_Iallreduce(own, own + 1, 1, MPI_INT, MPI_SUM, comm, &requests[form][0]);
        }
        if (form == ALL || form == ANY || form == SOME) MPI_Ibarrier(comm, &requests[form][1]);
    }
}

// Every rank that gets an error revokes the communicator for the others.
static void nonblocking(int kills) {
    int values[2 * FORMS] = {0};
    MPI_Request requests[FORMS][2];
    int *own = &values[2 * PERSISTENT];
    MPI_Allreduce_init(own, own + 1, 1, MPI_INT, MPI_SUM, comms[PERSISTENT], MPI_INFO_NULL,
                       &requests[PERSISTENT][0]);
    if (rank < size - 1) start_all(values, requests);
    if (rank < size - 1) MPI_Send(NULL, 0, MPI_INT, size - 1, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == size - 1 && i < size - 1; i++)
        MPI_Recv(NULL, 0, MPI_INT, i, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == size - 1 && kills) raise(SIGKILL);
    for (int form = 0; form < FORMS; form++) {
        if (rank < size - 1) complete(form, requests[form]);
        MPIX_Comm_revoke(comms[form]);
    }
    if (rank < size - 1) CHECK(is_failure(MPI_Start(&requests[PERSISTENT][0])));
    MPI_Request_free(&requests[PERSISTENT][0]);
}

static void blocking(int kills) {
    int value = rank, sum;
    if (rank == size - 1) {
        for (int i = 0; i < size - 1; i++)
            MPI_Recv(NULL, 0, MPI_INT, i, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (kills) raise(SIGKILL);
        MPIX_Comm_revoke(comms[0]);
        return;
    }
    MPI_Send(NULL, 0, MPI_INT, size - 1, 0, MPI_COMM_WORLD);
    CHECK(is_failure(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comms[0])));
    MPIX_Comm_revoke(comms[0]);
}

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    const char *form = argv[1];
    MPI_Errhandler own;
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < FORMS; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        MPI_Comm_set_errhandler(comms[i], i == HANDLED ? own : MPI_ERRORS_RETURN);
    }
    int kills = strncmp(form, "revoke", 6) != 0;
    aborts = strcmp(form, "abort") == 0;
    if (strstr(form, "blocking")) blocking(kills);
    else nonblocking(kills);
    MPI_Request request;
    if (kills || rank < size - 1) expect_failure(MPI_Ibarrier(comms[0], &request), &request);
    // The ranks have made different numbers of calls by now.
    MPI_Comm copy;
    CHECK(is_failure(MPI_Comm_dup(comms[0], &copy)));
    expect_failed(comms[0], kills);
    go_on(comms[0], size - kills);
    for (int i = 0; i < FORMS; i++) MPI_Comm_free(&comms[i]);
    // A thread that looked for divided collectives would end the job within this time.
    if (strcmp(form, "revoke") == 0) sleep(3);
    printf("rank %d went on\n", rank);
    fflush(stdout);
    // After a failure the end of Open MPI 5.0.11 waits forever in some runs. What this library does
    // there comes before.
    signal(SIGALRM, leave);
    if (kills) alarm(3);
    MPI_Finalize();
    return 0;
}
