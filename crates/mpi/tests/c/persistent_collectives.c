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
STARTED(allgatherv, Allgatherv, P(const void *s, int n, MPI_Datatype t, void *r, const int *m,
        const int *d, MPI_Datatype u), s, n, t, r, m, d, u)
STARTED(alltoall, Alltoall, P(const void *s, int n, MPI_Datatype t, void *r, int m,
        MPI_Datatype u), s, n, t, r, m, u)
STARTED(alltoallv, Alltoallv, P(const void *s, const int *n, const int *d, MPI_Datatype t,
        void *r, const int *m, const int *e, MPI_Datatype u), s, n, d, t, r, m, e, u)
STARTED(reduce, Reduce, P(const void *s, void *r, int n, MPI_Datatype t, MPI_Op o, int root),
        s, r, n, t, o, root)
STARTED(allreduce, Allreduce, P(const void *s, void *r, int n, MPI_Datatype t, MPI_Op o), s,
        r, n, t, o)
STARTED(reduce_scatter, Reduce_scatter, P(const void *s, void *r, const int *n, MPI_Datatype
        t, MPI_Op o), s, r, n, t, o)
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

// The forms with a `w` are left to the MPI library. Some refuse what they should accept, and some
// exchange the blocks of a grid of two ranks wrongly.
static void started_alltoallw(const void *s, const int *n, const int *d, const MPI_Datatype *t,
                              void *r, const int *m, const int *e, const MPI_Datatype *u,
                              MPI_Comm comm, MPI_Request *request) {
    MPI_Ialltoallw(s, n, d, t, r, m, e, u, comm, request);
    is_persistent = 0;
}

static void started_neighbor_alltoallw(const void *s, const int *n, const MPI_Aint *d,
                                       const MPI_Datatype *t, void *r, const int *m,
                                       const MPI_Aint *e, const MPI_Datatype *u, MPI_Comm comm,
                                       MPI_Request *request) {
    MPI_Ineighbor_alltoallw(s, n, d, t, r, m, e, u, comm, request);
    is_persistent = 0;
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
