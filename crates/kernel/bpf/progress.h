/* Lists of ready operations and active runs, and the completion of operations. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include "memory.h"

/* Ranks of this node with suspended sends, a bit each. Changed by all cores. */
static __u64 stalled_ranks OWN_LINES;

/* Operations of all runs of a rank: no more than an arena holds. */
#define OPERATIONS (ARENA_BYTES / sizeof(struct progress))

static __always_inline __u32 run_hash(__u32 communicator, __u64 sequence)
{
	__u32 hash = communicator * 0x9e3779b1u + (__u32)sequence;
	return hash ^ hash >> 16;
}

static __always_inline __u32 *bucket_at(struct rank_memory *rank, __u32 communicator, __u64 sequence)
{
	__u64 bucket = run_hash(communicator, sequence);
	asm volatile("%0 &= %1" : "+r"(bucket) : "i"(RUN_BUCKETS - 1));
	return &rank->run_buckets[bucket];
}

/* Frees a slot. Called by the rank's owner, which reads the flag when its work is done (`advance`). */
static __always_inline void slot_free(struct rank_memory *rank, __u32 slot)
{
	rank->head.freed = 1;
	/* A full barrier: the message has been read before another activation fills the slot. Partner: the
	 * exchange in `store_among`, or that in `put` of a rank. */
	__sync_lock_test_and_set(&slot_at(rank, slot)->state, SLOT_FREE);
}

/* Appends a run to the list of active runs, unless it has failed. Runs leave it at the front only (`step`), so a run
 * with many ready operations executes them in a row, and every other run keeps its place. */
static __always_inline void activate_run(struct rank_memory *rank, __u32 run_place)
{
	struct run *run = run_at(rank, run_place);
	if (run->is_active || run->state != RUN_UNDER_WAY)
		return;
	run->is_active = 1;
	run->next_active = 0;
	if (rank->head.active_first)
		run_at(rank, rank->head.active_last)->next_active = run_place;
	else
		rank->head.active_first = run_place;
	rank->head.active_last = run_place;
}

/* Appends an operation to the list of ready operations. */
static __always_inline void make_ready(struct rank_memory *rank, struct run *run, __u32 operation)
{
	progress_at(rank, run, operation)->next = 0;
	if (run->ready_first)
		progress_at(rank, run, run->ready_last - 1)->next = operation + 1;
	else
		run->ready_first = operation + 1;
	run->ready_last = operation + 1;
}

/* Satisfies the dependencies behind these edges. */
static __always_inline void satisfy(struct rank_memory *rank, struct run *run, __u32 first_edge, __u32 count)
{
	__u32 edges = run->edges + 4 * first_edge, i = zero;
	for (; i < count && i < WALK_LIMIT && can_loop(); i++) {
		__u32 target = (*AT(rank, __u32, edges + 4 * i) - HEADER_BYTES) / sizeof(struct operation_record);
		struct progress *progress = progress_at(rank, run, target);
		/* Only the owner of the rank counts, so plain words are enough. Each edge is followed once, because
		 * an operation starts and completes once. A counter that a rank has corrupted may pass through 0
		 * again: then its own operation executes twice, within the bounds of its own memory. */
		if (--progress->counter == 0)
			make_ready(rank, run, target);
	}
	count_rounds(i);
}

/* Publishes the end of a run. The rank may reuse the run's memory from now on, so nothing accesses it afterwards. */
static __always_inline void end_run(struct rank_memory *rank, struct run *run, __u32 state)
{
	rank->head.completed = 1;
	/* A full barrier: results are visible before the state. Pairs with the rank's load of the state
	 * (`Rank::is_complete`). */
	__sync_lock_test_and_set(&run->state, state);
}

/* Drops a list of messages without a receive. Returns their number plus `before`, at most the number of slots. */
static __always_inline __u32 drop_messages(struct rank_memory *rank, __u32 slot, __u32 before)
{
	while (before < SLOTS && slot && can_loop()) {
		__u32 next = slot_at(rank, slot - 1)->next;
		rank->head.dropped++;
		slot_free(rank, slot - 1);
		slot = next;
		before++;
	}
	return before;
}

