// Correct calls whose arguments differ between ranks. All ranks have to decide alike where they run, and
// the results are those that MPI defines. Each case is named in the table at the end; the arguments of the
// program select cases. The second rank asks for another level of threads.
#include "check.h"
#include <setjmp.h>

#define NONE MPI_PROC_NULL
#define NOTE MPI_INFO_NULL
#define WEIGHTS MPI_UNWEIGHTED

enum { LONG = 10001, MOST = 4 * LONG };
static int out[MOST], in[MOST];
static MPI_Comm world;

static void complete(MPI_Request *request) { MPI_Wait(request, MPI_STATUS_IGNORE); }

// A communicator is served alike on all ranks, so a call on it ends.
static void use(MPI_Comm communicator) {
    int ranks, sum = -1, one = 1;
    MPI_Request request;
    if (communicator == MPI_COMM_NULL) return;
    MPI_Comm_size(communicator, &ranks);
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, communicator, &request);
    complete(&request);
    CHECK(sum == ranks);
}

static void use_and_free(MPI_Comm *communicator) {
    MPI_Comm copy;
    if (*communicator == MPI_COMM_NULL) return;
    use(*communicator);
    MPI_Comm_dup(*communicator, &copy);
    use(copy);
    MPI_Comm_free(&copy);
    MPI_Comm_free(communicator);
}

// Exchanges of a rank with its neighbours: block i of what is sent holds 1000 * rank + 10 * i, and that from
// neighbour i has to hold `expected[i]`, where -1 means that the block keeps its value.
static void exchange(MPI_Comm on, int sources, int destinations, const int *expected) {
    int counts[8], offsets[8];
    MPI_Aint places[8];
    MPI_Datatype types[8];
    MPI_Request request;
    for (int i = 0; i < 8; i++) {
        counts[i] = 1, offsets[i] = i, places[i] = i * sizeof(int), types[i] = MPI_INT;
        out[i] = 1000 * rank + 10 * i;
    }
    for (int form = 0; form < 4; form++) {
        for (int i = 0; i < 8; i++) in[i] = -1;
        if (form == 0) MPI_Ineighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, on, &request);
        if (form == 1) MPI_Ineighbor_alltoallv(out, counts, offsets, MPI_INT, in, counts, offsets, MPI_INT, on,
                                               &request);
        if (form == 2) MPI_Ineighbor_alltoallw(out, counts, places, types, in, counts, places, types, on,
                                               &request);
#ifdef HAS_PERSISTENT
        if (form == 3) {
            MPI_Neighbor_alltoall_init(out, 1, MPI_INT, in, 1, MPI_INT, on, NOTE, &request);
            MPI_Start(&request);
        }
#else
        if (form == 3) continue;
#endif
        complete(&request);
        for (int i = 0; i < sources; i++) CHECK(in[i] == expected[i]);
        if (form == 3) MPI_Request_free(&request);
    }
    for (int form = 0; form < 2; form++) {
        for (int i = 0; i < 8; i++) in[i] = -1;
        if (form == 0) MPI_Ineighbor_allgather(&rank, 1, MPI_INT, in, 1, MPI_INT, on, &request);
        else MPI_Ineighbor_allgatherv(&rank, 1, MPI_INT, in, counts, offsets, MPI_INT, on, &request);
        complete(&request);
        for (int i = 0; i < sources; i++) CHECK(in[i] == (expected[i] < 0 ? -1 : expected[i] / 1000));
    }
}

static void chain_with_missing_neighbors(void) {
    int around[2] = { rank > 0 ? rank - 1 : NONE, rank + 1 < size ? rank + 1 : NONE };
    int expected[2] = { rank > 0 ? 1000 * (rank - 1) + 10 : -1, rank + 1 < size ? 1000 * (rank + 1) : -1 };
    MPI_Comm chain;
    MPI_Dist_graph_create_adjacent(world, 2, around, WEIGHTS, 2, around, WEIGHTS, NOTE, 0, &chain);
    exchange(chain, 2, 2, expected);
    use_and_free(&chain);
}

static void missing_neighbor_of_one_rank(void) {
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    int sources[2] = { rank == 1 ? NONE : before, before }, destinations[2] = { next, NONE };
    // The second rank has no partner for its first source, so its first edge is the second entry.
    int expected[2] = { rank == 1 ? -1 : 1000 * before, rank == 1 ? 1000 * before : -1 };
    if (rank != 1) sources[1] = NONE;
    MPI_Comm graph;
    MPI_Dist_graph_create_adjacent(world, 2, sources, WEIGHTS, 2, destinations, WEIGHTS, NOTE, 0, &graph);
    exchange(graph, 2, 2, expected);
    use_and_free(&graph);
}

