/* Pieces of messages between nodes, over a network that loses, repeats, reorders and forges packets.
 *
 * Between any two nodes there are two streams of numbered data packets, one in each direction. Every packet
 * acknowledges the other stream; unacknowledged packets are kept. There are no timers: a rank that waits for long
 * sends the other node a request (`wire_request`), and both nodes resend missing packets. Packets are delivered in
 * any order: a message names its receive. `src/wire.rs` describes the
 * protocol.
 *
 * The including file defines the two functions that are declared first. */
#ifndef WIRE_H
#define WIRE_H

#include "datagram.h"

/* Accepts a message that has arrived. Returns 0, or another value if there is no slot for it. */
static __always_inline int deliver(struct message *message);
/* Resumes sends that were refused. */
static void interpreter_resume(void);

/* Verdicts of the program; older headers do not have the names. */
enum { PASS_ON = -1, DROP = 2 };

/* Intervals of unanswered requests: 1/4 ms, doubled up to 128 ms. */
#define REQUEST_NANOSECONDS 250000ull
#define REQUEST_DOUBLINGS 9

/* Outgoing packets reuse the received skb. A packet stays in it until another one needs it or the activation ends: the
 * last one leaves as the skb itself, without a clone. This word of its control block is set while it contains one. */
#define CARRIES_PACKET 2

/* Sends the packet in the skb, if there is one, as a clone. Called before long work, so that the packet does not wait
 * for it. */
__noinline int wire_flush(struct __sk_buff *skb)
{
	struct wire *here = wire();
	if (!skb->cb[CARRIES_PACKET] || !here)
		return 0;
	skb->cb[CARRIES_PACKET] = 0;
	return bpf_clone_redirect(skb, here->interface, 0);
}

/* The same, without a call if there is nothing to send. */
static __always_inline void flush_pending_packet(struct __sk_buff *skb)
{
	if (skb->cb[CARRIES_PACKET])
		wire_flush(skb);
}

/* Returns the verdict on the skb at the end of an activation. An skb that was received on one end of a veth pair can
 * continue at the other end; one that was about to leave cannot. */
static __always_inline int wire_verdict(struct __sk_buff *skb, int has_arrived)
{
	struct wire *here = wire();
	if (!skb->cb[CARRIES_PACKET] || !here)
		return DROP;
	return has_arrived && here->leaves_at_peer ? bpf_redirect_peer(here->interface, 0) :
						     bpf_redirect(here->interface, 0);
}

/* Puts a finished packet into the skb. */
static __always_inline int put_into_skb(struct __sk_buff *skb, struct packet *packet)
{
	struct wire *here = wire();
	__u32 length = packet->header.length;
	if (!here)
		return -1;
	opaque(length);
	if (length > LONGEST_MESSAGE)
		return -1;
	flush_pending_packet(skb);
	__u32 network = here->protocol == bpf_htons(ETH_P_IPV6) ? ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES :
								  ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES;
	__u32 bytes = network + sizeof(struct wire_header) + length;
	/* Most packets are as long as the one before. An skb that the driver merged from several packets (GRO) has its
	 * length changed, which undoes the merge. */
	if (((skb->len != bytes || skb->gso_size) && bpf_skb_change_tail(skb, bytes, 0)) ||
	    bpf_skb_store_bytes(skb, 0, packet->network + NETWORK_BYTES - network, bytes, 0))
		return -1;
	skb->cb[CARRIES_PACKET] = 1;
	return 0;
}

/* The same, out of line, for rare packets. */
__noinline int transmit(struct __sk_buff *skb, struct packet *packet __arg_nonnull)
{
	return put_into_skb(skb, packet);
}

/* Fills in the fields that differ between packets of a stream. Returns the number of packets that it acknowledges. */
static __always_inline __u64 fill_header(struct packet *packet, struct stream *stream, __u32 flags, __u64 sequence,
					 __u32 length)
{
	struct wire_header *header = &packet->header;
	__u64 expected = *(volatile __u64 *)&stream->expected;
	header->sequence = sequence;
	header->acknowledged = WINDOW + expected;
	header->length = length;
	header->flags = flags;
	/* Not atomic: two cores may leave the lower value. That costs an acknowledgement more (`receive`). */
	stream->reported = expected;
	return expected;
}

