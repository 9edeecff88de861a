//! The manager on connections that change their behaviour.

use selvedge_units::{Bytes, Duration, Instant};

use super::{
    Detail, Event, Manager, ManagerSettings, Monitor, Policer, PolicingError, TrafficSample,
    Violation,
};
use crate::assign::{Goal, Phase};
use crate::contract::{Contract, Promise, Quality, Traffic};
use crate::elements::ElementSet;
use crate::model::{Cost, Machine, Overheads, Stream, StreamId};

fn us(n: u64) -> Duration {
    Duration(n * 1_000)
}

fn at_ms(n: u64) -> Instant {
    Instant(n * 1_000_000)
}

/// A stream of one module, 100 us a message and 100 us a kilobyte.
fn stream(every: u64, bytes: u64, delay: u64) -> Stream {
    let traffic = Traffic::steady(us(every), Bytes(bytes));
    let quality = Quality { delay: us(delay), loss_burst: 0, promise: Promise::Wanted };
    Stream::new(Contract { traffic, quality }, vec![Cost::plain(us(100), us(100))])
}

fn manager(elements: usize, meta: ManagerSettings) -> Manager {
    Manager::new(Machine::whole(elements, Overheads::default()), meta, Instant::ZERO)
}

/// The observed traffic of a stream that sends a message of this size each `every` microseconds.
fn seen(meta: &ManagerSettings, every: u64, bytes: u64, latency: u64) -> TrafficSample {
    let messages = meta.sampling.0 / us(every).0;
    TrafficSample {
        messages,
        bytes: Bytes(bytes * messages),
        largest: Bytes(bytes),
        closest: Some(us(every)),
        left: messages,
        latency: us(latency),
        latency_max: us(latency),
        late: 0,
    }
}

/// Samples until the given millisecond and returns the events with the times of their samples.
fn watch(
    manager: &mut Manager,
    until: u64,
    mut samples: impl FnMut(StreamId) -> TrafficSample,
) -> Vec<(Instant, Event)> {
    let mut all = Vec::new();
    while manager.next_sample() <= at_ms(until) {
        let (now, mut events) = (manager.next_sample(), Vec::new());
        manager.sample(now, &mut samples, &mut events);
        all.extend(events.into_iter().map(|event| (now, event)));
    }
    all
}

#[test]
fn it_reacts_within_activation_delay_and_a_sampling_period() {
    for (sampling, activation) in [(100, 500), (50, 120), (10, 0), (100, 1000)] {
        let meta = ManagerSettings {
            sampling: Duration::from_millis(sampling),
            activation: Duration::from_millis(activation),
            ..ManagerSettings::default()
        };
        let mut manager = manager(2, meta);
        let (a, _) = manager.open(stream(1000, 1024, 1000)).unwrap();
        assert_eq!(watch(&mut manager, 1000, |_| seen(&meta, 1000, 1024, 200)), []);
        // From here on the stream sends four times as often, and one element no longer suffices.
        let onset = manager.next_sample() - meta.sampling;
        let events = watch(&mut manager, 4000, |_| seen(&meta, 250, 2048, 200));
        let moved = events.iter().find(|(_, event)| matches!(event, Event::Reassigned { .. }));
        let (at, event) = moved.expect("it is spread");
        assert!(at.since(onset) <= meta.activation + meta.sampling, "{at:?} after {onset:?}");
        assert_eq!(
            *event,
            Event::Reassigned { stream: a, phase: Phase::PartlyParallel, moved: vec![a] }
        );
        assert_eq!(manager.streams()[a.0].elements(), ElementSet::first(2));
    }
}

#[test]
fn a_short_excess_is_let_be() {
    let meta = ManagerSettings::default();
    let mut manager = manager(2, meta);
    let _ = manager.open(stream(1000, 1024, 1000)).unwrap();
    let mut looks = 0;
    let events = watch(&mut manager, 3000, |_| {
        looks += 1;
        // Four bad periods, then a good one, repeatedly.
        if looks % 5 == 0 { seen(&meta, 1000, 1024, 100) } else { seen(&meta, 500, 4096, 100) }
    });
    assert!(events.iter().all(|(_, event)| matches!(event, Event::Violated { .. })), "{events:?}");
    assert_eq!(events.len(), 6, "told once in each excess");
}

