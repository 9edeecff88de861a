//! The disciplines that share a link, on traces small enough to be worked out on paper.

use selvedge_data_sched::trace::run;

/// The stream sent in each slot, by its first letter; `.`: none.
fn order(trace: &str) -> String {
    let mut out = Vec::new();
    run(trace, "t.json", None, &mut out).unwrap();
    let sent = |line: &str| match line.split("\"stream\": \"").nth(1) {
        Some(id) if line.contains("\"send\"") => id.chars().next(),
        _ => line.contains("\"idle\"").then_some('.'),
    };
    String::from_utf8(out).unwrap().lines().filter_map(sent).collect()
}

/// A backlogged trace of streams, never late.
fn backlogged(discipline: &str, ticks: u64, streams: &[&str]) -> String {
    let stream = |(id, more): (char, &&str)| {
        let late = if more.contains("period") { "" } else { "\"period\": 1000000, " };
        format!("{{\"id\": \"{id}\", {late}{more}}}")
    };
    let streams: Vec<String> = ('a'..).zip(streams).map(stream).collect();
    let streams = streams.join(", ");
    order(&format!(
        "{{\"discipline\": \"{discipline}\", \"ticks\": {ticks}, \"backlogged\": true, \
         \"streams\": [{streams}]}}"
    ))
}

#[test]
fn shares_of_one_and_two() {
    let streams = ["\"weight\": 1", "\"weight\": 2"];
    // Finish tags: a 1000, 2000, ...; b 500, 1000, 1500, ...; at 1000 both, and a is the first.
    assert_eq!(backlogged("wfq", 9, &streams), "babbabbab");
    assert_eq!(backlogged("hwfq", 9, &streams), "babbabbab");
    // Start tags: a 0, 1000, ...; b 0, 500, 1000, ...
    assert_eq!(backlogged("sfq", 9, &streams), "abbabbabb");
    assert_eq!(backlogged("mixed", 9, &streams), "abbabbabb");
    let quanta = ["\"weight\": 1000", "\"weight\": 2000"];
    assert_eq!(backlogged("drr", 9, &quanta), "abbabbabb");
    // Half of a frame a round: every other round one, and every round one.
    assert_eq!(backlogged("drr", 9, &["\"weight\": 500", "\"weight\": 1000"]), "babbabbab");
}

#[test]
fn deficits_are_kept_to_the_byte() {
    // Quanta of 500. Round 1: a sends 200, has 300 left, too little for 750; b sends 500.
    // Round 2: a has 800, sends 750, and its queue is empty; b has 500, too little for 501.
    // Round 3: b has 1000, and sends 501.
    let trace = r#"{"discipline": "drr", "ticks": 5,
        "streams": [{"id": "a", "period": 99, "weight": 500},
                    {"id": "b", "period": 99, "weight": 500}],
        "arrivals": [[0, "a", 200], [0, "a", 750], [0, "b", 500], [0, "b", 501]]}"#;
    assert_eq!(order(trace), "abab.");
}

#[test]
fn a_tree_shares_at_each_node() {
    // The node must get half, and of that a and b half each; c the other half.
    let trace = |more: &str| {
        format!(
            r#"{{"discipline": "hwfq", "ticks": 8, "tree": [{{"id": "n"}}], "streams": [
            {{"id": "a", "period": 99, "parent": "n"}}, {{"id": "b", "period": 99, "parent": "n"}},
            {{"id": "c", "period": 99}}], "arrivals": [{more}[0, "b"], [0, "b"], [0, "b"], [0, "b"],
            [0, "c"], [0, "c"], [0, "c"], [0, "c"]]}}"#
        )
    };
    let busy = r#"[0, "a"], [0, "a"], [0, "a"], [0, "a"], "#;
    assert_eq!(order(&trace(busy)), "acbcacbc");
    // Service that a does not use goes to its sibling, not to c.
    assert_eq!(order(&trace("")), "bcbcbcbc");
}

#[test]
fn virtual_deadlines_by_hand() {
    // At 0: a and c must send one in two periods of 2, due at 4; b one in each of 3. At 2, a has been served.
    // At 4 all windows begin anew, b's at 3 and 6. At 7 no frame must be sent.
    let half = "\"period\": 2, \"window\": [1, 2], \"work_conserving\": false";
    let whole = "\"period\": 3, \"window\": [0, 1], \"work_conserving\": false";
    assert_eq!(backlogged("vds", 8, &[half, whole, half]), "bacbacb.");
}
