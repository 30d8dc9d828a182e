// Persistent collectives: started again and again, in different orders, mixed with other requests,
// inactive ones in every completion function, and freed.
#include "check.h"

#ifdef HAS_PERSISTENT
enum { MANY = 60, LONG = 1 << 14 };

static void check_empty(const MPI_Status *status) {
    int count, cancelled;
    MPI_Get_count(status, MPI_BYTE, &count);
    MPI_Test_cancelled(status, &cancelled);
    CHECK(count == 0 && !cancelled);
}

static void inactive(MPI_Request *requests, int count) {
    MPI_Status statuses[4];
    int flag, index, indices[4];
    MPI_Request before[4];
    memcpy(before, requests, count * sizeof *before);
    MPI_Wait(requests, statuses), check_empty(statuses);
    MPI_Test(requests, &flag, statuses), check_empty(statuses);
    CHECK(flag);
    MPI_Request_get_status(requests[0], &flag, statuses);
    CHECK(flag);
    MPI_Waitall(count, requests, statuses), check_empty(&statuses[count - 1]);
    MPI_Testall(count, requests, &flag, statuses);
    CHECK(flag);
    MPI_Waitany(count, requests, &index, statuses);
    CHECK(index == MPI_UNDEFINED);
    MPI_Testany(count, requests, &index, &flag, statuses);
    CHECK(flag && index == MPI_UNDEFINED);
    MPI_Waitsome(count, requests, &index, indices, statuses);
    CHECK(index == MPI_UNDEFINED);
    MPI_Testsome(count, requests, &index, indices, statuses);
    CHECK(index == MPI_UNDEFINED);
    CHECK(memcmp(before, requests, count * sizeof *before) == 0);
}

static void repeated(void) {
    int own, sum, word;
    MPI_Request requests[3];
    MPI_Allreduce_init(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Bcast_init(&word, 1, MPI_INT, size - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &requests[2]);
    inactive(requests, 3);
    for (int i = 0; i < 200; i++) {
        int other = -1;
        MPI_Request nonblocking;
        own = rank + i, sum = -1, word = rank == size - 1 ? i : -1;
        // Every second rank starts in the opposite order.
        MPI_Start(&requests[rank % 2 ? 1 : 0]);
        MPI_Iallreduce(&own, &other, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &nonblocking);
        MPI_Start(&requests[rank % 2 ? 0 : 1]);
        MPI_Wait(&nonblocking, MPI_STATUS_IGNORE);
        CHECK(other == size - 1 + i);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        CHECK(sum == size * (size - 1) / 2 + size * i && word == i);
        CHECK(requests[0] != MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL);
    }
    inactive(requests, 3);
    for (int i = 0; i < 3; i++) {
        MPI_Request_free(&requests[i]);
        CHECK(requests[i] == MPI_REQUEST_NULL);
    }
}

// Each completion function, with messages and collectives that are started together.
static void mixed(void) {
    enum { SEND, SUM, RECEIVE, BARRIER, NONE, ALL };
    int own = 0, sum, out, in, flag, done, index, indices[ALL];
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Request requests[ALL];
    MPI_Status statuses[ALL];
    MPI_Send_init(&out, 1, MPI_INT, next, 3, MPI_COMM_WORLD, &requests[SEND]);
    MPI_Allreduce_init(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[SUM]);
    MPI_Recv_init(&in, 1, MPI_INT, before, 3, MPI_COMM_WORLD, &requests[RECEIVE]);
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &requests[BARRIER]);
    requests[NONE] = MPI_REQUEST_NULL;
    for (int i = 0; i < 42; i++) {
        own = rank + i, out = 100 * rank + i, in = sum = -1;
        MPI_Startall(ALL - 1, requests);
        switch (i % 7) {
        case 0: MPI_Waitall(ALL, requests, statuses); break;
        case 1: MPI_Waitall(ALL, requests, MPI_STATUSES_IGNORE); break;
        case 2: do MPI_Testall(ALL, requests, &flag, statuses); while (!flag); break;
        case 3:
            for (done = 0; done < ALL - 1; done++) {
                MPI_Waitany(ALL, requests, &index, statuses);
                CHECK(index != MPI_UNDEFINED && requests[index] != MPI_REQUEST_NULL);
            }
            break;
        case 4:
            for (done = 0; done < ALL - 1; done += flag)
                MPI_Testany(ALL, requests, &index, &flag, statuses);
            break;
        case 5:
            for (done = 0; done < ALL - 1; done += index) {
                MPI_Waitsome(ALL, requests, &index, indices, statuses);
                CHECK(index != MPI_UNDEFINED);
            }
            break;
        default:
            for (done = 0; done < ALL - 1; done += index)
                MPI_Testsome(ALL, requests, &index, indices, statuses);
        }
        CHECK(in == 100 * before + i && sum == size * (size - 1) / 2 + size * i);
        for (index = 0; index < ALL - 1; index++) CHECK(requests[index] != MPI_REQUEST_NULL);
    }
    for (index = 0; index < ALL - 1; index++) MPI_Request_free(&requests[index]);
}

