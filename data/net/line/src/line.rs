//! One direction of a link: packets in, the same packets out later, or not at all.
//!
//! `handle_packet -> queue -> transmitter (rate) -> loss, corruption, duplication -> delay -> poll_packet`.
//! All of a packet's fate is decided when its last bit leaves the transmitter. What a call does at `now`
//! is what it would have done at the exact times: a caller may be late.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;

use selvedge_units::{Bytes, Duration, Instant, Share};

use crate::delay::{DelayModel, Delays};
use crate::loss::{Loss, LossModel};
use crate::packet::{Drop, Ecn, Packet};
use crate::queue::{Dropped, Limit, Queue, QueueModel};
use crate::random::Random;
use crate::recording::{Fate, Recording, Replay};
use crate::trace::{Rate, TraceError};

/// Times at which nothing passes: from `every` on for `lasts`, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outages {
    /// From the beginning of one to that of the next, and from 0 to the first.
    pub every: Duration,
    /// How long each lasts; less than `every`.
    pub lasts: Duration,
    /// Whether packets wait for its end, as during a handover, or are lost.
    pub holds: bool,
}

impl Outages {
    /// The end of the outage at this time, if there is one.
    fn end(&self, at: Instant) -> Option<Instant> {
        let phase = at.0.checked_rem(self.every.0)?;
        let began = Instant(at.0 - phase);
        (at.0 >= self.every.0 && phase < self.lasts.0).then(|| began + self.lasts)
    }
}

/// A direction of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineModel {
    /// How fast packets leave; `None`: at once.
    pub rate: Option<Rate>,
    /// The queue in front.
    pub queue: QueueModel,
    /// How long they are under way then.
    pub delay: DelayModel,
    /// Which of them are lost.
    pub loss: LossModel,
    /// A packet has a wrong bit with this probability.
    pub corrupts: Share,
    /// A packet arrives twice with this probability.
    pub duplicates: Share,
    /// When nothing passes.
    pub outages: Option<Outages>,
    /// What is larger is dropped.
    pub mtu: Option<Bytes>,
    /// What decides instead of all others.
    pub recording: Option<Arc<Recording>>,
}

impl Default for LineModel {
    /// A perfect link, with room for 1000 packets.
    fn default() -> Self {
        Self {
            rate: None,
            queue: QueueModel::DropTail { limit: Limit::packets(1_000) },
            delay: DelayModel::default(),
            loss: LossModel::None,
            corrupts: Share::ZERO,
            duplicates: Share::ZERO,
            outages: None,
            mtu: None,
            recording: None,
        }
    }
}

impl LineModel {
    /// The two directions of a link, there and back, of the text that `selvedge line` records. One in which no
    /// packet came is perfect.
    ///
    /// # Errors
    /// [`TraceError`], with the line.
    pub fn recorded(text: &str, link: &str) -> Result<[Self; 2], TraceError> {
        let ways = Recording::of_link(text, link)?;
        Ok(ways.map(|recording| Self { recording, ..Self::default() }))
    }
}

/// What became of all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Packets that the caller handed in.
    pub packets: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Packets that were handed out, second copies too.
    pub arrived: u64,
    /// Second copies.
    pub duplicated: u64,
    /// Packets with a wrong bit.
    pub corrupted: u64,
    /// Packets that were dropped, by reason: see [`Self::dropped`].
    dropped: [u64; Drop::COUNT],
}

impl LineCounts {
    /// Packets that were dropped for this reason.
    #[must_use]
    pub const fn dropped(&self, why: Drop) -> u64 {
        self.dropped[why as usize]
    }
}

/// A packet at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived<P> {
    /// When it arrived.
    pub at: Instant,
    /// When it left the queue.
    pub dequeued: Instant,
    /// The packet.
    pub packet: Packet<P>,
    /// A random number if a bit of it is wrong: the bit of this number, modulo their count.
    pub wrong_bit: Option<u64>,
}

/// A packet that overtakes others; in a heap the one that arrives first is the greatest.
#[derive(Debug)]
struct Overtaking<P> {
    number: u64,
    arrived: Arrived<P>,
}

impl<P> Overtaking<P> {
    const fn key(&self) -> Reverse<(Instant, u64)> {
        Reverse((self.arrived.at, self.number))
    }
}

