//! Hosts over real sessions on the loopback: they meet, exchange events, and notice departures.

mod wait;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake as TaskWake, Waker};

use futures_core::Stream;
use selvedge_comm_event::{ChannelHandle, Participant, Role, Settings, Sink};
use selvedge_control_event::{
    Attributes, AttributesBuf, Event, Format, NoticeKind, Overflow, Subscription, Value, Wake,
};
use selvedge_units::Duration;
use wait::{TIMEOUT, alone, domain, pair, until};

const FORMAT: &str = "input { long number; };";

fn format() -> Format {
    Format::parse("f", FORMAT).unwrap()
}

fn open(host: &Participant, name: &str) -> ChannelHandle {
    host.open(name, &format(), Wake::All).unwrap()
}

fn all(joined: &ChannelHandle, bound: usize) -> Sink {
    joined.subscribe(Subscription { bound, overflow: Overflow::Block, filter: None }).unwrap()
}

fn event(record: &[u8]) -> Event<'_> {
    Event { deadline: None, attributes: Attributes::default(), record }
}

/// Waits until both hosts know that the other wants events.
fn connected(one: &ChannelHandle, hosts: usize) {
    until("members want events", || {
        one.view(|view| view.members.iter().filter(|member| member.wants).count()) == Some(hosts)
    });
}

#[test]
fn two_programs_that_share_a_name_meet() {
    // They find each other as programs of one user do.
    let settings = Settings { domain: domain(), ..Settings::default() };
    let (one, two) =
        (Participant::start(&settings).unwrap(), Participant::start(&settings).unwrap());
    let (source, sink) = (open(&one, "a/b"), open(&two, "a/b"));
    let mut sink = all(&sink, 10);
    connected(&source, 1);
    let mut attributes = AttributesBuf::default();
    attributes.add("load", Value::Double(0.5)).unwrap();
    let deadline = Some(one.now() + Duration::from_secs(60));
    let record = 7_i64.to_le_bytes();
    let sent = Event { deadline, attributes: attributes.as_attributes(), record: &record };
    assert_eq!(source.publish(sent).unwrap(), (0, 1));
    let got = sink.take(Some(TIMEOUT.into())).unwrap();
    assert_eq!(
        (&*got.record, got.attributes().get("load")),
        (&record[..], Some(Value::Double(0.5)))
    );
    // No clock is shared: the event carries the time that is left.
    let left = got.deadline.unwrap().since(two.now());
    assert!(left > Duration::from_secs(1) && left <= Duration::from_secs(60), "{left}");
    // A third host comes late and the first two leave: the rest do not depend on them.
    drop((source, one));
    let three = Participant::start(&settings).unwrap();
    let source = open(&three, "a/b");
    connected(&source, 1);
    assert_eq!(source.members(), [two.name().clone()]);
    source.publish(event(&record)).unwrap();
    assert!(sink.take(Some(TIMEOUT.into())).is_some());
}

