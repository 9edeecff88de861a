/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A window-constraint x/y as it stands, rules a and b, and how two compare: what packets (dwcs.h) and
 * tasks (tasks.h) have in common. Sources: Q-Fabric section 2.4.1, ShareStreams Table 2.
 */
#ifndef SELVEDGE_WINDOW_H
#define SELVEDGE_WINDOW_H

#include "kernel.h"

struct window {
	u16 lose, of;
};

/* Lower x'/y' first; both 0: higher y'. Negative if a goes first. */
static __always_inline s64 by_fraction(const struct window *a, const struct window *b)
{
	if (!a->lose && !b->lose)
		return (s64)b->of - a->of;
	if (!a->lose || !b->lose)
		return a->lose ? 1 : -1;
	return (s64)a->lose * b->of - (s64)b->lose * a->of;
}

static __always_inline void restore_if_spent(struct window *w, const struct window *declared)
{
	if (!w->of) {
		w->lose = declared->lose;
		w->of = declared->of;
	}
}

/* Rule a: one was served. y' goes down by 1 if it can, and takes x' along if they were equal. */
static __always_inline void rule_a(struct window *w, const struct window *declared)
{
	if (w->of)
		w->of--;
	if (w->lose > w->of)
		w->lose = w->of;
	restore_if_spent(w, declared);
}

/* As many of these misses as the current window can lose; how many they were. */
static __always_inline u64 spend(struct window *w, const struct window *declared, u64 misses)
{
	u64 lost = misses < w->lose ? misses : w->lose;

	w->lose -= lost;
	w->of -= lost;
	restore_if_spent(w, declared);
	return lost;
}

/* Rule b, `misses` times over, in constant time; the number of violations. */
static __always_inline u64 rule_b(struct window *w, const struct window *declared, u64 misses)
{
	if (!declared->of)
		return misses;
	misses -= spend(w, declared, misses);
	if (w->lose == declared->lose && w->of == declared->of) {
		/* Spent and restored. A window that may lose every one is restored for ever. */
		if (declared->lose == declared->of)
			misses %= declared->of;
		misses -= spend(w, declared, misses);
	}
	w->of = misses < (u64)(0xffff - w->of) ? w->of + misses : 0xffff;
	return misses;
}

#endif
