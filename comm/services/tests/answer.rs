//! Datagrams that a handler in the kernel answers, in a network namespace of the test.

mod machine;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use machine::{Namespace, permitted};
use selvedge_comm_services::{AnswerError, Answerer};

fn words(numbers: [u64; 4]) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (place, number) in bytes.chunks_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    bytes
}

#[test]
fn the_kernel_answers_what_its_handler_knows() {
    if !permitted() {
        return;
    }
    let Some(_namespace) = Namespace::enter() else { return };
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 7777)).unwrap();
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    }
    // The handler squares small numbers; others are passed on to the process.
    let source = "{
        static long seen;
        seen = seen + 1;
        if (input.word[0] > 1000) return 0;
        output.word[0] = input.word[0] * input.word[0];
        output.word[1] = seen;
        output.word[3] = input.word[3];
        return 1;
    }";
    let handler = Answerer::program("square", source).unwrap();
    let mut answerer = Answerer::new("lo", 7777, handler).unwrap();
    let mut reply = [0; 64];
    for (number, turn) in [(3_u64, 1_u64), (12, 2), (1000, 3)] {
        client.send_to(&words([number, 0, 0, 99]), "127.0.0.1:7777").unwrap();
        let (size, from) = client.recv_from(&mut reply).unwrap();
        assert_eq!((size, from.port()), (32, 7777));
        assert_eq!(reply[..32], words([number * number, turn, 0, 99]));
    }
    client.send_to(&words([1001, 5, 6, 7]), "127.0.0.1:7777").unwrap();
    assert_eq!(server.recv(&mut reply).unwrap(), 32);
    assert_eq!(reply[..32], words([1001, 5, 6, 7]), "untouched");
    // Datagrams of other sizes and to other ports are not handled.
    client.send_to(b"short", "127.0.0.1:7777").unwrap();
    assert_eq!(server.recv(&mut reply).unwrap(), 5);
    let counts = answerer.counts();
    assert_eq!((counts.asked, counts.answered, counts.passed, counts.faults), (4, 3, 1, 0));
    // A handler with a fault answers nothing; the process gets the request.
    let wrong = Answerer::program("wrong", "{ for (;;) { } }").unwrap();
    answerer.set_handler(wrong).unwrap();
    client.send_to(&words([1, 2, 3, 4]), "127.0.0.1:7777").unwrap();
    assert_eq!(server.recv(&mut reply).unwrap(), 32);
    assert_eq!(answerer.counts().faults, 1);
    drop(answerer);
    client.send_to(&words([3, 0, 0, 0]), "127.0.0.1:7777").unwrap();
    assert_eq!(server.recv(&mut reply).unwrap(), 32, "nothing stays");
    let handler = Answerer::program("again", "{ return 1; }").unwrap();
    let error = Answerer::new("eth77", 1, handler).unwrap_err();
    assert!(matches!(error, AnswerError::NoDevice(_)), "{error}");
}
