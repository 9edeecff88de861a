//! One path of a bond, as its sending end knows it: rate, delay, loss, what waits for it and what is under way.

use std::collections::BTreeMap;

use selvedge_data_net_rate::{Delay, Estimator, Loss, RateParams, Report, State};
use selvedge_units::{Bitrate, Bytes, Duration, Instant, Share};

use crate::flight::{Flight, Held, Seen};
use crate::mtu::Mtu;
use crate::protection::{CERTAIN, REPAIRS_MAX, both};

/// A path that is silent for this long, or two round trips, delivers nothing.
const SILENT: Duration = Duration::from_millis(300);
/// The same for the only path that delivers.
const SILENT_ALONE: Duration = Duration::from_secs(1);
/// So often a path that carries no packets is tried, and a spare one that delivers.
const PROBES: Duration = Duration::from_millis(100);
/// A queue that is longer is not lengthened by probes.
const QUEUED: Duration = Duration::from_millis(40);
const SPARE_PROBES: Duration = Duration::from_secs(1);
/// After so long without packets its rate has to be found anew.
const STALE: Duration = Duration::from_secs(10);
/// What a late wake-up missed is sent afterwards, up to this.
const CATCH_UP: Duration = Duration::from_millis(5);
/// From the loss of a packet to its report: what the far end waits for those that were overtaken.
const REPORTED: Duration = Duration::from_millis(10);

/// What a packet on a path costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// Nothing.
    #[default]
    Free,
    /// It is paid for: the path carries only what no free one brings in time.
    Metered,
}

/// What is known of a path beforehand.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathParams {
    /// What its packets cost.
    pub cost: Cost,
    /// It carries packets only while no other path brings them in time.
    pub is_spare: bool,
    /// Where the measured rate begins, and its limits.
    pub rate: RateParams,
    /// What was measured of it before, if that is known: it begins with half of that.
    pub known: Option<Bitrate>,
}

/// Whether a path delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// It carries packets.
    Active,
    /// It took packets and delivered none since then: it gets probes only.
    Silent(Instant),
}

/// What the sending end knows of a path.
#[derive(Clone, Copy, Debug)]
pub struct PathStatus {
    /// Whether it delivers.
    pub state: PathState,
    /// Whether packets go on it, as opposed to probes only.
    pub is_used: bool,
    /// The rate at which it is sent to.
    pub rate: Bitrate,
    /// What it carries, as far as that was seen; `None`: it only began with some rate.
    pub capacity: Option<Bitrate>,
    /// How long packets wait in its queues.
    pub queueing: Duration,
    /// From a packet to its report.
    pub round_trip: Duration,
    /// The share of its packets that is lost.
    pub loss: Share,
    /// What it carried, repairs and probes included.
    pub sent: Bytes,
    /// When a report of its packets came last; at first, when it was added.
    pub heard: Instant,
    /// Larger datagrams vanish on it, all headers included; `None`: none was seen to.
    pub most: Option<Bytes>,
}

#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) params: PathParams,
    pub(crate) estimator: Estimator,
    /// The rate with which the estimator began.
    begun: Bitrate,
    pub(crate) state: PathState,
    flight: Flight,
    /// When it may send again.
    free_at: Instant,
    /// By deadline, then by the order in which they came.
    waiting: BTreeMap<(Instant, u64), Held>,
    waiting_bytes: Bytes,
    order: u64,
    /// The longest delay of late.
    delay: Option<Delay>,
    loss: Loss,
    heard: Instant,
    probe_at: Instant,
    sent: Bytes,
    pub(crate) mtu: Mtu,
}

impl Path {
    pub(crate) fn new(now: Instant, params: PathParams) -> Self {
        let half = params.known.map_or(params.rate.start, |known| Bitrate(known.0 / 2));
        let estimator = Estimator::new(now, params.rate).begin_with(half.max(params.rate.start));
        Self {
            params,
            begun: estimator.rate(),
            estimator,
            state: PathState::Active,
            flight: Flight::default(),
            free_at: now,
            waiting: BTreeMap::new(),
            waiting_bytes: Bytes(0),
            order: 0,
            delay: None,
            loss: Loss::default(),
            heard: now,
            probe_at: now,
            sent: Bytes(0),
            mtu: Mtu::default(),
        }
    }

