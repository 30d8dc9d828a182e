// Every nonblocking collective, against the blocking form of the MPI library: with predefined and
// derived types, in place, with predefined and other operations.
#include "check.h"

enum { COUNT = 37, CAPACITY = 4096 };

static MPI_Comm world;
static MPI_Datatype spread;   // two ints with a gap
static MPI_Datatype backwards; // three ints, the last one first
static MPI_Op matrices;        // a product that does not commute

static void multiply(void *left, void *right, int *count, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *count; i++) {
        unsigned *a = (unsigned *)left + 4 * i, *b = (unsigned *)right + 4 * i;
        unsigned c[4] = { a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
                          a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3] };
        memcpy(b, c, sizeof c);
    }
}

static int sent[CAPACITY], expected[CAPACITY], found[CAPACITY];

static void fill(int seed) {
    for (int i = 0; i < CAPACITY; i++) {
        sent[i] = (rank + 1) * 31 + i * 7 + seed;
        expected[i] = found[i] = -1 - i - rank;
    }
}

static void same(const char *what, int line) {
    if (memcmp(expected, found, sizeof found) == 0) return;
    for (int i = 0; i < CAPACITY; i++)
        if (expected[i] != found[i]) {
            fprintf(stderr, "rank %d of %d, line %d, %s: element %d is %d, not %d\n", rank, size,
                    line, what, i, found[i], expected[i]);
            break;
        }
    MPI_Abort(world, 1);
}

