/* SPDX-License-Identifier: (MIT OR Apache-2.0) AND GPL-2.0
 *
 * Processor time by DWCS in the kernel: a sched_ext scheduler. Its decisions are those of decide.h;
 * here they meet the kernel's threads.
 *
 * A task of ours is a process with all that it starts; it lies on one processor, and its threads
 * wait in a queue of its own. Everything of a processor's table happens under its run queue's lock.
 * Threads that are no task's wait in one queue for all processors, and have what tasks leave, at
 * least the reserve. Threads of the kernel go straight to the local queue. The kernel ends this
 * scheduler when its loader ends, and everything is scheduled as before.
 */
#include "alarm.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define PROCESSES_MAX 4096
#define SLICE_MOST 20000000ULL

/* Of the tasks' queues: processor and place. */
#define QUEUE(cpu, i) ((u64)(cpu) * TASKS_MAX + (i))
#define BEST_EFFORT ((u64)PROCESSORS_MAX * TASKS_MAX)

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

/* Of each thread: the queue of the task among whose threads it is counted, plus 1. One that runs
 * while its process is enlisted is counted when it is next queued, not when it sleeps. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} counted SEC(".maps");

/* The virtual time of threads that are no task's: who had least for his weight (nice) goes first. */
u64 virtual_now;

/* How many processors there are; set by the loader. */
const volatile u32 processors_count = 1;

/* The task that a thread belongs to, if it is where that is served. */
static __always_inline struct place *place_of(struct task_struct *p)
{
	s32 tgid = p->tgid;
	struct place *place = bpf_map_lookup_elem(&places, &tgid);

	if (!place || place->task >= TASKS_MAX || place->cpu != (u32)scx_bpf_task_cpu(p))
		return NULL;
	return place;
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

/* A thread of a task wants to run, and was not counted yet. */
static __always_inline void join(struct task_struct *p, struct processor *c, const struct place *place)
{
	struct task *t = task_of(c, place->task);
	u32 *in = bpf_task_storage_get(&counted, p, 0, 0);
	u32 here = QUEUE(place->cpu, place->task) + 1;

	if (in && *in == here && t->threads)
		return;
	if (in)
		*in = here;
	else if (t->threads)
		return;
	t->threads++;
	if (!t->present || t->awake)
		return;
	wake(c, place->task, bpf_ktime_get_ns());
	if (t->by_events)
		event_raise(c, place->task, t->deadline);
}

SEC("struct_ops/runnable")
void BPF_PROG(runnable, struct task_struct *p, u64 enq_flags)
{
	struct place *place = place_of(p);
	struct processor *c = place ? processor_of(place->cpu) : NULL;

	if (c)
		join(p, c, place);
}

SEC("struct_ops/quiescent")
void BPF_PROG(quiescent, struct task_struct *p, u64 deq_flags)
{
	struct place *place = place_of(p);
	struct processor *c = place ? processor_of(place->cpu) : NULL;
	u32 *in = bpf_task_storage_get(&counted, p, 0, 0);
	struct task *t;

	if (!c || !in || *in != QUEUE(place->cpu, place->task) + 1)
		return;
	*in = 0;
	t = task_of(c, place->task);
	if (t->threads)
		t->threads--;
	if (!t->threads)
		sleep(c, place->task);
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
	join(p, c, place);
	scx_bpf_dsq_insert(p, QUEUE(place->cpu, place->task), SLICE_MOST, enq_flags);
	now = bpf_ktime_get_ns();
	if (begins(t) > now) {
		sooner(c, begins(t));
		set_alarm(place->cpu, c, now);
	}
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

/* Takes a thread that waits in the queue of a task that went; from then on it is like any other. */
static __always_inline bool adopt(u32 cpu, struct processor *c)
{
	int i;

	if (!c->orphans)
		return false;
	c->orphans = 0;
	bpf_for(i, 0, c->places) {
		if (task_of(c, i)->present || !scx_bpf_dsq_move_to_local(QUEUE(cpu, i)))
			continue;
		/* There may be more. */
		c->orphans = 1;
		return true;
	}
	return false;
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
	set_alarm(cpu, c, now);
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
	if (adopt(cpu, c) || scx_bpf_dsq_move_to_local(BEST_EFFORT))
		return;
	if (on && !ours) {
		prev->scx.slice = SLICE_MOST / 4;
		return;
	}
	/* Nobody but tasks that had their time: the processor idles until the alarm rings. */
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

	/* Without memory for it, its task is taken to want to run from then on. */
	bpf_task_storage_get(&counted, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
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

SEC("struct_ops.s/init")
s32 BPF_PROG(init)
{
	int cpu, i, failed;

	failed = scx_bpf_create_dsq(BEST_EFFORT, -1);
	if (failed)
		return failed;
	bpf_for(cpu, 0, PROCESSORS_MAX) {
		struct alarm *alarm;
		u32 key = cpu;

		if (cpu >= processors_count)
			break;
		bpf_for(i, 0, TASKS_MAX) {
			failed = scx_bpf_create_dsq(QUEUE(cpu, i), -1);
			if (failed)
				return failed;
		}
		alarm = bpf_map_lookup_elem(&alarms, &key);
		if (!alarm)
			return -2;
		alarm->at = NEVER;
		failed = bpf_timer_init(&alarm->timer, &alarms, CLOCK_MONOTONIC);
		if (failed)
			return failed;
		bpf_timer_set_callback(&alarm->timer, ring);
	}
	return 0;
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

#include "scx_calls.h"