#[test]
fn what_fits_nowhere_is_policed_until_it_behaves() {
    let meta = ManagerSettings::default();
    let mut manager = manager(1, meta);
    let (a, _) = manager.open(stream(1000, 1024, 1000)).unwrap();
    let events = watch(&mut manager, 1000, |_| seen(&meta, 100, 1024, 100));
    assert!(matches!(events[0].1, Event::Violated { what: Violation::Rate { .. }, .. }));
    assert!(matches!(events[1].1, Event::Policed { stream, .. } if stream == a));
    assert_eq!(events.len(), 2);
    assert_eq!(manager.admit(a, at_ms(2000), Bytes(100)), Ok(()));
    assert_eq!(manager.admit(a, at_ms(2000), Bytes(100)), Err(PolicingError::TooSoon(at_ms(2001))));
    assert!(manager.granted(a).unwrap().policed);
    let events = watch(&mut manager, 3000, |_| seen(&meta, 1000, 1024, 100));
    assert_eq!(
        events.iter().map(|(_, event)| event).collect::<Vec<_>>(),
        [&Event::Released { stream: a }]
    );
    assert_eq!(manager.admit(a, at_ms(3000), Bytes(1 << 19)), Ok(()));
}

#[test]
fn a_closed_stream_leaves_to_those_that_got_less() {
    let meta = ManagerSettings::default();
    let mut manager = manager(2, meta);
    let (a, _) = manager.open(stream(1000, 1024, 10_000)).unwrap();
    let (b, _) = manager.open(stream(1000, 1024, 10_000)).unwrap();
    let (c, third) = manager.open(stream(1000, 1024, 250)).unwrap();
    assert!(!third.guarantee.delay_kept, "it waits for a's 200 us");
    let mut events = Vec::new();
    manager.close(b, &mut events);
    let moved = Event::Reassigned { stream: c, phase: Phase::Pipelined, moved: vec![c] };
    assert_eq!(events, [moved]);
    assert!(manager.granted(c).unwrap().guarantee.delay_kept);
    assert_eq!(manager.granted(b), None);
    let _ = a;
    // The place is free for the next stream.
    assert_eq!(manager.open(stream(1000, 1024, 10_000)).unwrap().0, b);
}

#[test]
fn requirements_are_renegotiated_or_kept() {
    let mut manager = manager(1, ManagerSettings::default());
    let (a, _) = manager.open(stream(1000, 1024, 1000)).unwrap();
    let before = manager.streams()[0].contract;
    let mut events = Vec::new();
    let more = Contract { traffic: Traffic::steady(us(190), Bytes(1024)), ..before };
    let refusal = manager.renegotiate(a, more, &mut events).unwrap_err();
    assert!(refusal.to_string().starts_with("PE.0 would need 105.3 %"), "{refusal}");
    assert_eq!(manager.streams()[0].contract, before);
    let less = Contract { traffic: Traffic::steady(us(250), Bytes(1024)), ..before };
    assert_eq!(manager.renegotiate(a, less, &mut events).unwrap().departure_interval, us(200));
    assert!(
        manager
            .renegotiate(StreamId(7), less, &mut events)
            .unwrap_err()
            .to_string()
            .contains("stream 7")
    );
}

#[test]
fn meta_control_changes_while_it_runs() {
    let slow =
        ManagerSettings { activation: Duration::from_secs(100), ..ManagerSettings::default() };
    let mut manager = manager(2, slow);
    let (a, _) = manager.open(stream(1000, 1024, 1000)).unwrap();
    let events = watch(&mut manager, 2000, |_| seen(&slow, 250, 2048, 100));
    assert_eq!(events.len(), 1, "only told");
    let fast = ManagerSettings { activation: Duration::ZERO, goal: Goal::Bandwidth, ..slow };
    manager.set(fast);
    let events = watch(&mut manager, 2100, |_| seen(&fast, 250, 2048, 100));
    assert!(matches!(events[..], [(_, Event::Reassigned { stream, .. })] if stream == a));
}

