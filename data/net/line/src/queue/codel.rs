//! CoDel: drops or marks at the head while packets have waited longer than a target for an interval
//! (Nichols, Jacobson, McGregor, Iyengar, RFC 8289), with the choices of the Linux kernel's `codel`.

use std::collections::VecDeque;

use selvedge_units::{Bytes, Duration, Instant};

use super::{Dropped, Limit, Queue};
use crate::packet::{Drop, Ecn, Packet, Waiting};

/// What CoDel is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelParams {
    /// How long a packet may wait.
    pub target: Duration,
    /// For how long all packets must have waited longer before one is dropped.
    pub interval: Duration,
    /// The most that waits.
    pub limit: Limit,
    /// Whether packets whose ends understand it are marked instead.
    pub marks: bool,
}

impl Default for CodelParams {
    /// The kernel's: 5 ms, 100 ms, 1000 packets, no marks.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            limit: Limit::packets(1_000),
            marks: false,
        }
    }
}

/// A backlog of at most this is never too much: it may be one packet.
const MTU: Bytes = Bytes(1_514);

/// The packets of one queue, and when the next of them is dropped.
#[derive(Debug)]
pub(super) struct Codel<P> {
    target: Duration,
    interval: Duration,
    marks: bool,
    packets: VecDeque<Waiting<P>>,
    backlog: Bytes,
    /// When packets will have waited too long for an interval.
    above_at: Option<Instant>,
    is_dropping: bool,
    drop_next: Instant,
    /// Drops since dropping began, and that number when it began.
    count: u64,
    count_before: u64,
}

impl<P> Codel<P> {
    pub(super) const fn new(params: &CodelParams) -> Self {
        Self {
            target: params.target,
            interval: params.interval,
            marks: params.marks,
            packets: VecDeque::new(),
            backlog: Bytes(0),
            above_at: None,
            is_dropping: false,
            drop_next: Instant::ZERO,
            count: 0,
            count_before: 0,
        }
    }

    pub(super) const fn backlog(&self) -> Bytes {
        self.backlog
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(super) fn push(&mut self, now: Instant, packet: Packet<P>) {
        self.backlog += packet.size;
        self.packets.push_back(Waiting { since: now, packet });
    }

    /// The oldest packet, whatever CoDel has decided.
    pub(super) fn pop(&mut self) -> Option<Waiting<P>> {
        let waiting = self.packets.pop_front()?;
        self.backlog = self.backlog - waiting.packet.size;
        Some(waiting)
    }

    /// The next packet, and whether it has waited too long.
    fn take(&mut self, now: Instant) -> Option<(Packet<P>, bool)> {
        let Some(Waiting { since, packet }) = self.pop() else {
            self.above_at = None;
            return None;
        };
        if now.since(since) < self.target || self.backlog <= MTU {
            self.above_at = None;
            return Some((packet, false));
        }
        let above_at = *self.above_at.get_or_insert(now + self.interval);
        Some((packet, now > above_at))
    }

    /// Drops come closer together by the square root of their number.
    const fn after(&self, from: Instant) -> Instant {
        let interval = self.interval.0 as u128;
        let step =
            (interval * interval / if self.count > 0 { self.count as u128 } else { 1 }).isqrt();
        Instant(from.0.saturating_add(step as u64))
    }

    /// Marks the packet and returns it, or drops it.
    fn signal(&self, mut packet: Packet<P>, dropped: &mut Dropped<P>) -> Option<Packet<P>> {
        if self.marks && packet.ecn != Ecn::NotCapable {
            packet.ecn = Ecn::Marked;
            return Some(packet);
        }
        dropped.push_back((packet, Drop::Congestion));
        None
    }

    pub(super) fn dequeue(&mut self, now: Instant, dropped: &mut Dropped<P>) -> Option<Packet<P>> {
        let Some((mut packet, mut is_late)) = self.take(now) else {
            self.is_dropping = false;
            return None;
        };
        if self.is_dropping {
            self.is_dropping = is_late;
            while self.is_dropping && now >= self.drop_next {
                self.count += 1;
                if let Some(marked) = self.signal(packet, dropped) {
                    self.drop_next = self.after(self.drop_next);
                    return Some(marked);
                }
                (packet, is_late) = self.take_or_stop(now)?;
                self.is_dropping = is_late;
                if is_late {
                    self.drop_next = self.after(self.drop_next);
                }
            }
        } else if is_late {
            let marked = self.signal(packet, dropped);
            self.begin(now);
            if marked.is_some() {
                return marked;
            }
            (packet, _) = self.take_or_stop(now)?;
        }
        Some(packet)
    }

    fn take_or_stop(&mut self, now: Instant) -> Option<(Packet<P>, bool)> {
        let next = self.take(now);
        self.is_dropping &= next.is_some();
        next
    }

    /// Begins to drop: at the rate of last time, if that was not long ago.
    fn begin(&mut self, now: Instant) {
        self.is_dropping = true;
        let more = self.count.saturating_sub(self.count_before);
        let is_recent = now.since(self.drop_next) < self.interval * 16;
        self.count = if more > 1 && is_recent { more } else { 1 };
        self.count_before = self.count;
        self.drop_next = self.after(now);
    }
}

/// One CoDel queue with a limit.
#[derive(Debug)]
pub(super) struct CodelQueue<P> {
    limit: Limit,
    codel: Codel<P>,
}

impl<P> CodelQueue<P> {
    pub(super) const fn new(params: CodelParams) -> Self {
        Self { limit: params.limit, codel: Codel::new(&params) }
    }
}

impl<P: std::fmt::Debug + Send> Queue<P> for CodelQueue<P> {
    fn enqueue(&mut self, now: Instant, packet: Packet<P>, dropped: &mut Dropped<P>) {
        let backlog = self.codel.backlog() + packet.size;
        if backlog > self.limit.bytes || self.codel.len() >= self.limit.packets as usize {
            dropped.push_back((packet, Drop::Full));
        } else {
            self.codel.push(now, packet);
        }
    }

