/* Time budget of an activation: about two milliseconds, whatever a rank wrote into its memory. */
#ifndef BUDGET_H
#define BUDGET_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "layout.h"

/* Data of an activation beside its stack. No other activation interrupts it on its core, so one element for each core is
 * enough. */
struct activation {
	__u64 pending; /* ranks of this node with work, a bit each */
	__u64 contended; /* a message found no slot while another activation owned its rank */
	__u64 deadline; /* end of the budget; 0: the clock was not read yet */
	__u64 work; /* since the last reading of the clock */
	struct message outgoing;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct activation));
} activations SEC(".maps");

static __always_inline struct activation *activation(void)
{
	__u32 key = 0;
	return bpf_map_lookup_elem(&activations, &key);
}

/* Budget from the first reading of the clock. Work beyond it is left to later activations, so that a rank with corrupt
 * memory cannot keep the core from the packets of its neighbours. */
#define BUDGET_NANOSECONDS 2000000ull
/* Reading the clock takes as long as half an operation. Work is therefore counted, in rounds of short loops of a few
 * nanoseconds each, and the clock is read after so many rounds: every ten to fifty microseconds. */
#define WORK_BETWEEN_CLOCK_READS 4096u
/* Work of an operation, and of a message sent or received, without its bytes and without long loops: those are counted
 * where they run. */
#define WORK_OF_OPERATION 32u
#define WORK_OF_MESSAGE 256u
/* Rounds of a loop, or bytes, that are included in the work of an operation. */
#define USUAL_ROUNDS 64u

/* Returns true if the budget is spent, by the clock. */
__noinline int is_over_budget(void)
{
	struct activation *here = activation();
	if (!here)
		return 1;
	__u64 now = bpf_ktime_get_ns();
	if (!here->deadline)
		here->deadline = now + BUDGET_NANOSECONDS;
	/* Once over budget, an activation stays so: the next check reads the clock again. */
	int is_over = now > here->deadline;
	here->work = is_over ? WORK_BETWEEN_CLOCK_READS : 0;
	return is_over;
}

/* Returns true if the budget is spent with this work. */
static __always_inline int is_over_budget_after(struct activation *here, __u64 work)
{
	here->work += work;
	return here->work >= WORK_BETWEEN_CLOCK_READS && is_over_budget();
}

/* The same, with a lookup of the activation. */
static __always_inline int is_over_budget_after_message(void)
{
	struct activation *here = activation();
	return !here || is_over_budget_after(here, WORK_OF_MESSAGE);
}

/* Counts the rounds of a long loop. `rounds` has 32 bits, so no value from a rank's memory can overflow the sum. */
static __always_inline void count_rounds(__u32 rounds)
{
	if (rounds <= USUAL_ROUNDS)
		return;
	struct activation *here = activation();
	if (here)
		here->work += rounds;
}

#endif