/* Returns true if the window admits another packet. The two words are read one after the other, so the
 * answer may be outdated; the claim of a number decides. */
static __always_inline int has_space(struct stream *stream)
{
	return *(volatile __u64 *)&stream->sent - *(volatile __u64 *)&stream->acknowledged < WINDOW;
}

/* Returns the number of the next packet; 0 if the window is full. */
static __always_inline __u64 claim(struct stream *stream)
{
	for (__u32 i = zero; i < WALK_LIMIT && can_loop(); i++) {
		__u64 sent = *(volatile __u64 *)&stream->sent;
		/* `sent` is read before `acknowledged`, which only grows: the window has at least the space computed here.
		 * The exchange fails if another activation has claimed the number meanwhile. */
		if (sent - *(volatile __u64 *)&stream->acknowledged >= WINDOW)
			return 0;
		if (__sync_val_compare_and_swap(&stream->sent, sent, sent + 1) == sent)
			return WINDOW + sent;
	}
	return 0;
}

/* Returns the number of the next message to a node, to be written into its `kept_packet` and then posted. 0 if the
 * window is full: `interpreter_resume` is called when the send can be retried. */
static __always_inline __u64 wire_claim(struct stream *stream)
{
	__u64 sequence = claim(stream);
	if (sequence)
		return sequence;
	/* A full barrier between the store of `held` and the second claim. The activation that acknowledges writes
	 * `acknowledged`, then reads `held`: either it sees the flag, or the second claim sees the free space. */
	__sync_lock_test_and_set(&stream->held, 1);
	sequence = claim(stream);
	if (!sequence)
		count(COUNT_HELD);
	return sequence;
}

/* Sends the message of a claimed number. The packet is kept until it is acknowledged. */
static __always_inline void wire_post(struct __sk_buff *skb, __u32 node, struct stream *stream, struct kept *kept,
				       __u64 sequence)
{
	struct peer *peer = bpf_map_lookup_elem(&peers, &node);
	struct packet *packet = &kept->packet;
	__u32 length = packet->message.header.length;
	opaque(length);
	if (!peer || length > PIECE_BYTES)
		return;
	fill_header(packet, stream, WIRE_DATA, sequence, sizeof(struct message_header) + length);
	finish_packet(packet, peer);
	/* A full barrier: the packet is complete before its number appears. From here on other activations may resend it.
	 * Partner: the exchange in `resend`. Between the claim and this exchange a request finds the number of a
	 * lap before, and resends nothing. */
	__sync_lock_test_and_set(&kept->sequence, sequence);
	count(COUNT_SENT);
	/* A failure is like a loss on the network: the packet is resent on request. */
	put_into_skb(skb, packet);
}

/* Returns the word of a packet in `laps` after its arrival. */
static __always_inline __u64 lap_of(__u64 sequence)
{
	return sequence / WINDOW * 2;
}

static __always_inline __u64 *lap_at(struct stream *stream, __u64 sequence)
{
	asm volatile("%0 &= %1" : "+r"(sequence) : "i"(WINDOW - 1));
	return &stream->laps[sequence];
}

/* Returns the packets that have arrived, a bit each, behind so many without a gap. */
static __always_inline __u64 arrivals(struct stream *stream, __u64 expected)
{
	__u64 first = WINDOW + expected, arrived = 0;
	/* An odd word belongs to a packet that is being delivered, and counts as missing: if it is resent, the
	 * other copy is dropped as a duplicate. */
	for (__u32 i = zero; i < WINDOW && can_loop(); i++)
		if (*(volatile __u64 *)lap_at(stream, first + i) == lap_of(first + i))
			arrived |= 1ull << (i & 63);
	return arrived;
}

