/* The kernel engine's program: a collective's schedule runs on the packets that arrive. */
#include "interpreter.h"

/* Every packet that the interface receives. */
SEC("classifier/ingress")
int ingress(struct __sk_buff *skb)
{
	if (!wire_receive(skb))
		return PASS_ON;
	advance_pending(skb);
	return wire_verdict(skb, 1);
}

/* In the place of a rank to ask: a rank that has no room wants the messages for which it has no receive yet. */
#define GIVE_UNWANTED 0xffffffffu

/* Entered when a rank has submitted runs, or has waited in vain. Whoever names another slot has that rank's runs looked
 * after.
 *
 * Either a rank has rung: then every packet that leaves by the loopback interface comes along here, too. Or a rank has had
 * this run (BPF_PROG_TEST_RUN), on an empty packet: `cb[0]` is its slot, `cb[1]` one more than the rank whose node is to be
 * asked for what is missing, or GIVE_UNWANTED. Gives how many requests that node has left unanswered, times two, and one more
 * if there is
 * more to do than one call does. */
SEC("classifier/start")
int start(struct __sk_buff *skb)
{
	__u32 slot = skb->cb[0], asked = skb->cb[1] - 1, unanswered = 0, has_rung = skb->len > ETHERNET_BYTES;
	if (has_rung) {
		slot = wire_rung(skb) - 1;
		if (slot == ~0u)
			return PASS_ON;
	}
	struct activation *here = activation();
	struct rank_memory *rank = rank_of(slot);
	struct job *job_here = job();
	if (!here || !rank || !job_here)
		return has_rung ? DROP : 0;
	skb->cb[ENVELOPE] = 0;
	if (!has_rung && asked == GIVE_UNWANTED - 1 && acquire(slot)) {
		give_unwanted(rank);
		release(slot);
	}
	here->pending |= 1ull << (slot & (LOCAL_RANKS - 1));
	if (has_rung) {
		/* A word that does not change is not to be written: its line would have to leave other processors. */
		if (!rank->head.heard)
			rank->head.heard = 1;
		advance_pending(skb);
		return wire_verdict(skb, 0);
	}
	if (asked < job_here->ranks && asked < RANKS)
		unanswered = wire_ask(skb, job_here->places[asked].node);
	advance_pending(skb);
	wire_flush(skb);
	return 2 * unanswered + has_more(rank);
}

/* Run now and then by the process that has loaded this. Gives what `wire_tend` gives, as 16 bits each. */
SEC("classifier/tend")
int tend(struct __sk_buff *skb)
{
	skb->cb[ENVELOPE] = 0;
	__u64 worst = wire_tend(skb);
	/* What was asked for may have made room already. */
	interpreter_resume();
	advance_pending(skb);
	wire_flush(skb);
	return (worst >> 32) << 16 | (worst & 0xffff);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
