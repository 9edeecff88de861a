/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Tasks on a processor as BPF: the twin of data/cpu in C; every decision is the same to the bit.
 * Who is owed time in his period, in the order of DWCS; work-conserving tasks beyond that; and the
 * event-aware rules 1 to 5 with the task server (Q-Fabric thesis, 2.4.1 and 3.3.1).
 *
 * Each processor has a table of its own, so nothing is shared between processors, and pinned
 * tasks are never handed to the wrong one. A table is small: going through it costs less than
 * keeping a tree in order. Times are below 2^32 ns where they are multiplied; the loader sees to it.
 */
#ifndef SELVEDGE_TASKS_H
#define SELVEDGE_TASKS_H

#include "kernel.h"

#define TASKS_MAX 64
#define EVENTS_MAX 16
#define NO_TASK 0xffffffffu
#define NEVER (~0ULL)

/* Who DWCS chose (Selected in data/cpu), and who runs. */
enum { SELECTED_TASK, SELECTED_SERVED, SELECTED_SERVER, SELECTED_RESERVE, SELECTED_BEST_EFFORT,
       SELECTED_IDLE };
#define RUNS_BEST_EFFORT 0xfffffffeu
#define RUNS_IDLE 0xffffffffu

struct task {
	u64 period, service;
	u64 server_period; /* the task server's, for an event of this task; 0: nothing is left */
	u64 deadline;	   /* the end of the period that it is to be served in next */
	u64 left;	   /* what it is still owed in that period, never 0 */
	u64 came;	   /* when it last woke */
	u64 on_time, missed, violations, events, ran, extra;
	u32 threads; /* that want to run */
	u16 declared_lose, declared_of, lose, of;
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
	struct event events[EVENTS_MAX];
	struct task tasks[TASKS_MAX];
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
	if (!a->lose && !b->lose)
		order = (s64)b->of - a->of;
	else if (!a->lose || !b->lose)
		order = a->lose ? 1 : -1;
	else
		order = (s64)a->lose * b->of - (s64)b->lose * a->of;
	if (!order)
		order = (s64)a->lose - b->lose;
	if (order)
		return order < 0;
	return a->came != b->came ? a->came < b->came : i < j;
}

static __always_inline void restore_if_spent(struct task *t)
{
	if (!t->of) {
		t->lose = t->declared_lose;
		t->of = t->declared_of;
	}
}

/* The period is over and done: rule a, and the next one follows. */
static __always_inline void task_served(struct task *t)
{
	if (t->of)
		t->of--;
	if (t->lose > t->of)
		t->lose = t->of;
	restore_if_spent(t);
	t->on_time++;
	t->deadline += t->period;
	t->left = t->service;
}

/* As many of these misses as the current window can lose; how many they were. */
static __always_inline u64 spend(struct task *t, u64 misses)
{
	u64 lost = misses < t->lose ? misses : t->lose;

	t->lose -= lost;
	t->of -= lost;
	restore_if_spent(t);
	return lost;
}

