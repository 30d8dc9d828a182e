/* Pieces of messages between nodes, over a network that loses, repeats, reorders and forges packets.
 *
 * Between any two nodes there are two streams of numbered data packets, one in each direction. Every packet says
 * up to where the other stream has arrived; what is not yet known to have arrived is kept. Nothing here has a
 * clock: who waits in vain asks the other node (`wire_ask`), and both send again what is missing. Packets are
 * delivered in whichever order they come: a message says which receive it is for. `src/wire.rs` describes the
 * protocol.
 *
 * Who includes this defines the two functions that are declared first. */
#ifndef WIRE_H
#define WIRE_H

#include "datagram.h"

/* Takes a message that has arrived. Gives something else than 0 if there is no room for it. */
static __always_inline int deliver(struct message *message);
/* Hears that sends that were refused may succeed. */
static void interpreter_resume(void);

/* What becomes of a packet after the program; older headers do not have the names. */
enum { PASS_ON = -1, DROP = 2 };

/* Requests that are not answered are sent less and less often: after 1/4 ms, twice that, … 128 ms. */
#define ASK_NANOSECONDS 250000ull
#define ASK_DOUBLINGS 9

/* The skb is an envelope. A packet stays in it until another one needs it or the activation ends: the last one can
 * leave with the skb itself, without a copy of it. This word of its control block says that there is one in it. */
#define ENVELOPE 2

/* Sends the packet that is in the envelope, if there is one, and keeps the envelope. For whoever is about to do
 * something that takes long. */
__noinline int wire_flush(struct __sk_buff *skb)
{
	struct wire *here = wire();
	if (!skb->cb[ENVELOPE] || !here)
		return 0;
	skb->cb[ENVELOPE] = 0;
	return bpf_clone_redirect(skb, here->interface, 0);
}

/* The same without a call where there is nothing to send. */
static __always_inline void flush_envelope(struct __sk_buff *skb)
{
	if (skb->cb[ENVELOPE])
		wire_flush(skb);
}

/* What is to become of the skb at the end of an activation that began with a packet; of one that has arrived, the system
 * can take the other end of a pair for the place where it goes on. */
static __always_inline int wire_verdict(struct __sk_buff *skb, int has_arrived)
{
	struct wire *here = wire();
	if (!skb->cb[ENVELOPE] || !here)
		return DROP;
	return has_arrived && here->leaves_at_peer ? bpf_redirect_peer(here->interface, 0) :
						     bpf_redirect(here->interface, 0);
}

/* Puts a finished packet into the envelope. */
static __always_inline int put_in_envelope(struct __sk_buff *skb, struct packet *packet)
{
	struct wire *here = wire();
	__u32 length = packet->header.length;
	if (!here)
		return -1;
	opaque(length);
	if (length > LONGEST_MESSAGE)
		return -1;
	flush_envelope(skb);
	__u32 network = here->protocol == bpf_htons(ETH_P_IPV6) ? ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES :
								  ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES;
	__u32 bytes = network + sizeof(struct wire_header) + length;
	/* Most packets are as long as the one before. One that was put together out of several has its length changed, which
	 * takes it apart. */
	if (((skb->len != bytes || skb->gso_size) && bpf_skb_change_tail(skb, bytes, 0)) ||
	    bpf_skb_store_bytes(skb, 0, packet->network + NETWORK_BYTES - network, bytes, 0))
		return -1;
	skb->cb[ENVELOPE] = 1;
	return 0;
}

/* The same as a function of its own, for packets that are rare. */
__noinline int transmit(struct __sk_buff *skb, struct packet *packet __arg_nonnull)
{
	return put_in_envelope(skb, packet);
}

/* Fills in what is not the same in all packets of a stream. */
static __always_inline void fill_header(struct packet *packet, struct stream *stream, __u32 flags, __u64 sequence,
					__u32 length)
{
	struct wire_header *header = &packet->header;
	__u64 expected = *(volatile __u64 *)&stream->expected;
	header->sequence = sequence;
	header->acknowledged = WINDOW + expected;
	header->length = length;
	header->flags = flags;
	stream->told = expected;
}

/* Whether a further packet may be sent. */
static __always_inline int has_room(struct stream *stream)
{
	return *(volatile __u64 *)&stream->sent - *(volatile __u64 *)&stream->acknowledged < WINDOW;
}

/* The number of the next packet; 0 if the window is full. */
static __always_inline __u64 claim(struct stream *stream)
{
	for (__u32 i = zero; i < WALK_LIMIT && can_loop(); i++) {
		__u64 sent = *(volatile __u64 *)&stream->sent;
		/* In this order: what is acknowledged only grows, so there is at least as much room as it seems. */
		if (sent - *(volatile __u64 *)&stream->acknowledged >= WINDOW)
			return 0;
		if (__sync_val_compare_and_swap(&stream->sent, sent, sent + 1) == sent)
			return WINDOW + sent;
	}
	return 0;
}