/* Sends a packet without a message. */
__noinline int send_control(struct __sk_buff *skb, __u32 node, __u32 flags, __u64 sequence)
{
	struct stream *stream = stream_to(node);
	struct peer *peer = bpf_map_lookup_elem(&peers, &node);
	struct packet *packet = scratch_packet(CONTROL);
	if (!stream || !peer || !packet)
		return 0;
	__u64 expected = fill_header(packet, stream, flags, sequence, flags ? sizeof(packet->arrived) : 0);
	/* The bits count from the acknowledgement in the same header. From a second reading of `expected`, which
	 * grows meanwhile, they would name later packets: a lost one would count as arrived. */
	packet->arrived = flags ? arrivals(stream, expected) : 0;
	finish_packet(packet, peer);
	transmit(skb, packet);
	return 0;
}

/* Notes that the other node is alive. Only new packets prove that: a stranger can replay old ones. */
static __always_inline void note_alive(struct stream *stream)
{
	if (*(volatile __u32 *)&stream->unanswered)
		*(volatile __u32 *)&stream->unanswered = 0;
}

/* Sends a request: which packets have arrived here, and the question which have arrived there. Does nothing too soon
 * after the last request. Returns the number of unanswered requests. */
__noinline int wire_request(struct __sk_buff *skb, __u32 node)
{
	struct wire *here = wire();
	struct stream *stream = stream_to(node);
	if (!here || !stream || node == here->node || node >= here->nodes)
		return 0;
	__u64 now = bpf_ktime_get_ns(), before = *(volatile __u64 *)&stream->requested_at;
	__u32 unanswered = *(volatile __u32 *)&stream->unanswered;
	__u32 doublings = unanswered < REQUEST_DOUBLINGS ? unanswered : REQUEST_DOUBLINGS;
	/* The exchange fails for all but one of the activations that request at the same time. */
	if (now - before < REQUEST_NANOSECONDS << doublings ||
	    __sync_val_compare_and_swap(&stream->requested_at, before, now) != before)
		return unanswered;
	/* Read before the request leaves: packets from this number on may have left after it, so the answer says
	 * nothing about them. An earlier one that the answer does not list is lost, or the request has overtaken
	 * it; then the other node drops the second copy. */
	stream->sent_at_request = *(volatile __u64 *)&stream->sent;
	__sync_fetch_and_add(&stream->unanswered, 1);
	count(COUNT_REQUESTED);
	send_control(skb, node, WIRE_REQUEST, __sync_fetch_and_add(&stream->requested, 1) + 1);
	return unanswered + 1;
}

/* Sends requests to nodes that have not acknowledged packets since the last call: a packet may be lost for which no
 * rank waits. Called periodically. Returns the largest number of unanswered requests, and in the upper half its node. */
__noinline __u64 wire_retransmit(struct __sk_buff *skb)
{
	struct wire *here = wire();
	__u64 worst = 0;
	for (__u32 i = zero; here && i < here->nodes && i < NODES && can_loop(); i++) {
		__u32 node = i;
		struct stream *stream = stream_to(node);
		if (!stream)
			break;
		/* A packet that was sent before the last call has had a period of the `Retransmitter` for its way and
		 * the acknowledgement. */
		__u64 before = stream->sent_at_check;
		stream->sent_at_check = *(volatile __u64 *)&stream->sent;
		if (*(volatile __u64 *)&stream->acknowledged >= before)
			continue;
		__u32 unanswered = wire_request(skb, node);
		if (unanswered > (__u32)worst)
			worst = (__u64)node << 32 | unanswered;
	}
	return worst;
}

/* Resends the packets before `end` that have not arrived at the other node. */
static __always_inline void resend(struct __sk_buff *skb, __u32 node, __u64 acknowledged, __u64 arrived, __u64 end)
{
	for (__u32 i = zero; i < WINDOW && can_loop(); i++) {
		__u64 sequence = acknowledged + i;
		if (sequence >= end)
			break;
		struct kept *kept = kept_packet(node, sequence);
		if (arrived >> (i & 63) & 1 || !kept)
			continue;
		/* A full barrier: the packet is read as it was when its number was written. Partner: the exchange in
		 * `wire_post`. */
		if (__sync_val_compare_and_swap(&kept->sequence, sequence, sequence) != sequence)
			continue;
		/* If a later packet overwrites this one meanwhile, this one was acknowledged. The mixed bytes have a wrong MAC
		 * or the number of a duplicate, so the other node drops them. */
		transmit(skb, &kept->packet);
		count(COUNT_RESENT);
	}
}

