/* Every wrong call is refused by its code, and changes nothing; also prints how the compiler lays
 * out the header's structures, one "name size offset offset ..." a line. */
#include <selvedge_sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define EXPECT(code, call)                                                                         \
    do {                                                                                           \
        int got = (call);                                                                          \
        if (got != (code)) {                                                                       \
            fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #call, got, (code));  \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static void layout(void)
{
    printf("contract %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu\n", sizeof(selvedge_contract),
           offsetof(selvedge_contract, period_ns), offsetof(selvedge_contract, delay_ns),
           offsetof(selvedge_contract, weight), offsetof(selvedge_contract, priority),
           offsetof(selvedge_contract, window_lose), offsetof(selvedge_contract, window_of),
           offsetof(selvedge_contract, late_send), offsetof(selvedge_contract, work_conserving),
           offsetof(selvedge_contract, class_), offsetof(selvedge_contract, parent));
    printf("node %zu %zu %zu\n", sizeof(selvedge_node), offsetof(selvedge_node, parent),
           offsetof(selvedge_node, weight));
    printf("head %zu %zu %zu %zu\n", sizeof(selvedge_head), offsetof(selvedge_head, arrival_ns),
           offsetof(selvedge_head, deadline_ns), offsetof(selvedge_head, size_bytes));
    printf("expiry %zu %zu %zu %zu %zu %zu %zu\n", sizeof(selvedge_expiry),
           offsetof(selvedge_expiry, deadline_ns), offsetof(selvedge_expiry, next_ns),
           offsetof(selvedge_expiry, misses), offsetof(selvedge_expiry, stream),
           offsetof(selvedge_expiry, dropped), offsetof(selvedge_expiry, violation));
    printf("served %zu %zu %zu\n", sizeof(selvedge_served), offsetof(selvedge_served, deadline_ns),
           offsetof(selvedge_served, late));
    printf("counters %zu %zu %zu %zu %zu %zu\n", sizeof(selvedge_counters),
           offsetof(selvedge_counters, sent), offsetof(selvedge_counters, late),
           offsetof(selvedge_counters, missed), offsetof(selvedge_counters, dropped),
           offsetof(selvedge_counters, violations));
    printf("streamlet_counts %zu %zu %zu %zu\n", sizeof(selvedge_streamlet_counts),
           offsetof(selvedge_streamlet_counts, sent), offsetof(selvedge_streamlet_counts, sent_bytes),
           offsetof(selvedge_streamlet_counts, dropped));
}

/* Trees that are none, and a stream below a node that is not there. */
static int trees(void)
{
    selvedge_sched *sched = NULL;
    selvedge_node nodes[2] = {{0, 1}, {1, 2}};
    selvedge_contract contract = {.period_ns = 10, .delay_ns = SELVEDGE_NONE, .weight = 1,
                                  .parent = 3};
    uint32_t stream;
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_new_tree(nodes, 2, SELVEDGE_NONE, NULL));
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_new_tree(NULL, 2, SELVEDGE_NONE, &sched));
    EXPECT(SELVEDGE_ERROR_TREE, selvedge_sched_new_tree(nodes, SIZE_MAX, SELVEDGE_NONE, &sched));
    EXPECT(SELVEDGE_ERROR_VALUE, selvedge_sched_new_tree(nodes, 2, 0, &sched));
    nodes[1].parent = 2;
    EXPECT(SELVEDGE_ERROR_TREE, selvedge_sched_new_tree(nodes, 2, 5, &sched));
    nodes[1].parent = 1;
    nodes[1].weight = 0;
    EXPECT(SELVEDGE_ERROR_VALUE, selvedge_sched_new_tree(nodes, 2, 5, &sched));
    nodes[1].weight = 2;
    if (sched)
        return 1;
    EXPECT(SELVEDGE_OK, selvedge_sched_new_tree(NULL, 0, 5, &sched));
    selvedge_sched_free(sched);
    EXPECT(SELVEDGE_OK, selvedge_sched_new_tree(nodes, 2, SELVEDGE_NONE, &sched));
    EXPECT(SELVEDGE_ERROR_TREE, selvedge_sched_add(sched, &contract, &stream));
    contract.parent = 2;
    EXPECT(SELVEDGE_OK, selvedge_sched_add(sched, &contract, &stream));
    selvedge_sched_free(sched);
    return 0;
}

