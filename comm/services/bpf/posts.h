/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Calls from user space that need no answer, put into a ring without a system call (src/posts.rs) and
 * taken here before the next occurrence is dispatched, or by the timer: Q-Fabric's deferred calls
 * (section 3.2.1). User space can write anything there, so each record is copied once and checked.
 */
#ifndef SELVEDGE_POSTS_H
#define SELVEDGE_POSTS_H

/* `Change` in src/posts.rs. */
enum { POST_THRESHOLD, POST_INTERVAL, POST_JOB, POST_NO_JOB };

struct post {
	u32 kind;
	u32 thread; /* 0 where it is about none */
	u64 value;
};

/* The kernel's PID_MAX_LIMIT. */
#define THREAD_MOST (4u << 20)
/* ns; so that no sum with the clock wraps. */
#define SPAN_MOST (~0ull >> 1)

/* Whether this kernel has such rings; where it has not, the verifier cuts out what uses them. */
const volatile u32 posting SEC(".rodata.posting") = 1;

/* At most 170 records are taken at once: some occurrences come with the processor's run queue locked. */
struct {
	__uint(type, BPF_MAP_TYPE_USER_RINGBUF);
	__uint(max_entries, 4096);
} posts SEC(".maps");

static __always_inline bool apply(const struct post *post)
{
	if (post->kind <= POST_INTERVAL && post->thread)
		return false;
	switch (post->kind) {
	case POST_THRESHOLD:
		settings.threshold = post->value;
		return true;
	case POST_INTERVAL:
		if (post->value > SPAN_MOST)
			return false;
		settings.interval = post->value;
		return true;
#ifdef JOBS
	case POST_JOB: {
		struct job job = { .within = post->value };

		if (!post->thread || post->thread > THREAD_MOST || post->value > SPAN_MOST)
			return false;
		return !bpf_map_update_elem(&JOBS, &post->thread, &job, BPF_ANY);
	}
	case POST_NO_JOB:
		return !post->value && !bpf_map_delete_elem(&JOBS, &post->thread);
#endif
	default:
		return false;
	}
}

static long take_post(struct bpf_dynptr *record, void *unused)
{
	struct post post;
	u8 beyond;

	/* Neither shorter nor longer. */
	if (bpf_dynptr_read(&post, sizeof(post), record, 0, 0) ||
	    !bpf_dynptr_read(&beyond, sizeof(beyond), record, sizeof(post), 0) || !apply(&post))
		__sync_fetch_and_add(&tally.refused, 1);
	else
		__sync_fetch_and_add(&tally.posted, 1);
	return 0;
}

static __noinline int take_posts(void)
{
	long taken;

	/* Before the ring is looked at: what is put there later raises the flag again. */
	__sync_lock_test_and_set(&settings.posted, 0);
	taken = bpf_user_ringbuf_drain(&posts, take_post, NULL, BPF_RB_NO_WAKEUP);
	if (taken == -EBUSY)
		/* Another processor takes them, and may have passed the end already. */
		__sync_lock_test_and_set(&settings.posted, 1);
	else if (taken < 0)
		/* No record begins where one should. */
		__sync_fetch_and_add(&tally.refused, 1);
	return 0;
}

/* What was posted is done from here on. Costs a look at a flag if nothing was. */
static __always_inline void heed(void)
{
	if (posting && settings.posted)
		take_posts();
}

#endif