// One that is left to the MPI library for the length of its blocks, started with one that is not.
// MPICH 5 fails in MPI_Testall on such requests of its own beside others, so each is waited for.
static void left(void) {
    static int far[16 * LONG], near[16 * LONG];
    int own, sum;
    MPI_Request requests[2];
    MPI_Alltoall_init(far, LONG, MPI_INT, near, LONG, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &requests[0]);
    MPI_Allreduce_init(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    for (int i = 0; i < 5; i++) {
        own = rank + i, sum = -1;
        for (int to = 0; to < size; to++) far[to * LONG] = 10 * rank + to + i;
        MPI_Startall(2, requests);
        MPI_Wait(&requests[i % 2], MPI_STATUS_IGNORE);
        MPI_Wait(&requests[1 - i % 2], MPI_STATUS_IGNORE);
        CHECK(sum == size * (size - 1) / 2 + size * i);
        for (int from = 0; from < size; from++) CHECK(near[from * LONG] == 10 * from + rank + i);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

// Many active at the same time, of two communicators, started in opposite orders.
static void many(void) {
    static int in[MANY], out[MANY];
    MPI_Request requests[MANY];
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    for (int i = 0; i < MANY; i++)
        MPI_Allreduce_init(&in[i], &out[i], 1, MPI_INT, MPI_SUM, i % 2 ? copy : MPI_COMM_WORLD,
                           MPI_INFO_NULL, &requests[i]);
    for (int repeat = 0; repeat < 10; repeat++) {
        for (int i = 0; i < MANY; i++) in[i] = rank + i + repeat, out[i] = -1;
        for (int i = 0; i < MANY; i++) MPI_Start(&requests[rank % 2 ? MANY - 1 - i : i]);
        MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < MANY; i++) CHECK(out[i] == size * (size - 1) / 2 + size * (i + repeat));
    }
    for (int i = 0; i < MANY; i++) MPI_Request_free(&requests[i]);
    MPI_Comm_free(&copy);
    // Nothing is left of the freed ones.
    for (int i = 0; i < 100; i++) {
        MPI_Allreduce_init(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, requests);
        if (i % 10 == 0) MPI_Start(requests), MPI_Wait(requests, MPI_STATUS_IGNORE);
        MPI_Request_free(requests);
    }
}

static void add(void *left, void *right, int *count, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *count; i++) ((int *)right)[i] += ((int *)left)[i];
}

// Types and operations may be freed after the initialization.
static void freed_objects(void) {
    int in[3], out[3], spread[6];
    MPI_Datatype type;
    MPI_Op op;
    MPI_Request requests[2];
    MPI_Op_create(add, 1, &op);
    MPI_Allreduce_init(in, out, 3, MPI_INT, op, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Type_vector(3, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Bcast_init(spread, 1, type, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    CHECK(op == MPI_OP_NULL && type == MPI_DATATYPE_NULL);
    for (int repeat = 0; repeat < 5; repeat++) {
        for (int i = 0; i < 3; i++) in[i] = rank + repeat * i;
        for (int i = 0; i < 6; i++) spread[i] = rank ? -1 : repeat + i;
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < 3; i++) CHECK(out[i] == size * (size - 1) / 2 + size * repeat * i);
        for (int i = 0; i < 6; i++) CHECK(spread[i] == (i % 2 && rank ? -1 : repeat + i));
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

// An initialization waits for the other ranks, one of which receives a long message before.
static void makes_progress(void) {
    static char message[1 << 20];
    MPI_Request sent, barrier;
    if (rank == 0) MPI_Isend(message, sizeof message, MPI_CHAR, size - 1, 5, MPI_COMM_WORLD, &sent);
    if (rank == size - 1)
        usleep(2000),
            MPI_Recv(message, sizeof message, MPI_CHAR, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &barrier);
    MPI_Start(&barrier);
    if (rank == 0) MPI_Wait(&sent, MPI_STATUS_IGNORE);
    MPI_Wait(&barrier, MPI_STATUS_IGNORE);
    MPI_Request_free(&barrier);
}

// MPI does not allow it to free an active one; the others are complete nevertheless.
static void free_active(void) {
    int own = rank, sum;
    MPI_Request active;
    MPI_Allreduce_init(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &active);
    MPI_Start(&active);
    if (rank == 0) {
        MPI_Request_free(&active);
        CHECK(active == MPI_REQUEST_NULL);
    } else {
        MPI_Wait(&active, MPI_STATUS_IGNORE);
        CHECK(sum == size * (size - 1) / 2);
        MPI_Request_free(&active);
    }
}
#endif

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
#ifdef HAS_PERSISTENT
    repeated();
    mixed();
    left();
    many();
    freed_objects();
    makes_progress();
    free_active();
    // One that is never freed.
    MPI_Request kept;
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &kept);
    MPI_Start(&kept);
    MPI_Wait(&kept, MPI_STATUS_IGNORE);
#else
    printf("no persistent collectives\n");
#endif
    MPI_Finalize();
    return 0;
}
