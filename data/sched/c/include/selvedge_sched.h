/* Window-constrained scheduling: which stream's frame goes next, and what each miss costs.
 *
 * The C face of the Rust crate selvedge-data-sched. Queues and the clock are the caller's; the
 * scheduler sees head frames only. All times are nanoseconds since a start of the caller's
 * choosing, all periods nanoseconds, all counts frames: the names say which. Integers throughout.
 *
 * A decision: selvedge_sched_poll_expired until it returns 0, pushing the next head of each stream
 * whose frame was dropped; selvedge_sched_choose; selvedge_sched_serve; the stream's next head.
 *
 * Every function returns 1 or 0 for yes or no, SELVEDGE_OK (0) for done, or a negative
 * enum selvedge_error, and then changes nothing. A handle may be used by one thread at a time.
 *
 * Link with -lselvedge_sched_c (static: add -lpthread -ldl -lm). */
#ifndef SELVEDGE_SCHED_H
#define SELVEDGE_SCHED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A scheduler. Its streams may be aggregates of streamlets, see below. */
typedef struct selvedge_sched selvedge_sched;

enum selvedge_error {
    SELVEDGE_OK = 0,
    SELVEDGE_ERROR_NULL = -1,       /* a pointer is null */
    SELVEDGE_ERROR_DISCIPLINE = -2, /* there is no discipline of that name */
    SELVEDGE_ERROR_STREAM = -3,     /* there is no stream at that index */
    SELVEDGE_ERROR_HEAD = -4,       /* the stream has a head already, or has none to serve */
    SELVEDGE_ERROR_WINDOW = -5,     /* window_lose is above window_of */
    SELVEDGE_ERROR_VALUE = -6,      /* a period, weight, class or flag is out of range */
    SELVEDGE_ERROR_PANIC = -7,      /* a bug in the library; free the handle */
    SELVEDGE_ERROR_TREE = -8,       /* a node below none before it, or a stream below none */
    SELVEDGE_ERROR_SET = -9         /* no set at that index; it has streamlets, or none; no more fit */
};

/* No deadline or delay of its own: by the rule max(previous deadline, arrival) + period. Of a tree:
 * no remapping, exact sharing. */
#define SELVEDGE_NONE UINT64_MAX

/* How a stream is ordered under "mixed": those by deadline before those by priority, and what both
 * leave shared by weight. */
enum selvedge_class {
    SELVEDGE_CLASS_FAIR = 0,
    SELVEDGE_CLASS_EDF = 1,
    SELVEDGE_CLASS_PRIORITY = 2
};

/* What a stream promises and is promised. */
typedef struct selvedge_contract {
    uint64_t period_ns;      /* between the deadlines of successive frames, at least 1 */
    uint64_t delay_ns;       /* from arrival to deadline, or SELVEDGE_NONE */
    uint32_t weight;         /* share under "wfq", "sfq", "hwfq" and, if fair, "mixed"; quantum in
                              * bytes under "drr"; at least 1 */
    int32_t priority;        /* higher goes first under "priority" and, of that class, "mixed" */
    uint16_t window_lose;    /* in every window_of frames at most so many may miss; */
    uint16_t window_of;      /* 0 of 0: no window */
    uint8_t late_send;       /* 1: a late frame is kept and sent; 0: it is dropped */
    uint8_t work_conserving; /* 1: a frame may go before its period begins */
    uint8_t class_;          /* enum selvedge_class, for "mixed" */
    uint32_t parent;         /* for a tree: 0, the link itself, or n, its n-th node from 1 */
} selvedge_contract;

/* An inner node of a tree of weights: what it is sent, those below it share by weight. */
typedef struct selvedge_node {
    uint32_t parent; /* 0, the link itself, or n, the n-th node from 1, which stands before this */
    uint32_t weight; /* against its siblings, nodes and streams; at least 1 */
} selvedge_node;

