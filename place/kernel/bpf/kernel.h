/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What these programs see of the kernel: only the types and members that they touch. Each is found
 * in the running kernel by its name when a program is loaded (CO-RE), whatever its offset there.
 */
#ifndef SELVEDGE_KERNEL_H
#define SELVEDGE_KERNEL_H

#include "integers.h"

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_RINGBUF = 27,
       BPF_MAP_TYPE_TASK_STORAGE = 29 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* A list and its nodes, in kernel memory that the verifier watches over. */
struct bpf_spin_lock {
	__u32 val;
};
struct bpf_list_head {
	__u64 opaque[2];
} __attribute__((aligned(8)));
struct bpf_list_node {
	__u64 opaque[3];
} __attribute__((aligned(8)));

/* For bpf_for. */
struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));
extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym __weak;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym __weak;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym __weak;

extern void *bpf_obj_new_impl(__u64 local_type_id, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *obj, void *meta) __ksym;
extern int bpf_list_push_back_impl(struct bpf_list_head *head, struct bpf_list_node *node,
				   void *meta, __u64 off) __ksym;
extern int bpf_list_push_front_impl(struct bpf_list_head *head, struct bpf_list_node *node,
				    void *meta, __u64 off) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head) __ksym;
extern struct bpf_list_node *bpf_list_front(struct bpf_list_head *head) __ksym;

#define __contains(type, member) __attribute__((btf_decl_tag("contains:" #type ":" #member)))
#define obj_new(type) ((type *)bpf_obj_new_impl(bpf_core_type_id_local(type), NULL))
#define obj_drop(object) bpf_obj_drop_impl(object, NULL)
#define list_push_back(head, node) bpf_list_push_back_impl(head, node, NULL, 0)
#define list_push_front(head, node) bpf_list_push_front_impl(head, node, NULL, 0)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
};
struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
};
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};
struct sock_cgroup_data {
	struct cgroup *cgroup;
};
typedef struct {
	s64 counter;
} atomic64_t;
struct sock_common {
	atomic64_t skc_cookie;
};
struct sock {
	struct sock_common __sk_common;
	u16 sk_protocol;
	struct sock_cgroup_data sk_cgrp_data;
};
struct sk_buff {
	struct sock *sk;
	s64 tstamp;
	unsigned int len;
	unsigned int data_len;
	u8 tstamp_type : 2;
	u32 mark;
	__be16 protocol;
	u16 network_header;
	unsigned char *head;
	unsigned char *data;
};
struct qdisc_skb_head {
	u32 qlen;
};
struct gnet_stats_queue {
	u32 backlog;
	u32 drops;
	u32 overlimits;
};
struct Qdisc {
	u32 limit;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};
struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};

#pragma clang attribute pop

struct nlattr;
struct netlink_ext_ack;

/* What the program registers; members that are not named here stay the kernel's own. User space
 * writes `id`, which is why it has a fixed place. */
struct Qdisc_ops {
	char id[16];
	int (*enqueue)(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *sch);
	int (*init)(struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *extack);
	void (*reset)(struct Qdisc *sch);
	void (*destroy)(struct Qdisc *sch);
};

extern void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) __ksym;
extern void bpf_kfree_skb(struct sk_buff *skb) __ksym;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, u64 expire, u64 slack) __ksym;
extern void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) __ksym;

enum { EBUSY = 16 };
enum { NET_XMIT_SUCCESS = 0, NET_XMIT_DROP = 1 };
enum { SKB_CLOCK_MONOTONIC = 1, SKB_CLOCK_TAI = 2 };

#endif
