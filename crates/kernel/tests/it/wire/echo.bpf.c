/* The wire with an interpreter of its own that only takes notes, for tests of the wire alone. */
#include "../../../bpf/wire.h"

/* What arrived, and what the test wants. */
enum {
	DELIVERED,
	RESUMED,
	REFUSE, /* so many of the next messages find no space */
	TALLIES
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TALLIES);
	__uint(key_size, 4);
	__uint(value_size, 8);
} tallies SEC(".maps");

/* By the ordinal of a message: how often it was delivered, and 2^32 more for each time that it was not as it was sent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 17);
	__uint(key_size, 4);
	__uint(value_size, 8);
} deliveries SEC(".maps");

static __always_inline void add(void *map, __u32 which, __u64 amount)
{
	__u64 *value = bpf_map_lookup_elem(map, &which);
	if (value)
		__sync_fetch_and_add(value, amount);
}

/* The byte that a message with this ordinal has at a place. */
static __always_inline __u8 expected_byte(__u32 ordinal, __u32 place)
{
	return ordinal * 31 + place * 7;
}

static __always_inline int deliver(struct message *message)
{
	__u32 length = message->header.length, ordinal = message->header.ordinal, sound = 1, which = REFUSE;
	__u64 *refuse = bpf_map_lookup_elem(&tallies, &which);
	if (refuse && *refuse) {
		--*refuse;
		return 1;
	}
	for (__u32 i = zero; i < length && can_loop(); i++) {
		opaque(i);
		if (i >= PIECE_BYTES)
			break;
		if (message->payload[i] != expected_byte(ordinal, i))
			sound = 0;
	}
	add(&tallies, DELIVERED, 1);
	add(&deliveries, ordinal, sound ? 1 : 1ull << 32);
	return 0;
}

static void interpreter_resume(void)
{
	add(&tallies, RESUMED, 1);
}

SEC("classifier/ingress")
int ingress(struct __sk_buff *skb)
{
	return wire_receive(skb) ? wire_verdict(skb, 1) : PASS_ON;
}

/* cb[0]: node, cb[1]: ordinal, cb[2]: bytes, cb[3]: how many. Returns how many were sent. */
SEC("classifier/start")
int start(struct __sk_buff *skb)
{
	__u32 sent = zero;
	__u32 node = skb->cb[0], ordinal = skb->cb[1], length = skb->cb[2], many = skb->cb[3];
	skb->cb[CARRIES_PACKET] = 0;
	struct stream *stream = stream_to(node);
	if (!stream || length > PIECE_BYTES)
		return 0;
	for (; sent < many && can_loop(); sent++) {
		__u64 sequence = wire_claim(stream);
		struct kept *kept = kept_packet(node, sequence);
		if (!sequence || !kept)
			break;
		struct message *message = &kept->packet.message;
		message->header.length = length;
		message->header.ordinal = ordinal + sent;
		for (__u32 i = zero; i < length && can_loop(); i++) {
			opaque(i);
			if (i >= PIECE_BYTES)
				break;
			message->payload[i] = expected_byte(ordinal + sent, i);
		}
		wire_post(skb, node, stream, kept, sequence);
	}
	wire_flush(skb);
	return sent;
}

/* cb[0]: node. Returns the number of unanswered requests. */
SEC("classifier/ask")
int ask(struct __sk_buff *skb)
{
	__u32 node = skb->cb[0];
	skb->cb[CARRIES_PACKET] = 0;
	int unanswered = wire_request(skb, node);
	wire_flush(skb);
	return unanswered;
}

/* Returns the largest number of unanswered requests to one node. */
SEC("classifier/retransmit")
int retransmit(struct __sk_buff *skb)
{
	skb->cb[CARRIES_PACKET] = 0;
	int worst = wire_retransmit(skb);
	wire_flush(skb);
	return worst;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
