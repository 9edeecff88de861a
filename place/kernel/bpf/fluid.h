/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The fluid reference of weighted fair queueing, and who is next among siblings. The twin of
 * data/sched/src/discipline/fluid.rs. Members are streams and, under a tree, inner nodes: the link is
 * node 0, then the others, then the streams. Where software keeps heaps, each node has here two
 * tournaments of its children, side by side in one array: who has waited and goes, and who lies ahead.
 */
#ifndef SELVEDGE_FLUID_H
#define SELVEDGE_FLUID_H

#include "slots.h"
#include "tag.h"

/* A power of 2 that streams, nodes and the link fit into. */
#define MEMBERS_MAX 512
#define SIBLINGS 9
/* All nodes' tournaments: two places for each leaf, leaves rounded up to powers of 2. */
#define LINES_MAX 4096

enum { OUT = 0, WAITING = 1, PENDING = 2, AHEAD = 3 };

struct share {
	u128 start, finish;
	u32 weight;
	u16 parent;
	u16 leaf;  /* its place among its siblings */
	u16 first; /* the stream whose frame it would send next */
	u8 phase;
} shares[MEMBERS_MAX];

struct fluid {
	u128 now;
	u128 carry; /* work that has not moved `now` yet */
	u64 weights;
	u16 from, leaves; /* where its children's tournaments lie */
} fluids[NODES_MAX];

u16 line[LINES_MAX];  /* children that wait, by finish, arrival, stream */
u16 ahead[LINES_MAX]; /* children ahead, by where they lie */
u64 arrivals[STREAMS_MAX];
/* Members that are not streams; 0 where there is no tree. */
u32 inner;

static __always_inline struct share *share_of(u32 m)
{
	return &shares[m & (MEMBERS_MAX - 1)];
}

static __always_inline struct fluid *fluid_of(u32 node)
{
	return &fluids[node & (NODES_MAX - 1)];
}

static __always_inline bool is_nearer(u32 a, u32 b)
{
	const struct share *s = share_of(a), *t = share_of(b);

	return s->start != t->start ? s->start < t->start : a < b;
}

static __always_inline bool is_in_line_before(u32 a, u32 b)
{
	const struct share *s = share_of(a), *t = share_of(b);
	u64 x = arrivals[s->first & (STREAMS_MAX - 1)], y = arrivals[t->first & (STREAMS_MAX - 1)];

	if (s->finish != t->finish)
		return s->finish < t->finish;
	return x != y ? x < y : s->first < t->first;
}

/* Plays a member's matches against its siblings anew. O(log siblings). */
#define FAMILY(name, tree, before)                                                                 \
	__noinline int name(u32 m, u32 present)                                                    \
	{                                                                                          \
		const struct share *s = share_of(m);                                               \
		const struct fluid *f = fluid_of(s->parent);                                       \
		u32 node = (u32)f->leaves + s->leaf;                                               \
                                                                                                   \
		tree[(f->from + node) & (LINES_MAX - 1)] = present ? m : NOBODY;                   \
		for (int level = 0; level < SIBLINGS; level++) {                                   \
			u32 a, b;                                                                  \
                                                                                                   \
			node >>= 1;                                                                \
			if (!node)                                                                 \
				break;                                                             \
			a = tree[(f->from + 2 * node) & (LINES_MAX - 1)];                          \
			b = tree[(f->from + 2 * node + 1) & (LINES_MAX - 1)];                      \
			if (a == NOBODY || (b != NOBODY && before(b, a)))                          \
				a = b;                                                             \
			tree[(f->from + node) & (LINES_MAX - 1)] = a;                              \
		}                                                                                  \
		return 0;                                                                          \
	}

FAMILY(play_line, line, is_in_line_before)
FAMILY(play_ahead, ahead, is_nearer)

/* The child of a node that goes first, or NOBODY. */
static __always_inline u32 first_in_line(u32 node)
{
	return line[(fluid_of(node)->from + 1) & (LINES_MAX - 1)];
}

static __always_inline void give(struct fluid *f, u128 work)
{
	f->carry = sum(f->carry, work);
}

