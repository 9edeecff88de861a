//! First come, first served, with a limit in bytes and packets.

use std::collections::VecDeque;

use selvedge_units::{Bytes, Instant};

use super::{Dropped, Limit, Queue};
use crate::packet::{Drop, Packet};

/// Packets in the order of their arrival, within the limit.
#[derive(Debug)]
pub(super) struct DropTail<P> {
    limit: Limit,
    backlog: Bytes,
    packets: VecDeque<Packet<P>>,
}

impl<P> DropTail<P> {
    pub(super) const fn new(limit: Limit) -> Self {
        Self { limit, backlog: Bytes(0), packets: VecDeque::new() }
    }
}

impl<P: std::fmt::Debug + Send> Queue<P> for DropTail<P> {
    fn enqueue(&mut self, _now: Instant, packet: Packet<P>, dropped: &mut Dropped<P>) {
        let backlog = self.backlog + packet.size;
        if backlog > self.limit.bytes || self.packets.len() >= self.limit.packets as usize {
            dropped.push_back((packet, Drop::Full));
            return;
        }
        self.backlog = backlog;
        self.packets.push_back(packet);
    }

    fn dequeue(&mut self, _now: Instant, _dropped: &mut Dropped<P>) -> Option<Packet<P>> {
        let packet = self.packets.pop_front()?;
        self.backlog = self.backlog - packet.size;
        Some(packet)
    }

    fn backlog(&self) -> Bytes {
        self.backlog
    }

    fn packets(&self) -> usize {
        self.packets.len()
    }
}