/* The number of the next message to a node, which is to be written into its `kept_packet` and then posted. 0 if the
 * window is full: then `interpreter_resume` says when to try again. */
static __always_inline __u64 wire_claim(struct stream *stream)
{
	__u64 sequence = claim(stream);
	if (sequence)
		return sequence;
	/* Either who acknowledges finds the word, or this finds the room. */
	__sync_lock_test_and_set(&stream->held, 1);
	sequence = claim(stream);
	if (!sequence)
		count(COUNT_HELD);
	return sequence;
}

/* Sends the message in a place that was claimed. It is kept until it has arrived. */
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
	/* From here on it may be sent again by whoever is asked for it. A full barrier. */
	__sync_lock_test_and_set(&kept->sequence, sequence);
	count(COUNT_SENT);
	/* If this fails, it is lost like a packet on the way. */
	put_in_envelope(skb, packet);
}

/* Sends a packet without a message. */
__noinline int send_control(struct __sk_buff *skb, __u32 node, __u32 flags, __u64 sequence, __u64 arrived)
{
	struct stream *stream = stream_to(node);
	struct peer *peer = bpf_map_lookup_elem(&peers, &node);
	struct packet *packet = scratch_packet(CONTROL);
	if (!stream || !peer || !packet)
		return 0;
	packet->arrived = arrived;
	fill_header(packet, stream, flags, sequence, flags ? sizeof(packet->arrived) : 0);
	finish_packet(packet, peer);
	transmit(skb, packet);
	return 0;
}

/* The word of a packet in `laps`, as it is when the packet has arrived. */
static __always_inline __u64 lap_of(__u64 sequence)
{
	return sequence / WINDOW * 2;
}

static __always_inline __u64 *lap_at(struct stream *stream, __u64 sequence)
{
	asm volatile("%0 &= %1" : "+r"(sequence) : "i"(WINDOW - 1));
	return &stream->laps[sequence];
}

/* Which packets have arrived here, from the first that has not on: a bit each. */
static __always_inline __u64 arrivals(struct stream *stream)
{
	__u64 first = WINDOW + *(volatile __u64 *)&stream->expected, arrived = 0;
	for (__u32 i = zero; i < WINDOW && can_loop(); i++)
		if (*(volatile __u64 *)lap_at(stream, first + i) == lap_of(first + i))
			arrived |= 1ull << (i & 63);
	return arrived;
}

/* The other node lives: what came from there is new. Old packets, which a stranger can repeat, say nothing about that. */
static __always_inline void hear(struct stream *stream)
{
	if (*(volatile __u32 *)&stream->unanswered)
		*(volatile __u32 *)&stream->unanswered = 0;
}

/* Asks a node for what has not arrived from there, and what has arrived there; too soon after the last time, it does
 * nothing. Gives how many requests have remained unanswered. */
__noinline int wire_ask(struct __sk_buff *skb, __u32 node)
{
	struct wire *here = wire();
	struct stream *stream = stream_to(node);
	if (!here || !stream || node == here->node || node >= here->nodes)
		return 0;
	__u64 now = bpf_ktime_get_ns(), before = *(volatile __u64 *)&stream->asked_at;
	__u32 unanswered = *(volatile __u32 *)&stream->unanswered;
	__u32 doublings = unanswered < ASK_DOUBLINGS ? unanswered : ASK_DOUBLINGS;
	if (now - before < ASK_NANOSECONDS << doublings ||
	    __sync_val_compare_and_swap(&stream->asked_at, before, now) != before)
		return unanswered;
	stream->asked_about = *(volatile __u64 *)&stream->sent;
	__sync_fetch_and_add(&stream->unanswered, 1);
	count(COUNT_ASKED);
	send_control(skb, node, WIRE_REQUEST, __sync_fetch_and_add(&stream->asked, 1) + 1, arrivals(stream));
	return unanswered + 1;
}

/* Asks the nodes that have long not acknowledged something: it may be lost, with nobody there who waits for it.
 * Called every now and then. Gives how many requests the most silent node has left unanswered, and in the upper
 * half its number. */
__noinline __u64 wire_tend(struct __sk_buff *skb)
{
	struct wire *here = wire();
	__u64 worst = 0;
	for (__u32 i = zero; here && i < here->nodes && i < NODES && can_loop(); i++) {
		__u32 node = i;
		struct stream *stream = stream_to(node);
		if (!stream)
			break;
		__u64 before = stream->tended;
		stream->tended = *(volatile __u64 *)&stream->sent;
		if (*(volatile __u64 *)&stream->acknowledged >= before)
			continue;
		__u32 unanswered = wire_ask(skb, node);
		if (unanswered > (__u32)worst)
			worst = (__u64)node << 32 | unanswered;
	}
	return worst;
}

