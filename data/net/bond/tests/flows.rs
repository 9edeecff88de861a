//! Flows of packets of other programs: each in order by itself, in bounded memory.

use selvedge_data_net_bond::{FLOWS, PathId, PathParams, Receiver, Sender, StreamId};
use selvedge_units::{Bytes, Duration, Instant};

const DELAY: Duration = Duration::from_millis(300);

/// The datagrams that the sender has, by the time each leaves.
fn drain(sender: &mut Sender, from: Instant, until: Instant) -> Vec<(Instant, Vec<u8>)> {
    let (mut out, mut now) = (Vec::new(), from);
    while now < until {
        sender.handle_timeout(now);
        while let Some(transmit) = sender.poll_transmit(now) {
            out.push((now, transmit.bytes));
        }
        now += Duration::from_millis(1);
    }
    out
}

#[test]
fn a_loss_in_one_flow_holds_up_no_other_and_its_own_for_a_time() {
    let [one, other] = [StreamId::of_flow(1), StreamId::of_flow(2)];
    let (mut sender, mut receiver) = (Sender::new(Bytes(28)), Receiver::default());
    sender.add_path(Instant::ZERO, PathId(0), PathParams::default());
    let begin = Instant::ZERO + Duration::from_millis(1);
    for n in 0..3 {
        for flow in [one, other] {
            sender.handle_packet(begin, flow, begin + DELAY, None, [n; 100].into());
        }
    }
    let mut packets = Vec::new();
    for (at, bytes) in drain(&mut sender, begin, begin + Duration::from_millis(40)) {
        // The first packet of one flow is lost, and nothing reports it.
        if bytes.len() == 122 && bytes[2..4] == one.0.to_be_bytes() && bytes[22] == 0 {
            continue;
        }
        receiver.handle_datagram(at, &bytes, false).expect("it is a datagram");
        while let Some(delivered) = receiver.poll_packet() {
            packets.push((at, delivered.stream, delivered.packet[0]));
        }
    }
    let of = |packets: &[(Instant, StreamId, u8)], flow| -> Vec<u8> {
        packets.iter().filter(|one| one.1 == flow).map(|one| one.2).collect()
    };
    assert_eq!((of(&packets, other), of(&packets, one)), (vec![0, 1, 2], vec![]));
    let mut now = begin;
    while of(&packets, one).is_empty() {
        now += Duration::from_millis(1);
        assert!(now <= begin + DELAY, "the flow waits for longer than a packet has");
        receiver.handle_timeout(now);
        while let Some(delivered) = receiver.poll_packet() {
            packets.push((now, delivered.stream, delivered.packet[0]));
        }
    }
    assert!(
        now >= begin + DELAY - Duration::from_millis(20),
        "the loss was not waited for: {now:?}"
    );
    assert_eq!(of(&packets, one), [1, 2]);
}

/// Flows without end share streams, so that both ends know as many at most, and beside them streams with names.
#[test]
fn a_hundred_thousand_flows_are_as_many_streams_as_there_may_be() {
    let (mut sender, mut receiver) = (Sender::new(Bytes(28)), Receiver::default());
    sender.add_path(Instant::ZERO, PathId(0), PathParams::default());
    let mut streams = std::collections::BTreeSet::new();
    let (mut now, mut given) = (Instant::ZERO, 0);
    for flow in 0..100_000_u64 {
        let stream = StreamId::of_flow(flow.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert!(stream.is_flow());
        streams.insert(stream);
        sender.handle_packet(now, stream, now + DELAY, None, [7; 40].into());
        let next = now + Duration::from_millis(2);
        for (at, bytes) in drain(&mut sender, now, next) {
            receiver.handle_datagram(at, &bytes, false).expect("it is a datagram");
        }
        now = next;
        receiver.handle_timeout(now);
        while let Some(report) = receiver.poll_transmit(now) {
            sender.handle_datagram(now, &report.bytes).expect("it is a report");
        }
        given += std::iter::from_fn(|| receiver.poll_packet()).count();
    }
    assert_eq!((streams.len(), receiver.counts().refused), (usize::from(FLOWS), 0));
    assert!(given > 99_000, "{given} packets of 100000");
    assert!(!StreamId(0).is_flow() && !StreamId(u16::MAX).is_flow());
}
