//! Several threads that receive at one endpoint, each from a connection of its own, on the loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use selvedge_units::Duration;

use super::super::{Connection, Endpoint};
use super::{LONG, contract, pair};

const LINE: &str = "ui | unreliable | net";

/// Sets a flag when it goes out of scope, so that a thread that waits for it ends after a panic too.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Another connection between two endpoints.
fn another(a: &Endpoint, b: &Endpoint) -> (Connection, Connection) {
    let easy = contract(Duration::from_millis(100), 1000);
    let here = a.connect(b.address(), LINE, easy, easy).unwrap();
    (here, b.accept(LONG).expect("the other end"))
}

#[test]
fn a_thread_that_only_waits_leaves_the_socket_to_others() {
    let (_a, b, _here, there) = pair(LINE);
    let shared = Arc::clone(&there.shared);
    // Without a connection the endpoint's thread ends, so no other thread locks the socket.
    shared.remove_connection(there.opened.id);
    drop(b);
    // Another thread is in `recv` already.
    shared.receiving.fetch_add(1, Ordering::AcqRel);
    let (stop, begun) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        let _stop = Flag(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let _ = there.take(LONG);
            }
        });
        for _ in 0..20 {
            while !there.opened.pipeline.work().is_waited_for() {
                assert!(begun.elapsed() < LONG.into(), "the thread waits for a message");
                thread::yield_now();
            }
            assert!(
                shared.socket_reader.try_lock().is_ok(),
                "the thread that waits holds the socket"
            );
        }
    });
}

#[test]
fn an_idle_connection_holds_up_no_other() {
    let (a, b, here, there) = pair(LINE);
    let (_idle_here, idle) = another(&a, &b);
    let (stop, begun) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        let _stop = Flag(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let _ = idle.take(LONG / 1000);
            }
        });
        for n in 0..2000_u32 {
            here.send(&n.to_be_bytes(), LONG).unwrap();
            here.flush_held();
            assert_eq!(there.take(LONG).unwrap()[..], n.to_be_bytes());
            assert!(
                begun.elapsed() < LONG.into(),
                "{n} messages in {LONG:?}: the receiver starves"
            );
        }
    });
}
