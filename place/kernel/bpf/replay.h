/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The same steps without packets, run by user space: a replay in unit slots on any machine that can
 * load it. Arrivals come by one program, decisions are made by another.
 */
#ifndef SELVEDGE_REPLAY_H
#define SELVEDGE_REPLAY_H

#include "queues.h"

struct arrivals {
	u64 at;
	u64 size;
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
		p->len = p->tag = 0;
		p->wire = arrivals->size;
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
	p = decide(state.slot);
	if (p)
		discard(p);
	state.slot++;
	return 0;
}

#endif
