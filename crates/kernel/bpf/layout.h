/* Layout of every map, shared by program, loader and ranks. `src/memory/layout.rs` is the same in Rust.
 *
 * A rank's memory is one map that the rank maps into its address space and may write at any time. The program therefore
 * trusts nothing in it: every offset is masked into the arena (`memory.h`), every loop is bounded, and data that concerns
 * other ranks (locations, the source of a message) comes from maps that no rank can write. A rank with corrupt memory
 * loses only its own results. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <linux/bpf.h>

/* Arena of a rank: schedules, runs and buffers, addressed by offsets. A power of two, for masks. */
#define ARENA_BYTES (4u << 20)
/* Longest payload of one piece of a message. */
#define PIECE_BYTES 8192u
/* Bytes behind a masked offset that may be accessed without another mask. */
#define SLACK_BYTES (2 * PIECE_BYTES)
/* Slots of three sizes for unexpected messages: for the longest pieces, for pieces of MTU 1500, and for short messages,
 * which are the most frequent. Powers of two; numbered in this order. */
#define LARGE_SLOTS 256u
#define MIDDLE_SLOTS 1024u
#define SMALL_SLOTS 2048u
#define SLOTS (LARGE_SLOTS + MIDDLE_SLOTS + SMALL_SLOTS)
#define MIDDLE_BYTES 1536u
#define SMALL_BYTES 256u
/* Lists of started runs, and of messages for runs that have not started. Powers of two. */
#define RUN_BUCKETS 256u
#define UNEXPECTED_BUCKETS 64u
/* Ranks of a job on one node; a bit each in a word. */
#define LOCAL_RANKS 64u
/* Ranks of a job. */
#define RANKS 4096u

