//! An attacker: noise, torn headers and forged packets, to the receivers of frames at a host in turn.

use std::sync::Arc;

use selvedge_data_net_line::{Packet, Random};
use selvedge_data_stream::rtp::{self, FrameTag, Header};
use selvedge_data_stream::{Kind, References};
use selvedge_units::{Bytes, Duration, Instant};

use crate::endpoint::Endpoint;
use crate::packet::{Datagram, FlowId, Payload};

/// IPv4 and UDP.
const HEADERS: u64 = 28;
const PAYLOAD_MAX: u64 = 1_400;

/// Sends packets that no product of ours would send.
#[derive(Clone, Debug)]
pub struct Hostile {
    /// Its own flows, and the source whose packets are forged in each.
    victims: Vec<(FlowId, u32)>,
    every: Duration,
    next: Instant,
    is_due: bool,
    random: Random,
}

impl Hostile {
    /// Sends one packet `every` so often from `start`, in one of these flows, each with the SSRC that its receiver
    /// expects. `every` is at least 1 ns.
    #[must_use]
    pub fn new(
        victims: Vec<(FlowId, u32)>,
        start: Instant,
        every: Duration,
        random: Random,
    ) -> Self {
        let every = every.max(Duration(1));
        Self { victims, every, next: start, is_due: false, random }
    }

    fn bytes(&mut self, ssrc: u32) -> Vec<u8> {
        let len = self.random.below(PAYLOAD_MAX) as usize;
        let noise = (0..len).map(|_| self.random.bits() as u8).collect::<Vec<_>>();
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

impl Endpoint for Hostile {
    fn handle_packet(&mut self, _now: Instant, _packet: Packet<Datagram>) {}

    fn handle_timeout(&mut self, now: Instant) {
        if self.next <= now {
            self.next += self.every;
            self.is_due = true;
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet<Datagram>> {
        if !std::mem::take(&mut self.is_due) || self.victims.is_empty() {
            return None;
        }
        let victim = self.random.below(self.victims.len() as u64) as usize;
        let (flow, ssrc) = self.victims[victim];
        let bytes = self.bytes(ssrc);
        let size = Bytes(bytes.len() as u64 + HEADERS);
        Some(Datagram::packet(flow, size, Payload::Bytes(Arc::from(bytes))))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.victims.is_empty()).then_some(self.next)
    }
}
