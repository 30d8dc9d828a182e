/* SipHash-2-4 (Aumasson, Bernstein: SipHash, a fast short-input PRF, INDOCRYPT 2012): a keyed checksum that no one can
 * compute without the key. */
#ifndef SIPHASH_H
#define SIPHASH_H

#include "memory.h"

struct siphash {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 rotate(__u64 word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static __always_inline void siphash_round(struct siphash *state)
{
	state->v0 += state->v1;
	state->v2 += state->v3;
	state->v1 = rotate(state->v1, 13) ^ state->v0;
	state->v3 = rotate(state->v3, 16) ^ state->v2;
	state->v0 = rotate(state->v0, 32) + state->v3;
	state->v2 += state->v1;
	state->v1 = rotate(state->v1, 17) ^ state->v2;
	state->v3 = rotate(state->v3, 21) ^ state->v0;
	state->v2 = rotate(state->v2, 32);
}

static __always_inline struct siphash siphash_start(__u64 key0, __u64 key1)
{
	struct siphash state = {
		key0 ^ 0x736f6d6570736575,
		key1 ^ 0x646f72616e646f6d,
		key0 ^ 0x6c7967656e657261,
		key1 ^ 0x7465646279746573,
	};
	return state;
}

static __always_inline void siphash_word(struct siphash *state, __u64 word)
{
	state->v3 ^= word;
	siphash_round(state);
	siphash_round(state);
	state->v0 ^= word;
}

/* `last` holds the bytes that fill no word, and in its highest byte the number of all bytes. */
static __always_inline __u64 siphash_end(struct siphash *state, __u64 last)
{
	siphash_word(state, last);
	state->v2 ^= 0xff;
	siphash_round(state);
	siphash_round(state);
	siphash_round(state);
	siphash_round(state);
	return state->v0 ^ state->v1 ^ state->v2 ^ state->v3;
}

#endif
