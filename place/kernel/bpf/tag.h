/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Tags of the fair disciplines: bytes for each unit of weight, in units of 2^-48. The twin of
 * data/sched/src/discipline/tag.rs, and the arithmetic on 128 bits that BPF has no instructions for:
 * products and quotients, by the 32 and 16 bits that its own can do.
 */
#ifndef SELVEDGE_TAG_H
#define SELVEDGE_TAG_H

#include "integers.h"

typedef unsigned __int128 u128;

#define FRACTION 48
/* The last tag that fits a rank, and the largest frame that counts. */
#define TAG_LAST ((((u128)1) << 112) - 1)
#define BYTES_MAX (1ULL << 40)
#define MOST (~(u128)0)

static __always_inline u128 least(u128 a, u128 b)
{
	return a < b ? a : b;
}

static __always_inline u128 sum(u128 a, u128 b)
{
	u128 c = a + b;

	return c < a ? MOST : c;
}

/* a * b, or the most that there is. */
static __always_inline u128 times_word(u128 a, u32 b)
{
	u64 c0 = (u64)(u32)a * b;
	u64 c1 = (u64)(u32)(a >> 32) * b + (c0 >> 32);
	u64 c2 = (u64)(u32)(a >> 64) * b + (c1 >> 32);
	u64 c3 = (u64)(u32)(a >> 96) * b + (c2 >> 32);

	if (c3 >> 32)
		return MOST;
	return (u128)(c3 << 32 | (u32)c2) << 64 | (c1 << 32 | (u32)c0);
}

/* The same for a wider factor: a sum of weights. */
static __always_inline u128 times(u128 a, u64 b)
{
	u128 high = times_word(a, b >> 32);

	if (high >> 96)
		return MOST;
	return sum(high << 32, times_word(a, b));
}

/* n / d and what is left, for 0 < d < 2^48. */
static __always_inline u128 over(u128 n, u64 d, u64 *left)
{
	u64 high = n >> 64, low = n, quotient = 0, rest;

	if (!d)
		d = 1;
	rest = high % d;
#define DIGIT(at)                                                                                  \
	rest = rest << 16 | (low >> at & 0xffff);                                                  \
	quotient = quotient << 16 | rest / d;                                                      \
	rest %= d;
	DIGIT(48)
	DIGIT(32)
	DIGIT(16)
	DIGIT(0)
#undef DIGIT
	*left = rest;
	return (u128)(high / d) << 64 | quotient;
}

static __always_inline u64 counted(u64 size)
{
	return size < BYTES_MAX ? size : BYTES_MAX;
}

/* How long a frame is in virtual time. */
static __always_inline u128 span_of(u64 size, u32 weight)
{
	u64 left;

	return over((u128)counted(size) << FRACTION, weight, &left);
}

static __always_inline u128 after(u128 start, u128 span)
{
	return least(sum(start, span), TAG_LAST);
}

#endif
