/* Runs schedules: whatever may start is started, until nothing may. */
#ifndef INTERPRETER_H
#define INTERPRETER_H

#include "arithmetic.h"
#include "matching.h"
#include "wire.h"

/* Operations of one activation. Later activations continue; a waiting rank starts one. */
#define STEPS 16384u
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
	return NO_ROOM;
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
		/* The packet a window before this one was acknowledged, or `wire_claim` would have found no room: its
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

/* Puts a send for which there was no room where it is found when there may be. */
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

/* Lets all sends that found no room try again. */
__noinline int unstall(struct rank_memory *rank __arg_nonnull, __u32 slot)
{
	__u32 run_place = rank->head.stalled_first;
	__u64 bit = 1ull << (slot & (LOCAL_RANKS - 1));
	/* The record is cleared before the sends are tried. One that finds no room again renews it
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

/* Writes the time to the block of an operation. */
static __always_inline void record_time(struct rank_memory *rank, struct run *run, struct operation_record *record)
{
	struct cursor to = cursor_at(run, record->first_block, record->destination_count);
	if (cursor_rest(rank, &to))
		*AT(rank, __u64, cursor_place(rank, run, &to)) = bpf_ktime_get_ns();
}

/* Executes the first ready operation of the first active run. Returns true if there was one. */
static __always_inline int step(struct __sk_buff *skb, struct rank_memory *rank, __u32 slot)
{
	__u32 run_place = rank->head.active_first;
	if (!run_place)
		return 0;
	struct run *run = run_at(rank, run_place);
	/* A run that has failed while it was in the list only leaves it: none of its operations starts any more,
	 * whatever has become ready. */
	__u32 first = run->ready_first, operation = first - 1;
	int is_over = run->state != RUN_UNDER_WAY || !first;
	struct progress *progress = progress_at(rank, run, operation);
	if (!is_over)
		run->ready_first = progress->next;
	if (is_over || !run->ready_first) {
		rank->head.active_first = run->next_active;
		run->is_active = 0;
	}
	if (is_over)
		return 1;
	struct operation_record *record = record_at(rank, run, operation);
	/* The first time only. A suspended send comes here again in PHASE_RUNNING; its start has been recorded,
	 * and a second pass over its edges would satisfy dependencies twice. */
	if (progress->phase == PHASE_WAITING || progress->phase == PHASE_ARRIVED) {
		if (run->times)
			*AT(rank, __u64, run->times + 8 * operation) = bpf_ktime_get_ns();
		if (record->start_edge_count) {
			satisfy(rank, run, record->first_edge + record->edge_count, record->start_edge_count);
			if (run->ready_first)
				activate_run(rank, run_place);
		}
	}
	switch (record->kind) {
	case KIND_SEND:
		progress->phase = PHASE_RUNNING;
		if (send(skb, rank, slot, run_place, operation))
			break;
		stall(rank, run_place, operation);
		return 1;
	case KIND_RECEIVE:
		/* Nothing has arrived: the usual case needs no call. */
		if (!progress->slots && !(record->flags & (ANY_SOURCE | ANY_TAG))) {
			progress->phase = PHASE_RUNNING;
			return 1;
		}
		if (!post(rank, run_place, operation))
			return 1;
		break;
	case KIND_LOCAL:
		flush_pending_packet(skb);
		compute(rank, run, run_place, operation);
		break;
	case KIND_COPY:
		flush_pending_packet(skb);
		copy_lists(rank, run_place, operation);
		break;
	case KIND_TIMESTAMP:
		record_time(rank, run, record);
		break;
	/* A `calc` takes no time here, and completes as it starts (`limits.rs` admits no other). */
	}
	complete_here(rank, run_place, operation);
	return 1;
}

/* Returns true if work is left that no arriving message continues. */
static __always_inline int has_more(struct rank_memory *rank)
{
	struct rank_head *head = &rank->head;
	return head->active_first || head->submitted || head->submitted_before || head->waiting_first;
}

/* Does the work of a rank, as its owner. */
__noinline int work(struct __sk_buff *skb, struct rank_memory *rank __arg_nonnull, __u32 slot)
{
	struct activation *here = activation();
	__u32 submitted = rank->head.submitted_before;
	if (!here)
		return 0;
	/* A rank that pushes a run notifies the program afterwards, so no run is missed here. Full barrier:
	 * partner of the release in `Rank::submit`. The rest of a stack that an activation has left is taken
	 * first, so that there is at most one rest. */
	if (!submitted && *(volatile __u32 *)&rank->head.submitted)
		submitted = __sync_lock_test_and_set(&rank->head.submitted, 0);
	for (__u32 i = zero; i < WALK_LIMIT && submitted && can_loop(); i++) {
		if (is_over_budget_after(here, WORK_OF_MESSAGE))
			break;
		/* Read first: `begin` uses the link for the bucket. */
		__u32 next = run_at(rank, submitted)->next;
		begin(rank, submitted);
		submitted = next;
	}
	if (rank->head.submitted_before != submitted)
		rank->head.submitted_before = submitted;
	/* After the new runs have begun, so that messages for them find them and are not kept as unexpected. */
	if (rank->head.waiting_first)
		accept_waiting(rank);
	if (rank->head.stalled_first || *(volatile __u64 *)&stalled_ranks & 1ull << (slot & (LOCAL_RANKS - 1)))
		unstall(rank, slot);
	for (__u32 steps = zero; steps < STEPS && can_loop(); steps++)
		if (is_over_budget_after(here, WORK_OF_OPERATION) || !step(skb, rank, slot))
			break;
	if (has_more(rank))
		announce_stall(slot); /* so that it is done although nothing comes for the rank */
	return 0;
}

/* Wakes the rank if it sleeps and something is complete. */
static __always_inline void ring(struct __sk_buff *skb, struct rank_memory *rank, __u32 slot)
{
	if (!rank->head.completed)
		return;
	rank->head.completed = 0;
	/* Between the state of the run (`end_run`) and this load there is a full barrier. Partner: the fence in
	 * `RingWakeup::arm`, between the store of this word and the load of the state. So this load sees the
	 * sleeping thread, or the thread sees that the run is complete. */
	if (!rank->head.sleeping)
		return;
	/* Before the wake-up. Threads that set the word between the two statements are woken by the message, too:
	 * the one that polls the ring notifies all others. */
	rank->head.sleeping = 0;
	/* A wake-up takes long, so the pending packet leaves first. */
	wire_flush(skb);
	void *wakeup = bpf_map_lookup_elem(&wakeups, &slot);
	__u64 word = 1;
	if (wakeup)
		bpf_ringbuf_output(wakeup, &word, sizeof(word), BPF_RB_FORCE_WAKEUP);
}

/* Does the work of a rank unless another activation does. Returns true if suspended sends of other ranks may continue:
 * slots were freed, or the rank itself. */
static __always_inline int advance(struct __sk_buff *skb, __u32 slot)
{
	struct rank_memory *rank = rank_of(slot);
	__u32 progress = 0;
	if (!rank)
		return 0;
	for (__u32 i = zero; i < LOOKS && can_loop(); i++) {
		if (!acquire_or_leave_word(slot))
			return progress;
		work(skb, rank, slot);
		/* Read as the owner. Messages of other ranks may have found no slot before these were freed. */
		if (rank->head.freed) {
			rank->head.freed = 0;
			progress = 1;
		}
		ring(skb, rank, slot);
		if (!release(slot))
			return progress;
		progress = 1;
		if (is_over_budget())
			break;
	}
	/* The last release has taken a mark, so what the mark stands for is left to a later activation. */
	announce_stall(slot);
	return progress;
}

/* Works for all ranks that got something to do during this activation. */
static __always_inline void advance_pending(struct __sk_buff *skb)
{
	struct activation *here = activation();
	if (!here)
		return;
	/* Round after round over the ranks of the node: the work of one may bring messages to another. */
	for (__u32 i = zero; i < LOOKS * LOCAL_RANKS && here->pending && can_loop(); i++) {
		__u64 bit = 1ull << (i & (LOCAL_RANKS - 1));
		if (!(here->pending & bit))
			continue;
		/* The clock was read before only if there was much work. */
		if (here->deadline && is_over_budget())
			break;
		/* Before the work: a message that arrives for the rank meanwhile sets the bit again. */
		here->pending &= ~bit;
		if (!advance(skb, i & (LOCAL_RANKS - 1)) && !here->contended)
			continue;
		/* There may be room for those that wait for some. */
		here->contended = 0;
		here->pending |= stalled_ranks & ~bit;
	}
	/* Ranks that had no turn stay recorded for the next activation. */
	if (here->pending)
		__sync_fetch_and_or(&stalled_ranks, here->pending);
	/* The element belongs to the core: the next activation there starts from these values. */
	here->pending = 0;
	here->deadline = 0;
	here->work = 0;
}

/* Delivers a piece from another node. Returns NO_ROOM if it has to be sent again. */
static __always_inline int deliver(struct message *message)
{
	struct job *job_here = job();
	__u32 destination = message->header.destination;
	/* No node of this job sends such a message. It counts as taken: if it were refused, its sender would send
	 * it again for ever, and its number would hold back the window. */
	if (!job_here || destination >= job_here->ranks || destination >= RANKS ||
	    message->header.length > PIECE_BYTES)
		return TAKEN;
	struct location place = job_here->locations[destination];
	return place.node == job_here->node ? bring(place.slot, message) : TAKEN;
}

/* There is room towards some node again. */
static void interpreter_resume(void)
{
	struct activation *here = activation();
	if (here)
		here->pending |= stalled_ranks;
}

#endif
