/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The I/O event module of Q-Fabric's section 3.5.1: a socket that becomes ready sets a bit in memory
 * that its process has mapped. Which descriptor it is lies beside the socket itself, in storage that
 * goes with the socket; so a descriptor's number that is used again is never taken for the old one.
 *
 * The process may write whatever it likes into the memory: it is read here as bits and numbers that
 * choose nothing but what the process is told.
 */
#include "types.h"

#define DESCRIPTORS 65536
#define WORDS (DESCRIPTORS / 64)

/* The names and order of the section; `summary` has a bit for each word of `fd_active`. */
struct socket_interest {
	u32 flag;
	u32 reserved;
	u64 fd_list[WORDS];
	u64 updated_fd_list[WORDS];
};
struct socket_ready {
	u32 flag;
	u32 sleeping;  /* threads that wait, or are about to */
	u32 signalled; /* a record for them is in the ring */
	u32 reserved;
	u64 summary[WORDS / 64];
	u64 fd_active[WORDS];
};
struct shared {
	struct socket_interest interest;
	struct socket_ready ready;
	u32 generation[DESCRIPTORS];
};

struct attached {
	u32 descriptor;
	u32 generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct attached);
} attached SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct shared);
} shared SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} wake SEC(".maps");

/* First the bit, then the word's bit, then the sleeper: who looks takes them the other way round,
 * and says that he will sleep before he looks a last time. Each step is a full barrier. */
static __always_inline void mark(struct sock *sk)
{
	struct attached *mine = bpf_sk_storage_get(&attached, sk, 0, 0);
	struct shared *all;
	u32 zero = 0, word, descriptor;
	u64 bit, *record;

	if (!mine)
		return;
	all = bpf_map_lookup_elem(&shared, &zero);
	descriptor = mine->descriptor;
	if (!all || descriptor >= DESCRIPTORS)
		return;
	word = descriptor / 64;
	bit = 1ull << (descriptor % 64);
	if (all->generation[descriptor] != mine->generation)
		return;
	if (!(all->interest.fd_list[word] & bit))
		return;
	if (__sync_fetch_and_or(&all->ready.fd_active[word], bit) & bit)
		return;
	__sync_fetch_and_add(&all->ready.flag, 1);
	__sync_fetch_and_or(&all->ready.summary[word / 64], 1ull << (word % 64));
	if (!all->ready.sleeping || __sync_lock_test_and_set(&all->ready.signalled, 1))
		return;
	record = bpf_ringbuf_reserve(&wake, sizeof(*record), 0);
	if (record) {
		*record = descriptor;
		bpf_ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
	}
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(data_ready, struct sock *sk)
{
	mark(sk);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state, struct sock *sk, int before, int after)
{
	if (after == TCP_CLOSE)
		mark(sk);
	return 0;
}

SEC("tp_btf/inet_sk_error_report")
int BPF_PROG(failed, struct sock *sk)
{
	mark(sk);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
