/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Who has the processor: processor.rs of data/cpu in C. Who is owed time in his period, in the order of
 * DWCS; work-conserving tasks beyond that; and the event-aware rules 1 to 5 with the task server
 * (Q-Fabric thesis, 2.4.1 and 3.3.1).
 */
#ifndef SELVEDGE_DECIDE_H
#define SELVEDGE_DECIDE_H

#include "event.h"
#include "order.h"

/* A task wants to run. */
static __always_inline void wake(struct processor *c, u32 i, u64 now)
{
	struct task *t = task_of(c, i);

	if (t->awake)
		return;
	task_wake(t, now);
	reorder(c, i);
}

/* It does not want to any more. */
static __always_inline void sleep(struct processor *c, u32 i)
{
	event_slept(c, i);
	if (!task_of(c, i)->awake)
		return;
	task_of(c, i)->awake = 0;
	reorder(c, i);
}

static __always_inline void rouse(struct processor *c, u32 i, bool wants, u64 now)
{
	if (wants)
		wake(c, i, now);
	else
		sleep(c, i);
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

		sleep(c, c->server);
		server->service = server->left = service;
		server->period = period ? period : service;
		server->deadline = start + server->period;
	}
	rouse(c, c->server, (first != NO_TASK || c->best_effort) && period, now);
}

/* Whom DWCS chooses. */
static __always_inline u32 select_first(struct processor *c)
{
	u32 i = champion(c, OWED), ahead = champion(c, AHEAD);

	if (i != NOBODY) {
		c->selected = i == c->server	? SELECTED_SERVER
			      : i == c->reserve ? SELECTED_RESERVE
						: SELECTED_TASK;
		return i;
	}
	c->selected = ahead != NOBODY	? SELECTED_SERVED
		      : c->best_effort	? SELECTED_BEST_EFFORT
					: SELECTED_IDLE;
	return ahead == NOBODY ? NO_TASK : ahead;
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
	if (now > c->clock)
		c->clock = now;
	now = c->clock;
	plant(c);
	attend_servers(c, now);
	advance(c, now);
	revise(c, select_first(c), now);
	c->for_event = c->rule > 1;
	c->until = next_change(c);
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
	if (!t->left) {
		task_served(t);
		reorder(c, i);
	}
	return used - paid;
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

/* A task ran for so long since the last decision, whoever was chosen. Under rule 5 the time is the
 * task server's, and the task keeps what it is owed. */
static __always_inline void task_ran(struct processor *c, u32 i, u64 used)
{
	struct task *t = task_of(c, i);

	t->ran += used;
	if (c->runs == i && c->rule == 5 && c->server != NO_TASK) {
		pay(c, c->server, used);
		t->extra += used;
	} else if (begins(t) > c->clock) {
		t->extra += used;
	} else {
		t->extra += pay(c, i, used);
	}
	if (c->runs == i)
		event_ran(c, used);
}

#endif
