/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Who of a processor's tasks goes first: three tournaments for each processor, as in dwcs.h. A node
 * holds the winner of the two below it; a task plays from its leaf up, and stops where nothing
 * changes. Only the part of a tree under `root` is in use, so that few tasks play few rounds.
 *
 * Trees are touched under the processor's run queue's lock alone. Who adds or removes tasks holds no
 * such lock: it says so in `changed`, and the next decision plants the trees anew.
 */
#ifndef SELVEDGE_ORDER_H
#define SELVEDGE_ORDER_H

#include "tasks.h"

#define NOBODY 0xffffu
#define LEVELS 8 /* TASKS_MAX is 2 to this */

static __always_inline u16 *node_of(struct processor *c, u32 tree, u32 node)
{
	return &c->trees[tree < TREES ? tree : 0][node & (2 * TASKS_MAX - 1)];
}

/* Which of two goes first in a tree; a function of its own, so that the verifier looks at it once. */
__noinline u32 winner(struct processor *c, u32 tree, u32 i, u32 j)
{
	struct task *a, *b;
	u64 x, y;

	if (!c || j == NOBODY)
		return i;
	if (i == NOBODY)
		return j;
	a = task_of(c, i);
	b = task_of(c, j);
	if (tree != HELD)
		return precedes(a, i, b, j) ? i : j;
	x = begins(a);
	y = begins(b);
	return x < y || (x == y && i < j) ? i : j;
}

/* Puts a task into a tree, or takes it out, and plays it up to the root. */
__noinline int play(struct processor *c, u32 tree, u32 i, bool is_in)
{
	u32 node = TASKS_MAX + (i & (TASKS_MAX - 1)), level;
	u16 *leaf, *place;

	if (!c)
		return 0;
	leaf = node_of(c, tree, node);
	if (!is_in && *leaf == NOBODY)
		return 0;
	*leaf = is_in ? i : NOBODY;
	for (level = 0; level < LEVELS; level++) {
		u32 first, left;

		if (node <= c->root)
			break;
		node >>= 1;
		left = *node_of(c, tree, 2 * node);
		first = winner(c, tree, left, *node_of(c, tree, 2 * node + 1));
		place = node_of(c, tree, node);
		if (*place == first && first != i)
			break;
		*place = first;
	}
	return 0;
}

/* The first of a tree, or NOBODY. */
static __always_inline u32 champion(struct processor *c, u32 tree)
{
	return *node_of(c, tree, c->root);
}

/* Whatever decides where a task stands may have changed. */
__noinline int reorder(struct processor *c, u32 i)
{
	struct task *t;
	bool wants, held;

	if (!c)
		return 0;
	t = task_of(c, i);
	wants = t->present && t->awake;
	held = begins(t) > c->clock;
	play(c, OWED, i, wants && !held);
	play(c, HELD, i, wants && held);
	play(c, AHEAD, i, wants && t->ahead);
	return 0;
}

/* Plants the trees anew, if a task came or went. O(places). */
static __always_inline void plant(struct processor *c)
{
	int i;

	if (!c->changed && c->root)
		return;
	c->changed = 0;
	c->root = TASKS_MAX / 2;
	bpf_for(i, 1, LEVELS) {
		if (c->places <= 1u << i)
			break;
		c->root = TASKS_MAX >> (i + 1);
	}
	bpf_for(i, 0, 2 * TASKS_MAX) {
		*node_of(c, OWED, i) = NOBODY;
		*node_of(c, HELD, i) = NOBODY;
		*node_of(c, AHEAD, i) = NOBODY;
	}
	bpf_for(i, 0, c->places)
		reorder(c, i);
}

/* All periods that ended by now are missed. */
__noinline int miss(struct processor *c, u32 i, u64 now)
{
	if (c)
		task_missed(task_of(c, i), now);
	return 0;
}

/* Counts the periods that ended; whose periods have begun is owed time from now on. O(log N) for each. */
static __always_inline void advance(struct processor *c, u64 now)
{
	int n;

	bpf_for(n, 0, TASKS_MAX) {
		u32 i = champion(c, HELD);

		if (i == NOBODY || begins(task_of(c, i)) > now)
			break;
		reorder(c, i);
	}
	bpf_for(n, 0, TASKS_MAX) {
		u32 i = champion(c, OWED);

		if (i == NOBODY || task_of(c, i)->deadline > now)
			break;
		miss(c, i, now);
		reorder(c, i);
	}
}

/* When that changes by itself. */
static __always_inline u64 next_change(struct processor *c)
{
	u32 held = champion(c, HELD), owed = champion(c, OWED);
	u64 begin = held == NOBODY ? NEVER : begins(task_of(c, held));
	u64 end = owed == NOBODY ? NEVER : task_of(c, owed)->deadline;

	return begin < end ? begin : end;
}

#endif
