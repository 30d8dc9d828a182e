/* What the program, the loader and the ranks agree on: the bytes of every map. `src/layout.rs` says the same in Rust.
 *
 * A rank's memory is one map that the rank maps into its address space and may write as it likes. So nothing in it is
 * believed: every offset is masked into the arena (`memory.h`), every loop is bounded, and what decides about others
 * (who is where, what a message says about its source) comes from maps that no rank can write. A rank that writes
 * garbage loses its own results and nobody else's. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <linux/bpf.h>

/* Schedules, runs and buffers of one rank lie here; places in it are offsets. A power of two, for masks. */
#define ARENA_BYTES (4u << 20)
/* The longest payload that travels in one piece. */
#define PIECE_BYTES 8192u
/* Whoever has a masked offset may go on for so many bytes without another mask. */
#define SLACK_BYTES (2 * PIECE_BYTES)
/* Messages that are there before somebody wants them lie in slots of three sizes: for the longest pieces, for those of an
 * ordinary Ethernet, and for short messages, of which there are many. Powers of two; numbered in this order. */
#define LARGE_SLOTS 256u
#define MIDDLE_SLOTS 1024u
#define SMALL_SLOTS 2048u
#define SLOTS (LARGE_SLOTS + MIDDLE_SLOTS + SMALL_SLOTS)
#define MIDDLE_BYTES 1536u
#define SMALL_BYTES 256u
/* Lists of started runs, and of messages for runs that have not started. Powers of two. */
#define RUN_BUCKETS 256u
#define EARLY_BUCKETS 64u
/* Ranks of a job on one node; a bit each in a word. */
#define LOCAL_RANKS 64u
/* Ranks of a job. */
#define RANKS 4096u

/* What is known about a message wherever it goes: before the payload in a packet, beside it in a slot. */
struct message_header {
	__u32 communicator;
	__u32 stamp;       /* digest of what the sender called */
	__u64 sequence;    /* number of the run in the communicator */
	__u32 destination; /* rank of the job */
	__u32 source;      /* rank of the job */
	__u32 member;      /* rank of the source in the communicator */
	__u32 tag;
	__u32 ordinal;
	__u32 total;       /* bytes of the message */
	__u32 offset;      /* where this piece of it begins */
	__u32 length;      /* bytes of this piece */
};

struct message {
	struct message_header header;
	__u8 payload[PIECE_BYTES + 64];
};

/* Shorter slots. Their first members are those of `struct slot`, and they are used as such. */
struct middle_slot {
	__u32 state;
	__u32 next;
	struct message_header header;
	__u8 payload[MIDDLE_BYTES];
};

struct small_slot {
	__u32 state;
	__u32 next;
	struct message_header header;
	__u8 payload[SMALL_BYTES];
};

/* States of a slot. Whoever changes FREE to FILLING owns it until it says WAITING; then the rank's owner does. */
enum {
	SLOT_FREE,
	SLOT_FILLING,
	SLOT_WAITING, /* put there by somebody who could not look for the receive */
	SLOT_KEPT,    /* in one of the lists of unexpected messages */
	SLOT_GIVEN,   /* the rank is to copy it and to free the slot (`give_unwanted`) */
};

struct slot {
	__u32 state;
	__u32 next; /* slot + 1 in its list */
	struct message message;
};

/* States of a run; the rank looks at them. */
enum {
	RUN_UNDER_WAY,
	RUN_COMPLETE,
	RUN_FAILED,
};

/* Why a run failed, or what went wrong in one that is complete. */
enum {
	FAULT_NONE,
	FAULT_DIVISION,  /* vertex, element */
	FAULT_SIZES,     /* vertex, source, tag, ordinal, sent, expected */
	FAULT_STAMPS,    /* source, sent (their stamp), expected (ours) */
};

/* One run of a schedule: written by the rank before it submits it, by the program afterwards. Places are offsets in the
 * arena. Lists hold operations (or slots) plus one, so that zero ends them. */
struct run {
	__u32 state;
	__u32 next; /* submitted run, then the next in its bucket */
	__u64 sequence;
	__u32 communicator;
	__u32 stamp;
	__u32 member; /* this rank's rank in the communicator */
	__u32 members; /* place: ranks of the job by rank of the communicator */
	__u32 member_count;
	__u32 operation_count;
	__u32 operations; /* places of the schedule's sections */
	__u32 blocks;
	__u32 edges;
	__u32 memories; /* place: where each buffer begins, and last the scratchpad */
	__u32 buffer_count;
	__u32 progress; /* place: a struct progress for each operation */
	__u32 receives; /* place: table of the receives that name source and tag */
	__u32 receive_mask;
	__u32 times; /* place: when each operation was executed; 0: not wanted */
	__u32 remaining; /* operations that are not complete */
	__u32 ready_first;
	__u32 ready_last;
	__u32 next_active; /* next run with ready operations */
	__u32 is_active;
	__u32 posted_first; /* receives with a wildcard that wait for a message */
	__u32 taking_first; /* those of which a part of the message is there */
	__u32 left_first; /* messages left for wildcards, by arrival */
	__u32 left_last;
	__u32 fault;
	__u32 fault_vertex;
	__u32 fault_source;
	__u32 fault_tag;
	__u32 fault_ordinal;
	__u32 stalled_first; /* sends for which there was no room */
	__u32 next_stalled;  /* next run that has some */
	__u32 reserved;
	__u64 fault_element;
	__u64 fault_sent;
	__u64 fault_expected;
};

