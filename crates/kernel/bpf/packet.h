/* The bytes of a packet; `src/wire.rs` documents them, and has the same in Rust. */
#ifndef PACKET_H
#define PACKET_H

#include <bpf/bpf_endian.h>
#include "siphash.h"

/* Data packets of one node for another that may be under way or unread: as many as `arrived` has bits. */
#define WINDOW 64u
/* "TWW1" and the version, which is followed by zeros. */
#define WIRE_MAGIC 0x0000000231575754ull
/* Ethernet, IP and UDP headers end where a packet's own header begins. */
#define NETWORK_BYTES 64u

enum {
	WIRE_DATA = 1,    /* carries a piece of a message, under `sequence` */
	WIRE_REQUEST = 2, /* requests missing packets and an answer; `sequence` numbers requests */
	WIRE_ANSWER = 4,  /* to the request `sequence` */
};

struct wire_header {
	__u64 mac;    /* of all that follows */
	__u64 magic;
	__u64 job;
	__u32 source; /* nodes */
	__u32 destination;
	/* Up to here all packets of a stream are the same, but for the MAC. */
	__u64 sequence;
	__u64 acknowledged; /* every packet of the other direction before this one has arrived */
	__u32 length;       /* bytes that follow: none, a message, or in requests and answers `arrived` */
	__u32 flags;
};

#define AUTHENTICATED_BYTES (sizeof(struct wire_header) - sizeof(__u64))
#define LONGEST_MESSAGE (sizeof(struct message_header) + PIECE_BYTES)

/* A packet in memory. */
struct packet {
	__u64 sum; /* sum of `seal`, for the UDP checksum */
	__u8 network[NETWORK_BYTES];
	struct wire_header header;
	union {
		struct message message;
		__u64 arrived; /* bit i says that packet `acknowledged` + i has arrived */
	};
};

/* First bytes of packets to a node, and values derived from them. Written by the loader. */
struct peer {
	__u8 network[NETWORK_BYTES]; /* with lengths and checksums left zero */
	struct wire_header header;   /* with the fields that are equal in all packets */
	__u32 is_version_6;
	__u32 ip_sum;  /* ones' complement sums of the constant fields, in memory order */
	__u32 udp_sum;
	__u32 reserved;
	struct siphash to;   /* the MAC's state after the constant fields of packets to the node, */
	struct siphash from; /* and in all packets from there: so keys are nowhere else */
};

#define ETHERNET_BYTES 14u
#define IPV4_BYTES 20u
#define IPV6_BYTES 40u
#define UDP_BYTES 8u

static __always_inline void take_word(struct siphash *state, __u64 *sum, __u64 word)
{
	siphash_word(state, word);
	*sum += (word & 0xffffffff) + (word >> 32);
}

/* The MAC of a packet with so many bytes behind its header, of a stream whose packets begin alike. Finds the sum of what
 * follows that beginning on the way. */
__noinline __u64 seal(struct packet *packet __arg_nonnull, struct siphash *beginning __arg_nonnull, __u32 length)
{
	struct siphash state = *beginning;
	const __u64 *words = &packet->header.sequence;
	const __u8 *bytes = (const __u8 *)&packet->message;
	__u32 i = zero;
	__u64 sum = zero;
	take_word(&state, &sum, words[0]);
	take_word(&state, &sum, words[1]);
	take_word(&state, &sum, words[2]);
	if (length >= sizeof(struct message_header)) {
		/* Almost all packets have one, so it is worth a way without a loop. */
		words = (const __u64 *)bytes;
		take_word(&state, &sum, words[0]);
		take_word(&state, &sum, words[1]);
		take_word(&state, &sum, words[2]);
		take_word(&state, &sum, words[3]);
		take_word(&state, &sum, words[4]);
		take_word(&state, &sum, words[5]);
		i += sizeof(struct message_header);
	}
	for (; i + 8 <= length && can_loop(); i += 8) {
		opaque(i);
		if (i >= LONGEST_MESSAGE)
			break;
		take_word(&state, &sum, *(const __u64 *)(bytes + i));
	}
	opaque(i);
	if (i > LONGEST_MESSAGE)
		return 0;
	/* The last word has the 0 to 7 bytes that are left, and above them the length modulo 256, as SipHash
	 * prescribes. The load may reach beyond the payload, which has 64 bytes more than a piece. The mask
	 * removes what an earlier, longer packet has left there: both sides have to see the same bytes. */
	__u64 last = *(const __u64 *)(bytes + i) & ((1ull << 8 * (length & 7)) - 1);
	packet->sum = sum + (last & 0xffffffff) + (last >> 32);
	return siphash_end(&state, last | (__u64)(AUTHENTICATED_BYTES + length) << 56);
}

/* A ones' complement sum as the checksum of Internet protocols. RFC 1071, section 2: the sum may be formed
 * over longer words and in the processor's byte order, and is folded at the end. Each fold adds the carries
 * of the one before: after two, 32 bits are left, and after two more, 16. */
static __always_inline __u16 folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Puts the beginning and the MAC in front of a packet whose own header is complete but for that. */
static __always_inline void finish_packet(struct packet *packet, struct peer *peer)
{
	__u32 length = packet->header.length;
	/* These fields are the same in every packet to the node. The state `to` covers the four of the packet's own
	 * header, and `udp_sum` their sum, so `seal` begins behind them. */
	__builtin_memcpy(packet->network, peer->network, NETWORK_BYTES);
	packet->header.magic = peer->header.magic;
	packet->header.job = peer->header.job;
	packet->header.source = peer->header.source;
	packet->header.destination = peer->header.destination;
	__u64 mac = seal(packet, &peer->to, length);
	packet->header.mac = mac;
	__u16 *words = (__u16 *)(packet->network + NETWORK_BYTES); /* backwards from here */
	__u16 datagram = bpf_htons(UDP_BYTES + sizeof(struct wire_header) + length);
	words[-2] = datagram;
	/* The length counts twice: in the UDP header and in the pseudo header. */
	__u16 checksum = folded(packet->sum + (mac & 0xffffffff) + (mac >> 32) + peer->udp_sum + 2 * (__u64)datagram);
	words[-1] = checksum ? checksum : 0xffff; /* zero would say that there is none */
	if (peer->is_version_6) {
		words[-(int)(UDP_BYTES + IPV6_BYTES) / 2 + 2] = datagram;
	} else {
		__u16 total = bpf_htons(IPV4_BYTES + UDP_BYTES + sizeof(struct wire_header) + length);
		words[-(int)(UDP_BYTES + IPV4_BYTES) / 2 + 1] = total;
		words[-(int)(UDP_BYTES + IPV4_BYTES) / 2 + 5] = folded((__u64)peer->ip_sum + total);
	}
}

#endif
