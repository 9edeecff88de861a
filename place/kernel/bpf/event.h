/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Events that wait for a processor's tasks, in the order in which they are due, and the one that is
 * being delivered: events.rs of data/cpu in C (Q-Fabric thesis, 3.3.1).
 */
#ifndef SELVEDGE_EVENT_H
#define SELVEDGE_EVENT_H

#include "tasks.h"

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

/* A task sleeps: what was being delivered to it is over. */
static __always_inline void event_slept(struct processor *c, u32 sink)
{
	if (c->sink == sink)
		c->sink = NO_TASK;
}

static __always_inline void event_ran(struct processor *c, u64 used)
{
	if (!c->for_event || c->sink == NO_TASK)
		return;
	c->grant = c->grant > used ? c->grant - used : 0;
	if (!c->grant)
		c->sink = NO_TASK;
}

#endif
