/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The streams' queues of packets, and the two steps of a decision on them: expire, and serve. All
 * runs under the qdisc's own lock; the lists' locks are there because the verifier asks for them.
 */
#ifndef SELVEDGE_QUEUES_H
#define SELVEDGE_QUEUES_H

#include "dwcs.h"

/* What a dequeue may drop before it lets go of the processor; it is called again at once. */
#define DROPS_MAX 1024

struct packet {
	struct bpf_list_node node;
	struct sk_buff __kptr *skb;
	u64 arrival;
	u64 deadline; /* stated by the sender, or 0 */
	/* Not two halves of a word: they would be written together, which the verifier refuses. */
	u64 len;
	u64 wire; /* what the rate counts: the IP packet */
	u64 tag;  /* the socket's mark: which frame it is of, to a node */
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

/* Records that are free. To take one from here and to put it back costs a fifth of what the kernel's
 * allocator takes. */
#define SPARE_MAX 4096
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct queue);
} spare SEC(".maps");

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

/* What became of a packet, for the node that sent it. Without a node there is a page of room, unused. */
enum { REFUSED = 6, FORGOTTEN = 7 };
struct fate {
	u64 at;
	u32 stream;
	u32 tag;
	u32 kind;
	u32 wire;
	u64 late;
};
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} fates SEC(".maps");

static __always_inline void tell_fate(u32 kind, u32 i, u64 tag, u64 wire, u64 now)
{
	struct fate fate = { now, i, tag, kind, wire, kind == SENT ? state.late : 0 };

	if (telling && tag && bpf_ringbuf_output(&fates, &fate, sizeof(fate), 0))
		state.untold++;
}

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
		if (TOLD)
			sizes[i & (STREAMS_MAX - 1)] = p->wire;
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
	if (TOLD && !s->has_head)
		sizes[i & (STREAMS_MAX - 1)] = p->wire;
	bpf_spin_lock(&q->lock);
	list_push_back(&q->packets, &p->node);
	bpf_spin_unlock(&q->lock);
	s->waiting++;
	if (s->renewed != contract_of(i)->renewed) {
		renew(s, contract_of(i));
		if (s->has_head)
			place(i);
	}
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
				tell_fate(DROPPED, i, p->tag, p->wire, now);
				if (skb)
					bpf_kfree_skb(skb);
			}
			discard(p);
		}
	}
	return false;
}

/* Serves the stream that goes first; its packet, or NULL if none may go. */
static __always_inline struct packet *decide(u64 now)
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
	if (p) {
		s->bytes += p->len;
		tell_fate(SENT, i, p->tag, p->wire, now);
	}
	return p;
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

			tell_fate(FORGOTTEN, i, p->tag, p->wire, state.clock);
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
		renew(s, contract_of(k));
		s->deadline = 0;
		s->arrival = 0;
		s->has_head = s->missed_one = s->begun = s->selected = s->held = 0;
		s->waiting = 0;
	}
	state.clock = state.slot = state.free = state.held = 0;
	state.gate = 0;
	told_begin();
}

#endif