/* Sends again what the other node says has not arrived, of the packets before `end`. */
static __always_inline void resend(struct __sk_buff *skb, __u32 node, __u64 acknowledged, __u64 arrived, __u64 end)
{
	for (__u32 i = zero; i < WINDOW && can_loop(); i++) {
		__u64 sequence = acknowledged + i;
		if (sequence >= end)
			break;
		struct kept *kept = kept_packet(node, sequence);
		if (arrived >> (i & 63) & 1 || !kept)
			continue;
		/* A full barrier: the packet is read as it was when it got its number. Partner: the exchange in `wire_post`. */
		if (__sync_val_compare_and_swap(&kept->sequence, sequence, sequence) != sequence)
			continue;
		/* If a later packet takes its place meanwhile, this one has arrived, and what goes out is dropped there. */
		transmit(skb, &kept->packet);
		count(COUNT_RESENT);
	}
}

/* What a request leads to. Each is answered once, and none after a later one. */
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
	hear(stream);
	resend(skb, node, acknowledged, arrived, WINDOW + *(volatile __u64 *)&stream->sent);
	send_control(skb, node, WIRE_ANSWER, sequence, arrivals(stream));
	return 0;
}

/* What the answer to a request leads to: of the packets that were sent before it, what was missing there is lost.
 * Each answer counts once, and none after that to a later request. */
__noinline int settle(struct __sk_buff *skb, __u32 node, __u64 sequence, __u64 acknowledged, __u64 arrived)
{
	struct stream *stream = stream_to(node);
	if (!stream)
		return 0;
	__u64 last = *(volatile __u64 *)&stream->settled;
	if (sequence > *(volatile __u64 *)&stream->asked || sequence <= last ||
	    __sync_val_compare_and_swap(&stream->settled, last, sequence) != last) {
		count(COUNT_STALE);
		return 0;
	}
	hear(stream);
	resend(skb, node, acknowledged, arrived, WINDOW + *(volatile __u64 *)&stream->asked_about);
	return 0;
}

/* Delivers a data packet, unless it was delivered before. */
static __always_inline void receive_data(struct stream *stream, struct packet *packet)
{
	__u64 sequence = packet->header.sequence, lap = lap_of(sequence);
	__u64 *word = lap_at(stream, sequence);
	/* Who turns the word of the lap before into an odd one is alone with the packet. Further ahead than the
	 * window no node sends, and what is behind is repeated. */
	if (__sync_val_compare_and_swap(word, lap - 2, lap - 1) != lap - 2) {
		count(COUNT_DUPLICATE);
		return;
	}
	if (deliver(&packet->message)) {
		/* As if it had not come: it will be asked for. */
		__sync_lock_test_and_set(word, lap - 2);
		count(COUNT_REFUSED);
		return;
	}
	/* Full barriers, here and in the exchange below: the one who arrives last at a gap sees that it is closed. */
	__sync_lock_test_and_set(word, lap);
	hear(stream);
	count(COUNT_RECEIVED);
	for (__u32 i = zero; i < 2 * WINDOW && can_loop(); i++) {
		__u64 expected = *(volatile __u64 *)&stream->expected;
		if (*(volatile __u64 *)lap_at(stream, expected) != lap_of(WINDOW + expected))
			break;
		__sync_val_compare_and_swap(&stream->expected, expected, expected + 1);
	}
}

/* Notes up to where packets have arrived at the other node. */
static __always_inline void acknowledge(struct stream *stream, __u64 acknowledged)
{
	for (__u32 i = zero; i < WALK_LIMIT && can_loop(); i++) {
		__u64 known = *(volatile __u64 *)&stream->acknowledged;
		if (acknowledged <= known || acknowledged > *(volatile __u64 *)&stream->sent)
			return;
		if (__sync_val_compare_and_swap(&stream->acknowledged, known, acknowledged) == known) {
			hear(stream);
			return;
		}
	}
}

/* Whether a packet whose MAC is right makes sense. */
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

/* What becomes of a packet for this node's port that has so many bytes behind its own header. */
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
	/* The MAC's state stands for these: nothing may depend on what they say before they are compared. */
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
	__u64 acknowledged = header->acknowledged, arrived = packet->arrived, sequence = header->sequence;
	__u32 flags = header->flags;
	acknowledge(stream, acknowledged - WINDOW);
	if (flags == WIRE_DATA)
		receive_data(stream, packet);
	if (flags == WIRE_REQUEST) {
		answer(skb, node, sequence, acknowledged, arrived);
	} else if (flags == WIRE_ANSWER) {
		settle(skb, node, sequence, acknowledged, arrived);
	} else if (*(volatile __u64 *)&stream->expected - *(volatile __u64 *)&stream->told >= WINDOW / 2) {
		count(COUNT_ACKNOWLEDGED);
		send_control(skb, node, 0, 0, 0);
	}
	if (*(volatile __u32 *)&stream->held && has_room(stream) && __sync_lock_test_and_set(&stream->held, 0))
		interpreter_resume();
}

/* Takes a packet that is for this node's port, whatever is in it, and leaves the skb to be an envelope. Gives 0 for
 * all others, which it does not touch. */
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
	/* Others have used it before. */
	skb->cb[ENVELOPE] = 0;
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