/* Answers a request. Each is answered once, and none after a later one, so a replayed request has no effect. */
__noinline int answer(struct __sk_buff *skb, __u32 node, __u64 sequence, __u64 acknowledged, __u64 arrived)
{
	struct stream *stream = stream_to(node);
	if (!stream)
		return 0;
	__u64 last = *(volatile __u64 *)&stream->answered;
	if (sequence <= last || __sync_val_compare_and_swap(&stream->answered, last, sequence) != last) {
		count(COUNT_STALE);
		return 0;
	}
	note_alive(stream);
	/* Up to `sent`: a packet that is still under way may be sent twice, and a lost one needs no request of
	 * this node. */
	resend(skb, node, acknowledged, arrived, WINDOW + *(volatile __u64 *)&stream->sent);
	send_control(skb, node, WIRE_ANSWER, sequence);
	return 0;
}

/* Evaluates an answer: packets that were sent before its request and had not arrived are lost, and are resent. Each
 * answer counts once, and none after the answer to a later request. */
__noinline int settle(struct __sk_buff *skb, __u32 node, __u64 sequence, __u64 acknowledged, __u64 arrived)
{
	struct stream *stream = stream_to(node);
	if (!stream)
		return 0;
	__u64 last = *(volatile __u64 *)&stream->settled;
	if (sequence > *(volatile __u64 *)&stream->requested || sequence <= last ||
	    __sync_val_compare_and_swap(&stream->settled, last, sequence) != last) {
		count(COUNT_STALE);
		return 0;
	}
	note_alive(stream);
	/* `sent_at_request` is that of the last request. If this answers an earlier one, packets between the two
	 * may be resent while they are under way: duplicates, which the other node drops. */
	resend(skb, node, acknowledged, arrived, WINDOW + *(volatile __u64 *)&stream->sent_at_request);
	return 0;
}

/* Delivers a data packet once. */
static __always_inline void receive_data(struct stream *stream, struct packet *packet)
{
	__u64 sequence = packet->header.sequence, lap = lap_of(sequence);
	__u64 *word = lap_at(stream, sequence);
	/* The exchange from the previous lap to an odd word makes this activation the only one that delivers the packet.
	 * A node never sends beyond the window, so the previous lap has been delivered; every other value of the word
	 * belongs to a duplicate. */
	if (__sync_val_compare_and_swap(word, lap - 2, lap - 1) != lap - 2) {
		count(COUNT_DUPLICATE);
		return;
	}
	if (deliver(&packet->message)) {
		/* The word returns to "not arrived", as after a loss: the sender resends the packet on request. */
		__sync_lock_test_and_set(word, lap - 2);
		count(COUNT_REFUSED);
		return;
	}
	/* Full barriers, here and in the exchange below. Of two activations that close a gap at the same time, the later one
	 * sees both words, so `expected` never stays behind. */
	__sync_lock_test_and_set(word, lap);
	note_alive(stream);
	count(COUNT_RECEIVED);
	/* `expected` grows only past a packet that has arrived. A failed exchange means that another activation
	 * has advanced it, and the next round reads the new value. One packet may close a gap before a whole
	 * window; the bound leaves as many rounds again for failed exchanges. */
	for (__u32 i = zero; i < 2 * WINDOW && can_loop(); i++) {
		__u64 expected = *(volatile __u64 *)&stream->expected;
		if (*(volatile __u64 *)lap_at(stream, expected) != lap_of(WINDOW + expected))
			break;
		__sync_val_compare_and_swap(&stream->expected, expected, expected + 1);
	}
}

/* Records an acknowledgement. It only grows, so that old packets have no effect, and never exceeds `sent`. */
static __always_inline void acknowledge(struct stream *stream, __u64 acknowledged)
{
	for (__u32 i = zero; i < WALK_LIMIT && can_loop(); i++) {
		__u64 known = *(volatile __u64 *)&stream->acknowledged;
		if (acknowledged <= known || acknowledged > *(volatile __u64 *)&stream->sent)
			return;
		if (__sync_val_compare_and_swap(&stream->acknowledged, known, acknowledged) == known) {
			note_alive(stream);
			return;
		}
	}
}

