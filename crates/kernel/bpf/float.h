/* Floating-point arithmetic on bits, since a BPF program has no registers for it: IEEE 754-2019, binary32 and binary64,
 * rounded to nearest, ties to even, with subnormal numbers. Every NaN that results is the canonical one, −0 is less than
 * +0: exactly what `goal::arithmetic` defines.
 *
 * A number is unpacked to a sign, an exponent and a significand whose leading bit is bit 62, whatever its format; the
 * operations work on that and keep what falls off below as a sticky lowest bit; packing rounds once. */
#ifndef FLOAT_H
#define FLOAT_H

#include "memory.h"

enum { ADD, SUBTRACT, MULTIPLY, DIVIDE, MINIMUM, MAXIMUM, AND, OR, XOR };

/* The bits of a format's fields. */
#define FRACTION_BITS(wide) ((wide) ? 52u : 23u)
#define EXPONENT_MAX(wide) ((wide) ? 2047 : 255)
#define LEADING_BIT 62u
#define INFINITY_BITS(wide) ((__u64)EXPONENT_MAX(wide) << FRACTION_BITS(wide))
#define NAN_BITS(wide) (INFINITY_BITS(wide) | 1ull << (FRACTION_BITS(wide) - 1))
#define SIGN_SHIFT(wide) ((wide) ? 63u : 31u)

/* value = (-1)^sign × significand × 2^(exponent − bias − LEADING_BIT); a significand of 0 is a zero. */
struct unpacked {
	__u64 significand;
	__s32 exponent;
	__u32 sign;
};

