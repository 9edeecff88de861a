//! A queue for each flow, served by a discipline of the scheduler (`data/sched`): each flow is a stream with
//! a contract, each packet a frame of it.

use std::collections::{BTreeMap, VecDeque};

use selvedge_data_sched::{Decision, Discipline, Head, Scheduler, StreamIndex, Tree, Verdict};
use selvedge_data_stream::{Contract, Kind, Late, Window};
use selvedge_units::{Bytes, Duration, Instant};

use super::{Dropped, Limit, Queue};
use crate::packet::{Drop, Packet, Waiting};

/// What a queue of a discipline is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisciplineParams {
    /// Which flow's packet is next.
    pub discipline: Discipline,
    /// The tree of weights, which only `hwfq` uses.
    pub tree: Tree,
    /// The flows with a contract of their own.
    pub contracts: BTreeMap<u64, Contract>,
    /// The contract that each other flow has. Of all contracts `work_conserving` is not used: the link is
    /// never idle while a packet waits.
    pub others: Contract,
    /// The most that waits, of all flows together; a packet that does not fit is dropped.
    pub limit: Limit,
}

impl Default for DisciplineParams {
    /// Equal shares by bytes (`drr`), no deadlines, 1000 packets.
    fn default() -> Self {
        Self {
            discipline: Discipline::Drr,
            tree: Tree::default(),
            contracts: BTreeMap::new(),
            others: Contract {
                // At the end of time, which is never missed.
                delay: Some(Duration(u64::MAX)),
                late: Late::Send,
                weight: 1_500,
                ..Contract::new(Duration::from_millis(10), Window::NONE)
            },
            limit: Limit::packets(1_000),
        }
    }
}

/// The most flows that are known at once. For one more, the state of the flow that became idle first is
/// given up; if none is idle, a packet of one more is dropped.
const FLOWS_MAX: usize = 1 << 16;
/// A flow without packets keeps room for so many.
const ROOM_KEPT: usize = 4;

#[derive(Debug)]
struct Flow<P> {
    id: u64,
    packets: VecDeque<Waiting<P>>,
    /// Whether it is in the list of flows that became idle.
    is_listed: bool,
}

impl<P> Flow<P> {
    const fn new(id: u64) -> Self {
        Self { id, packets: VecDeque::new(), is_listed: false }
    }

    fn head(&self) -> Option<Head> {
        self.packets.front().map(|first| Head {
            arrival: first.since,
            kind: Kind::Data,
            deadline: None,
            size: first.packet.size,
        })
    }
}

/// All flows, and the scheduler that has the head of each.
#[derive(Debug)]
pub(super) struct Scheduled<P> {
    params: DisciplineParams,
    scheduler: Scheduler,
    streams: BTreeMap<u64, StreamIndex>,
    /// By the streams' indexes.
    flows: Vec<Flow<P>>,
    /// Flows that became idle, in that order; some of them may have packets again.
    idle: VecDeque<StreamIndex>,
    packets: usize,
    backlog: Bytes,
}

impl<P> Scheduled<P> {
    pub(super) fn new(params: DisciplineParams) -> Self {
        let scheduler = match params.discipline {
            Discipline::Hwfq => Scheduler::with_tree(&params.tree),
            discipline => Scheduler::new(discipline),
        };
        Self {
            params,
            scheduler,
            streams: BTreeMap::new(),
            flows: Vec::new(),
            idle: VecDeque::new(),
            packets: 0,
            backlog: Bytes(0),
        }
    }

    /// The stream of a flow, a new one if need be.
    fn stream(&mut self, id: u64) -> Option<StreamIndex> {
        if let Some(stream) = self.streams.get(&id) {
            return Some(*stream);
        }
        if self.streams.len() == FLOWS_MAX {
            self.forget_idle()?;
        }
        let contract = self.params.contracts.get(&id).unwrap_or(&self.params.others);
        let stream = self.scheduler.add(&Contract { work_conserving: true, ..*contract });
        match self.flows.get_mut(stream.0 as usize) {
            Some(vacant) => *vacant = Flow::new(id),
            None => self.flows.push(Flow::new(id)),
        }
        self.streams.insert(id, stream);
        Some(stream)
    }

    /// Gives up the state of the flow that became idle first.
    fn forget_idle(&mut self) -> Option<()> {
        loop {
            let stream = self.idle.pop_front()?;
            let flow = &mut self.flows[stream.0 as usize];
            flow.is_listed = false;
            if flow.packets.is_empty() {
                self.streams.remove(&flow.id);
                self.scheduler.remove(stream);
                return Some(());
            }
        }
    }

