/* The ranks of this node: their memory, and which activation owns each. */
#ifndef RANKS_H
#define RANKS_H

#include "progress.h"

/* Rounds of an activation for a rank that received something meanwhile. */
#define LOOKS 64u

/* Ownership of a rank: free, owned by an activation, or owned and marked. This is not a lock: an activation that finds a
 * rank owned puts its message into a slot, marks the rank and goes on. */
enum { UNOWNED, OWNED, LOOK_AGAIN };

static __u32 owners[LOCAL_RANKS] OWN_LINES;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct job));
} jobs SEC(".maps");

struct rank_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct rank_memory));
};

/* Each rank's memory, by its slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, LOCAL_RANKS);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__array(values, struct rank_map);
} rank_maps SEC(".maps");

struct wakeup_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

/* Ring that wakes a sleeping rank, by its slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, LOCAL_RANKS);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__array(values, struct wakeup_map);
} wakeups SEC(".maps");

static __always_inline struct job *job(void)
{
	__u32 key = 0;
	return bpf_map_lookup_elem(&jobs, &key);
}

static __always_inline struct rank_memory *rank_of(__u32 slot)
{
	__u32 key = 0;
	void *map = bpf_map_lookup_elem(&rank_maps, &slot);
	return map ? bpf_map_lookup_elem(map, &key) : 0;
}

static __always_inline __u32 *owner_of(__u32 slot)
{
	__u64 index = slot;
	asm volatile("%0 &= %1" : "+r"(index) : "i"(LOCAL_RANKS - 1));
	return &owners[index];
}

/* Full barriers on both sides, which pair with each other: the owner that releases a rank sees the mark, or the
 * activation that set the mark finds the rank free. No message stays in a slot unseen. */
static __always_inline int acquire(__u32 slot)
{
	return __sync_val_compare_and_swap(owner_of(slot), UNOWNED, OWNED) == UNOWNED;
}

/* Records that a rank has suspended sends. A full barrier: an activation that frees a slot or a window from now on sees
 * the record. The send is tried once more afterwards, which covers the space that was freed before. */
static __always_inline void announce_stall(__u32 slot)
{
	__sync_fetch_and_or(&stalled_ranks, 1ull << (slot & (LOCAL_RANKS - 1)));
}

/* Becomes the rank's owner, or marks the rank for its owner. Returns true if it became the owner. */
static __always_inline int acquire_or_leave_word(__u32 slot)
{
	/* Another round only if the owner has released the rank between the two exchanges. */
	for (__u32 i = zero; i < LOOKS && can_loop(); i++) {
		__u32 seen = __sync_val_compare_and_swap(owner_of(slot), UNOWNED, OWNED);
		if (seen == UNOWNED)
			return 1;
		if (seen == LOOK_AGAIN || __sync_val_compare_and_swap(owner_of(slot), OWNED, LOOK_AGAIN) != UNOWNED)
			return 0;
	}
	/* Neither owned nor marked: a later activation works for the rank. */
	announce_stall(slot);
	return 0;
}

/* Releases a rank. Returns true if it was marked meanwhile: the caller then works for the rank once more,
 * or leaves it to a later activation. The exchange is a full barrier, so the next owner sees all that this
 * one has written. Partner: the exchange in `acquire`. */
static __always_inline int release(__u32 slot)
{
	return __sync_lock_test_and_set(owner_of(slot), UNOWNED) == LOOK_AGAIN;
}

#endif
