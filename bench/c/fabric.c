/* Messages between two nodes over plain TCP and over libfabric, as cheap as a program that sleeps until they arrive can make them:
 * no framing, no matching, no queue. Half a round trip of 8 bytes; the bandwidth of longer messages, WINDOW of them under way; the
 * processor time of both nodes for a message.
 *
 *   fabric ROUNDS OWN-ADDRESS PROVIDER                  the node that waits for the other one
 *   fabric ROUNDS OWN-ADDRESS PROVIDER OTHER-ADDRESS    the one that connects and prints
 *
 * A long message is answered by 8 bytes for every WINDOW of them, so that the time ends when all have arrived. Each of these has
 * a place of its own at the receiver, as in a program that uses all of them: one place for all stays in the cache. Over libfabric
 * a message is sent in messages of PIECE bytes, as the payloads of tradewind's transport do, whose messages have headers besides. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 9494, WINDOW = 8, PIECE = 64 << 10, SLOTS = 64, LONGEST = 4 << 20 };

static const struct {
    size_t bytes;
    int count;
} sizes[] = {{8, 2000}, {64 << 10, 800}, {256 << 10, 240}, {1 << 20, 80}, {4 << 20, 24}};

/* An operation under way. Its context comes first, so that a completion leads here. */
struct slot {
    struct fi_context2 context;
    char *bytes; /* of a receive */
};

static bool connects;
static int control, stream, stream_poll, queue_poll;
static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *endpoint;
static struct fid_cq *queue;
static fi_addr_t peer;
static struct slot receives[SLOTS], sends[SLOTS];
static int under_way, posted_sends;
static size_t received;
static char *message, *sink, *place;

static void fail(const char *what, long status) {
    fprintf(stderr, "fabric: %s: %s\n", what, status < 0 ? fi_strerror((int)-status) : "it failed");
    exit(1);
}

static long must(long status, const char *what) {
    if (status < 0)
        fail(what, status == -1 && errno ? -errno : status);
    return status;
}

