//! Reliable events in virtual time: over lossy networks, to members that are slow, cut off, late or
//! gone. Each owed event is taken in order, once, or both ends are notified of its loss.

mod world;

use proptest::prelude::*;
use selvedge_control_event::{
    ChannelId, HEARTBEAT, HELD_MAX, HostId, LEASE, NoticeKind, Overflow, REFRESH, RESUME, Right,
    SinkId,
};
use selvedge_units::Duration;
use world::{FORMAT, MemoryNetwork, World};

const LATENCY: Duration = Duration::from_micros(100);

/// Hosts of which the first is the source, and the others have a sink each.
fn star(mut world: World, bound: usize, overflow: Overflow) -> (World, ChannelId, Vec<SinkId>) {
    let channels: Vec<ChannelId> =
        (0..world.hosts.len() as u32).map(|host| world.open(host, FORMAT)).collect();
    let sinks = (1..channels.len())
        .map(|host| world.subscribe_as(host as u32, channels[host], bound, overflow));
    let sinks = sinks.collect();
    world.settle();
    for host in 0..world.hosts.len() as u32 {
        world.notices(host);
    }
    // All of them have opened one channel.
    (world, channels[0], sinks)
}

fn everyone(world: &World) -> Vec<u32> {
    (0..world.hosts.len() as u32).collect()
}

/// Lets time pass in steps, and takes the events of a sink.
fn collect(
    world: &mut World,
    span: Duration,
    host: u32,
    channel: ChannelId,
    sink: SinkId,
) -> Vec<i64> {
    let (until, all) = (world.now + span, everyone(world));
    let mut got = Vec::new();
    while world.now < until {
        world.pass(Duration::from_millis(5), &all);
        got.extend(world.numbers(host, channel, sink));
    }
    got
}

#[test]
fn nothing_is_lost_on_a_network_that_loses_a_fifth() {
    let (mut world, channel, sinks) = star(World::new(3), 4096, Overflow::Block);
    world.network.lose_one_of(5, 7);
    for number in 0..1000 {
        assert_eq!(world.promise(0, channel, number), 2);
        if number % 10 == 0 {
            world.pass(Duration::from_millis(1), &[0, 1, 2]);
        }
    }
    world.pass(Duration::from_secs(20), &[0, 1, 2]);
    let all: Vec<i64> = (0..1000).collect();
    for host in [1, 2] {
        assert_eq!(world.numbers(host, channel, sinks[host as usize - 1]), all, "host {host}");
    }
    assert_eq!(world.hosts[0].view(channel).unwrap().held, 0);
}

#[test]
fn a_slow_sink_holds_up_nobody_else() {
    let mut world = World::new(3);
    let channel = (0..3).map(|host| world.open(host, FORMAT)).last().unwrap();
    let fast = world.subscribe_as(1, channel, 4096, Overflow::Block);
    let slow = world.subscribe_as(2, channel, 4, Overflow::Block);
    world.settle();
    for number in 0..500 {
        world.promise(0, channel, number);
    }
    world.pass(Duration::from_millis(50), &[0, 1, 2]);
    let all: Vec<i64> = (0..500).collect();
    // The slow member has taken nothing yet, and is owed nearly all.
    assert_eq!(world.numbers(1, channel, fast), all);
    let view = world.hosts[0].view(channel).unwrap();
    let owed: Vec<u64> = view.members.iter().map(|member| member.owed).collect();
    assert_eq!((owed[0], owed[1] >= 496, view.held >= 496), (0, true, true));
    assert_eq!(collect(&mut world, Duration::from_secs(5), 2, channel, slow), all);
    assert_eq!(world.hosts[0].view(channel).unwrap().held, 0);
}