/* Returns true if the fields of an authentic packet are consistent. */
static __always_inline int makes_sense(struct wire_header *header, struct message *message)
{
	if (header->acknowledged < WINDOW)
		return 0;
	if (!header->flags)
		return header->length == 0;
	if (header->flags == WIRE_REQUEST || header->flags == WIRE_ANSWER)
		return header->length == sizeof(__u64);
	return header->flags == WIRE_DATA && header->sequence >= WINDOW &&
	       header->length >= sizeof(struct message_header) &&
	       message->header.length == header->length - sizeof(struct message_header);
}

/* Processes a packet for this node's port with `length` bytes behind its header. */
static __always_inline void receive(struct __sk_buff *skb, struct wire *here, struct packet *packet, __u32 length)
{
	struct wire_header *header = &packet->header;
	if (header->magic != WIRE_MAGIC) {
		count(COUNT_STRANGE);
		return;
	}
	if (header->job != here->job) {
		count(COUNT_OTHER_JOB);
		return;
	}
	if (header->length != length) {
		count(COUNT_TRUNCATED);
		return;
	}
	__u32 node = header->source;
	struct stream *stream = stream_to(node);
	struct peer *peer = bpf_map_lookup_elem(&peers, &node);
	/* The MAC starts from a state that includes these fields, so they are compared before anything depends on them. */
	if (!stream || !peer || node == here->node || header->destination != here->node) {
		count(COUNT_STRANGE);
		return;
	}
	if (header->mac != seal(packet, &peer->from, length)) {
		count(COUNT_FORGED);
		return;
	}
	if (!makes_sense(header, &packet->message)) {
		count(COUNT_STRANGE);
		return;
	}
	/* From here on the packet is one that the other node has sent. It may be old, because anyone can repeat
	 * it: no step below changes a stream if it is done again, or late. */
	__u64 acknowledged = header->acknowledged, arrived = packet->arrived, sequence = header->sequence;
	__u32 flags = header->flags;
	acknowledge(stream, acknowledged - WINDOW);
	if (flags == WIRE_DATA)
		receive_data(stream, packet);
	if (flags == WIRE_REQUEST) {
		answer(skb, node, sequence, acknowledged, arrived);
	} else if (flags == WIRE_ANSWER) {
		settle(skb, node, sequence, acknowledged, arrived);
	} else if (*(volatile __u64 *)&stream->expected - *(volatile __u64 *)&stream->reported >= WINDOW / 2) {
		/* Half a window has arrived since the last packet to the other node, which could carry an
		 * acknowledgement. The sender can use the other half until this one arrives. */
		count(COUNT_ACKNOWLEDGED);
		send_control(skb, node, 0, 0);
	}
	if (*(volatile __u32 *)&stream->held && has_space(stream) && __sync_lock_test_and_set(&stream->held, 0))
		interpreter_resume();
}

/* Consumes a packet for this node's port, after which the skb may carry outgoing packets. Returns 0 for all other
 * packets, which stay untouched. */
__noinline int wire_receive(struct __sk_buff *skb)
{
	struct wire *here = wire();
	struct packet *packet = scratch_packet(ARRIVING);
	__u32 bytes = 0, start;
	if (!here || !packet)
		return 0;
	start = here->protocol == bpf_htons(ETH_P_IPV6) ? find_ipv6(skb, here, &bytes) : find_ipv4(skb, here, &bytes);
	if (!start)
		return 0;
	/* Other programs may have used the control block before. */
	skb->cb[CARRIES_PACKET] = 0;
	opaque(bytes);
	if (bytes < sizeof(struct wire_header) || bytes > sizeof(struct wire_header) + LONGEST_MESSAGE ||
	    bpf_skb_load_bytes(skb, start, &packet->header, bytes)) {
		count(COUNT_TRUNCATED);
		return 1;
	}
	receive(skb, here, packet, bytes - sizeof(struct wire_header));
	return 1;
}

#endif
