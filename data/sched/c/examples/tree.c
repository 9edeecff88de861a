/* A link shared by a tree of weights: three quarters to video while there is other traffic, two
 * thirds of that to live streams. First the block that one decision orders, then what each stream
 * is sent in a second of 1000 frames. Then the same four streams in classes ("mixed").
 *
 *   cargo build -p selvedge-data-sched-c
 *   cc -I data/sched/c/include data/sched/c/examples/tree.c \
 *      target/debug/libselvedge_sched_c.a -lpthread -ldl -lm -o tree && ./tree */
#include <selvedge_sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOT_NS = 1000000, SLOTS = 1000, STREAMS = 4, VIDEO = 1, LIVE = 2 };

static const char *const NAMES[STREAMS] = {"lecture", "door", "film", "backup"};

static int done(int code)
{
    if (code < 0) {
        fprintf(stderr, "%s\n", selvedge_error_text(code));
        exit(1);
    }
    return code;
}

/* Sends for a second, every queue always holding another frame, and prints the counters. */
static void run(selvedge_sched *sched)
{
    const selvedge_head frame = {0, SELVEDGE_NONE, 1000};
    for (uint64_t now = 0; now < (uint64_t)SLOTS * SLOT_NS; now += SLOT_NS) {
        selvedge_expiry missed;
        while (done(selvedge_sched_poll_expired(sched, now, &missed)))
            if (missed.dropped)
                done(selvedge_sched_push_head(sched, missed.stream, &frame, NULL));
        uint32_t stream;
        if (done(selvedge_sched_choose(sched, now, &stream)))
            done(selvedge_sched_serve_and_push(sched, stream, &frame, NULL));
    }
    for (uint32_t stream = 0; stream < STREAMS; stream++) {
        selvedge_counters counters;
        done(selvedge_sched_counters(sched, stream, &counters));
        printf("%s: %llu\n", NAMES[stream], (unsigned long long)counters.sent);
    }
}

int main(void)
{
    const selvedge_node nodes[] = {[VIDEO - 1] = {0, 3}, [LIVE - 1] = {VIDEO, 2}};
    const uint32_t parents[STREAMS] = {LIVE, LIVE, VIDEO, 0};
    const uint32_t weights[STREAMS] = {3, 1, 1, 1};
    const uint8_t classes[STREAMS] = {SELVEDGE_CLASS_EDF, SELVEDGE_CLASS_PRIORITY,
                                      SELVEDGE_CLASS_FAIR, SELVEDGE_CLASS_FAIR};
    const selvedge_head frame = {0, SELVEDGE_NONE, 1000};
    selvedge_sched *tree, *mixed;
    done(selvedge_sched_new_tree(nodes, 2, SELVEDGE_NONE, &tree));
    done(selvedge_sched_new("mixed", &mixed));
    for (int i = 0; i < STREAMS; i++) {
        /* Late frames are kept: shares are what counts here. */
        selvedge_contract contract = {.period_ns = 4 * SLOT_NS, .delay_ns = SELVEDGE_NONE,
                                      .weight = weights[i], .late_send = 1,
                                      .work_conserving = 1, .parent = parents[i]};
        uint32_t stream;
        done(selvedge_sched_add(tree, &contract, &stream));
        done(selvedge_sched_push_head(tree, stream, &frame, NULL));
        /* Those that go before others wait for their periods, or they would take the whole link. */
        contract.parent = 0;
        contract.class_ = classes[i];
        contract.priority = i;
        contract.work_conserving = classes[i] == SELVEDGE_CLASS_FAIR;
        done(selvedge_sched_add(mixed, &contract, &stream));
        done(selvedge_sched_push_head(mixed, stream, &frame, NULL));
    }
    uint32_t block[STREAMS];
    const int len = done(selvedge_sched_choose_block(tree, block, STREAMS));
    printf("block:");
    for (int i = 0; i < len; i++)
        printf(" %s", NAMES[block[i]]);
    printf("\n");
    run(tree);
    run(mixed);
    selvedge_sched_free(tree);
    selvedge_sched_free(mixed);
    return 0;
}
