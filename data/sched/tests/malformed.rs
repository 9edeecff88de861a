//! Malformed traces: the line, the field, the fault and the remedy; and no output.

use proptest::prelude::*;
use selvedge_data_sched::Discipline;
use selvedge_data_sched::replay::Trace;
use selvedge_data_sched::trace::{RunError, TICKS_MAX, run};

const GOOD: &str = r#"{"discipline": "dwcs", "ticks": 4,
 "streams": [
   {"id": "lecture", "period": 2, "window": [1, 2], "late": "drop", "work_conserving": true},
   {"id": "b", "period": 3, "window": [0, 0], "late": "send", "first_deadline": 3}],
 "arrivals": [[0, "lecture"], [0, "b", 1500],
   [2, "lecture"], [3, "b"]]}
"#;

/// Replays; returns the output, or the message after checking that nothing was printed.
fn replay(text: &str) -> Result<String, String> {
    let mut out = Vec::new();
    match run(text, "t.json", None, &mut out) {
        Ok(()) => Ok(String::from_utf8(out).unwrap()),
        Err(error) => {
            assert!(out.is_empty(), "printed something before: {error}");
            Err(error.to_string())
        }
    }
}

/// The message for the good trace with one text in it replaced.
fn says(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    replay(&GOOD.replacen(from, to, 1)).expect_err(to)
}

#[test]
fn the_documented_lines_come_out() {
    let lines = replay(GOOD).unwrap();
    let expected = r#"{"t": 0, "event": "send", "stream": "lecture", "seq": 0, "deadline": 2, "late": false}
{"t": 1, "event": "send", "stream": "b", "seq": 0, "deadline": 3, "late": false}
{"t": 2, "event": "send", "stream": "lecture", "seq": 1, "deadline": 4, "late": false}
{"t": 3, "event": "send", "stream": "b", "seq": 1, "deadline": 6, "late": false}
{"event": "total", "streams": {"lecture": {"sent": 2, "late": 0, "missed": 0, "dropped": 0, "violations": 0, "window": [1, 2]}, "b": {"sent": 2, "late": 0, "missed": 0, "dropped": 0, "violations": 0, "window": [0, 0]}}}
"#;
    assert_eq!(lines, expected);
}

