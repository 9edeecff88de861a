// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The packet scheduler inside the kernel: a qdisc. A packet is a frame: its stream is found by mark, socket,
 * cgroup or UDP port, it waits in that stream's queue, and goes, or is dropped late, as dwcs.h says.
 * Where frames come from: any socket of the machine. Where they go: the device, at the rate that
 * the setup grants. The qdisc runs under its own lock, so nothing here is shared but the lists,
 * whose locks the verifier asks for.
 */
#include "dwcs.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* What a dequeue may drop before it lets go of the processor; it is called again at once. */
#define DROPS_MAX 1024
#define CGROUPS_UP 16

/* In a replay of real packets: not a packet, but the call for one decision. */
#define CALL_MARK 0x5e17ed6e

struct packet {
	struct bpf_list_node node;
	struct sk_buff __kptr *skb;
	u64 arrival;
	u64 deadline; /* stated by the sender, or 0 */
	/* Not two halves of a word: they would be written together, which the verifier refuses. */
	u64 len;
	u64 wire; /* what the rate counts: the IP packet */
};

struct queue {
	struct bpf_spin_lock lock;
	struct bpf_list_head packets __contains(packet, node);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STREAMS_MAX);
	__type(key, u32);
	__type(value, struct queue);
} queues SEC(".maps");

/* Records that are free. To take one from here and to put it back costs a sixth of what the kernel's
 * allocator takes. */
#define SPARE_MAX 4096
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct queue);
} spare SEC(".maps");

enum { BY_MARK = 0, BY_COOKIE = 1, BY_CGROUP = 2, BY_PORT = 3, BY_SOURCE_PORT = 4 };

struct filter {
	u32 kind;
	u32 zero;
	u64 value;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct filter);
	__type(value, u32);
} filters SEC(".maps");

enum { DROPPED = 1, MISSED = 2, SENT = 3, SENT_LATE = 4, IDLE = 5 };
#define EVENTS_MAX 640

/* What a replay did since user space last looked. */
struct {
	u32 count;
	u32 lost;
	struct event {
		u64 seq;
		u64 deadline;
		u64 misses;
		u32 stream;
		u32 kind;
	} events[EVENTS_MAX];
} told SEC(".data.told");

static __always_inline void tell(u32 kind, u32 i, u64 seq, u64 deadline, u64 misses)
{
	u32 n = told.count;

	if (!replaying)
		return;
	if (n >= EVENTS_MAX) {
		told.lost++;
		return;
	}
	told.events[n] = (struct event){ seq, deadline, misses, i, kind };
	told.count = n + 1;
}

/* The stream of a filter, or NOBODY. */
static __always_inline u32 filtered(u32 kind, u64 value)
{
	struct filter key = { kind, 0, value };
	u32 *stream = bpf_map_lookup_elem(&filters, &key);

	return stream ? *stream : NOBODY;
}

/* The cgroup of the socket, or the nearest one above it that has a stream. */
static __always_inline u32 by_cgroup(struct cgroup *cgroup)
{
	u32 found = NOBODY;
	int k;

	bpf_for(k, 0, CGROUPS_UP) {
		if (!cgroup || found != NOBODY)
			break;
		found = filtered(BY_CGROUP, BPF_CORE_READ(cgroup, kn, id));
		/* `self` is the first member of a cgroup: its parent's is the parent. */
		cgroup = (struct cgroup *)BPF_CORE_READ(cgroup, self.parent);
	}
	return found;
}

/* The bytes of the device's own header. */
static __always_inline u32 before_ip(struct sk_buff *skb)
{
	u64 data = (u64)skb->data - (u64)skb->head;
	u32 at = skb->network_header;

	return at > data && at - data < 64 ? at - data : 0;
}

