//! An attacker: noise, torn headers and forged packets, to the receivers of frames at a host in turn; to the
//! ends of stacks there what the other ends sent, whole, torn or changed, and what is sealed with another key.

use std::sync::Arc;

use selvedge_data_net_line::{Packet, Random};
use selvedge_data_stack::stack::Stack;
use selvedge_data_stream::rtp::{self, FrameTag, Header};
use selvedge_data_stream::{Kind, References};
use selvedge_units::{Duration, Instant};

use crate::endpoint::Endpoint;
use crate::packet::{Datagram, FlowId};
use crate::traffic::messages::Wire;

const PAYLOAD_MAX: u64 = 1_400;

/// Whom an attacker attacks.
#[derive(Debug)]
pub(crate) enum Victim {
    /// A receiver of frames, in this flow, with the SSRC that it expects.
    Receiver(FlowId, u32),
    /// An end of a stack.
    End {
        /// In which datagrams of the other end come again.
        replays: FlowId,
        /// In which all else comes.
        forged: FlowId,
        /// What the other end sent.
        wire: Wire,
        /// What seals with another key.
        forger: Option<Box<Stack>>,
    },
}

/// Sends packets that no product of ours would send.
#[derive(Debug)]
pub struct Hostile {
    victims: Vec<Victim>,
    every: Duration,
    next: Instant,
    is_due: bool,
    random: Random,
}

impl Hostile {
    /// Sends one packet `every` so often from `start`, to one of these. `every` is at least 1 ns.
    #[must_use]
    pub(crate) fn new(
        victims: Vec<Victim>,
        start: Instant,
        every: Duration,
        random: Random,
    ) -> Self {
        let every = every.max(Duration(1));
        Self { victims, every, next: start, is_due: false, random }
    }

    fn bytes(&mut self, ssrc: u32) -> Vec<u8> {
        let noise = noise(&mut self.random);
        let len = noise.len();
        let [kind, bits, more] = [(); 3].map(|()| self.random.bits());
        let ssrc = if bits & 1 == 0 { ssrc } else { more as u32 };
        let header = Header {
            marker: bits & 2 == 0,
            payload_type: 96,
            sequence: (bits >> 8) as u16,
            timestamp: (bits >> 24) as u32,
            ssrc,
        };
        let tag = FrameTag {
            seq: (more >> 32) as u32 >> (bits & 31),
            kind: Kind::ALL[(bits >> 40) as usize % Kind::COUNT],
            referenced: bits & 4 == 0,
            first: bits & 8 == 0,
            last: bits & 16 == 0,
            refs: References::to([(more & 7) as u32]),
            left_ms: (more >> 16) as i16,
            deadline_ms: (more >> 8) as u16,
        };
        match kind % 3 {
            0 => noise,
            with_header => {
                let mut bytes = vec![0; rtp::packet_len(noise.len())];
                rtp::write_packet(&mut bytes, header, tag, &noise);
                // A torn one ends somewhere in its headers.
                bytes.truncate(if with_header == 1 {
                    len % rtp::packet_len(1)
                } else {
                    usize::MAX
                });
                bytes
            }
        }
    }
}

fn noise(random: &mut Random) -> Vec<u8> {
    (0..random.below(PAYLOAD_MAX)).map(|_| random.bits() as u8).collect()
}

/// The datagram with a bit changed, or torn.
fn changed(mut datagram: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let at = random.below(datagram.len() as u64) as usize;
    match random.below(2) {
        0 => datagram.truncate(at),
        _ => datagram[at] ^= 1 << random.below(8),
    }
    datagram
}

/// A datagram that is right but for its key; its number is some further than that of the one before.
fn sealed(forger: &mut Stack, now: Instant, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=random.below(32) {
        let sent = forger.handle_message(now, b"forged");
        if let Some(datagram) = sent.ok().and_then(|()| forger.poll_transmit()) {
            bytes = datagram.bytes().to_vec();
            forger.recycle(datagram);
        }
    }
    bytes
}

impl Endpoint for Hostile {
    fn handle_packet(&mut self, _now: Instant, _packet: Packet<Datagram>) {}

    fn handle_timeout(&mut self, now: Instant) {
        if self.next <= now {
            self.next += self.every;
            self.is_due = true;
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet<Datagram>> {
        if !std::mem::take(&mut self.is_due) || self.victims.is_empty() {
            return None;
        }
        let victim = self.random.below(self.victims.len() as u64) as usize;
        let (flow, bytes) = match &mut self.victims[victim] {
            &mut Victim::Receiver(flow, ssrc) => (flow, self.bytes(ssrc)),
            Victim::End { replays, forged, wire, forger } => {
                let copy = wire.any(&mut self.random).map(|datagram| datagram.to_vec());
                match (self.random.below(4), copy, forger) {
                    (0, Some(copy), _) => (*replays, copy),
                    (1, Some(copy), _) => (*forged, changed(copy, &mut self.random)),
                    (2, _, Some(forger)) => (*forged, sealed(forger, now, &mut self.random)),
                    _ => (*forged, noise(&mut self.random)),
                }
            }
        };
        Some(Datagram::udp(flow, Arc::from(bytes)))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.victims.is_empty()).then_some(self.next)
    }
}
