//! Channels in virtual time: order by deadline, bounds, filters, and isolation between sinks.

use proptest::prelude::*;
use selvedge_control_code::Interpreted;
use selvedge_control_event::{
    Attributes, AttributesBuf, Channel, Event, Filter, Format, Overflow, PublishError, SINKS_MAX,
    SharedBlocks, SinkCounts, SinkId, SubscribeError, Subscription, Value, Wake, program,
};
use selvedge_units::{Duration, Instant};

const FORMAT: &str = "input { long number; };";

fn channel(wake: Wake) -> Channel {
    Channel::new("load", Format::parse("load", FORMAT).unwrap(), wake)
}

fn plain(bound: usize, overflow: Overflow) -> Subscription {
    Subscription { bound, overflow, filter: None }
}

fn filter(channel: &Channel, source: &str, blocks: &mut SharedBlocks) -> Filter {
    let program = program("filter", source, channel.format()).unwrap_or_else(|e| panic!("{e}"));
    Filter::new(Box::new(Interpreted::new(program)), "shared", blocks).unwrap()
}

fn send(
    channel: &mut Channel,
    now: u64,
    number: i64,
    deadline: Option<u64>,
    blocks: &mut SharedBlocks,
) -> Result<usize, PublishError> {
    let record = number.to_le_bytes();
    let deadline = deadline.map(Instant);
    let event = Event { deadline, attributes: Attributes::default(), record: &record };
    channel.publish(Instant(now), event, blocks)
}

/// Takes all events that a sink can get now.
fn take(channel: &mut Channel, now: u64, sink: SinkId) -> Vec<i64> {
    let mut got = Vec::new();
    while let Some(delivery) = channel.poll_sink(Instant(now), sink) {
        assert_eq!(delivery.sink, sink);
        got.push(i64::from_le_bytes(delivery.event.record.try_into().unwrap()));
    }
    got
}

#[test]
fn the_earliest_deadline_goes_first_and_expired_events_are_dropped() {
    let (mut channel, mut blocks) = (channel(Wake::All), SharedBlocks::default());
    let first = channel.subscribe(plain(10, Overflow::DropOldest)).unwrap();
    let second = channel.subscribe(plain(10, Overflow::DropOldest)).unwrap();
    for (number, deadline) in [(1, None), (2, Some(90)), (3, Some(50)), (4, Some(10)), (5, None)] {
        assert_eq!(send(&mut channel, 0, number, deadline, &mut blocks), Ok(2));
    }
    // At 10 the fourth event is just in time; at 11 it is late.
    assert_eq!(take(&mut channel, 10, first), [4, 3, 2, 1, 5]);
    assert_eq!(take(&mut channel, 11, second), [3, 2, 1, 5]);
    let sink_counts = channel.sink_counts(second).unwrap();
    assert_eq!(sink_counts, SinkCounts { delivered: 4, expired: 1, ..SinkCounts::default() });
    // The same among all sinks.
    send(&mut channel, 20, 6, None, &mut blocks).unwrap();
    send(&mut channel, 20, 7, Some(30), &mut blocks).unwrap();
    let mut order = Vec::new();
    while let Some(delivery) = channel.poll(Instant(20)) {
        order.push((delivery.event.record[0], delivery.sink));
    }
    assert_eq!(order, [(7, first), (7, second), (6, first), (6, second)]);
}

#[test]
fn full_queues_do_as_they_are_named() {
    for (overflow, kept) in [
        (Overflow::DropOldest, vec![3, 4, 5]),
        (Overflow::DropNewest, vec![1, 2, 3]),
        (Overflow::Latest, vec![5]),
    ] {
        let (mut channel, mut blocks) = (channel(Wake::All), SharedBlocks::default());
        let slow = channel.subscribe(plain(3, overflow)).unwrap();
        let quick = channel.subscribe(plain(3, Overflow::DropOldest)).unwrap();
        for number in 1..=5 {
            send(&mut channel, 0, number, None, &mut blocks).unwrap();
            // The quick sink loses nothing, whatever the slow one does.
            assert_eq!(take(&mut channel, 0, quick), [number]);
        }
        assert_eq!(take(&mut channel, 0, slow), kept, "{overflow:?}");
        let sink_counts = channel.sink_counts(slow).unwrap();
        assert_eq!(sink_counts.delivered + sink_counts.overflowed, 5, "{overflow:?}");
    }
}

