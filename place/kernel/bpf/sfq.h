/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Start-time fair queueing, and deficit round robin. The twins of sfq.rs and drr.rs in
 * data/sched/src/discipline.
 */
#ifndef SELVEDGE_SFQ_H
#define SELVEDGE_SFQ_H

#include "slots.h"
#include "tag.h"

struct sfq {
	u128 start, end; /* the head's */
	u128 finish; /* of the last frame sent */
} sfq[STREAMS_MAX];

struct {
	u128 now;
	u128 last; /* the highest finish tag of a frame sent */
	u32 waiting;
} sfq_link;

static __always_inline struct sfq *sfq_of(u32 i)
{
	return &sfq[i & (STREAMS_MAX - 1)];
}

static __always_inline void sfq_head(u32 i, u64 size, bool fresh)
{
	struct sfq *s = sfq_of(i);

	if (!sfq_link.waiting && fresh)
		sfq_link.now = sfq_link.last;
	sfq_link.waiting++;
	s->start = sfq_link.now > s->finish ? sfq_link.now : s->finish;
	s->end = after(s->start, span_of(size, weight_of(i)));
}

static __always_inline void sfq_leave(u32 i, bool sent)
{
	struct sfq *s = sfq_of(i);

	sfq_link.waiting--;
	if (!sent)
		return;
	s->finish = s->end;
	if (sfq_link.now < s->start)
		sfq_link.now = s->start;
	if (sfq_link.last < s->end)
		sfq_link.last = s->end;
}

#define PLACE ((1ULL << 48) - 1)

struct drr {
	u64 quantum;
	u64 deficit; /* after the last turn in which it sent */
	u64 round;   /* that turn's; before, the one before it began to wait */
	u64 place;   /* in each round */
	u64 size;    /* the head's */
	u64 due;     /* the round in which the head goes */
	u64 listed;
} drr[STREAMS_MAX];

struct {
	u64 round, place; /* the turn in which the last frame went */
	u64 places; /* the last one given */
	u32 over; /* that turn is, the stream's next frame being too large */
	u32 pending; /* who sent last or lost its head, until it is known whether it has another */
} turn;

static __always_inline struct drr *drr_of(u32 i)
{
	return &drr[i & (STREAMS_MAX - 1)];
}

/* The stream of the last frame has no other: it has no more turns. */
static __always_inline void drr_settle(void)
{
	if (turn.pending == NOBODY)
		return;
	drr_of(turn.pending)->listed = drr_of(turn.pending)->deficit = 0;
	turn.pending = NOBODY;
}

static __always_inline u64 less(u64 a, u64 b)
{
	return a > b ? a - b : 0;
}

/* In how many more turns its quanta cover the head. */
static __always_inline u64 turns(const struct drr *d)
{
	u64 short_of = less(d->size, d->deficit), quantum = d->quantum ? d->quantum : 1;

	return short_of / quantum + (short_of % quantum ? 1 : 0);
}

static __always_inline void drr_head(u32 i, u64 size, bool fresh)
{
	struct drr *d = drr_of(i);
	u64 more;

	if (!fresh && turn.pending == i)
		turn.pending = NOBODY;
	else
		drr_settle();
	d->size = counted(size);
	d->quantum = weight_of(i);
	if (!d->listed) {
		turn.places = (turn.places + 1) & PLACE;
		d->listed = 1;
		d->deficit = 0;
		d->round = turn.round - 1;
		d->place = turn.places;
		more = turns(d);
		d->due = later(d->round, more ? more : 1);
	} else if (d->round == turn.round && d->place == turn.place && !turn.over) {
		/* It is its turn still, unless the head is too large. */
		more = turns(d);
		turn.over = more > 0;
		d->due = later(turn.round, more);
	} else {
		/* Its last head was lost while others had their turns; it keeps what its own gave it. */
		u64 had = less(less(turn.round, d->round), d->place > turn.place);

		more = turns(d);
		had = later(had, 1);
		d->due = later(d->round, more > had ? more : had);
	}
}

static __always_inline void drr_leave(u32 i, bool sent)
{
	struct drr *d = drr_of(i);

	drr_settle();
	if (sent) {
		u128 quanta = times_word(d->due - d->round, d->quantum) + d->deficit;

		d->deficit = less(quanta >> 64 ? ~0ULL : (u64)quanta, d->size);
		d->round = d->due;
		if (d->due > turn.round || (d->due == turn.round && d->place > turn.place)) {
			turn.round = d->due;
			turn.place = d->place;
		}
		turn.over = 0;
	}
	turn.pending = i;
}

static __always_inline void drr_begin(void)
{
	turn.round = turn.over = 1;
	turn.place = turn.places = 0;
	turn.pending = NOBODY;
}

#endif
