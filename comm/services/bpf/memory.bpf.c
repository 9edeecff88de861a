/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The memory service: a task had to free memory itself, pages are short, a page was missing, a task
 * was chosen to die. The value is the time that it took, the order of what was asked for, the address,
 * and the victim; the key is the pages freed, or the thread.
 */
#include "raise.h"

enum { RECLAIM, PRESSURE, FAULTED, VICTIM };

/* When a thread began to free memory. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u64);
} began SEC(".maps");

static __always_inline bool mine(u32 *pid, u32 *tid)
{
	u64 both = bpf_get_current_pid_tgid();

	*pid = both >> 32;
	*tid = both;
	return heard(*pid) && in_cgroup();
}

static __always_inline int begin(void)
{
	u64 now = bpf_ktime_get_ns();
	u32 pid, tid;

	if (mine(&pid, &tid))
		bpf_map_update_elem(&began, &tid, &now, BPF_ANY);
	return 0;
}

static __always_inline int end(void *ctx, u64 freed)
{
	u32 pid, tid;
	u64 *since, took;

	if (!mine(&pid, &tid))
		return 0;
	since = bpf_map_lookup_elem(&began, &tid);
	if (since && *since) {
		took = bpf_ktime_get_ns() - *since;
		*since = 0;
		occur(ctx, RECLAIM, pid, took, freed);
	}
	return 0;
}

SEC("raw_tp/mm_vmscan_direct_reclaim_begin")
int reclaim_begin(struct bpf_raw_tracepoint_args *ctx)
{
	return begin();
}

SEC("raw_tp/mm_vmscan_direct_reclaim_end")
int reclaim_end(struct bpf_raw_tracepoint_args *ctx)
{
	return end(ctx, ctx->args[0]);
}

SEC("raw_tp/mm_vmscan_memcg_reclaim_begin")
int group_reclaim_begin(struct bpf_raw_tracepoint_args *ctx)
{
	return begin();
}

SEC("raw_tp/mm_vmscan_memcg_reclaim_end")
int group_reclaim_end(struct bpf_raw_tracepoint_args *ctx)
{
	return end(ctx, ctx->args[0]);
}

SEC("raw_tp/mm_vmscan_wakeup_kswapd")
int pressure(struct bpf_raw_tracepoint_args *ctx)
{
	u32 pid, tid;

	if (mine(&pid, &tid))
		occur(ctx, PRESSURE, pid, (u32)ctx->args[2], tid);
	return 0;
}

SEC("raw_tp/page_fault_user")
int faulted(struct bpf_raw_tracepoint_args *ctx)
{
	u32 pid, tid;

	if (mine(&pid, &tid))
		occur(ctx, FAULTED, pid, ctx->args[0], tid);
	return 0;
}

SEC("raw_tp/mark_victim")
int victim(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];
	u32 pid = BPF_CORE_READ(task, tgid);

	occur(ctx, VICTIM, pid, pid, 0);
	return 0;
}
