/* Local operations, bit for bit as `goal::arithmetic` defines them. */
#ifndef ARITHMETIC_H
#define ARITHMETIC_H

#include "float.h"

enum { U8, U16, U32, U64, I8, I16, I32, I64, F32, F64, BIT };

static __always_inline __u64 divide_signed(__s64 left, __s64 right)
{
	/* Magnitudes as unsigned numbers: the smallest value has one, too. The processor has no signed division. */
	__u64 quotient = (left < 0 ? -(__u64)left : (__u64)left) / (right < 0 ? -(__u64)right : (__u64)right);
	return (left < 0) != (right < 0) ? -quotient : quotient;
}

/* Elements were widened to 64 bits, with their sign if the type has one; the result is cut to its type by the caller. */
static __always_inline __u64 combine_integers(__u32 operation, int is_signed, __u64 left, __u64 right)
{
	int less = is_signed ? (__s64)left < (__s64)right : left < right;
	switch (operation) {
	case ADD: return left + right;
	case SUBTRACT: return left - right;
	case MULTIPLY: return left * right;
	case DIVIDE: return !right ? 0 : is_signed ? divide_signed(left, right) : left / right;
	case MINIMUM: return less ? left : right;
	case MAXIMUM: return less ? right : left;
	case AND: return left & right;
	case OR: return left | right;
	default: return left ^ right;
	}
}

/* A loop over elements of one type. Places have room for PIECE_BYTES behind them. */
#define FOR_ELEMENTS(type, expression)                                                                               \
	for (__u32 i = zero; i + sizeof(type) <= bytes && i < PIECE_BYTES && can_loop(); i += sizeof(type)) {        \
		opaque(i);                                                                                           \
		type left = *(type *)(left_place + i), right = *(type *)(right_place + i);                           \
		*(type *)(destination_place + i) = (expression);                                                     \
	}

#define INTEGERS(type, is_signed)                                                                                    \
	if (operation == DIVIDE) {                                                                                   \
		for (__u32 i = zero; i + sizeof(type) <= bytes && i < PIECE_BYTES && can_loop(); i += sizeof(type)) {\
			opaque(i);                                                                                   \
			if (!*(type *)(right_place + i)) {                                                           \
				zero_divisor = i / sizeof(type) + 1;                                                 \
				break;                                                                               \
			}                                                                                            \
		}                                                                                                    \
	}                                                                                                            \
	FOR_ELEMENTS(type, combine_integers(operation, is_signed, left, right))                                      \
	break

/* Combines up to PIECE_BYTES in blocks that are the same or do not overlap. `what` is the operation, the type in bits 8
 * to 15 and the number of bytes above. Gives the first element that was divided by zero, plus one. */
__noinline __u32 combine(struct rank_memory *rank __arg_nonnull, __u64 what, __u32 left_at, __u32 right_at,
			 __u32 destination_at)
{
	__u8 *left_place = AT(rank, __u8, left_at), *right_place = AT(rank, __u8, right_at);
	__u8 *destination_place = AT(rank, __u8, destination_at);
	__u32 operation = what & 0xff, bytes = what >> 16, zero_divisor = 0;
	switch (what >> 8 & 0xff) {
	case U8: case BIT: INTEGERS(__u8, 0);
	case U16: INTEGERS(__u16, 0);
	case U32: INTEGERS(__u32, 0);
	case U64: INTEGERS(__u64, 0);
	case I8: INTEGERS(__s8, 1);
	case I16: INTEGERS(__s16, 1);
	case I32: INTEGERS(__s32, 1);
	case I64: INTEGERS(__s64, 1);
	case F32: FOR_ELEMENTS(__u32, combine_floats(operation, 0, left, right)) break;
	default: FOR_ELEMENTS(__u64, combine_floats(operation, 1, left, right)) break;
	}
	return zero_divisor;
}

/* Notes the first division by zero of a run, which goes on, since other ranks wait for its messages. */
static __always_inline void note_division(struct run *run, struct operation_record *record, __u32 element)
{
	if (run->fault)
		return;
	run->fault = FAULT_DIVISION;
	run->fault_vertex = record->vertex;
	run->fault_element = element;
}

/* The operation `local` over three lists that may be cut at different places between elements. */
__noinline int compute_lists(struct rank_memory *rank __arg_nonnull, __u32 run_place, __u32 operation)
{
	struct run *run = run_at(rank, run_place);
	struct operation_record *record = record_at(rank, run, operation);
	__u32 block = record->first_block;
	__u32 type = record->data_type, code = record->arithmetic | type << 8;
	struct cursor to = cursor_at(run, block, record->destination_count);
	struct cursor left = cursor_at(run, block + record->destination_count, record->left_count);
	struct cursor right =
		cursor_at(run, block + record->destination_count + record->left_count, record->right_count);
	__u32 element_shift = type >= F32 ? type - F32 + 2 : type & 3;
	__u32 done = zero, pieces = zero;
	while (done < ARENA_BYTES && can_loop()) {
		__u32 bytes = cursor_rest(rank, &to), rest = cursor_rest(rank, &left), other = cursor_rest(rank, &right);
		if (bytes > rest)
			bytes = rest;
		if (bytes > other)
			bytes = other;
		if (bytes > PIECE_BYTES)
			bytes = PIECE_BYTES;
		if (!bytes)
			break;
		__u32 zero_divisor = combine(rank, code | (__u64)bytes << 16, cursor_place(rank, run, &left),
					     cursor_place(rank, run, &right), cursor_place(rank, run, &to));
		if (zero_divisor)
			note_division(run, record, (done >> element_shift) + zero_divisor - 1);
		left.used += bytes;
		right.used += bytes;
		to.used += bytes;
		done += bytes;
		pieces++;
	}
	count_rounds(done + 32 * pieces + cursor_walked(&to) + cursor_walked(&left) + cursor_walked(&right));
	return 0;
}

/* The operation `local`. */
static __always_inline void compute(struct rank_memory *rank, struct run *run, __u32 run_place, __u32 operation)
{
	struct operation_record *record = record_at(rank, run, operation);
	/* Read once: the rank, or the result itself, may change it meanwhile. */
	__u64 bytes = *(volatile __u64 *)&record->bytes;
	if (record->destination_count != 1 || record->left_count != 1 || record->right_count != 1 ||
	    bytes > PIECE_BYTES) {
		compute_lists(rank, run_place, operation);
		return;
	}
	struct block_record *blocks = blocks_at(rank, run, record->first_block);
	__u64 what = record->arithmetic | (__u32)record->data_type << 8 | bytes << 16;
	__u32 zero_divisor = combine(rank, what, block_place(rank, run, &blocks[1]),
				     block_place(rank, run, &blocks[2]), block_place(rank, run, &blocks[0]));
	if (zero_divisor)
		note_division(run, record, zero_divisor - 1);
	count_rounds(bytes);
}

#endif
