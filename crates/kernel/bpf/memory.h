/* Access to a rank's memory, of which nothing is believed, and copies in, out and within. */
#ifndef MEMORY_H
#define MEMORY_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "budget.h"

#define __arg_nonnull __attribute__((btf_decl_tag("arg:nonnull")))

/* No list of a valid schedule is longer, so no loop needs to go on further, whatever a rank wrote. */
#define WALK_LIMIT 65536u

/* For words that all processors read, and words that they change: one beside the other would make readers wait. Two lines,
 * because the system puts them at multiples of 8. */
#define OWN_LINES __attribute__((aligned(128)))

/* A zero of which the verifier does not know that it is one. A counter that starts from it is any number to the
 * verifier from the first round on, so it looks at a loop's body once or twice and not as often as it may run. */
static volatile __u32 zero OWN_LINES;

/* Always true; to the verifier it may end the loop, whose rounds the kernel bounds. This is the
 * instruction `may_goto`, by its bytes, since the compiler has no name for it. */
static __always_inline int can_loop(void)
{
	asm volatile goto("1: .byte 0xe5; .byte 0; .long ((%l[l_end] - 1b - 8) / 8) & 0xffff; .short 0" : : : : l_end);
	return 1;
l_end:
	return 0;
}

/* Keeps the compiler from knowing a value, and so from turning checked counters into unchecked pointers. */
#define opaque(value) asm volatile("" : "+r"(value))

/* An offset within the arena, whatever it was before. In assembly, so that the verifier sees the mask on the very
 * register that is used. */
static __always_inline __u64 in_arena(__u64 offset)
{
	asm volatile("%0 &= %1" : "+r"(offset) : "i"(ARENA_BYTES - 1));
	return offset;
}

/* Sums are formed before the mask, and never continued behind it by more than a piece or a record: so
 * overflows stay within the arena, and accesses at its end within the slack behind it. */
#define AT(rank, type, offset) ((type *)((rank)->arena + in_arena(offset)))

/* Runs begin at multiples of 64, which atomic operations on their words need. */
static __always_inline struct run *run_at(struct rank_memory *rank, __u64 offset)
{
	asm volatile("%0 &= %1" : "+r"(offset) : "i"((ARENA_BYTES - 1) & ~63u));
	return (struct run *)(rank->arena + offset);
}

static __always_inline struct operation_record *record_at(struct rank_memory *rank, struct run *run, __u32 operation)
{
	return AT(rank, struct operation_record, run->operations + operation * sizeof(struct operation_record));
}

static __always_inline struct progress *progress_at(struct rank_memory *rank, struct run *run, __u32 operation)
{
	return AT(rank, struct progress, run->progress + operation * sizeof(struct progress));
}

/* Slots are numbered from 0, the large ones first, then the middle ones. */
static __always_inline struct slot *slot_at(struct rank_memory *rank, __u32 slot)
{
	__u64 index = slot;
	if (slot < LARGE_SLOTS) {
		asm volatile("%0 &= %1" : "+r"(index) : "i"(LARGE_SLOTS - 1));
		return &rank->large_slots[index];
	}
	if (slot < LARGE_SLOTS + MIDDLE_SLOTS) {
		index -= LARGE_SLOTS;
		asm volatile("%0 &= %1" : "+r"(index) : "i"(MIDDLE_SLOTS - 1));
		return (struct slot *)&rank->middle_slots[index];
	}
	index -= LARGE_SLOTS + MIDDLE_SLOTS;
	asm volatile("%0 &= %1" : "+r"(index) : "i"(SMALL_SLOTS - 1));
	return (struct slot *)&rank->small_slots[index];
}