/// One stream is sampled often and acted upon at once; the other one, whose traffic is as wrong, as the manager's settings say.
#[test]
fn a_stream_may_have_settings_of_its_own() {
    let slow =
        ManagerSettings { activation: Duration::from_secs(100), ..ManagerSettings::default() };
    let fast =
        ManagerSettings { activation: Duration::ZERO, sampling: Duration::from_millis(10), ..slow };
    let mut manager = manager(2, slow);
    let [a, b] = [(); 2].map(|()| manager.open(stream(1000, 1024, 1000)).unwrap().0);
    manager.set_own(b, Some(fast));
    assert_eq!((manager.settings(a), manager.settings(b)), (slow, fast));
    let mut samples = [0; 2];
    let events = watch(&mut manager, 1000, |id| {
        samples[id.0] += 1;
        seen(if id == a { &slow } else { &fast }, 250, 2048, 100)
    });
    assert_eq!(samples, [10, 100]);
    let acted = |id: StreamId| {
        let is_own =
            |event: &Event| matches!(event, Event::Policed { stream, .. } if *stream == id);
        events.iter().find(|(_, event)| is_own(event)).map(|(at, _)| *at)
    };
    assert_eq!((acted(a), acted(b)), (None, Some(at_ms(10))), "{events:?}");
    manager.set_own(b, None);
    assert_eq!(manager.settings(b), slow);
    let mut events = Vec::new();
    manager.close(b, &mut events);
    manager.set_own(b, Some(fast));
    let (again, _) = manager.open(stream(1000, 1024, 1000)).unwrap();
    assert_eq!((again, manager.settings(again)), (b, slow), "a new stream has those of all");
}

#[test]
fn the_policer_lets_a_burst_pass_and_no_more() {
    let traffic = Traffic { interval: us(3000), ..Traffic::steady(us(1000), Bytes(100)) };
    let mut policer = Policer::new(traffic);
    let passed = (0..10).filter(|_| policer.admit(at_ms(50), Bytes(100)).is_ok()).count();
    assert_eq!(passed, 3);
    let long =
        (0..10_000).filter(|n| policer.admit(Instant(60_000_000 + n * 100_000), Bytes(1)).is_ok());
    assert_eq!(long.count(), 1000 + 2);
    let large = policer.admit(at_ms(9000), Bytes(101)).unwrap_err();
    assert!(large.to_string().starts_with("a message of 101 B, the contract allows 100 B"));
}

#[test]
fn a_monitor_counts_what_passes() {
    let monitor: Monitor = Monitor::default();
    for (at, size) in [(1, 10), (4, 30), (5, 20)] {
        monitor.arrived(at_ms(at), Bytes(size));
        monitor.left(us(size));
    }
    let taken = monitor.take();
    assert_eq!((taken.messages, taken.bytes, taken.largest), (3, Bytes(60), Bytes(30)));
    assert_eq!(
        (taken.closest, taken.latency, taken.latency_max),
        (Some(Duration::from_millis(1)), us(20), us(30))
    );
    assert_eq!(monitor.take(), TrafficSample::default());
    monitor.watch(Detail::Traffic);
    monitor.arrived(at_ms(6), Bytes(1));
    monitor.left(us(1));
    assert_eq!((monitor.take().left, monitor.take().messages), (0, 0));
}

/// A stream with a firm delay and a manager with one element, which no other assignment can improve.
fn firm(elements: usize) -> (Manager, StreamId) {
    let mut manager = manager(elements, ManagerSettings::default());
    let mut stream = stream(1000, 1024, 1000);
    stream.contract.quality.promise = Promise::Firm;
    let (id, _) = manager.open(stream).unwrap();
    (manager, id)
}

