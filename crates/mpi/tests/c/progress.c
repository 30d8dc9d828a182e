// A start waits for no rank, and a wait for a collective drives the messages of the program.
#include "check.h"

enum { LONG = 1 << 20, MOST = 1 << 16 };
static char in[4 * MOST * 8], out[4 * MOST * 8];

// Starts collective number `kind` with blocks of `bytes` bytes; returns 0 beyond the last one.
static int start_one(int kind, int bytes, MPI_Request *request) {
    MPI_Comm world = MPI_COMM_WORLD;
    int counts[64], offsets[64];
    for (int i = 0; i < size; i++) counts[i] = bytes, offsets[i] = i * bytes;
    switch (kind) {
    case 0: return MPI_Ibarrier(world, request) == 0;
    case 1: return MPI_Ibcast(out, bytes, MPI_BYTE, 0, world, request) == 0;
    case 2: return MPI_Igather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 0, world, request) == 0;
    case 3: return MPI_Iscatter(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 0, world, request) == 0;
    case 4: return MPI_Iallgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, world, request) == 0;
    case 5: return MPI_Ialltoall(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, world, request) == 0;
    case 6: return MPI_Iallreduce(in, out, bytes, MPI_INT8_T, MPI_SUM, world, request) == 0;
    case 7: return MPI_Ireduce(in, out, bytes, MPI_INT8_T, MPI_SUM, 0, world, request) == 0;
    case 8: return MPI_Iscan(in, out, bytes, MPI_INT8_T, MPI_SUM, world, request) == 0;
    case 9: return MPI_Iexscan(in, out, bytes, MPI_INT8_T, MPI_SUM, world, request) == 0;
    case 10: return MPI_Ireduce_scatter_block(in, out, bytes, MPI_INT8_T, MPI_SUM, world, request) == 0;
    case 11: return MPI_Ireduce_scatter(in, out, counts, MPI_INT8_T, MPI_SUM, world, request) == 0;
    case 12: return MPI_Iallgatherv(in, bytes, MPI_BYTE, out, counts, offsets, MPI_BYTE, world, request) == 0;
    case 13: return MPI_Ialltoallv(in, counts, offsets, MPI_BYTE, out, counts, offsets, MPI_BYTE, world, request) == 0;
    case 14: return MPI_Igatherv(in, bytes, MPI_BYTE, out, counts, offsets, MPI_BYTE, 0, world, request) == 0;
    case 15: return MPI_Iscatterv(in, counts, offsets, MPI_BYTE, out, bytes, MPI_BYTE, 0, world, request) == 0;
    case 16: return MPI_Iallreduce(in, out, bytes, MPI_INT8_T, MPI_LAND, world, request) == 0;
    default: return 0;
    }
}

