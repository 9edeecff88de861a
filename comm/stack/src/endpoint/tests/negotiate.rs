//! Contracts that both ends agree on during the life of their connection.

use std::time::Instant;

use selvedge_data_stack::auto::Event;
use selvedge_data_stack::contract::{Contract, Promise};
use selvedge_data_stack::module::Direction;
use selvedge_units::Duration;

use super::super::{Connection, NegotiationError, Options, block_on_for};
use super::{LONG, bound, contract, pair_of, reserved};
use crate::sync::lock;

const LINE: &str = "ui | encrypt(chacha20) | reliable | frag(1400) | net";

/// The contracts that hold at an end, for sent and for received messages.
fn stated(connection: &Connection) -> [Contract; 2] {
    let manager = lock(&connection.shared.manager);
    connection.opened.streams.map(|id| manager.declared(id).expect("it is open"))
}

fn one() -> super::Endpoint {
    bound(calm())
}

fn calm() -> Options {
    // The manager must not decide anything by itself here.
    let meta = super::ManagerSettings {
        activation: Duration::from_secs(1 << 30),
        ..super::ManagerSettings::default()
    };
    Options { elements: 1, meta, ..Options::default() }
}

#[test]
fn both_hosts_take_it_or_neither_does() {
    let (a, b, here, there) = pair_of(LINE, one(), one());
    let easy = contract(Duration::from_millis(100), 1000);
    // A load that one host can send,
    let (c, mut every) = (one(), Duration::from_millis(10));
    for _ in 0..24 {
        let more = contract(Duration(every.0 / 2), 1000);
        let Ok(connection) = c.connect(b.address(), LINE, more, easy) else { break };
        every = Duration(every.0 / 2);
        drop((b.accept(LONG), connection));
    }
    // from enough hosts that the listener accepts no more, slower and slower.
    let mut busy = Vec::new();
    for slower in [1, 2, 4, 8, 16] {
        let full = (0..40).find_map(|_| {
            let other = one();
            let wanted = contract(Duration(every.0 * slower), 1000);
            match other.connect(b.address(), LINE, wanted, easy) {
                Ok(connection) => {
                    busy.push((connection, b.accept(LONG), other));
                    None
                }
                Err(why) => Some(why.to_string()),
            }
        });
        let full = full.expect("nobody takes any number");
        assert!(full.contains(&format!("{} refuses", b.address())), "{full}");
    }
    let before = [stated(&here), stated(&there)];
    let refused = here.renegotiate(Direction::Down, contract(every, 1000)).unwrap_err();
    let NegotiationError::Remote { peer, why } = refused else { panic!("{refused}") };
    assert_eq!(peer, b.address());
    assert!(why.contains("lower the rate") || why.contains("ask for"), "{why}");
    assert_eq!([stated(&here), stated(&there)], before);
    // Without that load there is room, and in the other direction as well.
    drop(busy);
    let begun = Instant::now();
    while b.view().connections.len() > 1 {
        assert!(begun.elapsed() < LONG.into());
        std::thread::yield_now();
    }
    let slower = contract(Duration(every.0 * 4), 1000);
    here.renegotiate(Direction::Down, slower).unwrap();
    here.renegotiate(Direction::Up, contract(Duration::from_millis(50), 2000)).unwrap();
    assert_eq!(stated(&here)[0], slower);
    assert_eq!(stated(&here), [stated(&there)[1], stated(&there)[0]]);
    let told = there.events();
    let kinds = told.iter().filter(|(_, event)| matches!(event, Event::Renegotiated { .. }));
    assert_eq!(kinds.map(|(way, _)| *way).collect::<Vec<_>>(), [Direction::Up, Direction::Down]);
    drop(a);
}

#[test]
fn what_does_not_fit_here_is_not_asked_there() {
    let (Some(a), Some(b)) = (reserved(calm()), reserved(calm())) else { return };
    let (_a, _b, here, there) = pair_of(LINE, a, b);
    let mut firm = contract(Duration::from_millis(100), 1000);
    firm.quality.promise = Promise::Firm;
    // Less than the network path alone takes.
    firm.quality.delay = Duration(1);
    let refused = here.renegotiate(Direction::Down, firm).unwrap_err().to_string();
    assert!(
        refused.starts_with("this host refuses: a delay") && refused.contains("at best"),
        "{refused}"
    );
    firm.quality.delay = Duration::from_secs(60);
    here.renegotiate(Direction::Down, firm).unwrap();
    assert_eq!(stated(&there)[1], firm);
}

#[test]
fn ends_that_ask_at_once_end_with_one_contract() {
    let (_a, _b, here, there) = pair_of(LINE, one(), one());
    for n in 1..20 {
        let [mine, yours] =
            [n * 1000, n * 1000 + 500].map(|size| contract(Duration::from_millis(100), size));
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| there.renegotiate(Direction::Up, yours));
            let outcomes = [here.renegotiate(Direction::Down, mine), asked.join().unwrap()];
            for refused in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
                assert!(refused.to_string().contains("try again"), "{refused}");
            }
        });
        // A withdrawal is negotiated as well, without a caller that waits for it.
        let begun = Instant::now();
        while stated(&here)[0] != stated(&there)[1] {
            assert!(begun.elapsed() < LONG.into(), "{:?}, {:?}", stated(&here), stated(&there));
            std::thread::yield_now();
        }
    }
}

#[test]
fn one_who_gives_up_leaves_the_old_contract() {
    let (_a, _b, here, there) = pair_of(LINE, one(), one());
    let before = stated(&here)[0];
    for patience in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(6)] {
        let large = contract(Duration::from_millis(100), 30_000);
        let outcome = block_on_for(here.renegotiate_async(Direction::Down, large), patience);
        let wanted = if outcome.is_some() { large } else { before };
        let begun = Instant::now();
        while (stated(&here)[0], stated(&there)[1]) != (wanted, wanted)
            || lock(&here.opened.negotiations).is_busy()
        {
            assert!(begun.elapsed() < LONG.into(), "{:?}, {:?}", stated(&here), stated(&there));
            std::thread::yield_now();
        }
        here.renegotiate(Direction::Down, before).unwrap();
    }
}

#[test]
fn a_peer_that_is_gone_is_said_to_be() {
    let (a, b, here, there) = pair_of(LINE, one(), one());
    let large = contract(Duration::from_millis(100), 30_000);
    drop((b, there));
    let error = here.renegotiate(Direction::Down, large).unwrap_err();
    assert!(matches!(error, NegotiationError::Silent(_)), "{error}");
    assert_eq!(stated(&here)[0], contract(Duration::from_millis(100), 1000));
    drop(a);
}