/* Pushes a stored message on the stack for the rank's owner. */
static __always_inline void leave_waiting(struct rank_memory *rank, __u32 slot)
{
	for (__u32 i = zero; i < WALK_LIMIT && can_loop(); i++) {
		__u32 first = *(volatile __u32 *)&rank->head.waiting_first;
		slot_at(rank, slot - 1)->next = first;
		/* A full barrier: the owner that takes the stack sees the message and its link. Partner: the exchange
		 * in `accept_waiting`. The owner takes the whole stack and never one slot. If `first` was taken, freed
		 * and pushed again between the load and the exchange (ABA), it is on top again, so the link is
		 * right. */
		if (__sync_val_compare_and_swap(&rank->head.waiting_first, first, slot) == first)
			return;
	}
}

/* Returns a list of messages to the stack, to be matched by a later activation. The messages keep their
 * order, since `accept_waiting` reverses the stack. */
static __always_inline void postpone(struct rank_memory *rank, __u32 slot)
{
	for (__u32 i = zero; i < SLOTS && slot && can_loop(); i++) {
		struct slot *kept = slot_at(rank, slot - 1);
		/* Read first: the push replaces the link. */
		__u32 next = kept->next;
		/* Before the push: `accept_waiting` accepts only slots in this state. */
		kept->state = SLOT_WAITING;
		leave_waiting(rank, slot);
		slot = next;
	}
}

/* Ends a run whose operations are all complete. Its bucket must not refer to it any more when the state
 * changes: the rank may start another run in the same memory at once, and a search in the bucket would
 * follow the links of that one. */
__noinline int finish(struct rank_memory *rank __arg_nonnull, __u32 run_place)
{
	struct run *run = run_at(rank, run_place);
	__u32 *bucket = bucket_at(rank, run->communicator, run->sequence);
	if (*bucket == run_place) {
		*bucket = run->next;
	} else {
		__u32 before = *bucket, i = zero;
		for (; i < WALK_LIMIT && before && can_loop(); i++) {
			struct run *other = run_at(rank, before);
			if (other->next == run_place) {
				other->next = run->next;
				break;
			}
			before = other->next;
		}
		count_rounds(i);
	}
	/* No receive is left for them. A receive that is complete keeps no slots, so there are no others. */
	drop_messages(rank, run->unmatched_first, zero);
	end_run(rank, run, RUN_COMPLETE);
	return 0;
}

/* Ends a run with a fault. It stays registered, so that messages for it are dropped: without the run they
 * would count as unexpected and keep their slots. The rank does not reuse the memory of a failed run
 * (`RunTable::end`), so the links of the bucket stay valid. */
__noinline int fail(struct rank_memory *rank __arg_nonnull, __u32 run_place, __u32 fault)
{
	struct run *run = run_at(rank, run_place);
	run->fault = fault;
	__u32 dropped = drop_messages(rank, run->unmatched_first, zero);
	run->unmatched_first = 0;
	__u32 i = zero;
	for (; i < run->operation_count && i < WALK_LIMIT && can_loop(); i++) {
		struct progress *progress = progress_at(rank, run, i);
		dropped = drop_messages(rank, progress->slots, dropped);
		progress->slots = 0;
	}
	count_rounds(i);
	end_run(rank, run, RUN_FAILED);
	return 0;
}

/* Completes an operation: satisfies its dependents and ends the run after the last one. */
static __always_inline void complete_here(struct rank_memory *rank, __u32 run_place, __u32 operation)
{
	struct run *run = run_at(rank, run_place);
	struct operation_record *record = record_at(rank, run, operation);
	progress_at(rank, run, operation)->phase = PHASE_COMPLETE;
	satisfy(rank, run, record->first_edge, record->edge_count);
	if (run->ready_first)
		activate_run(rank, run_place);
	/* Last: after the end of the run its memory may belong to another one. A ready operation is not
	 * complete, so a run that ends here is not in the list of active runs. */
	if (--run->remaining == 0)
		finish(rank, run_place);
}

/* The same, out of line, where inlining would exceed the verifier's limits. */
__noinline int complete(struct rank_memory *rank __arg_nonnull, __u32 run_place, __u32 operation)
{
	complete_here(rank, run_place, operation);
	return 0;
}

#endif
