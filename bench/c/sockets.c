/* The loop of overlap.c over plain connections: the floor of nonblocking collectives in one step over TCP.
 *
 * Every rank has a connection with every other one. A start sends the whole message of each, a wait receives those of the others
 * where they belong and adds up, and nothing happens meanwhile. Messages have no headers. MPI starts the ranks and meets them before
 * each repetition. Barriers, allreduces, all-to-alls and broadcasts. */
#define start mpi_start
#define start_and_wait mpi_start_and_wait
#include "collectives.h"
#undef start
#undef start_and_wait
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_RANKS = 64, TOKEN_BYTES = 8, EAGER_POLLS = 2 };

/* What a rank exchanges with another one, and how much of it has passed. */
static struct peer {
    int socket;
    const char *from;
    char *into, heard[TOKEN_BYTES];
    double *contribution;
    size_t to_send, sent, to_receive, received;
} peers[MOST_RANKS];
static char token[TOKEN_BYTES];
static struct collective *under_way;

static void need(int holds, const char *what) {
    if (holds)
        return;
    perror(what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A socket with buffers that hold the messages of one exchange, as far as the system grants them. */
static int new_socket(void) {
    int bytes = 2 << 20, found = socket(AF_INET, SOCK_STREAM, 0);
    need(found >= 0, "socket");
    setsockopt(found, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(found, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    return found;
}

static struct sockaddr_in own_address(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct ifaddrs *all;
    need(getifaddrs(&all) == 0, "getifaddrs");
    for (struct ifaddrs *one = all; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && strcmp(one->ifa_name, "lo"))
            address.sin_addr = ((struct sockaddr_in *)one->ifa_addr)->sin_addr;
    freeifaddrs(all);
    return address;
}

/* Connects with the ranks below this one, and accepts those above. */
static void connect_all(int rank, int ranks) {
    struct sockaddr_in own = own_address(), all[MOST_RANKS];
    socklen_t size = sizeof own;
    int listener = new_socket(), on = 1;
    need(ranks <= MOST_RANKS, "more ranks than this program has places for");
    need(bind(listener, (struct sockaddr *)&own, size) == 0 && listen(listener, MOST_RANKS) == 0, "listen");
    need(getsockname(listener, (struct sockaddr *)&own, &size) == 0, "getsockname");
    MPI_Allgather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, MPI_COMM_WORLD);
    for (int other = 0; other < rank; other++) {
        peers[other].socket = new_socket();
        need(connect(peers[other].socket, (struct sockaddr *)&all[other], sizeof own) == 0, "connect");
        need(write(peers[other].socket, &rank, sizeof rank) == sizeof rank, "write");
    }
    for (int count = rank + 1; count < ranks; count++) {
        int other, accepted = accept(listener, NULL, NULL);
        need(accepted >= 0 && read(accepted, &other, sizeof other) == sizeof other, "accept");
        peers[other].socket = accepted;
    }
    close(listener);
    for (int other = 0; other < ranks; other++)
        if (other != rank)
            setsockopt(peers[other].socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Sends what the system takes. Returns whether everything is sent. */
static int push(struct peer *p) {
    while (p->sent < p->to_send) {
        ssize_t count = send(p->socket, p->from + p->sent, p->to_send - p->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN)
            return 0;
        need(count >= 0, "send");
        p->sent += (size_t)count;
    }
    return 1;
}

/* Receives what has arrived. Returns whether that was anything. */
static int pull(struct peer *p) {
    if (p->received == p->to_receive)
        return 0;
    ssize_t count = recv(p->socket, p->into + p->received, p->to_receive - p->received, MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN)
        return 0;
    need(count > 0, "recv");
    p->received += (size_t)count;
    return 1;
}

/* Where the message for a rank lies, and where that from it belongs. */
static void place(struct collective *c, int root, int other) {
    struct peer *p = &peers[other];
    size_t bytes = c->operation == BARRIER ? TOKEN_BYTES : (size_t)c->bytes;
    *p = (struct peer){.socket = p->socket, .contribution = p->contribution, .to_send = bytes, .to_receive = bytes};
    switch (c->operation) {
    case BARRIER: p->from = token; p->into = p->heard; break;
    case ALLREDUCE:
        p->contribution = realloc(p->contribution, bytes);
        need(p->contribution != NULL, "realloc");
        p->from = (char *)c->send;
        p->into = (char *)p->contribution;
        break;
    case ALLTOALL:
        p->from = (char *)(c->send + (size_t)other * c->elements);
        p->into = (char *)(c->receive + (size_t)other * c->elements);
        break;
    case BCAST:
        p->from = p->into = (char *)c->receive;
        p->to_send = c->rank == root ? bytes : 0;
        p->to_receive = other == root ? bytes : 0;
        break;
    default: stop(c, "is not measured over plain connections");
    }
}

static MPI_Request start(struct collective *c, int root) {
    under_way = c;
    for (int distance = 1; distance < c->ranks; distance++) {
        int other = (c->rank + distance) % c->ranks;
        place(c, root, other);
        push(&peers[other]);
    }
    size_t own = (size_t)c->rank * c->elements;
    if (c->operation == ALLTOALL)
        memcpy(c->receive + own, c->send + own, (size_t)c->bytes);
    return MPI_REQUEST_NULL;
}

static void finish(struct collective *c) {
    for (int idle = 0, is_complete = 0; !is_complete;) {
        int moved = 0;
        is_complete = 1;
        for (int other = 0; other < c->ranks; other++) {
            if (other == c->rank)
                continue;
            struct peer *p = &peers[other];
            moved |= pull(p);
            is_complete &= push(p) && p->received == p->to_receive;
        }
        idle = moved ? 0 : idle + 1;
        if (!is_complete && idle > EAGER_POLLS)
            sched_yield();
    }
    if (c->operation != ALLREDUCE)
        return;
    memcpy(c->receive, c->send, (size_t)c->bytes);
    for (int other = 0; other < c->ranks; other++)
        for (int i = 0; other != c->rank && i < c->elements; i++)
            c->receive[i] += peers[other].contribution[i];
}

static void start_and_wait(struct collective *c, int root) {
    start(c, root);
    finish(c);
}

/* The ranks are connected before the first row. */
static int connected_init(int *count, char ***arguments) {
    int rank, ranks, result = MPI_Init(count, arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    connect_all(rank, ranks);
    return result;
}

#define MPI_Init connected_init
#define MPI_Wait(request, status) ((void)(request), finish(under_way))
#include "overlap.c"
