//! Hosts that send each other events by UDP over the loopback: exchanges as in `selvedge-control-event`, a
//! socket each, all in one process.

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant as StdInstant;

use selvedge_control_event::{
    Attributes, ChannelId, Destination, Event, Exchange, Format, HostId, Overflow, SinkId,
    Subscription, Wake,
};
use selvedge_units::Instant;

use crate::experiment::RunError;

/// A host's socket, and where the others are.
pub(super) struct Udp {
    socket: UdpSocket,
    peers: Vec<SocketAddr>,
    own: usize,
    buffer: Vec<u8>,
}

impl Udp {
    /// Sends what the exchange has to send.
    fn transmit(&mut self, now: Instant, exchange: &mut Exchange) {
        while exchange.poll_interest().is_some() {}
        while let Some(transmit) = exchange.poll_transmit(now) {
            match transmit.to {
                Destination::All => {
                    for host in (0..self.peers.len()).filter(|host| *host != self.own) {
                        self.send(host, transmit.bytes);
                    }
                }
                Destination::Hosts(hosts) | Destination::Subscribers { hosts, .. } => {
                    for host in hosts {
                        self.send(host.0 as usize, transmit.bytes);
                    }
                }
            }
        }
    }

    fn send(&self, to: usize, bytes: &[u8]) {
        if let Some(to) = self.peers.get(to) {
            // It may be lost.
            let _ = self.socket.send_to(bytes, to);
        }
    }

    /// Gives the exchange what has come, and has it do what is due.
    pub(super) fn run(&mut self, now: Instant, exchange: &mut Exchange) {
        self.buffer.resize(65_536, 0);
        while let Ok((size, from)) = self.socket.recv_from(&mut self.buffer) {
            let host = self.peers.iter().position(|peer| *peer == from);
            let Some(host) = host else { break };
            exchange.handle_frame(now, HostId(host as u32), &self.buffer[..size]);
            self.transmit(now, exchange);
        }
        exchange.handle_timeout(now);
        self.transmit(now, exchange);
    }
}

/// A host with its end of the channel.
pub(super) struct Host {
    pub(super) exchange: Exchange,
    pub(super) transport: Udp,
    pub(super) channel: ChannelId,
    pub(super) sinks: Vec<SinkId>,
}

/// Hosts on one channel; host 0 is the source.
pub(super) struct Hosts {
    began: StdInstant,
    pub(super) all: Vec<Host>,
}

pub(super) const QUEUE: usize = 256;

impl Hosts {
    /// So many hosts, each with so many sinks but the first, which has `own`.
    pub(super) fn new(
        hosts: usize,
        sinks: usize,
        own: usize,
        format: &Format,
    ) -> Result<Self, RunError> {
        let needs = |why: std::io::Error| RunError::Needs(format!("it needs UDP sockets: {why}"));
        let mut sockets = Vec::new();
        for _ in 0..hosts {
            let socket = UdpSocket::bind("127.0.0.1:0").map_err(needs)?;
            socket.set_nonblocking(true).map_err(needs)?;
            sockets.push(socket);
        }
        let peers: Result<Vec<_>, _> = sockets.iter().map(UdpSocket::local_addr).collect();
        let peers = peers.map_err(needs)?;
        let began = StdInstant::now();
        let mut all = Vec::new();
        for (own_number, socket) in sockets.into_iter().enumerate() {
            let mut transport =
                Udp { socket, peers: peers.clone(), own: own_number, buffer: Vec::new() };
            let now = Instant(began.elapsed().as_nanos() as u64);
            let mut exchange = Exchange::new(now);
            let refused = |why: String| RunError::Needs(why);
            let channel = exchange
                .open(now, "measured", format, Wake::All)
                .map_err(|why| refused(why.to_string()))?;
            let mut ids = Vec::new();
            for _ in 0..if own_number == 0 { own } else { sinks } {
                let wish =
                    Subscription { bound: QUEUE, overflow: Overflow::DropOldest, filter: None };
                let id = exchange.subscribe(channel, wish);
                ids.push(id.map_err(|why| refused(why.to_string()))?);
            }
            transport.transmit(now, &mut exchange);
            all.push(Host { exchange, transport, channel, sinks: ids });
        }
        let mut world = Self { began, all };
        // All know all, and have exchanged their subscriptions.
        for _ in 0..1000 {
            world.handle();
            let known = world.all[0].exchange.members(world.all[0].channel).count();
            if known == hosts - 1 {
                // The formats go before the first event.
                world.handle();
                world.publish(&vec![0; format.size()]);
                world.handle();
                world.drain();
                return Ok(world);
            }
        }
        Err(RunError::Needs("the hosts do not find each other on the loopback".to_owned()))
    }

    pub(super) fn now(&self) -> Instant {
        Instant(self.began.elapsed().as_nanos() as u64)
    }

    /// Each takes what has come.
    pub(super) fn handle(&mut self) {
        let now = self.now();
        for host in &mut self.all {
            host.transport.run(now, &mut host.exchange);
        }
    }

    /// The source sends an event; to how many hosts.
    pub(super) fn publish(&mut self, record: &[u8]) -> usize {
        let now = self.now();
        let source = &mut self.all[0];
        let event = Event { deadline: None, attributes: Attributes::default(), record };
        let sent = source.exchange.publish(now, source.channel, event);
        source.transport.transmit(now, &mut source.exchange);
        sent.map_or(0, |(_, hosts)| hosts)
    }

    /// All sinks take what waits for them.
    pub(super) fn drain(&mut self) {
        let now = self.now();
        for host in &mut self.all {
            if let Some(channel) = host.exchange.channel_mut(host.channel) {
                while channel.poll(now).is_some() {}
            }
        }
    }
}
