//! Three hosts on a network with losses and interruptions: a source of reliable events, a sink that
//! blocks, and a liar that sends anything under its own name. Whatever it sends and whatever is lost on
//! the way, the sink gets each promised event once and in order; and nothing grows beyond its bound.

#[allow(dead_code)]
#[path = "../../control/event/tests/world/network.rs"]
mod network;

use crate::choices::Choices;
use selvedge_control_event::{
    Attributes, ChannelId, Event, Exchange, Format, HELD_MAX, HostId, LEASE, MEMBERS_MAX, Overflow,
    SinkId, Subscription, Wake,
};
use selvedge_units::{Duration, Instant};

use network::MemoryNetwork;

const SINK: HostId = HostId(0);
const SOURCE: HostId = HostId(1);
const LIAR: HostId = HostId(2);
/// The most steps of an input.
const STEPS: usize = 400;

struct World {
    now: Instant,
    network: MemoryNetwork,
    hosts: [Exchange; 2],
    channel: ChannelId,
    sink: SinkId,
    promised: i64,
    got: i64,
}

impl World {
    fn new(bound: usize) -> Self {
        let mut network = MemoryNetwork::with_detector(Duration::from_micros(100), LEASE);
        for host in [SINK, SOURCE, LIAR] {
            network.add(host);
        }
        let format = Format::parse("f", "input { long number; };").expect("a format");
        let now = Instant::ZERO;
        let mut hosts = [Exchange::new(now), Exchange::new(now)];
        let mut open = |host: HostId| {
            let exchange = &mut hosts[host.0 as usize];
            exchange.set_failure_detector(network.failure_detector());
            exchange.open(now, "c", &format, Wake::All).expect("a name")
        };
        let channel = [open(SOURCE), open(SINK)][1];
        let wish = Subscription { bound, overflow: Overflow::Block, filter: None };
        let sink = hosts[0].subscribe(channel, wish).expect("there is room");
        let mut world = Self { now, network, hosts, channel, sink, promised: 0, got: 0 };
        world.pass(Duration::from_millis(5));
        assert!(world.hosts[1].members(channel).any(|host| host == SINK));
        world
    }

    fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        self.turn();
        while self.now < until {
            let beats = self.hosts.iter().filter_map(Exchange::poll_timeout);
            let next = beats.chain(self.network.poll_at()).filter(|at| *at > self.now).min();
            self.now = next.unwrap_or(until).min(until);
            self.turn();
        }
        for exchange in &self.hosts {
            let view = exchange.view(self.channel).expect("it is open");
            assert!(view.held <= HELD_MAX && view.members.len() <= MEMBERS_MAX);
        }
    }

    fn turn(&mut self) {
        for (host, exchange) in (0..).zip(&mut self.hosts) {
            self.network.run(self.now, HostId(host), exchange);
            while exchange.poll_control().is_some() {}
            while exchange.poll_notice().is_some() {}
        }
        // The liar listens to nothing.
        while self.network.poll(self.now, LIAR).is_some() {}
    }

    fn promise(&mut self) {
        let record = self.promised.to_le_bytes();
        let event = Event { deadline: None, attributes: Attributes::default(), record: &record };
        let source = &mut self.hosts[1];
        let sent = source.publish_reliably(self.now, self.channel, event);
        assert!(sent.expect("nobody blocks there").1 >= 1);
        self.network.transmit(self.now, SOURCE, source);
        self.promised += 1;
    }

    /// Takes waiting events. Those of the liar have numbers below zero.
    fn take(&mut self, most: usize) {
        for _ in 0..most {
            let delivery = self.hosts[0].poll_event(self.now, self.channel, self.sink);
            let Some(delivery) = delivery else { break };
            let number = i64::from_le_bytes(delivery.event.record.try_into().expect("a long"));
            if number >= 0 && number < 1 << 40 {
                assert_eq!(number, self.got, "lost, doubled or out of order");
                self.got += 1;
            }
        }
    }
}

/// A frame as the liar would write it: the variant, the channel, and then the chosen bytes.
fn lie(choices: &mut Choices<'_>) -> Vec<u8> {
    let kind = choices.byte() % 8;
    let mut bytes = if kind == 7 { Vec::new() } else { vec![kind, 1, b'c'] };
    let length = usize::from(choices.byte() % 64);
    bytes.extend_from_slice(choices.bytes(length));
    bytes
}

/// Whether a frame could hold a record of its own, which would count as an event of the source's.
fn holds_record(bytes: &[u8]) -> bool {
    bytes.len() >= 20
}

pub fn fuzz(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut world = World::new(1 + usize::from(choices.byte() % 16));
    let mut is_cut = false;
    for _ in 0..STEPS {
        if choices.is_empty() {
            break;
        }
        match choices.byte() % 8 {
            0 | 1 => {
                let bytes = lie(&mut choices);
                let to = HostId(u32::from(choices.byte() % 2));
                if to == SOURCE || !holds_record(&bytes) {
                    world.network.send(world.now, LIAR, to, &bytes);
                }
            }
            2 | 3 => {
                for _ in 0..choices.byte() % 8 {
                    world.promise();
                }
            }
            4 => world.take(usize::from(choices.byte() % 8)),
            // Never long enough, in total, for promised events to be given up.
            5 => world.pass(Duration::from_millis(u64::from(choices.byte() / 4))),
            6 => {
                is_cut = !is_cut;
                if is_cut {
                    world.network.partition(world.now, SINK, SOURCE);
                } else {
                    world.network.end_partition(world.now, SINK, SOURCE);
                }
            }
            _ => {
                let one_of = u64::from(choices.byte() % 8);
                world.network.lose_one_of(if one_of == 1 { 2 } else { one_of }, 7);
            }
        }
    }
    world.network.lose_one_of(0, 1);
    world.network.end_partition(world.now, SINK, SOURCE);
    for _ in 0..4000 {
        world.take(64);
        if world.got == world.promised {
            return;
        }
        world.pass(Duration::from_millis(10));
    }
    panic!("{} of {} events came", world.got, world.promised);
}
