//! FQ-CoDel: a queue with CoDel for each flow, served in turn by bytes; a flow that was idle goes first
//! (Hoeiland-Joergensen and others, RFC 8290), with the choices of the Linux kernel's `fq_codel`.

use std::collections::VecDeque;

use selvedge_units::{Bytes, Duration, Instant};

use super::codel::{Codel, CodelParams};
use super::{Dropped, Limit, Queue};
use crate::packet::{Drop, Packet};

/// What FQ-CoDel is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodelParams {
    /// For each flow; the limit is that of all together.
    pub codel: CodelParams,
    /// What a flow may send in its turn: 1 B to 1 MiB, else the nearest of them.
    pub quantum: Bytes,
    /// How many queues there are, 1 to 65536, else the nearest: a hash spreads flows over them.
    pub queues: u32,
}

impl Default for FqCodelParams {
    /// The kernel's: 5 ms, 100 ms, 10240 packets and 32 MiB, marks, 1514 bytes, 1024 queues.
    fn default() -> Self {
        let limit = Limit { bytes: Bytes(32 << 20), packets: 10_240 };
        let codel = CodelParams {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            limit,
            marks: true,
        };
        Self { codel, quantum: Bytes(1_514), queues: 1_024 }
    }
}

/// The most bytes of a turn, and the most queues, as the kernel has them.
const QUANTUM_MAX: u64 = 1 << 20;
const QUEUES_MAX: u32 = 1 << 16;
/// The most packets that are dropped at once where all queues together are full.
const DROPPED_AT_ONCE: usize = 64;

#[derive(Debug)]
struct Flow<P> {
    codel: Codel<P>,
    /// What it may still send in this turn.
    credit: i64,
    is_listed: bool,
}

/// All flows, those that have just become active first.
#[derive(Debug)]
pub(super) struct FqCodel<P> {
    params: FqCodelParams,
    flows: Vec<Flow<P>>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    packets: usize,
    backlog: Bytes,
}

impl<P> FqCodel<P> {
    pub(super) fn new(mut params: FqCodelParams) -> Self {
        // A turn of nothing would never end.
        params.quantum = Bytes(params.quantum.0.clamp(1, QUANTUM_MAX));
        let flow = |_| Flow { codel: Codel::new(&params.codel), credit: 0, is_listed: false };
        let flows = (0..params.queues.clamp(1, QUEUES_MAX)).map(flow).collect();
        let (new, old) = (VecDeque::new(), VecDeque::new());
        Self { params, flows, new, old, packets: 0, backlog: Bytes(0) }
    }

