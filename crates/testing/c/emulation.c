/* An emulation of libfabric's providers for network adapters, inside one process: their rules
 * without their hardware. It is a library that is opened as libfabric itself is. A caller that
 * breaks a rule ends the process with the name of the rule.
 *
 * What providers may do, and what an emulated one does as often as it can:
 *  - memory: messages lie in registered memory (FI_MR_LOCAL), which has pages (FI_MR_ALLOCATED),
 *    keys that the provider chooses (FI_MR_PROV_KEY), and is bound to an endpoint and enabled
 *    before its use and closed before that endpoint (FI_MR_ENDPOINT);
 *  - remote memory is named by address or offset (FI_MR_VIRT_ADDR), and is read at any time until
 *    the read completes; a read of memory that is not registered any more fails;
 *  - a buffer is read when the message leaves, not when the send is posted, and the words of its
 *    context belong to the provider;
 *  - sends and receives are refused (FI_EAGAIN), because queues are short and at random;
 *  - a read fails when it is posted or later, and memory beyond a limit is not registered;
 *  - completions come in any order, and messages too where the provider promises none;
 *  - nothing moves but in calls of fi_cq_read, by one thread at a time;
 *  - a queue has a descriptor that stays readable until fi_trywait, or none: fi_cq_open or
 *    FI_GETWAIT refuses it. */
#include "emulation_memory.h"

/* Completion queues. */