    pub(crate) fn status(&self, is_used: bool) -> PathStatus {
        PathStatus {
            state: self.state,
            is_used,
            rate: self.estimator.rate(),
            capacity: Some(self.estimator.capacity()).filter(|capacity| *capacity != self.begun),
            queueing: self.estimator.queueing(),
            round_trip: self.estimator.round_trip(),
            loss: self.loss.share(),
            sent: self.sent,
            heard: self.heard,
            most: self.mtu.most(),
        }
    }

    pub(crate) const fn is_active(&self) -> bool {
        matches!(self.state, PathState::Active)
    }

    /// When a packet of this size would be sent, behind those that wait: its beginning and its end.
    pub(crate) fn sent_by(&self, now: Instant, size: Bytes) -> [Instant; 2] {
        let rate = self.estimator.rate().max(Bitrate(1));
        let begin = self.free_at.max(now) + self.waiting_bytes / rate;
        [begin, begin + size / rate]
    }

    /// By how much its delay exceeds that of the shortest path, given by `least`.
    pub(crate) fn excess(&self, least: impl Fn(Delay) -> Duration) -> Duration {
        self.delay.map_or(Duration::ZERO, least)
    }

    /// The mean time that its losses cost a packet: each is sent again after a round trip.
    pub(crate) fn repair_time(&self) -> Duration {
        Duration(
            (self.estimator.round_trip() + REPORTED).0.saturating_mul(self.loss.parts())
                / Loss::ALL,
        )
    }

    /// From a packet that is lost to its repair, where packets are lost at all.
    pub(crate) fn time_of_repair(&self) -> Duration {
        if self.loss.parts() * 100 < Loss::ALL {
            Duration::ZERO
        } else {
            self.estimator.round_trip() + REPORTED * 2
        }
    }

    /// By how much its delay exceeds that of the shortest path, and a repair takes, but for the queue that the bond made
    /// itself: that drains once less is sent.
    pub(crate) fn times_without_queue(&self, least: impl Fn(Delay) -> Duration) -> Duration {
        let is_own = self.estimator.state() != State::Competing;
        let queue = if is_own { self.estimator.queueing() } else { Duration::ZERO };
        (self.excess(least) - queue) + (self.time_of_repair() - queue)
    }

    /// The chance that a packet sent now is lost and that no repair of it comes by its deadline, in units of
    /// [`CERTAIN`]. A last repair goes more than once.
    pub(crate) fn chance_of_loss(&self, left: Duration) -> u64 {
        let lost = self.loss.parts() * (CERTAIN / Loss::ALL);
        let step = (self.estimator.round_trip() + REPORTED * 2).0;
        let repairs = left.0 / step;
        let again = if repairs > 0 { repairs - 1 + u64::from(REPAIRS_MAX) } else { 0 };
        let mut chance = lost;
        for _ in 0..again {
            let next = both(chance, lost);
            if next == chance {
                // Nothing is lost, or all is: more tries change nothing.
                break;
            }
            chance = next;
        }
        chance
    }

    pub(crate) fn enqueue(&mut self, held: Held) {
        self.waiting_bytes += held.size;
        self.waiting.insert((held.deadline, self.order), held);
        self.order += 1;
    }