/* Copies up to PIECE_BYTES; there are SLACK_BYTES to read and write behind both places. */
static __always_inline void copy_bytes(__u8 *to, const __u8 *from, __u32 length)
{
	__u32 i = zero;
	/* Two bounds: the verifier needs a constant, and to it `length` may be any number. To it `i` may also be
	 * any number below the bound, so a round may reach 31 bytes beyond: that is why payloads and the arena
	 * have space behind them. */
	for (; i + 32 <= length && i < PIECE_BYTES && can_loop(); i += 32) {
		opaque(i);
		*(__u64 *)(to + i) = *(const __u64 *)(from + i);
		*(__u64 *)(to + i + 8) = *(const __u64 *)(from + i + 8);
		*(__u64 *)(to + i + 16) = *(const __u64 *)(from + i + 16);
		*(__u64 *)(to + i + 24) = *(const __u64 *)(from + i + 24);
	}
	for (; i + 8 <= length && i < PIECE_BYTES && can_loop(); i += 8) {
		opaque(i);
		*(__u64 *)(to + i) = *(const __u64 *)(from + i);
	}
	for (; i < length && i < PIECE_BYTES && can_loop(); i++) {
		opaque(i);
		to[i] = from[i];
	}
}

__noinline int copy_within(struct rank_memory *rank __arg_nonnull, __u32 to, __u32 from, __u32 length)
{
	copy_bytes(AT(rank, __u8, to), AT(rank, __u8, from), length);
	return 0;
}

/* From a message's payload, beginning at `start`, to the arena. */
__noinline int copy_in(struct rank_memory *rank __arg_nonnull, __u32 to, struct message *message __arg_nonnull,
		       __u32 start, __u32 length)
{
	/* The first two comparisons keep the sum from an overflow. */
	if (start > PIECE_BYTES || length > PIECE_BYTES || start + length > PIECE_BYTES)
		return 0;
	__u8 *place = AT(rank, __u8, to);
	__u32 i = zero;
	for (; i + 8 <= length && can_loop(); i += 8) {
		__u64 at = start + i;
		opaque(i);
		opaque(at);
		if (i >= PIECE_BYTES || at >= PIECE_BYTES)
			break;
		*(__u64 *)(place + i) = *(__u64 *)(message->payload + at);
	}
	for (; i < length && can_loop(); i++) {
		__u64 at = start + i;
		opaque(i);
		opaque(at);
		if (i >= PIECE_BYTES || at >= PIECE_BYTES)
			break;
		place[i] = message->payload[at];
	}
	return 0;
}

/* From the arena to a message's payload, beginning at `start`. */
__noinline int copy_out(struct rank_memory *rank __arg_nonnull, __u32 from, struct message *message __arg_nonnull,
			__u32 start, __u32 length)
{
	if (start > PIECE_BYTES || length > PIECE_BYTES || start + length > PIECE_BYTES)
		return 0;
	__u8 *place = AT(rank, __u8, from);
	__u32 i = zero;
	for (; i + 8 <= length && can_loop(); i += 8) {
		__u64 at = start + i;
		opaque(i);
		opaque(at);
		if (i >= PIECE_BYTES || at >= PIECE_BYTES)
			break;
		*(__u64 *)(message->payload + at) = *(__u64 *)(place + i);
	}
	for (; i < length && can_loop(); i++) {
		__u64 at = start + i;
		opaque(i);
		opaque(at);
		if (i >= PIECE_BYTES || at >= PIECE_BYTES)
			break;
		message->payload[at] = place[i];
	}
	return 0;
}

/* Returns the work of copying so many bytes in so many pieces. */
#define ROUNDS_OF_COPY(bytes, pieces) ((bytes) / 8 + 16 * (__u64)(pieces))

/* A position in a list of blocks, whose bytes count as one sequence. Numbers of 32 bits, because to the verifier sums of
 * those soon are any number of 32 bits, and those of 64 bits grow without end. */
struct cursor {
	__u32 block; /* place of its record */
	__u32 left;  /* blocks from here on */
	__u32 listed; /* blocks at the beginning */
	__u32 used;  /* bytes of this one that are behind */
};

