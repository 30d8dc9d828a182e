// Every completion function, with arrays in which requests of collectives, of messages, null ones
// and inactive ones are mixed.
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>

enum { REQUESTS = 5, RECEIVE = 0, SUM = 1, NONE = 2, SEND = 3, BARRIER = 4, ALL = 1 | 2 | 8 | 16 };
static MPI_Request requests[REQUESTS];
static MPI_Status statuses[REQUESTS];
static int sent, received, own, sum;

static void start_mixture(void) {
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    sent = rank;
    received = sum = -1;
    own = rank + 1;
    // The others wait for a while.
    if (rank == size - 1) usleep(2000);
    MPI_Irecv(&received, 1, MPI_INT, before, 7, MPI_COMM_WORLD, &requests[RECEIVE]);
    MPI_Iallreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[SUM]);
    requests[NONE] = MPI_REQUEST_NULL;
    MPI_Isend(&sent, 1, MPI_INT, next, 7, MPI_COMM_WORLD, &requests[SEND]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[BARRIER]);
}

static void check_mixture(void) {
    CHECK(received == (rank + size - 1) % size);
    CHECK(sum == size * (size + 1) / 2);
    for (int i = 0; i < REQUESTS; i++) CHECK(requests[i] == MPI_REQUEST_NULL);
}

static void check_receive(const MPI_Status *status) {
    CHECK(status->MPI_SOURCE == (rank + size - 1) % size && status->MPI_TAG == 7);
}

static void check_empty(const MPI_Status *status) {
    int count, cancelled;
    MPI_Get_count(status, MPI_BYTE, &count);
    MPI_Test_cancelled(status, &cancelled);
    CHECK(count == 0 && !cancelled);
}

static void single(void) {
    int flag;
    MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, requests);
    MPI_Wait(requests, statuses);
    CHECK(sum == size - 1 && requests[0] == MPI_REQUEST_NULL);
    check_empty(statuses);
    MPI_Ibarrier(MPI_COMM_WORLD, requests);
    do MPI_Test(requests, &flag, statuses); while (!flag);
    CHECK(requests[0] == MPI_REQUEST_NULL);
    check_empty(statuses);
    MPI_Ibarrier(MPI_COMM_WORLD, requests);
    do MPI_Request_get_status(requests[0], &flag, statuses); while (!flag);
    check_empty(statuses);
    CHECK(requests[0] != MPI_REQUEST_NULL);
    MPI_Wait(requests, MPI_STATUS_IGNORE);
    CHECK(requests[0] == MPI_REQUEST_NULL);
}

static void all(void) {
    int flag;
    for (int ignored = 0; ignored < 2; ignored++) {
        MPI_Status *wanted = ignored ? MPI_STATUSES_IGNORE : statuses;
        start_mixture();
        MPI_Waitall(REQUESTS, requests, wanted);
        check_mixture();
        if (!ignored) check_receive(&statuses[RECEIVE]), check_empty(&statuses[SUM]);
        start_mixture();
        do MPI_Testall(REQUESTS, requests, &flag, wanted); while (!flag);
        check_mixture();
        if (!ignored) check_receive(&statuses[RECEIVE]), check_empty(&statuses[BARRIER]);
    }
    // Only collectives.
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[0]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
    check_empty(&statuses[1]);
}

static void any(void) {
    int flag, index, found = 0;
    start_mixture();
    for (int i = 0; i < 4; i++) {
        MPI_Waitany(REQUESTS, requests, &index, statuses);
        CHECK(index >= 0 && index < REQUESTS && !(found & 1 << index));
        if (index == RECEIVE) check_receive(statuses);
        found |= 1 << index;
    }
    CHECK(found == ALL);
    MPI_Waitany(REQUESTS, requests, &index, statuses);
    CHECK(index == MPI_UNDEFINED);
    check_mixture();
    start_mixture();
    for (found = 0; found != ALL; found |= 1 << index) {
        do MPI_Testany(REQUESTS, requests, &index, &flag, MPI_STATUS_IGNORE); while (!flag);
        CHECK(index != MPI_UNDEFINED);
    }
    MPI_Testany(REQUESTS, requests, &index, &flag, statuses);
    CHECK(flag && index == MPI_UNDEFINED);
    check_mixture();
}

static void some(void) {
    int count, indices[REQUESTS], found = 0;
    start_mixture();
    while (found != ALL) {
        MPI_Waitsome(REQUESTS, requests, &count, indices, statuses);
        CHECK(count > 0 && count <= REQUESTS);
        for (int i = 0; i < count; i++) {
            found |= 1 << indices[i];
            if (indices[i] == RECEIVE) check_receive(&statuses[i]);
            if (indices[i] == SUM) check_empty(&statuses[i]);
        }
    }
    MPI_Waitsome(REQUESTS, requests, &count, indices, MPI_STATUSES_IGNORE);
    CHECK(count == MPI_UNDEFINED);
    check_mixture();
    start_mixture();
    for (found = 0; found != ALL;) {
        MPI_Testsome(REQUESTS, requests, &count, indices, MPI_STATUSES_IGNORE);
        for (int i = 0; i < count; i++) found |= 1 << indices[i];
    }
    MPI_Testsome(REQUESTS, requests, &count, indices, MPI_STATUSES_IGNORE);
    CHECK(count == MPI_UNDEFINED);
    check_mixture();
}

