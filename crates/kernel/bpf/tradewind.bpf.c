/* Entry points of the kernel engine's program: arriving packets execute schedules. */
#include "interpreter.h"

/* Runs for every packet that the interface receives. */
SEC("classifier/ingress")
int ingress(struct __sk_buff *skb)
{
	if (!wire_receive(skb))
		return PASS_ON;
	advance_pending(skb);
	return wire_verdict(skb, 1);
}

/* Argument instead of a rank: hand over the unexpected messages of a rank whose slots are full. */
#define HAND_OVER_UNEXPECTED 0xffffffffu

/* Runs when a rank has submitted runs, or has waited for long. A rank that names another rank's slot only advances that
 * rank's runs.
 *
 * It runs for every packet that leaves by the loopback interface, and takes the doorbells among them. Or a rank runs it by
 * BPF_PROG_TEST_RUN on an empty packet: `cb[0]` is its slot, `cb[1]` is one more than the rank to whose node a request is
 * sent, or HAND_OVER_UNEXPECTED. Returns twice the number of unanswered requests to that node, plus one if work is left. */
SEC("classifier/start")
int start(struct __sk_buff *skb)
{
	__u32 slot = skb->cb[0], asked = skb->cb[1] - 1, unanswered = 0, has_rung = skb->len > ETHERNET_BYTES;
	if (has_rung) {
		slot = wire_doorbell(skb) - 1;
		if (slot == ~0u)
			return PASS_ON;
	}
	struct activation *here = activation();
	struct rank_memory *rank = rank_of(slot);
	struct job *job_here = job();
	if (!here || !rank || !job_here)
		return has_rung ? DROP : 0;
	skb->cb[CARRIES_PACKET] = 0;
	if (!has_rung && asked == HAND_OVER_UNEXPECTED - 1 && acquire(slot)) {
		hand_over_unexpected(rank);
		release(slot);
	}
	here->pending |= 1ull << (slot & (LOCAL_RANKS - 1));
	if (has_rung) {
		/* Written only once: a store to an unchanged word would still take its cache line from other cores. */
		if (!rank->head.doorbell_seen)
			rank->head.doorbell_seen = 1;
		advance_pending(skb);
		return wire_verdict(skb, 0);
	}
	if (asked < job_here->ranks && asked < RANKS)
		unanswered = wire_request(skb, job_here->locations[asked].node);
	advance_pending(skb);
	wire_flush(skb);
	return 2 * unanswered + has_more(rank);
}

/* Run periodically by the process that has loaded the program. Returns the result of `wire_retransmit`, 16 bits each. */
SEC("classifier/retransmit")
int retransmit(struct __sk_buff *skb)
{
	skb->cb[CARRIES_PACKET] = 0;
	__u64 worst = wire_retransmit(skb);
	/* Acknowledgements that have arrived may allow suspended sends. */
	interpreter_resume();
	advance_pending(skb);
	wire_flush(skb);
	return (worst >> 32) << 16 | (worst & 0xffff);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