/* UDP's ports, both, first the source, as they are on the wire; 0 if it is not UDP. */
static __always_inline u32 udp_ports(struct sk_buff *skb)
{
	unsigned char *head = skb->head;
	u32 end = (u32)((u64)skb->data - (u64)head) + skb->len - skb->data_len;
	u32 at = skb->network_header, ports = 0;
	/* One look is enough for IPv4 without options: 20 bytes, and UDP's 8. */
	u8 ip[28];

	if (at + sizeof(ip) > end || bpf_probe_read_kernel(ip, sizeof(ip), head + at))
		return 0;
	if (skb->protocol == 0x0008) { /* IPv4; a later fragment has no ports */
		if (ip[9] != 17 || (ip[6] & 0x1f) || ip[7])
			return 0;
		if ((ip[0] & 15) == 5)
			return ip[20] | ip[21] << 8 | ip[22] << 16 | (u32)ip[23] << 24;
		at += (ip[0] & 15) * 4;
	} else if (skb->protocol == 0xdd86) { /* IPv6 without extension headers */
		if (ip[6] != 17)
			return 0;
		at += 40;
	} else {
		return 0;
	}
	if (at + 8 > end || bpf_probe_read_kernel(&ports, sizeof(ports), head + at))
		return 0;
	return ports;
}

static __always_inline u32 host_order(u32 port)
{
	return (port & 0xff) << 8 | (port >> 8 & 0xff);
}

/* The stream that a packet belongs to. */
static __always_inline u32 classify(struct sk_buff *skb, struct sock *sk)
{
	u32 kinds = setup.filters, found = NOBODY;

	if (kinds & 1 << BY_MARK && skb->mark)
		found = filtered(BY_MARK, skb->mark);
	if (found == NOBODY && sk) {
		if (kinds & 1 << BY_COOKIE && sk->__sk_common.skc_cookie.counter)
			found = filtered(BY_COOKIE, sk->__sk_common.skc_cookie.counter);
		if (found == NOBODY && kinds & 1 << BY_CGROUP)
			found = by_cgroup(BPF_CORE_READ(sk, sk_cgrp_data.cgroup));
	}
	if (found == NOBODY && kinds & (1 << BY_PORT | 1 << BY_SOURCE_PORT)) {
		u32 ports = udp_ports(skb);

		if (ports && kinds & 1 << BY_PORT)
			found = filtered(BY_PORT, host_order(ports >> 16));
		if (ports && found == NOBODY && kinds & 1 << BY_SOURCE_PORT)
			found = filtered(BY_SOURCE_PORT, host_order(ports));
	}
	return found == NOBODY ? setup.rest : found;
}

/* The deadline that the sender states by SO_TXTIME, on CLOCK_MONOTONIC or CLOCK_TAI; or 0. TCP
 * writes times of its own into the same field. */
static __always_inline u64 stated(struct sk_buff *skb, struct sock *sk)
{
	u64 at = skb->tstamp;
	u32 clock;

	if (!at || !sk || sk->sk_protocol == 6)
		return 0;
	clock = BPF_CORE_READ_BITFIELD(skb, tstamp_type);
	if (clock == SKB_CLOCK_MONOTONIC)
		return at;
	if (clock == SKB_CLOCK_TAI) {
		u64 ahead = bpf_ktime_get_tai_ns() - bpf_ktime_get_ns();

		return at > ahead ? at - ahead : 1;
	}
	return 0;
}

/* A record for a packet, without one. */
static __always_inline struct packet *fresh(void)
{
	u32 zero = 0;
	struct queue *free = bpf_map_lookup_elem(&spare, &zero);
	struct bpf_list_node *node = NULL;

	if (free && state.spare) {
		bpf_spin_lock(&free->lock);
		node = bpf_list_pop_front(&free->packets);
		bpf_spin_unlock(&free->lock);
	}
	if (!node)
		return obj_new(struct packet);
	state.spare--;
	return container_of(node, struct packet, node);
}

/* A record whose packet is gone. */
static __always_inline void discard(struct packet *p)
{
	u32 zero = 0;
	struct queue *free = bpf_map_lookup_elem(&spare, &zero);

	if (!free || state.spare >= SPARE_MAX) {
		obj_drop(p);
		return;
	}
	bpf_spin_lock(&free->lock);
	list_push_front(&free->packets, &p->node);
	bpf_spin_unlock(&free->lock);
	state.spare++;
}

/* Takes the first packet out of a queue. */
static __always_inline struct packet *pop(u32 i)
{
	struct queue *q = bpf_map_lookup_elem(&queues, &i);
	struct bpf_list_node *node;

	if (!q)
		return NULL;
	bpf_spin_lock(&q->lock);
	node = bpf_list_pop_front(&q->packets);
	bpf_spin_unlock(&q->lock);
	if (!node)
		return NULL;
	slot_of(i)->waiting--;
	return container_of(node, struct packet, node);
}