impl<P> PartialEq for Overtaking<P> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<P> Eq for Overtaking<P> {}

impl<P> PartialOrd for Overtaking<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Ord for Overtaking<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// One direction of a link. Packets that were dropped wait until [`Self::poll_dropped`] is called, which
/// the caller does after each other call.
#[derive(Debug)]
pub struct Line<P> {
    model: LineModel,
    queue: Box<dyn Queue<P>>,
    delays: Delays,
    loss: Loss,
    random: Random,
    replay: Replay,
    /// The packet that is being sent, and when its last bit leaves.
    sending: Option<(Instant, Packet<P>)>,
    /// Packets under way that arrive no earlier than those before: all, unless they may overtake.
    in_order: VecDeque<Arrived<P>>,
    /// Those that arrive before the last of the others. Of two that arrive at once, the one in order was sent
    /// first: none comes to it that arrives earlier than its last.
    overtaking: BinaryHeap<Overtaking<P>>,
    number: u64,
    dropped: Dropped<P>,
    counts: LineCounts,
    /// When the packet that is being sent left the queue.
    dequeued: Instant,
}

impl<P: Clone + Debug + Send + 'static> Line<P> {
    /// A line of this model; its name makes its random numbers its own under the seed.
    #[must_use]
    pub fn new(model: LineModel, seed: u64, name: &str) -> Self {
        let random = |what: &str| Random::named(seed, &format!("{name} {what}"));
        Self {
            queue: model.queue.queue(),
            model,
            delays: Delays::new(random("delay")),
            loss: Loss::new(random("loss")),
            random: random("faults"),
            replay: Replay::default(),
            sending: None,
            in_order: VecDeque::new(),
            overtaking: BinaryHeap::new(),
            number: 0,
            dropped: Dropped::new(),
            counts: LineCounts::default(),
            dequeued: Instant::ZERO,
        }
    }

    /// Changes all but the queue, for packets that are sent from `now` on.
    pub fn change(&mut self, now: Instant, model: LineModel) {
        self.advance(now);
        self.loss.begin_anew();
        self.model = LineModel { queue: self.model.queue.clone(), ..model };
        // What waited for a rate above 0 begins anew.
        if let Some((_, packet)) = self.sending.take_if(|(end, _)| *end == NEVER) {
            self.begin(now, packet);
            self.send_next(now);
        }
    }

    /// Takes a packet. Times of calls do not go back.
    pub fn handle_packet(&mut self, now: Instant, packet: Packet<P>) {
        self.advance(now);
        self.counts.packets += 1;
        self.counts.bytes += packet.size;
        if let Some(recording) = &self.model.recording {
            let fate = self.replay.fate(recording, now, packet.size, packet.port);
            self.replayed(packet, fate);
        } else if self.model.mtu.is_some_and(|mtu| packet.size > mtu) {
            self.drop_packet(packet, Drop::TooLarge);
        } else {
            let before = self.dropped.len();
            self.queue.enqueue(now, packet, &mut self.dropped);
            self.count_dropped_since(before);
            if self.sending.is_none() {
                self.send_next(now);
            }
        }
    }

    /// The next packet that has arrived by `now`.
    pub fn poll_packet(&mut self, now: Instant) -> Option<Arrived<P>> {
        self.advance(now);
        let at = self.next_arrival().filter(|at| *at <= now)?;
        self.counts.arrived += 1;
        if self.in_order.front().is_some_and(|first| first.at == at) {
            return self.in_order.pop_front();
        }
        self.overtaking.pop().map(|packet| packet.arrived)
    }

    /// The next packet that was dropped, and why.
    pub fn poll_dropped(&mut self) -> Option<(Packet<P>, Drop)> {
        self.dropped.pop_front()
    }

    /// When [`Self::poll_packet`] should be called next, if no packet comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let sent = self.sending.as_ref().map_or(NEVER, |(end, _)| *end);
        let next = self.next_arrival().map_or(sent, |at| at.min(sent));
        (next < NEVER).then_some(next)
    }

    /// When the next packet arrives. Where none is in order, none overtakes one.
    fn next_arrival(&self) -> Option<Instant> {
        let first = self.in_order.front()?.at;
        Some(self.overtaking.peek().map_or(first, |packet| packet.arrived.at.min(first)))
    }

    /// What waits in front of it.
    #[must_use]
    pub fn backlog(&self) -> Bytes {
        self.queue.backlog()
    }

    /// How many packets wait in front of it.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.packets()
    }

    /// What became of all packets until now.
    #[must_use]
    pub const fn counts(&self) -> &LineCounts {
        &self.counts
    }

    /// Does all that happens until `now`.
    fn advance(&mut self, now: Instant) {
        while let Some((end, packet)) = self.sending.take_if(|(end, _)| *end <= now) {
            self.put_under_way(end, packet);
            self.send_next(end);
        }
    }

    /// Takes packets from the queue until one needs time.
    fn send_next(&mut self, now: Instant) {
        while self.sending.is_none() {
            let before = self.dropped.len();
            let next = self.queue.dequeue(now, &mut self.dropped);
            self.count_dropped_since(before);
            let Some(packet) = next else { return };
            self.dequeued = now;
            self.begin(now, packet);
        }
    }

    /// Begins to send a packet; one that needs no time is sent.
    fn begin(&mut self, now: Instant, packet: Packet<P>) {
        let held = self.model.outages.filter(|outages| outages.holds).and_then(|it| it.end(now));
        let begin = held.unwrap_or(now);
        let end = self.model.rate.as_ref().map_or(Some(begin), |rate| rate.end(begin, packet.size));
        match end.unwrap_or(NEVER) {
            end if end <= now => self.put_under_way(end, packet),
            end => self.sending = Some((end, packet)),
        }
    }

    /// Decides the fate of a packet whose last bit has left.
    fn put_under_way(&mut self, sent: Instant, packet: Packet<P>) {
        let is_down =
            self.model.outages.is_some_and(|outages| !outages.holds && outages.end(sent).is_some());
        // Each model takes its numbers for each packet, whatever the others decide.
        let is_lost = self.loss.loses_next(self.model.loss);
        let is_wrong = self.random.happens(self.model.corrupts);
        let is_twice = self.random.happens(self.model.duplicates);
        if is_down || is_lost {
            return self.drop_packet(packet, if is_down { Drop::Outage } else { Drop::Lost });
        }
        let wrong_bit = is_wrong.then(|| self.random.bits());
        self.counts.corrupted += u64::from(is_wrong);
        self.counts.duplicated += u64::from(is_twice);
        if is_twice {
            self.deliver(sent, packet.clone(), wrong_bit);
        }
        self.deliver(sent, packet, wrong_bit);
    }

    /// What a recording decides of a packet.
    fn replayed(&mut self, mut packet: Packet<P>, fate: Result<(Fate, [Instant; 2]), Drop>) {
        let (fate, [dequeued, at]) = match fate {
            Ok(passes) => passes,
            Err(why) => return self.drop_packet(packet, why),
        };
        self.dequeued = dequeued;
        if fate == Fate::Marked && packet.ecn != Ecn::NotCapable {
            packet.ecn = Ecn::Marked;
        }
        let wrong_bit = (fate == Fate::Corrupted).then(|| self.random.bits());
        self.counts.corrupted += u64::from(wrong_bit.is_some());
        self.add_arrival(at, packet, wrong_bit);
    }

    fn deliver(&mut self, sent: Instant, packet: Packet<P>, wrong_bit: Option<u64>) {
        let at = self.delays.arrival(&self.model.delay, sent);
        self.add_arrival(at, packet, wrong_bit);
    }

    fn add_arrival(&mut self, at: Instant, packet: Packet<P>, wrong_bit: Option<u64>) {
        let arrived = Arrived { at, dequeued: self.dequeued, packet, wrong_bit };
        if self.in_order.back().is_none_or(|last| last.at <= at) {
            self.in_order.push_back(arrived);
        } else {
            self.overtaking.push(Overtaking { number: self.number, arrived });
            self.number += 1;
        }
    }

    fn drop_packet(&mut self, packet: Packet<P>, why: Drop) {
        self.counts.dropped[why as usize] += 1;
        self.dropped.push_back((packet, why));
    }

    fn count_dropped_since(&mut self, before: usize) {
        for (_, why) in self.dropped.range(before..) {
            self.counts.dropped[*why as usize] += 1;
        }
    }
}

/// When a packet is sent that waits for a rate above 0.
const NEVER: Instant = Instant(u64::MAX);
