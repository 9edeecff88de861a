/* Figure 10 of ShareStreams: four streams share a link 1:1:2:4, each the slot of a hundred streamlets that
 * always have frames. Those of the fourth are in two sets, 2:1. Prints what each set's streamlets had.
 *
 *   cargo build -p selvedge-data-sched-c
 *   cc -I data/sched/c/include data/sched/c/examples/streamlets.c \
 *      target/debug/libselvedge_sched_c.a -lpthread -ldl -lm -o streamlets && ./streamlets */
#include <selvedge_sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 4, STREAMLETS = 100, TURNS = 8 * STREAMLETS * 30, SIZE = 1000 };

static int done(int code)
{
    if (code < 0) {
        fprintf(stderr, "%s\n", selvedge_error_text(code));
        exit(1);
    }
    return code;
}

/* Brings up the next frame of a slot. */
static void bring_up(selvedge_sched *sched, uint32_t slot, selvedge_aggregate *of)
{
    const selvedge_head frame = {0, SELVEDGE_NONE, SIZE};
    uint32_t streamlet;
    if (done(selvedge_aggregate_promote_head(of, &streamlet))) {
        done(selvedge_sched_push_head(sched, slot, &frame, NULL));
        /* Its queue is never empty. */
        done(selvedge_aggregate_arrive(of, streamlet));
    }
}

int main(void)
{
    static const uint64_t periods[SLOTS] = {8, 8, 4, 2};
    selvedge_aggregate *slots[SLOTS];
    selvedge_sched *sched;
    done(selvedge_sched_new("dwcs", &sched));
    for (int i = 0; i < SLOTS; i++) {
        const selvedge_contract contract = {.period_ns = periods[i], .delay_ns = SELVEDGE_NONE,
                                            .weight = 1, .late_send = 1, .work_conserving = 1};
        const int sets = i == SLOTS - 1 ? 2 : 1;
        uint32_t slot, set, streamlet;
        done(selvedge_sched_add(sched, &contract, &slot));
        done(selvedge_aggregate_new(&slots[i]));
        for (int n = 0; n < sets; n++)
            done(selvedge_aggregate_add_set(slots[i], (uint16_t)(sets - n), &set));
        for (int n = 0; n < STREAMLETS; n++) {
            done(selvedge_aggregate_add(slots[i], (uint32_t)(n * sets / STREAMLETS), &streamlet));
            done(selvedge_aggregate_arrive(slots[i], streamlet));
        }
        bring_up(sched, slot, slots[i]);
    }
    for (uint64_t now = 0; now < TURNS; now++) {
        selvedge_expiry missed;
        uint32_t slot;
        while (done(selvedge_sched_poll_expired(sched, now, &missed))) {
        }
        if (done(selvedge_sched_choose(sched, now, &slot))) {
            done(selvedge_sched_serve(sched, slot, NULL));
            done(selvedge_aggregate_sent(slots[slot], SIZE));
            bring_up(sched, slot, slots[slot]);
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        const int sets = i == SLOTS - 1 ? 2 : 1;
        for (int n = 0; n < sets; n++) {
            selvedge_streamlet_counts all, first;
            uint64_t turns;
            done(selvedge_aggregate_set_counts(slots[i], (uint32_t)n, &all));
            done(selvedge_aggregate_streamlet_counts(slots[i], (uint32_t)(n * STREAMLETS / sets),
                                                     &first));
            done(selvedge_aggregate_turns(slots[i], (uint32_t)n, &turns));
            printf("slot %d set %d: %llu frames, %llu of the first streamlet; at most %llu turns\n",
                   i, n, (unsigned long long)all.sent, (unsigned long long)first.sent,
                   (unsigned long long)turns);
        }
        selvedge_aggregate_free(slots[i]);
    }
    selvedge_sched_free(sched);
    return 0;
}
