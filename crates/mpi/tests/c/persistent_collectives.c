// The checks of every nonblocking collective, with the persistent forms in their place: each is
// initialized, started, completed and freed.
#include "check.h"

#ifdef HAS_PERSISTENT
// The last call was of a persistent collective.
static int is_persistent;

// A nonblocking collective: name in lower case, initialization, parameters, arguments.
#define STARTED(name, init, parameters, ...)                                       \
    static void started_##name(parameters, MPI_Comm comm, MPI_Request *request) {  \
        MPI_##init##_init(__VA_ARGS__, comm, MPI_INFO_NULL, request);              \
        is_persistent = MPI_Start(request) == MPI_SUCCESS;                         \
    }
#define P(...) __VA_ARGS__
STARTED(bcast, Bcast, P(void *b, int n, MPI_Datatype t, int root), b, n, t, root)
STARTED(gather, Gather, P(const void *s, int n, MPI_Datatype t, void *r, int m, MPI_Datatype
        u, int root), s, n, t, r, m, u, root)
STARTED(gatherv, Gatherv, P(const void *s, int n, MPI_Datatype t, void *r, const int *m, const
        int *d, MPI_Datatype u, int root), s, n, t, r, m, d, u, root)
STARTED(scatter, Scatter, P(const void *s, int n, MPI_Datatype t, void *r, int m, MPI_Datatype
        u, int root), s, n, t, r, m, u, root)
STARTED(scatterv, Scatterv, P(const void *s, const int *n, const int *d, MPI_Datatype t, void
        *r, int m, MPI_Datatype u, int root), s, n, d, t, r, m, u, root)
STARTED(allgather, Allgather, P(const void *s, int n, MPI_Datatype t, void *r, int m,
        MPI_Datatype u), s, n, t, r, m, u)
STARTED(alltoall, Alltoall, P(const void *s, int n, MPI_Datatype t, void *r, int m,
        MPI_Datatype u), s, n, t, r, m, u)
STARTED(alltoallv, Alltoallv, P(const void *s, const int *n, const int *d, MPI_Datatype t,
        void *r, const int *m, const int *e, MPI_Datatype u), s, n, d, t, r, m, e, u)
STARTED(reduce, Reduce, P(const void *s, void *r, int n, MPI_Datatype t, MPI_Op o, int root),
        s, r, n, t, o, root)
STARTED(allreduce, Allreduce, P(const void *s, void *r, int n, MPI_Datatype t, MPI_Op o), s,
        r, n, t, o)
STARTED(reduce_scatter_block, Reduce_scatter_block, P(const void *s, void *r, int n,
        MPI_Datatype t, MPI_Op o), s, r, n, t, o)
STARTED(scan, Scan, P(const void *s, void *r, int n, MPI_Datatype t, MPI_Op o), s, r, n, t, o)
STARTED(exscan, Exscan, P(const void *s, void *r, int n, MPI_Datatype t, MPI_Op o), s, r, n,
        t, o)
STARTED(neighbor_allgather, Neighbor_allgather, P(const void *s, int n, MPI_Datatype t, void
        *r, int m, MPI_Datatype u), s, n, t, r, m, u)
STARTED(neighbor_allgatherv, Neighbor_allgatherv, P(const void *s, int n, MPI_Datatype t, void
        *r, const int *m, const int *d, MPI_Datatype u), s, n, t, r, m, d, u)
STARTED(neighbor_alltoall, Neighbor_alltoall, P(const void *s, int n, MPI_Datatype t, void *r,
        int m, MPI_Datatype u), s, n, t, r, m, u)
STARTED(neighbor_alltoallv, Neighbor_alltoallv, P(const void *s, const int *n, const int *d,
        MPI_Datatype t, void *r, const int *m, const int *e, MPI_Datatype u), s, n, d, t, r,
        m, e, u)

// Lists that end with the initialization, as those of some bindings do. Each list has a place of its
// own during a call, and is overwritten afterwards.
static char passed[8][64 * sizeof(MPI_Aint)];

