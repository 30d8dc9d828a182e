/* Matching of messages and receives, and messages that wait for their receive.
 *
 * Matching is that of `goal::matching`: a message belongs to the receive that names its source, tag and ordinal. Only
 * one that no receive names is left for receives with a wildcard: it goes to the first of them in vertex order that is
 * posted and admits it, and a receive that is posted takes the earliest that it admits. */
#ifndef MATCHING_H
#define MATCHING_H

#include "progress.h"

/* Results of an offered message. */
enum {
	TAKEN,
	NO_SPACE, /* no slot is free: it has to be offered again */
};

static __always_inline __u32 receive_hash(__u32 source, __u32 tag, __u32 ordinal)
{
	__u32 hash = source * 0x9e3779b1u ^ tag * 0x85ebca77u ^ ordinal * 0xc2b2ae3du;
	return hash ^ hash >> 16;
}

/* The receive that names this message, plus one; 0 if none does. */
static __always_inline __u32 find_named(struct rank_memory *rank, struct run *run, struct message_header *header)
{
	__u32 hash = receive_hash(header->member, header->tag, header->ordinal), mask = run->receive_mask;
	__u32 found = 0, i = zero;
	/* Open addressing, as `receive_table` fills it. At least half of the entries are empty, so an empty one
	 * ends the search for a message that no receive names. Receives are never removed. */
	for (; i <= mask && i < WALK_LIMIT && can_loop(); i++) {
		__u32 entry = run->receives + (hash + i & mask) * sizeof(struct named_receive);
		struct named_receive *named = AT(rank, struct named_receive, entry);
		if (!named->operation)
			break;
		if (named->source == header->member && named->tag == header->tag && named->ordinal == header->ordinal) {
			found = named->operation;
			break;
		}
	}
	count_rounds(i);
	return found;
}

/* The place of the run that a message belongs to; 0 if the rank has not started it. */
static __always_inline __u32 find_run(struct rank_memory *rank, struct message_header *header)
{
	__u32 place = *bucket_at(rank, header->communicator, header->sequence), i = zero;
	for (; i < WALK_LIMIT && place && can_loop(); i++) {
		struct run *run = run_at(rank, place);
		if (run->communicator == header->communicator && run->sequence == header->sequence)
			break;
		place = run->next;
	}
	count_rounds(i);
	return place;
}

/* Copies a message to a free slot among `count` from `first` on, searched from `hint`. Returns the slot plus one, or 0 if
 * none is free. The exchange from FREE to FILLING claims a slot. */
static __always_inline __u32 store_among(struct rank_memory *rank, struct message *message, __u32 state, __u32 first,
					 __u32 count, __u32 *hint)
{
	/* Several cores read and write the hint without an order. Any value is a valid start: the mask brings it
	 * into range, and the loop visits each of the `count` slots once. */
	__u32 start = *hint, i = zero;
	for (; i < count && can_loop(); i++) {
		__u32 place = start + i & (count - 1);
		struct slot *slot = slot_at(rank, first + place);
		/* The load avoids exchanges that fail, which would take cache lines from cores that use the slots.
		 * The exchange is a full barrier, so the copy below comes after the last read of the former message.
		 * Partner: the exchange in `slot_free`, or the release in `UnexpectedMessages::take_handed_over`. */
		if (slot->state != SLOT_FREE ||
		    __sync_val_compare_and_swap(&slot->state, SLOT_FREE, SLOT_FILLING) != SLOT_FREE)
			continue;
		slot->next = 0;
		slot->message.header = message->header;
		copy_bytes(slot->message.payload, message->payload, message->header.length);
		*hint = place + 1;
		/* A full barrier: the message is complete before the new state is visible. From here on
		 * the slot is reached by a list: the caller puts a KEPT one into it as the rank's owner, and pushes
		 * a WAITING one with `leave_waiting`. */
		__sync_lock_test_and_set(&slot->state, state);
		count_rounds(i);
		return first + place + 1;
	}
	count_rounds(i);
	return 0;
}

