//! Two hosts' rings, with what they say over the engine carried by hand: late, lost, and by the wrong.

use selvedge_comm_local::PutOutcome;
use selvedge_control_event::HostId;
use selvedge_units::{Duration, Instant};

use super::{ASK_AGAIN, EARLY, Near, Out};
use crate::host::tests::until;
use crate::say::Say;

const SOURCE: HostId = HostId(1);
const SINK: HostId = HostId(2);
const NOW: Instant = Instant(1_000_000_000);

fn near() -> Near {
    Near::new().unwrap().expect("a machine that says which it is")
}

/// Carries what one says to the other, as long as `passes` lets it.
fn carry(from: &mut Near, me: HostId, to: &mut Near, passes: impl Fn(&Say<'_>) -> bool) -> usize {
    let mut count = 0;
    while let Some((_, said)) = from.poll_said() {
        if passes(&Say::decode(&said).unwrap()) {
            to.hear(NOW, me, &said);
            count += 1;
        }
    }
    count
}

fn both(source: &mut Near, sink: &mut Near) {
    carry(source, SOURCE, sink, |_| true);
    carry(sink, SINK, source, |_| true);
}

/// A ring that the source has begun to use; what it then says is not carried.
fn begun() -> (Near, Near) {
    let (mut source, mut sink) = (near(), near());
    assert_eq!(source.put(NOW, SINK, b"by the engine"), PutOutcome::Gone);
    source.wish(NOW, SINK);
    source.wish(NOW, SINK);
    assert_eq!(carry(&mut source, SOURCE, &mut sink, |_| true), 1, "one is enough");
    both(&mut source, &mut sink);
    until("the ring is there", || {
        source.settle(NOW);
        source.reaches(SINK)
    });
    (source, sink)
}

fn put(source: &mut Near, bytes: &[u8]) {
    assert_eq!(source.put(NOW, SINK, bytes), PutOutcome::Done);
    source.links().flush();
}

fn taken(sink: &mut Near) -> Option<Vec<u8>> {
    sink.take(NOW).then(|| {
        let (host, bytes) = sink.mail();
        assert_eq!(host, SOURCE);
        bytes.to_vec()
    })
}

#[test]
fn a_ring_is_read_when_the_engine_has_said_its_last() {
    let (mut source, mut sink) = begun();
    put(&mut source, b"one");
    put(&mut source, b"two");
    // What was sent by the engine before may still be under way.
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
    // The word that the ring is to be read.
    carry(&mut source, SOURCE, &mut sink, |_| false);
    put(&mut source, b"one");
    assert_eq!(taken(&mut sink), None);
    assert_eq!(sink.overdue(NOW), []);
    assert_eq!(sink.overdue(NOW + EARLY), [SOURCE]);
    assert_eq!(taken(&mut sink).unwrap(), b"one");
    // And that it is read.
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
    source.wish(NOW, SINK);
    both(&mut source, &mut sink);
    assert_eq!(source.outs.get(&SINK), Some(&Out::Far));
    let later = NOW + Duration::from_secs(1000);
    source.wish(later, SINK);
    assert_eq!(source.poll_said(), None, "it is not asked again");
    // Until it is another.
    source.forget(SINK);
    source.machine.network -= 1;
    source.machine.boot ^= 1;
    source.wish(later, SINK);
    both(&mut source, &mut sink);
    assert_eq!(source.outs.get(&SINK), Some(&Out::Far));
}

#[test]
fn who_is_silent_is_asked_less_and_less() {
    let mut source = near();
    let (mut asked, mut now) = (0, NOW);
    for _ in 0..600 {
        source.wish(now, SINK);
        asked += std::iter::from_fn(|| source.poll_said()).count();
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
        !source.reaches(SINK)
    });
    assert_eq!(source.put(NOW, SINK, b"by the engine"), PutOutcome::Gone);
    let said: Vec<_> = std::iter::from_fn(|| source.poll_said()).collect();
    assert_eq!(said, [(SINK, Say::Back.encode())]);
    assert_eq!(source.links().count(), (0, 0));
}

#[test]
fn a_source_that_ends_is_read_to_its_end_and_then_heard_by_the_engine() {
    let (mut source, mut sink) = begun();
    both(&mut source, &mut sink);
    put(&mut source, b"one");
    put(&mut source, b"two");
    drop(source);
    assert!(sink.has_of(SOURCE));
    assert_eq!(taken(&mut sink).unwrap(), b"one");
    assert_eq!(taken(&mut sink).unwrap(), b"two");
    until("its ring is gone", || sink.links().count() == (0, 0));
    assert!(!sink.has_of(SOURCE));
    // The word of it was lost.
    assert_eq!(sink.ended(NOW), []);
    assert_eq!(sink.ended(NOW + EARLY), [SOURCE]);
    assert_eq!(sink.view().hosts, (0, 0));
}

#[test]
fn without_the_word_that_was_offered_nobody_is_let_in() {
    let (mut sink, stranger) = (near(), near());
    let name = sink.name.clone();
    let mut peers = Vec::new();
    for word in ["", "guess", &"long".repeat(30)] {
        peers.push(stranger.links.connect(&name, word).unwrap());
    }
    // The right word is good once.
    sink.hear(NOW, SOURCE, &Say::Wish(stranger.machine).encode());
    let (_, offer) = sink.poll_said().unwrap();
    let Some(Say::Offer { word, .. }) = Say::decode(&offer) else { panic!("no offer") };
    let mut first = near();
    first.links.connect(&name, word).unwrap();
    until("it is let in", || first.links.news().len() == 1 && first.links.count().0 == 1);
    let again = stranger.links.connect(&name, word).unwrap();
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
    for said in [&[][..], &[8], &[8, 200], &[8; 400], &Say::Seen.encode(), &Say::Far.encode()] {
        source.hear(NOW, SINK, said);
        sink.hear(NOW, SOURCE, said);
    }
    // An offer that nobody asked for.
    let offer = Say::Offer { name: "selvedge-none", word: "x" }.encode();
    source.hear(NOW, HostId(9), &offer);
    assert_eq!(source.outs.len(), 1);
    put(&mut source, b"one");
    assert_eq!(taken(&mut sink).unwrap(), b"one");
}
