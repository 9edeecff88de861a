/* SPDX-License-Identifier: (MIT OR Apache-2.0) AND GPL-2.0
 *
 * Processor time by DWCS in the kernel: a sched_ext scheduler. Its decisions are those of tasks.h;
 * here they meet the kernel's threads.
 *
 * A task of ours is a process with all that it starts; it lies on one processor, and its threads
 * wait in a queue of its own. Everything of a processor's table happens under its run queue's lock.
 * Threads that are no task's wait in one queue for all processors, and have what tasks leave, at
 * least the reserve. Threads of the kernel go straight to the local queue. The kernel ends this
 * scheduler when its loader ends, and everything is scheduled as before.
 */
#include "tasks.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define PROCESSORS_MAX 64
#define PROCESSES_MAX 4096
#define PF_KTHREAD 0x00200000
#define SLICE_MOST 20000000ULL
#define TICK 1000000ULL
#define CLOCK_MONOTONIC 1

#define SCX_DSQ_LOCAL ((1ULL << 63) | 2)
#define SCX_KICK_IDLE 1
#define SCX_KICK_PREEMPT 2
#define SCX_TASK_QUEUED 1
/* Of the tasks' queues: processor and place. */
#define QUEUE(cpu, i) ((u64)(cpu) * TASKS_MAX + (i))
#define BEST_EFFORT ((u64)PROCESSORS_MAX * TASKS_MAX)

struct cpumask {
	unsigned long bits[1];
};
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sched_ext_entity {
	u32 flags, weight;
	u64 slice, dsq_vtime;
};
struct task_struct {
	unsigned int flags;
	s32 pid, tgid;
	const struct cpumask *cpus_ptr;
	struct sched_ext_entity scx;
};
struct scx_init_task_args {
	bool fork;
};
#pragma clang attribute pop

struct scx_exit_task_args;
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*runnable)(struct task_struct *p, u64 enq_flags);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*quiescent)(struct task_struct *p, u64 deq_flags);
	void (*enable)(struct task_struct *p);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	s32 (*init)(void);
	u32 timeout_ms;
	char name[128];
};

/* Weak, so that replays run on kernels that lack them. */
extern s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym __weak;
extern void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
extern void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
				     u64 enq_flags) __ksym __weak;
extern bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym __weak;
extern s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym __weak;
extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym __weak;
extern s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags,
				  bool *is_idle) __ksym __weak;
extern s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags) __ksym __weak;
extern s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym __weak;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PROCESSORS_MAX);
	__type(key, u32);
	__type(value, struct processor);
} processors SEC(".maps");

/* Which task a process belongs to: processor and place. Children inherit it. */
struct place {
	u32 cpu, task;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROCESSES_MAX);
	__type(key, s32);
	__type(value, struct place);
} places SEC(".maps");

struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));
struct ticking {
	struct bpf_timer timer;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ticking);
} ticking SEC(".maps");

/* The virtual time of threads that are no task's: who had least for his weight (nice) goes first. */
u64 virtual_now;

/* How many processors there are; set by the loader. */
const volatile u32 processors_count = 1;

struct {
	u64 decisions, kicks; /* what was done, for whoever asks */
	u64 rules[8];	      /* decisions by rule, 0: none */
} told SEC(".data.told");

static __always_inline struct processor *processor_of(u32 cpu)
{
	return bpf_map_lookup_elem(&processors, &cpu);
}

/* The task that a thread belongs to, if it is where that is served. */
static __always_inline struct place *place_of(struct task_struct *p)
{
	s32 tgid = p->tgid;
	struct place *place = bpf_map_lookup_elem(&places, &tgid);

	if (!place || place->task >= TASKS_MAX || place->cpu != (u32)scx_bpf_task_cpu(p))
		return NULL;
	return place;
}

static __always_inline void preempt(u32 cpu)
{
	__sync_fetch_and_add(&told.kicks, 1);
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 tgid = p->tgid, cpu;
	struct place *place = bpf_map_lookup_elem(&places, &tgid);
	bool idle = false;

	if (place)
		return prev_cpu;
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SLICE_MOST, 0);
	return cpu;
}

