//! `selvedge-lab repro` from the outside: what it prints, writes and keeps, and how it refuses.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::path::Path;

use serde_json::Value;
use support::{Ended, Folder, Running, TIMEOUT, program};

/// Runs with a place of its own for records, so that nobody's are touched.
fn repro(state: &Path, arguments: &[&str]) -> Ended {
    let mut command = program(env!("CARGO_BIN_EXE_selvedge-lab"));
    command.arg("repro").args(arguments).env("XDG_STATE_HOME", state);
    // An experiment computes for some seconds, here beside others.
    Running::start(&mut command).end(3 * TIMEOUT)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn an_experiment_prints_writes_and_is_remembered() {
    let folder = Folder::new();
    let state = folder.join("state");
    let out = folder.join("out");
    let listed = json(&repro(&state, &["--list", "--json"]).stdout);
    let of = |listed: &Value, id: &str| -> Value {
        let all = listed["experiments"].as_array().expect("a list").clone();
        all.into_iter().find(|experiment| experiment["id"] == id).expect("it is in the list")
    };
    assert_eq!(of(&listed, "ss-f8")["last"], Value::Null);

    let place = out.to_str().expect("plain");
    let run = ["ss-f8", "--quick", "--json", "--seed", "3", "--out", place];
    let first = repro(&state, &run);
    assert_eq!((first.code, first.stderr.as_str()), (Some(0), ""), "{first:?}");
    let outcome = json(&first.stdout)["experiments"][0].clone();
    assert_eq!((&outcome["id"], &outcome["kind"]), (&"ss-f8".into(), &"V".into()));
    assert_eq!((&outcome["passed"], &outcome["seed"]), (&true.into(), &3.into()));
    let written = std::fs::read_to_string(out.join("ss-f8.json")).expect("it is written");
    assert_eq!(json(&written), outcome);
    assert!(std::fs::read_to_string(out.join("ss-f8.svg")).expect("drawn").starts_with("<svg"));
    assert!(std::fs::read(out.join("ss-f8.png")).expect("drawn").starts_with(b"\x89PNG"));
    let names = std::fs::read_dir(&out).expect("a folder").count();
    assert_eq!(names, 3, "nothing else is left");

    let last = of(&json(&repro(&state, &["--list", "--json"]).stdout), "ss-f8")["last"].clone();
    assert_eq!((&last["passed"], &last["quick"]), (&true.into(), &true.into()));
    let table = repro(&state, &["--list"]).stdout;
    let line = table.lines().find(|line| line.starts_with("ss-f8 ")).expect("its line");
    assert!(line.contains("passed") && line.contains("quick"), "{line}");

    assert_eq!(repro(&state, &run).stdout, first.stdout, "the same seed, the same output");
    let text = repro(&state, &["ss-f8", "--quick"]);
    assert_eq!(text.code, Some(0));
    for word in ["ss-f8: ", "Figure 8", "virtual time", "holds "] {
        assert!(text.stdout.contains(word), "{word}: {}", text.stdout);
    }
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let folder = Folder::new();
    let state = folder.join("state");
    let file = folder.write("file", "");
    let refused = |arguments: &[&str], said: &[&str]| {
        let ended = repro(&state, arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        for word in said {
            assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
        }
    };
    refused(&["ss-tt3"], &["no experiment \"ss-tt3\"", "did you mean \"ss-t3\"?"]);
    refused(&["everything"], &["no experiment \"everything\"", "there are ni-t1"]);
    refused(&[], &["--list"]);
    refused(&["ss-f8", "--all"], &["cannot be used with"]);
    refused(&["ss-f8", "--kind", "r"], &["no experiment of this kind"]);
    let below = file.join("below");
    refused(&["ss-f8", "--out", below.to_str().expect("plain")], &["--out"]);
    assert!(!state.exists(), "nothing was run");
}

#[test]
fn a_record_that_makes_no_sense_counts_as_none() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.join("selvedge/repro")).expect("a folder");
    std::fs::write(folder.join("selvedge/repro/ss-f8.json"), "{").expect("a file");
    let ended = repro(folder.path(), &["--list"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