static void ranks_without_neighbors(void) {
    int first = 0, second = 1;
    int expected[1] = { 0 };
    MPI_Comm pair;
    MPI_Dist_graph_create_adjacent(world, rank == 1, &first, WEIGHTS, rank == 0, &second, WEIGHTS, NOTE, 0,
                                   &pair);
    exchange(pair, rank == 1, rank == 0, expected);
    use_and_free(&pair);
}

static void doubled_edges_and_edges_to_itself(void) {
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    int sources[4] = { before, rank, before, rank }, destinations[4] = { rank, next, rank, next };
    int expected[4] = { 1000 * before + 10, 1000 * rank, 1000 * before + 30, 1000 * rank + 20 };
    MPI_Comm graph;
    MPI_Dist_graph_create_adjacent(world, 4, sources, WEIGHTS, 4, destinations, WEIGHTS, NOTE, 0, &graph);
    exchange(graph, 4, 4, expected);
    use_and_free(&graph);
}

// The first rank names all edges: to itself, and from every rank to the next one.
static void edges_named_by_one_rank(void) {
    int from[65], degrees[65], to[65], count = 0, before = (rank + size - 1) % size;
    for (int i = 0; i < size; i++) from[count] = i, degrees[count] = 1, to[count++] = (i + 1) % size;
    MPI_Comm graph;
    MPI_Dist_graph_create(world, rank == 0 ? count : 0, from, degrees, to, WEIGHTS, NOTE, 0, &graph);
    int expected[1] = { 1000 * before };
    exchange(graph, 1, 1, expected);
    use_and_free(&graph);
}

// Dimensions of one and of two ranks, in which both neighbours are the same rank, and a part of the ranks.
static void small_dimensions(void) {
    int one_dimensions[2] = { 1, 2 }, periods[2] = { 1, 1 }, other = 1 - rank;
    MPI_Comm grid;
    MPI_Cart_create(world, 2, one_dimensions, periods, 0, &grid);
    if (rank < 2) {
        int own = 1000 * rank, its = 1000 * other;
        int expected[4] = { own + 10, own, its + 30, its + 20 };
        exchange(grid, 4, 4, expected);
    }
    use_and_free(&grid);
    // A grid without dimensions has one rank.
    MPI_Cart_create(world, 0, one_dimensions, periods, 0, &grid);
    CHECK((grid == MPI_COMM_NULL) == (rank > 0));
    use_and_free(&grid);
}

static void lengths_of_pairs(void) {
    // Even ranks send blocks of `lengths[0]` and receive those of `lengths[1]`; odd ones the other way round.
    static const int lengths[][2] = { { 1, 2 }, { 2, 0 }, { 3, LONG }, { LONG, LONG - 1 } };
    int periodic = size % 2 == 0, before, next;
    MPI_Comm line;
    MPI_Request request;
    MPI_Cart_create(world, 1, &size, &periodic, 0, &line);
    MPI_Cart_shift(line, 0, 1, &before, &next);
    for (int form = 0; form < 3 * 4; form++) {
        int sent = lengths[form / 3][rank % 2], received = lengths[form / 3][1 - rank % 2];
        for (int i = 0; i < 2 * sent; i++) out[i] = 100000 * rank + i;
        for (int repeat = 0; repeat < 3; repeat++) {
            for (int i = 0; i < 2 * received; i++) in[i] = -1;
            if (form % 3 == 0) {
                MPI_Ineighbor_alltoall(out, sent, MPI_INT, in, received, MPI_INT, line, &request);
            } else if (form % 3 == 1) {
                MPI_Ineighbor_allgather(out, sent, MPI_INT, in, received, MPI_INT, line, &request);
            } else {
#ifdef HAS_PERSISTENT
                MPI_Neighbor_alltoall_init(out, sent, MPI_INT, in, received, MPI_INT, line, NOTE, &request);
                MPI_Start(&request);
#else
                continue;
#endif
            }
            complete(&request);
            if (form % 3 == 2) MPI_Request_free(&request);
            for (int side = 0; side < 2; side++) {
                int from = side ? next : before, block = form % 3 == 1 || side ? 0 : received;
                for (int i = 0; i < received; i++)
                    CHECK(in[side * received + i] == (from < 0 ? -1 : 100000 * from + block + i));
            }
        }
    }
    use_and_free(&line);
}

