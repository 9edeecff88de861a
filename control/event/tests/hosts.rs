//! Several hosts in virtual time: they find each other by a channel's name, and notice departures.

mod world;

use selvedge_control_event::{
    Attributes, ChannelId, Class, Destination, Event, Exchange, Format, HostId, LEASE, NoticeKind,
    OpenError, ReadError, SinkId, Wake,
};
use selvedge_units::{Duration, Instant};
use world::{FORMAT, World};

#[test]
fn hosts_that_share_a_name_meet_and_late_ones_too() {
    let mut world = World::new(3);
    let channels = [world.open(0, FORMAT), world.open(1, FORMAT)];
    let sink = world.subscribe(1, channels[1]);
    world.settle();
    assert_eq!(world.notices(0), [(HostId(1), NoticeKind::Joined)]);
    assert_eq!(world.send(0, channels[0], &[1; 8], None), 1);
    // The third host comes late, and gets the events that are sent from then on.
    let late = world.open(2, FORMAT);
    let late_sink = world.subscribe(2, late);
    world.settle();
    assert_eq!(world.hosts[0].members(channels[0]).count(), 2);
    assert_eq!(world.send(0, channels[0], &[2; 8], None), 2);
    // Each host is source and sink: its own sink gets the event at once, before those in flight.
    assert_eq!(world.send(1, channels[1], &[3; 8], None), 1);
    world.settle();
    assert_eq!(world.take(1, channels[1], sink), [vec![1; 8], vec![3; 8], vec![2; 8]]);
    assert_eq!(world.take(2, late, late_sink), [vec![2; 8], vec![3; 8]]);
    // A host that leaves is noticed at once.
    world.with(2, |exchange, _| exchange.leave(late));
    world.settle();
    assert!(world.notices(0).contains(&(HostId(2), NoticeKind::Left)));
    assert_eq!(world.send(0, channels[0], &[4; 8], None), 1);
}

#[test]
fn a_crash_and_a_partition_are_noticed_and_healed() {
    let mut world = World::new(3);
    let channels: Vec<ChannelId> = (0..3).map(|host| world.open(host, FORMAT)).collect();
    let sinks: Vec<SinkId> =
        (0..3).map(|host| world.subscribe(host, channels[host as usize])).collect();
    world.settle();
    world.notices(0);
    // The third host is silent.
    world.pass(LEASE, &[0, 1]);
    world.pass(Duration::from_millis(400), &[0, 1]);
    assert_eq!(world.notices(0), [(HostId(2), NoticeKind::Lost)]);
    assert_eq!(world.send(0, channels[0], &[1; 8], None), 1);
    // It comes back, and then the other two are cut off from each other.
    world.pass(Duration::from_millis(400), &[0, 1, 2]);
    assert_eq!(world.notices(0), [(HostId(2), NoticeKind::Joined)]);
    world.network.partition(world.now, HostId(0), HostId(1));
    world.pass(Duration::from_millis(1500), &[0, 1, 2]);
    assert_eq!(world.notices(0), [(HostId(1), NoticeKind::Lost)]);
    assert_eq!(world.send(0, channels[0], &[2; 8], None), 1);
    world.network.end_partition(world.now, HostId(0), HostId(1));
    world.pass(Duration::from_millis(400), &[0, 1, 2]);
    assert_eq!(world.notices(0), [(HostId(1), NoticeKind::Joined)]);
    assert_eq!(world.send(0, channels[0], &[3; 8], None), 2);
    world.settle();
    assert_eq!(world.take(1, channels[1], sinks[1]), [vec![1; 8], vec![3; 8]]);
    assert!(world.take(2, channels[2], sinks[2]).ends_with(&[vec![2; 8], vec![3; 8]]));
}

