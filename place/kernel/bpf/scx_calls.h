/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What the loader calls: tasks come and go, and steps of a replay on the first processor's table.
 */
#ifndef SELVEDGE_SCX_CALLS_H
#define SELVEDGE_SCX_CALLS_H

#include "decide.h"

/* A task comes or goes, or what is left for the task server has changed. The table's processor may
 * look at it meanwhile: a task is there from the last write on. */
enum { PUT_TASK, PUT_RESERVE, PUT_SERVER, PUT_REST, PUT_NOTHING };
struct wish {
	u32 what, cpu, task, zero;
	u64 period, service, server_period, unit, unit_period;
	u16 lose, of;
	u8 ahead, by_events, zero_too[2];
};

SEC("syscall")
int put(struct wish *wish)
{
	struct processor *c = processor_of(wish->cpu);
	u32 i = wish->task & (TASKS_MAX - 1);
	struct task *t;
	u64 start;

	if (!c)
		return -1;
	t = task_of(c, i);
	if (!c->unit) {
		/* Nobody has used this table yet. */
		c->sink = c->account = c->reserve = c->server = NO_TASK;
		c->runs = RUNS_IDLE;
		c->until = NEVER;
	}
	c->changed = 1;
	c->unit = wish->unit;
	c->unit_period = wish->unit_period;
	t->server_period = wish->server_period;
	if (wish->what == PUT_REST)
		return 0;
	start = wish->what == PUT_SERVER ? begins(t) : 0;
	t->present = 0;
	t->awake = 0;
	event_slept(c, i);
	if (wish->what == PUT_NOTHING) {
		*(volatile u32 *)&c->orphans = 1;
		return 0;
	}
	if (wish->what != PUT_SERVER)
		t->on_time = t->missed = t->violations = t->events = t->ran = t->extra = 0;
	t->period = wish->period;
	t->service = t->left = wish->service;
	t->deadline = start + wish->period;
	t->came = 0;
	t->threads = 0;
	t->declared.lose = t->window.lose = wish->lose;
	t->declared.of = t->window.of = wish->of;
	t->ahead = wish->ahead;
	t->by_events = wish->by_events;
	if (wish->what == PUT_RESERVE)
		c->reserve = i;
	if (wish->what == PUT_SERVER)
		c->server = i;
	if (c->places <= i)
		c->places = i + 1;
	t->present = 1;
	*(volatile u32 *)&c->changed = 1;
	return 0;
}

/* A step of a replay on the first processor's table, in unit slots. */
struct step {
	u64 now;
	u32 what; /* 0 wake, 1 sleep, 2 raise, 3 decide and let it run for a slot,
		   4 best-effort tasks wait or not */
	u32 task;
	u32 runs, selected, rule, zero; /* the answer */
	u64 until;
};

SEC("syscall")
int replay_step(struct step *step)
{
	struct processor *c = processor_of(0);
	u32 i = step->task & (TASKS_MAX - 1);

	if (!c)
		return -1;
	if (step->what < 2 && step->now > c->clock)
		c->clock = step->now;
	switch (step->what) {
	case 0:
		wake(c, i, c->clock);
		break;
	case 1:
		sleep(c, i);
		break;
	case 2:
		return event_raise(c, i, step->now) ? 0 : -2;
	case 4:
		c->best_effort = step->task;
		break;
	case 3:
		decide(c, step->now);
		step->runs = c->runs;
		step->selected = c->selected;
		step->rule = c->rule;
		step->until = c->until;
		chosen_ran(c, 1);
		break;
	}
	return 0;
}

#endif