// One rank has elements with gaps, or a type of several elements, or one of bytes; another one absolute
// addresses. `length` ints in all.
static MPI_Datatype described(int *data, int length, int *count, void **at) {
    MPI_Datatype type = MPI_INT;
    *count = length, *at = data;
    if (rank % 4 == 1) {
        MPI_Type_contiguous(length, MPI_INT, &type);
        *count = 1;
    } else if (rank % 4 == 2) {
        MPI_Aint place;
        MPI_Get_address(data, &place);
        MPI_Type_create_hindexed(1, &length, &place, MPI_INT, &type);
        *count = 1, *at = MPI_BOTTOM;
    } else if (rank % 4 == 3) {
        MPI_Type_vector(1, length, length, MPI_INT, &type);
        *count = 1;
    } else {
        MPI_Type_dup(MPI_INT, &type);
    }
    MPI_Type_commit(&type);
    return type;
}

static void types_of_one_signature(void) {
    // At the limits of an exchange, and of a broadcast.
    static const int all[] = { 1, 7, 8192, 8193, LONG };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        int length = all[i], count, is_root = rank == size - 1;
        void *at;
        MPI_Request request;
        int *data = malloc(sizeof(int) * length), *gathered = malloc(sizeof(int) * length * size);
        for (int root = 0; root < size; root++) {
            for (int k = 0; k < length; k++) data[k] = rank == root ? root + k : -1;
            MPI_Datatype type = described(data, length, &count, &at);
            MPI_Ibcast(at, count, type, root, world, &request);
            complete(&request);
            MPI_Type_free(&type);
            for (int k = 0; k < length; k++) CHECK(data[k] == root + k);
        }
        for (int k = 0; k < length; k++) data[k] = 100 * rank + k;
        MPI_Datatype type = described(data, length, &count, &at);
        MPI_Igather(at, count, type, gathered, length, MPI_INT, size - 1, world, &request);
        complete(&request);
        for (int k = 0; k < length * size && is_root; k++)
            CHECK(gathered[k] == 100 * (k / length) + k % length);
        memset(gathered, 0, sizeof(int) * length * size);
        MPI_Iallgather(at, count, type, gathered, length, MPI_INT, world, &request);
        complete(&request);
        for (int k = 0; k < length * size; k++) CHECK(gathered[k] == 100 * (k / length) + k % length);
        MPI_Iscatter(gathered, length, MPI_INT, at, count, type, size - 1, world, &request);
        complete(&request);
        for (int k = 0; k < length; k++) CHECK(data[k] == 100 * rank + k);
        MPI_Type_free(&type);
        free(data), free(gathered);
    }
}

static void in_place_at_the_root(void) {
    int data[64], result[64], own;
    MPI_Request request;
    for (int root = 0; root < size; root++) {
        int is_root = rank == root;
        for (int i = 0; i < size; i++) data[i] = -1;
        own = data[rank] = 5 * rank;
        if (is_root) MPI_Igather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, 1, MPI_INT, root, world, &request);
        else MPI_Igather(&own, 1, MPI_INT, NULL, 0, MPI_DATATYPE_NULL, root, world, &request);
        complete(&request);
        for (int i = 0; i < size && is_root; i++) CHECK(data[i] == 5 * i);
        own = -1;
        if (is_root) MPI_Iscatter(data, 1, MPI_INT, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, root, world, &request);
        else MPI_Iscatter(NULL, 0, MPI_DATATYPE_NULL, &own, 1, MPI_INT, root, world, &request);
        complete(&request);
        CHECK(is_root || own == 5 * rank);
        own = 1, result[0] = 1;
        MPI_Ireduce(is_root ? MPI_IN_PLACE : &own, is_root ? result : NULL, 1, MPI_INT, MPI_SUM, root, world,
                    &request);
        complete(&request);
        CHECK(!is_root || result[0] == size);
    }
}

