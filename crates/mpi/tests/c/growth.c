// Memory after many rounds of create, use and free, in which ranks lag: it stays what it was.
// Arguments: the rounds before the first measurement, those of all (20 and 60 if there are none),
// and a part of the names of the kinds.
#include "check.h"

enum { LONG = 1000, SHORT = 4 };
static double in[LONG * 8], out[LONG * 8];

// Private memory in KiB: pages of the shared one stay once they were in use.
static long resident(void) {
    long all, pages = 0, shared = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (fscanf(file, "%ld %ld %ld", &all, &pages, &shared) != 3) pages = shared = 0;
    fclose(file);
    return (pages - shared) * (sysconf(_SC_PAGESIZE) / 1024);
}

static void largest(void *a, void *b, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++)
        if (((double *)a)[i] > ((double *)b)[i]) ((double *)b)[i] = ((double *)a)[i];
}

static void complete(MPI_Request *request) { MPI_Wait(request, MPI_STATUS_IGNORE); }

static void allgather(MPI_Comm comm, int count) {
    MPI_Request request;
    MPI_Iallgather(in, count, MPI_DOUBLE, out, count, MPI_DOUBLE, comm, &request);
    complete(&request);
}

static void duplicate(int round) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (round % 2) allgather(comm, LONG);
    MPI_Comm_free(&comm);
}

static void freed_while_active(int round) {
    MPI_Comm comm;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Iallgather(in, LONG, MPI_DOUBLE, out, LONG, MPI_DOUBLE, comm, &request);
    MPI_Comm_free(&comm);
    complete(&request);
}

static void split(int round) {
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, round % 4 == rank ? MPI_UNDEFINED : rank % 2, -rank, &comm);
    if (comm == MPI_COMM_NULL) return;
    allgather(comm, LONG);
    MPI_Comm_free(&comm);
}

static void grid(int round) {
    int periodic = round % 2;
    MPI_Comm comm;
    MPI_Request request;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &comm);
    MPI_Ineighbor_alltoall(in, LONG, MPI_DOUBLE, out, LONG, MPI_DOUBLE, comm, &request);
    complete(&request);
    MPI_Comm_free(&comm);
}

static void graph(int round) {
    int before = (rank + size - 1) % size, next = (rank + 1) % size, count = 1 + round * 7 % LONG;
    MPI_Comm comm;
    MPI_Request request;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, MPI_UNWEIGHTED, 1, &next,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
    MPI_Ineighbor_allgather(in, count, MPI_DOUBLE, out, count, MPI_DOUBLE, comm, &request);
    complete(&request);
    MPI_Comm_free(&comm);
}

