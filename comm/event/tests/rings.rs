//! Hosts of one machine: their traffic goes through memory, and the switch there and back loses and
//! duplicates nothing.

mod wait;

use selvedge_comm_event::{CarriedBy, ChannelHandle, Participant, Rings, Settings, Sink};
use selvedge_control_event::{Attributes, Event, Format, Overflow, Subscription, Wake};
use selvedge_units::Duration;
use wait::{TIMEOUT, alone, domain, pair, until};

fn open(host: &Participant, name: &str) -> ChannelHandle {
    host.open(name, &Format::parse("f", "input { long number; };").unwrap(), Wake::All).unwrap()
}

fn sink(joined: &ChannelHandle) -> Sink {
    let wish = Subscription { bound: 4096, overflow: Overflow::DropNewest, filter: None };
    joined.subscribe(wish).unwrap()
}

fn send(joined: &ChannelHandle, number: i64) -> usize {
    let record = number.to_le_bytes();
    let event = Event { deadline: None, attributes: Attributes::default(), record: &record };
    joined.publish(event).unwrap().1
}

fn wanted(joined: &ChannelHandle, by: usize) {
    until("members want events", || {
        joined.view(|view| view.members.iter().filter(|one| one.wants).count()) == Some(by)
    });
}

fn next(sink: &mut Sink) -> i64 {
    let got = sink.take(Some(TIMEOUT.into())).expect("an event is missing");
    i64::from_le_bytes(got.record[..8].try_into().unwrap())
}

/// Sends until all hosts are reached by rings. Each event comes once, in order, on either path.
/// Returns the next number.
fn through_rings(
    from: &Participant,
    source: &ChannelHandle,
    sinks: &mut [&mut Sink],
    mut number: i64,
) -> i64 {
    until("rings are there", || {
        assert_eq!(send(source, number), sinks.len());
        for sink in &mut *sinks {
            assert_eq!(next(sink), number);
        }
        number += 1;
        from.rings().hosts.0 == sinks.len()
    });
    number
}

#[test]
fn each_event_comes_once_and_in_order_over_the_change_to_rings() {
    let (one, two) = pair();
    let (source, joined) = (open(&one, "c"), open(&two, "c"));
    let mut sink = sink(&joined);
    wanted(&source, 1);
    // The source is as fast as possible, so that much is under way by the engine when the ring is ready.
    let mut sent = 0;
    let mut taken = 0;
    until("the ring is there, and was used", || {
        for _ in 0..50 {
            assert_eq!(send(&source, sent), 1);
            sent += 1;
        }
        while taken < sent {
            assert_eq!(next(&mut sink), taken);
            taken += 1;
        }
        one.rings().sent > 1000
    });
    let rings = two.rings();
    assert_eq!((rings.hosts.1, rings.missed), (1, 0), "{rings:?}");
    assert_eq!(sink.sink_counts().delivered, sent as u64);
    // There is no ring in the other direction, since nothing was sent.
    assert_eq!((one.rings().taken, two.rings().sent), (0, 0));
    assert_eq!(two.dropped().0, 0);
}

#[test]
fn far_and_near_members_get_the_same() {
    let domain = domain();
    let one = Participant::start(&alone("one", &domain)).unwrap();
    let connected = |name: &str, rings| {
        let connect = one.listen().to_vec();
        Participant::start(&Settings { connect, rings, gossip: false, ..alone(name, &domain) })
            .unwrap()
    };
    // More hosts without rings than are sent to one by one.
    let far: Vec<Participant> = (0..6).map(|n| connected(&format!("far-{n}"), false)).collect();
    let near: Vec<Participant> = (0..3).map(|n| connected(&format!("near-{n}"), true)).collect();
    let source = open(&one, "c");
    let opened: Vec<ChannelHandle> = far.iter().chain(&near).map(|host| open(host, "c")).collect();
    let mut sinks: Vec<Sink> = opened.iter().map(sink).collect();
    wanted(&source, 9);
    let mut number = 0;
    until("the near are reached by rings", || {
        assert_eq!(send(&source, number), 9);
        for sink in &mut sinks {
            assert_eq!(next(sink), number);
        }
        number += 1;
        one.rings().hosts.0 == 3
    });
    for number in number..number + 500 {
        assert_eq!(send(&source, number), 9);
    }
    for sink in &mut sinks {
        for number in number..number + 500 {
            assert_eq!(next(sink), number);
        }
        assert!(sink.try_take().is_none(), "nothing comes twice");
    }
    assert_eq!(far[0].rings(), Rings::default());
    // Hosts that leave are gone, and their memory with them.
    drop((sinks, opened, near));
    until("rings are gone", || one.rings().hosts.0 == 0);
    assert_eq!(source.members(), [], "all have left");
}