#[test]
fn a_blocking_sink_holds_its_source_and_nothing_is_half_done() {
    let (mut channel, mut blocks) = (channel(Wake::All), SharedBlocks::default());
    let other = channel.subscribe(plain(9, Overflow::DropOldest)).unwrap();
    let slow = channel.subscribe(plain(1, Overflow::Block)).unwrap();
    assert_eq!(send(&mut channel, 0, 1, None, &mut blocks), Ok(2));
    assert_eq!(send(&mut channel, 0, 2, None, &mut blocks), Err(PublishError::Blocked(slow)));
    assert_eq!(take(&mut channel, 0, other), [1]);
    assert_eq!(take(&mut channel, 0, slow), [1]);
    assert_eq!(send(&mut channel, 0, 2, None, &mut blocks), Ok(2));
    let sink_counts = channel.leave(slow).unwrap();
    assert_eq!((sink_counts.delivered, sink_counts.overflowed), (1, 0));
    assert_eq!(send(&mut channel, 0, 3, None, &mut blocks), Ok(1));
    assert_eq!(take(&mut channel, 0, other), [2, 3]);
    assert!(channel.leave(slow).is_none() && channel.sink_counts(slow).is_none());
    assert!(channel.poll_sink(Instant(0), slow).is_none());
}

#[test]
fn waking_one_goes_round_those_that_have_room() {
    let (mut channel, mut blocks) = (channel(Wake::One), SharedBlocks::default());
    let sinks =
        [2, 1, 2].map(|bound| channel.subscribe(plain(bound, Overflow::DropNewest)).unwrap());
    for number in 0..6 {
        let got = send(&mut channel, 0, number, None, &mut blocks).unwrap();
        assert_eq!(got, usize::from(number < 5), "{number}");
    }
    let all = sinks.map(|sink| take(&mut channel, 0, sink));
    assert_eq!(all, [vec![0, 3], vec![1], vec![2, 4]]);
    // The last event was lost once, and is counted once.
    let lost: u64 = sinks.iter().map(|sink| channel.sink_counts(*sink).unwrap().overflowed).sum();
    assert_eq!(lost, 1);
}

#[test]
fn filters_see_events_and_keep_state() {
    let (mut channel, mut blocks) = (channel(Wake::All), SharedBlocks::default());
    let third = "{ static int n; return input.number > 0 && ++n % 3 == 0; }";
    let every_third = Some(filter(&channel, third, &mut blocks));
    let wish = Subscription { filter: every_third, ..plain(10, Overflow::DropOldest) };
    let sink = channel.subscribe(wish).unwrap();
    let urgent = "{ return event.left >= 0 && event.left < 100; }";
    let urgent = Some(filter(&channel, urgent, &mut blocks));
    let wish = Subscription { filter: urgent, ..plain(10, Overflow::DropOldest) };
    let urgent = channel.subscribe(wish).unwrap();
    for number in -2..=7_i64 {
        let deadline = (number % 2 == 0).then_some(1000 + number.unsigned_abs() * 20);
        send(&mut channel, 1000, number, deadline, &mut blocks).unwrap();
    }
    assert_eq!(take(&mut channel, 1000, sink), [6, 3]);
    assert_eq!(take(&mut channel, 1000, urgent), [0, -2, 2, 4]);
    assert_eq!(channel.sink_counts(sink).unwrap().filtered, 8);
}

