/* Four streams 1:1:2:4 on a full link, in slots of 1 ms: prints how many frames each sent, and
 * fails if any missed its deadline.
 *
 *   cargo build -p selvedge-data-sched-c
 *   cc -I data/sched/c/include data/sched/c/examples/four_streams.c \
 *      target/debug/libselvedge_sched_c.a -lpthread -ldl -lm -o four_streams && ./four_streams */
#include <selvedge_sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOT_NS = 1000000, SLOTS = 8000 };

static int done(int code)
{
    if (code < 0) {
        fprintf(stderr, "four_streams: %s\n", selvedge_error_text(code));
        exit(1);
    }
    return code;
}

int main(void)
{
    const int slots_each[4] = {8, 8, 4, 2};
    const selvedge_head frame = {0, SELVEDGE_NONE, 1000};
    selvedge_sched *sched;
    done(selvedge_sched_new("dwcs", &sched));
    for (int i = 0; i < 4; i++) {
        const selvedge_contract contract = {.period_ns = (uint64_t)slots_each[i] * SLOT_NS,
                                            .delay_ns = SELVEDGE_NONE,
                                            .weight = 1,
                                            .window_lose = 0,
                                            .window_of = 1,
                                            .work_conserving = 1};
        uint32_t stream;
        done(selvedge_sched_add(sched, &contract, &stream));
        done(selvedge_sched_push_head(sched, stream, &frame, NULL));
    }
    for (uint64_t now = 0; now < (uint64_t)SLOTS * SLOT_NS; now += SLOT_NS) {
        selvedge_expiry missed;
        while (done(selvedge_sched_poll_expired(sched, now, &missed)))
            if (missed.dropped)
                done(selvedge_sched_push_head(sched, missed.stream, &frame, NULL));
        uint32_t stream;
        if (done(selvedge_sched_choose(sched, now, &stream))) {
            done(selvedge_sched_serve(sched, stream, NULL));
            done(selvedge_sched_push_head(sched, stream, &frame, NULL));
        }
    }
    uint64_t misses = 0;
    for (uint32_t stream = 0; stream < 4; stream++) {
        selvedge_counters counters;
        done(selvedge_sched_counters(sched, stream, &counters));
        printf("stream %u: %llu frames\n", (unsigned)stream, (unsigned long long)counters.sent);
        misses += counters.missed;
    }
    selvedge_sched_free(sched);
    return misses != 0;
}