// Ranks with and without data, some blocks beyond the limit of exchanges with equal blocks.
static void lengths_that_only_pairs_have(void) {
    int counts[64], offsets[64], received[64], at[64], total = 0;
    MPI_Request request;
    // Rank r sends r * LONG / 4 ints to every rank, the first one none.
    int own = rank * (LONG / 4);
    if (size > 4) return;
    for (int i = 0; i < size; i++) {
        counts[i] = own, offsets[i] = 0, received[i] = i * (LONG / 4), at[i] = total, total += received[i];
    }
    for (int i = 0; i < own; i++) out[i] = rank;
    for (int i = 0; i < total; i++) in[i] = -1;
    MPI_Ialltoallv(own ? out : NULL, counts, offsets, MPI_INT, in, received, at, MPI_INT, world, &request);
    complete(&request);
    for (int i = 0; i < size; i++)
        for (int k = 0; k < received[i]; k++) CHECK(in[at[i] + k] == i);
    int is_root = rank == 1;
    for (int i = 0; i < total; i++) in[i] = -1;
    MPI_Igatherv(out, own, own ? MPI_INT : MPI_BYTE, in, is_root ? received : NULL, is_root ? at : NULL, MPI_INT, 1,
                 world, &request);
    complete(&request);
    for (int i = 0; i < size && is_root; i++)
        for (int k = 0; k < received[i]; k++) CHECK(in[at[i] + k] == i);
    for (int i = 0; i < own; i++) out[i] = -1;
    MPI_Iscatterv(in, is_root ? received : NULL, is_root ? at : NULL, MPI_INT, out, own, own ? MPI_INT : MPI_BYTE,
                  1, world, &request);
    complete(&request);
    for (int i = 0; i < own; i++) CHECK(out[i] == rank);
}

static void add(void *left, void *right, int *count, MPI_Datatype *type) {
    for (int i = 0; i < *count; i++) ((int *)right)[i] += ((int *)left)[i];
}

// Each rank has a function of its own, and the last one passes no buffers because it has no elements.
static void add_from_behind(void *left, void *right, int *count, MPI_Datatype *type) {
    for (int i = *count; i-- > 0;) ((int *)right)[i] += ((int *)left)[i];
}

static void operations_of_each_rank(void) {
    MPI_Op sum;
    MPI_Request request;
    int data[3] = { rank, 1, 2 }, result[3];
    MPI_Op_create(rank % 2 ? add : add_from_behind, 1, &sum);
    MPI_Iallreduce(data, result, 3, MPI_INT, sum, world, &request);
    MPI_Op_free(&sum);
    complete(&request);
    CHECK(result[0] == size * (size - 1) / 2 && result[1] == size && result[2] == 2 * size);
    int is_last = rank == size - 1, counts[64];
    for (int i = 0; i < size; i++) counts[i] = i < size - 1;
    int contribution[64];
    for (int i = 0; i < size; i++) contribution[i] = i;
    MPI_Ireduce_scatter(contribution, is_last ? NULL : result, counts, MPI_INT, MPI_SUM, world, &request);
    complete(&request);
    CHECK(is_last || result[0] == size * rank);
}

static void forms_of_counts(void) {
#if MPI_VERSION >= 4
    int value = rank == 0 ? 42 : -1, sum = -1;
    MPI_Request request;
    if (rank % 2) MPI_Ibcast(&value, 1, MPI_INT, 0, world, &request);
    else MPI_Ibcast_c(&value, 1, MPI_INT, 0, world, &request);
    complete(&request);
    CHECK(value == 42);
    if (rank % 2) MPI_Allreduce_init_c(&rank, &sum, 1, MPI_INT, MPI_SUM, world, NOTE, &request);
    else MPI_Allreduce_init(&rank, &sum, 1, MPI_INT, MPI_SUM, world, NOTE, &request);
    MPI_Start(&request);
    complete(&request);
    MPI_Request_free(&request);
    CHECK(sum == size * (size - 1) / 2);
#endif
}

// Ranks in no new communicator, in one of their own, and in one of several.
static void ranks_that_are_left_out(void) {
    MPI_Comm part;
    MPI_Comm_split(world, rank == 0 ? MPI_UNDEFINED : 1, 0, &part);
    use_and_free(&part);
    MPI_Comm_split(world, rank == size - 1, 0, &part);
    use_and_free(&part);
    int fewer = size - 1, periodic = 1;
    MPI_Cart_create(world, 1, &fewer, &periodic, 0, &part);
    CHECK((part == MPI_COMM_NULL) == (rank == size - 1));
    use_and_free(&part);
    int index[64], edges[64];
    for (int i = 0; i < fewer; i++) index[i] = i + 1, edges[i] = fewer - 1 - i;
    MPI_Graph_create(world, fewer, index, edges, 0, &part);
    CHECK((part == MPI_COMM_NULL) == (rank == size - 1));
    use_and_free(&part);
}

