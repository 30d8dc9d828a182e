/* Sends of runs, to ranks of this node and of others, and those that wait for space. */
#ifndef SENDING_H
#define SENDING_H

#include "matching.h"
#include "ranks.h"
#include "wire.h"

/* Brings a piece to a rank of this node, which gets its turn later. */
static __always_inline int bring(__u32 slot, struct message *message)
{
	struct activation *here = activation();
	struct rank_memory *rank = rank_of(slot);
	if (!here || !rank)
		return TAKEN; /* the rank has left */
	/* Whichever way the piece goes, `advance` visits the rank in this activation, or in the next one if the
	 * budget is spent. It then becomes the owner and finds the piece, or marks the rank, and the present
	 * owner finds the piece. */
	here->pending |= 1ull << (slot & (LOCAL_RANKS - 1));
	if (acquire(slot)) {
		int outcome = accept(rank, message, 0);
		if (release(slot))
			here->contended = 1;
		return outcome;
	}
	/* Without ownership no list of the rank may be changed but the stack of waiting messages. */
	__u32 kept = store(rank, message, SLOT_WAITING);
	if (kept) {
		leave_waiting(rank, kept);
		return TAKEN;
	}
	here->contended = 1;
	return NO_SPACE;
}

/* From whom to whom: the sender's slot, and above it the rank of the job that receives. */
static __always_inline __u64 route(__u32 slot, __u32 rank_to)
{
	return (__u64)rank_to << 32 | slot;
}

/* Fills in source, destination and piece of a header. */
static __always_inline void address(struct job *job_here, __u64 route, __u32 moved, __u32 length,
				    struct message_header *header)
{
	__u64 own = route;
	asm volatile("%0 &= %1" : "+r"(own) : "i"(LOCAL_RANKS - 1));
	header->destination = route >> 32;
	header->source = job_here->local_rank[own];
	header->offset = moved;
	header->length = length;
}

/* How long the next piece of a message is, of which so much is left. */
static __always_inline __u32 piece_of(struct job *job_here, __u32 rest)
{
	__u32 limit = job_here->piece_bytes;
	if (limit > PIECE_BYTES || !limit)
		limit = PIECE_BYTES;
	return rest < limit ? rest : limit;
}

/* Sends the remaining pieces of a message to another node. Returns true if all were sent; otherwise the window is full or
 * the budget is spent, and that is recorded. */
__noinline int send_away(struct __sk_buff *skb, struct rank_memory *rank __arg_nonnull, __u32 run_place, __u32 operation,
			 __u64 route)
{
	struct job *job_here = job();
	struct run *run = run_at(rank, run_place);
	struct progress *progress = progress_at(rank, run, operation);
	__u32 total = record_at(rank, run, operation)->bytes, rank_to = route >> 32, announced = 0;
	if (!job_here || rank_to >= RANKS)
		return 1;
	__u32 node = job_here->locations[rank_to].node;
	struct stream *stream = stream_to(node);
	if (!stream)
		return 1;
	/* `moved` is written after each piece, so a suspended send continues behind the pieces that have left. A
	 * message without bytes takes one round as well. */
	while (can_loop()) {
		__u32 moved = progress->moved, length = piece_of(job_here, total - moved);
		__u64 number = wire_claim(stream);
		if (!number) {
			if (announced)
				return 0;
			announce_stall(route);
			announced = 1;
			continue;
		}
		/* The packet a window before this one was acknowledged, or `wire_claim` would have found no space: its
		 * memory is free, and the claimed number makes this activation its only writer. */
		struct kept *kept = kept_packet(node, number);
		if (!kept)
			return 1;
		address(job_here, route, moved, length, &kept->packet.message.header);
		compose(rank, run_place, operation, &kept->packet.message);
		wire_post(skb, node, stream, kept, number);
		progress->moved = moved + length;
		if (moved + length == total)
			break;
		if (is_over_budget_after_message()) {
			announce_stall(route);
			return 0;
		}
	}
	return 1;
}