// Compares MPI_Iname(arguments) with MPI_name(arguments); R is the buffer that receives.
#define COMPARE(name, ...)                                              \
    do {                                                                \
        MPI_Request request;                                            \
        int *R;                                                         \
        fill(__LINE__);                                                 \
        R = expected;                                                   \
        MPI_##name(__VA_ARGS__, world);                                 \
        R = found;                                                      \
        MPI_I(name)(__VA_ARGS__, world, &request);                      \
        MPI_Wait(&request, MPI_STATUS_IGNORE);                          \
        same(#name, __LINE__);                                          \
    } while (0)
#define MPI_I(name) MPI_I_##name
#define MPI_I_Bcast MPI_Ibcast
#define MPI_I_Gather MPI_Igather
#define MPI_I_Gatherv MPI_Igatherv
#define MPI_I_Scatter MPI_Iscatter
#define MPI_I_Scatterv MPI_Iscatterv
#define MPI_I_Allgather MPI_Iallgather
#define MPI_I_Allgatherv MPI_Iallgatherv
#define MPI_I_Alltoall MPI_Ialltoall
#define MPI_I_Alltoallv MPI_Ialltoallv
#define MPI_I_Alltoallw MPI_Ialltoallw
#define MPI_I_Reduce MPI_Ireduce
#define MPI_I_Allreduce MPI_Iallreduce
#define MPI_I_Reduce_scatter MPI_Ireduce_scatter
#define MPI_I_Reduce_scatter_block MPI_Ireduce_scatter_block
#define MPI_I_Scan MPI_Iscan
#define MPI_I_Exscan MPI_Iexscan

static void moved(int root) {
    int counts[64], offsets[64], all[64], at[64];
    for (int i = 0; i < size; i++) counts[i] = 1 + i, offsets[i] = 3 * i * i, all[i] = 2, at[i] = 2 * i;
    int own = rank + 1;
    void *in_place = MPI_IN_PLACE;
    int is_root = rank == root;
    COMPARE(Bcast, is_root ? sent : R, COUNT, MPI_INT, root);
    // Rank 0 has a derived type, the others ints: the signatures agree.
    if (rank == 0) COMPARE(Bcast, root == 0 ? sent : R, 4, spread, root);
    else COMPARE(Bcast, is_root ? sent : R, 8, MPI_INT, root);
    COMPARE(Gather, sent, COUNT, MPI_INT, R, COUNT, MPI_INT, root);
    COMPARE(Gather, is_root ? in_place : sent, COUNT, MPI_INT, R, COUNT, MPI_INT, root);
    COMPARE(Gather, sent, 3, spread, R, 2, backwards, root);
    COMPARE(Gather, is_root ? in_place : sent, 3, spread, R, 3, spread, root);
    COMPARE(Gatherv, sent, own, MPI_INT, R, counts, offsets, MPI_INT, root);
    COMPARE(Gatherv, is_root ? in_place : sent, own, spread, R, counts, offsets, spread, root);
    COMPARE(Scatter, sent, COUNT, MPI_INT, R, COUNT, MPI_INT, root);
    COMPARE(Scatter, sent, COUNT, MPI_INT, is_root ? in_place : R, COUNT, MPI_INT, root);
    COMPARE(Scatter, sent, 3, spread, R, 2, backwards, root);
    COMPARE(Scatterv, sent, counts, offsets, MPI_INT, R, own, MPI_INT, root);
    COMPARE(Scatterv, sent, counts, offsets, spread, is_root ? in_place : R, own, spread, root);
    COMPARE(Allgather, sent, COUNT, MPI_INT, R, COUNT, MPI_INT);
    COMPARE(Allgather, in_place, 0, MPI_DATATYPE_NULL, R, COUNT, MPI_INT);
    COMPARE(Allgather, in_place, 0, MPI_DATATYPE_NULL, R, 3, spread);
    COMPARE(Allgather, sent, 3, spread, R, 2, backwards);
    COMPARE(Allgatherv, sent, own, MPI_INT, R, counts, offsets, MPI_INT);
    COMPARE(Allgatherv, in_place, 0, MPI_INT, R, counts, offsets, MPI_INT);
    COMPARE(Allgatherv, in_place, 0, MPI_INT, R, all, at, MPI_INT);
    COMPARE(Alltoall, sent, COUNT, MPI_INT, R, COUNT, MPI_INT);
    COMPARE(Alltoall, in_place, 0, MPI_DATATYPE_NULL, R, COUNT, MPI_INT);
    COMPARE(Alltoall, in_place, 0, MPI_DATATYPE_NULL, R, 2, spread);
    COMPARE(Alltoall, sent, 3, spread, R, 2, backwards);
    int to[64], from[64], to_at[64], from_at[64];
    for (int i = 0; i < size; i++) to[i] = i + 1, from[i] = own, to_at[i] = 5 * i, from_at[i] = 6 * i;
    COMPARE(Alltoallv, sent, to, to_at, MPI_INT, R, from, from_at, MPI_INT);
    COMPARE(Alltoallv, sent, to, to_at, spread, R, from, from_at, spread);
    COMPARE(Alltoallv, in_place, NULL, NULL, MPI_INT, R, all, at, MPI_INT);
    MPI_Datatype types[64];
    for (int i = 0; i < size; i++) types[i] = (rank + i) % 2 ? spread : MPI_2INT, to_at[i] = 64 * i, from_at[i] = 72 * i;
    COMPARE(Alltoallw, sent, all, to_at, types, R, all, from_at, types);
}

static void combined(int root) {
    int counts[64];
    for (int i = 0; i < size; i++) counts[i] = 1 + i % 3;
    void *in_place = MPI_IN_PLACE;
    int is_root = rank == root;
    struct { MPI_Datatype type; int count; MPI_Op op; } cases[] = {
        { MPI_INT, COUNT, MPI_SUM }, { MPI_UNSIGNED, COUNT, MPI_PROD }, { MPI_INT, COUNT, MPI_MAX },
        { MPI_INT32_T, COUNT, MPI_MIN }, { MPI_INT, COUNT, MPI_BXOR }, { MPI_UNSIGNED, 1, MPI_BAND },
        { MPI_SHORT, COUNT, MPI_SUM }, { MPI_INT, COUNT, MPI_LAND }, { MPI_INT, 0, MPI_SUM },
        { MPI_BYTE, COUNT, MPI_BOR }, { MPI_2INT, COUNT, MPI_MAXLOC }, { MPI_2INT, 9, MPI_MINLOC },
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        MPI_Datatype type = cases[i].type;
        MPI_Op op = cases[i].op;
        int count = cases[i].count;
        COMPARE(Allreduce, sent, R, count, type, op);
        COMPARE(Allreduce, in_place, R, count, type, op);
        COMPARE(Reduce, sent, R, count, type, op, root);
        COMPARE(Reduce, is_root ? in_place : sent, R, count, type, op, root);
        COMPARE(Scan, sent, R, count, type, op);
        COMPARE(Scan, in_place, R, count, type, op);
        COMPARE(Exscan, sent, R, count, type, op);
        COMPARE(Reduce_scatter, sent, R, counts, type, op);
        COMPARE(Reduce_scatter_block, sent, R, count, type, op);
    }
    MPI_Datatype matrix;
    MPI_Type_contiguous(4, MPI_INT, &matrix);
    MPI_Type_commit(&matrix);
    COMPARE(Allreduce, sent, R, 5, matrix, matrices);
    COMPARE(Allreduce, in_place, R, 5, matrix, matrices);
    COMPARE(Reduce, sent, R, 5, matrix, matrices, root);
    COMPARE(Scan, sent, R, 5, matrix, matrices);
    COMPARE(Exscan, sent, R, 5, matrix, matrices);
    COMPARE(Reduce_scatter, sent, R, counts, matrix, matrices);
    COMPARE(Reduce_scatter_block, sent, R, 2, matrix, matrices);
    // The type and the operation may be freed while a call uses them.
    MPI_Request request;
    MPI_Op copy;
    fill(1);
    MPI_Allreduce(sent, expected, 5, matrix, matrices, world);
    MPI_Op_create(multiply, 0, &copy);
    MPI_Iallreduce(sent, found, 5, matrix, copy, world, &request);
    MPI_Op_free(&copy);
    MPI_Type_free(&matrix);
    CHECK(copy == MPI_OP_NULL && matrix == MPI_DATATYPE_NULL);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    same("freed operation", __LINE__);
    // Elements of 16 bytes.
    long double in = 1.5L * rank, out = 0;
    MPI_Iallreduce(&in, &out, 1, MPI_LONG_DOUBLE, MPI_SUM, world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(out == 1.5L * (size * (size - 1) / 2));
    // Pairs with a gap.
    struct { double value; int place; } pair = { rank == 1 ? 5 : 1, rank }, most;
    MPI_Iallreduce(&pair, &most, 1, MPI_DOUBLE_INT, MPI_MAXLOC, world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(most.value == (size > 1 ? 5 : 1) && most.place == (size > 1));
}

static void at_bottom(void) {
    int in = rank, out = -1, one = 1;
    MPI_Aint at;
    MPI_Datatype absolute;
    MPI_Request request;
    MPI_Get_address(rank == 0 ? &in : &out, &at);
    MPI_Type_create_hindexed(1, &one, &at, MPI_INT, &absolute);
    MPI_Type_commit(&absolute);
    MPI_Ibcast(MPI_BOTTOM, 1, absolute, 0, world, &request);
    MPI_Type_free(&absolute);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(rank == 0 || out == 0);
}

static void complete(MPI_Request *request) { MPI_Wait(request, MPI_STATUS_IGNORE); }

// True with the argument "blocking": the exchanges with neighbours are then blocking ones.
static int blocks;
#define EXCHANGE(name, ...)                                                           \
    (blocks ? (request = MPI_REQUEST_NULL, MPI_Neighbor_##name(__VA_ARGS__))          \
            : MPI_Ineighbor_##name(__VA_ARGS__, &request))

static void grids(void) {
    int periodic = 1, next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Comm ring, line;
    MPI_Request request;
    int out[2] = { 10 * rank, 10 * rank + 1 }, in[2] = { -1, -1 };
    MPI_Cart_create(world, 1, &size, &periodic, 0, &ring);
    EXCHANGE(alltoall, out, 1, MPI_INT, in, 1, MPI_INT, ring), complete(&request);
    CHECK(in[0] == 10 * before + 1 && in[1] == 10 * next);
    EXCHANGE(allgather, &rank, 1, MPI_INT, in, 1, MPI_INT, ring), complete(&request);
    CHECK(in[0] == before && in[1] == next);
    periodic = 0;
    MPI_Cart_create(world, 1, &size, &periodic, 0, &line);
    in[0] = in[1] = -5;
    EXCHANGE(alltoall, out, 1, MPI_INT, in, 1, MPI_INT, line), complete(&request);
    CHECK(in[0] == (rank > 0 ? 10 * before + 1 : -5));
    CHECK(in[1] == (rank < size - 1 ? 10 * next : -5));
    int counts[2] = { 1, 1 }, offsets[2] = { 1, 0 };
    EXCHANGE(alltoallv, out, counts, offsets, MPI_INT, in, counts, offsets, MPI_INT, ring);
    complete(&request);
    CHECK(in[1] == 10 * before && in[0] == 10 * next + 1);
    EXCHANGE(allgatherv, &rank, 1, MPI_INT, in, counts, offsets, MPI_INT, ring);
    complete(&request);
    CHECK(in[1] == before && in[0] == next);
    MPI_Aint places[2] = { 4, 0 };
    MPI_Datatype types[2] = { MPI_INT, MPI_INT };
    EXCHANGE(alltoallw, out, counts, places, types, in, counts, places, types, ring);
    complete(&request);
    CHECK(in[1] == 10 * before && in[0] == 10 * next + 1);
    int keep = 1;
    MPI_Comm part;
    MPI_Cart_sub(ring, &keep, &part);
    EXCHANGE(allgather, &rank, 1, MPI_INT, in, 1, MPI_INT, part), complete(&request);
    CHECK(in[0] == before && in[1] == next);
    MPI_Comm_free(&part);
    MPI_Comm_free(&line);
    MPI_Comm_free(&ring);
}

static void graphs(void) {
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    // Two edges to the next rank, and one to this rank itself.
    int sources[3] = { before, before, rank }, destinations[3] = { next, rank, next };
    int out[3] = { 10 * rank, 10 * rank + 1, 10 * rank + 2 }, in[3] = { -1, -1, -1 };
    MPI_Comm graph, general, old;
    MPI_Request request;
    MPI_Dist_graph_create_adjacent(world, 3, sources, MPI_UNWEIGHTED, 3, destinations, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &graph);
    EXCHANGE(alltoall, out, 1, MPI_INT, in, 1, MPI_INT, graph), complete(&request);
    CHECK(in[0] == 10 * before && in[1] == 10 * before + 2 && in[2] == 10 * rank + 1);
    MPI_Comm_free(&graph);
    int degree = 1;
    MPI_Dist_graph_create(world, 1, &rank, &degree, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &general);
    in[0] = -1;
    EXCHANGE(allgather, &rank, 1, MPI_INT, in, 1, MPI_INT, general), complete(&request);
    CHECK(in[0] == before);
    MPI_Comm_free(&general);
    int index[64], edges[64];
    for (int i = 0; i < size; i++) index[i] = i + 1, edges[i] = size - 1 - i;
    MPI_Graph_create(world, size, index, edges, 0, &old);
    EXCHANGE(allgather, &rank, 1, MPI_INT, in, 1, MPI_INT, old), complete(&request);
    CHECK(in[0] == size - 1 - rank);
    MPI_Comm_free(&old);
}

// Graphs in which a rank has no neighbour, or sends nothing, and lengths that are equal between
// neighbours only. Some of the blocks are longer than those of grids that run on tradewind.
static void sparse_graphs(int has_one_node) {
    enum { LONG = 1 << 14 };
    static int out[LONG], in[LONG];
    int first = 0, second = 1, degree = 1;
    MPI_Comm pair, alone;
    MPI_Request request;
    // The first rank sends to the second one, and a third one has no neighbour.
    MPI_Dist_graph_create_adjacent(world, rank == 1, &first, MPI_UNWEIGHTED, rank == 0, &second,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &pair);
    for (int length = 1; length <= LONG; length += LONG - 1) {
        int sent = rank == 0 ? length : 0, received = rank == 1 ? length : 0;
        for (int alltoall = 0; alltoall < 2; alltoall++) {
            void *from = sent ? out : NULL, *to = received ? in : NULL;
            for (int i = 0; i < length; i++) out[i] = 7 + i + rank, in[i] = -1;
            if (alltoall) EXCHANGE(alltoall, from, sent, MPI_INT, to, received, MPI_INT, pair);
            else EXCHANGE(allgather, from, sent, MPI_INT, to, received, MPI_INT, pair);
            complete(&request);
            for (int i = 0; i < length; i++) CHECK(in[i] == (received ? 7 + i : -1));
        }
    }
    MPI_Comm_free(&pair);
    if (!has_one_node) return;
    // Each rank sends to itself, the first one less than the others.
    MPI_Dist_graph_create(world, 1, &rank, &degree, &rank, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &alone);
    for (int alltoall = 0; alltoall < 2; alltoall++) {
        int length = rank == 0 ? 1 : LONG;
        for (int i = 0; i < length; i++) out[i] = 9 + i + rank, in[i] = -1;
        if (alltoall) EXCHANGE(alltoall, out, length, MPI_INT, in, length, MPI_INT, alone);
        else EXCHANGE(allgather, out, length, MPI_INT, in, length, MPI_INT, alone);
        complete(&request);
        for (int i = 0; i < length; i++) CHECK(in[i] == 9 + i + rank);
    }
    MPI_Comm_free(&alone);
}

// An operation that copies whole elements, with their padding.
enum { PADDED = 4096 };

static void add_padded(void *left, void *right, int *count, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *count; i++) {
        char element[PADDED];
        memcpy(element, (char *)left + i * PADDED, PADDED);
        *(int *)element += *(int *)((char *)right + i * PADDED);
        memcpy((char *)right + i * PADDED, element, PADDED);
    }
}

static void padding(void) {
    static char in[2 * PADDED], out[2 * PADDED];
    MPI_Datatype padded;
    MPI_Op add;
    MPI_Request request;
    MPI_Type_create_resized(MPI_INT, 0, PADDED, &padded);
    MPI_Type_commit(&padded);
    MPI_Op_create(add_padded, 1, &add);
    for (int repeat = 0; repeat < 20; repeat++) {
        for (int i = 0; i < 2; i++) *(int *)(in + i * PADDED) = rank + i;
        MPI_Iallreduce(in, out, 2, padded, add, world, &request), complete(&request);
        for (int i = 0; i < 2; i++)
            CHECK(*(int *)(out + i * PADDED) == size * (size - 1) / 2 + i * size);
    }
    MPI_Op_free(&add);
    MPI_Type_free(&padded);
}

// The root's own block lies in front of the blocks of all ranks.
static void equal_bases(void) {
    int all[65], counts[64], behind[64];
    MPI_Request request;
    for (int i = 0; i < size; i++) counts[i] = 1, behind[i] = i + 1, all[i + 1] = -1;
    all[0] = 100 + rank;
    MPI_Igatherv(all, 1, MPI_INT, all, counts, behind, MPI_INT, 0, world, &request), complete(&request);
    for (int i = 0; i < size && rank == 0; i++) CHECK(all[i + 1] == 100 + i);
    for (int i = 0; i < size; i++) all[i + 1] = 200 + i;
    MPI_Iscatterv(all, counts, behind, MPI_INT, all, 1, MPI_INT, 0, world, &request), complete(&request);
    CHECK(all[0] == 200 + rank);
}

// A count of 0 at some ranks, beside no type.
static void absent_types(void) {
    int counts[64], at[64], in[64], out[64];
    MPI_Datatype types[64];
    MPI_Request request;
    for (int i = 0; i < size; i++) {
        counts[i] = rank > 0 && i > 0;
        types[i] = counts[i] ? MPI_INT : MPI_DATATYPE_NULL;
        at[i] = i * sizeof(int);
        in[i] = 10 * rank + i, out[i] = -1;
    }
    MPI_Ialltoallw(in, counts, at, types, out, counts, at, types, world, &request);
    complete(&request);
    for (int i = 0; i < size; i++) CHECK(out[i] == (counts[i] ? 10 * i + rank : -1));
}

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    blocks = argc > 1 && strcmp(argv[1], "blocking") == 0;
    int has_one_node = argc < 2 || strcmp(argv[1], "nodes") != 0;
    world = MPI_COMM_WORLD;
    MPI_Type_vector(2, 1, 2, MPI_INT, &spread);
    MPI_Type_commit(&spread);
    int ones[3] = { 1, 1, 1 }, places[3] = { 2, 1, 0 };
    MPI_Type_indexed(3, ones, places, MPI_INT, &backwards);
    MPI_Type_commit(&backwards);
    MPI_Op_create(multiply, 0, &matrices);
    moved(0), combined(0);
    moved(size - 1), combined(size - 1);
    at_bottom();
    padding();
    equal_bases();
    // A single rank is left to the MPI library, and some exchange its blocks wrongly.
    if (size > 1) grids(), graphs(), sparse_graphs(has_one_node), absent_types();
    MPI_Op_free(&matrices);
    MPI_Type_free(&spread);
    MPI_Type_free(&backwards);
    MPI_Finalize();
    return 0;
}