/* Stores a message in a slot. Returns the slot plus one, or 0 if none is free. Needs no ownership of the rank. */
__noinline int store(struct rank_memory *rank __arg_nonnull, struct message *message __arg_nonnull, __u32 state)
{
	struct rank_head *head = &rank->head;
	__u32 slot = 0, length = message->header.length;
	if (length <= SMALL_BYTES)
		slot = store_among(rank, message, state, LARGE_SLOTS + MIDDLE_SLOTS, SMALL_SLOTS, &head->next_small);
	if (!slot && length <= MIDDLE_BYTES)
		slot = store_among(rank, message, state, LARGE_SLOTS, MIDDLE_SLOTS, &head->next_middle);
	if (!slot)
		slot = store_among(rank, message, state, 0, LARGE_SLOTS, &head->next_large);
	/* Several cores may count at once and lose an increment. The rank compares the count with an earlier one
	 * only (`has_refused`), and a refused message is offered again and counted again. */
	if (!slot)
		head->refused++;
	return slot;
}

/* Returns true if a receive with a wildcard admits a message. */
static __always_inline int admits(struct operation_record *record, struct message_header *header)
{
	return (record->flags & ANY_SOURCE || record->peer == header->member) &&
	       (record->flags & ANY_TAG || record->tag == header->tag);
}

/* Copies a piece of a message to its posted receive. Returns true if the receive is complete. */
static __always_inline int take(struct rank_memory *rank, __u32 run_place, __u32 operation, struct message *message)
{
	struct run *run = run_at(rank, run_place);
	struct operation_record *record = record_at(rank, run, operation);
	struct progress *progress = progress_at(rank, run, operation);
	if (message->header.total != record->bytes) {
		run->fault_vertex = record->vertex;
		run->fault_source = message->header.member;
		run->fault_tag = message->header.tag;
		run->fault_ordinal = message->header.ordinal;
		run->fault_sent = message->header.total;
		run->fault_expected = record->bytes;
		fail(rank, run_place, FAULT_SIZES);
		return 0;
	}
	/* Pieces state their offset and arrive in any order, each once (`receive_data`): so the number of bytes
	 * is enough to find the end. A message without bytes is one piece, and complete with it. */
	scatter(rank, run_place, operation, message);
	progress->moved += message->header.length;
	return progress->moved >= message->header.total;
}

/* Returns true if a receive with a wildcard has received pieces of this message. */
static __always_inline int is_taking(struct progress *progress, struct message_header *header)
{
	return progress->source == header->member && progress->tag == header->tag &&
	       progress->ordinal == header->ordinal;
}

/* Takes an operation out of one of the two lists of receives with a wildcard. */
static __always_inline void unlink_receive(struct rank_memory *rank, struct run *run, __u32 *first, __u32 operation)
{
	__u32 next = progress_at(rank, run, operation)->next, at = *first;
	if (at == operation + 1) {
		*first = next;
		return;
	}
	__u32 i = zero;
	for (; i < WALK_LIMIT && at && can_loop(); i++) {
		struct progress *progress = progress_at(rank, run, at - 1);
		if (progress->next == operation + 1) {
			progress->next = next;
			break;
		}
		at = progress->next;
	}
	count_rounds(i);
}

/* The receive with a wildcard that takes a piece of a message, plus one: the one that has begun to, or else the first
 * in vertex order that waits and admits it. 0 if there is none. */
__noinline __u32 find_wild(struct rank_memory *rank __arg_nonnull, __u32 run_place,
			   struct message *message __arg_nonnull)
{
	struct run *run = run_at(rank, run_place);
	struct message_header *header = &message->header;
	__u32 at = run->taking_first;
	__u32 i = zero, taking = 0;
	for (; i < WALK_LIMIT && at && !taking && can_loop(); i++) {
		struct progress *progress = progress_at(rank, run, at - 1);
		if (is_taking(progress, header))
			taking = at;
		at = progress->next;
	}
	count_rounds(i);
	if (taking)
		return taking;
	__u32 best = 0, best_vertex = 0;
	i = zero;
	at = run->posted_first;
	for (; i < WALK_LIMIT && at && can_loop(); i++) {
		struct operation_record *record = record_at(rank, run, at - 1);
		if (admits(record, header) && (!best || record->vertex < best_vertex)) {
			best = at;
			best_vertex = record->vertex;
		}
		at = progress_at(rank, run, at - 1)->next;
	}
	count_rounds(i);
	if (!best)
		return 0;
	/* From here on the receive is bound to this message. Its other pieces find it in the second list; no
	 * other message does. */
	struct progress *progress = progress_at(rank, run, best - 1);
	unlink_receive(rank, run, &run->posted_first, best - 1);
	progress->source = header->member;
	progress->tag = header->tag;
	progress->ordinal = header->ordinal;
	progress->next = run->taking_first;
	run->taking_first = best;
	return best;
}

