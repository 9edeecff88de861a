// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The packet scheduler inside the kernel: a qdisc. A packet is a frame: its stream is found by mark, socket,
 * cgroup or UDP port, it waits in that stream's queue, and goes, or is dropped late, as dwcs.h says.
 * Where frames come from: any socket of the machine. Where they go: the device, at the rate that
 * the setup grants. The qdisc runs under its own lock, so nothing here is shared but the lists,
 * whose locks the verifier asks for.
 */
#include "classify.h"
#include "queues.h"
#include "replay.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* In a replay of real packets: not a packet, but the call for one decision. */
#define CALL_MARK 0x5e17ed6e

static __always_inline void drop(struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to)
{
	sch->qstats.drops++;
	bpf_qdisc_skb_drop(skb, to);
}

/* The link is free since `since` at the earliest: what it did not send before is not made up for. */
static __always_inline void free_since(u64 now, u64 slack)
{
	u64 since = now > slack ? now - slack : 0;

	if (state.free < since)
		state.free = since;
}

/* Packets have waited since they were last seen to. */
static __always_inline void waited_until(u64 now)
{
	if (now > state.seen)
		state.waited += now - state.seen;
	state.seen = now;
}

SEC("struct_ops/enqueue")
int BPF_PROG(selvedge_enqueue, struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to)
{
	struct sock *sk = skb->sk;
	u32 len = skb->len, i;
	struct packet *p;
	struct slot *s;

	if (replaying && skb->mark == CALL_MARK) {
		state.gate = 1;
		bpf_qdisc_skb_drop(skb, to);
		return NET_XMIT_DROP;
	}
	i = classify(skb, sk);
	if (i >= setup.streams || i >= STREAMS_MAX) {
		state.unknown++;
		drop(skb, sch, to);
		return NET_XMIT_DROP;
	}
	s = slot_of(i);
	if (s->waiting >= contract_of(i)->limit) {
		s->overflow++;
		tell_fate(REFUSED, i, skb->mark, len, 0);
		drop(skb, sch, to);
		return NET_XMIT_DROP;
	}
	p = fresh();
	if (!p) {
		s->overflow++;
		tell_fate(REFUSED, i, skb->mark, len, 0);
		drop(skb, sch, to);
		return NET_XMIT_DROP;
	}
	p->arrival = replaying ? state.slot : bpf_ktime_get_ns();
	p->deadline = contract_of(i)->by_txtime ? stated(skb, sk) : 0;
	p->len = len;
	p->tag = skb->mark;
	p->wire = len > before_ip(skb) ? len - before_ip(skb) : len;
	skb = bpf_kptr_xchg(&p->skb, skb);
	if (skb) /* A new packet has none. */
		bpf_qdisc_skb_drop(skb, to);
	if (!sch->q.qlen)
		state.seen = p->arrival;
	if (setup.rate && !sch->q.qlen)
		free_since(p->arrival, setup.burst);
	if (push(i, p)) {
		sch->q.qlen++;
		sch->qstats.backlog += len;
	}
	return NET_XMIT_SUCCESS;
}

SEC("struct_ops/dequeue")
struct sk_buff *BPF_PROG(selvedge_dequeue, struct Qdisc *sch)
{
	u64 now;
	struct sk_buff *skb = NULL;
	struct packet *p;

	if (replaying) {
		if (!state.gate)
			return NULL;
		state.gate = 0;
		now = state.slot;
	} else {
		if (!sch->q.qlen)
			return NULL;
		now = bpf_ktime_get_ns();
		waited_until(now);
		if (setup.rate && now < state.free) {
			state.held = 1;
			bpf_qdisc_watchdog_schedule(sch, state.free, 0);
			return NULL;
		}
		state.late = state.held ? now - state.free : 0;
		state.held = 0;
	}
	if (!expire(sch, now)) {
		/* A dequeue that drops and gives nothing is not called again by itself. */
		bpf_qdisc_watchdog_schedule(sch, now, 0);
		return NULL;
	}
	p = decide(now);
	if (replaying)
		state.slot++;
	if (!p) {
		u64 next = next_ready();

		if (setup.rate)
			free_since(now, setup.burst);
		if (next && !replaying)
			bpf_qdisc_watchdog_schedule(sch, next, 0);
		return NULL;
	}
	skb = bpf_kptr_xchg(&p->skb, NULL);
	uncount(sch, p->len);
	if (setup.rate) {
		free_since(now, setup.burst + setup.catch_up);
		state.free += p->wire * 1000000000ULL / setup.rate;
	}
	discard(p);
	if (skb)
		bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

SEC("struct_ops/init")
int BPF_PROG(selvedge_init, struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *ack)
{
	int k;

	/* The state is one qdisc's: a second one of this name would take its packets. */
	if (state.owner)
		return -EBUSY;
	state.owner = (u64)sch;
	forget(sch);
	sch->limit = 0;
	bpf_for(k, 0, STREAMS_MAX)
		sch->limit += contract_of(k)->limit;
	return 0;
}

SEC("struct_ops/reset")
void BPF_PROG(selvedge_reset, struct Qdisc *sch)
{
	if (state.owner != (u64)sch)
		return;
	forget(sch);
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

SEC("struct_ops/destroy")
void BPF_PROG(selvedge_destroy, struct Qdisc *sch)
{
	/* Also of one that was refused. */
	if (state.owner != (u64)sch)
		return;
	forget(sch);
	state.owner = 0;
}

SEC(".struct_ops.link")
struct Qdisc_ops selvedge = {
	.id = "selvedge",
	.enqueue = (void *)selvedge_enqueue,
	.dequeue = (void *)selvedge_dequeue,
	.init = (void *)selvedge_init,
	.reset = (void *)selvedge_reset,
	.destroy = (void *)selvedge_destroy,
};
