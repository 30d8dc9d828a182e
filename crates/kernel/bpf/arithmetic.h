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

/* Vectors of elements in words of 64 bits: `top` has the highest bit of each element, `shift` is the distance to its lowest
 * bit. No carry passes from one element to the next (Warren, "Hacker's Delight", 2nd edition, section 2-18). These are
 * variables, and so is what tells related operations apart, so that one loop serves all types: the verifier looks at each
 * loop. */
struct lanes {
	__u64 top;
	__u64 flip; /* bits of the operands that are inverted before they are added or compared */
	__u64 fraction; /* of floating-point numbers, all bits of the fractions; else 0 */
	__u32 shift;
};

static __always_inline struct lanes lanes_of(__u32 operation, __u32 type)
{
	__u32 width = type >= F32 ? type - F32 + 2 : type & 3;
	int is_signed = type >= I8 && type <= I64, is_float = type == F32 || type == F64;
	struct lanes lanes = { 0x8080808080808080ull, 0, 0, (8u << width) - 1 };
	if (width == 1)
		lanes.top = 0x8000800080008000ull;
	if (width == 2)
		lanes.top = 0x8000000080000000ull;
	if (width == 3)
		lanes.top = 0x8000000000000000ull;
	if (is_float)
		lanes.fraction = width == 2 ? 0x007fffff007fffffull : 0x000fffffffffffffull;
	/* left − right is the complement of (complement of left) + right, and the maximum is the minimum in reverse. */
	if (operation == SUBTRACT || operation == MAXIMUM)
		lanes.flip = ~0ull;
	/* Without their signs numbers are in the same order if the signs are inverted. */
	if (is_signed && operation >= MINIMUM)
		lanes.flip ^= lanes.top;
	return lanes;
}

static __always_inline __u64 add_lanes(__u64 left, __u64 right, struct lanes *lanes)
{
	__u64 top = lanes->top;
	left ^= lanes->flip;
	return ((left & ~top) + (right & ~top)) ^ ((left ^ right) & top) ^ lanes->flip;
}

/* All bits of the elements of which the highest bit is set. */
static __always_inline __u64 whole_lanes(__u64 tops, struct lanes *lanes)
{
	return (tops - (tops >> lanes->shift)) | tops;
}

/* All bits of the elements in which left is less than right, without signs: the borrow of their difference. */
static __always_inline __u64 less_lanes(__u64 left, __u64 right, struct lanes *lanes)
{
	__u64 top = lanes->top, difference = ((left | top) - (right & ~top)) ^ ((left ^ ~right) & top);
	__u64 borrow = (~left & right) | (~(left ^ right) & difference);
	return whole_lanes(borrow & top, lanes);
}

static __always_inline __u64 extreme_integers(__u64 left, __u64 right, struct lanes *lanes)
{
	return right ^ ((left ^ right) & less_lanes(left ^ lanes->flip, right ^ lanes->flip, lanes));
}

/* Floating-point numbers in an order in which comparing bits compares values. */
static __always_inline __u64 ordered_lanes(__u64 word, struct lanes *lanes)
{
	return word ^ (whole_lanes(word & lanes->top, lanes) | lanes->top) ^ lanes->flip;
}

/* A magnitude above that of an infinity, the complement of the fraction, carries into the highest bit: a NaN. The canonical
 * one has all bits of the exponent and the first of the fraction. */
static __always_inline __u64 extreme_floats(__u64 left, __u64 right, struct lanes *lanes)
{
	__u64 less = less_lanes(ordered_lanes(left, lanes), ordered_lanes(right, lanes), lanes);
	__u64 chosen = right ^ ((left ^ right) & less);
	__u64 nans = ((left & ~lanes->top) + lanes->fraction) | ((right & ~lanes->top) + lanes->fraction);
	nans = whole_lanes(nans & lanes->top, lanes);
	return (chosen & ~nans) | (~(lanes->fraction >> 1 | lanes->top) & nans);
}

/* Bytes of a round of a loop: the test that ends it takes as long as an element. */
#define ROUND_BYTES 32u

#define ELEMENT(type, offset, expression)                                                                            \
	{                                                                                                            \
		type left = *(type *)(left_place + i + (offset)), right = *(type *)(right_place + i + (offset));     \
		*(type *)(destination_place + i + (offset)) = (expression);                                          \
	}

/* A loop over elements of one type. Places have space for PIECE_BYTES behind them. */
#define FOR_ELEMENTS(type, expression)                                                                               \
	for (__u32 i = zero; i + sizeof(type) <= bytes && i < PIECE_BYTES && can_loop(); i += sizeof(type)) {        \
		opaque(i);                                                                                           \
		ELEMENT(type, 0, expression)                                                                         \
	}

