//! The WebSocket's conversation: snapshots, pictures against acknowledgements, changes.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;

use selvedge_control_config::view::Knob;
use selvedge_data_stream::Window;
use selvedge_units::Duration;
use selvedge_web::Limits;
use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

use crate::http::{connect, get};
use crate::idle_node::IdleNode;

pub(crate) type Client = WebSocket<TcpStream>;

pub(crate) fn open(server: SocketAddr) -> Client {
    try_open(server).expect("a WebSocket")
}

pub(crate) fn try_open(server: SocketAddr) -> Result<Client, u16> {
    open_on(connect(server), server, &[])
}

/// Another WebSocket than the page's.
pub(crate) fn open_at(server: SocketAddr, path: &str) -> Client {
    let request = format!("ws://{server}{path}");
    tungstenite::client(request, connect(server)).expect("a WebSocket").0
}

pub(crate) fn open_with(server: SocketAddr, headers: &[(&'static str, &str)]) -> Client {
    open_on(connect(server), server, headers).expect("a WebSocket")
}

/// Over an existing connection, plain or by TLS.
pub(crate) fn open_on<S: Read + Write>(
    stream: S,
    server: SocketAddr,
    headers: &[(&'static str, &str)],
) -> Result<WebSocket<S>, u16> {
    use tungstenite::handshake::HandshakeError;
    let mut request = format!("ws://{server}/ws").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match tungstenite::client(request, stream) {
        Ok((client, _)) => Ok(client),
        Err(HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
            Err(answer.status().as_u16())
        }
        Err(other) => panic!("{other}"),
    }
}

pub(crate) fn quick() -> Limits {
    Limits { snapshot_every: Duration::from_millis(5), ..Limits::default() }
}

pub(crate) fn say(client: &mut Client, message: Value) {
    client.send(Message::text(message.to_string())).unwrap();
}

/// The next message that is not a ping.
pub(crate) fn next(client: &mut Client) -> Message {
    loop {
        match client.read().unwrap() {
            Message::Ping(_) => {}
            message => return message,
        }
    }
}

fn snapshot(client: &mut Client) -> Value {
    loop {
        if let Message::Text(text) = next(client) {
            let mut message: Value = serde_json::from_str(&text).unwrap();
            if !message["snapshot"].is_null() {
                return message["snapshot"].take();
            }
        }
    }
}

pub(crate) fn reply(client: &mut Client) -> Value {
    loop {
        if let Message::Text(text) = next(client) {
            let message: Value = serde_json::from_str(&text).unwrap();
            if message.get("reply").is_some() {
                return message;
            }
        }
    }
}

fn picture(client: &mut Client) -> (u16, u32, Vec<u8>) {
    loop {
        if let Message::Binary(bytes) = next(client) {
            let index = u16::from_be_bytes([bytes[0], bytes[1]]);
            let number = u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
            return (index, number, bytes[6..].to_vec());
        }
    }
}

#[test]
fn all_clients_get_the_same_snapshots() {
    let node = IdleNode::new();
    let server = node.serve(quick());
    let mut clients = [open(server.local_addr()), open(server.local_addr())];
    // The uptime counts snapshots: with one snapshot for each client, no two clients would ever see the
    // same.
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    while seen[0].is_disjoint(&seen[1]) {
        assert!(seen[0].len() < 1000, "two clients share no snapshot");
        for (client, seen) in clients.iter_mut().zip(&mut seen) {
            let snapshot = snapshot(client);
            assert_eq!(snapshot["streams"][0]["name"], "lecture");
            seen.insert(snapshot["uptime_ms"].as_u64().unwrap());
        }
    }
}

#[test]
fn nobody_looks_while_nobody_listens() {
    let node = IdleNode::new();
    let limits = Limits { snapshot_every: Duration::from_millis(1), ..Limits::default() };
    let server = node.serve(limits);
    for _ in 0..20 {
        assert_eq!(get(server.local_addr(), "/style.css").status, 200);
    }
    assert_eq!(node.looks.load(Ordering::Relaxed), 0);
}

#[test]
fn a_picture_waits_for_the_acknowledgement_of_the_last() {
    let node = IdleNode::new();
    node.picture.store(7, Ordering::Relaxed);
    let server = node.serve(quick());
    let mut client = open(server.local_addr());
    snapshot(&mut client);
    say(&mut client, json!({ "show": [1, 1, 9] }));
    assert_eq!(picture(&mut client), (1, 7, b"\xff\xd8jpeg".to_vec()));

    node.picture.store(0x1_0000_0008, Ordering::Relaxed);
    let mut snapshots = 0;
    while snapshots < 5 {
        match next(&mut client) {
            Message::Text(_) => snapshots += 1,
            other => panic!("{other:?} came before the acknowledgement"),
        }
    }
    say(&mut client, json!({ "ack": 1 }));
    assert_eq!(picture(&mut client).1, 8, "the number's low 32 bits");

    // The same picture is not sent twice, and one that is no longer shown is not sent at all.
    say(&mut client, json!({ "ack": 1 }));
    say(&mut client, json!({ "show": [], "id": 1 }));
    say(&mut client, json!({ "show": "all", "id": 2 }));
    assert_eq!(reply(&mut client)["error"]["field"], "show");
    node.picture.store(9, Ordering::Relaxed);
    for _ in 0..5 {
        assert!(matches!(next(&mut client), Message::Text(_)));
    }
}

#[test]
fn another_list_of_streams_ends_what_is_shown() {
    let node = IdleNode::new();
    let server = node.serve(quick());
    let mut client = open(server.local_addr());
    snapshot(&mut client);
    say(&mut client, json!({ "show": [0], "id": 1 }));
    // The reply to a wrong message shows that the valid one before it was handled.
    say(&mut client, json!({ "id": 2 }));
    reply(&mut client);
    node.node.lock().unwrap().streams.remove(0);
    while snapshot(&mut client)["streams"].as_array().unwrap().len() > 1 {}
    node.picture.store(1, Ordering::Relaxed);
    for _ in 0..5 {
        assert!(matches!(next(&mut client), Message::Text(_)), "index 0 is another stream now");
    }
    say(&mut client, json!({ "show": [0] }));
    assert_eq!(picture(&mut client).0, 0);
}

#[test]
fn changes_are_answered() {
    let node = IdleNode::new();
    let server = node.serve(quick());
    let mut client = open(server.local_addr());
    let set = json!({ "set": { "stream": "lecture", "window": "2/7" }, "id": 41 });
    say(&mut client, set);
    assert_eq!(reply(&mut client), json!({ "reply": 41, "accepted": { "window": "2/7" } }));
    let window = Window::new(2, 7).unwrap();
    assert_eq!(node.last_set_knob(), Some(Knob::Window { stream: "lecture".into(), window }));
    say(&mut client, json!({ "set": { "link": "uplink", "rate": "9 Mbit/s" }, "id": 42 }));
    assert_eq!(reply(&mut client)["accepted"]["rate"], "9 Mbit/s");

    let refused = [
        (json!({ "stream": "lecture", "window": "9/7" }), "bad-value", "window"),
        (json!({ "stream": "none", "window": "1/7" }), "unknown-stream", "stream"),
        (json!({ "link": "none", "rate": "1 bit/s" }), "unknown-link", "link"),
        (json!({ "stream": "lecture", "rate": "1 bit/s" }), "unknown-key", "rate"),
        (json!({ "stream": "lecture", "link": "uplink", "rate": "1 bit/s" }), "bad-value", "set"),
        (json!({ "window": "1/5" }), "bad-value", "set"),
        (json!({ "stream": 3, "window": "1/5" }), "bad-value", "set"),
        (json!("all"), "bad-value", "set"),
    ];
    for (id, (set, code, field)) in refused.into_iter().enumerate() {
        say(&mut client, json!({ "set": set, "id": id }));
        let reply = reply(&mut client);
        assert_eq!((&reply["reply"], &reply["error"]["code"]), (&json!(id), &json!(code)));
        assert_eq!(reply["error"]["field"], field, "{reply}");
    }
}

#[test]
fn unreadable_messages_are_answered_and_change_nothing() {
    let node = IdleNode::new();
    let server = node.serve(quick());
    let mut client = open(server.local_addr());
    let messages = [
        Message::text("not JSON"),
        Message::text("[1]"),
        Message::text("{}"),
        Message::text(r#"{"ack": 0, "show": [0]}"#),
        Message::text(r#"{"ack": -1}"#),
        Message::text(r#"{"ack": 65536}"#),
        Message::text(r#"{"show": [0, "x"]}"#),
        Message::text(format!(r#"{{"show": [{}0]}}"#, "0,".repeat(300))),
        Message::text("[".repeat(4000)),
        Message::binary(&b"\x00\x01"[..]),
    ];
    for message in messages {
        client.send(message.clone()).unwrap();
        let reply = reply(&mut client);
        assert!(reply["error"]["remedy"].is_string(), "{message:?}: {reply}");
    }
    assert_eq!(node.last_set_knob(), None);
    snapshot(&mut client);
}
