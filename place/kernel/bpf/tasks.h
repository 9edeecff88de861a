/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Tasks on a processor as BPF: the twin of data/cpu in C; every decision is the same to the bit.
 * Who is owed time in his period, in the order of DWCS; work-conserving tasks beyond that; and the
 * event-aware rules 1 to 5 with the task server (Q-Fabric thesis, 2.4.1 and 3.3.1).
 *
 * Each processor has a table of its own, so nothing is shared between processors, and pinned
 * tasks are never handed to the wrong one. A decision goes through the places in use: up to some
 * dozens of tasks that costs less than keeping trees in order (docs/cpu.md has the figures). Times are below 2^32 ns where they are multiplied; the loader sees to it.
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
	u32 zero;
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

/* What one look at all tasks finds. */
struct look {
	u32 owed;  /* the first of those that are owed time now, or NO_TASK */
	u32 ahead; /* the first of those that may have more, or NO_TASK */
	u64 until; /* when that changes by itself */
};

/* Which of two goes first; a function of its own, so that the verifier looks at it once. */
__noinline u32 earlier(struct processor *c, u32 best, u32 i)
{
	if (!c || best == NO_TASK)
		return i;
	return precedes(task_of(c, i), i, task_of(c, best), best) ? i : best;
}

/* All periods that ended by now are missed. */
__noinline int miss(struct processor *c, u32 i, u64 now)
{
	if (c)
		task_missed(task_of(c, i), now);
	return 0;
}

/* Counts the periods that ended, and looks who goes first. All that is compared is counted before. */
static __always_inline struct look look(struct processor *c, u64 now)
{
	struct look found = { NO_TASK, NO_TASK, NEVER };
	int i;

	bpf_for(i, 0, c->places) {
		struct task *t = task_of(c, i);
		u64 start, at;

		if (!t->present || !t->awake)
			continue;
		if (t->deadline <= now)
			miss(c, i, now);
		start = begins(t);
		at = start > now ? start : t->deadline;
		if (at < found.until)
			found.until = at;
		if (start <= now)
			found.owed = earlier(c, found.owed, i);
		if (t->ahead)
			found.ahead = earlier(c, found.ahead, i);
	}
	return found;
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

/* Whom DWCS chooses. */
static __always_inline u32 select_first(struct processor *c, const struct look *found)
{
	u32 i = found->owed;

	if (i != NO_TASK) {
		c->selected = i == c->server	? SELECTED_SERVER
			      : i == c->reserve ? SELECTED_RESERVE
						: SELECTED_TASK;
		return i;
	}
	c->selected = found->ahead != NO_TASK ? SELECTED_SERVED
		      : c->best_effort	      ? SELECTED_BEST_EFFORT
					      : SELECTED_IDLE;
	return found->ahead;
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
	struct look found;

	if (now > c->clock)
		c->clock = now;
	now = c->clock;
	attend_servers(c, now);
	found = look(c, now);
	revise(c, select_first(c, &found), now);
	c->for_event = c->rule > 1;
	c->until = found.until;
	if (c->account != NO_TASK)
		sooner(c, now + task_of(c, c->account)->left);
	if (c->for_event && c->sink != NO_TASK)
		sooner(c, now + c->grant);
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
