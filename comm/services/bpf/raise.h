/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What all services share: an occurrence is counted, shown to the handler, and raised as an event
 * where the handler, or the threshold without one, says so.
 *
 * The handler is E-code: a program of its own, reached by a tail call out of `call_handler`, so it
 * can be replaced while the service runs. Its memory is the map `memory`, whose layout is
 * control/code's: a header of 64 bytes, then `struct input`, then `struct output`. One handler runs
 * at a time; who finds it busy leaves his occurrence in `gathered`, where the next one finds it.
 * After Q-Fabric's sections 3.2.2 (deadlines, kernel event handlers, aggregation) and 3.2.4.
 */
#ifndef SELVEDGE_RAISE_H
#define SELVEDGE_RAISE_H

#include "handler.h"

#define KINDS 8
/* ns; a timer comes no more often. */
#define PERIOD_LEAST 1000000
/* While there is no interval; one that is posted is in force after this time at the latest. */
#define PERIOD_IDLE 100000000

/* Written by user space before and while the service runs; `struct Settings` in src/layout.rs. */
struct settings {
	u64 threshold;
	u64 interval; /* ns; without a handler at most one event of a kind in this time */
	u64 deadline; /* ns from the occurrence */
	u64 cgroup;   /* of version 2; 0: all */
	u32 pid;      /* of the process; 0: all */
	u32 own;      /* the subscriber, whose own doings are left out unless they are asked for */
	u32 port;     /* local, host order; 0: all */
	u32 handled;  /* whether there is a handler */
	u32 prefer;   /* the wish to involve the processor's scheduler */
	u32 kinds;    /* which are wanted, a bit each */
	u32 network;  /* the number of the network (name space); 0: all */
	u32 posted;   /* whether calls may wait in `posts` */
};

/* What has gathered since the last event of a kind, or the handler's last call. */
struct gathered {
	u64 count;
	u64 sum;
	u64 max;
	u64 since; /* when the last event was raised; 0: none was */
};

struct tally {
	u64 occurred; /* that passed the filters */
	u64 raised;
	u64 lost;    /* raised, but the ring was full */
	u64 busy;    /* left for the next occurrence, since the handler was running */
	u64 faults;  /* the handler was ended by a fault */
	u64 fault;   /* the last one, as in the handler's header */
	u64 posted;  /* posted calls that were done */
	u64 refused; /* and those that made no sense */
};

/* As user space gets it; `struct Event` in src/layout.rs. */
struct event {
	u64 at;       /* ns, monotonic */
	u64 deadline; /* ns, monotonic; 0: none */
	u64 value;
	u64 count;
	u64 sum;
	u64 max;
	u64 key;
	u64 data[4];
	u32 kind;
	u32 pid;
	u32 prefer;
	u32 cpu;
};

/* The handler's records; the same text is in src/handler.rs. */
struct input {
	u64 time;
	u64 value;
	u64 count;
	u64 sum;
	u64 max;
	u64 key;
	u64 threshold;
	u32 kind;
	u32 pid;
	u32 cpu;
	u32 tick;
};
struct output {
	u64 value;
	u64 deadline;
	u64 data[4];
	u32 prefer;
	u32 pid;
};

struct settings settings SEC(".data.settings");
struct gathered gathered[KINDS] SEC(".data.gathered");
struct tally tally SEC(".data.tally");

#include "posts.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

/* The handler's end comes back to the caller of this function. */
static __noinline int call_handler(void *ctx)
{
	bpf_tail_call(ctx, &handler, 0);
	return 0;
}

static __always_inline void raise_event(u32 kind, u32 pid, u64 key, u64 now, const struct input *in,
					const struct output *out)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		__sync_fetch_and_add(&tally.lost, 1);
		return;
	}
	event->at = now;
	event->deadline = settings.deadline ? now + settings.deadline : 0;
	event->value = in->value;
	event->count = in->count;
	event->sum = in->sum;
	event->max = in->max;
	event->key = key;
	event->kind = kind;
	event->pid = pid;
	event->prefer = settings.prefer;
	event->cpu = bpf_get_smp_processor_id();
	__builtin_memset(event->data, 0, sizeof(event->data));
	if (out) {
		if (out->value)
			event->value = out->value;
		if (out->deadline)
			event->deadline = now + out->deadline;
		if (out->pid)
			event->pid = out->pid;
		if (out->prefer)
			event->prefer = out->prefer;
		__builtin_memcpy(event->data, out->data, sizeof(event->data));
	}
	bpf_ringbuf_submit(event, 0);
	__sync_fetch_and_add(&tally.raised, 1);
}

/* Takes what has gathered; what comes in between is in this taking or the next. */
static __always_inline void take(struct gathered *all, struct input *in)
{
	in->count = __sync_lock_test_and_set(&all->count, 0);
	in->sum = __sync_lock_test_and_set(&all->sum, 0);
	in->max = __sync_lock_test_and_set(&all->max, 0);
}