/* Keeps a message of which the rank has not started the run. */
static __always_inline void keep_unexpected(struct rank_memory *rank, struct message_header *header, __u32 slot)
{
	__u64 bucket = run_hash(header->communicator, header->sequence);
	asm volatile("%0 &= %1" : "+r"(bucket) : "i"(UNEXPECTED_BUCKETS - 1));
	slot_at(rank, slot - 1)->next = 0;
	if (rank->unexpected_first[bucket])
		slot_at(rank, rank->unexpected_last[bucket] - 1)->next = slot;
	else
		rank->unexpected_first[bucket] = slot;
	rank->unexpected_last[bucket] = slot;
}

/* Keeps a message for receives with a wildcard. */
static __always_inline void keep_unmatched(struct rank_memory *rank, struct run *run, __u32 slot)
{
	slot_at(rank, slot - 1)->next = 0;
	if (run->unmatched_first)
		slot_at(rank, run->unmatched_last - 1)->next = slot;
	else
		run->unmatched_first = slot;
	run->unmatched_last = slot;
}

/* Returns true if the source is the stated member of the communicator and both signatures are equal. */
static __always_inline int belongs(struct rank_memory *rank, __u32 run_place, struct message_header *header)
{
	struct run *run = run_at(rank, run_place);
	if (header->member >= run->member_count || *AT(rank, __u32, run->members + 4 * header->member) != header->source)
		return 0;
	if (header->signature == run->signature)
		return 1;
	run->fault_source = header->member;
	run->fault_sent = header->signature;
	run->fault_expected = run->signature;
	fail(rank, run_place, FAULT_SIGNATURES);
	return 0;
}

/* Finds a message its receive, or keeps it. It lies in a slot (`slot`, plus one) or elsewhere (0). Called by the rank's
 * owner only. */
__noinline int accept(struct rank_memory *rank __arg_nonnull, struct message *message __arg_nonnull, __u32 slot)
{
	struct message_header *header = &message->header;
	__u32 run_place = find_run(rank, header), operation = 0, wild = 0;
	struct run *run = run_at(rank, run_place);
	if (run_place) {
		/* Of the runs that have ended, only the failed ones are still registered. */
		if (run->state != RUN_UNDER_WAY || !belongs(rank, run_place, header)) {
			rank->head.dropped++;
			goto done;
		}
		operation = find_named(rank, run, header);
		if (!operation)
			wild = operation = find_wild(rank, run_place, message);
	}
	if (operation) {
		struct progress *progress = progress_at(rank, run, operation - 1);
		if (progress->phase == PHASE_COMPLETE) {
			rank->head.dropped++;
			goto done;
		}
		if (progress->phase == PHASE_RUNNING) {
			/* The receive leaves its list before `complete`: that may end the run, whose memory is the
			 * rank's from then on. */
			if (take(rank, run_place, operation - 1, message)) {
				if (wild)
					unlink_receive(rank, run, &run->taking_first, operation - 1);
				complete(rank, run_place, operation - 1);
			}
			goto done;
		}
	}
	if (!slot)
		slot = store(rank, message, SLOT_KEPT);
	else
		slot_at(rank, slot - 1)->state = SLOT_KEPT;
	if (!slot)
		return NO_SPACE;
	if (operation) {
		/* Only a receive that names its message gets here: one with a wildcard is found when it is posted.
		 * The latest piece comes first in the list, since pieces may be taken in any order. */
		struct progress *progress = progress_at(rank, run, operation - 1);
		progress->phase = PHASE_ARRIVED;
		slot_at(rank, slot - 1)->next = progress->slots;
		progress->slots = slot;
	} else if (run_place) {
		keep_unmatched(rank, run, slot);
	} else {
		keep_unexpected(rank, header, slot);
	}
	return TAKEN;
done:
	if (slot)
		slot_free(rank, slot - 1);
	return TAKEN;
}

