//! `selvedge play http://HOST:PORT/streams/NAME`: it asks a node for a stream, also when the node has restarted, leaves it at
//! its end, and says why a node refuses.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use support::{
    CORRIDOR, Ended, Folder, Running, Stream, TIMEOUT, clip, file_source, free_port, http, kill,
    node_file, selvedge, until,
};

const TOKEN: &str = "of-those-who-ask-for-it";

/// A node at this address whose clip one more receiver may ask for.
fn node(folder: &Folder, at: SocketAddr) -> Running {
    let source = file_source(&clip(CORRIDOR), true);
    let more = format!("delay = \"20 s\"\nreceivers = {{ token = \"{TOKEN}\", most = 1 }}");
    let stream = Stream { name: "lecture", source, to: free_port(), more: &more };
    let text = node_file("rate = \"20 Mbit/s\"", &[stream]);
    let text = text.replace("127.0.0.1:0", &at.to_string());
    let path = folder.write("node.toml", text);
    let mut node = Running::selvedge(["run".as_ref(), path.as_os_str()]);
    node.page();
    node
}

/// What the receiver that asked has been sent.
fn sent(page: &str) -> Option<u64> {
    let node = http::node(page);
    let streams = node["streams"].as_array().expect("a list");
    let asked = |name: &str| name.starts_with("lecture/at-127-0-0-1-");
    let found = streams.iter().find(|one| one["name"].as_str().is_some_and(asked))?;
    found["sent"].as_u64()
}

fn url(at: SocketAddr) -> String {
    format!("http://{at}/streams/lecture")
}

fn ask(at: SocketAddr, more: &[&str]) -> Running {
    Running::selvedge(["play", "--json", &url(at), "--token", TOKEN].iter().chain(more))
}

#[test]
fn a_stream_is_asked_for_received_and_left() {
    let folder = Folder::new();
    let at = free_port();
    let node = node(&folder, at);
    let play = ask(at, &["--delay", "15s"]);
    until("frames are sent", || sent(&at.to_string()) >= Some(40));
    // There is room for one.
    let full = selvedge(["play", &url(at), "--token", TOKEN, "--seconds", "1"]);
    failed(&full, &["1 receivers have it", "ask again later"]);
    play.signal("TERM");
    let done = play.end(TIMEOUT).json();
    let stream = done["streams"].as_object().and_then(|all| all.values().next()).expect("one");
    assert!(stream["complete"].as_u64() >= Some(30), "{done}");
    assert_eq!((&stream["lost"], &stream["late"]), (&0.into(), &0.into()), "{done}");
    assert_eq!(sent(&at.to_string()), None, "it has left");
    drop(node);
}

#[test]
fn a_node_that_was_killed_is_asked_again() {
    let folder = Folder::new();
    let at = free_port();
    let first = node(&folder, at);
    let mut play = ask(at, &[]);
    until("frames are sent", || sent(&at.to_string()) >= Some(10));
    kill("KILL", first.id());
    play.until("says that the node is gone", |play| play.stderr().contains("no node answers"));
    drop(first);
    let second = node(&folder, at);
    until("frames are sent again", || sent(&at.to_string()) >= Some(10));
    assert!(play.stderr().contains("the node sends again"), "{}", play.stderr());
    play.signal("INT");
    let done = play.end(TIMEOUT).json();
    let stream = done["streams"].as_object().and_then(|all| all.values().next()).expect("one");
    assert_eq!(stream["restarts"], 1, "{done}");
    assert_eq!(sent(&at.to_string()), None, "it has left");
    drop(second);
}

/// It failed, and its words are these.
fn failed(ended: &Ended, words: &[&str]) {
    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "no \"{word}\" in: {ended:?}");
    }
}

#[test]
fn refusals_say_what_to_do() {
    let folder = Folder::new();
    let at = free_port();
    let node = node(&folder, at);
    let play = |url: &str, more: &[&str]| selvedge(["play", url].iter().chain(more));
    let wrong = play(&url(at), &["--token", "not-the-token-of-the-stream"]);
    failed(
        &wrong,
        &["wants the token of this stream's receivers", "SELVEDGE_TOKEN or use --token"],
    );
    failed(&play(&url(at), &[]), &["wants the token"]);
    let other = play(&format!("http://{at}/streams/other"), &["--token", TOKEN]);
    failed(&other, &["no stream \"other\"", "receivers = { token"]);
    failed(&play(&url(at), &["--token", TOKEN, "--delay", "700s"]), &["1 ms to 600 s"]);
    failed(&play(&url(free_port()), &["--token", TOKEN]), &["no node answers", "is it running"]);
    for bad in ["http://127.0.0.1", "http://127.0.0.1:7700/cam", "https://h/streams/a/b"] {
        play(bad, &[]).refused(&["write http://HOST:PORT/streams/NAME"]);
    }
    play("rtp://127.0.0.1:5004", &["--token", TOKEN]).refused(&["--token", "leave them out"]);
    play(&url(at), &["--secret", "x"]).refused(&["--secret", "leave them out"]);
    drop(node);
}

#[test]
fn answers_that_no_node_gives_are_named() {
    let no_sdp =
        "{\"name\": \"a\", \"to\": \"rtp://127.0.0.1:1\", \"for_s\": 30, \"sdp\": \"v=0\"}";
    for (body, word) in [
        ("HTTP/1.1 200 OK\r\n\r\n<html>", "what answers is no node"),
        ("HTTP/1.1 200 OK\r\n\r\n{\"name\": 1}", "what answers is no node"),
        ("HTTP/1.1 404 Not Found\r\n\r\nnothing", "another server?"),
        ("SSH-2.0-OpenSSH\r\n", "not HTTP"),
        (&format!("HTTP/1.1 200 OK\r\n\r\n{no_sdp}"), "streams/cam: "),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        let body = body.to_owned();
        // Asking, and where that went well leaving.
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("it asks");
            let mut read = [0; 1024];
            let _ = stream.read(&mut read);
            let _ = stream.write_all(body.as_bytes());
        });
        let ended = selvedge(["play", &format!("http://{at}/streams/cam")]);
        assert!(matches!(ended.code, Some(1 | 2)), "{ended:?}");
        assert!(ended.stderr.contains(word), "no \"{word}\" in: {ended:?}");
        server.join().expect("it answered");
    }
}
