//! `selvedge trace gen` from the outside: what it prints, and how it refuses.

mod support;

use serde_json::Value;
use support::{Folder, selvedge};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn generated(arguments: &[&str]) -> String {
    let ended = selvedge(["trace", "gen"].iter().chain(arguments));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}: {ended:?}");
    ended.stdout
}

#[test]
fn generated_traces_are_the_same_for_a_seed_and_replay() {
    let folder = Folder::new();
    for seed in ["0", "7", "18446744073709551615"] {
        let text = generated(&["--seed", seed]);
        assert_eq!(text, generated(&["--seed", seed]));
        let path = folder.write("trace.json", &text);
        let replayed = selvedge(["trace".as_ref(), "replay".as_ref(), path.as_os_str()]);
        assert_eq!(replayed.code, Some(0), "seed {seed}: {replayed:?}");
    }
    let wished = ["--streams", "9", "--ticks", "20", "--discipline", "edf", "--kind", "weighted"];
    let trace = json(&generated(&wished));
    assert_eq!(trace["streams"].as_array().map(Vec::len), Some(9));
    assert_eq!((&trace["ticks"], &trace["discipline"]), (&20.into(), &"edf".into()));
    assert_ne!(generated(&["--seed", "1"]), generated(&["--seed", "2"]));
    let shared = ["--discipline", "hwfq", "--nodes", "5", "--remap", "3", "--weight-max", "2"];
    let trace = json(&generated(&shared));
    assert_eq!((trace["tree"].as_array().map(Vec::len), &trace["remap"]), (Some(5), &3.into()));
    let classed = generated(&["--discipline", "mixed", "--classes", "edf,priority"]);
    let trace = json(&classed);
    let streams = trace["streams"].as_array().expect("streams");
    assert!(streams.iter().all(|s| s["class"] == "edf" || s["class"] == "priority"), "{classed}");
}

#[test]
fn traces_that_cannot_be_made_are_refused() {
    let refused = |arguments: &[&str], said: &str| {
        let ended = selvedge(["trace", "gen"].iter().chain(arguments));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    };
    refused(&["--kind", "backloged"], "no kind \"backloged\"; did you mean \"backlogged\"?");
    refused(&["--kind", "x"], "there are backlogged, arrivals");
    refused(&["--discipline", "dwsc"], "there is no discipline \"dwsc\"");
    refused(&["--streams", "0"], "--streams");
    refused(&["--streams", "1000000", "--ticks", "1000000"], "--streams times --ticks");
    refused(&["--seed=-1"], "--seed");
    refused(&["--classes", "edf,fiar"], "--classes: there is no class \"fiar\"; did you mean");
    refused(&["--weight-max", "0"], "--weight-max");
    refused(&["--nodes", "2000000"], "--nodes");
}
