/* Pieces of messages between hosts: one UDP datagram each, trusted and never lost. */
#ifndef WIRE_H
#define WIRE_H

#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include "interpreter.h"

#define HOSTS 64u
#define WIRE_PORT 7199

/* How a host is reached. */
struct peer {
	__u8 address[6];
	__u16 reserved;
	__u32 ip; /* network order */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HOSTS);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct peer));
} peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct message));
} arrivals SEC(".maps");

struct wire_headers {
	__u8 to[6], from[6];
	__u16 protocol;
	__u8 version, service;
	__u16 bytes, identification, fragment;
	__u8 hops, transport;
	__u16 sum;
	__u32 source, destination;
	__u16 source_port, destination_port, datagram_bytes, datagram_sum;
} __attribute__((packed));

__noinline int wire_send(struct __sk_buff *skb, __u32 host, struct message *message __arg_nonnull)
{
	struct job *here = job();
	if (!here)
		return 0;
	struct peer *own = bpf_map_lookup_elem(&peers, &here->host), *peer = bpf_map_lookup_elem(&peers, &host);
	__u32 length = message->header.length;
	if (!own || !peer || length > PIECE_BYTES)
		return 0;
	__u32 bytes = sizeof(struct message_header) + length;
	struct wire_headers headers = { .protocol = bpf_htons(ETH_P_IP), .version = 0x45, .hops = 64, .transport = 17 };
	__builtin_memcpy(headers.to, peer->address, 6);
	__builtin_memcpy(headers.from, own->address, 6);
	headers.bytes = bpf_htons(28 + bytes);
	headers.source = own->ip;
	headers.destination = peer->ip;
	__u32 sum = 0x4500 + 28 + bytes + 0x4011;
	sum += bpf_ntohl(own->ip) >> 16;
	sum += bpf_ntohl(own->ip) & 0xffff;
	sum += bpf_ntohl(peer->ip) >> 16;
	sum += bpf_ntohl(peer->ip) & 0xffff;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	headers.sum = bpf_htons(~sum);
	headers.source_port = headers.destination_port = bpf_htons(WIRE_PORT);
	headers.datagram_bytes = bpf_htons(8 + bytes);
	if (bpf_skb_change_tail(skb, sizeof(headers) + bytes, 0) ||
	    bpf_skb_store_bytes(skb, 0, &headers, sizeof(headers), 0) ||
	    bpf_skb_store_bytes(skb, sizeof(headers), message, bytes, 0))
		return 0;
	bpf_clone_redirect(skb, here->interface, 0);
	return 0;
}

/* Takes a packet that is for us. Gives 0 for others. */
__noinline int wire_receive(struct __sk_buff *skb)
{
	struct wire_headers headers;
	__u32 key = 0;
	struct message *message = bpf_map_lookup_elem(&arrivals, &key);
	if (!message || bpf_skb_load_bytes(skb, 0, &headers, sizeof(headers)) ||
	    headers.protocol != bpf_htons(ETH_P_IP) || headers.transport != 17 ||
	    headers.destination_port != bpf_htons(WIRE_PORT))
		return 0;
	__u32 bytes = bpf_ntohs(headers.datagram_bytes) - 8u;
	if (bytes < sizeof(struct message_header) || bytes > sizeof(struct message_header) + PIECE_BYTES ||
	    bpf_skb_load_bytes(skb, sizeof(headers), message, bytes) ||
	    message->header.length > PIECE_BYTES)
		return 1;
	deliver(message);
	return 1;
}

#endif
