/* The bytes that travel; `src/wire.rs` documents them, and has the same in Rust. */
#ifndef PACKET_H
#define PACKET_H

#include <bpf/bpf_endian.h>
#include "siphash.h"

/* Data packets of one host for another that may be under way or unread: as many as `arrived` has bits. */
#define WINDOW 64u
#define WIRE_MAGIC 0x31575754u /* "TWW1" */
#define WIRE_VERSION 1
/* Ethernet, IP and UDP headers end where a packet's own header begins. */
#define NETWORK_BYTES 64u

enum {
	WIRE_DATA = 1,    /* carries a piece of a message, under `sequence` */
	WIRE_REQUEST = 2, /* asks for what is missing and for an answer; `sequence` numbers requests */
	WIRE_ANSWER = 4,  /* to the request `sequence` */
};

struct wire_header {
	__u64 mac;          /* of all that follows */
	__u32 magic;
	__u8 version;
	__u8 flags;
	__u16 reserved;
	__u64 job;
	__u32 source;       /* hosts */
	__u32 destination;
	__u64 sequence;
	__u64 acknowledged; /* every packet of the other direction before this one has arrived */
	__u64 arrived;      /* in requests and answers: bit i says that packet `acknowledged` + i has arrived */
	__u32 length;       /* bytes that follow: none, or a message */
	__u32 unused;
};

#define AUTHENTICATED_BYTES (sizeof(struct wire_header) - sizeof(__u64))
#define LONGEST_MESSAGE (sizeof(struct message_header) + PIECE_BYTES)

/* A packet in memory. */
struct packet {
	__u64 sum; /* what `seal` found, for the UDP checksum */
	__u8 network[NETWORK_BYTES];
	struct wire_header header;
	struct message message;
};

/* How packets to a host begin. The loader builds the headers, with lengths and checksums left zero. */
struct peer {
	__u8 network[NETWORK_BYTES];
	__u32 is_version_6;
	__u32 ip_sum;  /* ones' complement sums of what does not change, as the bytes lie in memory */
	__u32 udp_sum;
	__u32 reserved;
};

#define ETHERNET_BYTES 14u
#define IPV4_BYTES 20u
#define IPV6_BYTES 40u
#define UDP_BYTES 8u

/* The MAC of a packet with so many bytes behind its header. Finds the sum for the UDP checksum on the way. */
__noinline __u64 seal(struct packet *packet __arg_nonnull, __u32 length, __u64 key0, __u64 key1)
{
	struct siphash state = siphash_start(key0, key1);
	const __u8 *bytes = (const __u8 *)&packet->header.magic;
	__u32 total = AUTHENTICATED_BYTES + length, i = zero;
	__u64 sum = zero, word;
	for (; i + 8 <= total && can_loop(); i += 8) {
		opaque(i);
		if (i >= AUTHENTICATED_BYTES + LONGEST_MESSAGE)
			break;
		word = *(const __u64 *)(bytes + i);
		siphash_word(&state, word);
		sum += (word & 0xffffffff) + (word >> 32);
	}
	opaque(i);
	if (i > AUTHENTICATED_BYTES + LONGEST_MESSAGE)
		return 0;
	word = *(const __u64 *)(bytes + i) & ((1ull << 8 * (total & 7)) - 1);
	packet->sum = sum + (word & 0xffffffff) + (word >> 32);
	return siphash_end(&state, word | (__u64)total << 56);
}

/* A ones' complement sum as the checksum of Internet protocols. */
static __always_inline __u16 folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Puts the MAC and the network's headers in front of a packet whose own header is complete but for the MAC. */
static __always_inline void finish_packet(struct packet *packet, struct peer *peer, __u64 key0, __u64 key1)
{
	__u32 length = packet->header.length;
	__u64 mac = seal(packet, length, key0, key1);
	packet->header.mac = mac;
	__builtin_memcpy(packet->network, peer->network, NETWORK_BYTES);
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