enum {
	PHASE_WAITING,
	PHASE_ARRIVED,  /* receive: not posted, but a part of its message is there */
	PHASE_RUNNING,  /* send: started. receive: posted */
	PHASE_COMPLETE,
};

/* What changes about an operation. */
struct progress {
	__u32 counter; /* what it still waits for */
	__u32 next;    /* in the list it is in */
	__u32 phase;
	__u32 slots;   /* first message that is there for it */
	__u32 moved;   /* bytes sent or received */
	__u32 source;  /* of a wildcard, the message it takes */
	__u32 tag;
	__u32 ordinal;
};

/* An entry of the table of receives that name source and tag; see `receive_hash`. */
struct named_receive {
	__u32 source;
	__u32 tag;
	__u32 ordinal;
	__u32 operation; /* plus one; 0: empty */
};

/* Lists and words of the whole rank. */
struct rank_head {
	__u32 submitted; /* stack of runs: pushed by threads of the rank, taken whole by the program */
	__u32 sleeping;  /* somebody sleeps, or is about to */
	__u32 waiting_first; /* stack of slots put to WAITING: pushed by anybody, taken whole by the owner */
	__u32 next_small; /* where to look for free slots */
	__u32 active_first; /* runs with ready operations */
	__u32 active_last;
	__u32 stalled_first; /* runs with sends for which there was no room */
	__u32 completed; /* something is complete since the last look at `sleeping` */
	__u64 dropped; /* messages that no receive of their run can want, or that were there before */
	__u64 refused; /* messages for which there was no slot */
	__u32 next_middle;
	__u32 next_large;
	__u32 freed; /* slots were freed since others were told */
	__u32 submitted_before; /* rest of a stack that was taken, and not finished for want of time */
	__u32 port;  /* of the doorbell; see `wire_rung` */
	__u32 heard; /* the doorbell has been heard */
	__u32 reserved[14];
};

struct rank_memory {
	struct rank_head head;
	__u32 run_buckets[RUN_BUCKETS];
	__u32 early_first[EARLY_BUCKETS];
	__u32 early_last[EARLY_BUCKETS];
	/* The short ones first: who goes beyond the end of one, because the rank wrote a wrong length, stays in here. */
	struct small_slot small_slots[SMALL_SLOTS];
	struct middle_slot middle_slots[MIDDLE_SLOTS];
	struct slot large_slots[LARGE_SLOTS];
	__u8 arena[ARENA_BYTES];
	__u8 slack[SLACK_BYTES];
};

/* The schedule's records, as `goal::schedule` documents them. */
struct operation_record {
	__u8 kind;
	__u8 arithmetic;
	__u8 data_type;
	__u8 flags;
	__u32 dependencies;
	__u32 peer;
	__u32 tag;
	__u64 bytes;
	__u32 first_block;
	__u32 destination_count;
	__u32 left_count;
	__u32 right_count;
	__u32 first_edge;
	__u32 edge_count;
	__u32 start_edge_count;
	__u32 ordinal;
	__u32 vertex;
	__u8 cpu;
	__u8 nic;
	__u8 join_mode;
	__u8 reserved;
};

struct block_record {
	__u32 memory;
	__u32 reserved;
	__u64 offset;
	__u64 length;
};

#define SCRATCHPAD 0xffffffffu
#define HEADER_BYTES 64u

enum { KIND_SEND = 1, KIND_RECEIVE, KIND_CALC, KIND_LOCAL, KIND_COPY, KIND_TIMESTAMP };
enum { ANY_SOURCE = 1, ANY_TAG = 2 };

/* Where a rank of the job is. */
struct place {
	__u32 node;
	__u32 slot; /* its number among the ranks of its node */
};

/* What the loader tells the program: read only for it, out of reach for ranks. */
struct job {
	__u32 node; /* this one */
	__u32 ranks;
	__u32 piece_bytes; /* the longest piece that fits a packet */
	__u32 local_rank[LOCAL_RANKS]; /* rank of the job by slot */
	struct place places[RANKS];
};

_Static_assert(sizeof(struct message_header) == 48 && sizeof(struct rank_head) == 128, "as src/layout.rs says");
_Static_assert(sizeof(struct run) == 168 && sizeof(struct progress) == 32, "as src/layout.rs says");
_Static_assert(sizeof(struct operation_record) == 64 && sizeof(struct block_record) == 24, "as goal::schedule says");

#endif
