//! A session that is reopened.

use super::*;
use selvedge_control_event::{Attributes, Event, Overflow, Subscription};
use selvedge_tests_wait::until;

/// Two hosts with one open channel; the first is for its source.
fn pair(test: &str, rings: bool) -> (Participant, Participant, ChannelHandle, ChannelHandle) {
    let domain = format!("{test}-{}", std::process::id());
    let settings = Settings { domain, meet: false, rings, ..Settings::default() };
    let one = Participant::start(&settings).unwrap();
    let connect = one.listen().to_vec();
    let two = Participant::start(&Settings { connect, ..settings }).unwrap();
    let format = Format::parse("f", "input { long number; };").unwrap();
    let source = one.open("c", &format, Wake::All).unwrap();
    let joined = two.open("c", &format, Wake::All).unwrap();
    (one, two, source, joined)
}

#[test]
fn a_session_that_is_opened_again_is_the_same_host() {
    let (_one, two, source, joined) = pair("again", true);
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
        assert!(!core.carrier.is_disconnected(now), "somebody is connected");
        let zenoh_config = (core.configure)().expect("there is somebody to connect to");
        core.carrier.reopen(now, &zenoh_config);
    });
    // Reliable events are published while the sink is away, to the same host as before.
    for number in 1..50 {
        send(number);
    }
    for number in 1..50_i64 {
        let event = sink.take(Some(Duration::from_secs(60))).expect("nothing is lost");
        assert_eq!(event.record, number.to_le_bytes());
    }
    until("it is a member again", || source.members() == [name.clone()]);
}

#[test]
fn what_waits_to_go_together_goes_by_itself_in_order_and_once() {
    let (one, _two, source, joined) = pair("together", false);
    let wish = Subscription { bound: 4096, overflow: Overflow::DropOldest, filter: None };
    let got = Arc::new(std::sync::Mutex::new(Vec::<i64>::new()));
    let into = Arc::clone(&got);
    let sink = joined.on_event_direct(wish, move |event| {
        let number = i64::from_le_bytes(event.record[..].try_into().unwrap());
        into.lock().unwrap().push(number);
    });
    let sink = sink.unwrap();
    let wanted = || source.view(|v| v.members.iter().filter(|one| one.wants).count());
    until("it is a member", || wanted() == Some(1));
    one.shared.with(|core, _| core.carrier.take_for_fast());
    let (mut sent, mut waited) = (0, 0);
    // Batches may have been sent before this check, but hardly every time.
    for burst in 0..4000 {
        if burst >= 40 && waited > 0 {
            break;
        }
        for number in 0..200 {
            let record = i64::to_le_bytes(sent);
            let event =
                Event { deadline: None, attributes: Attributes::default(), record: &record };
            // Now and then an event that must not overtake the waiting batches.
            let done = if burst % 2 == 1 && number % 50 == 49 {
                source.publish_reliably(event)
            } else {
                source.publish(event)
            };
            assert_eq!(done, Ok((0, 1)));
            sent += 1;
        }
        waited += usize::from(one.shared.with(|core, _| core.carrier.has_waiting()));
        // No later event sends them along, and too few wait to go at once.
        until("the last of the burst", || got.lock().unwrap().last() == Some(&(sent - 1)));
    }
    assert!(waited > 0, "no burst was fast enough to wait");
    assert_eq!(*got.lock().unwrap(), (0..sent).collect::<Vec<_>>());
    assert_eq!(sink.sink_counts().delivered, sent as u64);
    assert!(!one.shared.with(|core, _| core.carrier.has_waiting()));
}
