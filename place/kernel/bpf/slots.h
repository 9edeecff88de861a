/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What there is of a stream: its contract, which user space writes, and its slot, which these programs
 * do; and tournaments of streams. What is the same under every discipline.
 */
#ifndef SELVEDGE_SLOTS_H
#define SELVEDGE_SLOTS_H

#include "window.h"

#define STREAMS_MAX 256
/* Nodes of a tree, the link counted in. */
#define NODES_MAX 256
#define LEVELS 8
#define NOBODY 0xffff
/* A deadline of the last moment, where deadlines saturate, is never missed. */
#define LAST (~0ULL - 1)

/* The orders, by the numbers that user space knows. Fixed when a program is loaded: the verifier
 * then leaves out what the others need. */
enum { DWCS = 0, DWCS98 = 1, EDF = 2, PRIORITY = 3, FIFO = 4,
       /* These remember what they sent (told.h). */
       VDS = 5, WFQ = 6, SFQ = 7, DRR = 8, HWFQ = 9, MIXED = 10 };
const volatile struct {
	u32 discipline;
	u32 replaying; /* slots instead of time, and every event is told */
	u32 telling; /* a node is told what became of each packet */
} fixed;
#define discipline fixed.discipline
#define replaying fixed.replaying
#define telling fixed.telling
#define DEADLINE_FIRST (discipline == DWCS || discipline == EDF)
#define TOLD (discipline >= VDS)

enum { EDF_CLASS = 0, PRIORITY_CLASS = 1, FAIR_CLASS = 2 };

/* What a stream promises and is promised. User space writes it. */
struct contract {
	char id[32];
	u64 period;
	u64 delay; /* 0: none, the deadline goes by the period */
	u64 first_deadline;
	u32 limit; /* packets that may wait */
	s32 priority;
	struct window window;
	u8 send_late, work_conserving, has_first, by_txtime;
	u32 renewed; /* how often user space has changed window or priority */
	u32 weight;
	u32 parent; /* the node of the tree that it hangs below, 0: the link */
	u32 class;
};

/* An inner node of a tree of weights. */
struct node {
	u32 parent;
	u32 weight;
};

struct setup {
	u32 streams;
	u32 leaves; /* a power of 2, at least streams */
	u32 rest;   /* the stream of packets that no filter knows */
	u32 filters; /* which kinds of filter there are, a bit each */
	u64 rate;   /* bytes a second, 0: as fast as the device takes them */
	u64 burst;  /* nanoseconds that an idle link may catch up on */
	u64 netns;  /* the device that this is for */
	u32 ifindex;
	u32 pid; /* the node whose this is, or 0: it is to stay */
	u64 catch_up; /* nanoseconds more that it may catch up on while packets wait */
	struct contract contracts[STREAMS_MAX];
	u64 remap; /* how often the flat approximation of a tree maps it anew, 0: it is exact */
	u32 nodes;
	u32 order; /* the discipline, for whoever looks: these programs have it fixed */
	struct node tree[NODES_MAX]; /* the first stands for the link */
} setup SEC(".data.setup");

/* A stream as decisions see it. Only these programs write it; user space reads the counters. */
struct slot {
	u64 deadline; /* of the head; without one, of the last head */
	u64 arrival;
	u64 seq; /* the head's number */
	u64 sent, late, missed, dropped, violations, overflow, bytes;
	u32 waiting; /* packets in the queue, the head included */
	struct window window;
	s32 priority;
	u32 renewed; /* the contract's, when it was last looked at */
	u8 has_head, missed_one, begun, selected, held;
};

struct state {
	u64 clock;   /* the latest moment looked at */
	u64 slot;    /* a replay's present slot */
	u64 free;    /* when the link is free again */
	u64 unknown; /* packets of no stream */
	u64 owner;   /* the one qdisc that this is the state of */
	u32 gate;    /* a replay may decide once */
	u32 spare;   /* packets' records that are free */
	u64 untold;  /* fates for which there was no room */
	u64 seen;    /* when packets were last seen to wait */
	u64 waited;  /* nanoseconds in which packets waited */
	u64 late;    /* how late a packet goes that waited for the link, 0 of others */
	u64 held;    /* packets wait for the link */
};

struct {
	struct state state;
	struct slot slots[STREAMS_MAX];
} table SEC(".data.table");
#define state table.state

static __always_inline struct slot *slot_of(u32 i)
{
	return &table.slots[i & (STREAMS_MAX - 1)];
}

static __always_inline struct contract *contract_of(u32 i)
{
	return &setup.contracts[i & (STREAMS_MAX - 1)];
}

static __always_inline const struct node *node_of(u32 node)
{
	/* The bound is shown to the verifier even where the compiler knows it. */
	barrier_var(node);
	return &setup.tree[node & (NODES_MAX - 1)];
}

static __always_inline u32 weight_of(u32 i)
{
	u32 weight = contract_of(i)->weight;

	return weight ? weight : 1;
}

static __always_inline u64 later(u64 moment, u64 span)
{
	u64 sum = moment + span;

	return sum < moment ? ~0ULL : sum;
}

/* A period of zero would let a kept frame expire for ever. */
static __always_inline u64 period_of(const struct contract *c)
{
	return c->period ? c->period : 1;
}

/* "Its ready time is its deadline minus T." */
static __always_inline u64 ready(u32 i)
{
	u64 deadline = slot_of(i)->deadline, period = period_of(contract_of(i));

	return deadline > period ? deadline - period : 0;
}

static __always_inline s64 by_time(u64 a, u64 b)
{
	return a < b ? -1 : a > b;
}

/* Plays a stream's matches anew, after it has come, gone or changed. O(log leaves). */
#define TOURNAMENT(name, tree, first)                                                              \
	__noinline int name(u32 i, u32 present)                                                    \
	{                                                                                          \
		u32 node = (setup.leaves + i) & (2 * STREAMS_MAX - 1);                             \
                                                                                                   \
		tree[node] = present ? i : NOBODY;                                                 \
		for (int level = 0; level < LEVELS; level++) {                                     \
			u32 a, b;                                                                  \
                                                                                                   \
			node >>= 1;                                                                \
			if (!node)                                                                 \
				break;                                                             \
			a = tree[(2 * node) & (2 * STREAMS_MAX - 1)];                              \
			b = tree[(2 * node + 1) & (2 * STREAMS_MAX - 1)];                          \
			if (a == NOBODY || (b != NOBODY && first(b, a)))                           \
				a = b;                                                             \
			tree[node & (2 * STREAMS_MAX - 1)] = a;                                    \
		}                                                                                  \
		return 0;                                                                          \
	}

#endif
