//! Handshakes and packets equal those of another implementation of Noise: vectors/secure/noise.json.

use std::net::SocketAddr;

use selvedge_data_net_secure::{Event, Handshakes, Identity, Key, PublicKey, Session};
use selvedge_units::{Duration, Instant};
use serde_json::Value;

const VECTORS: &str = include_str!("../../../../vectors/secure/noise.json");
const AT: [&str; 2] = ["127.0.0.1:1000", "127.0.0.1:2000"];

fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hexadecimal");
    let byte = |n: usize| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).expect("hexadecimal");
    (0..text.len() / 2).map(byte).collect()
}

fn key(value: &Value) -> Key {
    value.as_str().expect("a key").parse().expect("a key")
}

/// Both ends of one handshake of the file, every datagram compared.
fn sessions(vectors: &Value, handshake: &Value) -> [Session; 2] {
    let connection = vectors["connection"].as_u64().expect("a number") as u32;
    let [here, there]: [SocketAddr; 2] = AT.map(|at| at.parse().expect("an address"));
    let identity = |n: usize| match handshake["identity"].as_str() {
        Some("open") => Identity::Open,
        Some("secret") => Identity::Secret(key(&vectors["secret"])),
        Some("static") => Identity::Static(key(&vectors["static_keys"][n])),
        other => panic!("{other:?}"),
    };
    let public = |n: usize| PublicKey(key(&vectors["public_keys"][n]).0);
    let seeds = [0, 1].map(|n| key(&vectors["seeds"][n]));
    let now = Instant::ZERO;
    let mut one: Handshakes<()> = Handshakes::new(identity(0), &seeds[0]);
    let mut other: Handshakes<()> = Handshakes::new(identity(1), &seeds[1]);
    one.allow(vec![public(1)]);
    other.allow(vec![public(0)]);
    one.connect(connection, there, None, &Key([3; 32]), now).expect("it is the only one");
    one.poll_transmit().expect("a probe");
    let proposal = bytes(&vectors["proposal"]);
    one.propose(connection, &proposal, &seeds[0], now).expect("it is short");
    let hello = one.poll_transmit().expect("a hello");
    assert_eq!(hello.bytes, bytes(&handshake["hello"]));
    other.handle_datagram(here, &hello.bytes, &seeds[1], now);
    let Some(Event::Hello(hello)) = other.poll_event() else { panic!("no hello") };
    assert!(hello.payload.starts_with(&proposal));
    other.answer(*hello, &bytes(&vectors["answer"]), (), now).expect("it is short");
    let welcome = other.poll_transmit().expect("a welcome");
    assert_eq!(welcome.bytes, bytes(&handshake["welcome"]));
    one.handle_datagram(there, &welcome.bytes, &seeds[0], now);
    let Some(Event::Welcomed { payload, session, .. }) = one.poll_event() else {
        panic!("not welcomed")
    };
    assert_eq!(payload, bytes(&vectors["answer"]));
    let first = bytes(&handshake["packets"][0]["there"]);
    let confirmed = other.handle_packet(here, connection, &first, now).expect("it has the keys");
    [*session, confirmed.session]
}

#[test]
fn another_implementation_makes_the_same_datagrams() {
    let vectors: Value = serde_json::from_str(VECTORS).expect("JSON");
    assert!(vectors["made_by"][0].as_str().is_some_and(|by| by.starts_with("noiseprotocol ")));
    let handshakes = vectors["handshakes"].as_array().expect("a list");
    assert_eq!(handshakes.len(), 3);
    for handshake in handshakes {
        let [mut one, mut other] = sessions(&vectors, handshake);
        let [there, back] = [0, 1].map(|n| key(&handshake["module_keys"][n]));
        assert_eq!((&one.module_keys.send, &one.module_keys.receive), (&there, &back));
        assert_eq!((&other.module_keys.send, &other.module_keys.receive), (&back, &there));
        for packet in handshake["packets"].as_array().expect("a list") {
            let text = bytes(&packet["text"]);
            let mut sealed = bytes(&packet["there"]);
            assert_eq!(other.opener.open(&mut sealed).expect("it is sealed"), text);
            let mut sealed = bytes(&packet["back"]);
            assert_eq!(one.opener.open(&mut sealed).expect("it is sealed"), text);
        }
        for (n, seconds) in [(0, 0), (1, 0), (2, 120)] {
            let packet = &handshake["packets"][n];
            let now = Instant::ZERO + Duration::from_secs(seconds);
            let sealed = one.sealer.packet(&bytes(&packet["text"]), now).expect("it is sealed");
            assert_eq!(sealed, bytes(&packet["there"]), "packet {n}");
        }
    }
}
