//! A message is received as it was sent, or refused; a peer that stalls or vanishes blocks no caller.

use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;

/// Any request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
enum Request {
    Add { name: String, number: u64 },
    End {},
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reply {
    number: u64,
}

fn pair() -> [Connection; 2] {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    [pair.0.into(), pair.1.into()]
}

fn add(number: u64) -> Request {
    Request::Add { name: "a \"name\"".to_owned(), number }
}

#[test]
fn requests_and_answers_cross_with_bytes_and_descriptors() {
    let [client, server] = pair();
    client.send(&add(u64::MAX), b"\0any\xff", &[server.as_fd()]).unwrap();
    let came = server.receive::<Request>().unwrap().unwrap();
    assert_eq!((came.body, &came.data[..], came.fds.len()), (add(u64::MAX), &b"\0any\xff"[..], 1));
    assert!(server.receive::<Request>().unwrap().is_none(), "nothing more");
    server.answer(Ok(&Reply { number: 7 }), &[], &[]).unwrap();
    let answer = client.wait::<Reply>(Duration::from_secs(5)).unwrap();
    assert_eq!((answer.body, answer.data.len(), answer.fds.len()), (Reply { number: 7 }, 0, 0));
    let why = "x".repeat(20_000);
    server.answer::<Reply>(Err(&why), &[], &[]).unwrap();
    let refused = client.wait::<Reply>(Duration::from_secs(5)).unwrap_err();
    assert_eq!(refused, ControlError::Refused("x".repeat(ERROR_MAX)));
    assert_eq!(encode(&Request::End {}), b"{\"v\":1,\"op\":\"end\"}");
}

#[test]
fn long_answers_lie_in_memory() {
    let [client, server] = pair();
    let long: Vec<Reply> = (0..9000).map(|number| Reply { number }).collect();
    let asked = || {
        let (body, memory) = Long::write(&long).unwrap();
        server.answer(Ok(&body), &[], &[memory.as_fd()]).unwrap();
        client.ask::<_, Long>(&Request::End {}, &[], &[], Duration::from_secs(5)).unwrap()
    };
    assert_eq!(asked().read::<Vec<Reply>>(Bytes(1 << 20)).unwrap(), long);
    let short = Bytes(1000);
    assert_eq!(asked().read::<Vec<Reply>>(short), Err(ControlError::TooLong(short)));
    let lies = Message { body: Long { bytes: 1 << 20 }, ..asked() };
    assert!(matches!(lies.read::<Vec<Reply>>(Bytes(1 << 30)), Err(ControlError::Malformed(_))));
}

#[test]
fn rubbish_is_told_apart_and_the_connection_lives_on() {
    let [client, server] = pair();
    let said = |bytes: &[u8]| {
        seqpacket::send(&client.socket, bytes, &[]).unwrap();
        server.receive::<Request>().map(|_| ()).unwrap_err()
    };
    let limit = Bytes(MESSAGE_MAX as u64);
    assert_eq!(said(&[b' '; 20_000]), ControlError::TooLong(limit));
    for bytes in [&b"hello"[..], b"[]", b"\0", b"{\"v\":1}", b"{\"v\":1,\"op\":\"end\",\"x\":1}"] {
        assert!(matches!(said(bytes), ControlError::Malformed(_)), "{bytes:?}");
    }
    let deep = "[".repeat(10_000);
    assert!(matches!(said(deep.as_bytes()), ControlError::Malformed(_)));
    for (text, theirs) in [("{\"op\":\"end\"}", "null"), ("{\"v\":2,\"op\":\"end\"}", "2")] {
        let version = ControlError::Version { theirs: theirs.to_owned(), ours: VERSION };
        assert_eq!(said(text.as_bytes()), version);
    }
    client.send(&Request::End {}, &[], &[]).unwrap();
    assert_eq!(server.receive::<Request>().unwrap().unwrap().body, Request::End {});
}

#[test]
fn who_stalls_or_vanishes_holds_nobody_up() {
    let [client, server] = pair();
    let late = client.ask::<_, Reply>(&Request::End {}, &[], &[], Duration::from_millis(1));
    assert_eq!(late.unwrap_err(), ControlError::TimedOut(Duration::from_millis(1)));
    assert!(!client.is_open(), "the answer to come is for nobody");
    let [reads_nothing, server_too] = pair();
    let sent = (0..1_000_000).take_while(|_| server_too.send(&add(1), &[0; 8000], &[]).is_ok());
    assert!(sent.count() < 100_000);
    assert!(reads_nothing.is_open() && server_too.is_open());
    drop(reads_nothing);
    assert!(!server_too.is_open());
    assert_eq!(server_too.send(&add(1), &[], &[]), Err(ControlError::Closed));
    drop(server);
}

proptest! {
    /// A message is decoded from any text of it, no part of one is a message, and invalid bytes are only
    /// refused.
    #[test]
    fn messages_come_back_and_no_part_of_one_is_one(
        number in any::<u64>(), name in ".*", at in any::<prop::sample::Index>(), flip in 0_u8..8,
    ) {
        let text = encode(&Request::Add { name, number });
        prop_assert!(is_message::<Request>(&text));
        prop_assert!(!is_message::<Request>(&text[..at.index(text.len())]));
        let mut wrong = text.clone();
        wrong[at.index(text.len())] ^= 1 << flip;
        let _ = is_message::<Request>(&wrong);
    }
}