#[test]
fn members_of_other_versions_read_what_they_know() {
    let mut world = World::new(3);
    let old = world.open(0, FORMAT);
    let new = world.open(1, "input { int more; long number; };");
    let other = world.open(2, "input { double number; };");
    let sinks = [world.subscribe(0, old), world.subscribe(1, new), world.subscribe(2, other)];
    world.settle();
    let number = 7_i64.to_le_bytes();
    assert_eq!(world.send(0, old, &number, None), 2);
    world.settle();
    assert_eq!(world.take(1, new, sinks[1]), [[&[0; 8], &number[..]].concat()]);
    // A long is no double: the mismatch is reported once, and no other host is affected.
    assert_eq!(world.take(2, other, sinks[2]).len(), 0);
    world.send(0, old, &number, None);
    world.settle();
    let unreadable = world.notices(2).into_iter().filter_map(|(_, what)| match what {
        NoticeKind::Unreadable(ReadError::Mismatch(mismatch)) => Some(mismatch.path),
        _ => None,
    });
    assert_eq!(unreadable.collect::<Vec<_>>(), ["number"]);
    // In the other direction.
    let record = [&[9; 8], &number[..]].concat();
    world.send(1, new, &record, None);
    world.settle();
    assert_eq!(world.take(0, old, sinks[0]).last().unwrap(), &number);
    // One host has one format for each name.
    let format = Format::parse("f", "input { int x; };").unwrap();
    let refused = world.with(0, |exchange, now| exchange.open(now, "load", &format, Wake::All));
    assert!(matches!(refused, Err(OpenError::Format { .. })));
}

#[test]
fn deadlines_travel_as_the_time_that_is_left() {
    let mut world = World::new(2);
    let channels = [world.open(0, FORMAT), world.open(1, FORMAT)];
    let sink = world.subscribe(1, channels[1]);
    world.settle();
    world.send(0, channels[0], &[1; 8], Some(Duration::from_millis(5)));
    world.send(0, channels[0], &[2; 8], Some(Duration::from_micros(200)));
    world.settle();
    // The second event's deadline has passed since it arrived.
    assert_eq!(world.take(1, channels[1], sink), [vec![1; 8]]);
    let sink_counts = world.hosts[1].channel_mut(channels[1]).unwrap().sink_counts(sink).unwrap();
    assert_eq!((sink_counts.delivered, sink_counts.expired), (1, 1));
}

#[test]
fn an_out_filter_chooses_hosts_and_an_in_filter_sinks() {
    let mut world = World::new(4);
    let channels: Vec<ChannelId> = (0..4).map(|host| world.open(host, FORMAT)).collect();
    let sinks: Vec<SinkId> =
        (0..4).map(|host| world.subscribe(host, channels[host as usize])).collect();
    world.settle();
    // Requests go to the host that got the fewest.
    let source = "{
        int i, best = 0;
        for (i = 0; i < channel.sinks; i++)
            if (channel.sink[i].delivered < channel.sink[best].delivered) best = i;
        for (i = 0; i < channel.sinks; i++) choice.sink[i] = i == best;
        return 1;
    }";
    let out = world.filter(0, source);
    world.hosts[0].set_out_filter(channels[0], Some(out));
    let odd = world.filter(3, "{ return input.number & 1; }");
    world.hosts[3].channel_mut(channels[3]).unwrap().set_filter(Some(odd));
    for number in 0..6_i64 {
        assert_eq!(world.send(0, channels[0], &number.to_le_bytes(), None), 1);
    }
    world.settle();
    let got: Vec<usize> = (1..4)
        .map(|host| world.take(host, channels[host as usize], sinks[host as usize]).len())
        .collect();
    // The third and the sixth event went to the last host, whose filter takes odd ones: 5, not 2.
    assert_eq!(got, [2, 2, 1]);
}

#[test]
fn what_strangers_send_harms_nobody() {
    let mut world = World::new(3);
    let channel = world.open(0, FORMAT);
    let sink = world.subscribe(0, channel);
    world.settle();
    let mut seed = 1_u64;
    for _ in 0..2000 {
        let mut bytes = Vec::new();
        for _ in 0..seed % 40 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            bytes.push((seed >> 33) as u8 & if seed >> 60 > 8 { 0xff } else { 7 });
        }
        seed = seed.wrapping_add(1);
        world.network.send(world.now, HostId(2), HostId(0), &bytes);
    }
    let huge = vec![2; 1 << 20];
    world.network.send(world.now, HostId(2), HostId(0), &huge);
    world.settle();
    assert!(world.hosts[0].malformed() > 1000);
    assert_eq!(world.take(0, channel, sink).len(), 0);
    world.send(0, channel, &[5; 8], None);
    assert_eq!(world.take(0, channel, sink), [vec![5; 8]]);
}