    /// The packet that leaves now, with its number: the one that is due first.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<(u64, Held)> {
        if self.free_at > now {
            return None;
        }
        let (_, held) = self.waiting.pop_first()?;
        self.waiting_bytes = self.waiting_bytes - held.size;
        Some((self.handle_sent(now, held.size, Some(held.clone())), held))
    }

    /// Whether a probe is due: now and then where nothing is delivered, and from `wanted` on where the rate is to be
    /// found and there is too little to send.
    pub(crate) fn poll_probe(
        &mut self,
        now: Instant,
        wanted: Option<Instant>,
        is_used: bool,
    ) -> bool {
        if !is_used {
            let is_due = self.probe_at <= now;
            if is_due {
                let is_at_rest = self.params.is_spare && self.is_active();
                self.probe_at = now + if is_at_rest { SPARE_PROBES } else { PROBES };
                // Of so few packets what was is forgotten sooner.
                self.loss.fade();
            }
            return is_due;
        }
        let is_unknown = wanted.is_some_and(|wanted| self.unknown_at(wanted) <= now);
        if is_unknown && self.is_queued() {
            // Whatever is sent waits there. A few probes show when the queue is gone.
            let is_due = self.probe_at <= now && self.waiting.is_empty();
            if is_due {
                self.probe_at = now + PROBES;
            }
            return is_due;
        }
        is_unknown && self.waiting.is_empty() && self.free_at <= now
    }

    /// From when on its rate has to be found, if it is found anew from `wanted` on.
    fn unknown_at(&self, wanted: Instant) -> Instant {
        if self.is_starting() { Instant::ZERO } else { wanted.min(self.heard + STALE) }
    }

    pub(crate) const fn rate(&self) -> Bitrate {
        self.estimator.rate()
    }

    /// Whether its rate is known, and a queue that probes would lengthen.
    fn is_queued(&self) -> bool {
        !self.is_starting() && self.estimator.queueing() > QUEUED
    }

    fn is_starting(&self) -> bool {
        self.estimator.state() == State::Starting
    }

    pub(crate) fn handle_sent(&mut self, now: Instant, size: Bytes, held: Option<Held>) -> u64 {
        let number = self.flight.next();
        let counted = self.estimator.handle_sent(now, number, size);
        debug_assert!(counted.is_ok(), "{counted:?}");
        self.flight.handle_sent(now, size, held);
        self.sent += size;
        self.free_at = self.free_at.max(now - CATCH_UP) + size / self.estimator.rate();
        number
    }

    /// A packet that is under way, for a probe of another path.
    pub(crate) fn newest(&self) -> Option<&Held> {
        self.flight.newest()
    }

    /// Takes a report; `None` if it is of nothing new.
    pub(crate) fn handle_report(&mut self, now: Instant, report: &Report) -> Option<Seen> {
        let seen = self.flight.handle_report(report)?;
        self.estimator.handle_report(now, report);
        (self.heard, self.state) = (now, PathState::Active);
        for (size, has_arrived) in &seen.sizes {
            if *has_arrived {
                self.mtu.handle_arrived(*size);
            } else {
                self.mtu.handle_lost(now, *size);
            }
        }
        if let Some([_, most]) = seen.delays {
            // A shorter delay is believed slowly.
            self.delay = Some(self.delay.map_or(most, |delay| delay.longest(most)));
        }
        self.loss.handle_packets(seen.sizes.iter().map(|(_, has_arrived)| *has_arrived));
        Some(seen)
    }

    /// When it has delivered nothing for too long, if it took packets: longer if no other path delivers, since a few lost
    /// reports are no reason to find its rate anew.
    pub(crate) fn silent_at(&self, is_only: bool) -> Option<Instant> {
        let oldest = self.flight.oldest().filter(|_| self.is_active())?;
        let silent = if is_only { SILENT_ALONE } else { SILENT };
        Some(oldest.max(self.heard) + silent.max(self.estimator.round_trip() * 2))
    }

    /// It delivers nothing: all that it holds is for other paths, and its rate has to be found anew.
    pub(crate) fn fall_silent(&mut self, now: Instant) -> Vec<Held> {
        let RateParams { start, most, least } = self.params.rate;
        let again = Bitrate(self.estimator.capacity().0 / 4);
        let start = again.max(start).min(most).max(least);
        self.estimator = Estimator::new(now, RateParams { start, most, least });
        self.begun = start;
        (self.state, self.probe_at, self.free_at) = (PathState::Silent(now), now, now);
        self.waiting_bytes = Bytes(0);
        let waiting = std::mem::take(&mut self.waiting);
        self.flight.take_all().chain(waiting.into_values()).collect()
    }

    /// Drops what waits and can't be in time any more; returns how many packets that are.
    pub(crate) fn expire(&mut self, now: Instant) -> u64 {
        let mut dropped = 0;
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 < now) {
            self.waiting_bytes = self.waiting_bytes - first.remove().size;
            dropped += 1;
        }
        dropped
    }

    pub(crate) fn poll_timeout(
        &self,
        wanted: Option<Instant>,
        is_used: bool,
        is_only: bool,
    ) -> Option<Instant> {
        let send = (!self.waiting.is_empty()).then_some(self.free_at);
        let probe = match is_used {
            true if self.is_queued() => {
                wanted.map(|wanted| self.unknown_at(wanted).max(self.probe_at).max(self.free_at))
            }
            true => wanted.map(|wanted| self.unknown_at(wanted).max(self.free_at)),
            false => Some(self.probe_at),
        };
        let rate = self.estimator.poll_timeout().filter(|_| self.is_active());
        [send, probe, rate, self.silent_at(is_only)].into_iter().flatten().min()
    }
}
