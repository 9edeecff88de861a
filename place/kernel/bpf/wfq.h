/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Weighted fair queueing, and the flat approximation of a tree by it: each stream with the weight that
 * the tree maps to it, anew now and then. The twins of wfq.rs and flat.rs in
 * data/sched/src/discipline.
 */
#ifndef SELVEDGE_WFQ_H
#define SELVEDGE_WFQ_H

#include "fluid.h"

/* The stream whose frame has just gone, until it is known whether it has another. */
u32 fair_pending;

__noinline int wfq_settle(void)
{
	u32 i = fair_pending;

	if (i == NOBODY)
		return 0;
	fair_pending = NOBODY;
	if (share_of(i)->phase == PENDING)
		fluid_part(i);
	return fluid_advance(0);
}

static __always_inline void wfq_enter(u32 i, u32 weight, u64 size, bool fresh)
{
	struct share *s = share_of(i);

	if (fresh || fair_pending != i)
		wfq_settle();
	fluid_join(i, weight);
	wfq_settle();
	s->finish = after(s->start, span_of(size, weight));
}

static __always_inline void wfq_leave(u32 i, bool sent)
{
	struct share *s = share_of(i);

	wfq_settle();
	if (sent)
		give(fluid_of(0), charge(s, s->finish - s->start));
	s->phase = PENDING;
	fair_pending = i;
}

/* The link's rate, of which the others' are parts. */
#define WHOLE (1ULL << 62)

struct flat_node {
	u64 all, active; /* sums of its children's weights */
	u64 owned, rate; /* with everybody active, and as it is */
} flat_nodes[NODES_MAX];
u32 flat_weights[STREAMS_MAX], flat_mapped[STREAMS_MAX];
u64 flat_due;
u32 flat_changed;

static __always_inline u64 part(u64 rate, u32 weight, u64 sum)
{
	u64 left;

	return over(times_word(rate, weight), sum ? sum : 1, &left);
}

static __always_inline struct flat_node *flat_node(u32 node)
{
	barrier_var(node);
	return &flat_nodes[node & (NODES_MAX - 1)];
}

/* Gives each stream its weight. O(streams and nodes). */
__noinline int flat_map(void)
{
	u32 nodes = setup.nodes;
	int k;

	flat_changed = 0;
	bpf_for(k, 0, NODES_MAX)
		*flat_node(k) = (struct flat_node){};
	bpf_for(k, 0, STREAMS_MAX) {
		struct flat_node *n = flat_node(contract_of(k)->parent);
		u32 weight = flat_weights[k & (STREAMS_MAX - 1)];

		if (k >= setup.streams)
			break;
		n->all += weight;
		n->active += share_of(k)->phase == WAITING ? weight : 0;
	}
	bpf_for(k, 0, NODES_MAX) {
		u32 node = nodes - k;
		struct flat_node *n;

		if (k >= nodes)
			break;
		n = flat_node(node_of(node)->parent);
		n->all += node_of(node)->weight;
		n->active += flat_node(node)->active ? node_of(node)->weight : 0;
	}
	flat_nodes[0].owned = flat_nodes[0].rate = WHOLE;
	bpf_for(k, 1, NODES_MAX) {
		const struct flat_node *up = flat_node(node_of(k)->parent);

		if (k > nodes)
			break;
		flat_node(k)->owned = part(up->owned, node_of(k)->weight, up->all);
		flat_node(k)->rate = part(up->rate, node_of(k)->weight, up->active);
	}
	bpf_for(k, 0, STREAMS_MAX) {
		const struct flat_node *n = flat_node(contract_of(k)->parent);
		u32 weight = flat_weights[k & (STREAMS_MAX - 1)];
		u64 rate;

		if (k >= setup.streams)
			break;
		if (share_of(k)->phase == WAITING)
			rate = part(n->rate, weight, n->active);
		else
			rate = part(n->owned, weight, n->all);
		rate >>= 30;
		flat_mapped[k & (STREAMS_MAX - 1)] = rate >> 32 ? ~0U : rate ? rate : 1;
	}
	return 0;
}

static __always_inline void flat_enter(u32 i, u32 weight, u64 size, bool fresh)
{
	if (flat_weights[i & (STREAMS_MAX - 1)] != weight) {
		flat_weights[i & (STREAMS_MAX - 1)] = weight;
		flat_changed = 1;
	}
	if (flat_changed)
		flat_map();
	wfq_enter(i, flat_mapped[i & (STREAMS_MAX - 1)], size, fresh);
}

/* The first moment at or after each multiple of the period maps. */
static __always_inline void flat_advance(u64 now)
{
	if (now < flat_due)
		return;
	flat_due = later(now - now % setup.remap, setup.remap);
	flat_map();
}

static __always_inline void flat_begin(void)
{
	int k;

	bpf_for(k, 0, STREAMS_MAX) {
		flat_weights[k & (STREAMS_MAX - 1)] = weight_of(k);
		flat_mapped[k & (STREAMS_MAX - 1)] = 1;
	}
	flat_due = 0;
	flat_changed = 1;
}

#endif
