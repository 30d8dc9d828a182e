// Communicators that MPI calls create, and those that no call of this library serves.
#include "check.h"
#include <dirent.h>

static int largest(MPI_Comm communicator, int value) {
    int result = -1;
    MPI_Request request;
    MPI_Iallreduce(&value, &result, 1, MPI_INT, MPI_MAX, communicator, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return result;
}

static int open_files(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

static void created(void) {
    MPI_Comm copy, half, node, part, backwards;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    CHECK(largest(copy, rank) == size - 1);
    MPI_Comm_split(copy, rank % 2, -rank, &half);
    CHECK(largest(half, rank) == (size - 1 - (size - 1 - rank) % 2));
    int first;
    MPI_Comm_rank(half, &first);
    CHECK(largest(half, first == 0 ? rank : -1) == (size - 1 - (size - 1 - rank) % 2));
    MPI_Comm_split_type(copy, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    int last;
    MPI_Allreduce(&rank, &last, 1, MPI_INT, MPI_MAX, node);
    CHECK(largest(node, rank) == last);
    MPI_Comm_split(node, rank == 0 ? MPI_UNDEFINED : 3, 0, &part);
    if (rank == 0) CHECK(part == MPI_COMM_NULL);
    else CHECK(largest(part, rank) == last);
    if (rank != 0) MPI_Comm_free(&part);
    // A group in the opposite order, without the last rank.
    MPI_Group world, some;
    int members[64];
    for (int i = 0; i < size - 1; i++) members[i] = size - 2 - i;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, size - 1, members, &some);
    MPI_Comm_create(MPI_COMM_WORLD, some, &backwards);
    if (rank < size - 1) {
        int new_rank, root = -1;
        MPI_Request request;
        MPI_Comm_rank(backwards, &new_rank);
        CHECK(new_rank == size - 2 - rank);
        root = rank;
        MPI_Ibcast(&root, 1, MPI_INT, 0, backwards, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(root == size - 2);
        MPI_Comm_free(&backwards);
    }
    MPI_Group_free(&some);
    MPI_Group_free(&world);
    MPI_Comm_free(&node);
    MPI_Comm_free(&half);
    MPI_Comm_free(&copy);
}

// Freed while a collective of theirs is active.
static void freed_early(void) {
#ifndef FREES_LATE
    MPI_Comm copy;
    MPI_Request request;
    int result = -1;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    if (rank == size - 1) usleep(2000);
    MPI_Iallreduce(&rank, &result, 1, MPI_INT, MPI_MAX, copy, &request);
    MPI_Comm_free(&copy);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(result == size - 1);
#endif
}

// The MPI library's own communicators: the program gets right results from it.
static void left(void) {
    MPI_Comm copy, half, between, both;
    MPI_Request request;
    int one = 1, sum = 0;
    MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(largest(copy, rank) == size - 1);
    MPI_Comm_free(&copy);
    CHECK(largest(MPI_COMM_SELF, 9) == 9);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 ? 0 : 1, 3, &between);
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, between, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sum == (rank % 2 ? (size + 1) / 2 : size / 2));
    MPI_Intercomm_merge(between, rank % 2, &both);
    CHECK(largest(both, rank) == size - 1);
    MPI_Comm_free(&both);
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}

// A rank needs calls of another one to get rid of a message, before it creates a communicator.
static void behind_a_message(void) {
    enum { LONG = 1 << 20 };
    static char out[LONG], in[LONG];
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm copy;
    if (rank == 0) MPI_Isend(out, LONG, MPI_BYTE, size - 1, 1, MPI_COMM_WORLD, &request);
    if (rank == size - 1) MPI_Recv(in, LONG, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_free(&copy);
}

static void many(void) {
    MPI_Comm copy;
    int before = 0;
    for (int i = 0; i < 200; i++) {
        if (i == 20) before = open_files();
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        if (i % 50 == 0) CHECK(largest(copy, rank) == size - 1);
        MPI_Comm_free(&copy);
    }
    CHECK(open_files() <= before + 2);
}

int main(int argc, char **argv) {
    start(&argc, &argv, MPI_THREAD_SINGLE);
    created();
    freed_early();
    left();
    behind_a_message();
    many();
    MPI_Finalize();
    return 0;
}