static __always_inline void handle(void *ctx, u32 kind, u32 pid, u64 value, u64 key, u64 now, u32 tick)
{
	struct handler_memory *all;
	struct gathered *sums = &gathered[kind & (KINDS - 1)];
	struct input *in;
	struct output *out;
	u32 zero = 0;
	u64 fault;

	all = bpf_map_lookup_elem(&memory, &zero);
	if (!all)
		return;
	if (__sync_val_compare_and_swap(&busy, 0, 1) != 0) {
		__sync_fetch_and_add(&tally.busy, 1);
		return;
	}
	in = (void *)&all->bytes[HEADER];
	out = (void *)&all->bytes[HEADER + sizeof(*in)];
	take(sums, in);
	in->time = now;
	in->value = value;
	in->key = key;
	in->threshold = settings.threshold;
	in->kind = kind;
	in->pid = pid;
	in->cpu = bpf_get_smp_processor_id();
	in->tick = tick;
	__builtin_memset(out, 0, sizeof(*out));
	*(volatile u64 *)&all->bytes[FAULT] = NOT_RUN;
	call_handler(ctx);
	fault = *(volatile u64 *)&all->bytes[FAULT];
	if (fault == 0) {
		if (*(volatile u64 *)&all->bytes[RESULT])
			raise_event(kind, pid, key, now, in, out);
	} else {
		tally.fault = fault;
		__sync_fetch_and_add(&tally.faults, 1);
	}
	__sync_lock_test_and_set(&busy, 0);
}

/* Whether it is too soon for another event. */
static __always_inline bool too_soon(u64 since, u64 now)
{
	return since && now - since < settings.interval;
}

/* Something happened. */
static __always_inline void occur(void *ctx, u32 kind, u32 pid, u64 value, u64 key)
{
	struct gathered *sums = &gathered[kind & (KINDS - 1)];
	u64 now = bpf_ktime_get_ns(), since;
	struct input in;

	heed();
	if (!(settings.kinds >> kind & 1))
		return;
	__sync_fetch_and_add(&tally.occurred, 1);
	__sync_fetch_and_add(&sums->count, 1);
	__sync_fetch_and_add(&sums->sum, value);
	if (value > sums->max)
		sums->max = value;
	if (settings.handled) {
		handle(ctx, kind, pid, value, key, now, 0);
		return;
	}
	if (value < settings.threshold)
		return;
	since = sums->since;
	if (settings.interval) {
		if (too_soon(since, now))
			return;
		if (__sync_val_compare_and_swap(&sums->since, since, now) != since)
			return;
	}
	__builtin_memset(&in, 0, sizeof(in));
	take(sums, &in);
	in.value = value;
	raise_event(kind, pid, key, now, &in, NULL);
}

/* Without a handler: what has gathered since a kind's last event is told once its time is over, though nothing
 * more happens. Tracepoints may not touch timers, so user space sets it going, once. */
struct timed {
	struct bpf_timer timer;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timed);
} times SEC(".maps");

static __always_inline u64 period(void)
{
	if (!settings.interval)
		return PERIOD_IDLE;
	return settings.interval > PERIOD_LEAST ? settings.interval : PERIOD_LEAST;
}

static int tell_rest(void *map, u32 *key, struct timed *timed)
{
	u64 now = bpf_ktime_get_ns(), since;
	struct gathered *sums;
	struct input in;
	u32 kind;

	heed();
	if (settings.handled)
		return 0;
	for (kind = 0; kind < KINDS; kind++) {
		sums = &gathered[kind];
		since = sums->since;
		if (!sums->count || sums->max < settings.threshold || too_soon(since, now))
			continue;
		if (__sync_val_compare_and_swap(&sums->since, since, now) != since)
			continue;
		__builtin_memset(&in, 0, sizeof(in));
		take(sums, &in);
		/* Of many, whose values differ, the greatest. */
		in.value = in.max;
		if (in.count)
			raise_event(kind, 0, 0, now, &in, NULL);
	}
	bpf_timer_start(&timed->timer, period(), 0);
	return 0;
}

SEC("syscall")
int start_timer(void *ctx)
{
	struct timed *timed;
	u32 zero = 0;
	long failed;

	timed = bpf_map_lookup_elem(&times, &zero);
	if (!timed)
		return -1;
	failed = bpf_timer_init(&timed->timer, &times, CLOCK_MONOTONIC);
	if (failed)
		return failed;
	failed = bpf_timer_set_callback(&timed->timer, tell_rest);
	if (failed)
		return failed;
	return bpf_timer_start(&timed->timer, period(), 0);
}

/* Run by user space now and then: shows a handler what has gathered while it was busy, and lets it
 * say what it holds back. */
SEC("raw_tp")
int tick(void *ctx)
{
	u64 now = bpf_ktime_get_ns();
	u32 kind;

	heed();
	if (settings.handled) {
		for (kind = 0; kind < KINDS; kind++) {
			if (settings.kinds >> kind & 1)
				handle(ctx, kind, 0, 0, 0, now, 1);
		}
	}
	return 0;
}

/* Whether the process that runs is to be heard. */
static __always_inline bool heard(u32 pid)
{
	if (settings.pid)
		return pid == settings.pid;
	return pid != settings.own;
}

static __always_inline bool in_network(struct net *net)
{
	return !settings.network || (net && BPF_CORE_READ(net, ns.inum) == settings.network);
}

static __always_inline bool in_cgroup(void)
{
	u64 id = settings.cgroup;
	int level;

	if (!id || bpf_get_current_cgroup_id() == id)
		return true;
	for (level = 1; level < 8; level++) {
		if (bpf_get_current_ancestor_cgroup_id(level) == id)
			return true;
	}
	return false;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#endif
