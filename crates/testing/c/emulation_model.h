/* The emulated providers: their rules, their objects, and the transfer of messages. */
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 256, NAME_BYTES = 32, CONTEXT_BYTES = 64, PAGE = 4096, LONGEST = 300000 };
/* Capabilities of an endpoint that reads the memory of peers. */
#define WITH_MEMORY ((uint64_t)(FI_MSG | FI_RMA | FI_READ | FI_REMOTE_READ))
enum { BASIC = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY };
enum waiting { DESCRIPTOR, NO_QUEUE, NO_DESCRIPTOR };

struct rules {
    const char *name;
    int mr_mode;
    size_t inject, sends, receives;
    enum waiting waiting;
    bool keeps_order;
    unsigned refuses; /* one in so many operations */
    bool reads; /* FI_RMA */
    bool needs_target; /* a read moves in calls of the peer (FI_PROGRESS_MANUAL) */
    /* Of reads, one in so many fails when it is posted, or ends with an error; none for 0. */
    unsigned fails, breaks;
    size_t lockable; /* bytes that may be registered; any number for 0 */
};

static const struct rules providers[] = {
    {"emulated-verbs", BASIC, 64, 24, 40, DESCRIPTOR, true, 64, true},
    {"emulated-cxi", FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_ENDPOINT, 192, 16, MOST, DESCRIPTOR,
        false, 32, true},
    {"emulated-efa", BASIC, 32, 64, 64, NO_QUEUE, false, 16, true, true},
    {"emulated-psm", 0, 0, 8, 16, NO_DESCRIPTOR, true, 8, false},
    {"emulated-failing", BASIC, 64, 24, 40, DESCRIPTOR, true, 64, true, .fails = 1},
    {"emulated-faulty", BASIC, 64, 24, 40, DESCRIPTOR, true, 64, true, .fails = 9, .breaks = 3},
    {"emulated-limited", BASIC, 64, 24, 40, DESCRIPTOR, true, 64, true, .lockable = 4 << 20},
};
enum { PROVIDERS = sizeof providers / sizeof *providers };

struct domain {
    struct fid_domain fid;
    const struct rules *rules;
    atomic_bool is_used;
    int objects;
    uint64_t next_key;
    size_t locked; /* bytes that are registered */
};

struct registration {
    struct fid_mr fid;
    struct registration *next;
    struct domain *domain;
    const char *start;
    size_t length;
    uint64_t access;
    struct endpoint *endpoint;
    bool is_enabled;
    int uses;
};

struct completion {
    struct fi_cq_msg_entry entry;
    int error;
};

struct queue {
    struct fid_cq fid;
    struct domain *domain;
    size_t size, count;
    struct completion completions[3 * MOST];
    int descriptor;
    struct endpoint *user;
};

struct vector {
    struct fid_av fid;
    struct domain *domain;
    uint64_t numbers[MOST];
    size_t count;
    int users;
};

struct operation {
    char *buffer;
    size_t length;
    void *context;
    struct registration *memory;
    uint64_t target; /* of a send or a read */
    bool is_injected;
    uint64_t address, key; /* of a read */
};

struct message {
    struct message *next;
    size_t length;
    char bytes[];
};

struct endpoint {
    struct fid_ep fid;
    struct endpoint *next;
    struct domain *domain;
    struct queue *queue;
    struct vector *vector;
    uint64_t number;
    bool is_enabled;
    struct operation sends[MOST], receives[MOST], reads[MOST];
    size_t sending, receiving, reading;
    struct message *arrived;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct endpoint *endpoints;
static struct registration *registrations;
static uint64_t opened;
/* Of this thread: a test that drives both ends counts its own only. */
static _Thread_local uint64_t read_bytes, made_registrations;

static void violated(const char *rule) {
    fprintf(stderr, "emulation of libfabric: %s\n", rule);
    abort();
}

static void must(bool holds, const char *rule) {
    if (!holds)
        violated(rule);
}

/* The same numbers in every run; called with the lock. */
static unsigned chance(unsigned limit) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (unsigned)(state >> 20) % limit;
}

static void *zeroed(size_t bytes) {
    void *memory = calloc(1, bytes);
    must(memory != NULL, "there is no memory");
    return memory;
}

static void enter(struct domain *domain) {
    must(!atomic_exchange(&domain->is_used, true),
        "FI_THREAD_DOMAIN: two threads call one domain at once");
    pthread_mutex_lock(&lock);
}

static ssize_t leave(struct domain *domain, ssize_t status) {
    pthread_mutex_unlock(&lock);
    atomic_store(&domain->is_used, false);
    return status;
}

static void notify(struct queue *queue) {
    if (queue->descriptor >= 0)
        must(eventfd_write(queue->descriptor, 1) == 0, "an event is counted");
}

static void complete(struct queue *queue, const struct operation *operation, uint64_t flags,
    size_t length, int error) {
    if (operation->memory)
        operation->memory->uses--;
    if (operation->context)
        memset(operation->context, 0xee, CONTEXT_BYTES);
    else if (!error)
        return;
    must(queue->count < queue->size, "the completion queue overflows");
    struct fi_cq_msg_entry entry = {operation->context, flags, length};
    queue->completions[queue->count++] = (struct completion){entry, error};
    notify(queue);
}