#[test]
fn reliable_events_and_their_credit_pass_rings() {
    let (one, two) = pair();
    let (source, joined) = (open(&one, "r"), open(&two, "r"));
    let wish = Subscription { bound: 8, overflow: Overflow::Block, filter: None };
    let mut slow = joined.subscribe(wish).unwrap();
    wanted(&source, 1);
    let first = through_rings(&one, &source, &mut [&mut slow], 0);
    let record = |number: i64| number.to_le_bytes();
    for number in first..first + 1000 {
        let record = record(number);
        let event = Event { deadline: None, attributes: Attributes::default(), record: &record };
        assert_eq!(source.publish_reliably(event).unwrap(), (0, 1));
    }
    for number in first..first + 1000 {
        assert_eq!(next(&mut slow), number);
    }
    until("all is acknowledged", || source.view(|view| view.held) == Some(0));
}

#[test]
fn a_host_that_ends_in_order_is_heard_to_its_end() {
    for _ in 0..10 {
        let (one, two) = pair();
        let (source, joined) = (open(&one, "c"), open(&two, "c"));
        let mut sink = sink(&joined);
        wanted(&source, 1);
        let first = through_rings(&one, &source, &mut [&mut sink], 0);
        for number in first..first + 1000 {
            assert_eq!(send(&source, number), 1);
        }
        drop((source, one));
        for number in first..first + 1000 {
            assert_eq!(next(&mut sink), number);
        }
        until("the ring is gone", || two.rings().hosts == (0, 0));
    }
}

#[test]
fn without_rings_at_one_end_all_goes_by_the_engine() {
    let domain = domain();
    let one = Participant::start(&Settings { rings: false, ..alone("one", &domain) }).unwrap();
    let settings = Settings { connect: one.listen().to_vec(), ..alone("two", &domain) };
    let two = Participant::start(&settings).unwrap();
    let (source, joined) = (open(&one, "c"), open(&two, "c"));
    let (back, answers) = (open(&two, "d"), open(&one, "d"));
    let (mut there, mut here) = (sink(&joined), sink(&answers));
    wanted(&source, 1);
    wanted(&back, 1);
    for number in 0..300 {
        assert_eq!((send(&source, number), send(&back, number)), (1, 1));
        assert_eq!((next(&mut there), next(&mut here)), (number, number));
    }
    assert_eq!((one.rings(), two.rings()), (Rings::default(), Rings::default()));
}

#[test]
fn a_stopped_reader_loses_its_own_and_holds_up_nobody() {
    let domain = domain();
    let one = Participant::start(&alone("one", &domain)).unwrap();
    let connect = one.listen().to_vec();
    let other =
        |name| Participant::start(&Settings { connect: connect.clone(), ..alone(name, &domain) });
    let (quick, slow) = (other("quick").unwrap(), other("slow").unwrap());
    let source = open(&one, "c");
    let (at_quick, at_slow) = (open(&quick, "c"), open(&slow, "c"));
    let (mut taken, mut other) = (sink(&at_quick), sink(&at_slow));
    wanted(&source, 2);
    let first = through_rings(&one, &source, &mut [&mut taken, &mut other], 0);
    // A direct callback that does not return blocks its host's reading.
    let (go_on, gate) = std::sync::mpsc::channel::<()>();
    let wish = Subscription { bound: 4, overflow: Overflow::DropOldest, filter: None };
    let mut is_held = true;
    let held = at_slow.on_event_direct(wish, move |_| {
        if std::mem::take(&mut is_held) {
            let _ = gate.recv_timeout(TIMEOUT);
        }
    });
    let mut got = 0;
    for sent in 0..30_000 {
        assert_eq!(send(&source, first + sent), 2);
        // A busy machine may keep the quick one's thread from its ring: the
        // sender waits for it, so that only the slow one's ring can be full.
        until("the quick one follows", || {
            while taken.try_take().is_some() {
                got += 1;
            }
            sent - got < 500
        });
    }
    let rings = one.rings();
    assert!(rings.dropped > 0, "its ring is full: {rings:?}");
    // The list names the host.
    let listed = one.list(Duration::ZERO);
    let (_, here) = listed.iter().find(|(host, _)| host == one.name()).unwrap();
    for member in &here.members {
        let is_slow = member.host.starts_with("slow/");
        assert_eq!(member.lost, if is_slow { rings.dropped } else { 0 }, "{member:?}");
        assert_eq!((member.sent_by, member.received_by), (CarriedBy::Ring, CarriedBy::Zenoh));
    }
    until("the quick one has all", || {
        while taken.try_take().is_some() {
            got += 1;
        }
        got == 30_000
    });
    go_on.send(()).unwrap();
    until("it goes on, and knows what it missed", || slow.rings().missed > 0);
    until("the list tells so", || {
        slow.list(Duration::ZERO).iter().any(|(host, one)| host == slow.name() && one.missed > 0)
    });
    drop(held);
}
