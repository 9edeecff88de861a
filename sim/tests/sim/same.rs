//! The same seed gives the same bytes, everywhere: a hash over all events of a network with everything in it.

use std::sync::Arc;

use selvedge_data_net_line::{
    CodelParams, DelayModel, FqCodelParams, Jitter, LineModel, LossModel, Packet, QueueModel,
};
use selvedge_sim::{
    Connection, Control, Datagram, Endpoint, Event, FlowId, Load, Network, OnOff, Payload,
    TcpParams,
};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::{at, line, ms, run, simulation};

/// Sends datagrams of its own, and answers each that comes.
struct Echo {
    flow: FlowId,
    next: Option<Instant>,
    answers: Vec<Arc<[u8]>>,
}

impl Endpoint for Echo {
    fn handle_packet(&mut self, _now: Instant, packet: Packet<Datagram>) {
        if let Payload::Bytes(bytes) = packet.payload.payload {
            self.answers
                .extend((bytes.len() < 300).then(|| Arc::from([&bytes[..], &[1]].concat())));
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.next = Some(now + ms(33));
        self.answers.push(Arc::from([(now.0 / 1_000_000) as u8; 200]));
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet<Datagram>> {
        let bytes = self.answers.pop()?;
        let size = Bytes(bytes.len() as u64 + 28);
        Some(Datagram::packet(self.flow, size, Payload::Bytes(bytes)))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }
}

/// Three hosts in a row and a way around, all kinds of queues, of faults and of traffic.
fn mixed(seed: u64) -> Network {
    let mut network = Network::new(seed);
    let hosts = ["a", "b", "c"].map(|name| network.host(name).unwrap());
    let share = |text: &str| text.parse().unwrap();
    let bad = LineModel {
        queue: QueueModel::FqCodel(FqCodelParams::default()),
        loss: LossModel::GilbertElliott {
            worsens: share("1 %"),
            recovers: share("20 %"),
            good: share("0 %"),
            bad: share("50 %"),
        },
        corrupts: share("0.2 %"),
        duplicates: share("0.5 %"),
        delay: DelayModel { delay: ms(15), jitter: Jitter::Normal(ms(3)), reorders: true },
        ..line(5, 15, 100_000)
    };
    let codel =
        LineModel { queue: QueueModel::Codel(CodelParams::default()), ..line(4, 5, 100_000) };
    network.link("ab", [hosts[0], hosts[1]], [bad.clone(), line(20, 15, 50_000)]).unwrap();
    network.link("bc", [hosts[1], hosts[2]], [codel, bad]).unwrap();
    for (control, name) in [(Control::NewReno, "reno"), (Control::Cubic, "cubic")] {
        let params = TcpParams::new(control);
        let ends = [hosts[0], hosts[2]];
        let transfer = Load::Transfer(None);
        Connection::attach(&mut network, name, ends, &params, at(100), transfer).unwrap();
        let requests = Load::Requests(ms(250), Bytes(40_000));
        Connection::attach(&mut network, "web", ends, &params, at(50), requests).unwrap();
    }
    let noise = network.flow("noise", hosts[2], hosts[1]).unwrap();
    let times = [ms(300), ms(700)];
    let random = network.random("noise");
    let rate = Bitrate::from_mbps(3);
    let noise = OnOff::new(noise, at(0), rate, Bytes(1_200), times, random);
    network.attach(Box::new(noise), &[]).unwrap();
    let [there, back] = network.flow_and_answers("echo", [hosts[0], hosts[2]]).unwrap();
    let echo = |flow, next| Box::new(Echo { flow, next, answers: Vec::new() });
    network.attach(echo(there, Some(at(1))), &[back]).unwrap();
    network.attach(echo(back, None), &[there]).unwrap();
    network
}

/// FNV-1a over all that is seen of all packets, and how many there are.
fn hash(seed: u64, until: Duration) -> (u64, u64) {
    let (mut hash, mut count) = (0xcbf2_9ce4_8422_2325_u64, 0);
    let mut observe = |event: &Event<'_>| {
        let Packet { flow, size, .. } = *event.packet;
        let mut all = vec![event.at.0, u64::from(event.host.0), flow, size.0];
        // By name, so that another reason of drops changes nothing.
        all.extend(format!("{:?}", event.step).bytes().map(u64::from));
        match &event.packet.payload.payload {
            Payload::Filler => {}
            Payload::Bytes(bytes) => all.extend(bytes.iter().map(|byte| u64::from(*byte))),
            Payload::Segment(segment) => all.push(segment.sequence),
            Payload::Ack(ack) => {
                all.extend([ack.next, ack.echo.0]);
                all.extend(ack.blocks.iter().flat_map(|(a, b)| [u64::from(*a), u64::from(*b)]));
            }
        }
        for byte in all.iter().flat_map(|word| word.to_le_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        count += 1;
    };
    let mut simulation = simulation(mixed(seed));
    simulation.run(Instant::ZERO + until, &mut observe).unwrap();
    (hash, count)
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let until = Duration::from_secs(20);
    assert_eq!(hash(1, until), (17_523_862_809_952_095_479, 112_048));
    assert_ne!(hash(2, until).0, hash(1, until).0);
}

#[test]
fn a_run_in_parts_is_the_same_run() {
    let mut whole = simulation(mixed(3));
    let mut parts = simulation(mixed(3));
    let wanted = run(&mut whole, 5_000);
    (0..5_000).step_by(7).for_each(|time| drop(run(&mut parts, time)));
    assert_eq!(run(&mut parts, 5_000), wanted);
    assert!(wanted.flows.iter().all(|flow| flow.arrived > 0));
    assert_ne!(run(&mut simulation(mixed(4)), 5_000), wanted);
}