#[test]
fn filters_read_attributes_that_they_declare() {
    let (mut channel, mut blocks) = (channel(Wake::All), SharedBlocks::default());
    let source = "attributes { long load; double share; char kind; };
        { return attributes.load > 10 && attributes.share < 0.5 || attributes.kind == 7; }";
    let source = Some(filter(&channel, source, &mut blocks));
    let wish = Subscription { filter: source, ..plain(10, Overflow::DropOldest) };
    let sink = channel.subscribe(wish).unwrap();
    let cases: [&[(&str, Value<'_>)]; 7] = [
        &[],
        &[("load", Value::Long(11))],
        &[("load", Value::Double(11.5)), ("share", Value::Double(0.25)), ("x", Value::Long(1))],
        &[("load", Value::Long(11)), ("share", Value::Long(1))],
        &[("load", Value::Text("11"))],
        &[("kind", Value::Long(7))],
        &[("kind", Value::Long(263))],
    ];
    for (number, attributes) in (0_i64..).zip(cases) {
        let mut all = AttributesBuf::default();
        for (name, value) in attributes {
            all.add(name, *value).unwrap();
        }
        let (record, attributes) = (number.to_le_bytes(), all.as_attributes());
        let event = Event { deadline: None, attributes, record: &record };
        channel.publish(Instant(0), event, &mut blocks).unwrap();
    }
    assert_eq!(take(&mut channel, 0, sink), [1, 2, 5]);
}

#[test]
fn a_channel_filter_chooses_the_least_loaded_sink() {
    let (mut channel, mut blocks) = (channel(Wake::All), SharedBlocks::default());
    let sinks = [(); 3].map(|()| channel.subscribe(plain(10, Overflow::DropOldest)).unwrap());
    let least = "{
        int i, best = 0;
        for (i = 1; i < channel.sinks; i++)
            if (channel.sink[i].waiting < channel.sink[best].waiting) best = i;
        for (i = 0; i < channel.sinks; i++) choice.sink[i] = i == best;
        return 1;
    }";
    let least = filter(&channel, least, &mut blocks);
    channel.set_filter(Some(least));
    for number in 0..4 {
        assert_eq!(send(&mut channel, 0, number, None, &mut blocks), Ok(1));
    }
    assert_eq!(take(&mut channel, 0, sinks[1]), [1]);
    send(&mut channel, 0, 4, None, &mut blocks).unwrap();
    assert_eq!(sinks.map(|sink| take(&mut channel, 0, sink)), [vec![0, 3], vec![4], vec![2]]);
}

#[test]
fn a_control_channels_filter_sets_a_parameter_of_a_data_channels() {
    let mut blocks = SharedBlocks::default();
    let mut control = channel(Wake::All);
    let mut data = channel(Wake::All);
    let set = "shared { long limit; };\n{ shared.limit = input.number; return 0; }";
    let set = filter(&control, set, &mut blocks);
    control.set_filter(Some(set));
    let below = "shared { long limit; };\n{ return input.number < shared.limit; }";
    let below = filter(&data, below, &mut blocks);
    data.set_filter(Some(below));
    let sink = data.subscribe(plain(10, Overflow::DropOldest)).unwrap();
    send(&mut data, 0, 5, None, &mut blocks).unwrap();
    send(&mut control, 0, 6, None, &mut blocks).unwrap();
    send(&mut data, 0, 5, None, &mut blocks).unwrap();
    send(&mut data, 0, 7, None, &mut blocks).unwrap();
    assert_eq!(take(&mut data, 0, sink), [5]);
    assert_eq!(data.sent(), (3, 2));
    assert_eq!(blocks.get("shared"), Some(&6_i64.to_le_bytes()[..]));
    // A filter with another declaration is refused.
    let other = program("x", "shared { int a; };\n{ return 1; }", data.format()).unwrap();
    let refused = Filter::new(Box::new(Interpreted::new(other)), "shared", &mut blocks);
    assert!(refused.unwrap_err().to_string().contains("\"shared\""));
}

#[test]
fn a_filter_that_faults_harms_its_own_sink_only() {
    let (mut channel, mut blocks) = (channel(Wake::All), SharedBlocks::default());
    for source in ["{ while (1); }", "{ static int a[2]; return a[input.number]; }"] {
        let endless = Some(filter(&channel, source, &mut blocks));
        let wish = Subscription { filter: endless, ..plain(10, Overflow::DropOldest) };
        channel.subscribe(wish).unwrap();
    }
    let good = channel.subscribe(plain(10, Overflow::DropOldest)).unwrap();
    for number in 5..9 {
        assert_eq!(send(&mut channel, 0, number, None, &mut blocks), Ok(1));
    }
    assert_eq!(take(&mut channel, 0, good), [5, 6, 7, 8]);
    let mut others = 0;
    while channel.poll(Instant(0)).is_some() {
        others += 1;
    }
    assert_eq!(others, 0);
    // A channel filter with a fault keeps the event from all sinks.
    let endless = filter(&channel, "{ for (;;); }", &mut blocks);
    channel.set_filter(Some(endless));
    assert_eq!(send(&mut channel, 0, 1, None, &mut blocks), Ok(0));
}

#[test]
fn what_is_out_of_range_is_refused() {
    let (mut channel, mut blocks) = (channel(Wake::All), SharedBlocks::default());
    for bound in [0, 4097] {
        let wish = plain(bound, Overflow::DropOldest);
        assert_eq!(channel.subscribe(wish).unwrap_err(), SubscribeError::Bound(bound));
    }
    for _ in 0..SINKS_MAX {
        channel.subscribe(plain(1, Overflow::Latest)).unwrap();
    }
    let more = channel.subscribe(plain(1, Overflow::Latest)).unwrap_err();
    assert_eq!(more, SubscribeError::Full);
    let event = Event { deadline: None, attributes: Attributes::default(), record: &[1; 9] };
    let wrong = channel.publish(Instant(0), event, &mut blocks).unwrap_err();
    assert_eq!(wrong, PublishError::Size { size: 9, wanted: 8 });
}

#[test]
fn attributes_reach_the_sink() {
    let (mut channel, mut blocks) = (channel(Wake::All), SharedBlocks::default());
    let sink = channel.subscribe(plain(1, Overflow::Latest)).unwrap();
    let mut attributes = AttributesBuf::default();
    attributes.add("host", Value::Text("a")).unwrap();
    let attributes = attributes.as_attributes();
    let deadline = Some(Instant(0) + Duration::from_millis(1));
    let event = Event { deadline, attributes, record: &[0; 8] };
    channel.publish(Instant(0), event, &mut blocks).unwrap();
    let delivery = channel.poll_sink(Instant(0), sink).unwrap();
    assert_eq!(delivery.event.attributes.get("host"), Some(Value::Text("a")));
    assert_eq!(delivery.event.deadline, deadline);
}

#[derive(Clone, Debug)]
enum Step {
    Send { deadline: Option<u64> },
    Take { sink: usize },
    Leave { sink: usize },
    Join { bound: usize, overflow: Overflow },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rules = [Overflow::DropOldest, Overflow::DropNewest, Overflow::Latest, Overflow::Block];
    let step = prop_oneof![
        6 => prop::option::of(0..60_u64).prop_map(|deadline| Step::Send { deadline }),
        4 => (0..4_usize).prop_map(|sink| Step::Take { sink }),
        1 => (0..4_usize).prop_map(|sink| Step::Leave { sink }),
        1 => (1..5_usize, prop::sample::select(rules.to_vec()))
            .prop_map(|(bound, overflow)| Step::Join { bound, overflow }),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every event that was offered to a sink has one fate, and none is delivered after its deadline.
    #[test]
    fn each_event_has_one_fate(steps in steps(), one in any::<bool>()) {
        let wake = if one { Wake::One } else { Wake::All };
        let (mut channel, mut blocks) = (channel(wake), SharedBlocks::default());
        let mut sinks: Vec<(SinkId, u64)> = Vec::new();
        for (now, step) in (0_u64..).zip(steps) {
            match step {
                Step::Send { deadline } => {
                    let before: Vec<_> = sinks.iter().map(|(sink, _)| channel.sink_counts(*sink)).collect();
                    let deadline = deadline.map(|after| now + after % 20);
                    match send(&mut channel, now, now as i64, deadline, &mut blocks) {
                        Ok(got) => {
                            let most = if one { 1 } else { sinks.len() };
                            prop_assert!(got <= most);
                            if !one {
                                sinks.iter_mut().for_each(|(_, offered)| *offered += 1);
                            }
                        }
                        Err(_) => {
                            let after: Vec<_> =
                                sinks.iter().map(|(sink, _)| channel.sink_counts(*sink)).collect();
                            prop_assert_eq!(before, after);
                        }
                    }
                }
                Step::Take { sink } => {
                    let Some((sink, _)) = sinks.get(sink) else { continue };
                    if let Some(delivery) = channel.poll_sink(Instant(now), *sink) {
                        prop_assert!(delivery.event.deadline.is_none_or(|late| late >= Instant(now)));
                    }
                }
                Step::Leave { sink } => {
                    if sink < sinks.len() {
                        prop_assert!(channel.leave(sinks.remove(sink).0).is_some());
                    }
                }
                Step::Join { bound, overflow } => {
                    if sinks.len() < 4 {
                        sinks.push((channel.subscribe(plain(bound, overflow)).unwrap(), 0));
                    }
                }
            }
        }
        for (sink, offered) in sinks {
            let mut rest = 0;
            while channel.poll_sink(Instant(0), sink).is_some() {
                rest += 1;
            }
            let sink_counts = channel.sink_counts(sink).unwrap();
            prop_assert!(rest <= sink_counts.delivered);
            if !one {
                prop_assert_eq!(sink_counts.delivered + sink_counts.expired + sink_counts.overflowed, offered);
            }
        }
    }
}