/* Header of a message: before the payload in a packet, beside it in a slot. */
struct message_header {
	__u32 communicator;
	__u32 signature;       /* digest of the sender's call */
	__u64 sequence;    /* number of the run in the communicator */
	__u32 destination; /* rank of the job */
	__u32 source;      /* rank of the job */
	__u32 member;      /* rank of the source in the communicator */
	__u32 tag;
	__u32 ordinal;
	__u32 total;       /* bytes of the message */
	__u32 offset;      /* of this piece in the message */
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

/* States of a slot. The activation or rank that changes FREE to FILLING owns the slot until it writes the next state;
 * after that the owner of the rank owns it. */
enum {
	SLOT_FREE,
	SLOT_FILLING,
	SLOT_WAITING, /* stored by an activation that did not own the rank: to be matched */
	SLOT_KEPT,    /* in one of the lists of unexpected messages */
	SLOT_HANDED_OVER,   /* the rank copies it and frees the slot (`hand_over_unexpected`) */
};

struct slot {
	__u32 state;
	__u32 next; /* slot + 1 in its list */
	struct message message;
};

/* States of a run, which the rank polls. */
enum {
	RUN_UNDER_WAY,
	RUN_COMPLETE,
	RUN_FAILED,
};

/* Fault of a run. */
enum {
	FAULT_NONE,
	FAULT_DIVISION,  /* vertex, element */
	FAULT_SIZES,     /* vertex, source, tag, ordinal, sent, expected */
	FAULT_SIGNATURES,    /* source, sent (its signature), expected (this rank's) */
};

/* One run of a schedule: written by the rank until it submits the run, by the program afterwards. Positions are offsets
 * in the arena. Lists contain indices of operations or slots plus one; zero ends them. */
struct run {
	__u32 state;
	__u32 next; /* submitted run, then the next in its bucket */
	__u64 sequence;
	__u32 communicator;
	__u32 signature;
	__u32 member; /* this rank's rank in the communicator */
	__u32 members; /* offset: ranks of the job by rank of the communicator */
	__u32 member_count;
	__u32 operation_count;
	__u32 operations; /* offsets of the schedule's sections */
	__u32 blocks;
	__u32 edges;
	__u32 memories; /* offset: where each buffer begins, and last the scratchpad */
	__u32 buffer_count;
	__u32 progress; /* offset: a struct progress for each operation */
	__u32 receives; /* offset: table of the receives that name source and tag */
	__u32 receive_mask;
	__u32 times; /* offset: when each operation was executed; 0: not wanted */
	__u32 remaining; /* number of operations that are not complete */
	__u32 ready_first;
	__u32 ready_last;
	__u32 next_active; /* next run with ready operations */
	__u32 is_active;
	__u32 posted_first; /* posted receives with a wildcard */
	__u32 taking_first; /* receives with a wildcard that have part of their message */
	__u32 unmatched_first; /* messages that no named receive matches, by arrival */
	__u32 unmatched_last;
	__u32 fault;
	__u32 fault_vertex;
	__u32 fault_source;
	__u32 fault_tag;
	__u32 fault_ordinal;
	__u32 stalled_first; /* suspended sends: no slot or a full window */
	__u32 next_stalled;  /* next run with suspended sends */
	__u32 reserved;
	__u64 fault_element;
	__u64 fault_sent;
	__u64 fault_expected;
};

enum {
	PHASE_WAITING,
	PHASE_ARRIVED,  /* receive: not posted; part of its message has arrived */
	PHASE_RUNNING,  /* send: started. receive: posted */
	PHASE_COMPLETE,
};

/* State of an operation. */
struct progress {
	__u32 counter; /* unsatisfied dependencies */
	__u32 next;    /* link of its list */
	__u32 phase;
	__u32 slots;   /* first arrived message */
	__u32 moved;   /* bytes sent or received */
	__u32 source;  /* with a wildcard: the matched message */
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

/* Lists and words of a rank. */
struct rank_head {
	__u32 submitted; /* stack of runs: pushed by threads of the rank, taken whole by the program */
	__u32 sleeping;  /* a thread sleeps or is about to */
	__u32 waiting_first; /* stack of slots put to WAITING: pushed by any activation, taken whole by the owner */
	__u32 next_small; /* start of the search for a free slot */
	__u32 active_first; /* runs with ready operations */
	__u32 active_last;
	__u32 stalled_first; /* runs with suspended sends */
	__u32 completed; /* a run has ended since `sleeping` was checked */
	__u64 dropped; /* messages that match no receive of their run, or are duplicates */
	__u64 refused; /* messages that found no slot */
	__u32 next_middle;
	__u32 next_large;
	__u32 freed; /* slots were freed since suspended sends were resumed */
	__u32 submitted_before; /* rest of a taken stack when the budget was spent */
	__u32 port;  /* of the doorbell; see `wire_doorbell` */
	__u32 doorbell_seen; /* the doorbell has reached the program */
	__u32 reserved[14];
};

struct rank_memory {
	struct rank_head head;
	__u32 run_buckets[RUN_BUCKETS];
	__u32 unexpected_first[UNEXPECTED_BUCKETS];
	__u32 unexpected_last[UNEXPECTED_BUCKETS];
	/* The short ones first: an access beyond the end of one, caused by a corrupt length, stays in this structure. */
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

/* Location of a rank of the job. */
struct location {
	__u32 node;
	__u32 slot; /* index among the ranks of its node */
};

/* Description of the job, written by the loader, out of reach of the ranks. */
struct job {
	__u32 node; /* this one */
	__u32 ranks;
	__u32 piece_bytes; /* the longest piece that fits a packet */
	__u32 local_rank[LOCAL_RANKS]; /* rank of the job by slot */
	struct location locations[RANKS];
};

_Static_assert(sizeof(struct message_header) == 48 && sizeof(struct rank_head) == 128, "as in src/memory/layout.rs");
_Static_assert(sizeof(struct run) == 168 && sizeof(struct progress) == 32, "as in src/memory/layout.rs");
_Static_assert(sizeof(struct operation_record) == 64 && sizeof(struct block_record) == 24, "as in goal::schedule");

#endif