/* All periods that ended by now are missed: rule b for each, in constant time. */
static __always_inline void task_missed(struct task *t, u64 now)
{
	u64 period = t->period ? t->period : 1;
	u64 misses = (now - t->deadline) / period + 1;

	t->deadline += misses * period;
	t->left = t->service;
	t->missed += misses;
	if (!t->declared_of) {
		t->violations += misses;
		return;
	}
	misses -= spend(t, misses);
	if (t->lose == t->declared_lose && t->of == t->declared_of) {
		if (t->declared_lose == t->declared_of)
			misses %= t->declared_of;
		misses -= spend(t, misses);
	}
	t->of = misses < (u64)(0xffff - t->of) ? t->of + misses : 0xffff;
	t->violations += misses;
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

static __always_inline void task_sleep(struct processor *c, u32 i)
{
	task_of(c, i)->awake = 0;
	if (c->sink == i)
		c->sink = NO_TASK;
}

/* An event for a task; false if there are as many as can be. In the order in which they are due. */
static __always_inline bool event_raise(struct processor *c, u32 sink, u64 due)
{
	u32 k, place = c->waiting;

	if (place >= EVENTS_MAX)
		return false;
	for (k = EVENTS_MAX - 1; k > 0; k--) {
		if (k > c->waiting || c->events[k - 1].due <= due || k != place)
			continue;
		c->events[k] = c->events[k - 1];
		place = k - 1;
	}
	c->events[place & (EVENTS_MAX - 1)].due = due;
	c->events[place & (EVENTS_MAX - 1)].sink = sink;
	c->waiting++;
	return true;
}

/* The sink of the first event, or NO_TASK. */
static __always_inline u32 event_first(struct processor *c)
{
	u32 k;

	if (c->sink != NO_TASK)
		return c->sink;
	for (k = 0; k < EVENTS_MAX; k++) {
		if (k >= c->waiting)
			break;
		if (task_of(c, c->events[k].sink)->awake)
			return c->events[k].sink;
	}
	return NO_TASK;
}

/* Takes the sink's first event off the queue; whether that was not done before. */
static __always_inline bool event_take(struct processor *c, u32 sink)
{
	bool found = false;
	u32 k;

	if (c->sink == sink)
		return false;
	for (k = 0; k < EVENTS_MAX; k++) {
		if (k >= c->waiting)
			break;
		if (!found && c->events[k].sink == sink)
			found = true;
		if (found && k + 1 < EVENTS_MAX)
			c->events[k] = c->events[k + 1];
	}
	if (found)
		c->waiting--;
	return true;
}

/* The first of those that are owed time now, or of those that may have more; or NO_TASK. */
static __always_inline u32 first_of(struct processor *c, u64 now, bool owed)
{
	u32 best = NO_TASK;
	int i;

	bpf_for(i, 0, TASKS_MAX) {
		struct task *t = task_of(c, i);

		if (!t->present || !t->awake || (owed ? begins(t) > now : !t->ahead))
			continue;
		if (best == NO_TASK || precedes(t, i, task_of(c, best), best))
			best = i;
	}
	return best;
}

static __always_inline void rouse(struct processor *c, u32 i, bool wants, u64 now)
{
	if (wants)
		task_wake(task_of(c, i), now);
	else
		task_sleep(c, i);
}

/* The servers want to run while those do whom they serve. */
static __always_inline void attend_servers(struct processor *c, u64 now)
{
	u64 service = c->unit, period = c->unit_period;
	struct task *server;
	u32 first;

	if (c->reserve != NO_TASK)
		rouse(c, c->reserve, c->best_effort, now);
	if (c->server == NO_TASK)
		return;
	first = event_first(c);
	server = task_of(c, c->server);
	if (first != NO_TASK) {
		service = task_of(c, first)->service;
		period = task_of(c, first)->server_period;
	}
	if (service != server->service && untouched(server)) {
		u64 start = begins(server);

		task_sleep(c, c->server);
		server->service = server->left = service;
		server->period = period ? period : service;
		server->deadline = start + server->period;
	}
	rouse(c, c->server, (first != NO_TASK || c->best_effort) && period, now);
}

static __always_inline void select_first(struct processor *c, u64 now, u32 *i)
{
	*i = first_of(c, now, true);
	if (*i != NO_TASK) {
		c->selected = *i == c->server	 ? SELECTED_SERVER
			      : *i == c->reserve ? SELECTED_RESERVE
						 : SELECTED_TASK;
		return;
	}
	*i = first_of(c, now, false);
	c->selected = *i != NO_TASK	? SELECTED_SERVED
		      : c->best_effort ? SELECTED_BEST_EFFORT
				       : SELECTED_IDLE;
}

/* Rule 4: both have the same deadline, and i still makes it after j. */
static __always_inline bool may_swap(struct processor *c, u32 i, u32 j, u64 now)
{
	struct task *a = task_of(c, i), *b = task_of(c, j);

	return a->deadline == b->deadline && begins(b) <= now && a->deadline > now &&
	       a->deadline - now > a->left + b->left;
}

/* The event scheduler: revises the choice of i in favour of the first event's sink. */
static __always_inline void revise(struct processor *c, u32 i, u64 now)
{
	u32 j = event_first(c);

	c->rule = 0;
	c->runs = RUNS_BEST_EFFORT;
	c->account = NO_TASK;
	switch (c->selected) {
	case SELECTED_TASK:
		c->account = i;
		c->runs = i;
		break;
	case SELECTED_SERVED:
		c->runs = i;
		break;
	case SELECTED_SERVER:
	case SELECTED_RESERVE:
		c->account = i;
		break;
	case SELECTED_IDLE:
		c->runs = RUNS_IDLE;
		break;
	}
	if (j == NO_TASK)
		return;
	switch (c->selected) {
	case SELECTED_TASK:
		if (i == j)
			c->rule = 1;
		else if (may_swap(c, i, j, now))
			c->rule = 4;
		break;
	case SELECTED_SERVED:
		c->rule = i == j ? 1 : 3;
		break;
	case SELECTED_SERVER:
		c->rule = 5;
		break;
	case SELECTED_BEST_EFFORT:
	case SELECTED_IDLE:
		c->rule = 2;
		break;
	}
	if (!c->rule)
		return;
	if (event_take(c, j)) {
		task_of(c, j)->events++;
		if (c->rule > 1) {
			c->sink = j;
			c->grant = task_of(c, j)->service;
		}
	}
	if (c->rule == 1) {
		c->sink = NO_TASK;
		return;
	}
	c->runs = j;
	if (c->rule == 4)
		c->account = j;
}

static __always_inline void sooner(struct processor *c, u64 at)
{
	if (at < c->until)
		c->until = at;
}

/* Decides who runs from now on: c->runs, until c->until. */
static __noinline int decide(struct processor *c, u64 now)
{
	u32 i;
	int k;

	if (now > c->clock)
		c->clock = now;
	now = c->clock;
	attend_servers(c, now);
	bpf_for(k, 0, TASKS_MAX) {
		struct task *t = task_of(c, k);

		if (t->present && t->awake && t->deadline <= now)
			task_missed(t, now);
	}
	select_first(c, now, &i);
	revise(c, i, now);
	c->for_event = c->rule > 1;
	c->until = NEVER;
	if (c->account != NO_TASK)
		sooner(c, now + task_of(c, c->account)->left);
	if (c->for_event && c->sink != NO_TASK)
		sooner(c, now + c->grant);
	bpf_for(k, 0, TASKS_MAX) {
		struct task *t = task_of(c, k);
		u64 start = begins(t);

		if (t->present && t->awake)
			sooner(c, start > now ? start : t->deadline);
	}
	return 0;
}

/* A task is paid so much of what it is owed; the part that was beyond it. */
static __always_inline u64 pay(struct processor *c, u32 i, u64 used)
{
	struct task *t = task_of(c, i);
	u64 paid = used < t->left ? used : t->left;

	t->left -= paid;
	if (!t->left)
		task_served(t);
	return used - paid;
}

static __always_inline void event_ran(struct processor *c, u64 used)
{
	if (!c->for_event || c->sink == NO_TASK)
		return;
	c->grant = c->grant > used ? c->grant - used : 0;
	if (!c->grant)
		c->sink = NO_TASK;
}

/* What was chosen last ran for so long. */
static __always_inline void chosen_ran(struct processor *c, u64 used)
{
	u32 runner = c->runs;
	u64 beyond = used;

	if (c->account != NO_TASK) {
		beyond = pay(c, c->account, used);
		if (c->account != runner)
			beyond = used;
	}
	if (runner >= TASKS_MAX)
		return;
	task_of(c, runner)->ran += used;
	task_of(c, runner)->extra += beyond;
	event_ran(c, used);
}

/* A task ran for so long since the last decision, whoever was chosen. */
static __always_inline void task_ran(struct processor *c, u32 i, u64 used)
{
	struct task *t = task_of(c, i);

	t->ran += used;
	if (begins(t) > c->clock)
		t->extra += used;
	else
		t->extra += pay(c, i, used);
	/* Rule 5: the time is the task server's. */
	if (c->runs == i && c->account == c->server && c->server != NO_TASK)
		pay(c, c->server, used);
	if (c->runs == i)
		event_ran(c, used);
}

#endif
