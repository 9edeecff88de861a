//! A connection's end: a sender, a receiver, and what uses them.

use std::collections::VecDeque;

use selvedge_data_net_line::Packet;
use selvedge_data_stream::Histogram;
use selvedge_units::{Bytes, Duration, Instant};

use super::TcpParams;
use super::receiver::Receiver;
use super::sender::Sender;
use crate::endpoint::Endpoint;
use crate::network::{Network, NetworkError};
use crate::packet::{Datagram, EndpointId, FlowId, HostId, Payload};
use crate::results::Flow;

/// A packet that asks.
const REQUEST: Bytes = Bytes(100);
/// The most requests that wait for their answers; beyond, none is made.
const OPEN_MAX: usize = 1_000;
/// The shortest time between requests.
const EVERY_MIN: Duration = Duration::from_micros(1);

/// What a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// So many bytes from the first end to the second; `None`: without end.
    Transfer(Option<Bytes>),
    /// A request of 100 bytes from the first end each so often (1 us at least), and the second end's answers
    /// of so many bytes, one after another.
    Requests(Duration, Bytes),
}

/// One end of a connection. Both directions carry data and acknowledgements.
#[derive(Clone, Debug)]
pub struct Connection {
    /// What it sends, and what it receives.
    flows: [FlowId; 2],
    header: Bytes,
    sender: Sender,
    receiver: Receiver,
    /// When its program writes next, how much, and how often.
    write_at: Option<Instant>,
    writes: u64,
    every: Option<Duration>,
    /// How long what it receives is, how many have come, and how much it answers to each.
    message: u64,
    messages: u64,
    answer: u64,
    /// When it wrote what is not answered yet, and how long other answers took.
    open: VecDeque<Instant>,
    times: Box<Histogram>,
}

impl Connection {
    /// Adds a connection of two hosts, and gives its ends. Its first end begins to send at `start`. Errors
    /// are those of [`Network::flow`].
    pub fn attach(
        network: &mut Network,
        name: &str,
        hosts: [HostId; 2],
        params: &TcpParams,
        start: Instant,
        load: Load,
    ) -> Result<[EndpointId; 2], NetworkError> {
        let flows = network.flow_and_answers(name, hosts)?;
        let end = |flows, write_at, writes, every, message, answer| Self {
            flows,
            header: params.header,
            sender: Sender::new(params),
            receiver: Receiver::new(params),
            write_at,
            writes,
            every,
            message,
            messages: 0,
            answer,
            open: VecDeque::new(),
            times: Box::default(),
        };
        let (writes, every, request, answer) = match load {
            Load::Transfer(bytes) => (bytes.map_or(u64::MAX, |bytes| bytes.0), None, u64::MAX, 0),
            Load::Requests(every, size) => {
                let request = (REQUEST - params.header).0.max(1);
                (request, Some(every.max(EVERY_MIN)), request, size.0.max(1))
            }
        };
        let [there, back] = flows;
        let first = end(flows, Some(start), writes, every, answer.max(1), 0);
        let second = end([back, there], None, 0, None, request, answer);
        let first = network.attach(Box::new(first), &[back])?;
        Ok([first, network.attach(Box::new(second), &[there])?])
    }

    /// The congestion window.
    #[must_use]
    pub const fn window(&self) -> Bytes {
        Bytes(self.sender.window())
    }

    /// How many bytes have arrived here in order.
    #[must_use]
    pub const fn received(&self) -> Bytes {
        Bytes(self.receiver.received())
    }
}

impl Endpoint for Connection {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        let Datagram { sent, payload, .. } = &packet.payload;
        match payload {
            Payload::Segment(segment) => self.receiver.handle_segment(now, *sent, segment),
            Payload::Ack(ack) => self.sender.handle_ack(now, ack),
            Payload::Filler | Payload::Bytes(_) => {}
        }
        while self.receiver.received() / self.message > self.messages {
            self.messages += 1;
            self.sender.write(self.answer);
            self.open.pop_front().into_iter().for_each(|asked| self.times.record(now.since(asked)));
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.sender.handle_timeout(now);
        if self.write_at.take_if(|at| *at <= now).is_some() {
            self.write_at = self.every.map(|every| now + every);
            if self.open.len() < OPEN_MAX {
                self.sender.write(self.writes);
                self.open.extend(self.every.map(|_| now));
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet<Datagram>> {
        let (size, payload) = if let Some(ack) = self.receiver.poll_ack(now) {
            (ack.options(), Payload::Ack(Box::new(ack)))
        } else {
            let segment = self.sender.poll_segment(now)?;
            (segment.length.into(), Payload::Segment(segment))
        };
        Some(Datagram::packet(self.flows[0], self.header + Bytes(size), payload))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.sender.timer(), self.receiver.due(), self.write_at].into_iter().flatten().min()
    }

    fn report(&self, flows: &mut [Flow]) {
        let [sent, received] = self.flows.map(|flow| flow.0 as usize);
        flows[sent].retransmissions = self.sender.retransmissions;
        flows[sent].timeouts = self.sender.timeouts;
        flows[received].useful = Some(self.received()).filter(|bytes| bytes.0 > 0);
        flows[received].answers = self.times.as_ref().clone();
    }
}