#[test]
fn what_is_held_is_bounded_and_what_is_dropped_is_told_at_both_ends() {
    let (mut world, channel, sinks) = star(World::new(3), 8, Overflow::Block);
    let count = HELD_MAX as i64 + 1000;
    let mut got = Vec::new();
    for number in 0..count {
        world.promise(0, channel, number);
        world.pass(Duration::from_millis(1), &[0, 1, 2]);
        // The second host takes nothing at all.
        got.extend(world.numbers(1, channel, sinks[0]));
        assert!(world.hosts[0].view(channel).unwrap().held <= HELD_MAX);
    }
    got.extend(collect(&mut world, Duration::from_secs(2), 1, channel, sinks[0]));
    assert_eq!(got, (0..count).collect::<Vec<_>>());
    let undelivered = world.notices(0).into_iter().filter_map(|(host, what)| match what {
        NoticeKind::Undelivered(events) if host == HostId(2) => Some(events),
        _ => None,
    });
    let undelivered: u64 = undelivered.sum();
    // Eight are in the sink's queue, but were not all acknowledged before the source gave up.
    assert!((992..=1000).contains(&undelivered), "{undelivered}");
    let late = collect(&mut world, Duration::from_secs(30), 2, channel, sinks[1]);
    let missed = world.notices(2).into_iter().filter_map(|(_, what)| match what {
        NoticeKind::Missed(events) => Some(events),
        _ => None,
    });
    assert_eq!(missed.sum::<u64>(), undelivered);
    assert_eq!(late.len() as u64 + undelivered, count as u64);
    assert!(late.is_sorted(), "out of order");
    assert_eq!(late.last(), Some(&(count - 1)));
}

#[test]
fn a_partition_loses_nothing_that_was_promised() {
    let network = MemoryNetwork::with_detector(LATENCY, LEASE);
    let (mut world, channel, sinks) = star(World::on(network, 3), 4096, Overflow::Block);
    world.promise(0, channel, 0);
    world.settle();
    world.network.partition(world.now, HostId(0), HostId(1));
    for number in 1..=300 {
        // The event is owed to both, whether the cut was noticed or not.
        assert_eq!(world.promise(0, channel, number), 2);
        world.pass(Duration::from_millis(10), &[0, 1, 2]);
    }
    assert_eq!(world.notices(0), [(HostId(1), NoticeKind::Lost)]);
    assert_eq!(world.notices(1), [(HostId(0), NoticeKind::Lost)]);
    assert_eq!(world.numbers(2, channel, sinks[1]), (0..=300).collect::<Vec<_>>());
    assert_eq!(world.numbers(1, channel, sinks[0]), [0]);
    world.network.end_partition(world.now, HostId(0), HostId(1));
    world.pass(Duration::from_millis(500), &[0, 1, 2]);
    assert_eq!(world.notices(0), [(HostId(1), NoticeKind::Joined)]);
    assert_eq!(world.numbers(1, channel, sinks[0]), (1..=300).collect::<Vec<_>>());
    assert_eq!(world.hosts[0].view(channel).unwrap().held, 0);
}

#[test]
fn who_does_not_come_back_is_given_up_and_that_is_told() {
    let network = MemoryNetwork::with_detector(LATENCY, LEASE);
    let (mut world, channel, _) = star(World::on(network, 3), 4096, Overflow::Block);
    world.network.remove(world.now, HostId(2));
    // The transport detects it: the loss is known at once, without any silence.
    world.pass(Duration::from_millis(1), &[0, 1]);
    assert_eq!(world.notices(0), [(HostId(2), NoticeKind::Lost)]);
    assert_eq!(world.hosts[0].members(channel).collect::<Vec<_>>(), [HostId(1)]);
    for number in 0..10 {
        world.promise(0, channel, number);
    }
    world.pass(Duration::from_secs(1), &[0, 1]);
    assert_eq!(world.hosts[0].view(channel).unwrap().held, 10);
    world.pass(Duration(RESUME.0 + 2 * REFRESH.0), &[0, 1]);
    assert_eq!(world.notices(0), [(HostId(2), NoticeKind::Undelivered(10))]);
    assert_eq!(world.hosts[0].view(channel).unwrap().held, 0);
}