/* Receives the arrived pieces for a receive without wildcards. Returns true if it is complete. */
static __always_inline int take_arrived(struct rank_memory *rank, __u32 run_place, __u32 operation)
{
	struct run *run = run_at(rank, run_place);
	struct progress *progress = progress_at(rank, run, operation);
	__u32 slot = progress->slots, done = 0;
	progress->slots = 0;
	for (__u32 i = zero; i < SLOTS && slot && can_loop(); i++) {
		if (is_over_budget_after_message()) {
			/* The receive is posted already, so `accept` takes these pieces when their turn comes. */
			postpone(rank, slot);
			break;
		}
		__u32 next = slot_at(rank, slot - 1)->next;
		/* After a fault the rest is dropped: `fail` no longer finds the list, which was detached above. */
		if (run->state == RUN_UNDER_WAY && take(rank, run_place, operation, &slot_at(rank, slot - 1)->message))
			done = 1;
		slot_free(rank, slot - 1);
		slot = next;
	}
	return done;
}

/* Receives the arrived pieces of the earliest message that a receive with a wildcard admits. Returns true if it is
 * complete. */
static __always_inline int take_left(struct rank_memory *rank, __u32 run_place, __u32 operation)
{
	struct run *run = run_at(rank, run_place);
	struct operation_record *record = record_at(rank, run, operation);
	struct progress *progress = progress_at(rank, run, operation);
	__u32 slot = run->unmatched_first, before = 0, found = 0, done = 0;
	/* A message of another length ends the run, and its lists with it. */
	for (__u32 i = zero; i < SLOTS && slot && !done && run->state == RUN_UNDER_WAY && can_loop(); i++) {
		struct slot *kept = slot_at(rank, slot - 1);
		struct message_header *header = &kept->message.header;
		__u32 next = kept->next;
		if (found ? !is_taking(progress, header) : !admits(record, header)) {
			before = slot;
			slot = next;
			continue;
		}
		if (!found) {
			found = 1;
			progress->source = header->member;
			progress->tag = header->tag;
			progress->ordinal = header->ordinal;
		}
		if (before)
			slot_at(rank, before - 1)->next = next;
		else
			run->unmatched_first = next;
		if (run->unmatched_last == slot)
			run->unmatched_last = before;
		if (is_over_budget_after_message()) {
			/* The receive has begun to take this message: its pieces find it. */
			kept->next = 0;
			postpone(rank, slot);
			slot = next;
			continue;
		}
		if (take(rank, run_place, operation, &kept->message))
			done = 1;
		slot_free(rank, slot - 1);
		slot = next;
	}
	if (done)
		return 1;
	/* Bound to a message of which pieces are missing, or free for the next message that it admits. */
	__u32 *list = found ? &run->taking_first : &run->posted_first;
	progress->next = *list;
	*list = operation + 1;
	return 0;
}

/* Posts a receive. Returns true if its message has arrived completely. */
__noinline int post(struct rank_memory *rank __arg_nonnull, __u32 run_place, __u32 operation)
{
	struct run *run = run_at(rank, run_place);
	struct operation_record *record = record_at(rank, run, operation);
	progress_at(rank, run, operation)->phase = PHASE_RUNNING;
	if (record->flags & (ANY_SOURCE | ANY_TAG))
		return take_left(rank, run_place, operation);
	return take_arrived(rank, run_place, operation);
}

/* Registers a submitted run and matches the messages that arrived before it. */
__noinline int begin(struct rank_memory *rank __arg_nonnull, __u32 run_place)
{
	struct run *run = run_at(rank, run_place);
	__u32 *bucket = bucket_at(rank, run->communicator, run->sequence);
	/* Before the messages are matched: `accept` finds the run in its bucket. */
	run->next = *bucket;
	*bucket = run_place;
	if (!run->operation_count) {
		finish(rank, run_place);
		return 0;
	}
	__u64 unexpected = run_hash(run->communicator, run->sequence);
	asm volatile("%0 &= %1" : "+r"(unexpected) : "i"(UNEXPECTED_BUCKETS - 1));
	__u32 slot = rank->unexpected_first[unexpected];
	if (slot)
		rank->unexpected_first[unexpected] = 0;
	/* `accept` puts messages of other runs back, in the same order. */
	for (__u32 i = zero; i < SLOTS && slot && can_loop(); i++) {
		if (is_over_budget_after_message()) {
			postpone(rank, slot);
			break;
		}
		__u32 next = slot_at(rank, slot - 1)->next;
		accept(rank, &slot_at(rank, slot - 1)->message, slot);
		slot = next;
	}
	if (run->ready_first)
		activate_run(rank, run_place);
	return 0;
}