/* Zeros before the first one. Without branches, of which the verifier would follow each combination. */
static __always_inline __u32 leading_zeros(__u64 value)
{
	value |= value >> 1;
	value |= value >> 2;
	value |= value >> 4;
	value |= value >> 8;
	value |= value >> 16;
	value |= value >> 32;
	/* Now every bit from the first one on is set; count the others. */
	value = ~value;
	value -= value >> 1 & 0x5555555555555555ull;
	value = (value & 0x3333333333333333ull) + (value >> 2 & 0x3333333333333333ull);
	value = (value + (value >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return value * 0x0101010101010101ull >> 56;
}

/* Shifts right; what falls off is kept as the lowest bit, if any of it was one. */
static __always_inline __u64 shift_sticky(__u64 value, __u32 count)
{
	if (!count)
		return value;
	if (count > 63)
		return value != 0;
	return value >> count | ((value & ((1ull << count) - 1)) != 0);
}

static __always_inline struct unpacked unpack(__u64 bits, __u32 wide)
{
	__u32 fraction_bits = FRACTION_BITS(wide);
	struct unpacked number;
	number.sign = bits >> SIGN_SHIFT(wide) & 1;
	number.exponent = bits >> fraction_bits & EXPONENT_MAX(wide);
	number.significand = bits & ((1ull << fraction_bits) - 1);
	if (number.exponent)
		number.significand |= 1ull << fraction_bits;
	else
		number.exponent = 1;
	if (number.significand) {
		__u32 shift = leading_zeros(number.significand) - (63 - LEADING_BIT);
		number.significand <<= shift & 63;
		/* As if the leading bit had been at its place: LEADING_BIT above, FRACTION_BITS in the format. */
		number.exponent -= (__s32)shift - (__s32)(LEADING_BIT - fraction_bits);
	}
	return number;
}

/* Rounds a significand, of which the leading bit is bit 62 or the number is zero, into a format. A function of its own,
 * so that the verifier looks at it once. */
__noinline __u64 pack(__u32 sign, __s32 exponent, __u64 significand, __u32 wide)
{
	__u32 excess = LEADING_BIT - FRACTION_BITS(wide);
	__u64 signed_zero = (__u64)sign << SIGN_SHIFT(wide);
	if (!significand)
		return signed_zero;
	if (exponent < 1) {
		/* Subnormal: the leading bit moves below its place. */
		significand = shift_sticky(significand, 1 - exponent);
		exponent = 0;
	}
	__u64 half = 1ull << (excess - 1), below = significand & ((1ull << excess) - 1);
	significand >>= excess;
	if (below > half || (below == half && significand & 1))
		significand++;
	if (exponent)
		/* Without the leading bit; a carry out of the fraction has moved it up and raises the exponent. */
		significand += (__u64)(exponent - 1) << FRACTION_BITS(wide);
	if (significand >= INFINITY_BITS(wide))
		significand = INFINITY_BITS(wide);
	return signed_zero | significand;
}

static __always_inline __u64 float_add(struct unpacked left, struct unpacked right, __u32 wide)
{
	if (!left.significand && !right.significand)
		return pack(left.sign & right.sign, 0, 0, wide);
	if (!left.significand)
		return pack(right.sign, right.exponent, right.significand, wide);
	if (!right.significand)
		return pack(left.sign, left.exponent, left.significand, wide);
	if (left.exponent < right.exponent ||
	    (left.exponent == right.exponent && left.significand < right.significand)) {
		struct unpacked greater = right;
		right = left;
		left = greater;
	}
	/* One bit of space for a carry. */
	__u64 sum = left.significand, other = shift_sticky(right.significand, left.exponent - right.exponent);
	if (left.sign == right.sign) {
		sum += other;
		if (sum >> 63)
			return pack(left.sign, left.exponent + 1, shift_sticky(sum, 1), wide);
		return pack(left.sign, left.exponent, sum, wide);
	}
	sum -= other;
	if (!sum)
		return pack(0, 0, 0, wide);
	__u32 shift = leading_zeros(sum) - 1;
	return pack(left.sign, left.exponent - (__s32)shift, sum << (shift & 63), wide);
}

static __always_inline __u64 float_multiply(struct unpacked left, struct unpacked right, __s32 bias, __u32 wide)
{
	__u32 sign = left.sign ^ right.sign;
	if (!left.significand || !right.significand)
		return pack(sign, 0, 0, wide);
	/* 63 bits times 63 bits in four products of 32 bits; the upper 64 of 126 bits, the rest sticky. */
	__u64 a = left.significand >> 32, b = (__u32)left.significand;
	__u64 c = right.significand >> 32, d = (__u32)right.significand;
	__u64 middle = a * d + (b * d >> 32), low = (__u32)(b * d);
	__u64 cross = b * c + (__u32)middle;
	__u64 high = a * c + (middle >> 32) + (cross >> 32);
	low |= cross << 32;
	/* The product's leading bit is bit 124 or 125, that is bit 60 or 61 of the upper half. */
	__u32 shift = high >> 61 ? 1 : 2;
	__u64 significand = high << shift | low >> (64 - shift) | ((low << shift) != 0);
	return pack(sign, left.exponent + right.exponent - bias + 2 - (__s32)shift, significand, wide);
}

static __always_inline __u64 float_divide(struct unpacked left, struct unpacked right, __s32 bias, __u32 wide)
{
	__u32 sign = left.sign ^ right.sign;
	if (!right.significand)
		return left.significand ? (__u64)sign << SIGN_SHIFT(wide) | INFINITY_BITS(wide) : NAN_BITS(wide);
	if (!left.significand)
		return pack(sign, 0, 0, wide);
	/* Both have no more than 53 bits, so ten bits of the quotient come with each division. */
	__u64 divisor = right.significand >> 10, remainder = left.significand >> 10;
	__s32 exponent = left.exponent - right.exponent + bias;
	if (remainder < divisor) {
		remainder <<= 1;
		exponent--;
	}
	__u64 quotient = remainder / divisor;
	remainder %= divisor;
#pragma clang loop unroll(full)
	for (int i = 0; i < 6; i++) {
		remainder <<= 10;
		quotient = quotient << 10 | remainder / divisor;
		remainder %= divisor;
	}
	/* The quotient's leading bit is bit 60. */
	return pack(sign, exponent, quotient << 2 | (remainder != 0), wide);
}

/* One element: left OPERATION right, as bits; minimum and maximum are computed in words. */
__noinline __u64 combine_floats(__u32 operation, __u32 wide, __u64 left, __u64 right)
{
	__u64 magnitude = (1ull << SIGN_SHIFT(wide)) - 1, infinity = INFINITY_BITS(wide);
	__u64 left_size = left & magnitude, right_size = right & magnitude;
	if (left_size > infinity || right_size > infinity)
		return NAN_BITS(wide);
	if (operation == SUBTRACT)
		right ^= magnitude + 1;
	__u64 sign = (left ^ right) & (magnitude + 1);
	if (left_size == infinity) {
		if (right_size == infinity)
			return operation == DIVIDE || (operation <= SUBTRACT && sign) ? NAN_BITS(wide) :
			       operation == MULTIPLY ? sign | infinity : left;
		if (operation == MULTIPLY)
			return right_size ? sign | infinity : NAN_BITS(wide);
		return operation == DIVIDE ? sign | infinity : left;
	}
	if (right_size == infinity) {
		if (operation == MULTIPLY)
			return left_size ? sign | infinity : NAN_BITS(wide);
		return operation == DIVIDE ? sign : right;
	}
	struct unpacked first = unpack(left, wide), second = unpack(right, wide);
	__s32 bias = EXPONENT_MAX(wide) / 2;
	if (operation == MULTIPLY)
		return float_multiply(first, second, bias, wide);
	if (operation == DIVIDE)
		return float_divide(first, second, bias, wide);
	return float_add(first, second, wide);
}

#endif