static void operations(int round) {
    MPI_Op op;
    MPI_Datatype type;
    MPI_Request requests[2];
    MPI_Op_create(largest, 1, &op);
    MPI_Type_vector(4, 1, 2, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    MPI_Iallreduce(in, out, SHORT + round % 40, MPI_DOUBLE, op, MPI_COMM_WORLD, &requests[0]);
    MPI_Ibcast(out + LONG, 2, type, round % size, MPI_COMM_WORLD, &requests[1]);
    // Used by active calls.
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void requests(int round) {
    MPI_Request all[3];
    MPI_Ibarrier(MPI_COMM_WORLD, &all[0]);
    MPI_Ibcast(in, LONG, MPI_DOUBLE, round % size, MPI_COMM_WORLD, &all[1]);
    MPI_Ialltoall(in, 1 + round * 7 % LONG, MPI_DOUBLE, out, 1 + round * 7 % LONG, MPI_DOUBLE,
                  MPI_COMM_WORLD, &all[2]);
    MPI_Waitall(3, all, MPI_STATUSES_IGNORE);
}

static void outstanding(int round) {
    // More calls than a communicator has places for, completed from the last to the first.
    enum { MANY = 70 };
    MPI_Request all[MANY];
    int count = round % 4 ? 12 : MANY, length = round % 3 ? 1 : 8;
    for (int i = 0; i < count; i++)
        if (i % 2) MPI_Ibarrier(MPI_COMM_WORLD, &all[i]);
        else MPI_Iallreduce(in + 8 * i, out + 8 * i, length, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &all[i]);
    for (int i = count - 1; i >= 0; i--) complete(&all[i]);
}

static void nested(int round) {
    MPI_Comm parent, child;
    MPI_Request barrier;
    MPI_Comm_dup(MPI_COMM_WORLD, &parent);
    MPI_Ibarrier(parent, &barrier);
    MPI_Comm_dup(parent, &child);
    if (round % 2) MPI_Comm_free(&parent);
    allgather(child, 1 + round * 7 % LONG);
    complete(&barrier);
    MPI_Comm_free(&child);
    if (round % 2 == 0) MPI_Comm_free(&parent);
}

static void of_groups(int round) {
    // One that is left to the MPI library, or one of a group.
    MPI_Comm comm;
    MPI_Group group;
    MPI_Request request;
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    if (round % 2) MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request), complete(&request);
    else MPI_Comm_create(MPI_COMM_WORLD, group, &comm);
    MPI_Group_free(&group);
    allgather(comm, LONG);
    MPI_Comm_free(&comm);
}

static void different_lengths(int round) {
    // Left to the MPI library on a communicator of its own, which is then watched.
    MPI_Comm comm;
    MPI_Datatype type;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Type_create_resized(MPI_DOUBLE, -8, 16, &type);
    MPI_Type_commit(&type);
    MPI_Ibcast(in + SHORT, 1, type, 0, comm, &request);
    complete(&request);
    MPI_Type_free(&type);
    MPI_Comm_free(&comm);
}

#ifdef HAS_PERSISTENT
static void start_and_free(MPI_Request *request) {
    MPI_Start(request);
    complete(request);
    MPI_Request_free(request);
}

static void persistent(int round) {
    MPI_Request request;
    MPI_Allreduce_init(in, out, 1 + round % LONG, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &request);
    start_and_free(&request);
    MPI_Bcast_init(in, 4 * LONG, MPI_DOUBLE, round % size, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    start_and_free(&request);
}

static void persistent_in_any_order(int round) {
    // Started twice, once or never, and freed before their communicator or after it.
    MPI_Request all[2];
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Allreduce_init(in, out, 1 + round * 7 % LONG, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &all[0]);
    MPI_Alltoall_init(in, LONG, MPI_DOUBLE, out, LONG, MPI_DOUBLE, comm, MPI_INFO_NULL, &all[1]);
    if (round % 2) MPI_Comm_free(&comm);
    for (int i = 0; i < round % 3; i++) MPI_Startall(2, all), MPI_Waitall(2, all, MPI_STATUSES_IGNORE);
    for (int i = 1; i >= 0; i--) MPI_Request_free(&all[i]);
    if (round % 2 == 0) MPI_Comm_free(&comm);
}

static void persistent_on_a_grid(int round) {
    static MPI_Comm ring = MPI_COMM_NULL;
    int periodic = 1;
    MPI_Request request;
    if (ring == MPI_COMM_NULL) MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
    MPI_Neighbor_alltoall_init(in, LONG, MPI_DOUBLE, out, LONG, MPI_DOUBLE, ring, MPI_INFO_NULL,
                               &request);
    start_and_free(&request);
}
#endif

static const struct { const char *name; void (*round)(int round); } kinds[] = {
    {"dup", duplicate},
    {"freed while active", freed_while_active},
    {"split", split},
    {"grid", grid},
    {"graph", graph},
    {"operations and types", operations},
    {"requests", requests},
    {"outstanding", outstanding},
    {"nested", nested},
    {"idup or of a group", of_groups},
    {"left to the MPI library", different_lengths},
#ifdef HAS_PERSISTENT
    {"persistent", persistent},
    {"persistent in any order", persistent_in_any_order},
    {"persistent on a grid", persistent_on_a_grid},
#endif
};

// The rank that lags: none, each by turns, always the last, always the first.
static int late(int round, int rounds) {
    switch (4L * round / rounds) {
    case 0: return -1;
    case 1: return round % size;
    case 2: return size - 1;
    default: return 0;
    }
}

static void run(void (*once)(int), int rounds) {
    for (int round = 0; round < rounds; round++) {
        if (late(round, rounds) == rank) usleep(20);
        once(round);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    // Pages that the allocators of both libraries keep.
    const long chance = 768;
    start(&argc, &argv, MPI_THREAD_SINGLE);
    int first = argc > 2 ? atoi(argv[1]) : 20, all = argc > 2 ? atoi(argv[2]) : 60;
    for (int kind = 0; kind < (int)(sizeof kinds / sizeof *kinds); kind++) {
        if (argc > 3 && !strstr(kinds[kind].name, argv[3])) continue;
        run(kinds[kind].round, first);
        long before = resident();
        run(kinds[kind].round, all - first);
        long grown = resident() - before;
        if (argc > 2 && rank == 0)
            printf("%s: %ld KiB after %d rounds, then %ld KiB after %d\n", kinds[kind].name, before,
                   first, before + grown, all);
        if (grown > chance)
            fprintf(stderr, "%s: rank %d has grown by %ld KiB\n", kinds[kind].name, rank, grown);
        if (argc <= 2) CHECK(grown <= chance);
    }
    MPI_Finalize();
    return 0;
}
