/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What these programs see of the kernel: only the types and members that they touch. Each is found
 * in the running kernel by its name when a program is loaded (CO-RE), whatever its offset there.
 */
#ifndef SELVEDGE_TYPES_H
#define SELVEDGE_TYPES_H

#include "../../../place/kernel/bpf/integers.h"

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_USER_RINGBUF = 31,
};
enum { BPF_ANY = 0 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { EBUSY = 16 };
enum { CLOCK_MONOTONIC = 1 };

/* The kernel knows it by this name. */
struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));
struct bpf_dynptr;

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

struct bpf_raw_tracepoint_args {
	u64 args[0];
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;
struct ns_common {
	unsigned int inum;
};
struct net {
	struct ns_common ns;
};
typedef struct {
	struct net *net;
} possible_net_t;
struct sock_common {
	possible_net_t skc_net;
	u16 skc_family;
	volatile u8 skc_state;
	__be16 skc_dport;
	u16 skc_num;
};
struct socket {
	unsigned long flags;
};
struct sock {
	struct sock_common __sk_common;
	u16 sk_protocol;
	u32 sk_ack_backlog;
	struct socket *sk_socket;
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
};
struct inet_sock {
	__be16 inet_sport;
};
struct tcp_sock {
	u32 rcv_nxt;
	u32 copied_seq;
	u32 snd_una;
	u32 total_retrans;
};
struct tcphdr {
	__be32 ack_seq;
};
struct net_device {
	possible_net_t nd_net;
	int ifindex;
};
struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	u16 transport_header;
	unsigned char *head;
};
struct qdisc_skb_head {
	u32 qlen;
};
struct Qdisc {
	struct qdisc_skb_head q;
};
struct task_struct {
	int pid;
	int tgid;
};

#pragma clang attribute pop

enum { AF_INET = 2, AF_INET6 = 10 };
enum { IPPROTO_TCP = 6 };
enum { TCP_ESTABLISHED = 1, TCP_SYN_SENT = 2, TCP_CLOSE = 7, TCP_CLOSE_WAIT = 8, TCP_LISTEN = 10 };
/* SOCK_NOSPACE of the kernel's linux/net.h: a writer waits for room. */
enum { SOCK_NOSPACE = 2 };

#endif