static void *pass(int place, const void *list, size_t bytes) {
    return memcpy(passed[place], list, bytes);
}

static void start_without_lists(MPI_Request *request) {
    memset(passed, -1, sizeof passed);
    is_persistent = MPI_Start(request) == MPI_SUCCESS;
}

static void started_allgatherv(const void *s, int n, MPI_Datatype t, void *r, const int *m,
                               const int *d, MPI_Datatype u, MPI_Comm comm, MPI_Request *request) {
    size_t bytes = size * sizeof(int);
    MPI_Allgatherv_init(s, n, t, r, pass(0, m, bytes), pass(1, d, bytes), u, comm, MPI_INFO_NULL,
                        request);
    start_without_lists(request);
}

static void started_reduce_scatter(const void *s, void *r, const int *n, MPI_Datatype t, MPI_Op o,
                                   MPI_Comm comm, MPI_Request *request) {
    MPI_Reduce_scatter_init(s, r, pass(0, n, size * sizeof(int)), t, o, comm, MPI_INFO_NULL, request);
    start_without_lists(request);
}

static void started_alltoallw(const void *s, const int *n, const int *d, const MPI_Datatype *t,
                              void *r, const int *m, const int *e, const MPI_Datatype *u,
                              MPI_Comm comm, MPI_Request *request) {
    size_t bytes = size * sizeof(int), types = size * sizeof *t;
    if (s != MPI_IN_PLACE) {
        n = pass(0, n, bytes), d = pass(1, d, bytes), t = pass(2, t, types);
    }
    MPI_Alltoallw_init(s, n, d, t, r, pass(3, m, bytes), pass(4, e, bytes), pass(5, u, types), comm,
                       MPI_INFO_NULL, request);
    start_without_lists(request);
}

// Called for a ring only: two neighbours.
static void started_neighbor_alltoallw(const void *s, const int *n, const MPI_Aint *d,
                                       const MPI_Datatype *t, void *r, const int *m,
                                       const MPI_Aint *e, const MPI_Datatype *u, MPI_Comm comm,
                                       MPI_Request *request) {
    MPI_Neighbor_alltoallw_init(s, pass(0, n, 2 * sizeof *n), pass(1, d, 2 * sizeof *d),
                                pass(2, t, 2 * sizeof *t), r, pass(3, m, 2 * sizeof *m),
                                pass(4, e, 2 * sizeof *e), pass(5, u, 2 * sizeof *u), comm,
                                MPI_INFO_NULL, request);
    start_without_lists(request);
}

static void finished(MPI_Request *request, MPI_Status *status) {
    MPI_Wait(request, status);
    CHECK((*request != MPI_REQUEST_NULL) == is_persistent);
    if (is_persistent) MPI_Request_free(request);
    CHECK(*request == MPI_REQUEST_NULL);
}

#define MPI_Wait finished
#define MPI_Ibcast started_bcast
#define MPI_Igather started_gather
#define MPI_Igatherv started_gatherv
#define MPI_Iscatter started_scatter
#define MPI_Iscatterv started_scatterv
#define MPI_Iallgather started_allgather
#define MPI_Iallgatherv started_allgatherv
#define MPI_Ialltoall started_alltoall
#define MPI_Ialltoallv started_alltoallv
#define MPI_Ialltoallw started_alltoallw
#define MPI_Ireduce started_reduce
#define MPI_Iallreduce started_allreduce
#define MPI_Ireduce_scatter started_reduce_scatter
#define MPI_Ireduce_scatter_block started_reduce_scatter_block
#define MPI_Iscan started_scan
#define MPI_Iexscan started_exscan
#define MPI_Ineighbor_allgather started_neighbor_allgather
#define MPI_Ineighbor_allgatherv started_neighbor_allgatherv
#define MPI_Ineighbor_alltoall started_neighbor_alltoall
#define MPI_Ineighbor_alltoallv started_neighbor_alltoallv
#define MPI_Ineighbor_alltoallw started_neighbor_alltoallw
#include "collectives.c"
#else
int main(void) {
    printf("no persistent collectives\n");
    return 0;
}
#endif