// The last rank starts the collective only after it has received a message that the first rank
// sends after its start.
static void starts_wait_for_no_rank(void) {
    const int lengths[] = { 1, 1000, 5000, MOST };
    for (int length = 0; length < 4; length++)
        for (int kind = 0; kind < 17; kind++) {
            int word = kind;
            MPI_Request request;
            if (rank == size - 1)
                MPI_Recv(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(start_one(kind, lengths[length], &request));
            if (rank == 0) MPI_Send(&word, 1, MPI_INT, size - 1, 2, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
}

// The first rank waits for a collective while the last one receives its long message.
static void waits_drive_messages(void) {
    static char message[LONG];
    for (int form = 0; form < 4; form++) {
        MPI_Request requests[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
        int flag, index;
        if (rank == 0)
            MPI_Isend(message, LONG, MPI_BYTE, size - 1, 1, MPI_COMM_WORLD, &requests[1]);
        if (rank == size - 1) {
            usleep(2000);
            MPI_Recv(message, LONG, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (form == 3) MPI_Barrier(MPI_COMM_WORLD);
        else MPI_Ibarrier(MPI_COMM_WORLD, &requests[0]);
        if (form == 0) MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        if (form == 1) do MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE); while (!flag);
        if (form == 2) MPI_Waitany(1, requests, &index, MPI_STATUS_IGNORE);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
}

// The first rank completes more collectives than the engine's window holds, and then sends a message
// for which the last one waits in the MPI library.
static void windows_fill(int count, int bytes) {
    MPI_Request requests[9];
    int word = 0;
    for (int i = 0; i < count; i++)
        MPI_Iallreduce(in, out + i * bytes, bytes, MPI_INT8_T, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    if (rank == size - 1) MPI_Recv(&word, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    if (rank == 0) MPI_Send(&word, 1, MPI_INT, size - 1, 3, MPI_COMM_WORLD);
}

enum { BCAST, GATHERV, REDUCE, SCAN, NEIGHBORS, PERSISTENT, AHEAD };

// The first rank waits for no other one in its part of these collectives.
static void start_ahead(int kind, int bytes, MPI_Comm chain, MPI_Request *request) {
    MPI_Comm world = MPI_COMM_WORLD;
    int counts[64], offsets[64], last = size - 1;
    for (int i = 0; i < size; i++) counts[i] = bytes, offsets[i] = i * bytes;
    switch (kind) {
    case BCAST: MPI_Ibcast(out, bytes, MPI_BYTE, 0, world, request); return;
    case GATHERV: MPI_Igatherv(in, bytes, MPI_BYTE, out, counts, offsets, MPI_BYTE, last, world, request); return;
    case REDUCE: MPI_Ireduce(in, out, bytes, MPI_INT8_T, MPI_SUM, last, world, request); return;
    case SCAN: MPI_Iscan(in, out, bytes, MPI_INT8_T, MPI_SUM, world, request); return;
    case NEIGHBORS: MPI_Ineighbor_allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, chain, request); return;
    case PERSISTENT: MPI_Start(request); return;
    }
}

// The first rank starts one collective more than the engine's window holds, and completes those that
// are complete at once. Then it waits in the MPI library while the others run them.
static void one_rank_is_ahead(int kind, int count, int bytes, MPI_Comm chain) {
    MPI_Request requests[65];
    int word = 0, flag;
    for (int i = 0; i <= count; i++) requests[i] = MPI_REQUEST_NULL;
#if MPI_VERSION >= 4
    if (kind == PERSISTENT) MPI_Bcast_init(out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
#else
    if (kind == PERSISTENT) return;
#endif
    if (rank > 0) MPI_Recv(&word, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i <= count; i++) {
        MPI_Request *request = &requests[kind == PERSISTENT ? 0 : i];
        start_ahead(kind, bytes, chain, request);
        if (rank == 0 && i == count) break;
        if (rank > 0 || kind == PERSISTENT) MPI_Wait(request, MPI_STATUS_IGNORE);
        else MPI_Test(request, &flag, MPI_STATUS_IGNORE);
    }
    for (int i = 1; i < size && rank == 0; i++) MPI_Send(&word, 1, MPI_INT, i, 4, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Waitall(count + 1, requests, MPI_STATUSES_IGNORE);
    if (kind == PERSISTENT) MPI_Request_free(&requests[0]);
}

static void ranks_run_ahead(void) {
    MPI_Comm chain;
    int before = rank - 1, next = rank + 1;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, rank > 0, &before, MPI_UNWEIGHTED, rank < size - 1,
                                   &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &chain);
    for (int kind = 0; kind < AHEAD; kind++) {
        one_rank_is_ahead(kind, 8, 1000, chain);
        one_rank_is_ahead(kind, 64, 8, chain);
    }
    MPI_Comm_free(&chain);
}

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    starts_wait_for_no_rank();
    waits_drive_messages();
    windows_fill(9, 1000);
    windows_fill(3, 8 * MOST);
    ranks_run_ahead();
    MPI_Finalize();
    return 0;
}