/* Sets and streamlets that are not there, and heads that are, or are not. */
static int streamlets(void)
{
    selvedge_aggregate *slot = NULL;
    selvedge_streamlet_counts counts;
    uint32_t set = 7, streamlet = 7;
    uint64_t turns = 7;
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_aggregate_new(NULL));
    EXPECT(SELVEDGE_OK, selvedge_aggregate_new(&slot));
    EXPECT(SELVEDGE_ERROR_VALUE, selvedge_aggregate_add_set(slot, 0, &set));
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_aggregate_add_set(slot, 1, NULL));
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_aggregate_add_set(NULL, 1, &set));
    EXPECT(SELVEDGE_ERROR_SET, selvedge_aggregate_add(slot, 0, &streamlet));
    EXPECT(SELVEDGE_ERROR_SET, selvedge_aggregate_remove_set(slot, 0));
    for (uint32_t n = 0; n < 16; n++) {
        EXPECT(SELVEDGE_OK, selvedge_aggregate_add_set(slot, 5, &set));
        if (set != n)
            return 20;
    }
    EXPECT(SELVEDGE_ERROR_SET, selvedge_aggregate_add_set(slot, 5, &set));
    EXPECT(SELVEDGE_ERROR_SET, selvedge_aggregate_turns(slot, 3, &turns));
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_aggregate_add(slot, 3, NULL));
    EXPECT(SELVEDGE_ERROR_SET, selvedge_aggregate_add(slot, 256 + 3, &streamlet));
    EXPECT(SELVEDGE_OK, selvedge_aggregate_add(slot, 3, &streamlet));
    EXPECT(SELVEDGE_ERROR_SET, selvedge_aggregate_remove_set(slot, 3));
    EXPECT(SELVEDGE_ERROR_STREAM, selvedge_aggregate_arrive(slot, 1));
    EXPECT(SELVEDGE_ERROR_HEAD, selvedge_aggregate_sent(slot, 1000));
    EXPECT(SELVEDGE_ERROR_HEAD, selvedge_aggregate_dropped(slot));
    EXPECT(SELVEDGE_ERROR_HEAD, selvedge_aggregate_drop_waiting(slot, 0));
    EXPECT(0, selvedge_aggregate_promote_head(slot, &streamlet));
    EXPECT(SELVEDGE_OK, selvedge_aggregate_arrive(slot, 0));
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_aggregate_promote_head(slot, NULL));
    EXPECT(1, selvedge_aggregate_promote_head(slot, &streamlet));
    EXPECT(SELVEDGE_ERROR_HEAD, selvedge_aggregate_promote_head(slot, &streamlet));
    EXPECT(SELVEDGE_ERROR_HEAD, selvedge_aggregate_drop_waiting(slot, 0));
    EXPECT(SELVEDGE_OK, selvedge_aggregate_sent(slot, 1000));
    EXPECT(SELVEDGE_OK, selvedge_aggregate_arrive(slot, 0));
    EXPECT(1, selvedge_aggregate_promote_head(slot, &streamlet));
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_aggregate_set_counts(slot, 3, NULL));
    EXPECT(SELVEDGE_ERROR_SET, selvedge_aggregate_set_counts(slot, 16, &counts));
    EXPECT(SELVEDGE_ERROR_STREAM, selvedge_aggregate_streamlet_counts(slot, 9, &counts));
    EXPECT(SELVEDGE_OK, selvedge_aggregate_streamlet_counts(slot, 0, &counts));
    if (counts.sent != 1 || counts.sent_bytes != 1000 || counts.dropped)
        return 21;
    EXPECT(SELVEDGE_OK, selvedge_aggregate_turns(slot, 3, &turns));
    if (turns != 2)
        return 22;
    EXPECT(1, selvedge_aggregate_remove(slot, 0));
    EXPECT(SELVEDGE_ERROR_STREAM, selvedge_aggregate_remove(slot, 0));
    EXPECT(SELVEDGE_OK, selvedge_aggregate_set_counts(slot, 3, &counts));
    if (counts.dropped != 1)
        return 23;
    EXPECT(SELVEDGE_OK, selvedge_aggregate_remove_set(slot, 3));
    selvedge_aggregate_free(slot);
    selvedge_aggregate_free(NULL);
    return 0;
}