/* Takes the head's packet out, once it is served or lost, and makes the next one the head. */
static __always_inline struct packet *take(u32 i)
{
	struct queue *q = bpf_map_lookup_elem(&queues, &i);
	struct bpf_list_node *node, *next;
	u64 arrival = 0, deadline = 0;
	bool any = false;

	if (!q)
		return NULL;
	bpf_spin_lock(&q->lock);
	node = bpf_list_pop_front(&q->packets);
	next = bpf_list_front(&q->packets);
	if (next) {
		struct packet *p = container_of(next, struct packet, node);

		arrival = p->arrival;
		deadline = p->deadline;
		any = true;
	}
	bpf_spin_unlock(&q->lock);
	if (any)
		bring_up(i, arrival, deadline);
	else
		place(i);
	if (!node)
		return NULL;
	slot_of(i)->waiting--;
	return container_of(node, struct packet, node);
}

/* Puts a packet at the end of a queue; it is the head if the queue was empty. */
static __always_inline int push(u32 i, struct packet *p)
{
	struct queue *q = bpf_map_lookup_elem(&queues, &i);
	struct slot *s = slot_of(i);
	u64 arrival = p->arrival, deadline = p->deadline;

	if (!q) {
		obj_drop(p);
		return 0;
	}
	bpf_spin_lock(&q->lock);
	list_push_back(&q->packets, &p->node);
	bpf_spin_unlock(&q->lock);
	s->waiting++;
	if (!s->has_head)
		bring_up(i, arrival, deadline);
	return 1;
}

static __always_inline void uncount(struct Qdisc *sch, u32 len)
{
	sch->q.qlen--;
	sch->qstats.backlog -= len;
}

/* Expires all that is due by now. `sch` is absent in a replay without packets. False if there is
 * more to expire than one call may. */
static __always_inline bool expire(struct Qdisc *sch, u64 now)
{
	int k;

	advance(now);
	if (expired(now) == NOBODY)
		return true;
	bpf_for(k, 0, DROPS_MAX) {
		u32 i = expired(now);
		struct slot *s = slot_of(i);
		u64 seq = s->seq, deadline = s->deadline;
		struct packet *p;

		if (i == NOBODY)
			return true;
		if (contract_of(i)->send_late) {
			tell(MISSED, i, seq, deadline, keep(i, now));
			continue;
		}
		lose(i);
		tell(DROPPED, i, seq, deadline, 1);
		p = take(i);
		if (p) {
			if (sch) {
				struct sk_buff *skb = bpf_kptr_xchg(&p->skb, NULL);

				uncount(sch, p->len);
				sch->qstats.drops++;
				if (skb)
					bpf_kfree_skb(skb);
			}
			discard(p);
		}
	}
	return false;
}

/* Serves the stream that goes first; its packet, or NULL if none may go. */
static __always_inline struct packet *decide(void)
{
	u32 i = chosen();
	struct slot *s = slot_of(i);
	struct packet *p;

	if (i == NOBODY) {
		tell(IDLE, 0, 0, 0, 0);
		return NULL;
	}
	tell(s->missed_one ? SENT_LATE : SENT, i, s->seq, s->deadline, 0);
	serve(i);
	p = take(i);
	if (p)
		s->bytes += p->len;
	return p;
}

