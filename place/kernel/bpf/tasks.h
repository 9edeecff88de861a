/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Tasks on a processor as BPF: the twin of data/cpu in C; every decision is the same to the bit.
 * Here: a processor's table, a task's periods and its window. Who goes first is order.h's business,
 * events are event.h's, and decide.h decides (Q-Fabric thesis, 2.4.1 and 3.3.1).
 *
 * Each processor has a table and trees of its own, so nothing is shared between processors, and
 * pinned tasks are never handed to the wrong one. Times are below 2^32 ns where they are multiplied;
 * the loader sees to it.
 */
#ifndef SELVEDGE_TASKS_H
#define SELVEDGE_TASKS_H

#include "window.h"

#define TASKS_MAX 256
#define EVENTS_MAX 16
#define NO_TASK 0xffffffffu
#define NEVER (~0ULL)

/* Who DWCS chose (Selected in data/cpu), and who runs. */
enum { SELECTED_TASK, SELECTED_SERVED, SELECTED_SERVER, SELECTED_RESERVE, SELECTED_BEST_EFFORT,
       SELECTED_IDLE };
#define RUNS_BEST_EFFORT 0xfffffffeu
#define RUNS_IDLE 0xffffffffu

/* Tasks that are owed time, that will be from the beginning of their period on, and that may have more. */
enum { OWED, HELD, AHEAD, TREES };

struct task {
	u64 period, service;
	u64 server_period; /* the task server's, for an event of this task; 0: nothing is left */
	u64 deadline;	   /* the end of the period that it is to be served in next */
	u64 left;	   /* what it is still owed in that period, never 0 */
	u64 came;	   /* when it last woke */
	u64 on_time, missed, violations, events, ran, extra;
	u32 threads; /* that want to run */
	struct window declared, window;
	u8 present, awake, ahead, by_events;
};

struct event {
	u64 due;
	u32 sink, zero;
};

struct processor {
	u64 clock, until;
	u64 since; /* when what runs began */
	u64 unit, unit_period; /* the task server's, while there is no event */
	u64 grant; /* of the service time of the event that is being delivered */
	u32 sink;  /* whose it is, or NO_TASK */
	u32 runs, account, selected, rule;
	u32 reserve, server;
	u32 waiting; /* events */
	u32 best_effort, for_event;
	u32 places; /* in use, up to the last one */
	u32 changed; /* a task came or went: the trees are to be planted anew */
	struct event events[EVENTS_MAX];
	struct task tasks[TASKS_MAX];
	u32 root;   /* of the trees: the node below which all places in use lie */
	u32 orphans; /* threads may wait in the queue of a task that went */
	u16 trees[TREES][2 * TASKS_MAX];
};

static __always_inline struct task *task_of(struct processor *c, u32 i)
{
	return &c->tasks[i & (TASKS_MAX - 1)];
}

static __always_inline u64 begins(const struct task *t)
{
	return t->deadline > t->period ? t->deadline - t->period : 0;
}

static __always_inline bool untouched(const struct task *t)
{
	return t->left == t->service;
}

/* Table 1, then first come, first served, then by place. */
static __always_inline bool precedes(const struct task *a, u32 i, const struct task *b, u32 j)
{
	s64 order;

	if (a->deadline != b->deadline)
		return a->deadline < b->deadline;
	order = by_fraction(&a->window, &b->window);
	if (!order)
		order = (s64)a->window.lose - b->window.lose;
	if (order)
		return order < 0;
	return a->came != b->came ? a->came < b->came : i < j;
}

/* The period is over and done: rule a, and the next one follows. */
static __always_inline void task_served(struct task *t)
{
	rule_a(&t->window, &t->declared);
	t->on_time++;
	t->deadline += t->period;
	t->left = t->service;
}

/* All periods that ended by now are missed: rule b for each, in constant time. */
static __always_inline void task_missed(struct task *t, u64 now)
{
	u64 period = t->period ? t->period : 1;
	u64 misses = (now - t->deadline) / period + 1;

	t->deadline += misses * period;
	t->left = t->service;
	t->missed += misses;
	t->violations += rule_b(&t->window, &t->declared, misses);
}

static __always_inline void task_wake(struct task *t, u64 now)
{
	u64 start = begins(t);

	if (t->awake)
		return;
	t->awake = 1;
	t->came = now;
	if (untouched(t)) {
		t->deadline = (start > now ? start : now) + t->period;
		return;
	}
	/* What is left stays good, unless it would press the others. */
	if (now >= t->deadline || (t->deadline - now) * t->service < t->left * t->period) {
		task_served(t);
		t->deadline = now + t->period;
	}
}

#endif