#[test]
fn each_fault_names_line_field_and_remedy() {
    let table = [
        (
            "\"ticks\"",
            "\"tiks\"",
            "t.json:1: tiks: unknown field; did you mean \"ticks\"? the fields here are discipline, ticks, streams, arrivals, backlogged, tree, remap",
        ),
        (
            "\"window\"",
            "\"zzz\"",
            "t.json:3: streams[0].zzz: unknown field; the fields here are id, period, window, late, work_conserving, first_deadline, weight, priority, class, parent",
        ),
        (
            "\"late\": \"send\"",
            "\"period\": 3",
            "t.json:4: streams[1].period: stated twice; remove one",
        ),
        (
            "\"dwcs\"",
            "\"dwcs99\"",
            "t.json:1: discipline: unknown name \"dwcs99\"; did you mean \"dwcs98\"? use one of dwcs, dwcs98, edf, priority, fifo, vds, wfq, sfq, drr, hwfq, mixed",
        ),
        ("\"dwcs\"", "7", "t.json:1: discipline: a number where a string is needed"),
        ("\"ticks\": 4,", "", "t.json:1: ticks: missing; write \"ticks\": 12"),
        ("\"ticks\": 4", "\"ticks\": \"4\"", "t.json:1: ticks: a string where a number is needed"),
        (
            "\"ticks\": 4",
            "\"ticks\": 10000001",
            "t.json:1: ticks: 10000001 is out of range; write a whole number from 0 to 10000000",
        ),
        (
            "\"ticks\": 4",
            "\"ticks\": 4.5",
            "t.json:1: ticks: 4.5 is out of range; write a whole number from 0 to 10000000",
        ),
        (
            "\"period\": 2",
            "\"period\": 0",
            "t.json:3: streams[0].period: 0 is out of range; write a whole number from 1 to 18446744073709551615",
        ),
        ("\"period\": 2,", "", "t.json:3: streams[0].period: missing; write \"period\": 2"),
        ("\"id\": \"b\", ", "", "t.json:4: streams[1].id: missing; write \"id\": \"a\""),
        ("\"id\": \"b\"", "\"id\": \"\"", "t.json:4: streams[1].id: empty; name the stream"),
        (
            "\"id\": \"b\"",
            "\"id\": \"lecture\"",
            "t.json:4: streams[1].id: there is a stream \"lecture\" already; give each its own name",
        ),
        (
            "[1, 2]",
            "[3, 2]",
            "t.json:3: streams[0].window: 3 of 2 frames would be more than there are; write [x, y] with x at most y",
        ),
        (
            "[1, 2]",
            "[1, 65536]",
            "t.json:3: streams[0].window[1]: 65536 is out of range; write a whole number from 0 to 65535",
        ),
        (
            "[1, 2]",
            "[1]",
            "t.json:3: streams[0].window: 1 elements where 2 are needed; write [1, 2]",
        ),
        ("[1, 2]", "\"1/2\"", "t.json:3: streams[0].window: a string where a list is needed"),
        (
            "\"late\": \"drop\"",
            "\"late\": \"dorp\"",
            "t.json:3: streams[0].late: unknown name \"dorp\"; did you mean \"drop\"? use one of drop, send",
        ),
        (
            "true",
            "null",
            "t.json:3: streams[0].work_conserving: null where true or false is needed",
        ),
        (
            "\"first_deadline\": 3",
            "\"first_deadline\": -1",
            "t.json:4: streams[1].first_deadline: -1 is out of range; write a whole number from 0 to 18446744073709551615",
        ),
        (
            "\"first_deadline\": 3",
            "\"priority\": 2147483648",
            "t.json:4: streams[1].priority: 2147483648 is out of range; write a whole number from -2147483648 to 2147483647",
        ),
        (
            "\"first_deadline\": 3",
            "\"weight\": 0",
            "t.json:4: streams[1].weight: 0 is out of range; write a whole number from 1 to 4294967295",
        ),
        (
            "[2, \"lecture\"]",
            "[2, \"lectrue\"]",
            "t.json:6: arrivals[2][1]: there is no stream \"lectrue\"; did you mean \"lecture\"? use the id of one in \"streams\"",
        ),
        (
            "[2, \"lecture\"]",
            "[-2, \"lecture\"]",
            "t.json:6: arrivals[2][0]: -2 is out of range; write a whole number from 0 to 18446744073709551615",
        ),
        (
            "[0, \"lecture\"]",
            "[5, \"lecture\"]",
            "t.json:6: arrivals[2]: 2 is before 5, the arrival of the previous frame of \"lecture\"; list the frames of a stream in order of arrival",
        ),
        (
            "[2, \"lecture\"]",
            "[2]",
            "t.json:6: arrivals[2]: 1 elements where 2 or 3 are needed; write [0, \"a\"]",
        ),
        (
            "1500",
            "0",
            "t.json:5: arrivals[1][2]: 0 is out of range; write a whole number from 1 to 18446744073709551615",
        ),
        (
            "\"ticks\"",
            "\"backlogged\": true, \"ticks\"",
            "t.json:5: arrivals: a backlogged trace has no arrivals of its own; remove one of the two fields",
        ),
        (
            "\"ticks\": 4,",
            "\"ticks\": 4",
            "t.json:2: not JSON: expected `,` or `}` at line 2 column 2",
        ),
    ];
    for (from, to, expected) in table {
        assert_eq!(says(from, to), expected, "{from} -> {to}");
    }
}

#[test]
fn faults_of_trees_and_classes_are_named() {
    const TREE: &str = r#"{"discipline": "hwfq", "ticks": 4, "remap": 8,
 "tree": [{"id": "video", "weight": 3},
   {"id": "live", "parent": "video", "weight": 2}],
 "streams": [
   {"id": "a", "period": 2, "weight": 5, "parent": "live"},
   {"id": "b", "period": 2, "class": "edf"}],
 "backlogged": true}
"#;
    assert!(replay(TREE).is_ok());
    let table = [
        (
            "8,",
            "0,",
            "t.json:1: remap: 0 is out of range; write a whole number from 1 to 18446744073709551615",
        ),
        ("8,", "\"8\",", "t.json:1: remap: a string where a number is needed"),
        (
            "[{\"id\": \"video\", \"weight\": 3},",
            "{\"id\":",
            "t.json:3: not JSON: expected `,` or `}` at line 3 column 50",
        ),
        ("\"id\": \"video\", ", "", "t.json:2: tree[0].id: missing; write \"id\": \"video\""),
        ("\"id\": \"video\"", "\"id\": \"\"", "t.json:2: tree[0].id: empty; name the node"),
        (
            "\"id\": \"live\"",
            "\"id\": \"video\"",
            "t.json:3: tree[1].id: there is a node \"video\" already; give each its own name",
        ),
        (
            "\"weight\": 3",
            "\"weight\": 0",
            "t.json:2: tree[0].weight: 0 is out of range; write a whole number from 1 to 4294967295",
        ),
        (
            "\"weight\": 3",
            "\"wait\": 3",
            "t.json:2: tree[0].wait: unknown field; the fields here are id, parent, weight",
        ),
        // A node below itself, and one below a later one.
        (
            "\"video\", \"weight\": 3",
            "\"video\", \"parent\": \"video\"",
            "t.json:2: tree[0].parent: there is no node \"video\" before this; use the id of one in \"tree\", where each stands before what hangs below it",
        ),
        (
            "\"parent\": \"video\"",
            "\"parent\": \"vidoe\"",
            "t.json:3: tree[1].parent: there is no node \"vidoe\" before this; did you mean \"video\"? use the id of one in \"tree\", where each stands before what hangs below it",
        ),
        (
            "\"parent\": \"live\"",
            "\"parent\": 1",
            "t.json:5: streams[0].parent: a number where a string is needed",
        ),
        (
            "\"parent\": \"live\"",
            "\"parent\": \"b\"",
            "t.json:5: streams[0].parent: there is no node \"b\" before this; use the id of one in \"tree\", where each stands before what hangs below it",
        ),
        (
            "\"edf\"",
            "\"fiar\"",
            "t.json:6: streams[1].class: unknown name \"fiar\"; did you mean \"fair\"? use one of edf, priority, fair",
        ),
    ];
    for (from, to, expected) in table {
        assert!(TREE.contains(from), "{from}");
        assert_eq!(replay(&TREE.replacen(from, to, 1)).expect_err(to), expected, "{from} -> {to}");
    }
}

