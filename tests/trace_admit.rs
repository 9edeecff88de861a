//! `selvedge trace admit` from the outside: the sentence, the JSON, the exit status.

mod support;

use support::{Folder, selvedge};

/// Three quarters of the slots, a half more, and one that has no window to lose.
const OVERFULL: &str = r#"{"discipline": "dwcs", "ticks": 100, "backlogged": true, "streams": [
    {"id": "news", "period": 2, "window": [1, 4]},
    {"id": "film", "period": 2, "window": [1, 2]},
    {"id": "talk", "period": 2, "window": [2, 5]},
    {"id": "log", "period": 2, "window": [0, 0]}]}"#;

#[test]
fn the_stream_that_is_too_much_is_named_with_what_would_fit() {
    let folder = Folder::new();
    let trace = folder.write("trace.json", OVERFULL);
    let ended =
        selvedge(["trace".as_ref(), "admit".as_ref(), trace.as_os_str(), "--json".as_ref()]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("the streams do not fit"), "{ended:?}");
    let answer: serde_json::Value = serde_json::from_str(&ended.stdout).expect("one object");
    assert_eq!(answer["verdict"], "refused");
    assert_eq!(answer["load"]["exact"], "57/40");
    let breach = &answer["breach"];
    assert_eq!((&breach["stream"], &breach["cause"]), (&"log".into(), &"overload".into()));
    assert_eq!(breach["excess"]["exact"], "17/40");
    assert_eq!(breach["excess"]["percent"], 42.5);
    // 3/40 is left: 0.15 frames of each period of 2, 1 of 10; or all of a period of 14.
    assert_eq!(breach["fits"]["window"], "9/10");
    assert_eq!(breach["fits"]["period"], 14);
}

#[test]
fn what_fits_is_proved_where_the_discipline_has_a_proof() {
    let folder = Folder::new();
    let fitting =
        OVERFULL.replace("{\"id\": \"log\", \"period\": 2", "{\"id\": \"log\", \"period\": 14");
    let trace = folder.write("trace.json", &fitting);
    let ask = |discipline: &str| {
        let options = ["--discipline".as_ref(), discipline.as_ref()];
        selvedge(["trace".as_ref(), "admit".as_ref(), trace.as_os_str()].into_iter().chain(options))
    };
    let dwcs = ask("dwcs");
    assert_eq!((dwcs.code, &*dwcs.stderr), (Some(0), ""), "{dwcs:?}");
    assert!(dwcs.stdout.starts_with("dwcs: possible: "), "{dwcs:?}");
    assert!(dwcs.stdout.contains("proved for equal periods, log has another"), "{dwcs:?}");
    let priority = ask("priority");
    assert_eq!(priority.code, Some(1), "{priority:?}");
    // All frames count where windows do not.
    assert!(priority.stdout.contains("it needs 11/7 (157.14 %) of the link"), "{priority:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = Folder::new();
    let trace = folder.write("trace.json", OVERFULL.replace("[1, 4]", "[5, 4]"));
    let ended = selvedge(["trace".as_ref(), "admit".as_ref(), trace.as_os_str()]);
    ended.refused(&["trace.json:2: streams[0].window"]);
    let node = folder.write("studio.toml", "[node]\nname = \"studio\"\n");
    let ended = selvedge(["trace".as_ref(), "admit".as_ref(), node.as_os_str()]);
    ended.refused(&["studio.toml", "not JSON", "`selvedge check` reads node files"]);
    let trace = folder
        .write("trace.json", OVERFULL.replace("\"period\": 2", "\"period\": 9223372036854775809"));
    let ended = selvedge(["trace".as_ref(), "admit".as_ref(), trace.as_os_str()]);
    ended.refused(&["\"news\"", "period and delay must be 1 to 2^63"]);
    let trace = folder.write("trace.json", OVERFULL);
    let unknown = ["--discipline".as_ref(), "dwsc".as_ref()];
    let ended = selvedge(
        ["trace".as_ref(), "admit".as_ref(), trace.as_os_str()].into_iter().chain(unknown),
    );
    ended.refused(&["there is no discipline \"dwsc\""]);
}

#[test]
fn classes_in_one_scheduler_are_tested_together() {
    let folder = Folder::new();
    let trace = |work_conserving: bool, bulk: u32| {
        folder.write(
            "mixed.json",
            format!(
                r#"{{"discipline": "mixed", "ticks": 100, "backlogged": true, "streams": [
    {{"id": "voice", "period": 4, "class": "edf", "work_conserving": {work_conserving}}},
    {{"id": "bulk", "period": {bulk}, "class": "fair"}}]}}"#
            ),
        )
    };
    let ask =
        |file: std::path::PathBuf| selvedge(["trace".as_ref(), "admit".as_ref(), file.as_os_str()]);
    let fits = ask(trace(false, 4));
    assert_eq!((fits.code, &*fits.stderr), (Some(0), ""), "{fits:?}");
    assert!(fits.stdout.starts_with("mixed: guaranteed: "), "{fits:?}");
    // Two frames and one that blocks, at three quarters of the link.
    let short = ask(trace(false, 3));
    assert!(short.stdout.contains("bulk may wait up to 4 slots"), "{short:?}");
    let over = ask(trace(false, 1));
    assert_eq!(over.code, Some(1), "{over:?}");
    assert!(over.stdout.contains("with bulk the link is exceeded by 1/4 (25.00 %)"), "{over:?}");
    assert!(over.stdout.contains("what would fit: its period 2 slots"), "{over:?}");
    let starved = ask(trace(true, 4));
    assert!(starved.stdout.contains("with bulk: voice always has a frame"), "{starved:?}");
}
