//! `selvedge play` from the outside: it receives what `run` sends, and records it.

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use serde_json::Value;
use support::{
    CORRIDOR, Folder, Running, SOON, Stream, clip, file_source, http, node_file, selvedge, sink,
    udp_is_bound,
};

/// A port that was free a moment ago.
fn free() -> SocketAddr {
    let (socket, address) = sink();
    drop(socket);
    address
}

/// A node that sends the clip there, and describes it in `lecture.sdp`.
fn node(folder: &Folder, to: SocketAddr) -> (Running, String) {
    let stream = Stream {
        name: "lecture",
        source: file_source(&clip(CORRIDOR), true),
        to,
        more: "sdp = \"lecture.sdp\"\ndelay = \"20 s\"",
    };
    let path = folder.write("node.toml", node_file("rate = \"20 Mbit/s\"", &[stream]));
    let mut node = Running::selvedge(["run".as_ref(), path.as_os_str()]);
    let page = node.page();
    (node, page)
}

/// Starts `play` and waits until its port is bound.
fn play(args: &[&str], at: SocketAddr) -> Running {
    let mut play = Running::selvedge(["play", "--json"].iter().chain(args));
    play.until("listens", |_| udp_is_bound(at));
    play
}

/// Lets the node send some more frames.
fn some_frames(page: &str) {
    let sent = || http::stream(page, "lecture")["sent"].as_u64().expect("a count");
    let before = sent();
    support::until("frames are sent", || sent() >= before + 30);
}

/// What `play` says of its only stream once it is asked to stop.
fn stopped(play: Running) -> Value {
    play.signal("INT");
    let json = play.end(SOON).json();
    let streams = json["streams"].as_object().expect("an object");
    assert_eq!(streams.len(), 1, "{json}");
    streams.values().next().expect("it is there").clone()
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
    let to = free();
    let record = folder.join("lecture.rtpdump");
    let source = format!("rtp://{to}");
    let play = play(&[&source, "--record", record.to_str().expect("plain")], to);
    let (node, page) = node(&folder, to);
    some_frames(&page);
    let stream = stopped(play);
    drop(node);
    plausible(&stream);
    // It was there from the first frame on, so that nothing refers to what it has not seen.
    assert_eq!(stream["decodable"], stream["complete"], "{stream}");
    let packets = rtpdump(&std::fs::read(record).expect("it was written"), to);
    assert_eq!(packets as u64, stream["packets"].as_u64().expect("a count"), "{stream}");
}

/// The packets of a recording, each of them RTP.
fn rtpdump(bytes: &[u8], to: SocketAddr) -> usize {
    let first = format!("#!rtpplay1.0 {}/{}\n", to.ip(), to.port());
    assert!(bytes.starts_with(first.as_bytes()), "{:?}", bytes.get(..first.len()));
    let mut rest = &bytes[first.len() + 16..];
    let mut packets = 0;
    while !rest.is_empty() {
        let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
        let payload = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        assert_eq!(length, payload + 8, "whole packets");
        assert_eq!(rest[8] >> 6, 2, "RTP version 2");
        rest = &rest[length..];
        packets += 1;
    }
    packets
}

#[test]
fn a_nodes_sdp_file_says_where_to_listen() {
    let folder = Folder::new();
    let to = free();
    let (node, page) = node(&folder, to);
    let sdp = folder.join("lecture.sdp");
    let play = play(&[sdp.to_str().expect("plain")], to);
    some_frames(&page);
    let stream = stopped(play);
    drop(node);
    plausible(&stream);
}

#[test]
fn it_stops_by_itself_after_the_time_that_it_is_given() {
    let to = free();
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