static void orders_of_starts(void) {
#ifdef HAS_PERSISTENT
    enum { EACH = 4 };
    MPI_Request requests[EACH];
    int values[EACH], sums[EACH];
    for (int i = 0; i < EACH; i++) {
        values[i] = rank + i;
        MPI_Allreduce_init(&values[i], &sums[i], 1, MPI_INT, MPI_SUM, world, NOTE, &requests[i]);
    }
    for (int i = 0; i < EACH; i++) MPI_Start(&requests[rank % 2 ? EACH - 1 - i : i]);
    MPI_Waitall(EACH, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < EACH; i++) {
        CHECK(sums[i] == size * (size - 1) / 2 + size * i);
        MPI_Request_free(&requests[i]);
    }
#endif
}

static jmp_buf back;

static void leave_handler(MPI_Comm *communicator, int *code, ...) { longjmp(back, 1); }

// The handler of one rank leaves the MPI library by a jump.
static void jump_out_of_the_library(void) {
    static MPI_Comm own;
    MPI_Errhandler handler;
    MPI_Request request;
    if (rank == 1) {
        MPI_Comm_dup(MPI_COMM_SELF, &own);
        MPI_Comm_create_errhandler(leave_handler, &handler);
        MPI_Comm_set_errhandler(own, handler);
        MPI_Errhandler_free(&handler);
        if (setjmp(back) == 0) {
            MPI_Ibcast(&rank, -1, MPI_INT, 0, own, &request);
            CHECK(!"the call has an error");
        }
    }
    use(world);
    MPI_Comm copy;
    MPI_Comm_dup(world, &copy);
    use_and_free(&copy);
}

static int leave_query(void *extra, MPI_Status *status) { longjmp(back, 1); }

static int free_nothing(void *extra) { return MPI_SUCCESS; }

static int cancel_nothing(void *extra, int is_complete) { return MPI_SUCCESS; }

// A function of one rank leaves a wait by a jump. Until then the collective is not complete.
static void jump_out_of_a_wait(void) {
    MPI_Request requests[2];
    int sum = -1, own = rank;
    if (rank == 0) MPI_Recv(NULL, 0, MPI_INT, 1, 9, world, MPI_STATUS_IGNORE);
    MPI_Iallreduce(&own, &sum, 1, MPI_INT, MPI_SUM, world, &requests[0]);
    if (rank == 1) {
        MPI_Grequest_start(leave_query, free_nothing, cancel_nothing, NULL, &requests[1]);
        MPI_Grequest_complete(requests[1]);
        if (setjmp(back) == 0) {
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            CHECK(!"the function jumps");
        }
        MPI_Send(NULL, 0, MPI_INT, 0, 9, world);
    }
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    CHECK(sum == size * (size - 1) / 2);
    use(world);
    MPI_Comm copy;
    MPI_Comm_dup(world, &copy);
    use_and_free(&copy);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    { "chain_with_missing_neighbors", chain_with_missing_neighbors },
    { "missing_neighbor_of_one_rank", missing_neighbor_of_one_rank },
    { "ranks_without_neighbors", ranks_without_neighbors },
    { "doubled_edges_and_edges_to_itself", doubled_edges_and_edges_to_itself },
    { "edges_named_by_one_rank", edges_named_by_one_rank },
    { "small_dimensions", small_dimensions },
    { "lengths_of_pairs", lengths_of_pairs },
    { "types_of_one_signature", types_of_one_signature },
    { "in_place_at_the_root", in_place_at_the_root },
    { "lengths_that_only_pairs_have", lengths_that_only_pairs_have },
    { "operations_of_each_rank", operations_of_each_rank },
    { "forms_of_counts", forms_of_counts },
    { "ranks_that_are_left_out", ranks_that_are_left_out },
    { "orders_of_starts", orders_of_starts },
    { "jump_out_of_the_library", jump_out_of_the_library },
    { "jump_out_of_a_wait", jump_out_of_a_wait },
};

int main(int argc, char **argv) {
    int level = MPI_THREAD_SINGLE;
    const char *number = getenv("PMI_RANK") ? getenv("PMI_RANK") : getenv("OMPI_COMM_WORLD_RANK");
    if (number && atoi(number) == 1) level = MPI_THREAD_SERIALIZED;
    start(&argc, &argv, level);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        int is_selected = argc < 2;
        for (int k = 1; k < argc; k++) is_selected |= !strcmp(argv[k], cases[i].name);
        if (!is_selected) continue;
        cases[i].run();
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) printf("%s\n", cases[i].name), fflush(stdout);
    }
    MPI_Comm_free(&world);
    MPI_Finalize();
    return 0;
}
