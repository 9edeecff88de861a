/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Disciplines that remember what they sent, behind one interface. Each is notified of heads once they may
 * go, of their fates, and of time, and gives each stream a rank; the lowest goes first. The twin of
 * data/sched/src/scheduler/core.rs. The discipline is a constant, so the compiler leaves one of each call.
 */
#ifndef SELVEDGE_TOLD_H
#define SELVEDGE_TOLD_H

#include "hwfq.h"
#include "sfq.h"
#include "vds.h"

/* A tree's decision goes down from the link: no stream but the first of all has a rank. */
#define BY_TREE (discipline == HWFQ && !setup.remap)

u128 ranks[STREAMS_MAX];
u64 sizes[STREAMS_MAX]; /* the heads' */

static __always_inline bool is_fair(u32 i)
{
	return discipline == SFQ || (discipline == MIXED && contract_of(i)->class == FAIR_CLASS);
}

/* A head may go. `fresh`: it was not there when the last frame went. */
static __always_inline void tell_head(u32 i, bool fresh)
{
	u64 size = sizes[i & (STREAMS_MAX - 1)];

	if (discipline == VDS)
		vds_head(i, state.clock);
	else if (discipline == WFQ)
		wfq_enter(i, weight_of(i), size, fresh);
	else if (discipline == DRR)
		drr_head(i, size, fresh);
	else if (discipline == HWFQ && setup.remap)
		flat_enter(i, weight_of(i), size, fresh);
	else if (discipline == HWFQ)
		hwfq_enter(i, slot_of(i)->arrival, size, fresh);
	else if (is_fair(i))
		sfq_head(i, size, fresh);
}

/* A head is sent, or lost. */
static __always_inline void tell_gone(u32 i, bool sent)
{
	if (discipline == VDS)
		vds_leave(i, sent);
	else if (discipline == WFQ || (discipline == HWFQ && setup.remap))
		wfq_leave(i, sent);
	else if (discipline == DRR)
		drr_leave(i, sent);
	else if (discipline == HWFQ)
		hwfq_leave(i, sent);
	else if (is_fair(i))
		sfq_leave(i, sent);
}

static __always_inline u128 rank_of(u32 i)
{
	const struct slot *s = slot_of(i);

	switch (discipline) {
	case VDS:
		return vds_rank(i, state.clock);
	case DRR:
		return (u128)drr_of(i)->due << 48 | drr_of(i)->place;
	case SFQ:
		return sfq_of(i)->start;
	case MIXED:
		if (contract_of(i)->class == EDF_CLASS)
			return (u128)s->deadline << 46;
		if (contract_of(i)->class == PRIORITY_CLASS)
			return (u128)1 << 110 | (u128)(u64)(0x7fffffffLL - s->priority) << 46;
		/* Two bits of the fraction make room for the class. */
		return (u128)2 << 110 | sfq_of(i)->start >> 2;
	}
	return share_of(i)->finish;
}

/* As if nothing had been sent. */
static __always_inline void told_begin(void)
{
	int k;

	if (!TOLD)
		return;
	if (discipline == WFQ || discipline == HWFQ) {
		fluid_begin(BY_TREE ? setup.nodes + 1 : 0);
		fair_pending = NOBODY;
		if (discipline == HWFQ)
			flat_begin();
	}
	if (discipline == DRR)
		drr_begin();
	if (discipline == SFQ || discipline == MIXED) {
		sfq_link.now = sfq_link.last = 0;
		sfq_link.waiting = 0;
	}
	bpf_for(k, 0, STREAMS_MAX) {
		if (discipline == VDS)
			vds_begin(k);
		if (discipline == DRR)
			*drr_of(k) = (struct drr){};
		if (discipline == SFQ || discipline == MIXED)
			*sfq_of(k) = (struct sfq){};
	}
}

#endif
