/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Virtual deadlines. The twin of data/sched/src/discipline/vds.rs (Zhang, West and Qi, RTSS 2004).
 */
#ifndef SELVEDGE_VDS_H
#define SELVEDGE_VDS_H

#include "slots.h"
#include "tag.h"

/* The last moment that ends a period. */
#define KEY_LAST (~0ULL - 4)

struct vds {
	u64 start; /* where the current period began, or the first will */
	u64 period;
	u64 ends; /* when it ends, or the first begins, if a frame waits */
	u16 owes, of, owed, left; /* m, k, m', k' */
	u8 known, served;
} virtual[STREAMS_MAX];

u16 ends[2 * STREAMS_MAX];

static __always_inline struct vds *vds_of(u32 i)
{
	return &virtual[i & (STREAMS_MAX - 1)];
}

static __always_inline bool ends_first(u32 i, u32 j)
{
	s64 order = by_time(vds_of(i)->ends, vds_of(j)->ends);

	return order ? order < 0 : i < j;
}

TOURNAMENT(play_ends, ends, ends_first)

static __always_inline void vds_window(u32 i)
{
	struct window w = contract_of(i)->window;
	struct vds *v = vds_of(i);
	u16 owes = w.of - w.lose;

	if (owes == v->owes && w.of == v->of)
		return;
	v->owes = v->owed = owes;
	v->of = v->left = w.of;
}

static __always_inline void vds_begin(u32 i)
{
	*vds_of(i) = (struct vds){};
	vds_window(i);
	ends[(2 * i) & (2 * STREAMS_MAX - 1)] = ends[(2 * i + 1) & (2 * STREAMS_MAX - 1)] = NOBODY;
}

/* Ends the periods that are over. */
static __always_inline void vds_catch_up(struct vds *v, u64 now)
{
	u64 over, period = v->period ? v->period : 1;

	if (now < later(v->start, period))
		return;
	over = (now - v->start) / period;
	v->start += over * period;
	v->served = 0;
	if (over < v->left) {
		v->left -= over;
	} else if (v->of) {
		v->left = v->of - (over - v->left) % v->of;
		v->owed = v->owes;
	}
}

/* Notes when the current period ends, or the first begins; at the end of time there is no other. */
static __always_inline void vds_ends(u32 i, u64 now)
{
	struct vds *v = vds_of(i);
	u64 next = now < v->start ? v->start : later(v->start, v->period);

	v->ends = next;
	play_ends(i, next > now && next < KEY_LAST);
}

static __always_inline bool is_owed(const struct vds *v, u64 now)
{
	return v->owed && !v->served && v->start <= now;
}

static __always_inline void vds_head(u32 i, u64 now)
{
	const struct slot *s = slot_of(i);
	struct vds *v = vds_of(i);
	u64 from = ready(i);

	v->period = period_of(contract_of(i));
	if (!v->known) {
		v->known = 1;
		v->start = from;
	}
	vds_catch_up(v, now > s->arrival ? now : s->arrival);
	if (!v->served && from > v->start && from < later(v->start, v->period))
		v->start = from;
	vds_ends(i, now);
}

static __always_inline void vds_leave(u32 i, bool sent)
{
	struct vds *v = vds_of(i);

	if (sent) {
		v->owed -= v->owed > 0;
		v->served = 1;
	}
	play_ends(i, false);
}

static __always_inline bool vds_waits(u32 i, u64 now)
{
	return !contract_of(i)->work_conserving && !is_owed(vds_of(i), now);
}

/* s + k' T / m', whole and in 2^32 - 1 parts; what is owed nothing after that, by its deadline. */
static __always_inline u128 vds_rank(u32 i, u64 now)
{
	const struct vds *v = vds_of(i);
	u64 left;
	u128 whole;

	if (!is_owed(v, now))
		return (u128)1 << 96 | (u128)slot_of(i)->deadline << 32;
	whole = v->start + over(times_word(v->period, v->left), v->owed, &left);
	if (whole >> 64)
		return (u128)~0ULL << 32;
	return whole << 32 | left * 0xffffffffULL / (v->owed ? v->owed : 1);
}

#endif
