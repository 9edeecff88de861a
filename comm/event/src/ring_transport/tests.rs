//! Two hosts' rings. The test carries their messages over the engine: late, lost, and from the wrong host.

use selvedge_comm_local::PutOutcome;
use selvedge_control_event::HostId;
use selvedge_units::{Duration, Instant};

use super::{ASK_AGAIN, EARLY, RingState, RingTransport};
use crate::message::RingMessage;
use selvedge_tests_wait::until;

const SOURCE: HostId = HostId(1);
const SINK: HostId = HostId(2);
const NOW: Instant = Instant(1_000_000_000);

fn near() -> RingTransport {
    RingTransport::new().unwrap().expect("a machine that says which it is")
}

/// Carries one host's messages to the other, as long as `passes` returns true.
fn carry(
    from: &mut RingTransport,
    me: HostId,
    to: &mut RingTransport,
    passes: impl Fn(&RingMessage<'_>) -> bool,
) -> usize {
    let mut count = 0;
    while let Some((_, message)) = from.poll_message() {
        if passes(&RingMessage::decode(&message).unwrap()) {
            to.handle_message(NOW, me, &message);
            count += 1;
        }
    }
    count
}

fn both(source: &mut RingTransport, sink: &mut RingTransport) {
    carry(source, SOURCE, sink, |_| true);
    carry(sink, SINK, source, |_| true);
}

/// A ring that the source has begun to use; its later messages are not carried.
fn begun() -> (RingTransport, RingTransport) {
    let (mut source, mut sink) = (near(), near());
    assert_eq!(source.put(NOW, SINK, b"by the engine"), PutOutcome::Gone);
    source.request_ring(NOW, SINK);
    source.request_ring(NOW, SINK);
    assert_eq!(carry(&mut source, SOURCE, &mut sink, |_| true), 1, "one is enough");
    both(&mut source, &mut sink);
    until("the ring is there", || {
        source.settle(NOW);
        source.has_ring_to(SINK)
    });
    (source, sink)
}

fn put(source: &mut RingTransport, bytes: &[u8]) {
    assert_eq!(source.put(NOW, SINK, bytes), PutOutcome::Done);
    source.links().flush();
}

fn taken(sink: &mut RingTransport) -> Option<Vec<u8>> {
    sink.take(NOW).then(|| {
        let (host, bytes) = sink.message();
        assert_eq!(host, SOURCE);
        bytes.to_vec()
    })
}

#[test]
fn a_ring_is_read_when_the_engine_has_said_its_last() {
    let (mut source, mut sink) = begun();
    put(&mut source, b"one");
    put(&mut source, b"two");
    // Earlier messages by the engine may still be under way.
    assert_eq!(taken(&mut sink), None);
    assert!(!source.is_settled());
    both(&mut source, &mut sink);
    assert!(source.is_settled());
    put(&mut source, b"three");
    let all: Vec<_> = std::iter::from_fn(|| taken(&mut sink)).collect();
    assert_eq!(all, [&b"one"[..], b"two", b"three"]);
    assert_eq!((source.view().hosts, sink.view().hosts), ((1, 0), (0, 1)));
}

#[test]
fn a_lost_word_delays_and_loses_nothing() {
    let (mut source, mut sink) = begun();
    // The switch to the ring is lost.
    carry(&mut source, SOURCE, &mut sink, |_| false);
    put(&mut source, b"one");
    assert_eq!(taken(&mut sink), None);
    assert_eq!(sink.late_switches(NOW), []);
    assert_eq!(sink.late_switches(NOW + EARLY), [SOURCE]);
    assert_eq!(taken(&mut sink).unwrap(), b"one");
    // The confirmation is lost.
    carry(&mut sink, SINK, &mut source, |_| false);
    assert!(!source.is_settled());
    source.settle(NOW + ASK_AGAIN + Duration(1));
    both(&mut source, &mut sink);
    assert!(source.is_settled());
}

#[test]
fn another_network_or_kernel_is_another_machine() {
    let (mut source, mut sink) = (near(), near());
    source.machine.network += 1;
    source.request_ring(NOW, SINK);
    both(&mut source, &mut sink);
    assert_eq!(source.out_rings.get(&SINK), Some(&RingState::Far));
    let later = NOW + Duration::from_secs(1000);
    source.request_ring(later, SINK);
    assert_eq!(source.poll_message(), None, "it is not asked again");
    // Until it is another host.
    source.forget(SINK);
    source.machine.network -= 1;
    source.machine.boot ^= 1;
    source.request_ring(later, SINK);
    both(&mut source, &mut sink);
    assert_eq!(source.out_rings.get(&SINK), Some(&RingState::Far));
}

#[test]
fn who_is_silent_is_asked_less_and_less() {
    let mut source = near();
    let (mut asked, mut now) = (0, NOW);
    for _ in 0..600 {
        source.request_ring(now, SINK);
        asked += std::iter::from_fn(|| source.poll_message()).count();
        now += Duration::from_secs(1);
    }
    assert!((10..=20).contains(&asked), "{asked} times in ten minutes");
}

#[test]
fn a_sink_that_ends_is_noticed_and_the_engine_has_its_events_again() {
    let (mut source, mut sink) = begun();
    both(&mut source, &mut sink);
    drop(sink);
    until("its ring is gone", || {
        source.settle(NOW);
        !source.has_ring_to(SINK)
    });
    assert_eq!(source.put(NOW, SINK, b"by the engine"), PutOutcome::Gone);
    let message: Vec<_> = std::iter::from_fn(|| source.poll_message()).collect();
    assert_eq!(message, [(SINK, RingMessage::SwitchBack.encode())]);
    assert_eq!(source.links().count(), (0, 0));
}

#[test]
fn a_source_that_ends_is_read_to_its_end_and_then_heard_by_the_engine() {
    let (mut source, mut sink) = begun();
    both(&mut source, &mut sink);
    put(&mut source, b"one");
    put(&mut source, b"two");
    drop(source);
    assert!(sink.has_unread_of(SOURCE));
    assert_eq!(taken(&mut sink).unwrap(), b"one");
    assert_eq!(taken(&mut sink).unwrap(), b"two");
    until("its ring is gone", || sink.links().count() == (0, 0));
    assert!(!sink.has_unread_of(SOURCE));
    // The message about it was lost.
    assert_eq!(sink.ended(NOW), []);
    assert_eq!(sink.ended(NOW + EARLY), [SOURCE]);
    assert_eq!(sink.view().hosts, (0, 0));
}

#[test]
fn without_the_word_that_was_offered_nobody_is_let_in() {
    let (mut sink, stranger) = (near(), near());
    let name = sink.name.clone();
    let mut peers = Vec::new();
    for token in ["", "guess", &"long".repeat(30)] {
        peers.push(stranger.links.connect(&name, token).unwrap());
    }
    // A token is valid once.
    sink.handle_message(NOW, SOURCE, &RingMessage::Request(stranger.machine).encode());
    let (_, offer) = sink.poll_message().unwrap();
    let Some(RingMessage::Offer { token, .. }) = RingMessage::decode(&offer) else {
        panic!("no offer")
    };
    let mut first = near();
    first.links.connect(&name, token).unwrap();
    until("it is let in", || first.links.news().len() == 1 && first.links.count().0 == 1);
    let again = stranger.links.connect(&name, token).unwrap();
    peers.push(again);
    let mut stranger = stranger;
    let mut gone = Vec::new();
    until("all are turned away", || {
        gone.extend(stranger.links.news());
        gone.len() == peers.len()
    });
    assert_eq!((stranger.links.count().0, sink.links.count().1), (0, 1));
}

#[test]
fn nonsense_over_the_engine_changes_nothing() {
    let (mut source, mut sink) = begun();
    both(&mut source, &mut sink);
    for message in [
        &[][..],
        &[8],
        &[8, 200],
        &[8; 400],
        &RingMessage::SwitchSeen.encode(),
        &RingMessage::Refuse.encode(),
    ] {
        source.handle_message(NOW, SINK, message);
        sink.handle_message(NOW, SOURCE, message);
    }
    // An offer without a request.
    let offer = RingMessage::Offer { name: "selvedge-none", token: "x" }.encode();
    source.handle_message(NOW, HostId(9), &offer);
    assert_eq!(source.out_rings.len(), 1);
    put(&mut source, b"one");
    assert_eq!(taken(&mut sink).unwrap(), b"one");
}
