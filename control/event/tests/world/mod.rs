//! Several hosts in virtual time.

// Each test program uses a part of this.
#![allow(dead_code)]

mod network;

use selvedge_control_code::Interpreted;
use selvedge_control_event::{
    Attributes, AttributesBuf, ChannelId, Event, Exchange, Filter, Format, HostId, Notice,
    NoticeKind, Overflow, SinkId, Subscription, Value, Wake, program,
};
use selvedge_units::{Duration, Instant};

pub(crate) use network::MemoryNetwork;

pub(crate) const FORMAT: &str = "input { long number; };";

/// Hosts on one network, and the time.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) network: MemoryNetwork,
    pub(crate) hosts: Vec<Exchange>,
}

impl World {
    pub(crate) fn new(hosts: u32) -> Self {
        Self::on(MemoryNetwork::new(Duration::from_micros(100)), hosts)
    }

    pub(crate) fn on(mut network: MemoryNetwork, hosts: u32) -> Self {
        for host in 0..hosts {
            network.add(HostId(host));
        }
        let exchange = |_| {
            let mut exchange = Exchange::new(Instant::ZERO);
            exchange.set_failure_detector(network.failure_detector());
            exchange
        };
        let hosts = (0..hosts).map(exchange).collect();
        Self { now: Instant::ZERO, network, hosts }
    }

    /// Calls `action` with a host's exchange, and sends the resulting frames.
    pub(crate) fn with<T>(
        &mut self,
        host: u32,
        action: impl FnOnce(&mut Exchange, Instant) -> T,
    ) -> T {
        let exchange = &mut self.hosts[host as usize];
        let done = action(exchange, self.now);
        self.network.transmit(self.now, HostId(host), exchange);
        done
    }

    pub(crate) fn open(&mut self, host: u32, format: &str) -> ChannelId {
        let format = Format::parse("f", format).unwrap();
        self.with(host, |exchange, now| exchange.open(now, "load", &format, Wake::All)).unwrap()
    }

    pub(crate) fn subscribe(&mut self, host: u32, channel: ChannelId) -> SinkId {
        self.subscribe_as(host, channel, 100, Overflow::DropOldest)
    }

    pub(crate) fn subscribe_as(
        &mut self,
        host: u32,
        channel: ChannelId,
        bound: usize,
        overflow: Overflow,
    ) -> SinkId {
        let wish = Subscription { bound, overflow, filter: None };
        self.with(host, |exchange, _| exchange.subscribe(channel, wish)).unwrap()
    }

    pub(crate) fn send(
        &mut self,
        host: u32,
        channel: ChannelId,
        record: &[u8],
        left: Option<Duration>,
    ) -> usize {
        let deadline = left.map(|left| self.now + left);
        let event = Event { deadline, attributes: Attributes::default(), record };
        self.with(host, |exchange, now| exchange.publish(now, channel, event)).unwrap().1
    }

    /// Publishes reliably; returns the number of hosts to which the event is owed.
    pub(crate) fn promise(&mut self, host: u32, channel: ChannelId, number: i64) -> usize {
        let record = number.to_le_bytes();
        let event = Event { deadline: None, attributes: Attributes::default(), record: &record };
        self.with(host, |exchange, now| exchange.publish_reliably(now, channel, event)).unwrap().1
    }

    /// Publishes at the pace of all; returns whether it needed no wait.
    pub(crate) fn publish_to_log_paced(
        &mut self,
        host: u32,
        channel: ChannelId,
        number: i64,
    ) -> bool {
        let record = number.to_le_bytes();
        let event = Event { deadline: None, attributes: Attributes::default(), record: &record };
        self.with(host, |exchange, now| exchange.publish_paced(now, channel, event)).is_ok()
    }

    /// Publishes an answer; returns the number of hosts it was sent to at once.
    pub(crate) fn answer(&mut self, host: u32, channel: ChannelId, to: i64, load: i64) -> usize {
        let mut attributes = AttributesBuf::default();
        attributes.add("answers", Value::Long(to)).unwrap();
        let (record, attributes) = (load.to_le_bytes(), attributes.as_attributes());
        let event = Event { deadline: None, attributes, record: &record };
        self.with(host, |exchange, now| exchange.publish(now, channel, event)).unwrap().1
    }

    /// A filter for a host, run by the evaluator.
    pub(crate) fn filter(&mut self, host: usize, source: &str) -> Filter {
        let format = Format::parse("f", FORMAT).unwrap();
        let program = program("filter", source, &format).unwrap();
        let handler = Box::new(Interpreted::new(program));
        Filter::new(handler, "shared", self.hosts[host].blocks_mut()).unwrap()
    }

    /// Lets time pass; hosts that are not `alive` do nothing.
    pub(crate) fn pass(&mut self, span: Duration, alive: &[u32]) {
        let until = self.now + span;
        self.turn(alive);
        while self.now < until {
            let beats = alive.iter().filter_map(|host| self.hosts[*host as usize].poll_timeout());
            let next = beats.chain(self.network.poll_at()).filter(|at| *at > self.now).min();
            self.now = next.unwrap_or(until).min(until);
            self.turn(alive);
        }
    }

    fn turn(&mut self, alive: &[u32]) {
        for host in alive {
            self.network.run(self.now, HostId(*host), &mut self.hosts[*host as usize]);
        }
    }

    pub(crate) fn settle(&mut self) {
        let all: Vec<u32> = (0..self.hosts.len() as u32).collect();
        self.pass(Duration::from_millis(1), &all);
    }

    pub(crate) fn take(&mut self, host: u32, channel: ChannelId, sink: SinkId) -> Vec<Vec<u8>> {
        let exchange = &mut self.hosts[host as usize];
        let mut got = Vec::new();
        while let Some(delivery) = exchange.poll_event(self.now, channel, sink) {
            got.push(delivery.event.record.to_vec());
        }
        got
    }

    /// All numbers that a sink can get now.
    pub(crate) fn numbers(&mut self, host: u32, channel: ChannelId, sink: SinkId) -> Vec<i64> {
        let got = self.take(host, channel, sink);
        got.iter().map(|record| i64::from_le_bytes(record[..8].try_into().unwrap())).collect()
    }

    pub(crate) fn notices(&mut self, host: u32) -> Vec<(HostId, NoticeKind)> {
        std::iter::from_fn(|| self.hosts[host as usize].poll_notice())
            .map(|Notice { host, kind: what, .. }| (host, what))
            .collect()
    }
}
