/* Runs schedules: whatever may start is started, until nothing may. */
#ifndef INTERPRETER_H
#define INTERPRETER_H

#include "arithmetic.h"
#include "sending.h"

/* Operations of one activation. Later activations continue; a waiting rank starts one. */
#define STEPS 16384u

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
		/* There may be space for those that wait for some. */
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

/* Delivers a piece from another node. Returns NO_SPACE if it has to be sent again. */
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

/* There is space towards some node again. */
static void interpreter_resume(void)
{
	struct activation *here = activation();
	if (here)
		here->pending |= stalled_ranks;
}

#endif
