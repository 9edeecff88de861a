/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The scheduling service: a task waited for its processor, was placed on another one, or had not
 * done its work by its deadline. The value is the wait, the processor, and the lateness; the key is
 * the thread. A task's deadline counts from its waking, and its work is done when it sleeps.
 */
#include "types.h"

enum { DELAY, PLACED, MISS };

/* When a thread became ready to run. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, u32);
	__type(value, u64);
} ready SEC(".maps");

/* Threads with a deadline, in ns from each waking; user space fills it. */
struct job {
	u64 within;
	u64 released;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct job);
} jobs SEC(".maps");
#define JOBS jobs

#include "raise.h"

#define WANTED(kind) (settings.kinds & 1u << (kind))

static __always_inline bool watched(struct task_struct *task, u32 *pid, u32 *tgid)
{
	*pid = BPF_CORE_READ(task, pid);
	*tgid = BPF_CORE_READ(task, tgid);
	return *pid && heard(*tgid);
}

static __always_inline void woken(struct task_struct *task, u64 now, bool released)
{
	struct job *job;
	u32 pid, tgid;

	if (!watched(task, &pid, &tgid))
		return;
	if (WANTED(DELAY))
		bpf_map_update_elem(&ready, &pid, &now, BPF_ANY);
	if (WANTED(MISS) && released) {
		job = bpf_map_lookup_elem(&jobs, &pid);
		if (job && !job->released)
			job->released = now;
	}
}

SEC("raw_tp/sched_wakeup")
int wakeup(struct bpf_raw_tracepoint_args *ctx)
{
	heed();
	woken((void *)ctx->args[0], bpf_ktime_get_ns(), true);
	return 0;
}

SEC("raw_tp/sched_wakeup_new")
int wakeup_new(struct bpf_raw_tracepoint_args *ctx)
{
	heed();
	woken((void *)ctx->args[0], bpf_ktime_get_ns(), true);
	return 0;
}

SEC("raw_tp/sched_switch")
int switched(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *from = (void *)ctx->args[1], *to = (void *)ctx->args[2];
	bool preempted = ctx->args[0];
	u32 state = ctx->args[3];
	u64 now = bpf_ktime_get_ns(), *since;
	u32 pid, tgid;
	struct job *job;

	heed();
	if (state == 0 || preempted) {
		woken(from, now, false);
	} else if (watched(from, &pid, &tgid)) {
		/* It was called while it ran, and sleeps all the same. */
		since = bpf_map_lookup_elem(&ready, &pid);
		if (since)
			*since = 0;
		job = WANTED(MISS) ? bpf_map_lookup_elem(&jobs, &pid) : NULL;
		if (job && job->released) {
			u64 due = job->released + job->within;

			job->released = 0;
			if (now > due)
				occur(ctx, MISS, tgid, now - due, pid);
		}
	}
	if (!WANTED(DELAY) || !watched(to, &pid, &tgid))
		return 0;
	since = bpf_map_lookup_elem(&ready, &pid);
	if (since && *since) {
		u64 waited = now - *since;

		*since = 0;
		if ((s64)waited > 0 && (settings.handled || waited >= settings.threshold))
			occur(ctx, DELAY, tgid, waited, pid);
	}
	return 0;
}

SEC("raw_tp/sched_migrate_task")
int placed(struct bpf_raw_tracepoint_args *ctx)
{
	u32 pid, tgid;

	if (watched((void *)ctx->args[0], &pid, &tgid))
		occur(ctx, PLACED, tgid, (u32)ctx->args[1], pid);
	return 0;
}
