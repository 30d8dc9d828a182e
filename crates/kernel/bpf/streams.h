/* Maps of the wire: the job, the other nodes, the streams between them, and unacknowledged packets. No rank can write
 * them. */
#ifndef STREAMS_H
#define STREAMS_H

#include "packet.h"

/* Nodes of a job. The loader makes the maps as large as the job needs. */
#define NODES 64u
/* The job, as the loader writes it. No rank can change it, nor any other map of this file. */
struct wire {
	__u64 job;
	__u32 node; /* this one */
	__u32 nodes;
	__u32 interface; /* packets leave through it */
	__u16 port; /* of this node, in network order */
	__u16 protocol; /* of Ethernet, in network order: IPv4 or IPv6 */
	__u16 address[8]; /* of this node, as it lies in packets; IPv4 in the first two */
	__u32 leaves_at_peer; /* the interface is one end of a pair, and a packet may begin at the other end */
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct wire));
} wires SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NODES);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct peer));
} peers SEC(".maps");

/* The two streams between this node and another. Numbers begin with WINDOW, so that maps that are all zero are a
 * beginning. Words are changed by atomic operations: several processors send and receive at once. */
struct stream {
	__u64 sent;         /* packets so far */
	__u64 acknowledged; /* packets known to have arrived there */
	__u64 expected;     /* packets that have arrived here without a gap */
	__u64 reported;         /* `expected`, as last reported to the other node */
	__u32 unanswered;   /* requests sent since anything came from there */
	__u32 held;         /* a send was refused because the window is full */
	/* Every packet uses the fields up to here: a cache line. */
	__u64 requested;        /* requests sent */
	__u64 requested_at;     /* time of the last one, in nanoseconds */
	__u64 sent_at_request;  /* `sent` at the last request */
	__u64 settled;      /* the last of our requests that was answered */
	__u64 answered;     /* the last of their requests that was answered */
	__u64 sent_at_check;       /* `sent` at the last call of `wire_retransmit` */
	__u64 laps[WINDOW]; /* by number modulo WINDOW: twice the lap of the last arrival, odd while the next is delivered */
	__u64 reserved[5]; /* for a multiple of a cache line */
};

_Static_assert(sizeof(struct stream) == 640, "streams share no cache line");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NODES);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct stream));
} streams SEC(".maps");

/* Packet that may have to be sent again. Its element in the map is that of its number modulo WINDOW, so a
 * packet stays until the one a window later overwrites it; then it has been acknowledged (`claim`). */
struct kept {
	__u64 sequence; /* WINDOW + number; another one while it is written */
	struct packet packet;
};

/* Window of each node. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NODES * WINDOW);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct kept));
} kept_packets SEC(".maps");

/* Packets of one activation, by core: no other activation interrupts it there. */
enum { ARRIVING, CONTROL, SCRATCH_PACKETS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_PACKETS);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct packet));
} scratch_packets SEC(".maps");

/* `src/wire/counters.rs` has the same names. */
enum {
	COUNT_SENT,
	COUNT_HELD,        /* sends refused: the window was full */
	COUNT_RESENT,
	COUNT_ACKNOWLEDGED, /* acknowledgements sent for themselves */
	COUNT_REQUESTED,
	COUNT_RECEIVED,    /* messages that the interpreter took */
	COUNT_REFUSED,     /* those for which it had no space */
	COUNT_DUPLICATE,   /* here and below: packets dropped */
	COUNT_STALE,       /* requests and answers that come late, or once more */
	COUNT_TRUNCATED,   /* lengths contradict each other */
	COUNT_STRANGE,     /* not of this protocol and version, or from nowhere */
	COUNT_OTHER_JOB,
	COUNT_FORGED,      /* the MAC is wrong: damaged, or made by a stranger */
	COUNTS
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__uint(key_size, 4);
	__uint(value_size, 8);
} wire_counts SEC(".maps");

static __always_inline void count(__u32 what)
{
	__u64 *counter = bpf_map_lookup_elem(&wire_counts, &what);
	if (counter)
		++*counter;
}

static __always_inline struct wire *wire(void)
{
	__u32 key = 0;
	return bpf_map_lookup_elem(&wires, &key);
}

static __always_inline struct stream *stream_to(__u32 node)
{
	return bpf_map_lookup_elem(&streams, &node);
}

static __always_inline struct packet *scratch_packet(__u32 which)
{
	return bpf_map_lookup_elem(&scratch_packets, &which);
}

static __always_inline struct kept *kept_packet(__u32 node, __u64 sequence)
{
	__u32 key = node * WINDOW + (sequence & (WINDOW - 1));
	return bpf_map_lookup_elem(&kept_packets, &key);
}

#endif
