/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What a scheduler sees of the kernel's sched_ext: its types, its calls and its constants.
 */
#ifndef SELVEDGE_SCX_H
#define SELVEDGE_SCX_H

#include "kernel.h"

#define PF_KTHREAD 0x00200000
#define CLOCK_MONOTONIC 1
#define BPF_F_TIMER_CPU_PIN 2
#define BPF_F_NO_PREALLOC 1
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1

#define SCX_DSQ_LOCAL ((1ULL << 63) | 2)
#define SCX_KICK_IDLE 1
#define SCX_KICK_PREEMPT 2
#define SCX_TASK_QUEUED 1

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

struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

#endif
