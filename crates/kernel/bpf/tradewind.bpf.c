/* Entry point of the kernel engine's program: arriving packets and calls of ranks execute schedules.
 *
 * It is one program, so that the verifier examines its functions once; most of the time of a load is the verifier's. */
#include "interpreter.h"

/* Arguments instead of a rank: hand over the unexpected messages of a rank whose slots are full; request overdue
 * acknowledgements. */
#define HAND_OVER_UNEXPECTED 0xffffffffu
#define RETRANSMIT 0xfffffffeu

/* Results of `begin_call`, in its upper half: the activation is over; a doorbell has rung; the lower half is part of the result
 * for the caller of a test run, or all of it. */
enum { OVER, RUNG, CALLED, RETRANSMITTED };

static __always_inline __u64 begun(__u32 kind, __u32 value)
{
	return (__u64)kind << 32 | value;
}

/* A rank has submitted runs, or has waited for long. A rank that names another rank's slot only advances that rank's runs.
 *
 * This runs for every packet that leaves by the loopback interface, and takes the doorbells among them. Or a rank runs it by
 * BPF_PROG_TEST_RUN on an empty packet: `cb[0]` is its slot, `cb[1]` is one more than the rank to whose node a request is
 * sent, or one of the arguments above. A rank gains nothing by RETRANSMIT, because the rate of requests is limited.
 *
 * A function of its own, so that its frame is gone from the stack when the ranks advance. */
__noinline __u64 begin_call(struct __sk_buff *skb)
{
	__u32 slot = skb->cb[0], asked = skb->cb[1] - 1, unanswered = 0, has_rung = skb->len > ETHERNET_BYTES;
	if (has_rung) {
		slot = wire_doorbell(skb) - 1;
		if (slot == ~0u)
			return begun(OVER, PASS_ON);
	}
	struct activation *here = activation();
	struct rank_memory *rank = rank_of(slot);
	struct job *job_here = job();
	if (!here || !rank || !job_here)
		return begun(OVER, has_rung ? DROP : 0);
	skb->cb[CARRIES_PACKET] = 0;
	if (has_rung) {
		/* Written only once: a store to an unchanged word would still take its cache line from other cores. */
		if (!rank->head.doorbell_seen)
			rank->head.doorbell_seen = 1;
	} else if (asked == RETRANSMIT - 1) {
		__u64 worst = wire_retransmit(skb);
		/* Acknowledgements that have arrived may allow suspended sends. */
		interpreter_resume();
		return begun(RETRANSMITTED, (worst >> 32) << 16 | (worst & 0xffff));
	} else if (asked == HAND_OVER_UNEXPECTED - 1) {
		/* If the rank is owned, nothing is handed over, and the rank asks again after the next
		 * refusal. A mark may be ignored, because this activation works for the rank next (`pending`). */
		if (acquire(slot)) {
			hand_over_unexpected(rank);
			release(slot);
		}
	} else if (asked < job_here->ranks && asked < RANKS) {
		unanswered = wire_request(skb, job_here->locations[asked].node);
	}
	here->pending |= 1ull << (slot & (LOCAL_RANKS - 1));
	return begun(has_rung ? RUNG : CALLED, unanswered);
}

/* The result of a test run is twice the number of unanswered requests to the node that was asked, plus one if work is left;
 * after RETRANSMIT, it is the result of `wire_retransmit`, 16 bits each. */
SEC("classifier/tradewind")
int tradewind(struct __sk_buff *skb)
{
	/* The kernel notes the interface of every packet that arrives, before this program runs. A packet of this node that
	 * leaves by the loopback interface has none, nor has the empty packet of a test run. */
	if (skb->ingress_ifindex) {
		if (!wire_receive(skb))
			return PASS_ON;
		advance_pending(skb);
		return wire_verdict(skb, 1);
	}
	__u32 slot = skb->cb[0];
	__u64 call = begin_call(skb);
	if (call >> 32 == OVER)
		return (__u32)call;
	advance_pending(skb);
	if (call >> 32 == RUNG)
		return wire_verdict(skb, 0);
	wire_flush(skb);
	if (call >> 32 == RETRANSMITTED)
		return (__u32)call;
	struct rank_memory *rank = rank_of(slot);
	return 2 * (__u32)call + (rank && has_more(rank));
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