#[test]
fn a_firm_delay_that_is_measured_as_broken_keeps_newcomers_out_until_it_is_kept() {
    let (mut manager, id) = firm(1);
    let meta = manager.meta();
    let late = |late| TrafficSample { late, latency_max: us(5000), ..seen(&meta, 1000, 1024, 150) };
    // One of a thousand may be late, and ten at once.
    assert_eq!(watch(&mut manager, 1000, |_| late(0)), []);
    assert_eq!(watch(&mut manager, 1100, |_| late(10)), []);
    assert!(manager.open(stream(10_000, 100, 1000)).is_ok());
    let events =
        watch(&mut manager, 3000, |who| if who == id { late(20) } else { Default::default() });
    let granted = manager.granted(id).unwrap().guarantee.latency;
    let what = Violation::Late { longest: us(5000), granted };
    let events: Vec<_> = events.into_iter().map(|(_, event)| event).collect();
    assert_eq!(
        events,
        [Event::Violated { stream: id, what }, Event::Broken { stream: id, what }],
        "said once"
    );
    let refused = manager.open(stream(10_000, 100, 1000)).unwrap_err().to_string();
    assert!(refused.contains("stream 0 is measured as broken"), "{refused}");
    assert!(events[1].to_string().contains("takes no new connection"), "{}", events[1]);
    // 20,000 messages on time.
    let calm = |who| if who == id { late(0) } else { TrafficSample::default() };
    let events = watch(&mut manager, 24_000, calm);
    assert_eq!(
        events.iter().map(|(_, event)| event).collect::<Vec<_>>(),
        [&Event::Mended { stream: id }]
    );
    assert!(manager.open(stream(10_000, 100, 1000)).is_ok());
}

#[test]
fn a_broken_firm_delay_is_assigned_anew_where_that_helps() {
    let (mut manager, first) = firm(2);
    // The second shares the first one's element by hand, which the model knows to be worse.
    let mut other = stream(1000, 1024, 100_000);
    other.contract.traffic.interval = us(1000);
    let (second, _) = manager.open(other).unwrap();
    let set = manager.streams()[first.0].assigned[0];
    manager.pin(second, 0, set, &mut Vec::new()).unwrap();
    let meta = manager.meta();
    let late = TrafficSample { late: 20, latency_max: us(900), ..seen(&meta, 1000, 1024, 150) };
    let events =
        watch(&mut manager, 900, |who| if who == first { late } else { Default::default() });
    let moved = events
        .iter()
        .any(|(_, event)| matches!(event, Event::Reassigned { stream, .. } if *stream == first));
    assert!(moved, "{events:?}");
    assert!(!events.iter().any(|(_, event)| matches!(event, Event::Broken { .. })), "{events:?}");
}

#[test]
fn delays_are_measured_from_the_beginning_and_judged_by_what_is_granted() {
    let monitor: Monitor = Monitor::default();
    monitor.left(us(5));
    monitor.grant(us(100));
    (0..98).for_each(|_| monitor.left(us(50)));
    assert_eq!(monitor.take().late, 0);
    monitor.left(us(500));
    let measured = monitor.measured();
    assert_eq!((measured.messages, measured.late, measured.worst), (100, 1, us(500)));
    assert!(measured.mean > us(53) && measured.mean < us(56), "{:?}", measured.mean);
    assert!(measured.p99 >= us(49) && measured.p99 <= us(51), "{:?}", measured.p99);
    assert_eq!((monitor.take().late, monitor.take().late), (1, 0));
}

#[test]
fn a_module_that_is_placed_by_hand_stays_until_it_is_freed() {
    let (mut manager, first) = firm(2);
    let (second, _) = manager.open(stream(1000, 1024, 100_000)).unwrap();
    let [set, own] = [first, second].map(|id| manager.streams()[id.0].assigned[0]);
    assert_ne!(set, own);
    let mut events = Vec::new();
    manager.pin(second, 0, set, &mut events).unwrap();
    let moved = Event::Reassigned { stream: second, phase: Phase::Pinned, moved: vec![second] };
    assert_eq!((manager.streams()[second.0].assigned[0], events.pop()), (set, Some(moved)));
    for (module, elements) in [(1, set), (0, ElementSet(4))] {
        let refused = manager.pin(second, module, elements, &mut events).unwrap_err();
        assert!(refused.to_string().starts_with("there is no module"), "{refused}");
    }
    assert_eq!(manager.streams()[second.0].assigned[0], set);
    manager.pin(second, 0, ElementSet::EMPTY, &mut events).unwrap();
    assert_eq!(manager.streams()[second.0].assigned[0], own, "the heuristic decides again");
    // A place that would break a firm delay is refused.
    manager.close(second, &mut events);
    let mut heavy = stream(1000, 8 << 10, 100_000);
    heavy.contract.traffic.interval = us(1000);
    let (third, _) = manager.open(heavy).unwrap();
    assert!(manager.pin(third, 0, set, &mut events).is_err());
}
