/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Window-constrained scheduling as BPF: the slots, rules a and b, and who goes first. The twin of
 * data/sched in C; every decision is the same to the bit. Times are plain 64-bit numbers: nanoseconds of
 * CLOCK_MONOTONIC in the qdisc, slots in a replay. Fractions are compared by cross-multiplication.
 * Sources: Q-Fabric section 2.4.1, ShareStreams Table 2, NI coprocessors section 2.2.4.
 */
#ifndef SELVEDGE_DWCS_H
#define SELVEDGE_DWCS_H

#include "told.h"

/* Winners of a tournament: node 1 is the champion, stream i plays from leaf `leaves + i`. */
u16 selection[2 * STREAMS_MAX]; /* heads that may go, in the discipline's order */
u16 held[2 * STREAMS_MAX];	/* heads that may not go yet, by when they may */
u16 due[2 * STREAMS_MAX];	/* all heads by deadline, if the selection is in another order */

/* dwcs98 looks at the deadline only where something may be lost, or there is no window. */
static __always_inline u64 time98(const struct slot *s)
{
	return s->window.lose || !s->window.of ? s->deadline : s->arrival;
}

static __always_inline s64 by_rank(u32 i, u32 j)
{
	u128 x = ranks[i & (STREAMS_MAX - 1)], y = ranks[j & (STREAMS_MAX - 1)];

	return x < y ? -1 : x > y;
}

/* Whether the head of stream i goes before that of stream j. */
static __always_inline bool goes_first(u32 i, u32 j)
{
	const struct slot *a = slot_of(i), *b = slot_of(j);
	s64 order = 0;

	switch (discipline) {
	case DWCS:
		order = by_time(a->deadline, b->deadline);
		if (!order)
			order = by_fraction(&a->window, &b->window);
		if (!order)
			order = (s64)a->window.lose - b->window.lose;
		break;
	case DWCS98:
		order = by_fraction(&a->window, &b->window);
		if (!order)
			order = by_time(time98(a), time98(b));
		if (!order)
			order = (s64)a->window.lose - b->window.lose;
		break;
	case EDF:
		order = by_time(a->deadline, b->deadline);
		break;
	case PRIORITY:
		order = (s64)b->priority - a->priority;
		break;
	case FIFO:
		break;
	case VDS:
		order = by_rank(i, j);
		return order ? order < 0 : i < j;
	default:
		order = by_rank(i, j);
	}
	if (!order)
		order = by_time(a->arrival, b->arrival);
	return order ? order < 0 : i < j;
}

static __always_inline bool is_ready_first(u32 i, u32 j)
{
	s64 order = by_time(ready(i), ready(j));

	return order ? order < 0 : i < j;
}

static __always_inline bool is_due_first(u32 i, u32 j)
{
	s64 order = by_time(slot_of(i)->deadline, slot_of(j)->deadline);

	return order ? order < 0 : i < j;
}

TOURNAMENT(play_selection, selection, goes_first)
TOURNAMENT(play_held, held, is_ready_first)
TOURNAMENT(play_due, due, is_due_first)

/* The stream that goes first, or NOBODY. With one leaf only, node 1 is that leaf. */
static __always_inline u32 chosen(void)
{
	return BY_TREE ? share_of(0)->first : selection[1];
}

static __always_inline void select(u32 i, bool in)
{
	struct slot *s = slot_of(i);

	if (TOLD) {
		if (BY_TREE)
			return;
		if (discipline == VDS && vds_waits(i, state.clock))
			in = false;
		if (in)
			ranks[i & (STREAMS_MAX - 1)] = rank_of(i);
	}
	if (in || s->selected)
		play_selection(i, in);
	s->selected = in;
}

static __always_inline void hold(u32 i, bool in)
{
	struct slot *s = slot_of(i);

	if (in || s->held)
		play_held(i, in);
	s->held = in;
}

static __always_inline bool is_ready(u32 i)
{
	return contract_of(i)->work_conserving || ready(i) <= state.clock;
}

/* Puts a stream where its head belongs, after any change to it. */
__noinline int place(u32 i)
{
	struct slot *s = slot_of(i);
	bool head = s->has_head;
	bool may_go = is_ready(i);

	if (!DEADLINE_FIRST)
		play_due(i, head && s->deadline <= LAST);
	hold(i, head && !may_go);
	select(i, head && may_go);
	return 0;
}