/* A frame that has come to the front of its queue. */
typedef struct selvedge_head {
    uint64_t arrival_ns;  /* when it came into its queue */
    uint64_t deadline_ns; /* its own, or SELVEDGE_NONE */
    uint64_t size_bytes;  /* for the disciplines that share a link by bytes */
} selvedge_head;

/* A head frame that missed its deadline. */
typedef struct selvedge_expiry {
    uint64_t deadline_ns; /* the first one missed */
    uint64_t next_ns;     /* if it is kept, its next deadline */
    uint64_t misses;      /* how many deadlines this stands for, at least 1 */
    uint32_t stream;
    uint8_t dropped;      /* 1: the stream has no head now; 0: the frame is kept */
    uint8_t violation;    /* 1: its window did not allow it */
} selvedge_expiry;

/* A frame that was served. */
typedef struct selvedge_served {
    uint64_t deadline_ns;
    uint8_t late; /* 1: it had missed a deadline before */
} selvedge_served;

/* What has become of a stream's frames. */
typedef struct selvedge_counters {
    uint64_t sent;
    uint64_t late;       /* of those sent */
    uint64_t missed;     /* deadlines */
    uint64_t dropped;
    uint64_t violations; /* misses that the window did not allow */
} selvedge_counters;

/* A scheduler without streams. discipline: "dwcs", "edf", ..., as in selvedge's traces. */
int selvedge_sched_new(const char *discipline, selvedge_sched **sched);

/* One of discipline "hwfq", which shares a link by a tree of `count` nodes (at most 2^20), parents
 * before children. remap_ns: SELVEDGE_NONE for exact sharing, else how often the flat approximation
 * maps the tree's weights anew. The nodes are copied. */
int selvedge_sched_new_tree(const selvedge_node *nodes, size_t count, uint64_t remap_ns,
                            selvedge_sched **sched);

/* Frees it; null is fine. */
void selvedge_sched_free(selvedge_sched *sched);

/* Adds a stream at the lowest free index. Allocates; nothing else does, but a block of a tree that
 * is larger than any before. */
int selvedge_sched_add(selvedge_sched *sched, const selvedge_contract *contract, uint32_t *stream);

/* Removes a stream with its head and counters. */
int selvedge_sched_remove(selvedge_sched *sched, uint32_t stream);

/* Brings up the next frame of a stream that has no head. deadline_ns, unless null, is told its
 * deadline. */
int selvedge_sched_push_head(selvedge_sched *sched, uint32_t stream, const selvedge_head *head,
                             uint64_t *deadline_ns);

/* 1 and the next frame whose deadline has come, or 0 if there is no more. */
int selvedge_sched_poll_expired(selvedge_sched *sched, uint64_t now_ns, selvedge_expiry *expiry);

/* 1 and the stream whose head goes first, or 0 if none may go now. */
int selvedge_sched_choose(const selvedge_sched *sched, uint64_t now_ns, uint32_t *stream);

/* Serves a stream's head. served may be null. */
int selvedge_sched_serve(selvedge_sched *sched, uint32_t stream, selvedge_served *served);

/* Serves a stream's head and brings up the next frame in one call. served may be null. */
int selvedge_sched_serve_and_push(selvedge_sched *sched, uint32_t stream,
                                  const selvedge_head *next, selvedge_served *served);

/* How many heads there are to send, up to `capacity` and 64, of those eligible at the last poll, and
 * which: in the order in which single decisions would send them if no other frame came. Changes
 * nothing that can be seen. */
int selvedge_sched_choose_block(selvedge_sched *sched, uint32_t *streams, size_t capacity);

/* Gives a stream's head up: a miss and a drop. 1 if that violates its window, else 0. */
int selvedge_sched_forfeit(selvedge_sched *sched, uint32_t stream);

/* 1 and the deadline of a stream's head, or 0 if it has none. deadline_ns may be null. */
int selvedge_sched_head_deadline(const selvedge_sched *sched, uint32_t stream,
                                 uint64_t *deadline_ns);