/* The same for a rank of this node. */
__noinline int send_here(struct rank_memory *rank __arg_nonnull, __u32 run_place, __u32 operation, __u64 route)
{
	struct job *job_here = job();
	struct activation *here = activation();
	struct run *run = run_at(rank, run_place);
	struct progress *progress = progress_at(rank, run, operation);
	__u32 total = record_at(rank, run, operation)->bytes, rank_to = route >> 32, slot = route, announced = 0;
	if (!job_here || !here || rank_to >= RANKS)
		return 1;
	__u32 slot_to = job_here->locations[rank_to].slot;
	struct message *message = &here->outgoing;
	while (can_loop()) {
		__u32 moved = progress->moved, length = piece_of(job_here, total - moved);
		address(job_here, route, moved, length, &message->header);
		compose(rank, run_place, operation, message);
		/* This activation owns the sending rank, so a message to itself is accepted at once: `bring` would
		 * find the rank owned and use a slot. */
		if (slot_to == slot ? accept(rank, message, 0) : bring(slot_to, message)) {
			if (announced)
				return 0;
			announce_stall(slot);
			announced = 1;
			continue;
		}
		progress->moved = moved + length;
		if (moved + length == total)
			break;
		if (is_over_budget_after(here, WORK_OF_MESSAGE)) {
			announce_stall(slot);
			return 0;
		}
	}
	return 1;
}

/* Sends the remaining pieces of a message. Returns true if all were sent. */
static __always_inline int send(struct __sk_buff *skb, struct rank_memory *rank, __u32 slot, __u32 run_place,
				__u32 operation)
{
	struct job *job_here = job();
	struct run *run = run_at(rank, run_place);
	__u32 rank_to = *AT(rank, __u32, run->members + 4 * record_at(rank, run, operation)->peer);
	if (!job_here || rank_to >= job_here->ranks || rank_to >= RANKS)
		return 1;
	if (job_here->locations[rank_to].node == job_here->node)
		return send_here(rank, run_place, operation, route(slot, rank_to));
	return send_away(skb, rank, run_place, operation, route(slot, rank_to));
}

/* Puts a send for which there was no space where it is found when there may be. */
static __always_inline void stall(struct rank_memory *rank, __u32 run_place, __u32 operation)
{
	struct run *run = run_at(rank, run_place);
	progress_at(rank, run, operation)->next = run->stalled_first;
	if (!run->stalled_first) {
		run->next_stalled = rank->head.stalled_first;
		rank->head.stalled_first = run_place;
	}
	run->stalled_first = operation + 1;
}

/* Lets all sends that found no space try again. */
__noinline int unstall(struct rank_memory *rank __arg_nonnull, __u32 slot)
{
	__u32 run_place = rank->head.stalled_first;
	__u64 bit = 1ull << (slot & (LOCAL_RANKS - 1));
	/* The record is cleared before the sends are tried. One that finds no space again renews it
	 * (`announce_stall`), so a record that appears meanwhile is never lost. */
	if (*(volatile __u64 *)&stalled_ranks & bit)
		__sync_fetch_and_and(&stalled_ranks, ~bit);
	rank->head.stalled_first = 0;
	/* One bound for both loops: all runs together have no more operations than the arena holds, and lists
	 * that a rank has made circular end as well. */
	__u32 seen = zero;
	for (; seen < OPERATIONS && run_place && can_loop(); seen++) {
		struct run *run = run_at(rank, run_place);
		__u32 next = run->next_stalled, operation = run->stalled_first;
		run->stalled_first = 0;
		for (; seen < OPERATIONS && operation && can_loop(); seen++) {
			__u32 after = progress_at(rank, run, operation - 1)->next;
			make_ready(rank, run, operation - 1);
			operation = after;
		}
		activate_run(rank, run_place);
		run_place = next;
	}
	count_rounds(seen);
	return 0;
}

#endif
