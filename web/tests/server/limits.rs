//! The resources that slow, silent and greedy clients can take, and that stopping does not wait for
//! them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use selvedge_units::Duration;
use selvedge_web::Limits;
use tungstenite::Message;

use crate::http::{TIMEOUT, connect, get, read_answer};
use crate::idle_node::IdleNode;
use crate::socket::{open, quick, try_open};

/// Makes snapshots so large that a few fill the kernel's buffers.
fn large() -> std::sync::Arc<IdleNode> {
    let node = IdleNode::new();
    node.node.lock().unwrap().streams[0].detail = "x".repeat(1 << 20);
    node
}

/// Counts bytes until the server hangs up; answers nothing.
fn drain(tcp: &mut TcpStream) -> usize {
    let mut chunk = vec![0; 1 << 16];
    let mut total = 0;
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        match tcp.read(&mut chunk) {
            Ok(0) => return total,
            Ok(n) => total += n,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return total,
            Err(error) => panic!("the server keeps the connection: {error}"),
        }
    }
    panic!("the server keeps the connection and sends on");
}

/// Waits until `done`, longer than anything takes unless the server hangs.
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_client_that_reads_nothing_slows_only_itself() {
    let node = large();
    let limits = Limits { stall: Duration::from_millis(400), sockets: 2, ..quick() };
    let server = node.serve(limits);
    let at = server.local_addr();
    let mut stalled = open(at);
    let mut healthy = open(at);
    // Forty snapshots are 40 MB: far more than fits the buffers of the client that reads nothing.
    for _ in 0..40 {
        while !matches!(healthy.read().unwrap(), Message::Text(_)) {}
    }
    // Its place is free once it is cut off.
    wait_until("the stalled client is cut off", || try_open(at).is_ok());
    let held = drain(stalled.get_mut());
    assert!(held < 16 << 20, "{held} bytes were held for a client that reads nothing");
}

#[test]
fn a_client_that_never_answers_is_closed() {
    let limits = Limits { silence: Duration::from_millis(200), ..quick() };
    let server = IdleNode::new().serve(limits);
    let mut silent = open(server.local_addr());
    drain(silent.get_mut());
}

#[test]
fn sockets_are_limited() {
    let server = IdleNode::new().serve(Limits { sockets: 2, ..quick() });
    let at = server.local_addr();
    let first = open(at);
    let _second = open(at);
    assert_eq!(try_open(at).err(), Some(503));
    assert_eq!(get(at, "/api/v1/node").status, 200, "the rest goes on");
    drop(first);
    wait_until("the place of the first is free", || try_open(at).is_ok());
}

#[test]
fn a_message_that_is_too_long_ends_the_conversation() {
    let server = IdleNode::new().serve(quick());
    let mut client = open(server.local_addr());
    let _ = client.send(Message::text("x".repeat(5000)));
    drain(client.get_mut());
}

#[test]
fn a_request_that_never_ends_is_given_up() {
    let short = Duration::from_millis(200);
    let limits = Limits { header: short, request: short, ..quick() };
    let server = IdleNode::new().serve(limits);
    let at = server.local_addr();
    let mut head = connect(at);
    head.write_all(b"GET / HTTP/1.1\r\nHost: local").unwrap();
    drain(&mut head);
    let mut body = connect(at);
    let request = format!(
        "PATCH /api/v1/streams/lecture HTTP/1.1\r\nHost: {at}\r\nContent-Length: 20\r\n\r\n{{"
    );
    body.write_all(request.as_bytes()).unwrap();
    assert_eq!(read_answer(&mut body).status, 408);
}

#[test]
fn stopping_says_goodbye_and_waits_for_nobody() {
    let server = large().serve(quick());
    let at = server.local_addr();
    let _stalled = open(at);
    let mut idle = connect(at);
    let mut healthy = open(at);
    let began = Instant::now();
    let goodbye = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            loop {
                match healthy.read() {
                    Ok(Message::Close(frame)) => return frame.map(|frame| u16::from(frame.code)),
                    Ok(_) => {}
                    Err(error) => panic!("{error} without a goodbye"),
                }
            }
        });
        server.stop();
        reading.join().unwrap()
    });
    assert_eq!(goodbye, Some(1001));
    assert!(began.elapsed() < TIMEOUT);
    assert_eq!(drain(&mut idle), 0);
    assert!(TcpStream::connect(at).is_err());
}