SEC("struct_ops/runnable")
void BPF_PROG(runnable, struct task_struct *p, u64 enq_flags)
{
	struct place *place = place_of(p);
	struct processor *c = place ? processor_of(place->cpu) : NULL;
	struct task *t;

	if (!c)
		return;
	t = task_of(c, place->task);
	t->threads++;
	if (!t->present || t->awake)
		return;
	task_wake(t, bpf_ktime_get_ns());
	if (t->by_events)
		event_raise(c, place->task, t->deadline);
}

SEC("struct_ops/quiescent")
void BPF_PROG(quiescent, struct task_struct *p, u64 deq_flags)
{
	struct place *place = place_of(p);
	struct processor *c = place ? processor_of(place->cpu) : NULL;
	struct task *t;

	if (!c)
		return;
	t = task_of(c, place->task);
	if (t->threads)
		t->threads--;
	if (!t->threads)
		task_sleep(c, place->task);
}

SEC("struct_ops/enqueue")
void BPF_PROG(enqueue, struct task_struct *p, u64 enq_flags)
{
	struct place *place;
	struct processor *c;
	struct task *t;
	u64 now;
	s32 idle;

	if (p->flags & PF_KTHREAD) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SLICE_MOST, enq_flags);
		return;
	}
	place = place_of(p);
	c = place ? processor_of(place->cpu) : NULL;
	t = c ? task_of(c, place->task) : NULL;
	if (!t || !t->present) {
		now = p->scx.dsq_vtime;
		/* Who slept long has no more to catch up on than a slice. */
		if ((s64)(virtual_now - SLICE_MOST / 4 - now) > 0)
			now = virtual_now - SLICE_MOST / 4;
		scx_bpf_dsq_insert_vtime(p, BEST_EFFORT, SLICE_MOST / 4, now, enq_flags);
		/* A processor that idles would not look by itself. */
		idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (idle >= 0)
			scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
		return;
	}
	if (!t->threads) {
		/* It came into a task that it was not runnable in before. */
		t->threads = 1;
		task_wake(t, bpf_ktime_get_ns());
	}
	scx_bpf_dsq_insert(p, QUEUE(place->cpu, place->task), SLICE_MOST, enq_flags);
	now = bpf_ktime_get_ns();
	if (begins(t) > now)
		sooner(c, begins(t));
	/* Whoever runs gives way at once to who goes before him, and to nobody else. */
	if (c->runs == place->task || (begins(t) > now && !t->ahead))
		return;
	if (c->runs >= TASKS_MAX ? c->selected != SELECTED_RESERVE && begins(t) <= now
				 : precedes(t, place->task, task_of(c, c->runs), c->runs))
		preempt(place->cpu);
}

/* What ran since the last look pays for it. */
static __always_inline void spent(struct processor *c, struct task_struct *p, u64 now)
{
	struct place *place = place_of(p);
	u64 used = now > c->since ? now - c->since : 0;

	c->since = now;
	if (place && task_of(c, place->task)->present) {
		task_ran(c, place->task, used);
		return;
	}
	if (p->flags & PF_KTHREAD)
		return;
	p->scx.dsq_vtime += used * 100 / (p->scx.weight ? p->scx.weight : 1);
	if (c->account == c->server && c->server != NO_TASK)
		pay(c, c->server, used);
	else if (c->reserve != NO_TASK && begins(task_of(c, c->reserve)) <= c->clock)
		pay(c, c->reserve, used);
}

/* Whether what was there wants to go on. */
static __always_inline bool goes_on(struct task_struct *prev)
{
	return prev && (prev->scx.flags & SCX_TASK_QUEUED);
}

SEC("struct_ops/dispatch")
void BPF_PROG(dispatch, s32 cpu, struct task_struct *prev)
{
	struct processor *c = processor_of(cpu);
	struct place *was = NULL;
	bool on = goes_on(prev), ours;
	u64 now = bpf_ktime_get_ns();

	if (!c)
		return;
	if (on) {
		/* It is asked before `prev` is told to stop: so its time is counted here. */
		spent(c, prev, now);
		was = place_of(prev);
	}
	ours = was && task_of(c, was->task)->present;
	c->best_effort = scx_bpf_dsq_nr_queued(BEST_EFFORT) > 0 || (on && !ours);
	decide(c, now);
	__sync_fetch_and_add(&told.decisions, 1);
	__sync_fetch_and_add(&told.rules[c->rule & 7], 1);
	if (c->runs < TASKS_MAX) {
		/* Its threads take turns. */
		if (scx_bpf_dsq_move_to_local(QUEUE(cpu, c->runs)))
			return;
		if (on && ours && was->task == c->runs) {
			prev->scx.slice = SLICE_MOST;
			return;
		}
	}
	if (scx_bpf_dsq_move_to_local(BEST_EFFORT))
		return;
	if (on && !ours) {
		prev->scx.slice = SLICE_MOST / 4;
		return;
	}
	/* Nobody but tasks that had their time: the processor idles until the timer calls. */
}

