//! A session that is opened again.

use super::*;
use selvedge_event::{Attributes, Event, Overflow, Subscription};

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Time::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Time::now() < end, "waited in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

#[test]
fn a_session_that_is_opened_again_is_the_same_host() {
    let domain = format!("again-{}", std::process::id());
    let settings = Settings { domain, meet: false, ..Settings::default() };
    let one = Host::start(&settings).unwrap();
    let connect = one.listen().to_vec();
    let two = Host::start(&Settings { connect, ..settings }).unwrap();
    let format = Format::parse("f", "input { long number; };").unwrap();
    let source = one.open("c", &format, Wake::All).unwrap();
    let joined = two.open("c", &format, Wake::All).unwrap();
    let wish = Subscription { bound: 100, overflow: Overflow::Block, filter: None };
    let mut sink = joined.subscribe(wish).unwrap();
    let wanted = || source.view(|v| v.members.iter().filter(|one| one.wants).count());
    until("it is a member", || wanted() == Some(1));
    let send = |number: i64| {
        let record = number.to_le_bytes();
        let event = Event { deadline: None, attributes: Attributes::default(), record: &record };
        source.publish_reliably(event).unwrap();
    };
    send(0);
    assert!(sink.take(Some(Duration::from_secs(60))).is_some());
    let name = two.name().clone();
    two.shared.with(|core, now| {
        assert!(!core.carrier.is_stuck(now), "somebody is connected");
        let said = (core.configure)().expect("there is somebody to connect to");
        core.carrier.reopen(now, &said);
    });
    // Promised while it is away, to the same host as before.
    for number in 1..50 {
        send(number);
    }
    for number in 1..50_i64 {
        let event = sink.take(Some(Duration::from_secs(60))).expect("nothing is lost");
        assert_eq!(event.record, number.to_le_bytes());
    }
    until("it is a member again", || source.members() == [name.clone()]);
}
