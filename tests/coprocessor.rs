//! `selvedge run` with a link in a coprocessor: the page, the knobs and the last word as ever, a
//! coprocessor that is killed, and the paper's three paths by one word of the node file.

mod support;

use std::path::Path;

use serde_json::Value;
use support::{
    CORRIDOR, Folder, Running, Stream, TIMEOUT, clip, file_source, http, node_file, sink,
};

/// A playout delay that no slowness of the machine uses up.
const PATIENT: &str = "delay = \"20 s\"";

/// The coprocessor is another package's program: `cargo test --workspace` builds it.
fn is_built(test: &str) -> bool {
    let built =
        Path::new(env!("CARGO_BIN_EXE_selvedge")).with_file_name("selvedge-coproc").exists();
    if !built {
        support::skipped(
            test,
            "selvedge-coproc is not built (cargo build -p selvedge-place-coprocessor)",
        );
    }
    built
}

fn frames(stream: &Value) -> u64 {
    stream["frames"].as_u64().unwrap_or_else(|| panic!("no frames in {stream}"))
}

/// The only child of a process.
fn child_of(pid: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// A child of any of a process's threads.
fn coprocessor_of(pid: u32) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    tasks.flatten().find_map(|task| {
        let task = task.file_name().into_string().ok()?;
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{task}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    })
}

#[test]
fn a_node_goes_on_over_the_death_of_its_coprocessor() {
    if !is_built("a_node_goes_on_over_the_death_of_its_coprocessor") {
        return;
    }
    let folder = Folder::new();
    let (_receiver, to) = sink();
    let source = file_source(&clip(CORRIDOR), true);
    let stream = Stream { name: "corridor", source, to, more: PATIENT };
    let link = "rate = \"20 Mbit/s\"\nplacement = \"coprocessor\"";
    let path = folder.write("node.toml", node_file(link, &[stream]));
    let mut node = Running::selvedge(["run".as_ref(), path.as_os_str(), "--json".as_ref()]);
    let page = node.page();
    let sent = || http::stream(&page, "corridor")["sent"].as_u64().unwrap_or(0);
    support::until("frames are sent", || sent() >= 60);
    let (status, answer) =
        http::request(&page, "PATCH", "/api/v1/streams/corridor", "{\"priority\": -3}");
    assert_eq!(status, 200, "{answer}");
    support::until("the knob is turned", || http::stream(&page, "corridor")["priority"] == -3);

    // `setpriv` has become the program itself.
    let runs_one = |&child: &u32| coprocessor_of(child).is_some();
    let pid = child_of(node.id()).filter(runs_one).unwrap_or_else(|| node.id());
    let coprocessor = coprocessor_of(pid).expect("it runs a coprocessor");
    let killed = std::process::Command::new("kill").args(["-9", &coprocessor.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    support::until("another runs", || coprocessor_of(pid).is_some_and(|new| new != coprocessor));
    // Counters go on.
    let before = sent();
    assert!(before >= 60);
    support::until("frames are sent again", || sent() >= before + 20);
    assert_eq!(http::stream(&page, "corridor")["priority"], -3);
    node.signal("TERM");
    let last = node.end(TIMEOUT).json();
    let stream = &last["streams"][0];
    assert_eq!((&stream["state"], &stream["missed"]), (&"running".into(), &0.into()), "{stream}");
    // The new one takes what the old one sent as sent: nothing is given up for it.
    assert_eq!(stream["dropped"], serde_json::json!({}), "{stream}");
    assert!(stream["sent"].as_u64().unwrap_or(0) >= before + 20, "{stream}");
}

#[test]
fn one_word_of_the_node_file_chooses_the_path() {
    if !is_built("one_word_of_the_node_file_chooses_the_path") {
        return;
    }
    let folder = Folder::new();
    let to = support::free_port();
    let recording = folder.join("corridor.rtpdump");
    let url = format!("rtp://{to}");
    let play = support::play(&[&url, "--record", recording.to_str().expect("UTF-8")], to);
    let source = "test:jpeg?rate=50&size=160x120".to_owned();
    let stream = Stream { name: "card", source, to, more: PATIENT };
    let path = folder.write("record.toml", node_file("rate = \"20 Mbit/s\"", &[stream]));
    let mut node = Running::selvedge(["run".as_ref(), path.as_os_str(), "--json".as_ref()]);
    let page = node.page();
    support::until("frames are sent", || frames(&http::stream(&page, "card")) >= 60);
    node.signal("TERM");
    node.end(TIMEOUT).json();
    let recorded = support::played(play)["frames"].as_u64().expect("a count");
    assert!(recorded >= 60);

    for placement in ["inline", "coprocessor", "coprocessor-reads"] {
        let (_receiver, to) = sink();
        let source = format!("record:{}?encoding=JPEG", recording.display());
        let link = format!("rate = \"20 Mbit/s\"\nplacement = \"{placement}\"");
        let stream = Stream { name: "card", source, to, more: PATIENT };
        let path = folder.write("node.toml", node_file(&link, &[stream]));
        // It ends by itself with its only source.
        let node = Running::selvedge(["run".as_ref(), path.as_os_str(), "--json".as_ref()]);
        let last = node.end(TIMEOUT).json();
        let stream = &last["streams"][0];
        assert_eq!(stream["state"], "ended", "{placement}: {stream}");
        assert_eq!(frames(stream), recorded, "{placement}: {stream}");
        assert_eq!(stream["decodable"].as_u64(), Some(recorded), "{placement}: {stream}");
        assert_eq!(stream["dropped"], serde_json::json!({}), "{placement}: {stream}");
    }
}