/* A stream's counters. */
int selvedge_sched_counters(const selvedge_sched *sched, uint32_t stream,
                            selvedge_counters *counters);

/* 1 and the earliest moment after now_ns at which a head expires or becomes ready, or 0. */
int selvedge_sched_next_event(const selvedge_sched *sched, uint64_t now_ns, uint64_t *at_ns);

/* Many streamlets in one stream of a scheduler, in sets that share it by weight. It chooses the
 * streamlet whose frame becomes that stream's next head, and counts; deadlines and windows are the
 * stream's. Frames wait in queues of the caller's, one for each streamlet.
 *
 * A turn: selvedge_aggregate_promote_head, and push that streamlet's first frame as the stream's head;
 * when the scheduler has served it selvedge_aggregate_sent, when it dropped it
 * selvedge_aggregate_dropped. Every call takes constant time; a streamlet takes 64 bytes. */
typedef struct selvedge_aggregate selvedge_aggregate;

/* What has become of the frames of a streamlet, or of a set with those of removed streamlets. */
typedef struct selvedge_streamlet_counts {
    uint64_t sent;
    uint64_t sent_bytes;
    uint64_t dropped;
} selvedge_streamlet_counts;

/* An aggregate without sets. */
int selvedge_aggregate_new(selvedge_aggregate **aggregate);

/* Frees it; null is fine. */
void selvedge_aggregate_free(selvedge_aggregate *aggregate);

/* Adds a set at the lowest free index, at most 16. weight: its share of the bytes beside other sets
 * that have frames, at least 1. */
int selvedge_aggregate_add_set(selvedge_aggregate *aggregate, uint16_t weight, uint32_t *set);

/* Removes a set that has no streamlets. */
int selvedge_aggregate_remove_set(selvedge_aggregate *aggregate, uint32_t set);

/* Adds a streamlet to a set. Allocates; nothing else does. */
int selvedge_aggregate_add(selvedge_aggregate *aggregate, uint32_t set, uint32_t *streamlet);

/* Removes a streamlet; its waiting frames count as dropped. 1 if its frame was the head, which the
 * caller then takes back from the scheduler (selvedge_sched_forfeit), else 0. */
int selvedge_aggregate_remove(selvedge_aggregate *aggregate, uint32_t streamlet);

/* Counts a frame that came into a streamlet's queue. */
int selvedge_aggregate_arrive(selvedge_aggregate *aggregate, uint32_t streamlet);

/* 1 and the streamlet whose first frame is the next head, or 0 if no frame waits.
 * SELVEDGE_ERROR_HEAD until the last one was sent or dropped. */
int selvedge_aggregate_promote_head(selvedge_aggregate *aggregate, uint32_t *streamlet);

/* Counts the head as sent; its size counts against its set. */
int selvedge_aggregate_sent(selvedge_aggregate *aggregate, uint64_t size_bytes);

/* Counts the head as dropped; nothing counts against its set. */
int selvedge_aggregate_dropped(selvedge_aggregate *aggregate);

/* Counts a waiting frame, not the head, as dropped. SELVEDGE_ERROR_HEAD if none waits. */
int selvedge_aggregate_drop_waiting(selvedge_aggregate *aggregate, uint32_t streamlet);

/* A streamlet's counts. */
int selvedge_aggregate_streamlet_counts(const selvedge_aggregate *aggregate, uint32_t streamlet,
                                        selvedge_streamlet_counts *counts);

/* A set's counts. */
int selvedge_aggregate_set_counts(const selvedge_aggregate *aggregate, uint32_t set,
                                  selvedge_streamlet_counts *counts);

/* The delay bound: the most frames of the stream that are sent from a frame's arrival until it was,
 * itself included, for a streamlet of this set that has no frame waiting, if all have one size. */
int selvedge_aggregate_turns(const selvedge_aggregate *aggregate, uint32_t set, uint64_t *turns);

/* What a return value means; never null, not to be freed. */
const char *selvedge_error_text(int code);

#ifdef __cplusplus
}
#endif

#endif