static __always_inline struct cursor cursor_at(struct run *run, __u32 first_block, __u32 count)
{
	if (count > WALK_LIMIT)
		count = WALK_LIMIT;
	/* Plus zero: the verifier is to forget that the number has a bound, for it would count down from there. */
	struct cursor cursor = { run->blocks + first_block * sizeof(struct block_record), count + zero, count, zero };
	return cursor;
}

/* Blocks that are behind a cursor, among them the empty ones. */
static __always_inline __u32 cursor_walked(struct cursor *cursor)
{
	return cursor->listed - cursor->left;
}

/* Bytes from here to the end of the block this is in; 0 at the end of the list. */
static __always_inline __u32 cursor_rest(struct rank_memory *rank, struct cursor *cursor)
{
	for (__u32 i = zero; i < WALK_LIMIT && cursor->left && can_loop(); i++) {
		struct block_record *block = AT(rank, struct block_record, cursor->block);
		__u32 length = block->length;
		if (cursor->used < length)
			return length - cursor->used;
		cursor->used -= length;
		cursor->block += sizeof(struct block_record);
		cursor->left--;
	}
	return 0;
}

/* Where in the arena a block begins. */
static __always_inline __u32 block_place(struct rank_memory *rank, struct run *run, struct block_record *block)
{
	/* The scratchpad follows the buffers, and its number in a record is above all of theirs. */
	__u32 memory = block->memory < run->buffer_count ? block->memory : run->buffer_count;
	return *AT(rank, __u32, run->memories + 4 * memory) + block->offset;
}

/* Where in the arena a cursor stands. */
static __always_inline __u32 cursor_place(struct rank_memory *rank, struct run *run, struct cursor *cursor)
{
	return block_place(rank, run, AT(rank, struct block_record, cursor->block)) + cursor->used;
}

/* The first block record of an operation; those of the others follow it. */
static __always_inline struct block_record *blocks_at(struct rank_memory *rank, struct run *run, __u32 first_block)
{
	return AT(rank, struct block_record, run->blocks + first_block * sizeof(struct block_record));
}

/* Returns true if the operation has a single block and the piece lies in it. */
static __always_inline int is_in_one_block(struct operation_record *record, struct block_record *block,
					   struct message_header *header)
{
	return record->destination_count == 1 && (__u64)header->offset + header->length <= block->length;
}

/* Writes a piece of a message to the blocks of its receive, however many there are. */
__noinline int scatter_list(struct rank_memory *rank __arg_nonnull, __u32 run_place, __u32 operation,
			    struct message *message __arg_nonnull)
{
	struct run *run = run_at(rank, run_place);
	struct operation_record *record = record_at(rank, run, operation);
	struct cursor to = cursor_at(run, record->first_block, record->destination_count);
	__u32 length = message->header.length, done = zero, pieces = zero;
	/* May be more than the first block has: `cursor_rest` walks on to the block in which the piece begins. */
	to.used = message->header.offset;
	while (done < length && can_loop()) {
		__u32 rest = cursor_rest(rank, &to);
		if (!rest)
			break;
		if (rest > length - done)
			rest = length - done;
		copy_in(rank, cursor_place(rank, run, &to), message, done, rest);
		to.used += rest;
		done += rest;
		pieces++;
	}
	count_rounds(ROUNDS_OF_COPY(done, pieces) + cursor_walked(&to));
	return 0;
}

/* Writes a piece of a message to the blocks of its receive. */
static __always_inline void scatter(struct rank_memory *rank, __u32 run_place, __u32 operation, struct message *message)
{
	struct run *run = run_at(rank, run_place);
	struct operation_record *record = record_at(rank, run, operation);
	struct message_header *header = &message->header;
	if (!header->length)
		return;
	struct block_record *block = blocks_at(rank, run, record->first_block);
	if (!is_in_one_block(record, block, header)) {
		scatter_list(rank, run_place, operation, message);
		return;
	}
	copy_in(rank, block_place(rank, run, block) + header->offset, message, 0, header->length);
	count_rounds(ROUNDS_OF_COPY(header->length, 1));
}