    /// The multiplication spreads numbers that differ little.
    const fn index(&self, flow: u64) -> usize {
        let hash = (flow ^ (flow >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((hash * self.flows.len() as u64) >> 32) as usize
    }

    /// Drops half of the longest queue, from its front.
    fn drop_from_longest(&mut self, dropped: &mut Dropped<P>) {
        let Some(longest) = self.flows.iter_mut().max_by_key(|flow| flow.codel.backlog()) else {
            return;
        };
        let half = Bytes(longest.codel.backlog().0 / 2);
        let mut gone = Bytes(0);
        for _ in 0..DROPPED_AT_ONCE {
            let Some(waiting) = longest.codel.pop() else { break };
            gone += waiting.packet.size;
            self.packets -= 1;
            dropped.push_back((waiting.packet, Drop::Full));
            if gone >= half {
                break;
            }
        }
        self.backlog = self.backlog - gone;
    }
}

impl<P: std::fmt::Debug + Send> Queue<P> for FqCodel<P> {
    fn enqueue(&mut self, now: Instant, packet: Packet<P>, dropped: &mut Dropped<P>) {
        let index = self.index(packet.flow);
        self.packets += 1;
        self.backlog += packet.size;
        let flow = &mut self.flows[index];
        flow.codel.push(now, packet);
        if !flow.is_listed {
            flow.is_listed = true;
            flow.credit = self.params.quantum.0.cast_signed();
            self.new.push_back(index);
        }
        let limit = self.params.codel.limit;
        if self.packets > limit.packets as usize || self.backlog > limit.bytes {
            self.drop_from_longest(dropped);
        }
    }

    fn dequeue(&mut self, now: Instant, dropped: &mut Dropped<P>) -> Option<Packet<P>> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let flow = &mut self.flows[index];
            if flow.credit <= 0 {
                flow.credit += self.params.quantum.0.cast_signed();
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let before = (flow.codel.len(), flow.codel.backlog());
            let packet = flow.codel.dequeue(now, dropped);
            self.packets -= before.0 - flow.codel.len();
            self.backlog = self.backlog - (before.1 - flow.codel.backlog());
            if let Some(packet) = packet {
                flow.credit -= packet.size.0.cast_signed();
                return Some(packet);
            }
            list.pop_front();
            // A new flow that is empty waits a turn of the others, so that it can't go first again at once.
            if is_new && !self.old.is_empty() {
                self.old.push_back(index);
            } else {
                flow.is_listed = false;
            }
        }
    }

    fn backlog(&self) -> Bytes {
        self.backlog
    }

    fn packets(&self) -> usize {
        self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Ecn;

    fn packet(flow: u64, size: u64) -> Packet<()> {
        Packet { size: Bytes(size), flow, port: 0, ecn: Ecn::NotCapable, payload: () }
    }

    #[test]
    fn flows_share_by_bytes_and_an_idle_one_goes_first() {
        let mut queue = FqCodel::new(FqCodelParams::default());
        let mut dropped = Dropped::new();
        for _ in 0..100 {
            queue.enqueue(Instant::ZERO, packet(1, 1_500), &mut dropped);
        }
        for _ in 0..300 {
            queue.enqueue(Instant::ZERO, packet(2, 500), &mut dropped);
        }
        let mut sent = [0, 0];
        for _ in 0..200 {
            let next = queue.dequeue(Instant::ZERO, &mut dropped).expect("it is full");
            sent[next.flow as usize - 1] += next.size.0;
        }
        assert!(sent[0].abs_diff(sent[1]) <= 3_000, "{sent:?}");
        queue.enqueue(Instant::ZERO, packet(3, 100), &mut dropped);
        let next = queue.dequeue(Instant::ZERO, &mut dropped).expect("it is full");
        assert_eq!((next.flow, dropped.len()), (3, 0));
    }

    #[test]
    fn no_quantum_and_no_number_of_queues_hangs_or_takes_all_memory() {
        for quantum in [0, u64::MAX] {
            for queues in [0, u32::MAX] {
                let quantum = Bytes(quantum);
                let params = FqCodelParams { quantum, queues, ..FqCodelParams::default() };
                let mut queue = FqCodel::new(params);
                let mut dropped = Dropped::new();
                queue.enqueue(Instant::ZERO, packet(1, 1_500), &mut dropped);
                queue.enqueue(Instant::ZERO, packet(2, 1_500), &mut dropped);
                let sent = [(); 3].map(|()| queue.dequeue(Instant::ZERO, &mut dropped).is_some());
                assert_eq!(sent, [true, true, false]);
            }
        }
    }

    #[test]
    fn a_full_queue_drops_from_the_longest_flow() {
        let codel = CodelParams { limit: Limit::packets(100), ..CodelParams::default() };
        let params = FqCodelParams { codel, ..FqCodelParams::default() };
        let mut queue = FqCodel::new(params);
        let mut dropped = Dropped::new();
        queue.enqueue(Instant::ZERO, packet(1, 1_500), &mut dropped);
        for _ in 0..200 {
            queue.enqueue(Instant::ZERO, packet(2, 1_500), &mut dropped);
        }
        assert!(dropped.iter().all(|(packet, why)| (packet.flow, *why) == (2, Drop::Full)));
        assert_eq!(queue.packets() + dropped.len(), 201);
        assert_eq!(queue.backlog(), Bytes(1_500 * queue.packets() as u64));
        let next = queue.dequeue(Instant::ZERO, &mut dropped).map(|packet| packet.flow);
        assert_eq!(next, Some(1));
    }
}