#[test]
fn a_full_registry_refuses_and_harms_no_channel_that_is_open() {
    let mut world = World::new(2);
    let channel = (0..2).map(|host| world.open(host, FORMAT)).last().unwrap();
    let sink = world.subscribe(1, channel);
    world.settle();
    let format = Format::parse("f", FORMAT).unwrap();
    let mut opened = Vec::new();
    let refused = loop {
        let name = format!("channel-{}", opened.len());
        match world.with(0, |exchange, now| exchange.open(now, &name, &format, Wake::All)) {
            Ok(channel) => opened.push(channel),
            Err(error) => break error,
        }
        assert!(opened.len() < 100_000, "there is no end");
    };
    assert_eq!((refused, opened.len()), (OpenError::Full, 1023));
    // Empty and too long names are refused.
    for name in ["", &"n".repeat(65)] {
        let refused = world.with(1, |exchange, now| exchange.open(now, name, &format, Wake::All));
        assert_eq!(refused, Err(OpenError::Name(name.len())));
    }
    // Hosts already at work continue, and know of all channels.
    world.settle();
    world.send(0, channel, &7_i64.to_le_bytes(), None);
    world.settle();
    assert_eq!(world.numbers(1, channel, sink), [7]);
    // A channel that is left makes room.
    let again = world.with(0, |exchange, now| {
        exchange.leave(opened[5]);
        exchange.open(now, "another", &format, Wake::All)
    });
    assert!(again.is_ok(), "{again:?}");
}

#[test]
fn frames_come_out_in_order_and_what_finds_no_room_is_counted() {
    let (now, mut exchange) = (Instant::ZERO, Exchange::new(Instant::ZERO));
    assert_eq!(exchange.poll_timeout(), None, "nothing is due without a channel");
    let format = Format::parse("f", FORMAT).unwrap();
    let channel = exchange.open(now, "load", &format, Wake::All).unwrap();
    assert_eq!(exchange.poll_timeout(), Some(now));
    assert_eq!(exchange.poll_transmit(now).unwrap().to, Destination::All);
    for host in [HostId(1), HostId(2)] {
        exchange.handle_frame(now, host, b"\x00\x04load\x01\x00");
        let answer = exchange.poll_transmit(now).unwrap();
        assert_eq!((answer.to, answer.class), (Destination::Hosts(&[host]), Class::Control));
    }
    let event = Event { deadline: None, attributes: Attributes::default(), record: &[7; 8] };
    assert_eq!(exchange.publish(now, channel, event), Ok((0, 2)));
    // Each host gets the format first, and then both get the same bytes.
    for host in [HostId(1), HostId(2)] {
        let description = exchange.poll_transmit(now).unwrap();
        assert_eq!(description.to, Destination::Hosts(&[host]));
    }
    let sent = exchange.poll_transmit(now).unwrap();
    let hosts = &[HostId(1), HostId(2)][..];
    assert_eq!(sent.to, Destination::Subscribers { channel: "load", hosts });
    assert_eq!(sent.class, Class::Event(channel));
    assert!(sent.bytes.ends_with(&[7; 8]));
    assert!(exchange.poll_transmit(now).is_none());
    exchange.handle_refused(channel, HostId(2));
    let lost: Vec<u64> =
        exchange.view(channel).unwrap().members.iter().map(|member| member.lost).collect();
    assert_eq!(lost, [0, 1]);
    exchange.leave(channel);
    assert_eq!(exchange.poll_transmit(now).unwrap().to, Destination::Hosts(hosts));
    assert_eq!(exchange.poll_timeout(), None);
}