#[test]
fn who_publishes_in_turn_waits_for_the_slow_but_not_for_the_lost() {
    let network = MemoryNetwork::with_detector(LATENCY, LEASE);
    let (mut world, channel, sinks) = star(World::on(network, 3), 4096, Overflow::Block);
    let slow = world.subscribe_as(2, channel, 4, Overflow::Block);
    world.settle();
    let mut sent = 0;
    while world.publish_to_log_paced(0, channel, sent) {
        sent += 1;
        assert!(sent < HELD_MAX as i64, "nobody was waited for");
        world.pass(Duration::from_micros(100), &[0, 1, 2]);
    }
    assert!(sent >= HELD_MAX as i64 / 2, "{sent}");
    world.pass(Duration::from_millis(50), &[0, 1, 2]);
    assert!(world.hosts[0].lags(channel));
    // The slow member takes events: there is room again, and in the end no member has missed any.
    let got = collect(&mut world, Duration::from_secs(10), 2, channel, slow);
    assert!(world.hosts[0].has_drained(channel));
    assert!(world.publish_to_log_paced(0, channel, sent));
    assert_eq!(got, (0..sent).collect::<Vec<_>>());
    // The member is lost with all that is owed to it: the others continue without limit.
    world.network.remove(world.now, HostId(2));
    let first = sent + 1;
    for number in first..first + 2 * HELD_MAX as i64 {
        world.pass(Duration::from_micros(100), &[0, 1]);
        world.numbers(1, channel, sinks[0]);
        assert!(world.publish_to_log_paced(0, channel, number), "{number}");
    }
}

#[test]
fn who_leaves_is_owed_nothing_and_who_is_late_gets_what_comes() {
    let (mut world, channel, sinks) = star(World::new(3), 2, Overflow::Block);
    for number in 0..10 {
        world.promise(0, channel, number);
    }
    world.settle();
    world.with(2, |exchange, _| exchange.leave(channel));
    assert_eq!(collect(&mut world, Duration::from_secs(1), 1, channel, sinks[0]).len(), 10);
    assert_eq!(world.hosts[0].view(channel).unwrap().held, 0);
    world.notices(2);
    // Under the same name again, with nothing of before.
    let channel = world.open(2, FORMAT);
    let late = world.subscribe_as(2, channel, 100, Overflow::Block);
    world.settle();
    for number in 10..20 {
        assert_eq!(world.promise(0, channel, number), 2);
    }
    let got = collect(&mut world, Duration::from_secs(1), 2, channel, late);
    assert_eq!(got, (10..20).collect::<Vec<_>>());
    assert!(!world.notices(2).iter().any(|(_, what)| matches!(what, NoticeKind::Missed(_))));
    // A source that has reopened the channel starts anew, too.
    world.with(0, |exchange, _| exchange.leave(channel));
    let channel = world.open(0, FORMAT);
    world.settle();
    assert_eq!(world.promise(0, channel, 20), 2);
    assert_eq!(collect(&mut world, Duration::from_millis(100), 2, channel, late), [20]);
}

#[test]
fn of_many_that_could_answer_the_least_loaded_does() {
    let mut world = World::new(6);
    let channel = (0..6).map(|host| world.open(host, FORMAT)).last().unwrap();
    let sink = world.subscribe(0, channel);
    for host in 1..6 {
        // Each host that could answer receives the others' answers.
        world.subscribe(host, channel);
    }
    world.settle();
    // A millisecond for each percent of load.
    let source = "{ choice.hold = input.number * 1000000; return 1; }";
    for (host, load) in [(1, 70), (2, 35), (3, 20), (4, 90), (5, 21)] {
        let filter = world.filter(host, source);
        world.hosts[host].set_out_filter(channel, Some(filter));
        assert_eq!(world.answer(host as u32, channel, 1, load), 0, "held back");
    }
    // An answer to another question suppresses nothing.
    let filter = world.filter(4, "{ return 1; }");
    world.hosts[4].set_out_filter(channel, Some(filter));
    assert_eq!(world.answer(4, channel, 2, 0), 5);
    let got = collect(&mut world, Duration::from_millis(200), 0, channel, sink);
    assert_eq!(got, [0, 20]);
    let suppressed: Vec<u64> =
        (1..6).map(|host| world.hosts[host].view(channel).unwrap().suppressed).collect();
    assert_eq!(suppressed, [1, 1, 0, 1, 1]);
}