/* The frame that waits has gone: the next starts where it ends. Its work, as tags count it. */
static __always_inline u128 charge(struct share *s, u128 span)
{
	u128 end = after(s->start, span);
	u128 work = times_word(end - s->start, s->weight);

	s->start = end;
	return work;
}

/* Takes another weight: as many bytes ahead or behind as before. The work that rounding made. */
static __always_inline u128 weigh(struct share *s, u128 now, u32 weight)
{
	bool is_ahead = s->start >= now;
	u128 far = is_ahead ? s->start - now : now - s->start;
	u64 left;
	u128 tags = over(times_word(far, s->weight), weight, &left);

	if (is_ahead) {
		s->start = after(now, tags + (left ? 1 : 0));
		return left ? weight - left : 0;
	}
	s->start = now > tags ? now - tags : 0;
	return left;
}

/* A member begins to wait, or waits on with its next frame. */
__noinline int fluid_join(u32 m, u32 weight)
{
	struct share *s = share_of(m);
	struct fluid *f = fluid_of(s->parent);

	if (s->phase == OUT)
		s->start = f->now;
	else if (s->phase == AHEAD)
		play_ahead(m, false);
	if (s->phase != OUT) {
		f->weights -= s->weight;
		if (weight != s->weight)
			give(f, weigh(s, f->now, weight));
	}
	f->weights += weight;
	s->weight = weight;
	s->phase = WAITING;
	return 0;
}

/* A member whose frame has gone has no other. */
__noinline int fluid_part(u32 m)
{
	struct share *s = share_of(m);
	struct fluid *f = fluid_of(s->parent);

	if (s->start > f->now) {
		s->phase = AHEAD;
		play_ahead(m, true);
	} else {
		s->phase = OUT;
		f->weights -= s->weight;
		give(f, times_word(f->now - s->start, s->weight));
	}
	return 0;
}

/* Gives out what work was done. O(log siblings) for each member that it catches up with. */
__noinline int fluid_advance(u32 node)
{
	struct fluid *f = fluid_of(node);
	u64 left;
	int k;

	bpf_for(k, 0, MEMBERS_MAX + 1) {
		u32 nearest = ahead[(f->from + 1) & (LINES_MAX - 1)];

		if (!f->weights) {
			f->carry = 0;
			break;
		}
		if (nearest != NOBODY) {
			struct share *s = share_of(nearest);
			u128 need = times(s->start - f->now, f->weights);

			if (need != MOST && f->carry >= need) {
				f->now = s->start;
				f->carry -= need;
				play_ahead(nearest, false);
				s->phase = OUT;
				f->weights -= s->weight;
				continue;
			}
		}
		f->now = least(sum(f->now, over(f->carry, f->weights, &left)), TAG_LAST);
		f->carry = left;
		break;
	}
	return 0;
}

/* As if nothing had been sent: members below their parents, nodes' tournaments side by side. */
static __always_inline void fluid_begin(u32 nodes)
{
	u32 from = 0;
	int k;

	inner = nodes;
	bpf_for(k, 0, LINES_MAX)
		line[k & (LINES_MAX - 1)] = ahead[k & (LINES_MAX - 1)] = NOBODY;
	bpf_for(k, 0, NODES_MAX)
		fluids[k & (NODES_MAX - 1)] = (struct fluid){};
	bpf_for(k, 0, MEMBERS_MAX) {
		struct share *s = share_of(k);
		struct fluid *f;
		u32 parent = 0;

		if (k >= nodes + setup.streams)
			break;
		if (nodes && k >= nodes)
			parent = contract_of(k - nodes)->parent;
		else if (nodes && k)
			parent = node_of(k)->parent;
		*s = (struct share){ .parent = parent < nodes ? parent : 0, .first = NOBODY };
		if (nodes && !k) /* The link is nobody's child. */
			continue;
		f = fluid_of(s->parent);
		s->leaf = f->leaves++;
	}
	bpf_for(k, 0, NODES_MAX) {
		struct fluid *f = fluid_of(k);
		u32 leaves = 1;

		if (k && k >= nodes)
			break;
		for (int doubled = 0; doubled < SIBLINGS; doubled++)
			if (leaves < f->leaves)
				leaves *= 2;
		f->leaves = leaves;
		f->from = from;
		from += 2 * leaves;
	}
}

#endif
