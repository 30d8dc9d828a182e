/* The kernel engine's program: a collective's schedule runs on the packets that arrive. */
#include "wire.h"

/* What becomes of a packet after the program; older headers do not have the names. */
enum { PASS_ON = -1, DROP = 2 };

/* Every packet that the interface receives. */
SEC("classifier/ingress")
int ingress(struct __sk_buff *skb)
{
	if (!wire_receive(skb))
		return PASS_ON;
	advance_pending(skb);
	return DROP;
}

/* Run by a rank (BPF_PROG_TEST_RUN) that has submitted runs: `cb[0]` is its slot. Whoever names another one has that
 * rank's runs looked after. Gives 1 if there is more to do than one call does. */
SEC("classifier/start")
int start(struct __sk_buff *skb)
{
	struct activation *here = activation();
	struct rank_memory *rank = rank_of(skb->cb[0]);
	if (!here || !rank)
		return 0;
	here->pending |= 1ull << (skb->cb[0] & (LOCAL_RANKS - 1));
	advance_pending(skb);
	return rank->head.active_first || rank->head.submitted;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