    fn dequeue(&mut self, now: Instant, dropped: &mut Dropped<P>) -> Option<Packet<P>> {
        self.codel.dequeue(now, dropped)
    }

    fn backlog(&self) -> Bytes {
        self.codel.backlog()
    }

    fn packets(&self) -> usize {
        self.codel.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 1250 bytes come every ms into a queue that sends one every `every` ms. Returns how long
    /// each that was sent had waited, in ms, and at which ms each of the others was dropped or marked.
    fn overloaded(params: CodelParams, ecn: Ecn, every: u64, ms: u64) -> (Vec<u64>, Vec<u64>) {
        let mut queue = CodelQueue::new(params);
        let (mut dropped, mut waits, mut signals) = (Dropped::new(), Vec::new(), Vec::new());
        for n in 0..ms {
            let now = Instant::ZERO + Duration::from_millis(n);
            let packet = Packet { size: Bytes(1_250), flow: 0, port: 0, ecn, payload: n };
            queue.enqueue(now, packet, &mut dropped);
            if n % every != 0 {
                continue;
            }
            if let Some(sent) = queue.dequeue(now, &mut dropped) {
                waits.push(n - sent.payload);
                signals.extend((sent.ecn == Ecn::Marked).then_some(n));
            }
            signals.extend(dropped.drain(..).map(|(_, why)| {
                assert_eq!(why, Drop::Congestion);
                n
            }));
        }
        (waits, signals)
    }

    #[test]
    fn drops_begin_after_an_interval_and_come_closer_by_the_root_of_their_number() {
        let (_, signals) = overloaded(CodelParams::default(), Ecn::NotCapable, 2, 2_000);
        // At 10 ms a packet has waited 5; 100 ms later the first is dropped, then after 100 ms, 71, 58.
        let first = signals[0];
        assert!((108..=114).contains(&first), "{first}");
        let gaps: Vec<u64> = signals.windows(2).map(|pair| pair[1] - pair[0]).take(4).collect();
        for (gap, wanted) in gaps.iter().zip([100, 71, 58, 50]) {
            assert!(gap.abs_diff(wanted) <= 2, "{gaps:?}");
        }
    }

    #[test]
    fn a_queue_that_keeps_up_drops_nothing() {
        let (waits, signals) = overloaded(CodelParams::default(), Ecn::NotCapable, 1, 2_000);
        assert_eq!((waits.len(), signals.len()), (2_000, 0));
    }

    #[test]
    fn packets_of_ends_that_understand_it_are_marked_not_dropped() {
        let params = CodelParams { marks: true, ..CodelParams::default() };
        let (sent, marks) = overloaded(params, Ecn::Capable, 2, 1_000);
        assert_eq!(sent.len(), 500);
        assert!(marks.len() > 10, "{marks:?}");
        // Without the option they are dropped, and of those that do not understand it, too.
        let drops = overloaded(CodelParams::default(), Ecn::Capable, 2, 1_000).1;
        let others = overloaded(params, Ecn::NotCapable, 2, 1_000).1;
        assert!(drops.len() > 10 && drops == others, "{drops:?} {others:?}");
    }
}