#[test]
fn what_is_no_trace_at_all_is_refused() {
    for text in ["", "[]", "3", "null", "{", "{}", "\u{feff}{}", "[[[[", "{\"a\": \"\\ud800\"}"] {
        assert!(replay(text).unwrap_err().starts_with("t.json:1: "), "{text}");
    }
    let text = r#"{"ticks": 1, "streams": []}"#;
    let expected = "t.json:1: arrivals: missing; \
                    write \"arrivals\": [[0, \"a\"]], or \"backlogged\": true";
    assert_eq!(replay(text).unwrap_err(), expected);
    assert!(replay(&"[".repeat(1 << 20)).is_err());
}

#[test]
fn messages_stay_short_whatever_the_input() {
    let long = "x".repeat(1 << 20);
    for (from, what) in [("\"dwcs\"", &long), ("\"b\", 1500", &long), ("ticks", &long)] {
        let text = GOOD.replacen(from.trim_matches('"'), what, 1);
        assert!(replay(&text).unwrap_err().len() < 300, "{from}");
    }
}

#[test]
fn defaults_are_those_of_the_format() {
    let short =
        r#"{"ticks": 1, "streams": [{"id": "a", "period": 2}], "arrivals": [[9, "a"], [9, "a"]]}"#;
    let long = r#"{"discipline": "dwcs", "ticks": 1, "backlogged": false,
        "streams": [{"id": "a", "period": 2, "window": [0, 0], "late": "drop",
                     "work_conserving": true, "weight": 1, "priority": 0, "class": "fair"}],
        "tree": [],
        "arrivals": [[9, "a", 1000], [9, "a", 1000]]}"#;
    assert_eq!(Trace::parse(short, "a"), Trace::parse(long, "b"));
}

#[test]
fn a_discipline_given_takes_the_place_of_the_traces_own() {
    let text = GOOD.replacen("\"b\", \"period\": 3", "\"b\", \"period\": 3, \"priority\": 1", 1);
    let first = |discipline| {
        let mut out = Vec::new();
        run(&text, "t.json", discipline, &mut out).unwrap();
        String::from_utf8(out).unwrap().lines().next().unwrap().to_owned()
    };
    assert!(first(None).contains("lecture"));
    assert!(first(Some(Discipline::Priority)).contains("\"b\""));
}

#[test]
fn names_are_printed_as_json_strings() {
    let text = GOOD.replace("\"b\"", r#""\"\\\nö""#);
    let out = replay(&text).unwrap();
    assert!(out.contains(r#""stream": "\"\\\nö", "#), "{out}");
}

#[test]
fn a_writer_that_refuses_is_an_error() {
    let mut full = [0_u8; 10];
    let error = run(GOOD, "t.json", None, &mut full.as_mut_slice()).unwrap_err();
    assert!(matches!(error, RunError::Write(_)), "{error}");
}

proptest! {
    /// Any text, and any damage to a valid one: a result, no panic, and no output with an error.
    #[test]
    fn no_text_panics(
        at in 0..GOOD.len(),
        len in 0..12_usize,
        patch in r#"[\[\]{}",:0-9a-z\\ \n-]{0,6}"#,
        any in ".{0,40}",
    ) {
        let end = (at + len).min(GOOD.len());
        for text in [format!("{}{patch}{}", &GOOD[..at], &GOOD[end..]), any] {
            match Trace::parse(&text, "t.json") {
                Ok(trace) => {
                    prop_assert!(trace.ticks <= TICKS_MAX);
                    if trace.ticks < 100 {
                        prop_assert!(replay(&text).is_ok());
                    }
                }
                Err(error) => {
                    prop_assert!(error.line >= 1 && error.line <= 1 + text.matches('\n').count());
                    prop_assert!(replay(&text).is_err());
                }
            }
        }
    }
}