    /// Takes the first packet of a flow, and returns the head of the rest.
    fn take(&mut self, stream: StreamIndex) -> (Option<Packet<P>>, Option<Head>) {
        let flow = &mut self.flows[stream.0 as usize];
        let packet = flow.packets.pop_front().map(|waiting| waiting.packet);
        if let Some(packet) = &packet {
            self.packets -= 1;
            self.backlog = self.backlog - packet.size;
        }
        let next = flow.head();
        if next.is_none() {
            flow.packets.shrink_to(ROOM_KEPT);
            if !std::mem::replace(&mut flow.is_listed, true) {
                self.idle.push_back(stream);
            }
        }
        (packet, next)
    }
}

impl<P: std::fmt::Debug + Send> Queue<P> for Scheduled<P> {
    fn enqueue(&mut self, now: Instant, packet: Packet<P>, dropped: &mut Dropped<P>) {
        let backlog = self.backlog + packet.size;
        let limit = self.params.limit;
        let fits = backlog <= limit.bytes && self.packets < limit.packets as usize;
        let Some(stream) = fits.then(|| self.stream(packet.flow)).flatten() else {
            dropped.push_back((packet, Drop::Full));
            return;
        };
        self.packets += 1;
        self.backlog = backlog;
        let flow = &mut self.flows[stream.0 as usize];
        let was_idle = flow.packets.is_empty();
        flow.packets.push_back(Waiting { since: now, packet });
        if was_idle && let Some(head) = flow.head() {
            self.scheduler.enqueue_head(stream, head);
        }
    }