static __always_inline void drop(struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to)
{
	sch->qstats.drops++;
	bpf_qdisc_skb_drop(skb, to);
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
		drop(skb, sch, to);
		return NET_XMIT_DROP;
	}
	p = fresh();
	if (!p) {
		s->overflow++;
		drop(skb, sch, to);
		return NET_XMIT_DROP;
	}
	p->arrival = replaying ? state.slot : bpf_ktime_get_ns();
	p->deadline = contract_of(i)->by_txtime ? stated(skb, sk) : 0;
	p->len = len;
	p->wire = len > before_ip(skb) ? len - before_ip(skb) : len;
	skb = bpf_kptr_xchg(&p->skb, skb);
	if (skb) /* A new packet has none. */
		bpf_qdisc_skb_drop(skb, to);
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
		if (setup.rate && now < state.free) {
			bpf_qdisc_watchdog_schedule(sch, state.free, 0);
			return NULL;
		}
	}
	if (!expire(sch, now)) {
		/* A dequeue that drops and gives nothing is not called again by itself. */
		bpf_qdisc_watchdog_schedule(sch, now, 0);
		return NULL;
	}
	p = decide();
	if (replaying)
		state.slot++;
	if (!p) {
		u32 i = held[1];

		if (i != NOBODY && !replaying)
			bpf_qdisc_watchdog_schedule(sch, ready(i), 0);
		return NULL;
	}
	skb = bpf_kptr_xchg(&p->skb, NULL);
	uncount(sch, p->len);
	if (setup.rate) {
		u64 from = now > setup.burst ? now - setup.burst : 0;

		if (state.free < from)
			state.free = from;
		state.free += p->wire * 1000000000ULL / setup.rate;
	}
	discard(p);
	if (skb)
		bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

/* Empties a queue. */
static __always_inline void drain(struct Qdisc *sch, u32 i)
{
	int k;

	bpf_for(k, 0, 1 << 20) {
		struct packet *p = pop(i);

		if (!p)
			break;
		if (sch) {
			struct sk_buff *skb = bpf_kptr_xchg(&p->skb, NULL);

			if (skb)
				bpf_kfree_skb(skb);
		}
		obj_drop(p);
	}
}

/* As if nothing had ever been sent; the counters stay. */
static __always_inline void forget(struct Qdisc *sch)
{
	int k;

	bpf_for(k, 0, 2 * STREAMS_MAX) {
		u32 node = k & (2 * STREAMS_MAX - 1);

		selection[node] = held[node] = due[node] = NOBODY;
	}
	bpf_for(k, 0, STREAMS_MAX) {
		struct slot *s = slot_of(k);

		drain(sch, k);
		s->lose = contract_of(k)->lose;
		s->of = contract_of(k)->of;
		s->deadline = 0;
		s->arrival = 0;
		s->has_head = s->missed_one = s->begun = s->selected = s->held = 0;
		s->waiting = 0;
	}
	state.clock = state.slot = state.free = 0;
	state.gate = 0;
}

SEC("struct_ops/init")
int BPF_PROG(selvedge_init, struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *ack)
{
	int k;

	forget(sch);
	sch->limit = 0;
	bpf_for(k, 0, STREAMS_MAX)
		sch->limit += contract_of(k)->limit;
	return 0;
}

SEC("struct_ops/reset")
void BPF_PROG(selvedge_reset, struct Qdisc *sch)
{
	forget(sch);
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

SEC("struct_ops/destroy")
void BPF_PROG(selvedge_destroy, struct Qdisc *sch)
{
	forget(sch);
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

/* The same without packets, run by user space: for replays on any machine that can load it. */

struct arrivals {
	u64 at;
	u32 stream;
	u32 count;
};

SEC("syscall")
int replay_begin(void *ctx)
{
	int k;

	forget(NULL);
	bpf_for(k, 0, STREAMS_MAX) {
		struct slot *s = slot_of(k);

		s->seq = s->sent = s->late = s->missed = s->dropped = s->violations = 0;
		s->overflow = s->bytes = 0;
	}
	state.unknown = 0;
	told.count = told.lost = 0;
	return 0;
}

SEC("syscall")
int replay_arrive(struct arrivals *arrivals)
{
	u32 i = arrivals->stream;
	int k;

	if (i >= setup.streams || i >= STREAMS_MAX)
		return -1;
	bpf_for(k, 0, 64) {
		struct packet *p;

		if (k >= arrivals->count)
			break;
		p = fresh();
		if (!p)
			return -1;
		p->arrival = arrivals->at;
		p->deadline = 0;
		p->len = p->wire = 0;
		push(i, p);
	}
	return 0;
}

SEC("syscall")
int replay_slot(void *ctx)
{
	struct packet *p;

	told.count = 0;
	if (!expire(NULL, state.slot))
		return -1;
	p = decide();
	if (p)
		discard(p);
	state.slot++;
	return 0;
}