static int (*status_all)(int, MPI_Request *, int *, MPI_Status *);
static int (*status_any)(int, MPI_Request *, int *, int *, MPI_Status *);
static int (*status_some)(int, MPI_Request *, int *, int *, MPI_Status *);

// Looks at `count` requests, of which `complete` are complete and the others active, or all none.
static void look(int count, MPI_Request *looked, int complete, int are_none) {
    enum { MOST = 3, GUARD = 12345 };
    MPI_Status found[2 * MOST];
    int flag, index, number, indices[2 * MOST];
    for (int i = 0; i < 2 * MOST; i++) indices[i] = found[i].MPI_TAG = GUARD;
    status_all(count, looked, &flag, MPI_STATUSES_IGNORE);
    CHECK(flag == (complete == count || are_none));
    status_any(count, looked, &index, &flag, MPI_STATUS_IGNORE);
    CHECK(flag == (complete > 0 || are_none));
    CHECK((index == MPI_UNDEFINED) == (complete == 0));
    status_some(count, looked, &number, indices, found);
    CHECK(number == (are_none ? MPI_UNDEFINED : complete));
    for (int i = complete; i < 2 * MOST; i++) CHECK(indices[i] == GUARD);
    for (int i = count; i < 2 * MOST; i++) CHECK(found[i].MPI_TAG == GUARD);
}

// The functions that leave the requests as they are. MPI libraries before MPI 4.1 lack them.
static void looks(void) {
    *(void **)&status_all = dlsym(RTLD_DEFAULT, "MPI_Request_get_status_all");
    *(void **)&status_any = dlsym(RTLD_DEFAULT, "MPI_Request_get_status_any");
    *(void **)&status_some = dlsym(RTLD_DEFAULT, "MPI_Request_get_status_some");
    if (!status_all || !status_any || !status_some) return;
    MPI_Request three[3];
    int word = 0, flag = 0;
    if (rank == size - 1) MPI_Recv(&word, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Ibarrier(MPI_COMM_WORLD, &three[0]);
    MPI_Irecv(&word, 1, MPI_INT, rank, 6, MPI_COMM_WORLD, &three[1]);
    MPI_Ibarrier(MPI_COMM_WORLD, &three[2]);
    if (rank == 0) {
        look(1, three, 0, 0);
        look(3, three, 0, 0);
        MPI_Send(&word, 1, MPI_INT, size - 1, 5, MPI_COMM_WORLD);
    }
    while (!flag) MPI_Request_get_status(three[2], &flag, MPI_STATUS_IGNORE);
    while (flag) MPI_Request_get_status(three[0], &flag, MPI_STATUS_IGNORE), flag = !flag;
    look(1, three, 1, 0);
    look(3, three, 2, 0);
    MPI_Send(&word, 1, MPI_INT, rank, 6, MPI_COMM_WORLD);
    while (!flag) MPI_Request_get_status(three[1], &flag, MPI_STATUS_IGNORE);
    look(3, three, 3, 0);
    MPI_Waitall(3, three, MPI_STATUSES_IGNORE);
    look(3, three, 0, 1);
    look(0, three, 0, 1);
#if MPI_VERSION >= 4
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &three[1]);
    look(3, three, 0, 1);
    MPI_Request_free(&three[1]);
#endif
}

// An extension of MPICH.
static void is_complete(void) {
    int (*is_complete)(MPI_Request), word = 0;
    *(void **)&is_complete = dlsym(RTLD_DEFAULT, "MPIX_Request_is_complete");
    if (!is_complete) return;
    MPI_Request barrier;
    if (rank == size - 1) MPI_Recv(&word, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
    if (rank == 0) CHECK(!is_complete(barrier));
    if (rank == 0) MPI_Send(&word, 1, MPI_INT, size - 1, 7, MPI_COMM_WORLD);
    while (!is_complete(barrier));
    MPI_Wait(&barrier, MPI_STATUS_IGNORE);
}

static void inactive(void) {
    int value = 5, next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Recv_init(&received, 1, MPI_INT, before, 9, MPI_COMM_WORLD, &requests[0]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[1]);
    MPI_Send_init(&value, 1, MPI_INT, next, 9, MPI_COMM_WORLD, &requests[2]);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    CHECK(requests[0] != MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[1]);
    MPI_Start(&requests[0]);
    MPI_Start(&requests[2]);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    CHECK(received == 5);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[2]);
}