static int close_queue(struct fid *fid) {
    struct queue *queue = (struct queue *)fid;
    int descriptor = queue->user ? -1 : queue->descriptor;
    int status = close_object(queue->domain, queue->user != NULL, queue);
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

static int control_queue(struct fid *fid, int command, void *argument) {
    struct queue *queue = (struct queue *)fid;
    if (command != FI_GETWAIT || queue->descriptor < 0)
        return -FI_ENOSYS;
    *(int *)argument = queue->descriptor;
    return 0;
}

static ssize_t read_queue(struct fid_cq *fid, void *entries, size_t count) {
    struct queue *queue = (struct queue *)fid;
    enter(queue->domain);
    if (queue->user)
        progress(queue->user);
    size_t taken = 0;
    bool failed = false;
    while (taken < count && queue->count > 0 && chance(8) > 0) {
        struct completion *any = &queue->completions[chance((unsigned)queue->count)];
        if ((failed = any->error))
            break;
        ((struct fi_cq_msg_entry *)entries)[taken++] = any->entry;
        *any = queue->completions[--queue->count];
    }
    return leave(queue->domain, taken > 0 ? (ssize_t)taken : failed ? -FI_EAVAIL : -FI_EAGAIN);
}

static ssize_t read_error(struct fid_cq *fid, struct fi_cq_err_entry *entry, uint64_t flags) {
    (void)flags;
    struct queue *queue = (struct queue *)fid;
    enter(queue->domain);
    for (size_t at = 0; at < queue->count; at++) {
        struct completion found = queue->completions[at];
        if (!found.error)
            continue;
        *entry = (struct fi_cq_err_entry){
            .op_context = found.entry.op_context, .flags = found.entry.flags, .err = found.error};
        queue->completions[at] = queue->completions[--queue->count];
        return leave(queue->domain, 1);
    }
    return leave(queue->domain, -FI_EAGAIN);
}

static struct fi_ops queue_object_ops
    = {sizeof(struct fi_ops), close_queue, refuse_bind, control_queue, NULL};
static struct fi_ops_cq queue_ops
    = {.size = sizeof(struct fi_ops_cq), .read = read_queue, .readerr = read_error};

static int open_queue(
    struct fid_domain *fid, struct fi_cq_attr *attributes, struct fid_cq **created, void *context) {
    struct domain *domain = (struct domain *)fid;
    must(attributes->format == FI_CQ_FORMAT_MSG, "entries have the format of messages");
    must(attributes->size <= 3 * MOST, "the queue is longer than this emulation's");
    bool waits = attributes->wait_obj == FI_WAIT_FD;
    if (waits && domain->rules->waiting == NO_QUEUE)
        return -FI_ENOSYS;
    struct queue *queue = zeroed(sizeof *queue);
    queue->fid = (struct fid_cq){{FI_CLASS_CQ, context, &queue_object_ops}, &queue_ops};
    queue->domain = domain;
    queue->size = attributes->size;
    queue->descriptor = waits && domain->rules->waiting == DESCRIPTOR
        ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        : -1;
    enter(domain);
    domain->objects++;
    *created = &queue->fid;
    return (int)leave(domain, 0);
}

/* Address vectors. */

static int close_vector(struct fid *fid) {
    struct vector *vector = (struct vector *)fid;
    return close_object(vector->domain, vector->users, vector);
}

static int insert(struct fid_av *fid, const void *names, size_t count, fi_addr_t *addresses,
    uint64_t flags, void *context) {
    (void)flags, (void)context;
    struct vector *vector = (struct vector *)fid;
    if (count != 1 || memcmp(names, "emulated", 8) != 0 || vector->count == MOST)
        return 0;
    memcpy(&vector->numbers[vector->count], (const char *)names + 8, sizeof *vector->numbers);
    *addresses = vector->count++;
    return 1;
}

static struct fi_ops vector_object_ops
    = {sizeof(struct fi_ops), close_vector, refuse_bind, refuse_control, NULL};
static struct fi_ops_av vector_ops = {.size = sizeof(struct fi_ops_av), .insert = insert};

static int open_vector(
    struct fid_domain *fid, struct fi_av_attr *attributes, struct fid_av **created, void *context) {
    struct domain *domain = (struct domain *)fid;
    must(attributes->type == FI_AV_TABLE, "addresses are numbers");
    struct vector *vector = zeroed(sizeof *vector);
    vector->fid = (struct fid_av){{FI_CLASS_AV, context, &vector_object_ops}, &vector_ops};
    vector->domain = domain;
    enter(domain);
    domain->objects++;
    *created = &vector->fid;
    return (int)leave(domain, 0);
}

/* Endpoints. */

static int close_endpoint(struct fid *fid) {
    struct endpoint *endpoint = (struct endpoint *)fid;
    struct domain *domain = endpoint->domain;
    enter(domain);
    for (struct registration *memory = registrations; memory; memory = memory->next)
        if (memory->endpoint == endpoint)
            return (int)leave(domain, -FI_EBUSY);
    struct endpoint **place = &endpoints;
    while (*place && *place != endpoint)
        place = &(*place)->next;
    if (*place)
        *place = endpoint->next;
    for (struct message *message = endpoint->arrived, *next; message; message = next) {
        next = message->next;
        free(message);
    }
    for (size_t at = 0; at < endpoint->reading; at++)
        if (endpoint->reads[at].memory)
            endpoint->reads[at].memory->uses--;
    for (size_t at = 0; at < endpoint->sending + endpoint->receiving; at++) {
        bool sends = at < endpoint->sending;
        struct operation *operation
            = sends ? &endpoint->sends[at] : &endpoint->receives[at - endpoint->sending];
        if (operation->memory)
            operation->memory->uses--;
        if (operation->is_injected)
            free(operation->buffer);
    }
    if (endpoint->queue)
        endpoint->queue->user = NULL;
    if (endpoint->vector)
        endpoint->vector->users--;
    leave(domain, 0);
    return close_object(domain, 0, endpoint);
}

static int bind_endpoint(struct fid *fid, struct fid *other, uint64_t flags) {
    struct endpoint *endpoint = (struct endpoint *)fid;
    must(!endpoint->is_enabled, "an open endpoint is bound no more");
    if (other->fclass == FI_CLASS_CQ) {
        must(flags == (FI_SEND | FI_RECV), "one queue has the completions of sends and receives");
        endpoint->queue = (struct queue *)other;
        must(!endpoint->queue->user, "one endpoint uses a queue");
        endpoint->queue->user = endpoint;
    } else {
        must(other->fclass == FI_CLASS_AV, "an endpoint is bound to a queue and a vector");
        endpoint->vector = (struct vector *)other;
        endpoint->vector->users++;
    }
    return 0;
}

static int control_endpoint(struct fid *fid, int command, void *argument) {
    (void)argument;
    struct endpoint *endpoint = (struct endpoint *)fid;
    must(command == FI_ENABLE && endpoint->queue && endpoint->vector,
        "an endpoint is bound before it is enabled");
    enter(endpoint->domain);
    endpoint->number = opened++;
    endpoint->next = endpoints;
    endpoints = endpoint;
    endpoint->is_enabled = true;
    return (int)leave(endpoint->domain, 0);
}

static int name_of_endpoint(struct fid *fid, void *name, size_t *length) {
    struct endpoint *endpoint = (struct endpoint *)fid;
    size_t space = *length;
    *length = NAME_BYTES;
    if (space < NAME_BYTES)
        return -FI_ETOOSMALL;
    memset(name, 0xff, NAME_BYTES);
    memcpy(name, "emulated", 8);
    memcpy((char *)name + 8, &endpoint->number, sizeof endpoint->number);
    return 0;
}

/* Refuses some operations: where the queue of the provider is full, and at random. */
static bool refuses(struct endpoint *endpoint, size_t count, size_t most) {
    must(endpoint->is_enabled, "an operation of an endpoint that is not enabled");
    return count >= most || chance(endpoint->domain->rules->refuses) == 0;
}

static ssize_t receive(struct fid_ep *fid, void *buffer, size_t length, void *descriptor,
    fi_addr_t source, void *context) {
    struct endpoint *endpoint = (struct endpoint *)fid;
    must(source == FI_ADDR_UNSPEC && context != NULL,
        "receives take messages of all, and have a context");
    enter(endpoint->domain);
    if (refuses(endpoint, endpoint->receiving, endpoint->domain->rules->receives))
        return leave(endpoint->domain, -FI_EAGAIN);
    struct registration *memory = memory_of(endpoint, buffer, length, descriptor, FI_RECV);
    memset(context, 0xee, CONTEXT_BYTES);
    memset(buffer, 0xdd, length);
    endpoint->receives[endpoint->receiving++]
        = (struct operation){buffer, length, context, memory, 0, false};
    return leave(endpoint->domain, 0);
}

static ssize_t post(
    struct endpoint *endpoint, struct operation send, fi_addr_t target, void *descriptor) {
    must(target < endpoint->vector->count, "a message to an address that was not inserted");
    send.target = endpoint->vector->numbers[target];
    enter(endpoint->domain);
    if (refuses(endpoint, endpoint->sending, endpoint->domain->rules->sends))
        return leave(endpoint->domain, -FI_EAGAIN);
    if (send.is_injected) {
        char *copy = zeroed(send.length + 1);
        send.buffer = memcpy(copy, send.buffer, send.length);
    } else {
        send.memory = memory_of(endpoint, send.buffer, send.length, descriptor, FI_SEND);
        memset(send.context, 0xee, CONTEXT_BYTES);
    }
    endpoint->sends[endpoint->sending++] = send;
    return leave(endpoint->domain, 0);
}

static ssize_t send_message(struct fid_ep *fid, const void *buffer, size_t length, void *descriptor,
    fi_addr_t target, void *context) {
    must(length <= LONGEST && context != NULL,
        "a send is as long as the provider permits, and has a context");
    struct operation send = {(char *)buffer, length, context, NULL, 0, false};
    return post((struct endpoint *)fid, send, target, descriptor);
}

static ssize_t inject(struct fid_ep *fid, const void *buffer, size_t length, fi_addr_t target) {
    struct endpoint *endpoint = (struct endpoint *)fid;
    must(length <= endpoint->domain->rules->inject,
        "an injected message is longer than inject_size");
    return post(
        endpoint, (struct operation){(char *)buffer, length, NULL, NULL, 0, true}, target, NULL);
}

/* Reads memory of a peer, which happens at some later time. */
static ssize_t read_remote(struct fid_ep *fid, void *buffer, size_t length, void *descriptor,
    fi_addr_t source, uint64_t address, uint64_t key, void *context) {
    struct endpoint *endpoint = (struct endpoint *)fid;
    must(endpoint->domain->rules->reads, "a read through a provider without FI_RMA");
    must(source < endpoint->vector->count, "a read from an address that was not inserted");
    must(length > 0 && length <= LONGEST && context != NULL,
        "a read is as long as the provider permits, and has a context");
    enter(endpoint->domain);
    if (refuses(endpoint, endpoint->reading, endpoint->domain->rules->sends))
        return leave(endpoint->domain, -FI_EAGAIN);
    unsigned fails = endpoint->domain->rules->fails;
    if (fails && chance(fails) == 0)
        return leave(endpoint->domain, -FI_EIO);
    struct operation read = {.buffer = buffer,
        .length = length,
        .context = context,
        .memory = memory_of(endpoint, buffer, length, descriptor, FI_READ),
        .target = endpoint->vector->numbers[source],
        .address = address,
        .key = key};
    memset(context, 0xee, CONTEXT_BYTES);
    endpoint->reads[endpoint->reading++] = read;
    return leave(endpoint->domain, 0);
}

static struct fi_ops endpoint_object_ops
    = {sizeof(struct fi_ops), close_endpoint, bind_endpoint, control_endpoint, NULL};
static struct fi_ops_cm name_ops = {.size = sizeof(struct fi_ops_cm), .getname = name_of_endpoint};
static struct fi_ops_msg message_ops
    = {.size = sizeof(struct fi_ops_msg), .recv = receive, .send = send_message, .inject = inject};

static struct fi_ops_rma read_ops = {.size = sizeof(struct fi_ops_rma), .read = read_remote};

static int open_endpoint(
    struct fid_domain *fid, struct fi_info *info, struct fid_ep **created, void *context) {
    struct domain *domain = (struct domain *)fid;
    struct endpoint *endpoint = zeroed(sizeof *endpoint);
    endpoint->fid = (struct fid_ep){
        .fid = {FI_CLASS_EP, context, &endpoint_object_ops},
        .cm = &name_ops,
        .msg = &message_ops,
        .rma = info->caps & FI_RMA ? &read_ops : NULL};
    endpoint->domain = domain;
    enter(domain);
    domain->objects++;
    *created = &endpoint->fid;
    return (int)leave(domain, 0);
}

/* Domains and fabrics. */

static int close_domain(struct fid *fid) {
    struct domain *domain = (struct domain *)fid;
    if (domain->objects > 0)
        return -FI_EBUSY;
    free(domain);
    return 0;
}

static struct fi_ops domain_object_ops
    = {sizeof(struct fi_ops), close_domain, refuse_bind, refuse_control, NULL};
static struct fi_ops_domain domain_ops = {.size = sizeof(struct fi_ops_domain),
    .av_open = open_vector,
    .cq_open = open_queue,
    .endpoint = open_endpoint};
static struct fi_ops_mr memory_ops = {.size = sizeof(struct fi_ops_mr), .reg = register_memory};

static const struct rules *rules_of(const char *name) {
    for (size_t number = 0; number < PROVIDERS; number++) {
        if (strcmp(providers[number].name, name) == 0)
            return &providers[number];
    }
    violated("a provider that fi_getinfo has not listed");
    return NULL;
}

static int open_domain(
    struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **created, void *context) {
    (void)fabric;
    struct domain *domain = zeroed(sizeof *domain);
    domain->fid = (struct fid_domain){
        {FI_CLASS_DOMAIN, context, &domain_object_ops}, &domain_ops, &memory_ops};
    domain->rules = rules_of(info->fabric_attr->prov_name);
    *created = &domain->fid;
    return 0;
}

static int close_fabric(struct fid *fid) {
    free(fid);
    return 0;
}

static int try_wait(struct fid_fabric *fabric, struct fid **objects, int count) {
    (void)fabric;
    must(count == 1 && objects[0]->fclass == FI_CLASS_CQ, "a wait is for one queue");
    struct queue *queue = (struct queue *)objects[0];
    must(queue->descriptor >= 0, "a wait for a queue without a descriptor");
    enter(queue->domain);
    eventfd_t events;
    if (has_work(queue))
        return (int)leave(queue->domain, -FI_EAGAIN);
    (void)eventfd_read(queue->descriptor, &events);
    return (int)leave(queue->domain, 0);
}

static struct fi_ops fabric_object_ops
    = {sizeof(struct fi_ops), close_fabric, refuse_bind, refuse_control, NULL};
static struct fi_ops_fabric fabric_ops
    = {.size = sizeof(struct fi_ops_fabric), .domain = open_domain, .trywait = try_wait};

int fi_fabric(struct fi_fabric_attr *attributes, struct fid_fabric **created, void *context) {
    struct fid_fabric *fabric = zeroed(sizeof *fabric);
    *fabric = (struct fid_fabric){
        {FI_CLASS_FABRIC, context, &fabric_object_ops}, &fabric_ops, attributes->api_version};
    *created = fabric;
    return 0;
}

/* Bytes of the memory of peers that this thread's calls have read so far. */
uint64_t emulated_reads(void) {
    return read_bytes;
}

/* Number of registrations that this thread has made so far. */
uint64_t emulated_registrations(void) {
    return made_registrations;
}

uint32_t fi_version(void) {
    return FI_VERSION(1, 17);
}

/* Lists of what there is. */

static char *copy_of_text(const char *text) {
    return text ? strdup(text) : NULL;
}

static void *copy_of(const void *attributes, size_t bytes) {
    void *copy = zeroed(bytes);
    return attributes ? memcpy(copy, attributes, bytes) : copy;
}

struct fi_info *fi_dupinfo(const struct fi_info *info) {
    const struct fi_info none = {0};
    const struct fi_info *from = info ? info : &none;
    struct fi_info *copy = copy_of(from, sizeof *copy);
    copy->next = NULL;
    copy->tx_attr = copy_of(from->tx_attr, sizeof *copy->tx_attr);
    copy->rx_attr = copy_of(from->rx_attr, sizeof *copy->rx_attr);
    copy->ep_attr = copy_of(from->ep_attr, sizeof *copy->ep_attr);
    copy->domain_attr = copy_of(from->domain_attr, sizeof *copy->domain_attr);
    copy->domain_attr->name = copy_of_text(copy->domain_attr->name);
    copy->fabric_attr = copy_of(from->fabric_attr, sizeof *copy->fabric_attr);
    copy->fabric_attr->name = copy_of_text(copy->fabric_attr->name);
    copy->fabric_attr->prov_name = copy_of_text(copy->fabric_attr->prov_name);
    return copy;
}

void fi_freeinfo(struct fi_info *info) {
    for (struct fi_info *next; info; info = next) {
        next = info->next;
        free(info->domain_attr->name);
        free(info->fabric_attr->name);
        free(info->fabric_attr->prov_name);
        free(info->tx_attr), free(info->rx_attr), free(info->ep_attr), free(info->domain_attr),
            free(info->fabric_attr);
        free(info);
    }
}

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
    const struct fi_info *hints, struct fi_info **info) {
    (void)version, (void)node, (void)service, (void)flags;
    must(hints->mode & FI_CONTEXT2, "FI_CONTEXT2: the caller offers no words for the provider");
    must(hints->domain_attr->threading == FI_THREAD_DOMAIN, "more threads than one");
    struct fi_info *list = NULL;
    for (size_t number = PROVIDERS; number-- > 0;) {
        const struct rules *rules = &providers[number];
        const char *wanted = hints->fabric_attr->prov_name;
        bool fits = hints->ep_attr->type == FI_EP_RDM
            && (hints->caps == FI_MSG || (hints->caps == WITH_MEMORY && rules->reads));
        fits = fits && !(rules->mr_mode & ~hints->domain_attr->mr_mode);
        /* Faulty ones are for those who name them. */
        bool is_faulty = rules->fails || rules->breaks || rules->lockable;
        if (!fits || (wanted ? strcmp(wanted, rules->name) != 0 : is_faulty))
            continue;
        struct fi_info *entry = fi_dupinfo(hints);
        entry->mode = FI_CONTEXT2;
        entry->ep_attr->max_msg_size = LONGEST;
        entry->tx_attr->inject_size = rules->inject;
        entry->domain_attr->mr_mode = rules->mr_mode;
        entry->domain_attr->mr_key_size = sizeof(uint32_t);
        free(entry->domain_attr->name);
        entry->domain_attr->name = copy_of_text("emulated0");
        free(entry->fabric_attr->prov_name);
        entry->fabric_attr->prov_name = copy_of_text(rules->name);
        entry->next = list;
        list = entry;
    }
    *info = list;
    return list ? 0 : -FI_ENODATA;
}