static double clock_us(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* Plain TCP. */

static void wait_stream(uint32_t events) {
    struct epoll_event event = {.events = events};
    if (events != EPOLLIN)
        must(epoll_ctl(stream_poll, EPOLL_CTL_MOD, stream, &event), "epoll_ctl");
    must(epoll_wait(stream_poll, &event, 1, 1000), "epoll_wait");
    event.events = EPOLLIN;
    if (events != EPOLLIN)
        must(epoll_ctl(stream_poll, EPOLL_CTL_MOD, stream, &event), "epoll_ctl");
}

static void stream_send(const char *at, size_t bytes) {
    while (bytes) {
        ssize_t count = send(stream, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN)
            wait_stream(EPOLLOUT);
        else
            bytes -= (size_t)must(count, "send"), at += count;
    }
}

static void stream_receive(char *at, size_t bytes) {
    while (bytes) {
        ssize_t count = recv(stream, at, bytes, MSG_DONTWAIT);
        if (count < 0 && errno == EAGAIN)
            wait_stream(EPOLLIN);
        else if (must(count, "recv") == 0)
            fail("the other node has ended", 0);
        else
            bytes -= (size_t)count, at += count;
    }
}

/* libfabric. Receives of PIECE bytes are always posted, as a program must that does not know what arrives. */

static void post_receive(struct slot *slot) {
    long status;
    while ((status = fi_recv(endpoint, slot->bytes, PIECE, NULL, FI_ADDR_UNSPEC, &slot->context)) == -FI_EAGAIN)
        ;
    must(status, "fi_recv");
}

static bool complete(void) {
    struct fi_cq_msg_entry entries[16];
    ssize_t count = fi_cq_read(queue, entries, 16);
    if (count == -FI_EAGAIN)
        return false;
    must(count, "fi_cq_read");
    for (ssize_t i = 0; i < count; i++) {
        struct slot *slot = entries[i].op_context;
        if (slot->bytes) {
            /* What arrives is used where it belongs: one copy, as into the buffer of a receive. */
            memcpy(place + received, slot->bytes, entries[i].len);
            received += entries[i].len;
            post_receive(slot);
        } else
            under_way--;
    }
    return true;
}

static void progress(void) {
    if (complete())
        return;
    struct fid *object = &queue->fid;
    if (fi_trywait(fabric, &object, 1) != FI_SUCCESS)
        return;
    struct epoll_event event;
    must(epoll_wait(queue_poll, &event, 1, 100), "epoll_wait");
    complete();
}

static void fabric_send(const char *at, size_t bytes) {
    while (bytes) {
        size_t part = bytes < PIECE ? bytes : PIECE;
        if (part <= info->tx_attr->inject_size) {
            long status = fi_inject(endpoint, at, part, peer);
            if (status == -FI_EAGAIN) {
                progress();
                continue;
            }
            must(status, "fi_inject");
        } else {
            while (under_way == SLOTS)
                progress();
            long status = fi_send(endpoint, at, part, NULL, peer, &sends[posted_sends % SLOTS].context);
            if (status == -FI_EAGAIN) {
                progress();
                continue;
            }
            must(status, "fi_send");
            posted_sends++, under_way++;
        }
        at += part, bytes -= part;
    }
}

static void fabric_receive(size_t bytes) {
    while (received < bytes)
        progress();
    received -= bytes;
}

/* Either. */

static void put(bool over_fabric, size_t bytes) {
    over_fabric ? fabric_send(message, bytes) : stream_send(message, bytes);
}

static void get(bool over_fabric, size_t bytes) {
    if (over_fabric)
        fabric_receive(bytes);
    else
        stream_receive(place, bytes);
}

static void synchronise(void) {
    char word = 0;
    must(send(control, &word, 1, MSG_NOSIGNAL), "synchronise");
    while (recv(control, &word, 1, MSG_DONTWAIT) != 1)
        complete();
}

/* Microseconds for a message: half a round trip of a short one, the time of a long one in a stream of them. */
static double run(bool over_fabric, size_t bytes, int count, double *processor) {
    synchronise();
    double begin = clock_us(CLOCK_MONOTONIC), used = clock_us(CLOCK_PROCESS_CPUTIME_ID);
    bool is_short = bytes == sizes[0].bytes;
    for (int i = 0; i < count; i++) {
        if (connects) {
            put(over_fabric, bytes);
            if (is_short || i % WINDOW == WINDOW - 1)
                get(over_fabric, 8);
        } else {
            place = sink + (is_short ? 0 : i % WINDOW * bytes);
            get(over_fabric, bytes);
            if (is_short || i % WINDOW == WINDOW - 1)
                put(over_fabric, 8);
        }
    }
    while (under_way)
        progress();
    int messages = is_short ? 2 * count : count;
    *processor = (clock_us(CLOCK_PROCESS_CPUTIME_ID) - used) / messages;
    return (clock_us(CLOCK_MONOTONIC) - begin) / messages;
}

static int connection(const char *own, const char *other) {
    static int listener = -1;
    int one = 1, made = (int)must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    inet_pton(AF_INET, other ? other : own, &address.sin_addr);
    if (other) {
        for (int tries = 0; connect(made, (struct sockaddr *)&address, sizeof address); tries++) {
            if (tries == 200)
                fail("connect", -errno);
            usleep(20000);
        }
    } else {
        if (listener < 0) {
            setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
            must(bind(made, (struct sockaddr *)&address, sizeof address), "bind");
            must(listen(made, 2), "listen");
            listener = made;
        } else
            close(made);
        made = (int)must(accept(listener, NULL, NULL), "accept");
    }
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return made;
}

static void open_fabric(const char *own, const char *provider) {
    struct fi_info *hints = fi_allocinfo();
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->fabric_attr->prov_name = strdup(provider);
    must(fi_getinfo(FI_VERSION(1, 17), own, NULL, FI_SOURCE, hints, &info), "fi_getinfo");
    must(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    must(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    must(fi_endpoint(domain, info, &endpoint, NULL), "fi_endpoint");
    struct fi_cq_attr attributes = {.size = 1024, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
    must(fi_cq_open(domain, &attributes, &queue, NULL), "fi_cq_open");
    struct fi_av_attr table = {.type = FI_AV_TABLE};
    struct fid_av *vector;
    must(fi_av_open(domain, &table, &vector, NULL), "fi_av_open");
    must(fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_ep_bind(endpoint, &vector->fid, 0), "fi_ep_bind");
    must(fi_enable(endpoint), "fi_enable");
    int descriptor;
    must(fi_control(&queue->fid, FI_GETWAIT, &descriptor), "FI_GETWAIT");
    queue_poll = (int)must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    struct epoll_event event = {.events = EPOLLIN};
    must(epoll_ctl(queue_poll, EPOLL_CTL_ADD, descriptor, &event), "epoll_ctl");
    struct {
        char bytes[256];
        size_t length;
    } ours = {.length = 256}, theirs;
    must(fi_getname(&endpoint->fid, ours.bytes, &ours.length), "fi_getname");
    must(send(control, &ours, sizeof ours, MSG_NOSIGNAL), "send");
    must(recv(control, &theirs, sizeof theirs, MSG_WAITALL), "recv");
    if (fi_av_insert(vector, theirs.bytes, 1, &peer, 0, NULL) != 1)
        fail("fi_av_insert", 0);
    for (int i = 0; i < SLOTS; i++) {
        receives[i].bytes = malloc(PIECE);
        post_receive(&receives[i]);
    }
}

int main(int count, char **arguments) {
    if (count < 4 || count > 5) {
        fprintf(stderr, "usage: %s ROUNDS OWN-ADDRESS PROVIDER [OTHER-ADDRESS]\n", arguments[0]);
        return 2;
    }
    int rounds = atoi(arguments[1]);
    connects = count == 5;
    /* One more: the start of the next message may arrive with the end of the last one. */
    size_t space = (WINDOW + 1) * (size_t)LONGEST;
    message = malloc(LONGEST), place = sink = malloc(space);
    memset(message, 7, LONGEST), memset(sink, 0, space);
    control = connection(arguments[2], connects ? arguments[4] : NULL);
    stream = connection(arguments[2], connects ? arguments[4] : NULL);
    stream_poll = (int)must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    struct epoll_event event = {.events = EPOLLIN};
    must(epoll_ctl(stream_poll, EPOLL_CTL_ADD, stream, &event), "epoll_ctl");
    open_fabric(arguments[2], arguments[3]);
    for (int round = -1; round < rounds; round++)
        for (int over_fabric = 0; over_fabric < 2; over_fabric++)
            for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++) {
                double ours, theirs = 0, time = run(over_fabric, sizes[size].bytes, sizes[size].count, &ours);
                must(send(control, &ours, sizeof ours, MSG_NOSIGNAL), "send");
                must(recv(control, &theirs, sizeof theirs, MSG_WAITALL), "recv");
                if (connects && round >= 0)
                    printf("{\"path\":\"%s\",\"bytes\":%zu,\"us\":%.3f,\"processor_us\":%.3f}\n",
                        over_fabric ? "raw libfabric" : "raw TCP", sizes[size].bytes, time, ours + theirs);
            }
    return 0;
}