// More calls than the window of a communicator holds. Odd ranks complete all at once, even ones
// from the last to the first, and the first rank is inside a blocking receive meanwhile.
static void many(void) {
    enum { CALLS = 200 };
    static MPI_Request calls[CALLS];
    static int values[CALLS], largest[CALLS];
    int word = 1;
    for (int i = 0; i < CALLS; i++) {
        values[i] = rank + i;
        MPI_Iallreduce(&values[i], &largest[i], 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &calls[i]);
    }
    if (rank == 0) MPI_Recv(&word, 1, MPI_INT, size - 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank % 2 == 1) MPI_Waitall(CALLS, calls, MPI_STATUSES_IGNORE);
    else for (int i = CALLS - 1; i >= 0; i--) MPI_Wait(&calls[i], MPI_STATUS_IGNORE);
    if (rank == size - 1) MPI_Send(&word, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    for (int i = 0; i < CALLS; i++) CHECK(largest[i] == size - 1 + i);
}

static void of_fortran(void) {
#ifndef MPI_ABI_VERSION
    MPI_Ibarrier(MPI_COMM_WORLD, requests);
    MPI_Request same = MPI_Request_f2c(MPI_Request_c2f(requests[0]));
    CHECK(same == requests[0]);
    MPI_Wait(&same, MPI_STATUS_IGNORE);
#endif
}

// The MPI library calls a function of the program, which completes a collective.
static int complete_in_copy(MPI_Comm old, int key, void *extra, void *value, void *copy, int *flag) {
    (void)old, (void)key, (void)copy;
    *flag = 0;
    int done = 0;
    if (value) while (!done) MPI_Test(extra, &done, MPI_STATUS_IGNORE);
    else MPI_Wait(extra, MPI_STATUS_IGNORE);
    return MPI_SUCCESS;
}

static void inside(void) {
    static int largest, value;
    for (int tests = 0; tests < 2; tests++) {
        MPI_Request request;
        MPI_Comm parent, child;
        int key;
        MPI_Comm_dup(MPI_COMM_WORLD, &parent);
        MPI_Comm_create_keyval(complete_in_copy, MPI_COMM_NULL_DELETE_FN, &key, &request);
        MPI_Comm_set_attr(parent, key, tests ? &value : NULL);
        value = rank, largest = -1;
        if (rank == size - 1) usleep(2000);
        MPI_Iallreduce(&value, &largest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
        MPI_Comm_dup(parent, &child);
        CHECK(request == MPI_REQUEST_NULL && largest == size - 1);
        MPI_Comm_free(&child);
        MPI_Comm_delete_attr(parent, key);
        MPI_Comm_free_keyval(&key);
        MPI_Comm_free(&parent);
    }
}

// The collectives of a file are the MPI library's own.
static void files(void) {
    char name[] = "/tmp/tradewind-file-XXXXXX";
    if (rank == 0) close(mkstemp(name));
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_File file;
    MPI_Request both[2];
    int written = rank + 1, read = -1;
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file);
    MPI_File_iwrite_at_all(file, rank * sizeof(int), &written, 1, MPI_INT, &both[0]);
    MPI_Ibarrier(MPI_COMM_WORLD, &both[1]);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_iread_at_all(file, (size - 1 - rank) * sizeof(int), &read, 1, MPI_INT, &both[0]);
    MPI_Wait(&both[0], MPI_STATUS_IGNORE);
    CHECK(read == size - rank);
    MPI_File_close(&file);
}

// One rank completes its part of an interleaved write before it starts a barrier; the others complete
// both together, and their parts of the write progress meanwhile.
static void files_beside_collectives(int tests) {
    enum { ELEMENTS = 1000 };
    static int written[ELEMENTS];
    MPI_Datatype every;
    MPI_Info info;
    MPI_Type_vector(ELEMENTS, 1, size, MPI_INT, &every);
    MPI_Type_commit(&every);
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", "enable");
    for (int first = 0; first < size; first++) {
        char name[] = "/tmp/tradewind-file-XXXXXX";
        if (rank == 0) close(mkstemp(name));
        MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
        MPI_File file;
        MPI_Request both[2];
        MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info, &file);
        MPI_File_set_view(file, rank * sizeof(int), MPI_INT, every, "native", MPI_INFO_NULL);
        MPI_File_iwrite_at_all(file, 0, written, ELEMENTS, MPI_INT, &both[0]);
        if (rank == first) MPI_Wait(&both[0], MPI_STATUS_IGNORE);
        MPI_Ibarrier(MPI_COMM_WORLD, &both[1]);
        int flag = 0;
        while (tests && !flag) MPI_Testall(2, both, &flag, MPI_STATUSES_IGNORE);
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        MPI_File_close(&file);
    }
    MPI_Info_free(&info);
    MPI_Type_free(&every);
}

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    single();
    for (int i = 0; i < 3; i++) all(), any(), some();
    looks();
    is_complete();
    inactive();
    many();
    of_fortran();
    inside();
    files();
    files_beside_collectives(0);
    files_beside_collectives(1);
    MPI_Finalize();
    return 0;
}
