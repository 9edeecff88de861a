/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The socket service: data has come, there is room to write again, a connection waits to be accepted,
 * a connection has ended. The value is bytes to read, bytes set free, connections that wait, and
 * the state before; the key is the local port and the peer's. Q-Fabric section 3.5.1.
 */
#include "raise.h"

enum { DATA, SPACE, CONNECTION, CLOSED, ERROR, LOAD };

/* Whose a socket is: who last read from it or made it. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, u32);
} owners SEC(".maps");

static __always_inline u32 owner(u64 sk)
{
	u32 *pid = bpf_map_lookup_elem(&owners, &sk);

	return pid ? *pid : 0;
}

static __always_inline void owned(u64 sk)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	u32 *known = bpf_map_lookup_elem(&owners, &sk);

	if (pid && (!known || *known != pid))
		bpf_map_update_elem(&owners, &sk, &pid, BPF_ANY);
}

/* Whether it is a socket that the filters let through; gives its ports. */
static __always_inline bool wanted(struct sock *sk, u64 *key)
{
	u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	u16 port;

	if (family != AF_INET && family != AF_INET6)
		return false;
	if (!in_network(BPF_CORE_READ(sk, __sk_common.skc_net.net)))
		return false;
	/* skc_num is 0 already when a connection ends. */
	port = __builtin_bswap16(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
	if (settings.port && settings.port != port)
		return false;
	*key = (u64)port << 16 | __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	return true;
}

static __always_inline void tell(void *ctx, struct sock *sk, u32 kind, u64 value)
{
	u32 pid = owner((u64)sk);
	u64 key;

	/* The subscriber's own sockets are as good as any. */
	if (wanted(sk, &key) && (!settings.pid || settings.pid == pid))
		occur(ctx, kind, pid, value, key);
}

SEC("raw_tp/sk_data_ready")
int data_ready(struct bpf_raw_tracepoint_args *ctx)
{
	struct sock *sk = (void *)ctx->args[0];
	struct tcp_sock *tcp = (void *)sk;
	u64 value;

	if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_LISTEN)
		return 0;
	if (BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP)
		value = (u32)(BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq));
	else
		value = BPF_CORE_READ(sk, sk_backlog.rmem_alloc.counter);
	tell(ctx, sk, DATA, value);
	return 0;
}

SEC("raw_tp/sk_data_ready")
int connection(struct bpf_raw_tracepoint_args *ctx)
{
	struct sock *sk = (void *)ctx->args[0];

	if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_LISTEN)
		tell(ctx, sk, CONNECTION, BPF_CORE_READ(sk, sk_ack_backlog));
	return 0;
}

/* An acknowledgement for a socket whose writer has met a full buffer. */
SEC("raw_tp/tcp_probe")
int space(struct bpf_raw_tracepoint_args *ctx)
{
	struct sock *sk = (void *)ctx->args[0];
	struct sk_buff *skb = (void *)ctx->args[1];
	struct tcp_sock *tcp = (void *)sk;
	struct socket *socket = BPF_CORE_READ(sk, sk_socket);
	struct tcphdr *header;
	u32 freed;

	if (!socket || !(BPF_CORE_READ(socket, flags) & 1ul << SOCK_NOSPACE))
		return 0;
	header = (void *)(BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, transport_header));
	freed = __builtin_bswap32(BPF_CORE_READ(header, ack_seq)) - BPF_CORE_READ(tcp, snd_una);
	if ((s32)freed > 0)
		tell(ctx, sk, SPACE, freed);
	return 0;
}

SEC("raw_tp/inet_sock_set_state")
int closed(struct bpf_raw_tracepoint_args *ctx)
{
	struct sock *sk = (void *)ctx->args[0];
	u32 before = ctx->args[1], state = ctx->args[2];
	u64 address = (u64)sk;

	if (state == TCP_LISTEN || state == TCP_SYN_SENT)
		owned(address);
	if ((state == TCP_CLOSE && before != TCP_SYN_SENT) || state == TCP_CLOSE_WAIT)
		tell(ctx, sk, CLOSED, before);
	if (state == TCP_CLOSE)
		bpf_map_delete_elem(&owners, &address);
	return 0;
}

SEC("raw_tp/inet_sk_error_report")
int failed(struct bpf_raw_tracepoint_args *ctx)
{
	tell(ctx, (void *)ctx->args[0], ERROR, 1);
	return 0;
}

/* The load of the server on the port that is watched: connections that are open and connections that
 * wait to be accepted, at each change. */
s64 serving SEC(".data.serving");
u64 listener;

static __always_inline void load_changed(void *ctx)
{
	struct sock *sk = (void *)listener;
	s64 open = serving;
	u32 waiting;

	if (!sk || !settings.port)
		return;
	waiting = BPF_CORE_READ(sk, sk_ack_backlog);
	occur(ctx, LOAD, owner((u64)sk), waiting, open > waiting ? open - waiting : 0);
}

SEC("raw_tp/sk_data_ready")
int load_grows(struct bpf_raw_tracepoint_args *ctx)
{
	struct sock *sk = (void *)ctx->args[0];
	u64 key;

	if (BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_LISTEN || !wanted(sk, &key))
		return 0;
	listener = (u64)sk;
	load_changed(ctx);
	return 0;
}

SEC("raw_tp/inet_sock_set_state")
int load_counts(struct bpf_raw_tracepoint_args *ctx)
{
	struct sock *sk = (void *)ctx->args[0];
	u32 before = ctx->args[1], after = ctx->args[2];
	u64 key;

	if (!wanted(sk, &key))
		return 0;
	if (before == TCP_LISTEN && after != TCP_LISTEN && listener == (u64)sk)
		listener = 0;
	if (after == TCP_ESTABLISHED) {
		__sync_fetch_and_add(&serving, 1);
	} else if (before == TCP_ESTABLISHED) {
		__sync_fetch_and_add(&serving, -1);
		load_changed(ctx);
	}
	return 0;
}

/* Learns whose sockets are. */
SEC("raw_tp/sock_recv_length")
int received(struct bpf_raw_tracepoint_args *ctx)
{
	owned(ctx->args[0]);
	return 0;
}