/* Fills a piece of a message from the blocks of its send, however many there are. */
__noinline int gather_list(struct rank_memory *rank __arg_nonnull, __u32 run_place, __u32 operation,
			   struct message *message __arg_nonnull)
{
	struct run *run = run_at(rank, run_place);
	struct operation_record *record = record_at(rank, run, operation);
	struct cursor from = cursor_at(run, record->first_block, record->destination_count);
	__u32 length = message->header.length, done = zero, pieces = zero;
	from.used = message->header.offset;
	while (done < length && can_loop()) {
		__u32 rest = cursor_rest(rank, &from);
		if (!rest)
			break;
		if (rest > length - done)
			rest = length - done;
		copy_out(rank, cursor_place(rank, run, &from), message, done, rest);
		from.used += rest;
		done += rest;
		pieces++;
	}
	count_rounds(ROUNDS_OF_COPY(done, pieces) + cursor_walked(&from));
	return 0;
}

/* Fills a piece of a message from its send: payload and header, but for source and destination. */
static __always_inline void compose(struct rank_memory *rank, __u32 run_place, __u32 operation, struct message *message)
{
	struct run *run = run_at(rank, run_place);
	struct operation_record *record = record_at(rank, run, operation);
	struct message_header *header = &message->header;
	header->communicator = run->communicator;
	header->signature = run->signature;
	header->sequence = run->sequence;
	header->member = run->member;
	header->tag = record->tag;
	header->ordinal = record->ordinal;
	header->total = record->bytes;
	if (!header->length)
		return;
	struct block_record *block = blocks_at(rank, run, record->first_block);
	if (!is_in_one_block(record, block, header)) {
		gather_list(rank, run_place, operation, message);
		return;
	}
	copy_out(rank, block_place(rank, run, block) + header->offset, message, 0, header->length);
	count_rounds(ROUNDS_OF_COPY(header->length, 1));
}

/* The operation `copy`: between two lists that may be cut at different places. */
__noinline int copy_lists(struct rank_memory *rank __arg_nonnull, __u32 run_place, __u32 operation)
{
	struct run *run = run_at(rank, run_place);
	struct operation_record *record = record_at(rank, run, operation);
	/* Read once: the rank, or the copy itself, may change it meanwhile. */
	__u64 bytes = *(volatile __u64 *)&record->bytes;
	if (record->destination_count == 1 && record->left_count == 1 && bytes <= PIECE_BYTES) {
		struct block_record *blocks = blocks_at(rank, run, record->first_block);
		copy_bytes(AT(rank, __u8, block_place(rank, run, &blocks[0])),
			   AT(rank, __u8, block_place(rank, run, &blocks[1])), bytes);
		count_rounds(ROUNDS_OF_COPY(bytes, 1));
		return 0;
	}
	struct cursor to = cursor_at(run, record->first_block, record->destination_count);
	struct cursor from = cursor_at(run, record->first_block + record->destination_count, record->left_count);
	__u32 done = zero, pieces = zero;
	/* Valid blocks of one operation do not overlap, so no more bytes than the arena has are copied. The
	 * bound ends the copy of corrupt ones. */
	while (done < ARENA_BYTES && can_loop()) {
		__u32 rest = cursor_rest(rank, &from), space = cursor_rest(rank, &to);
		if (rest > space)
			rest = space;
		if (rest > PIECE_BYTES)
			rest = PIECE_BYTES;
		if (!rest)
			break;
		copy_within(rank, cursor_place(rank, run, &to), cursor_place(rank, run, &from), rest);
		from.used += rest;
		to.used += rest;
		done += rest;
		pieces++;
	}
	count_rounds(ROUNDS_OF_COPY(done, pieces) + cursor_walked(&from) + cursor_walked(&to));
	return 0;
}

#endif