/* Memory of an operation, which must follow the rules of the provider. */
static struct registration *memory_of(struct endpoint *endpoint, const char *start, size_t length,
    void *descriptor, uint64_t access) {
    int mode = endpoint->domain->rules->mr_mode;
    if (!(mode & FI_MR_LOCAL))
        return NULL;
    struct registration *memory = descriptor;
    must(memory != NULL && memory->domain == endpoint->domain,
        "FI_MR_LOCAL: an operation without the descriptor of its memory");
    must(start >= memory->start && start + length <= memory->start + memory->length,
        "FI_MR_LOCAL: memory outside the registration");
    must(memory->access & access, "the registration does not permit the access");
    must(!(mode & FI_MR_ENDPOINT) || (memory->endpoint == endpoint && memory->is_enabled),
        "FI_MR_ENDPOINT: not bound and enabled");
    memory->uses++;
    return memory;
}

static void remove_at(struct operation *operations, size_t *count, size_t at) {
    memmove(&operations[at], &operations[at + 1], (--*count - at) * sizeof *operations);
}

static void deliver(struct endpoint *endpoint, bool keeps_order, const char *bytes, size_t length) {
    struct message *message = zeroed(sizeof *message + length);
    message->length = length;
    memcpy(message->bytes, bytes, length);
    struct message **place = &endpoint->arrived;
    while (*place && (keeps_order || chance(4)))
        place = &(*place)->next;
    message->next = *place;
    *place = message;
    notify(endpoint->queue);
}

static struct endpoint *endpoint_of(uint64_t number) {
    struct endpoint *found = endpoints;
    while (found && found->number != number)
        found = found->next;
    return found;
}

/* The bytes of a read in the memory of the peer; none if it may not read them. */
static const char *remote_bytes(const struct endpoint *target, const struct operation *read) {
    struct registration *memory = registrations;
    while (memory && (memory->domain != target->domain || memory->fid.key != read->key))
        memory = memory->next;
    if (!memory || !(memory->access & FI_REMOTE_READ))
        return NULL;
    int mode = target->domain->rules->mr_mode;
    if (mode & FI_MR_ENDPOINT && !(memory->endpoint == target && memory->is_enabled))
        return NULL;
    uint64_t first = mode & FI_MR_VIRT_ADDR ? (uintptr_t)memory->start : 0;
    uint64_t at = read->address - first;
    if (at > memory->length || read->length > memory->length - at)
        return NULL;
    return memory->start + at;
}

/* Ends some reads of an endpoint in calls of another one, or of its own, in any order. */
static void progress_reads(struct endpoint *endpoint, const struct endpoint *caller) {
    bool needs_target = endpoint->domain->rules->needs_target;
    for (unsigned turns = chance(4); turns > 0 && endpoint->reading > 0; turns--) {
        size_t at = chance((unsigned)endpoint->reading);
        struct operation read = endpoint->reads[at];
        struct endpoint *target = endpoint_of(read.target);
        if (caller != (target && needs_target ? target : endpoint))
            continue;
        remove_at(endpoint->reads, &endpoint->reading, at);
        const char *bytes = target ? remote_bytes(target, &read) : NULL;
        unsigned breaks = endpoint->domain->rules->breaks;
        int error = bytes ? 0 : target ? EACCES : EHOSTUNREACH;
        if (breaks && chance(breaks) == 0)
            bytes = NULL, error = EIO;
        if (bytes) {
            memcpy(read.buffer, bytes, read.length);
            read_bytes += read.length;
        } else {
            memset(read.buffer, 0xcc, read.length);
        }
        complete(endpoint->queue, &read, FI_RMA | FI_READ, read.length, error);
    }
}

/* Moves what can be moved. */
static void progress(struct endpoint *endpoint) {
    bool keeps_order = endpoint->domain->rules->keeps_order;
    for (struct endpoint *reader = endpoints; reader; reader = reader->next)
        progress_reads(reader, endpoint);
    for (unsigned turns = 1 + chance(8); turns > 0 && endpoint->sending > 0; turns--) {
        size_t at = keeps_order ? 0 : chance((unsigned)endpoint->sending);
        struct operation send = endpoint->sends[at];
        struct endpoint *target = endpoint_of(send.target);
        remove_at(endpoint->sends, &endpoint->sending, at);
        if (target)
            deliver(target, keeps_order, send.buffer, send.length);
        complete(endpoint->queue, &send, FI_MSG | FI_SEND, send.length, target ? 0 : EHOSTUNREACH);
        if (send.is_injected)
            free(send.buffer);
    }
    while (endpoint->arrived && endpoint->receiving > 0) {
        struct message *message = endpoint->arrived;
        struct operation receive = endpoint->receives[0];
        remove_at(endpoint->receives, &endpoint->receiving, 0);
        bool fits = message->length <= receive.length;
        if (fits)
            memcpy(receive.buffer, message->bytes, message->length);
        complete(
            endpoint->queue, &receive, FI_MSG | FI_RECV, message->length, fits ? 0 : FI_ETRUNC);
        endpoint->arrived = message->next;
        free(message);
    }
}

static bool has_work(struct queue *queue) {
    const struct endpoint *user = queue->user;
    return queue->count > 0 || (user && (user->sending > 0 || user->reading > 0 || user->arrived));
}
