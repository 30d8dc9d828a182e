/* The objects of an emulated provider: what all have in common, and registered memory. */
#pragma once
#include "emulation_model.h"

/* Every object: its functions, and what other objects keep open. */

static int refuse_bind(struct fid *fid, struct fid *other, uint64_t flags) {
    (void)fid, (void)other, (void)flags;
    return -FI_EINVAL;
}

static int refuse_control(struct fid *fid, int command, void *argument) {
    (void)fid, (void)command, (void)argument;
    return -FI_ENOSYS;
}

static int close_object(struct domain *domain, int users, void *object) {
    enter(domain);
    if (users == 0)
        domain->objects--;
    leave(domain, 0);
    if (users > 0)
        return -FI_EBUSY;
    free(object);
    return 0;
}

/* Registered memory. */

/* Ends the uses of memory by the operations of an endpoint. */
static void forget_memory(struct endpoint *endpoint, const struct registration *memory) {
    struct operation *lists[] = {endpoint->sends, endpoint->receives, endpoint->reads};
    const size_t counts[] = {endpoint->sending, endpoint->receiving, endpoint->reading};
    for (size_t list = 0; list < sizeof lists / sizeof *lists; list++)
        for (size_t at = 0; at < counts[list]; at++)
            if (lists[list][at].memory == memory)
                lists[list][at].memory = NULL;
}

static int close_registration(struct fid *fid) {
    struct registration *memory = (struct registration *)fid;
    enter(memory->domain);
    /* Memory that is bound to an endpoint goes before it, so that operations may be under way. */
    if (memory->endpoint)
        forget_memory(memory->endpoint, memory);
    else
        must(memory->uses == 0, "memory is deregistered while an operation uses it");
    struct registration **place = &registrations;
    while (*place != memory)
        place = &(*place)->next;
    *place = memory->next;
    memory->domain->locked -= memory->length;
    leave(memory->domain, 0);
    return close_object(memory->domain, 0, memory);
}

static int bind_registration(struct fid *fid, struct fid *other, uint64_t flags) {
    (void)flags;
    struct registration *memory = (struct registration *)fid;
    must(memory->domain->rules->mr_mode & FI_MR_ENDPOINT && other->fclass == FI_CLASS_EP,
        "a registration is bound to an endpoint");
    memory->endpoint = (struct endpoint *)other;
    return 0;
}

static int control_registration(struct fid *fid, int command, void *argument) {
    (void)argument;
    struct registration *memory = (struct registration *)fid;
    must(command == FI_ENABLE && memory->endpoint && memory->endpoint->is_enabled,
        "FI_MR_ENDPOINT: bound to an open endpoint first");
    memory->is_enabled = true;
    return 0;
}

static struct fi_ops registration_ops
    = {sizeof(struct fi_ops), close_registration, bind_registration, control_registration, NULL};

static int register_memory(struct fid *fid, const void *start, size_t length, uint64_t access,
    uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **created, void *context) {
    struct domain *domain = (struct domain *)fid;
    must(fid->fclass == FI_CLASS_DOMAIN && offset == 0 && flags == 0,
        "memory is registered with a domain");
    must(access == (FI_SEND | FI_RECV) || access == FI_READ || access == FI_REMOTE_READ,
        "memory is for messages, for reads, or for peers");
    must(!(access & FI_REMOTE_READ) || domain->rules->reads, "a provider without FI_RMA");
    enter(domain);
    size_t lockable = domain->rules->lockable;
    if (lockable && domain->locked + length > lockable)
        return (int)leave(domain, -FI_ENOMEM);
    if (domain->rules->mr_mode & FI_MR_ALLOCATED) {
        uintptr_t first = (uintptr_t)start / PAGE * PAGE, end = (uintptr_t)start + length;
        for (uintptr_t page = first; page < end; page += PAGE) {
            unsigned char resident = 0;
            must(mincore((void *)page, PAGE, &resident) == 0 && resident & 1,
                "FI_MR_ALLOCATED: registered memory without pages");
        }
    }
    struct registration *memory = zeroed(sizeof *memory);
    bool chooses = domain->rules->mr_mode & FI_MR_PROV_KEY;
    must(chooses || key <= UINT32_MAX, "mr_key_size: a key is too long");
    for (struct registration *other = registrations; other && !chooses; other = other->next)
        must(other->domain != domain || other->fid.key != key, "two registrations with one key");
    memory->fid = (struct fid_mr){{FI_CLASS_MR, context, &registration_ops}, memory,
        chooses ? 1000 + domain->next_key++ : key};
    memory->domain = domain;
    memory->start = start;
    memory->length = length;
    memory->access = access;
    memory->next = registrations;
    registrations = memory;
    domain->locked += length;
    made_registrations++;
    domain->objects++;
    *created = &memory->fid;
    return (int)leave(domain, 0);
}