#[test]
fn who_has_no_right_sends_and_gets_nothing_and_that_is_told_once() {
    let mut world = World::new(3);
    world.hosts[0].set_permit(Box::new(|host, channel, right| {
        channel == "load" && (host == HostId(1) || right == Right::Publish)
    }));
    world.hosts[1].set_permit(Box::new(|host, _, _| host != HostId(2)));
    let channel = (0..3).map(|host| world.open(host, FORMAT)).last().unwrap();
    let sinks: Vec<SinkId> = (0..3).map(|host| world.subscribe(host, channel)).collect();
    world.settle();
    assert_eq!(world.send(0, channel, &[1; 8], None), 1);
    assert_eq!(world.promise(0, channel, 1), 1);
    world.send(2, channel, &[2; 8], None);
    world.promise(2, channel, 3);
    world.pass(Duration::from_secs(1), &[0, 1, 2]);
    assert_eq!(world.take(0, channel, sinks[0]).len(), 4);
    assert_eq!(world.take(1, channel, sinks[1]).len(), 2);
    // Only its own two events: it may receive nothing from the first host.
    assert_eq!(world.take(2, channel, sinks[2]).len(), 2);
    let refused = |world: &mut World, host: u32| {
        let notices = world.notices(host).into_iter();
        notices.filter(|(_, what)| matches!(what, NoticeKind::Refused(_))).collect::<Vec<_>>()
    };
    assert_eq!(refused(&mut world, 0), [(HostId(2), NoticeKind::Refused(Right::Subscribe))]);
    let twice =
        [Right::Subscribe, Right::Publish].map(|right| (HostId(2), NoticeKind::Refused(right)));
    assert_eq!(refused(&mut world, 1), twice);
    // Refused events are not retransmitted for ever.
    assert_eq!(world.hosts[2].view(channel).unwrap().held, 0);
}

#[test]
fn a_member_that_floods_is_bounded() {
    let mut world = World::new(2);
    let channel = world.open(0, FORMAT);
    world.settle();
    for number in 0..10_000_u32 {
        let bytes = number.to_le_bytes();
        world.with(1, |exchange, _| exchange.send_control(HostId(0), &bytes));
    }
    for host in 100..400 {
        // Each host announces itself.
        world.network.add(HostId(host));
        let mut frame = vec![0, 4];
        frame.extend_from_slice(b"load\x01\x01");
        world.network.send(world.now, HostId(host), HostId(0), &frame);
    }
    world.settle();
    let controls = std::iter::from_fn(|| world.hosts[0].poll_control()).count();
    assert_eq!(controls, 16);
    assert_eq!(world.hosts[0].members(channel).count(), selvedge_control_event::MEMBERS_MAX);
    assert!(world.notices(0).len() <= 1024);
    world.pass(Duration(LEASE.0 + 2 * HEARTBEAT.0), &[0, 1]);
    assert_eq!(world.hosts[0].members(channel).count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is lost and cut on the way: each reliable event is taken once, in order.
    #[test]
    fn each_promised_event_is_taken_once_and_in_order(
        seed in 1..u64::MAX,
        one_of in 2..20_u64,
        bound in 1..40_usize,
        steps in proptest::collection::vec((0..40_i64, 0..200_u64, any::<bool>()), 1..40),
    ) {
        let network = MemoryNetwork::with_detector(LATENCY, LEASE);
        let (mut world, channel, sinks) = star(World::on(network, 3), bound, Overflow::Block);
        world.network.lose_one_of(one_of, seed);
        let (mut next, mut got) = (0, [Vec::new(), Vec::new()]);
        let mut is_cut = false;
        for (events, wait, turn) in steps {
            for _ in 0..events {
                world.promise(0, channel, next);
                next += 1;
            }
            world.pass(Duration::from_millis(wait), &[0, 1, 2]);
            if turn {
                is_cut = !is_cut;
                if is_cut {
                    world.network.partition(world.now, HostId(0), HostId(1));
                } else {
                    world.network.end_partition(world.now, HostId(0), HostId(1));
                }
                let new = world.numbers(2, channel, sinks[1]);
                got[1].extend(new);
            }
        }
        world.network.end_partition(world.now, HostId(0), HostId(1));
        world.network.lose_one_of(0, 1);
        let end = world.now + Duration::from_secs(40);
        while world.now < end {
            world.pass(Duration::from_millis(20), &[0, 1, 2]);
            for host in [1, 2] {
                let new = world.numbers(host, channel, sinks[host as usize - 1]);
                got[host as usize - 1].extend(new);
            }
        }
        for (host, got) in (1..).zip(&got) {
            prop_assert_eq!(got, &(0..next).collect::<Vec<_>>(), "host {}", host);
        }
        prop_assert_eq!(world.hosts[0].view(channel).unwrap().held, 0);
    }
}