/* Makes a frame the head: its deadline. A stated one is taken as it is. */
__noinline int bring_up(u32 i, u64 arrival, u64 stated)
{
	struct slot *s = slot_of(i);
	struct contract *c = contract_of(i);
	u64 after = s->deadline > arrival ? s->deadline : arrival;

	if (!s->begun) {
		s->begun = 1;
		if (c->has_first) {
			s->deadline = c->first_deadline;
			goto up;
		}
	}
	if (stated)
		s->deadline = stated;
	else if (c->delay)
		s->deadline = later(arrival, c->delay);
	else
		s->deadline = later(after, period_of(c));
up:
	s->arrival = arrival;
	s->has_head = 1;
	s->missed_one = 0;
	if (TOLD && is_ready(i))
		tell_head(i, arrival > state.clock);
	return place(i);
}

/* Takes over what user space has changed of a contract: the window begins anew. The caller places
 * the stream. */
static __always_inline void renew(struct slot *s, const struct contract *c)
{
	s->renewed = c->renewed;
	s->priority = c->priority;
	s->window = c->window;
	if (discipline == VDS)
		vds_window(s - table.slots);
}

/* The stream whose head missed its deadline by now, or NOBODY. */
static __always_inline u32 expired(u64 now)
{
	u32 i = DEADLINE_FIRST ? selection[1] : due[1];

	if (i == NOBODY || slot_of(i)->deadline > (now < LAST ? now : LAST))
		return NOBODY;
	return i;
}

/* A head that is late and is kept: its deadline moves past now. How many deadlines were missed. */
__noinline u64 keep(u32 i, u64 now)
{
	struct slot *s = slot_of(i);
	struct contract *c = contract_of(i);
	u64 period = period_of(c), misses = 1;

	s->missed_one = 1;
	if (now >= later(s->deadline, period)) {
		misses = (now - s->deadline) / period;
		s->deadline += misses * period;
		misses++;
	}
	s->deadline = later(s->deadline, period);
	s->missed += misses;
	s->violations += rule_b(&s->window, &c->window, misses);
	place(i);
	return misses;
}

/* A head that is late and is dropped. The caller takes the packet out and brings up the next. */
__noinline int lose(u32 i)
{
	struct slot *s = slot_of(i);

	s->has_head = 0;
	s->seq++;
	s->missed++;
	s->dropped++;
	s->violations += rule_b(&s->window, &contract_of(i)->window, 1);
	if (TOLD)
		tell_gone(i, false);
	return 0;
}

/* The head goes. The caller takes the packet out and brings up the next. */
__noinline int serve(u32 i)
{
	struct slot *s = slot_of(i);

	s->has_head = 0;
	s->seq++;
	s->sent++;
	s->late += s->missed_one;
	rule_a(&s->window, &contract_of(i)->window);
	if (TOLD)
		tell_gone(i, true);
	return 0;
}

/* Moves into the selection what has become ready. */
__noinline int release(void)
{
	int k;

	bpf_for(k, 0, STREAMS_MAX) {
		u32 i = held[1];

		if (i == NOBODY || ready(i) > state.clock)
			break;
		hold(i, false);
		if (TOLD)
			tell_head(i, true);
		select(i, true);
	}
	return 0;
}

/* Ends the periods that are over, of streams that have a frame. */
__noinline int end_periods(void)
{
	int k;

	bpf_for(k, 0, STREAMS_MAX) {
		u32 i = ends[1];

		if (i == NOBODY || vds_of(i)->ends > state.clock)
			break;
		vds_catch_up(vds_of(i), state.clock);
		vds_ends(i, state.clock);
		if (slot_of(i)->has_head && is_ready(i))
			select(i, true);
	}
	return 0;
}

/* Moves the clock on. */
static __always_inline void advance(u64 now)
{
	if (now > state.clock)
		state.clock = now;
	if (TOLD) {
		if (discipline == VDS)
			end_periods();
		if (discipline == HWFQ && setup.remap)
			flat_advance(state.clock);
	}
	if (held[1] != NOBODY)
		release();
}

/* The next moment at which a stream may go that may not go now, or 0. */
static __always_inline u64 next_ready(void)
{
	u32 i = held[1];
	u64 at = i == NOBODY ? 0 : ready(i);

	if (discipline == VDS && ends[1] != NOBODY) {
		u64 end = vds_of(ends[1])->ends;

		at = at && at < end ? at : end;
	}
	return at;
}

#endif
