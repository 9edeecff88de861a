/* SPDX-License-Identifier: (MIT OR Apache-2.0) AND GPL-2.0
 *
 * The processors' tables, and what makes each of them decide: a timer that rings when its decision is
 * over, and preemption.
 */
#ifndef SELVEDGE_ALARM_H
#define SELVEDGE_ALARM_H

#include "decide.h"
#include "scx.h"

#define PROCESSORS_MAX 64
/* An alarm is no sooner than that, or it would take all of a processor's time. */
#define ALARM_LEAST 20000ULL

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PROCESSORS_MAX);
	__type(key, u32);
	__type(value, struct processor);
} processors SEC(".maps");

/* Of each processor: when it is to be decided next, whoever runs. */
struct alarm {
	struct bpf_timer timer;
	u64 at;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PROCESSORS_MAX);
	__type(key, u32);
	__type(value, struct alarm);
} alarms SEC(".maps");

struct {
	u64 decisions, kicks; /* what was done, for whoever asks */
	u64 rules[8];	      /* decisions by rule, 0: none */
} told SEC(".data.told");

static __always_inline struct processor *processor_of(u32 cpu)
{
	return bpf_map_lookup_elem(&processors, &cpu);
}

static __always_inline void preempt(u32 cpu)
{
	__sync_fetch_and_add(&told.kicks, 1);
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* Sets a processor's alarm to the moment at which its decision is over. */
static __always_inline void set_alarm(u32 cpu, struct processor *c, u64 now)
{
	struct alarm *alarm = bpf_map_lookup_elem(&alarms, &cpu);

	if (!alarm || c->until == NEVER || alarm->at == c->until)
		return;
	alarm->at = c->until;
	bpf_timer_start(&alarm->timer, c->until > now + ALARM_LEAST ? c->until - now : ALARM_LEAST,
			BPF_F_TIMER_CPU_PIN);
}

/* Whoever has had his time, or whose time has come, is decided about. */
static int ring(void *map, u32 *cpu, struct alarm *alarm)
{
	struct processor *c = processor_of(*cpu);
	u64 now = bpf_ktime_get_ns();

	alarm->at = NEVER;
	if (!c)
		return 0;
	if (c->until <= now)
		preempt(*cpu);
	else
		set_alarm(*cpu, c, now);
	return 0;
}

#endif
