/* Classification of packets: datagrams for this node's port, and doorbells of ranks. */
#ifndef DATAGRAM_H
#define DATAGRAM_H

#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include "streams.h"

/* No padding: everything lies at even places. */
struct ipv4_headers {
	__u16 ethernet[6];
	__u16 protocol;
	__u8 version, service;
	__u16 bytes, identification, fragment;
	__u8 hops, transport;
	__u16 sum;
	__u16 source[2], destination[2];
	__u16 source_port, destination_port, datagram, datagram_sum;
};

struct ipv6_headers {
	__u16 ethernet[6];
	__u16 protocol;
	__u8 version, flow[3];
	__u16 bytes;
	__u8 transport, hops;
	__u16 source[8], destination[8];
	__u16 source_port, destination_port, datagram, datagram_sum;
};

_Static_assert(sizeof(struct ipv4_headers) == 42 && sizeof(struct ipv6_headers) == 62, "as packets begin");

static __always_inline int is_same(const __u16 *one, const __u16 *other, __u32 words)
{
	__u16 difference = 0;
	for (__u32 i = 0; i < words; i++)
		difference |= one[i] ^ other[i];
	return !difference;
}

/* The first bytes of a packet, where they lie; 0 if it is shorter. */
static __always_inline void *beginning(struct __sk_buff *skb, __u32 bytes)
{
	void *start = (void *)(long)skb->data;
	if (start + bytes <= (void *)(long)skb->data_end)
		return start;
	/* A network card's driver may have left them in other pages. */
	if (bpf_skb_pull_data(skb, bytes))
		return 0;
	start = (void *)(long)skb->data;
	return start + bytes <= (void *)(long)skb->data_end ? start : 0;
}

/* Where the datagram's payload begins, and in `bytes` its length (0 if the lengths contradict each other); 0 if
 * the packet is not for this node and port. Fragments and packets with options are not ours. */
static __always_inline __u32 find_ipv4(struct __sk_buff *skb, struct wire *here, __u32 *bytes)
{
	struct ipv4_headers *headers = beginning(skb, sizeof(*headers));
	if (!headers || headers->protocol != bpf_htons(ETH_P_IP) || headers->version != 0x45 ||
	    headers->transport != IPPROTO_UDP || headers->fragment & bpf_htons(0x3fff) ||
	    headers->destination_port != here->port || !is_same(headers->destination, here->address, 2))
		return 0;
	__u32 datagram = bpf_ntohs(headers->datagram);
	*bytes = datagram < UDP_BYTES || bpf_ntohs(headers->bytes) != IPV4_BYTES + datagram ? 0 : datagram - UDP_BYTES;
	return sizeof(*headers);
}

static __always_inline __u32 find_ipv6(struct __sk_buff *skb, struct wire *here, __u32 *bytes)
{
	struct ipv6_headers *headers = beginning(skb, sizeof(*headers));
	if (!headers || headers->protocol != bpf_htons(ETH_P_IPV6) || headers->version >> 4 != 6 ||
	    headers->transport != IPPROTO_UDP || headers->destination_port != here->port ||
	    !is_same(headers->destination, here->address, 8))
		return 0;
	__u32 datagram = bpf_ntohs(headers->datagram);
	*bytes = datagram < UDP_BYTES || bpf_ntohs(headers->bytes) != datagram ? 0 : datagram - UDP_BYTES;
	return sizeof(*headers);
}

/* Returns the slot of the rank whose doorbell a packet is, plus one; 0 if it is none. A rank rings when it has submitted runs: it sends
 * four bytes, its slot, to the job's port by the loopback interface, which is a faster way into the program than to have
 * it run. */
static __always_inline __u32 wire_doorbell(struct __sk_buff *skb)
{
	struct wire *here = wire();
	__u32 slot;
	struct ipv4_headers *headers = beginning(skb, sizeof(*headers) + sizeof(slot));
	if (!here || !headers || headers->protocol != bpf_htons(ETH_P_IP) ||
	    headers->version != 0x45 || headers->transport != IPPROTO_UDP ||
	    headers->fragment & bpf_htons(0x3fff) || headers->destination_port != here->port ||
	    headers->datagram != bpf_htons(UDP_BYTES + sizeof(slot)))
		return 0;
	__builtin_memcpy(&slot, headers + 1, sizeof(slot));
	return (slot & (LOCAL_RANKS - 1)) + 1;
}

#endif