SEC("struct_ops/running")
void BPF_PROG(running, struct task_struct *p)
{
	struct processor *c = processor_of(scx_bpf_task_cpu(p));

	if (c)
		c->since = bpf_ktime_get_ns();
	if ((s64)(p->scx.dsq_vtime - virtual_now) > 0)
		virtual_now = p->scx.dsq_vtime;
}

SEC("struct_ops/stopping")
void BPF_PROG(stopping, struct task_struct *p, bool runnable)
{
	struct processor *c = processor_of(scx_bpf_task_cpu(p));

	if (c)
		spent(c, p, bpf_ktime_get_ns());
}

SEC("struct_ops/enable")
void BPF_PROG(enable, struct task_struct *p)
{
	p->scx.dsq_vtime = virtual_now;
}

SEC("struct_ops/init_task")
s32 BPF_PROG(init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	s32 tgid = p->tgid, parent;
	struct place *place, child;

	if (!args->fork || p->pid != p->tgid)
		return 0;
	/* It has no parent yet; who forks it is running. */
	parent = bpf_get_current_pid_tgid() >> 32;
	place = bpf_map_lookup_elem(&places, &parent);
	if (!place)
		return 0;
	child = *place;
	/* Full: then the child is a program like any other. */
	bpf_map_update_elem(&places, &tgid, &child, 0);
	return 0;
}

/* Every millisecond: whoever has had his time, or whose time has come, is decided about. */
static int tick(void *map, u32 *key, struct ticking *value)
{
	u64 now = bpf_ktime_get_ns();
	int cpu;

	bpf_for(cpu, 0, PROCESSORS_MAX) {
		struct processor *c;

		if (cpu >= processors_count)
			break;
		c = processor_of(cpu);
		if (c && c->until <= now)
			preempt(cpu);
	}
	bpf_timer_start(&value->timer, TICK, 0);
	return 0;
}

SEC("struct_ops.s/init")
s32 BPF_PROG(init)
{
	struct ticking *value;
	u32 key = 0;
	int cpu, i, failed;

	failed = scx_bpf_create_dsq(BEST_EFFORT, -1);
	if (failed)
		return failed;
	bpf_for(cpu, 0, PROCESSORS_MAX) {
		if (cpu >= processors_count)
			break;
		bpf_for(i, 0, TASKS_MAX) {
			failed = scx_bpf_create_dsq(QUEUE(cpu, i), -1);
			if (failed)
				return failed;
		}
	}
	value = bpf_map_lookup_elem(&ticking, &key);
	if (!value)
		return -2;
	failed = bpf_timer_init(&value->timer, &ticking, CLOCK_MONOTONIC);
	if (failed)
		return failed;
	bpf_timer_set_callback(&value->timer, tick);
	return bpf_timer_start(&value->timer, TICK, 0);
}

SEC(".struct_ops.link")
struct sched_ext_ops selvedge_dwcs = {
	.select_cpu = (void *)select_cpu,
	.enqueue = (void *)enqueue,
	.dispatch = (void *)dispatch,
	.runnable = (void *)runnable,
	.running = (void *)running,
	.stopping = (void *)stopping,
	.quiescent = (void *)quiescent,
	.enable = (void *)enable,
	.init_task = (void *)init_task,
	.init = (void *)init,
	.timeout_ms = 30000,
	.name = "selvedge_dwcs",
};

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
	c->unit = wish->unit;
	c->unit_period = wish->unit_period;
	t->server_period = wish->server_period;
	if (wish->what == PUT_REST)
		return 0;
	start = wish->what == PUT_SERVER ? begins(t) : 0;
	t->present = 0;
	task_sleep(c, i);
	if (wish->what == PUT_NOTHING)
		return 0;
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
		task_wake(task_of(c, i), c->clock);
		break;
	case 1:
		task_sleep(c, i);
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