/* Hands a list of messages over to the rank. Returns their number plus `handed_over`, at most the number of slots. */
static __always_inline __u32 hand_over_list(struct rank_memory *rank, __u32 slot, __u32 before)
{
	while (before < SLOTS && slot && can_loop()) {
		struct slot *kept = slot_at(rank, slot - 1);
		slot = kept->next;
		/* The link was read before: the rank may free the slot at once. A full barrier. Partner: the load
		 * in `UnexpectedMessages::take_handed_over`. */
		__sync_lock_test_and_set(&kept->state, SLOT_HANDED_OVER);
		before++;
	}
	return before;
}

/* Hands unexpected messages over to the rank. A waiting rank requests this when messages find no slot: the message that it
 * waits for may queue behind unexpected ones. The rank puts them back later. */
__noinline int hand_over_unexpected(struct rank_memory *rank __arg_nonnull)
{
	__u32 handed_over = zero, seen = zero;
	for (__u32 i = zero; i < UNEXPECTED_BUCKETS && can_loop(); i++) {
		__u64 bucket = i;
		asm volatile("%0 &= %1" : "+r"(bucket) : "i"(UNEXPECTED_BUCKETS - 1));
		handed_over = hand_over_list(rank, rank->unexpected_first[bucket], handed_over);
		rank->unexpected_first[bucket] = 0;
	}
	for (__u32 i = zero; i < RUN_BUCKETS && can_loop(); i++) {
		__u64 bucket = i;
		asm volatile("%0 &= %1" : "+r"(bucket) : "i"(RUN_BUCKETS - 1));
		__u32 place = rank->run_buckets[bucket];
		for (; seen < OPERATIONS && place && can_loop(); seen++) {
			struct run *run = run_at(rank, place);
			handed_over = hand_over_list(rank, run->unmatched_first, handed_over);
			run->unmatched_first = 0;
			for (__u32 j = zero; j < run->operation_count && seen < OPERATIONS && can_loop(); j++, seen++) {
				struct progress *progress = progress_at(rank, run, j);
				if (progress->phase != PHASE_ARRIVED)
					continue;
				handed_over = hand_over_list(rank, progress->slots, handed_over);
				progress->slots = 0;
				/* As before the first piece: `take` has not counted any of them. */
				progress->phase = PHASE_WAITING;
			}
			place = run->next;
		}
	}
	return 0;
}

/* Accepts messages that activations without ownership put into slots, in the order in which they were put there. A
 * message arrives when `accept` sees it. Another activation may own the rank before this and accept a later packet first,
 * as packets overtake each other in the network. No result depends on that: a message that is named finds its receive by
 * its name, and wildcards promise no order of messages that are under way at once (`goal::matching`). */
__noinline int accept_waiting(struct rank_memory *rank __arg_nonnull)
{
	/* Partner: `leave_waiting`. */
	__u32 slot = __sync_lock_test_and_set(&rank->head.waiting_first, 0), first = 0;
	/* The latest message is on top of the stack. */
	for (__u32 i = zero; i < SLOTS && slot && can_loop(); i++) {
		__u32 next = slot_at(rank, slot - 1)->next;
		slot_at(rank, slot - 1)->next = first;
		first = slot;
		slot = next;
	}
	for (__u32 i = zero; i < SLOTS && first && can_loop(); i++) {
		if (is_over_budget_after_message()) {
			postpone(rank, first);
			break;
		}
		/* The link is read before `accept`, which uses it for another list. */
		struct slot *kept = slot_at(rank, first - 1);
		slot = first;
		first = kept->next;
		if (__sync_val_compare_and_swap(&kept->state, SLOT_WAITING, SLOT_KEPT) == SLOT_WAITING)
			accept(rank, &kept->message, slot);
	}
	return 0;
}

#endif