    fn dequeue(&mut self, now: Instant, dropped: &mut Dropped<P>) -> Option<Packet<P>> {
        loop {
            match self.scheduler.decide(now) {
                Decision::Expired(expiry) if expiry.verdict == Verdict::Dropped => {
                    let (packet, next) = self.take(expiry.stream);
                    dropped.extend(packet.map(|packet| (packet, Drop::Late)));
                    if let Some(next) = next {
                        self.scheduler.enqueue_head(expiry.stream, next);
                    }
                }
                Decision::Expired(_) => {}
                Decision::Send(stream) => {
                    let (packet, next) = self.take(stream);
                    match next {
                        Some(next) => self.scheduler.dequeue_and_enqueue(stream, next),
                        None => self.scheduler.dequeue(stream),
                    };
                    return packet;
                }
                Decision::Idle => return None,
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

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn packet(flow: u64, size: u64) -> Packet<()> {
        Packet { size: Bytes(size), flow, port: 0, ecn: Ecn::NotCapable, payload: () }
    }

    /// A queue of this discipline, in which these flows have contracts that differ from the others'.
    fn queue(
        discipline: Discipline,
        others: Contract,
        contracts: impl IntoIterator<Item = (u64, Contract)>,
    ) -> Scheduled<()> {
        let contracts = contracts.into_iter().collect();
        let limit = Limit::packets(1 << 20);
        let tree = Tree::default();
        Scheduled::new(DisciplineParams { discipline, tree, contracts, others, limit })
    }

    fn fill(queue: &mut Scheduled<()>, now: Instant, packets: &[(u64, u64)]) {
        let mut dropped = Dropped::new();
        for (flow, size) in packets {
            queue.enqueue(now, packet(*flow, *size), &mut dropped);
        }
        assert!(dropped.is_empty());
    }

    /// The flows of the next packets, and how many were dropped for lateness before.
    fn sent(queue: &mut Scheduled<()>, now: Instant, count: usize) -> (Vec<u64>, usize) {
        let mut dropped = Dropped::new();
        let flows = (0..count).map_while(|_| queue.dequeue(now, &mut dropped)).map(|it| it.flow);
        let flows = flows.collect();
        assert!(dropped.iter().all(|(_, why)| *why == Drop::Late));
        (flows, dropped.len())
    }

    /// The share of the bytes that flow 1 sends in large packets, beside flow 2 in small ones, in percent.
    fn share_of_first(discipline: Discipline, weight: u32) -> u64 {
        let others = DisciplineParams::default().others;
        let mut queue = queue(discipline, others, [(1, Contract { weight, ..others })]);
        fill(&mut queue, at(0), &[(1, 1_500); 1_000]);
        fill(&mut queue, at(0), &[(2, 100); 15_000]);
        let (mut all, mut first) = (0, 0);
        while all < 1_000_000 {
            let next = queue.dequeue(at(1), &mut Dropped::new()).expect("both are long");
            all += next.size.0;
            first += if next.flow == 1 { next.size.0 } else { 0 };
        }
        first * 100 / all
    }

    #[test]
    fn flows_share_a_link_by_bytes_whatever_their_packets_are() {
        for discipline in [Discipline::Drr, Discipline::Wfq, Discipline::Sfq, Discipline::Hwfq] {
            for (weight, percent) in [(1_500, 50), (4_500, 75), (500, 25)] {
                let share = share_of_first(discipline, weight);
                assert!(share.abs_diff(percent) <= 1, "{discipline} {weight}: {share} %");
            }
        }
        // First come, first served gives the first flow all until its packets are gone.
        assert_eq!(share_of_first(Discipline::Fifo, 1_500), 100);
    }

    #[test]
    fn the_highest_priority_goes_first() {
        let others = DisciplineParams::default().others;
        let high = [(7, Contract { priority: 5, ..others })];
        let mut queue = queue(Discipline::Priority, others, high);
        fill(&mut queue, at(0), &[(1, 100), (2, 100), (7, 100), (1, 100), (7, 100)]);
        assert_eq!(sent(&mut queue, at(0), 9).0, [7, 7, 1, 1, 2]);
    }

    #[test]
    fn the_earliest_deadline_goes_first_and_a_late_packet_is_dropped_if_its_contract_says_so() {
        let delay = |ms| Some(Duration::from_millis(ms));
        // A late packet that is kept is due again after a period.
        let period = Duration::from_secs(1);
        for (late, at_25_ms) in [(Late::Send, (vec![1, 1, 3, 2], 0)), (Late::Drop, (vec![1, 1], 2))]
        {
            let base = Contract { late, period, ..DisciplineParams::default().others };
            let flows = [30, 20, 10].map(|ms| Contract { delay: delay(ms), ..base });
            let mut queue = queue(Discipline::Edf, base, (1..).zip(flows));
            fill(&mut queue, at(0), &[(1, 100), (2, 100), (3, 100), (1, 100)]);
            assert_eq!(sent(&mut queue, at(1), 1), (vec![3], 0));
            fill(&mut queue, at(2), &[(3, 100)]);
            assert_eq!(sent(&mut queue, at(25), 9), at_25_ms);
        }
    }

    #[test]
    fn a_window_is_kept_where_a_link_cannot_carry_all() {
        // Two flows of 100 packets in a second on a link that sends as many as one of them.
        let lost_of_first = |lose: [u16; 2]| {
            let period = Duration::from_millis(10);
            let flows = lose.map(|lose| Contract::new(period, Window { lose, of: 10 }));
            let mut queue = queue(Discipline::Dwcs, flows[0], (1..).zip(flows));
            let mut sent_of_first = 0;
            for n in 0..100 {
                fill(&mut queue, at(10 * n), &[(1, 100), (2, 100)]);
                sent_of_first +=
                    sent(&mut queue, at(10 * n), 1).0.iter().filter(|f| **f == 1).count();
            }
            100 - sent_of_first
        };
        // One in ten, beside the last that still waits.
        assert!(lost_of_first([1, 9]) <= 11);
        assert!(lost_of_first([9, 1]) >= 80);
    }

    #[test]
    fn flows_that_have_gone_are_forgotten_and_too_many_at_once_are_refused() {
        let others = DisciplineParams::default().others;
        let mut queue = queue(Discipline::Drr, others, []);
        let mut dropped = Dropped::new();
        for flow in 0..FLOWS_MAX as u64 + 5_000 {
            queue.enqueue(at(flow), packet(flow, 100), &mut dropped);
            assert!(queue.dequeue(at(flow), &mut dropped).is_some());
        }
        assert_eq!((queue.streams.len(), queue.flows.len()), (FLOWS_MAX, FLOWS_MAX));
        assert_eq!((queue.idle.len(), dropped.len(), queue.packets()), (FLOWS_MAX, 0, 0));
        let now = at(FLOWS_MAX as u64 + 5_000);
        for flow in 0..FLOWS_MAX as u64 + 1 {
            queue.enqueue(now, packet(flow, 100), &mut dropped);
        }
        assert_eq!((dropped.len(), queue.packets()), (1, FLOWS_MAX));
        assert_eq!(dropped[0].1, Drop::Full);
        assert_eq!(sent(&mut queue, now, FLOWS_MAX + 1).0.len(), FLOWS_MAX);
    }
}
