/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The network service: a packet was dropped, a device's queue has grown, a segment was sent again.
 * The value is the kernel's reason for the drop, the packets that wait, and the connection's
 * retransmissions so far; the key is the device or the ports.
 */
#include "raise.h"

enum { DROP, QUEUE, RETRANSMIT };

/* The kernel's reasons 0 to 2 are no drops but ordinary ends of packets, or say nothing. */
#define DROP_REASONS 3

SEC("raw_tp/kfree_skb")
int drop(struct bpf_raw_tracepoint_args *ctx)
{
	struct sk_buff *skb = (void *)ctx->args[0];
	u32 reason = ctx->args[2];
	struct net_device *dev;
	struct sock *sk;

	if (reason < DROP_REASONS)
		return 0;
	if (settings.port) {
		sk = BPF_CORE_READ(skb, sk);
		if (!sk)
			sk = (void *)ctx->args[3];
		if (!sk || BPF_CORE_READ(sk, __sk_common.skc_num) != settings.port)
			return 0;
	}
	dev = BPF_CORE_READ(skb, dev);
	if (in_network(dev ? BPF_CORE_READ(dev, nd_net.net) : NULL))
		occur(ctx, DROP, 0, reason, dev ? (u32)BPF_CORE_READ(dev, ifindex) : 0);
	return 0;
}

SEC("raw_tp/qdisc_enqueue")
int queue(struct bpf_raw_tracepoint_args *ctx)
{
	struct Qdisc *qdisc = (void *)ctx->args[0];
	struct sk_buff *skb = (void *)ctx->args[2];
	struct net_device *dev = BPF_CORE_READ(skb, dev);

	if (dev && in_network(BPF_CORE_READ(dev, nd_net.net)))
		occur(ctx, QUEUE, 0, BPF_CORE_READ(qdisc, q.qlen), (u32)BPF_CORE_READ(dev, ifindex));
	return 0;
}

SEC("raw_tp/tcp_retransmit_skb")
int retransmit(struct bpf_raw_tracepoint_args *ctx)
{
	struct sock *sk = (void *)ctx->args[0];
	struct tcp_sock *tcp = (void *)sk;
	u16 port = BPF_CORE_READ(sk, __sk_common.skc_num);
	u16 peer = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));

	if (!in_network(BPF_CORE_READ(sk, __sk_common.skc_net.net)))
		return 0;
	if (!settings.port || settings.port == port || settings.port == peer)
		occur(ctx, RETRANSMIT, 0, BPF_CORE_READ(tcp, total_retrans), (u64)port << 16 | peer);
	return 0;
}
