//! Moving pictures over the WebSocket: the watched tracks, in order, and the cost of a slow client.

use std::sync::atomic::Ordering;

use selvedge_tests_wait::until;
use serde_json::json;
use tungstenite::Message;

use crate::idle_node::IdleNode;
use crate::socket::{Client, next, open, open_at, quick, reply, say};

/// A moving picture: track, flags, number, milliseconds until it is due, microseconds, age in milliseconds, bytes.
pub(crate) fn moving(client: &mut Client) -> (u16, u8, u32, i32, f64, i32, usize) {
    loop {
        if let Message::Binary(bytes) = next(client) {
            assert_eq!(bytes[..2], [0xff, 0xff]);
            let track = u16::from_be_bytes(bytes[2..4].try_into().unwrap());
            let number = u32::from_be_bytes(bytes[6..10].try_into().unwrap());
            let left = i32::from_be_bytes(bytes[10..14].try_into().unwrap());
            let present = f64::from_be_bytes(bytes[14..22].try_into().unwrap());
            let age = i32::from_be_bytes(bytes[22..26].try_into().unwrap());
            return (track, bytes[4], number, left, present, age, bytes.len() - 26);
        }
    }
}

#[test]
fn pictures_of_what_is_watched_come_in_order() {
    let node = IdleNode::new();
    node.moving.store(13, Ordering::Relaxed);
    let server = node.serve(quick());
    let mut client = open(server.local_addr());
    say(&mut client, json!({ "watch": [[3, "coded"]] }));
    assert_eq!(
        moving(&mut client),
        (3, 1, 10, -3, 400_000.0, 7, 10_000),
        "it begins with an intra picture"
    );
    let (_, _, number, .., age, _) = moving(&mut client);
    assert_eq!((number, age), (11, -1), "of one picture it is not known how old it is");
    node.moving.store(15, Ordering::Relaxed);
    let rest: Vec<_> = (0..3).map(|_| moving(&mut client)).map(|m| (m.1, m.2)).collect();
    assert_eq!(rest, [(0, 12), (0, 13), (0, 14)]);
    // The same track as images begins anew; another list ends it.
    say(&mut client, json!({ "watch": [[3, "images"]] }));
    assert_eq!(moving(&mut client).1, 3);
    for wrong in [
        json!("all"),
        json!([[0]]),
        json!([[0, "raw"]]),
        json!([[65535, "coded"]]),
        json!([[-1, "coded"]]),
    ] {
        say(&mut client, json!({ "watch": wrong, "id": 1 }));
        assert_eq!(reply(&mut client)["error"]["field"], "watch");
    }
}

#[test]
fn another_list_of_tracks_is_asked_for_anew() {
    let node = IdleNode::new();
    node.moving.store(13, Ordering::Relaxed);
    let server = node.serve(quick());
    let mut client = open(server.local_addr());
    say(&mut client, json!({ "watch": [[3, "coded"]] }));
    assert_eq!(moving(&mut client).2, 10);
    node.add_track("late");
    until("the new list comes", || match next(&mut client) {
        Message::Text(text) => text.contains("late"),
        _ => false,
    });
    // What is sent before the list is of the old one; nothing is after it.
    node.moving.store(15, Ordering::Relaxed);
    for _ in 0..20 {
        assert!(matches!(next(&mut client), Message::Text(_)));
    }
    say(&mut client, json!({ "watch": [[3, "coded"]] }));
    assert_eq!(moving(&mut client).2, 10, "numbers of before mean nothing");
}

#[test]
fn who_only_watches_gets_tracks_and_pictures_and_nothing_else() {
    let node = IdleNode::new();
    node.moving.store(13, Ordering::Relaxed);
    node.add_track("lecture");
    let server = node.serve(quick());
    let mut client = open_at(server.local_addr(), "/watch/ws");
    let list = json!({ "videos": [
        { "stream": "lecture", "label": "sent", "by": "", "codec": "" }
    ] });
    for _ in 0..3 {
        let Message::Text(text) = next(&mut client) else { panic!("nothing was asked for") };
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), list);
    }
    say(&mut client, json!({ "watch": [[0, "coded"]], "id": 1 }));
    assert_eq!(moving(&mut client).2, 10);
    for message in [
        json!({ "show": [0], "id": 2 }),
        json!({ "ack": 0, "id": 2 }),
        json!({ "set": { "stream": "lecture", "window": "0/1" }, "id": 2 }),
    ] {
        say(&mut client, message);
        assert_eq!(reply(&mut client)["error"]["code"], "watch-only");
    }
    assert_eq!(node.last_set_knob(), None);
}

#[test]
fn who_reads_nothing_is_kept_nothing_for() {
    let node = IdleNode::new();
    let server = node.serve(quick());
    let mut stalled = open(server.local_addr());
    let all: Vec<_> = (0..9).map(|track| json!([track, "coded"])).collect();
    say(&mut stalled, json!({ "watch": all }));
    // More and more pictures arrive; at some point none is requested any more, because the sockets'
    // buffers are full, while the server continues with everything else.
    let mut lively = open(server.local_addr());
    let mut before = (u64::MAX, 0);
    until("nothing more is taken for the stalled client", || {
        node.moving.fetch_add(5, Ordering::Relaxed);
        next(&mut lively);
        let (given, looks) =
            (node.given.load(Ordering::Relaxed), node.looks.load(Ordering::Relaxed));
        if given != before.0 {
            before = (given, looks);
        }
        given > 0 && looks > before.1 + 200
    });
    // Missed pictures are left out up to an intra picture.
    let newest = u32::try_from(node.moving.load(Ordering::Relaxed)).unwrap();
    let mut last = std::collections::BTreeMap::new();
    let mut gaps = 0;
    loop {
        let (track, flags, number, ..) = moving(&mut stalled);
        let expected = last.insert(track, number).map_or(number, |last: u32| last + 1);
        assert!(number == expected || flags & 1 == 1, "{number} follows {expected}");
        gaps += u32::from(number != expected);
        if number + 10 >= newest && last.values().all(|&number| number + 20 >= newest) && gaps > 0 {
            return;
        }
    }
}
