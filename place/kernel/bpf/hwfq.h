/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Hierarchical weighted fair queueing, exact: each node shares what it is sent among its children as
 * wfq does, and a decision goes from the link down to a stream. The twin of
 * data/sched/src/discipline/hwfq.rs.
 */
#ifndef SELVEDGE_HWFQ_H
#define SELVEDGE_HWFQ_H

#include "wfq.h"

u64 head_sizes[STREAMS_MAX];

static __always_inline u64 head_size(u32 stream)
{
	return head_sizes[stream & (STREAMS_MAX - 1)];
}

static __always_inline void step_out(u32 m)
{
	if (share_of(m)->phase == WAITING)
		play_line(m, false);
}

/* Puts a child with a frame into the line, with that frame's finish tag. */
__noinline int step_in(u32 m, u32 weight)
{
	struct share *s = share_of(m);

	fluid_join(m, weight);
	s->finish = after(s->start, span_of(head_size(s->first), weight));
	return play_line(m, true);
}

/* Which stream a node would serve, now that its line has changed. */
static __always_inline void look(u32 node)
{
	u32 child = first_in_line(node);

	share_of(node)->first = child == NOBODY ? NOBODY : share_of(child)->first;
}

/* What became of the last frame's stream is known: the references on its way up move. */
__noinline int hwfq_settle(void)
{
	u32 m = inner + fair_pending;
	int k;

	if (fair_pending == NOBODY)
		return 0;
	fair_pending = NOBODY;
	bpf_for(k, 0, NODES_MAX) {
		if (!m)
			break;
		if (share_of(m)->phase == PENDING)
			fluid_part(m);
		m = share_of(m)->parent;
		fluid_advance(m);
	}
	return 0;
}

/* A stream has a head: it steps in at each node up to the link. */
__noinline int hwfq_enter(u32 i, u64 arrival, u64 size, u32 fresh)
{
	u32 m = inner + i, weight = weight_of(i);
	int k;

	if (fresh || fair_pending != i)
		hwfq_settle();
	arrivals[i & (STREAMS_MAX - 1)] = arrival;
	head_sizes[i & (STREAMS_MAX - 1)] = size;
	share_of(m)->first = i;
	bpf_for(k, 0, NODES_MAX) {
		step_in(m, weight);
		m = share_of(m)->parent;
		/* Before what it would send changes, which is part of its place in line. */
		if (m)
			step_out(m);
		look(m);
		if (!m)
			break;
		weight = node_of(m)->weight;
	}
	return hwfq_settle();
}

/* A stream's head has gone: it is charged at each node up to the link, if it was sent, and steps out
 * where it was the only one. */
__noinline int hwfq_leave(u32 i, u32 sent)
{
	u32 m = inner + i;
	int k;

	hwfq_settle();
	bpf_for(k, 0, NODES_MAX) {
		struct share *s = share_of(m);

		if (!m)
			break;
		step_out(m);
		if (sent)
			give(fluid_of(s->parent), charge(s, span_of(head_size(i), s->weight)));
		if (m < inner)
			look(m);
		else
			s->first = NOBODY;
		if (s->first == NOBODY)
			s->phase = PENDING;
		else
			step_in(m, node_of(m)->weight);
		m = s->parent;
	}
	look(0);
	fair_pending = i;
	return 0;
}

#endif
