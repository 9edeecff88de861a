//! `selvedge play` from the outside: it receives what `run` sends, and records it.

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use serde_json::Value;
use support::{
    CORRIDOR, Folder, Running, clip, free_port, http, lecture, play, played, rtpdump, selvedge,
    sink, some_frames,
};

/// A node that sends the clip there, and describes it in `lecture.sdp`.
fn node(folder: &Folder, to: SocketAddr) -> (Running, String) {
    lecture(folder, to, "sdp = \"lecture.sdp\"\ndelay = \"20 s\"")
}

/// What must be so of a stream over an ample link.
fn plausible(stream: &Value) {
    let count = |name: &str| stream[name].as_u64().unwrap_or_else(|| panic!("{name}: {stream}"));
    for name in ["lost", "duplicates", "reordered", "stray", "malformed", "restarts", "incomplete"]
    {
        assert_eq!(count(name), 0, "{name}: {stream}");
    }
    assert!(count("complete") >= 20, "{stream}");
    assert!(count("packets") >= count("complete"), "{stream}");
    assert_eq!(count("on_time"), count("complete"), "{stream}");
    assert!(count("decodable") <= count("complete"), "{stream}");
}

#[test]
fn a_stream_is_measured_and_recorded() {
    let folder = Folder::new();
    let to = free_port();
    let record = folder.join("lecture.rtpdump");
    let source = format!("rtp://{to}");
    let play = play(&[&source, "--record", record.to_str().expect("plain")], to);
    let (node, page) = node(&folder, to);
    some_frames(&page);
    let stream = played(play);
    drop(node);
    plausible(&stream);
    // It was there from the first frame on, so that nothing refers to what it has not seen.
    assert_eq!(stream["decodable"], stream["complete"], "{stream}");
    let packets = rtpdump(&std::fs::read(record).expect("it was written"), to);
    assert_eq!(packets.len() as u64, stream["packets"].as_u64().expect("a count"), "{stream}");
}

#[test]
fn a_page_shows_what_is_received() {
    let folder = Folder::new();
    let to = free_port();
    let (node, page) = node(&folder, to);
    let sdp = folder.join("lecture.sdp");
    let mut play = play(&[sdp.to_str().expect("plain"), "--page", "127.0.0.1:0"], to);
    let receiver = play.page();
    some_frames(&page);
    support::until("frames are seen to be received", || {
        let stream = &http::node(&receiver)["streams"][0];
        stream["decodable"].as_u64() >= Some(10) && stream["decodable_share"].is_number()
    });
    let stream = &http::node(&receiver)["streams"][0];
    assert_eq!((&stream["name"], &stream["encoding"]), (&"lecture".into(), &"H264".into()));
    let refused = "{\"window\": \"1/5\"}";
    let (status, said) = http::request(&receiver, "PATCH", "/api/v1/streams/lecture", refused);
    assert!(status == 400 && said.contains("its sender has this knob"), "{status} {said}");
    played(play);
    drop(node);
}

#[test]
fn a_nodes_sdp_file_says_where_to_listen() {
    let folder = Folder::new();
    let to = free_port();
    let (node, page) = node(&folder, to);
    let sdp = folder.join("lecture.sdp");
    let play = play(&[sdp.to_str().expect("plain")], to);
    some_frames(&page);
    let stream = played(play);
    drop(node);
    plausible(&stream);
}

#[test]
fn it_stops_by_itself_after_the_time_that_it_is_given() {
    let to = free_port();
    let ended = selvedge(["play", &format!("rtp://{to}"), "--seconds", "1", "--json"]);
    let json = ended.json();
    let stream = &json["streams"][to.to_string()];
    assert_eq!(stream["packets"], 0, "{json}");
}

#[test]
fn a_taken_port_is_refused() {
    let (_taken, at) = sink();
    let ended = selvedge(["play", &format!("rtp://{at}"), "--seconds", "1"]);
    ended.refused(&[&at.to_string()]);
}

#[test]
fn what_can_not_be_played_is_refused() {
    let folder = Folder::new();
    selvedge(["play", "rtp://localhost:5004"]).refused(&["numeric host"]);
    selvedge(["play", "rtp://127.0.0.1"]).refused(&["rtp://HOST:PORT"]);
    // As people call what they want of a node file.
    selvedge(["start", "no-such.toml"]).refused(&["no-such.toml"]);
    for (url, remedy) in [
        ("http://127.0.0.1/x.m3u8", "write http://HOST:PORT/streams/NAME"),
        ("rtsp://127.0.0.1/1", "write rtp://HOST:PORT, stack://HOST:PORT"),
    ] {
        selvedge(["play", url]).refused(&[url, remedy]);
    }
    let refused = |path: &Path, words: &[&str]| {
        let name = path.to_str().expect("plain");
        let said = format!("selvedge: {name}: ");
        selvedge(["play", name]).refused(&[&[said.as_str()], words].concat());
    };
    refused(&folder.join("absent.sdp"), &["No such file"]);
    refused(&folder.write("text.sdp", "no SDP"), &[]);
    refused(&folder.write("bare.sdp", "v=0\n"), &[]);
    refused(&clip(CORRIDOR), &[]);
    refused(Path::new("/dev/zero"), &["at most"]);
    let to = UdpSocket::bind("127.0.0.1:0").and_then(|s| s.local_addr()).expect("a free port");
    let into = folder.join("no such folder/x.rtpdump");
    let source = format!("rtp://{to}");
    selvedge(["play", &source, "--record", into.to_str().expect("plain")])
        .refused(&["x.rtpdump: No such file"]);
}

#[test]
fn a_full_disk_is_reported_at_once_and_costs_no_measurement() {
    let folder = Folder::new();
    let to = free_port();
    let source = format!("rtp://{to}");
    let mut play = play(&[&source, "--record", "/dev/full"], to);
    let (_node, page) = node(&folder, to);
    play.until("says that the disk is full", |play| {
        play.stderr().contains("/dev/full: No space left on device")
    });
    some_frames(&page);
    play.signal("INT");
    let ended = play.end(support::TIMEOUT);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let measured: Value = serde_json::from_str(&ended.stdout).expect("what was measured");
    plausible(measured["streams"].as_object().and_then(|all| all.values().next()).expect("one"));
}