#[test]
fn events_come_by_waiting_by_callback_and_as_a_stream() {
    struct Count(AtomicU64);
    impl TaskWake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (one, two) = pair();
    let (source, joined) = (open(&one, "c"), open(&two, "c"));
    let mut waits = all(&joined, 100);
    let mut stream = pin!(all(&joined, 100));
    let called = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&called);
    let wish = Subscription { bound: 100, overflow: Overflow::DropOldest, filter: None };
    let callback = joined.on_event(wish, move |event| {
        sum.fetch_add(u64::from(event.record[0]), Ordering::SeqCst);
    });
    let count = Arc::new(Count(AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    assert!(stream.as_mut().poll_next(&mut context).is_pending());
    assert_eq!(waits.take(Some(Duration::from_millis(10))), None);
    connected(&source, 1);
    for number in 1..=3_i64 {
        source.publish(event(&number.to_le_bytes())).unwrap();
    }
    for number in 1..=3 {
        assert_eq!(waits.take(Some(TIMEOUT.into())).unwrap().record[0], number);
    }
    until("called", || called.load(Ordering::SeqCst) == 6);
    until("woken", || count.0.load(Ordering::SeqCst) > 0);
    let mut got = 0;
    while let Poll::Ready(Some(event)) = stream.as_mut().poll_next(&mut context) {
        got += event.record[0];
    }
    assert_eq!(got, 6);
    drop(callback);
    // Each sink has its own counts.
    assert_eq!(waits.sink_counts().delivered, 3);
}

#[test]
fn reliable_events_wait_for_a_slow_sink_alone() {
    let (one, two) = pair();
    let (source, joined) = (open(&one, "r"), open(&two, "r"));
    let mut slow = all(&joined, 4);
    connected(&source, 1);
    const COUNT: i64 = 2000;
    for number in 0..COUNT {
        assert_eq!(source.publish_reliably(event(&number.to_le_bytes())).unwrap(), (0, 1));
    }
    // Another channel of the same two hosts is not held up.
    let (other, quick) = (open(&one, "q"), open(&two, "q"));
    let mut quick = all(&quick, 4);
    connected(&other, 1);
    other.publish(event(&[9; 8])).unwrap();
    assert!(quick.take(Some(TIMEOUT.into())).is_some());
    assert!(source.view(|view| view.held).unwrap() > COUNT as usize / 2);
    for number in 0..COUNT {
        let got = slow.take(Some(TIMEOUT.into())).unwrap_or_else(|| panic!("{number} is missing"));
        assert_eq!(got.record, number.to_le_bytes());
    }
    until("all is acknowledged", || source.view(|view| view.held) == Some(0));
}

#[test]
fn a_function_that_is_called_at_once_may_publish() {
    let (one, two) = pair();
    let (ping, echo) = (open(&one, "ping"), open(&two, "ping"));
    let (pong, answers) = (open(&two, "pong"), open(&one, "pong"));
    let mut answers = all(&answers, 100);
    connected(&pong, 1);
    let wish = |bound| Subscription { bound, overflow: Overflow::Block, filter: None };
    let back = pong.clone();
    let echo = echo.on_event_direct(wish(100), move |event| {
        back.publish(event.event()).unwrap();
    });
    let echo = echo.unwrap();
    connected(&ping, 1);
    for number in 0..100_i64 {
        ping.publish(event(&number.to_le_bytes())).unwrap();
        assert_eq!(answers.take(Some(TIMEOUT.into())).unwrap().record, number.to_le_bytes());
    }
    assert_eq!(echo.sink_counts().delivered, 100);
    // On one host the handler calls itself: ten times, not for ever, and without a deadlock.
    let own = open(&one, "own");
    let (again, sum) = (own.clone(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&sum);
    let itself = own.on_event_direct(wish(4), move |got| {
        counted.fetch_add(1, Ordering::SeqCst);
        if got.record[0] < 10 {
            again.publish(event(&[got.record[0] + 1; 8])).unwrap();
        }
    });
    let itself = itself.unwrap();
    own.publish(event(&[1; 8])).unwrap();
    assert_eq!(sum.load(Ordering::SeqCst), 10);
    drop((echo, itself));
    ping.publish(event(&[0; 8])).unwrap();
    assert_eq!(own.publish(event(&[1; 8])).unwrap(), (0, 0));
}

#[test]
fn leaving_is_told_and_names_can_be_used_again() {
    let (one, two) = pair();
    let notices = one.notices();
    let source = open(&one, "l");
    for _ in 0..3 {
        let joined = open(&two, "l");
        let sink = all(&joined, 4);
        let told = notices.take(TIMEOUT.into()).unwrap();
        assert_eq!((told.channel.as_str(), told.kind), ("l", NoticeKind::Joined));
        assert_eq!(told.host.as_ref(), Some(two.name()));
        drop(joined.clone());
        drop(joined);
        // The sink keeps the channel open.
        connected(&source, 1);
        drop(sink);
        assert_eq!(notices.take(TIMEOUT.into()).unwrap().kind, NoticeKind::Left);
        assert_eq!(source.members(), []);
    }
    // A process that ends in order is also noticed at once.
    let _joined = open(&two, "l");
    assert_eq!(notices.take(TIMEOUT.into()).unwrap().kind, NoticeKind::Joined);
    drop((_joined, two));
    assert!(matches!(
        notices.take(TIMEOUT.into()).unwrap().kind,
        NoticeKind::Left | NoticeKind::Lost
    ));
}

#[test]
fn lists_show_all_hosts() {
    let (one, two) = pair();
    let (_a, b) = (open(&one, "a"), open(&two, "b"));
    let _sink = all(&b, 4);
    b.publish(event(&[0; 8])).unwrap();
    let mut found = Vec::new();
    until("both are listed", || {
        let list = one.list(TIMEOUT.into());
        found = list.iter().map(|(host, one)| (host.clone(), one.channel.clone())).collect();
        if let Some((_, b)) = list.iter().find(|(_, listing)| listing.channel == "b") {
            assert_eq!(
                (b.published, b.sinks.len(), &*b.format_text),
                (1, 1, "input { long number; };\n")
            );
        }
        found.len() == 2
    });
    assert_eq!(found[0], (one.name().clone(), "a".to_owned()));
    assert_eq!(found[1], (two.name().clone(), "b".to_owned()));
}

#[test]
fn clients_of_a_router_are_members_of_each_others_channels() {
    let domain = domain();
    let router =
        Participant::start(&Settings { role: Role::Router, ..alone("router", &domain) }).unwrap();
    let client = |name: &str| {
        let connect = router.listen().to_vec();
        let settings = Settings { role: Role::Client, connect, ..alone(name, &domain) };
        let host = Participant::start(&settings).unwrap();
        assert!(host.listen().is_empty(), "nobody connects to a client");
        host
    };
    let (one, two, three) = (client("one"), client("two"), client("three"));
    // The router forwards channels that it has not open itself.
    let source = open(&one, "c");
    let (second, third) = (open(&two, "c"), open(&three, "c"));
    let mut sinks = [all(&second, 300), all(&third, 300)];
    connected(&source, 2);
    for number in 0..300_i64 {
        assert_eq!(source.publish_reliably(event(&number.to_le_bytes())).unwrap(), (0, 2));
    }
    for sink in &mut sinks {
        for number in 0..300_i64 {
            let got = sink.take(Some(TIMEOUT.into())).expect("nothing that was promised is lost");
            assert_eq!(got.record, number.to_le_bytes());
        }
    }
    // A departure is noticed through the router, too.
    let left = two.name().clone();
    drop((sinks, second, two));
    until("it is gone", || !source.members().contains(&left));
    assert_eq!(source.members(), [three.name().clone()]);
}
