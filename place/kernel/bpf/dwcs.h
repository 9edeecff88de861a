/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Window-constrained scheduling as BPF: the slots, rules a and b, and who goes first. The twin of
 * data/sched in C; every decision is the same to the bit. Times are plain 64-bit numbers: nanoseconds of
 * CLOCK_MONOTONIC in the qdisc, slots in a replay. Fractions are compared by cross-multiplication.
 * Sources: Q-Fabric section 2.4.1, ShareStreams Table 2, NI coprocessors section 2.2.4.
 */
#ifndef SELVEDGE_DWCS_H
#define SELVEDGE_DWCS_H

#include "window.h"

#define STREAMS_MAX 256
#define LEVELS 8
#define NOBODY 0xffff
/* A deadline of the last moment, where deadlines saturate, is never missed. */
#define LAST (~0ULL - 1)

/* The orders, by the numbers that user space knows. Fixed when a program is loaded: the verifier
 * then leaves out what the others need. */
enum { DWCS = 0, DWCS98 = 1, EDF = 2, PRIORITY = 3, FIFO = 4 };
const volatile struct {
	u32 discipline;
	u32 replaying; /* slots instead of time, and every event is told */
	u32 telling; /* a node is told what became of each packet */
} fixed;
#define discipline fixed.discipline
#define replaying fixed.replaying
#define telling fixed.telling
#define DEADLINE_FIRST (discipline == DWCS || discipline == EDF)

/* What a stream promises and is promised. User space writes it. */
struct contract {
	char id[32];
	u64 period;
	u64 delay; /* 0: none, the deadline goes by the period */
	u64 first_deadline;
	u32 limit; /* packets that may wait */
	s32 priority;
	struct window window;
	u8 send_late, work_conserving, has_first, by_txtime;
	u32 renewed; /* how often user space has changed window or priority */
	u32 zero;
};

struct setup {
	u32 streams;
	u32 leaves; /* a power of 2, at least streams */
	u32 rest;   /* the stream of packets that no filter knows */
	u32 filters; /* which kinds of filter there are, a bit each */
	u64 rate;   /* bytes a second, 0: as fast as the device takes them */
	u64 burst;  /* nanoseconds that an idle link may catch up on */
	u64 netns;  /* the device that this is for */
	u32 ifindex;
	u32 pid; /* the node whose this is, or 0: it is to stay */
	struct contract contracts[STREAMS_MAX];
} setup SEC(".data.setup");

/* A stream as decisions see it. Only these programs write it; user space reads the counters. */
struct slot {
	u64 deadline; /* of the head; without one, of the last head */
	u64 arrival;
	u64 seq; /* the head's number */
	u64 sent, late, missed, dropped, violations, overflow, bytes;
	u32 waiting; /* packets in the queue, the head included */
	struct window window;
	s32 priority;
	u32 renewed; /* the contract's, when it was last looked at */
	u8 has_head, missed_one, begun, selected, held;
};

struct state {
	u64 clock;   /* the latest moment looked at */
	u64 slot;    /* a replay's present slot */
	u64 free;    /* when the link is free again */
	u64 unknown; /* packets of no stream */
	u64 owner;   /* the one qdisc that this is the state of */
	u32 gate;    /* a replay may decide once */
	u32 spare;   /* packets' records that are free */
	u64 untold;  /* fates for which there was no room */
};

struct {
	struct state state;
	struct slot slots[STREAMS_MAX];
} table SEC(".data.table");
#define state table.state

/* Winners of a tournament: node 1 is the champion, stream i plays from leaf `leaves + i`. */
u16 selection[2 * STREAMS_MAX]; /* heads that may go, in the discipline's order */
u16 held[2 * STREAMS_MAX];	/* heads that may not go yet, by when they may */
u16 due[2 * STREAMS_MAX];	/* all heads by deadline, if the selection is in another order */

static __always_inline struct slot *slot_of(u32 i)
{
	return &table.slots[i & (STREAMS_MAX - 1)];
}

static __always_inline struct contract *contract_of(u32 i)
{
	return &setup.contracts[i & (STREAMS_MAX - 1)];
}

static __always_inline u64 later(u64 moment, u64 span)
{
	u64 sum = moment + span;

	return sum < moment ? ~0ULL : sum;
}

/* A period of zero would let a kept frame expire for ever. */
static __always_inline u64 period_of(const struct contract *c)
{
	return c->period ? c->period : 1;
}

/* "Its ready time is its deadline minus T." */
static __always_inline u64 ready(u32 i)
{
	u64 deadline = slot_of(i)->deadline, period = period_of(contract_of(i));

	return deadline > period ? deadline - period : 0;
}

static __always_inline s64 by_time(u64 a, u64 b)
{
	return a < b ? -1 : a > b;
}

/* dwcs98 looks at the deadline only where something may be lost, or there is no window. */
static __always_inline u64 time98(const struct slot *s)
{
	return s->window.lose || !s->window.of ? s->deadline : s->arrival;
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

/* Plays a stream's matches anew, after it has come, gone or changed. O(log leaves). */
#define TOURNAMENT(name, tree, first)                                                              \
	__noinline int name(u32 i, u32 present)                                                    \
	{                                                                                          \
		u32 node = (setup.leaves + i) & (2 * STREAMS_MAX - 1);                             \
                                                                                                   \
		tree[node] = present ? i : NOBODY;                                                 \
		for (int level = 0; level < LEVELS; level++) {                                     \
			u32 a, b;                                                                  \
                                                                                                   \
			node >>= 1;                                                                \
			if (!node)                                                                 \
				break;                                                             \
			a = tree[(2 * node) & (2 * STREAMS_MAX - 1)];                              \
			b = tree[(2 * node + 1) & (2 * STREAMS_MAX - 1)];                          \
			if (a == NOBODY || (b != NOBODY && first(b, a)))                           \
				a = b;                                                             \
			tree[node & (2 * STREAMS_MAX - 1)] = a;                                    \
		}                                                                                  \
		return 0;                                                                          \
	}

TOURNAMENT(play_selection, selection, goes_first)
TOURNAMENT(play_held, held, is_ready_first)
TOURNAMENT(play_due, due, is_due_first)

/* The champions. With one leaf only, node 1 is that leaf. */
static __always_inline u32 chosen(void)
{
	return selection[1];
}

static __always_inline void select(u32 i, bool in)
{
	struct slot *s = slot_of(i);

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

/* Puts a stream where its head belongs, after any change to it. */
__noinline int place(u32 i)
{
	struct slot *s = slot_of(i);
	bool head = s->has_head;
	bool may_go = contract_of(i)->work_conserving || ready(i) <= state.clock;

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
	return place(i);
}

/* Takes over what user space has changed of a contract: the window begins anew. The caller places
 * the stream. */
static __always_inline void renew(struct slot *s, const struct contract *c)
{
	s->renewed = c->renewed;
	s->priority = c->priority;
	s->window = c->window;
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
		select(i, true);
	}
	return 0;
}

/* Moves the clock on. */
static __always_inline void advance(u64 now)
{
	if (now > state.clock)
		state.clock = now;
	if (held[1] != NOBODY)
		release();
}

#endif