/* A loop over words. Of the last one only those bytes are written that belong to the block. */
#define FOR_WORDS(expression)                                                                                        \
	{                                                                                                            \
		__u32 i = zero;                                                                                      \
		for (; i + ROUND_BYTES <= bytes && i < PIECE_BYTES && can_loop(); i += ROUND_BYTES) {                \
			opaque(i);                                                                                   \
			ELEMENT(__u64, 0, expression) ELEMENT(__u64, 8, expression)                                  \
			ELEMENT(__u64, 16, expression) ELEMENT(__u64, 24, expression)                                \
		}                                                                                                    \
		for (; i + 8 <= bytes && i < PIECE_BYTES && can_loop(); i += 8) {                                    \
			opaque(i);                                                                                   \
			ELEMENT(__u64, 0, expression)                                                                \
		}                                                                                                    \
		if (i < bytes && i < PIECE_BYTES) {                                                                  \
			opaque(i);                                                                                   \
			__u64 left = *(__u64 *)(left_place + i), right = *(__u64 *)(right_place + i);                \
			write_end(destination_place + i, bytes, (expression));                                       \
		}                                                                                                    \
	}

static __always_inline void write_end(__u8 *place, __u32 bytes, __u64 word)
{
	if (bytes & 4) {
		*(__u32 *)place = word;
		place += 4;
		word >>= 32;
	}
	if (bytes & 2) {
		*(__u16 *)place = word;
		place += 2;
		word >>= 16;
	}
	if (bytes & 1)
		*place = word;
}

/* Division of integers. Zeros are found before the divisors may be overwritten. */
#define DIVISION(type, expression)                                                                                   \
	{                                                                                                            \
		for (__u32 i = zero; i + sizeof(type) <= bytes && i < PIECE_BYTES && can_loop(); i += sizeof(type)) {\
			opaque(i);                                                                                   \
			if (!*(type *)(right_place + i)) {                                                           \
				zero_divisor = i / sizeof(type) + 1;                                                 \
				break;                                                                               \
			}                                                                                            \
		}                                                                                                    \
		FOR_ELEMENTS(type, !right ? 0 : (expression))                                                        \
	}

#define PRODUCT(unsigned_type, signed_type)                                                                          \
	if (operation == MULTIPLY)                                                                                   \
		FOR_ELEMENTS(unsigned_type, left * right)                                                            \
	else if (type >= I8 && type <= I64)                                                                                               \
		DIVISION(signed_type, divide_signed(left, right))                                                    \
	else                                                                                                         \
		DIVISION(unsigned_type, left / right)                                                                \
	break

#define PLACES                                                                                                       \
	__u8 *left_place = AT(rank, __u8, left_at), *right_place = AT(rank, __u8, right_at);                         \
	__u8 *destination_place = AT(rank, __u8, destination_at);                                                    \
	__u32 operation = what & 0xff, type = what >> 8 & 0xff, bytes = what >> 16;

/* Functions of their own, so that the verifier does not look at one for each way through the others. `what` is the
 * operation, the type in bits 8 to 15 and the number of bytes above. */
__noinline int combine_words(struct rank_memory *rank __arg_nonnull, __u64 what, __u32 left_at, __u32 right_at,
			     __u32 destination_at)
{
	PLACES
	struct lanes lanes = lanes_of(operation, type);
	switch (operation) {
	case AND: FOR_WORDS(left & right) break;
	case OR: FOR_WORDS(left | right) break;
	case XOR: FOR_WORDS(left ^ right) break;
	case ADD: case SUBTRACT: FOR_WORDS(add_lanes(left, right, &lanes)) break;
	default: FOR_WORDS(extreme_integers(left, right, &lanes)) break;
	}
	return 0;
}

__noinline int combine_extremes(struct rank_memory *rank __arg_nonnull, __u64 what, __u32 left_at, __u32 right_at,
				__u32 destination_at)
{
	PLACES
	struct lanes lanes = lanes_of(operation, type);
	FOR_WORDS(extreme_floats(left, right, &lanes))
	return 0;
}

/* Returns the first element that was divided by zero, plus one. */
__noinline __u32 combine_elements(struct rank_memory *rank __arg_nonnull, __u64 what, __u32 left_at, __u32 right_at,
				  __u32 destination_at)
{
	PLACES
	__u32 zero_divisor = 0;
	switch (type) {
	case U8: case I8: PRODUCT(__u8, __s8);
	case U16: case I16: PRODUCT(__u16, __s16);
	case U32: case I32: PRODUCT(__u32, __s32);
	case U64: case I64: PRODUCT(__u64, __s64);
	case F32: FOR_ELEMENTS(__u32, combine_floats(operation, 0, left, right)) break;
	default: FOR_ELEMENTS(__u64, combine_floats(operation, 1, left, right)) break;
	}
	return zero_divisor;
}

/* Combines up to PIECE_BYTES in blocks that are the same or do not overlap. Returns the first element that was divided by
 * zero, plus one. */
__noinline __u32 combine(struct rank_memory *rank __arg_nonnull, __u64 what, __u32 left_at, __u32 right_at,
			 __u32 destination_at)
{
	__u32 operation = what & 0xff, type = what >> 8 & 0xff;
	int is_float = type == F32 || type == F64;
	if (operation == MULTIPLY || operation == DIVIDE || (is_float && operation <= SUBTRACT))
		return combine_elements(rank, what, left_at, right_at, destination_at);
	if (is_float)
		combine_extremes(rank, what, left_at, right_at, destination_at);
	else
		combine_words(rank, what, left_at, right_at, destination_at);
	return 0;
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