int main(void)
{
    selvedge_sched *sched = NULL;
    selvedge_contract contract = {.period_ns = 10, .delay_ns = SELVEDGE_NONE, .weight = 1,
                                  .window_lose = 1, .window_of = 2, .late_send = 1};
    const selvedge_head frame = {5, SELVEDGE_NONE, 1000};
    selvedge_expiry expiry;
    selvedge_served served;
    selvedge_counters counters;
    uint32_t stream = 77;
    uint64_t at = 77;

    layout();
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_new(NULL, &sched));
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_new("dwcs", NULL));
    EXPECT(SELVEDGE_ERROR_DISCIPLINE, selvedge_sched_new("dwsc", &sched));
    EXPECT(SELVEDGE_ERROR_DISCIPLINE, selvedge_sched_new("\xff\xfe", &sched));
    EXPECT(SELVEDGE_OK, selvedge_sched_new("dwcs", &sched));

    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_add(NULL, &contract, &stream));
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_add(sched, NULL, &stream));
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_add(sched, &contract, NULL));
    contract.window_lose = 3;
    EXPECT(SELVEDGE_ERROR_WINDOW, selvedge_sched_add(sched, &contract, &stream));
    contract.window_lose = 1;
    contract.late_send = 2;
    EXPECT(SELVEDGE_ERROR_VALUE, selvedge_sched_add(sched, &contract, &stream));
    contract.late_send = 1;
    contract.period_ns = 0;
    EXPECT(SELVEDGE_ERROR_VALUE, selvedge_sched_add(sched, &contract, &stream));
    contract.period_ns = 10;
    contract.class_ = 3;
    EXPECT(SELVEDGE_ERROR_VALUE, selvedge_sched_add(sched, &contract, &stream));
    contract.class_ = SELVEDGE_CLASS_FAIR;
    contract.parent = 1;
    EXPECT(SELVEDGE_ERROR_TREE, selvedge_sched_add(sched, &contract, &stream));
    contract.parent = 0;
    EXPECT(SELVEDGE_ERROR_STREAM, selvedge_sched_serve(sched, 0, NULL));
    EXPECT(SELVEDGE_OK, selvedge_sched_add(sched, &contract, &stream));
    if (stream != 0)
        return 2;

    EXPECT(0, selvedge_sched_choose(sched, 0, &stream));
    EXPECT(0, selvedge_sched_next_event(sched, 0, &at));
    EXPECT(0, selvedge_sched_head_deadline(sched, 0, NULL));
    EXPECT(SELVEDGE_ERROR_HEAD, selvedge_sched_serve(sched, 0, &served));
    EXPECT(SELVEDGE_ERROR_HEAD, selvedge_sched_forfeit(sched, 0));
    EXPECT(SELVEDGE_ERROR_STREAM, selvedge_sched_push_head(sched, 1, &frame, NULL));
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_push_head(sched, 0, NULL, NULL));
    EXPECT(SELVEDGE_OK, selvedge_sched_push_head(sched, 0, &frame, &at));
    if (at != 15)
        return 3;
    EXPECT(SELVEDGE_ERROR_HEAD, selvedge_sched_push_head(sched, 0, &frame, &at));
    EXPECT(1, selvedge_sched_head_deadline(sched, 0, &at));
    /* Not before its period begins, at 5. */
    EXPECT(0, selvedge_sched_choose(sched, 4, &stream));
    EXPECT(1, selvedge_sched_next_event(sched, 0, &at));
    if (at != 5)
        return 4;
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_choose(sched, 5, NULL));
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_poll_expired(sched, 36, NULL));
    EXPECT(1, selvedge_sched_poll_expired(sched, 36, &expiry));
    if (expiry.deadline_ns != 15 || expiry.next_ns != 45 || expiry.misses != 3 || expiry.dropped ||
        !expiry.violation || expiry.stream != 0)
        return 5;
    EXPECT(0, selvedge_sched_poll_expired(sched, 36, &expiry));
    EXPECT(1, selvedge_sched_choose(sched, 36, &stream));
    EXPECT(SELVEDGE_OK, selvedge_sched_serve(sched, 0, &served));
    if (served.deadline_ns != 45 || !served.late)
        return 6;
    EXPECT(SELVEDGE_OK, selvedge_sched_counters(sched, 0, &counters));
    if (counters.sent != 1 || counters.late != 1 || counters.missed != 3 || counters.dropped != 0)
        return 7;
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_counters(sched, 0, NULL));
    EXPECT(SELVEDGE_OK, selvedge_sched_push_head(sched, 0, &frame, NULL));
    /* Its period begins at 45. */
    EXPECT(0, selvedge_sched_choose_block(sched, &stream, 1));
    EXPECT(0, selvedge_sched_poll_expired(sched, 45, &expiry));
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_choose_block(sched, NULL, 4));
    stream = 77;
    EXPECT(1, selvedge_sched_choose_block(sched, &stream, 1));
    if (stream != 0)
        return 10;
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_serve_and_push(sched, 0, NULL, &served));
    EXPECT(SELVEDGE_ERROR_STREAM, selvedge_sched_serve_and_push(sched, 1, &frame, &served));
    EXPECT(SELVEDGE_OK, selvedge_sched_serve_and_push(sched, 0, &frame, &served));
    if (served.deadline_ns != 55)
        return 11;
    if (selvedge_sched_forfeit(sched, 0) < 0)
        return 8;
    EXPECT(SELVEDGE_OK, selvedge_sched_remove(sched, 0));
    EXPECT(SELVEDGE_ERROR_STREAM, selvedge_sched_remove(sched, 0));
    EXPECT(SELVEDGE_ERROR_STREAM, selvedge_sched_counters(sched, UINT32_MAX, &counters));
    EXPECT(SELVEDGE_ERROR_NULL, selvedge_sched_choose(NULL, 0, &stream));
    selvedge_sched_free(sched);
    if (streamlets())
        return 10;
    if (trees())
        return 12;
    for (int code = SELVEDGE_ERROR_SET - 1; code <= 2; code++)
        if (strlen(selvedge_error_text(code)) == 0)
            return 9;
    selvedge_sched_free(NULL);
    return 0;
}
