/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The memory of the I/O event module, for programs in C and C++: which sockets are of interest, and which
 * are ready, as in Q-Fabric's section 3.5.1. The kernel writes it as things happen.
 *
 * The memory is mapped from a descriptor that a Rust part of the program (`Readiness::memory`) or its
 * parent process hands over; so is the one to sleep on (`Readiness::descriptor`). Sockets are attached by
 * the Rust side; from then on this is all that a loop needs:
 *
 *     struct selvedge_readiness *io = selvedge_map(memory);
 *     for (;;) {
 *         selvedge_take(io, serve, context);
 *         if (selvedge_lie_down(io))
 *             epoll_wait or poll on the descriptor to sleep on;
 *         selvedge_get_up(io);
 *     }
 *
 * Nothing that is read from here is believed: descriptors are 0 to 65535, whatever was written. Needs a
 * compiler with GCC's atomic built-ins.
 */
#ifndef SELVEDGE_READINESS_H
#define SELVEDGE_READINESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define SELVEDGE_DESCRIPTORS 65536
#define SELVEDGE_WORDS (SELVEDGE_DESCRIPTORS / 64)

/* What the process wants to hear of. */
struct selvedge_interest {
	uint32_t flag; /* changes so far */
	uint32_t reserved;
	uint64_t fd_list[SELVEDGE_WORDS];         /* a bit for each descriptor of interest */
	uint64_t updated_fd_list[SELVEDGE_WORDS]; /* those that have changed, until they are applied */
};

/* What is ready. */
struct selvedge_ready {
	uint32_t flag;      /* sockets that are ready: a hint */
	uint32_t sleeping;  /* threads that sleep, or are about to */
	uint32_t signalled; /* whether they were woken */
	uint32_t reserved;
	uint64_t summary[SELVEDGE_WORDS / 64]; /* the words of fd_active to look at */
	uint64_t fd_active[SELVEDGE_WORDS];    /* a bit for each descriptor that is ready */
};

struct selvedge_readiness {
	struct selvedge_interest interest;
	struct selvedge_ready ready;
	uint32_t generation[SELVEDGE_DESCRIPTORS]; /* the module's own */
};

/* The memory behind a descriptor, or NULL with errno. */
static inline struct selvedge_readiness *selvedge_map(int memory)
{
	void *at = mmap(NULL, sizeof(struct selvedge_readiness), PROT_READ | PROT_WRITE, MAP_SHARED,
	                memory, 0);

	return at == MAP_FAILED ? NULL : (struct selvedge_readiness *)at;
}

/* Takes all that are ready, lowest first, and calls `each` with every one; how many they were. Costs a look
 * at 128 bytes if none is. Each may be told for nothing, so sockets should not block. */
static inline size_t selvedge_take(struct selvedge_readiness *io,
                                   void (*each)(int descriptor, void *context), void *context)
{
	size_t count = 0;

	for (size_t at = 0; at < SELVEDGE_WORDS / 64; at++) {
		uint64_t words;

		if (!__atomic_load_n(&io->ready.summary[at], __ATOMIC_RELAXED))
			continue;
		/* The word's bit goes before the word: a mark that comes in between sets it again. */
		words = __atomic_exchange_n(&io->ready.summary[at], 0, __ATOMIC_SEQ_CST);
		for (; words; words &= words - 1) {
			size_t word = at * 64 + (size_t)__builtin_ctzll(words);
			uint64_t active =
				__atomic_exchange_n(&io->ready.fd_active[word], 0, __ATOMIC_SEQ_CST);

			__atomic_fetch_sub(&io->ready.flag, (uint32_t)__builtin_popcountll(active),
			                   __ATOMIC_SEQ_CST);
			for (; active; active &= active - 1) {
				each((int)(word * 64 + (size_t)__builtin_ctzll(active)), context);
				count++;
			}
		}
	}
	return count;
}

/* Has a descriptor be told again at the next look: something of it was left unread. */
static inline void selvedge_again(struct selvedge_readiness *io, int descriptor)
{
	size_t word = (size_t)descriptor / 64;
	uint64_t bit = (uint64_t)1 << (descriptor % 64);

	if (descriptor < 0 || descriptor >= SELVEDGE_DESCRIPTORS)
		return;
	if (__atomic_fetch_or(&io->ready.fd_active[word], bit, __ATOMIC_SEQ_CST) & bit)
		return;
	__atomic_fetch_add(&io->ready.flag, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_or(&io->ready.summary[word / 64], (uint64_t)1 << (word % 64), __ATOMIC_SEQ_CST);
}

/* About to sleep: true if nothing is ready, and from now on the kernel wakes. In either case `selvedge_get_up`
 * follows. */
static inline int selvedge_lie_down(struct selvedge_readiness *io)
{
	uint64_t any = 0;

	__atomic_fetch_add(&io->ready.sleeping, 1, __ATOMIC_SEQ_CST);
	for (size_t at = 0; at < SELVEDGE_WORDS / 64; at++)
		any |= __atomic_load_n(&io->ready.summary[at], __ATOMIC_SEQ_CST);
	return !any;
}

/* Awake again; look after this. */
static inline void selvedge_get_up(struct selvedge_readiness *io)
{
	__atomic_fetch_sub(&io->ready.sleeping, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&io->ready.signalled, 0, __ATOMIC_SEQ_CST);
}

#endif
