/* How long an activation works: about two milliseconds, whatever a rank wrote into its memory. */
#ifndef EFFORT_H
#define EFFORT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "layout.h"

/* What one activation of the program needs beside its stack. Nothing interrupts an activation on its processor, so one
 * for each processor is enough. */
struct activation {
	__u64 pending; /* ranks of this node that have something to do, a bit each */
	__u64 contended; /* somebody was turned away for want of a slot while another held the rank for a moment */
	__u64 deadline; /* when it is late; 0: nobody has looked at the time */
	__u64 effort; /* since somebody looked at the time */
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

/* So long an activation works after it has first looked at the time; then it leaves the rest to others, so that a rank
 * whose memory is full of garbage does not keep the processor from the packets of its neighbours. */
#define PATIENCE_NANOSECONDS 2000000ull
/* To look at the time takes as long as half an operation. So effort is counted, in rounds of short loops, of which each
 * takes a nanosecond or a few, and the time is looked at after so many: ten microseconds or a few times that. */
#define EFFORT_BETWEEN_LOOKS 4096u
/* That of an operation, and of a message that is sent or taken, without its bytes and without loops that are longer than
 * usual: those are counted where they are. */
#define EFFORT_OF_OPERATION 32u
#define EFFORT_OF_MESSAGE 256u
/* So many rounds of a loop, or bytes, belong to an operation. */
#define USUAL_ROUNDS 64u

/* Whether the activation has worked for long, by the clock. */
__noinline int is_late(void)
{
	struct activation *here = activation();
	if (!here)
		return 1;
	__u64 now = bpf_ktime_get_ns();
	if (!here->deadline)
		here->deadline = now + PATIENCE_NANOSECONDS;
	/* Who is late stays late: the next one is to look again. */
	int late = now > here->deadline;
	here->effort = late ? EFFORT_BETWEEN_LOOKS : 0;
	return late;
}

/* Whether the activation has worked for long, with this effort. */
static __always_inline int is_late_after(struct activation *here, __u64 effort)
{
	here->effort += effort;
	return here->effort >= EFFORT_BETWEEN_LOOKS && is_late();
}

/* The same for whoever has not looked up the activation. */
static __always_inline int is_late_after_message(void)
{
	struct activation *here = activation();
	return !here || is_late_after(here, EFFORT_OF_MESSAGE);
}

/* Counts the rounds of a loop that was longer than usual. 32 bits: no number of a rank's takes back what was counted. */
static __always_inline void count_rounds(__u32 rounds)
{
	if (rounds <= USUAL_ROUNDS)
		return;
	struct activation *here = activation();
	if (here)
		here->effort += rounds;
}

#endif
