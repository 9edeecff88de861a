//! The sending end: from reports to the rate at which to send.

use std::collections::VecDeque;

use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::base_delay::{BaseDelay, Delay};
use crate::params::RateParams;
use crate::report::Report;
use crate::sent::{Sent, SentError, Unreported};
use crate::serialization::Serialization;
use crate::target::{TARGET, target};
use crate::usage::Usage;
use crate::variation::Variation;
use crate::window::Window;

/// A queueing delay below which a queue does not count as one.
const LOW: Duration = Duration::from_millis(7);
/// The time of so much is no queue: where the rate falls, packets themselves take longer than the least delay has it.
const GRAIN: Bytes = Bytes(2_000);
/// So much longer than its pacing a pause is one.
const PAUSE: Duration = Duration::from_millis(10);
/// Below this a queue counts as gone.
const GONE: Duration = Duration::from_millis(2);
/// In which what is more than the target is drained.
const DRAIN: Duration = Duration::from_millis(500);
/// A longer queue may be another flow's.
const JOINED: Duration = Duration::from_millis(40);
/// From a queue so long packets arrive as the path carries them, however few are sent.
const LONG: Duration = Duration::from_millis(320);
/// So long after its begin with a known rate a flow drains what it filled itself, where the path carries much less by now.
const OWN: Duration = Duration::from_secs(5);
/// A queue that stays so long although there is room for it to drain is another flow's.
const STAYS: Duration = Duration::from_secs(2);
/// So often the queue is drained wholly, since the least delay is of the last ten seconds.
const REFRESH: Duration = Duration::from_secs(4);
/// So often the flow beside it is looked for again.
const LOOK: Duration = Duration::from_secs(5);
/// Arrivals over which a rate is measured: at least so many, and so much time.
const SPAN: Duration = Duration::from_millis(100);
const ARRIVALS: usize = 40;
const ARRIVALS_MAX: usize = 1_024;
/// After so long without a report the rate is halved, again and again.
const SILENT: Duration = Duration::from_secs(1);
/// While it doubles the rate is expected to come to so many times itself within about a second.
const EXPECTED: u64 = 4;
/// The hundredths of what is carried at which the rate goes on where many packets are lost, and where one is marked. The
/// delay shows most queues that mark, so little is enough: it ends the rate's growth.
const LOSSY: u64 = 85;
const MARKED: u64 = 98;
/// By how many hundredths the rate grows, from round to round without a queue.
const GROWTH: [u64; 6] = [2, 10, 30, 60, 100, 100];

/// What the estimator does at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The rate doubles with each round trip until there is a queue.
    Starting,
    /// A short queue is kept.
    Steady,
    /// The queue is drained for a moment, to see the least delay.
    Draining,
    /// Another flow fills the buffers.
    Competing,
}

/// The rate of one path, as its sending end knows it. A report costs O(its packets); memory is bounded by
/// 8192 packets under way.
#[derive(Clone, Debug)]
pub struct Estimator {
    params: RateParams,
    unreported: Unreported,
    arrivals: VecDeque<Arrived>,
    sent_at: Instant,
    /// Whether the latest arrivals were sent one behind another at the rate.
    is_train: bool,
    serialization: Serialization,
    base: BaseDelay,
    round_trips: BaseDelay,
    round_trip: Duration,
    /// The mean round trip while another flow fills the buffers.
    smooth: Duration,
    queueing: Duration,
    variation: Variation,
    usage: Usage,
    state: State,
    rate: Bitrate,
    capacity: Bitrate,
    /// The highest rate of this second and of the one before.
    highest: [Bitrate; 2],
    second: Instant,
    /// Packets from this number on were sent since the rate grew last.
    round: u64,
    /// When that was, and the bytes sent since.
    grown: Instant,
    sent: Bytes,
    growth: usize,
    /// Packets from this number on were sent since marks lowered the rate last.
    eased: u64,
    /// Whether there was a queue by the last report.
    was_queued: bool,
    /// Since when the queue stays, and both it and the rate then.
    stays: Option<(Instant, Duration, Bitrate)>,
    /// When the queue was gone last.
    gone: Instant,
    until: Instant,
    /// Until then a long queue is no other flow's.
    own_until: Instant,
    window: Window,
    heard: Instant,
    reported: Reported,
    /// Packets of the latest reports, and how many of them are lost.
    recent: [u64; 2],
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    at: Instant,
    sent: Instant,
    size: Bytes,
    /// Whether it was sent after a pause.
    is_paused: bool,
}

/// What a report says, beside what was sent.
#[derive(Clone, Debug, Default)]
struct Reported {
    arrived: Bytes,
    packets: u64,
    /// The latest packet that is marked.
    marked: Option<u64>,
    lost: u64,
    least: Option<Delay>,
    newest: Instant,
}

impl Estimator {
    /// An estimator that knows nothing yet.
    #[must_use]
    pub fn new(now: Instant, params: RateParams) -> Self {
        let rate = params.start;
        Self {
            params,
            unreported: Unreported::default(),
            arrivals: VecDeque::new(),
            sent_at: now,
            is_train: false,
            serialization: Serialization::default(),
            base: BaseDelay::default(),
            round_trips: BaseDelay::default(),
            round_trip: Duration::from_millis(100),
            smooth: Duration::ZERO,
            queueing: Duration::ZERO,
            variation: Variation::default(),
            usage: Usage::new(now),
            state: State::Starting,
            rate,
            capacity: rate,
            highest: [rate; 2],
            second: now,
            round: 0,
            grown: now,
            sent: Bytes(0),
            growth: 0,
            eased: 0,
            was_queued: false,
            stays: None,
            gone: now,
            until: now,
            own_until: now,
            window: Window::new(Bytes(0), 0),
            heard: now,
            reported: Reported::default(),
            recent: [0; 2],
        }
    }

    /// The same, but it begins with this rate: half of what an earlier estimator of the path found, for example.
    #[must_use]
    pub fn begin_with(mut self, rate: Bitrate) -> Self {
        self.rate = rate.min(self.params.most).max(self.params.least);
        (self.capacity, self.highest) = (self.rate, [self.rate; 2]);
        if self.rate > self.params.start {
            self.own_until = self.heard + OWN;
        }
        self
    }

    /// The rate at which to send now.
    #[must_use]
    pub const fn rate(&self) -> Bitrate {
        self.rate
    }

    /// What the path may carry soon: more than is sent as long as no queue was ever seen, and while the rate is lowered for
    /// a moment.
    #[must_use]
    pub fn expected(&self) -> Bitrate {
        let expected = match self.state {
            State::Starting => Bitrate(self.rate.0 * EXPECTED),
            State::Draining => self.capacity.max(self.rate),
            State::Steady => self.rate,
            // Half of the window's rate is tried now and then.
            State::Competing => self.competing(self.capacity).max(self.rate),
        };
        expected.min(self.params.most)
    }

    /// What the path carries of this sender, as far as that was seen.
    #[must_use]
    pub const fn capacity(&self) -> Bitrate {
        self.capacity
    }

    /// What it does at present.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// How long packets waited in queues, by the last report.
    #[must_use]
    pub const fn queueing(&self) -> Duration {
        self.queueing
    }

    /// From a packet to its report, queues included.
    #[must_use]
    pub const fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// A packet was sent. Numbers follow each other, from any on.
    ///
    /// # Errors
    /// [`SentError`]; the packet is not counted then.
    pub fn handle_sent(&mut self, now: Instant, number: u64, size: Bytes) -> Result<(), SentError> {
        if self.unreported.oldest().is_none() && now.since(self.heard) > SILENT {
            // Nothing was under way, so nothing could be heard. What was known is forgotten with time.
            if now.since(self.heard) > SILENT * 10 {
                self.state = State::Starting;
                self.set_rate(now, Bitrate(self.rate.0 / 2).max(self.params.start));
            }
            self.heard = now;
        }
        // A packet may wait for its turn, and wake-ups may be late.
        let is_paused = now.since(self.sent_at) > size / self.rate * 2 + PAUSE;
        self.unreported.handle_sent(number, Sent { at: now, size, is_paused })?;
        self.sent_at = now;
        self.sent += size;
        self.usage.handle_time(now, self.rate, self.round_trip.max(SPAN));
        self.usage.handle_sent(size);
        Ok(())
    }

    /// The far end reports. What it claims of packets that were never sent is not believed, nor is a report that
    /// came before.
    pub fn handle_report(&mut self, now: Instant, report: &Report) {
        let end = report.first.saturating_add(report.packets.len() as u64);
        if end > self.unreported.next() {
            return;
        }
        self.reported = Reported::default();
        while let Some((number, sent)) = self.unreported.take_before(end) {
            // What an earlier report said, which was lost, nobody knows.
            let Some(at) = number.checked_sub(report.first) else { continue };
            let arrival = report.packets[at as usize];
            let Some(arrival) = arrival else {
                self.reported.lost += 1;
                self.window.handle_lost(number, self.unreported.next());
                continue;
            };
            let delay = Delay::between(sent.at, arrival.at);
            self.handle_bytes(now, sent.size, delay);
            let delay = self.serialization.without(sent.size, delay);
            let seen = &mut self.reported;
            seen.packets += 1;
            if arrival.is_marked {
                seen.marked = seen.marked.max(Some(number));
                self.window.handle_lost(number, self.unreported.next());
            }
            seen.arrived += sent.size;
            seen.least = Some(seen.least.map_or(delay, |least| least.min(delay)));
            seen.newest = seen.newest.max(sent.at);
            self.variation.handle_delay(sent.at, delay, sent.is_paused);
            let (at, sent, size, is_paused) = (arrival.at, sent.at, sent.size, sent.is_paused);
            self.arrivals.push_back(Arrived { at, sent, size, is_paused });
        }
        let (Some(least), Some(mean)) = (self.reported.least, self.variation.mean()) else {
            return;
        };
        if self.variation.handle_time(now.since(self.heard)) {
            self.base = BaseDelay::default();
        }
        self.heard = now;
        let keeps = self.state == State::Competing;
        let delay = if self.variation.is_varying() { mean } else { least };
        self.base.handle_delay(now, delay, keeps);
        self.queueing = self.base.queueing(delay);
        let took = Delay::between(self.reported.newest, now);
        self.round_trips.handle_delay(now, took, keeps);
        let without_queues = now.since(self.reported.newest) - self.round_trips.queueing(took);
        self.round_trip = without_queues + self.queueing;
        if self.queueing <= self.shown(GONE) {
            self.gone = now;
        }
        self.react(now);
    }

    /// Takes what a packet's own bytes added to its delay. Where that is other than before, so is the least delay.
    fn handle_bytes(&mut self, now: Instant, size: Bytes, delay: Delay) {
        if let Some(least) = self.serialization.handle_packet(now, size, delay, self.capacity) {
            self.base.handle_other(least);
        }
    }

    /// Lowers the rate if reports do not come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.heard = now;
            self.set_rate(now, Bitrate(self.rate.0 / 2));
            self.capacity = self.rate;
        }
    }

    /// When [`Self::handle_timeout`] should be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.unreported.oldest().map(|oldest| self.heard.max(oldest) + SILENT)
    }

    fn set_rate(&mut self, now: Instant, rate: Bitrate) {
        let RateParams { least, most, .. } = self.params;
        self.rate = Bitrate(rate.0.min(most.0).max(least.0));
        if now.since(self.second) >= Duration::from_secs(1) {
            (self.highest, self.second) = ([self.rate, self.highest[0]], now);
        }
        self.highest[0] = self.highest[0].max(self.rate);
    }

    /// The rate at which packets arrive: of the latest, as many as are needed to measure one, and of those that were
    /// sent without a pause between them, if they suffice.
    fn arrival_rate(&mut self) -> Option<Bitrate> {
        let newest = self.arrivals.iter().map(|arrived| arrived.at).max()?;
        while self.arrivals.len() > ARRIVALS
            && let Some(first) = self.arrivals.front()
            && (newest.since(first.at) > SPAN || self.arrivals.len() > ARRIVALS_MAX)
        {
            self.arrivals.pop_front();
        }
        let run = self.arrivals.iter().rposition(|arrived| arrived.is_paused).unwrap_or(0);
        let suffices = self.arrivals.len() - run >= ARRIVALS / 4;
        let begin = if suffices { run } else { 0 };
        let run = || self.arrivals.iter().skip(begin);
        let first = *run().min_by_key(|arrived| arrived.at)?;
        let all: Bytes = run().map(|arrived| arrived.size).sum();
        let rate = (all - first.size) / newest.since(first.at);
        let last = run().map(|arrived| arrived.sent).max()?;
        self.is_train = suffices && all.0 * 10 > (self.rate * last.since(first.sent)).0 * 8;
        // A far end that makes up times makes no rate that was not tried.
        (self.arrivals.len() >= ARRIVALS / 4 && rate.0 > 0)
            .then(|| rate.min(self.highest[0].max(self.highest[1]).max(self.capacity)))
    }

    /// Whether a queue ends the doubling: one that is long, or that delays what arrives too. Single packets may be late
    /// on a path whose delays vary.
    fn is_full(&self, arrives: Bitrate) -> bool {
        let is_slower = arrives.0 / 9 < self.rate.0 / 10;
        self.queueing > self.shown(if is_slower { TARGET } else { JOINED })
    }

    /// A queueing delay, as it may show on a path of this variation.
    fn shown(&self, queueing: Duration) -> Duration {
        queueing + self.variation.without_queue()
    }

    fn react(&mut self, now: Instant) {
        let Some(arrives) = self.arrival_rate() else { return };
        let Reported { packets, marked, lost, .. } = self.reported;
        // Marks, once a round trip, and a loss of every fifth packet are a queue that does not show in the delay. A report
        // may be of a few packets only.
        let [all, gone] = &mut self.recent;
        (*all, *gone) = (*all + packets + lost, *gone + lost);
        let is_lossy = *all > 40 && *gone * 5 > *all;
        if *all > 200 {
            (*all, *gone) = (*all / 2, *gone / 2);
        }
        let is_marked = marked.is_some_and(|number| number >= self.eased);
        let is_congested = is_marked || is_lossy;
        match self.state {
            State::Starting if self.is_full(arrives) || is_congested => {
                self.state = State::Steady;
                self.keep_queue(now, arrives);
            }
            State::Starting => {
                if self.is_next_round(now) {
                    self.capacity = arrives;
                    self.set_rate(now, Bitrate(self.rate.0 * 2));
                }
            }
            State::Draining if self.queueing > self.shown(target(self.capacity) + TARGET * 2) => {
                // It grows meanwhile: the path carries less.
                (self.state, self.gone) = (State::Steady, now);
                self.keep_queue(now, arrives);
            }
            State::Draining
                if now >= self.until
                    && self.queueing
                        > self.shown(LOW.max(GRAIN / self.capacity.max(Bitrate(1))))
                    && !self.usage.is_low()
                    && !(self.variation.is_varying() && self.queueing <= self.shown(JOINED)) =>
            {
                self.join(now, self.capacity);
                self.compete(now, arrives);
            }
            State::Draining if self.queueing <= self.shown(GONE) || now >= self.until => {
                self.state = State::Steady;
                if self.queueing > self.shown(LOW) {
                    // What the pause did not drain was no queue: packets wait for each other here.
                    self.base = BaseDelay::default();
                    self.queueing = Duration::ZERO;
                }
                (self.gone, self.was_queued) = (now, true);
                self.set_rate(now, self.capacity);
                self.begin_round(now);
            }
            State::Draining => {}
            State::Steady if is_congested => {
                let Some(carried) = self.carried(arrives) else { return };
                self.capacity = carried;
                let part = if is_lossy { LOSSY } else { MARKED };
                if is_lossy {
                    // One burst of loss counts once.
                    self.recent = [0; 2];
                }
                self.set_rate(now, Bitrate(carried.0 / 100 * part));
                self.eased = self.unreported.next();
                self.begin_round(now);
                self.growth = 0;
            }
            State::Steady => self.keep_queue(now, arrives),
            State::Competing => self.compete(now, arrives),
        }
    }

    /// Steers towards the target while there is a queue, and looks for more where there is none.
    fn keep_queue(&mut self, now: Instant, arrives: Bitrate) {
        if self.is_joined(now) {
            return self.compete(now, arrives);
        }
        if self.queueing <= self.shown(LOW) {
            if std::mem::take(&mut self.was_queued) {
                self.set_rate(now, Bitrate(self.rate.0 / 100 * (100 + GROWTH[0])));
                self.begin_round(now);
            } else if self.is_next_round(now) {
                // Without a queue this is the least that the path carries.
                self.capacity = self.capacity.max(arrives);
                // What does not arrive waits already, though the delay does not show it yet.
                let [all, gone] = self.recent;
                let came = self.rate.0 / all.max(1) * (all - gone);
                let part = if self.variation.is_varying() { 75 } else { 95 };
                let is_carried = arrives.0 / part >= came / 100;
                self.growth = if is_carried { (self.growth + 1).min(GROWTH.len() - 1) } else { 0 };
                let more = GROWTH[self.growth];
                self.set_rate(now, Bitrate(self.rate.0 / 100 * (100 + more)));
            }
            return;
        }
        if self.usage.is_low() && self.queueing <= self.shown(JOINED) {
            // So little was sent that it makes no queue, but for a train of packets that waited for each other.
            let is_train = self.is_train && !self.variation.is_varying() && self.queueing > TARGET;
            if is_train && arrives < self.rate {
                self.capacity = arrives;
                self.set_rate(now, arrives);
                self.begin_round(now);
                self.growth = 0;
            }
            return;
        }
        let Some(arrives) = self.carried(arrives) else { return };
        (self.growth, self.was_queued) = (0, true);
        self.capacity = arrives;
        if now.since(self.gone) > REFRESH {
            self.state = State::Draining;
            self.until = now + self.queueing * 6 + self.round_trip * 2 + SPAN * 2;
            return self.set_rate(now, Bitrate(arrives.0 / 4 * 3));
        }
        let target = self.shown(target(arrives));
        let [target, seen] = [target.0, self.queueing.0.min((target + DRAIN / 2).0)];
        let share = DRAIN.0 + target - seen;
        self.set_rate(
            now,
            Bitrate((u128::from(arrives.0) * u128::from(share) / u128::from(DRAIN.0)) as u64),
        );
        self.begin_round(now);
    }

    /// What the path carried: what arrives, unless so little was sent that this shows nothing. Then it is the rate, which
    /// falls once a round trip at most.
    fn carried(&self, arrives: Bitrate) -> Option<Bitrate> {
        if self.usage.is_low() && self.queueing <= self.shown(LONG) {
            let is_reported = self.unreported.first() > self.round;
            return is_reported.then(|| arrives.max(self.rate));
        }
        Some(arrives)
    }

    /// Whether the queue stays although there is room for it to drain: it is another flow's then.
    fn is_joined(&mut self, now: Instant) -> bool {
        match self.stays {
            _ if self.queueing <= self.shown(JOINED)
                || self.usage.is_low()
                || now < self.own_until =>
            {
                self.stays = None;
            }
            Some((since, _, rate)) if now.since(since) > STAYS => {
                self.join(now, rate);
                return true;
            }
            Some((_, queue, _)) if self.queueing > queue / 3 => {}
            _ => self.stays = Some((now, self.queueing, self.rate)),
        }
        false
    }

    fn join(&mut self, now: Instant, rate: Bitrate) {
        self.state = State::Competing;
        self.window = Window::new(rate * self.round_trip, self.unreported.next());
        self.smooth = self.round_trip;
        (self.stays, self.until) = (None, now + LOOK);
    }

    /// Keeps a window, and lets go of it where the queue drains with it. A sender that uses little of its rate competes
    /// only as long as the queue is long.
    fn compete(&mut self, now: Instant, arrives: Bitrate) {
        self.window.handle_arrived(self.reported.arrived);
        if self.usage.is_low() && self.queueing <= self.shown(JOINED) {
            self.state = State::Steady;
            self.gone = now;
            return self.begin_round(now);
        }
        self.capacity = arrives;
        let looks = now >= self.until;
        if looks && self.queueing <= self.shown(LOW) {
            self.state = State::Steady;
            self.gone = now;
            self.set_rate(now, arrives);
            return self.begin_round(now);
        }
        // The queue of this flow alone is gone by then, at half the rate.
        let takes = (self.queueing * 2 + self.round_trip).min(Duration::from_secs(1));
        if now >= self.until + takes {
            self.until = now + LOOK;
        }
        self.smooth = (self.smooth * 7 + self.round_trip) / 8;
        let rate = self.competing(arrives);
        self.set_rate(now, if looks { Bitrate(rate.0 / 2) } else { rate });
    }

    /// The rate beside another flow, where packets arrive at this one.
    fn competing(&self, arrives: Bitrate) -> Bitrate {
        self.window.rate(self.smooth).min(Bitrate(arrives.0 / 2 * 3))
    }

    fn begin_round(&mut self, now: Instant) {
        (self.round, self.grown, self.sent) = (self.unreported.next(), now, Bytes(0));
    }

    /// Whether all that was reported lately was sent at the present rate, and made use of it; begins the next round
    /// then.
    fn is_next_round(&mut self, now: Instant) -> bool {
        let is_reported = self.unreported.first() > self.round;
        let lasted = now.since(self.grown);
        if !is_reported || lasted < self.round_trip + SPAN {
            return false;
        }
        let could = self.rate * lasted;
        let is_used = self.sent.0 * 10 >= could.0 * 8;
        self.begin_round(now);
        is_used
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::report::Arrival;

    /// What a sender of large and small packets sees of a path without other traffic.
    struct Path {
        estimator: Estimator,
        sent_by: Instant,
        free_at: Instant,
        number: u64,
        is_marked: bool,
        room: Bytes,
        reports: VecDeque<(Instant, Report)>,
    }

    impl Path {
        fn new() -> Self {
            Self {
                estimator: Estimator::new(Instant::ZERO, RateParams::default()),
                sent_by: Instant::ZERO,
                free_at: Instant::ZERO,
                number: 0,
                is_marked: false,
                room: Bytes(0),
                reports: VecDeque::new(),
            }
        }

        /// Second by second, at this rate, frames of this share of the rate come each 40 ms, in hundredths; returns
        /// the least rate of the last second.
        fn run(&mut self, seconds: Range<u64>, rate: Bitrate, share: u64) -> Bitrate {
            let ms = Duration::from_millis;
            let mut least = Bitrate(u64::MAX);
            for frame in seconds.start * 25..seconds.end * 25 {
                let now = Instant::ZERO + ms(40) * frame;
                self.room += Bitrate(self.estimator.rate().0 / 100 * share) * ms(40);
                for size in [1_200, 1_200, 100].into_iter().cycle().map(Bytes) {
                    if self.room < size {
                        break;
                    }
                    self.room = self.room - size;
                    self.send(self.sent_by.max(now), size, rate);
                }
                if frame >= seconds.end * 25 - 25 {
                    least = least.min(self.estimator.rate());
                }
            }
            least
        }

        fn send(&mut self, at: Instant, size: Bytes, rate: Bitrate) {
            while let Some((_, report)) = self.reports.pop_front_if(|(due, _)| *due <= at) {
                self.estimator.handle_report(at, &report);
            }
            self.sent_by = at + size / self.estimator.rate();
            self.free_at = self.free_at.max(at) + size / rate;
            self.estimator.handle_sent(at, self.number, size).unwrap();
            let due = |ms| self.free_at + Duration::from_millis(ms);
            let arrival = Arrival { at: due(20), is_marked: self.is_marked };
            let report = Report { first: self.number, packets: vec![Some(arrival)] };
            self.reports.push_back((due(40), report));
            self.number += 1;
        }
    }

    #[test]
    fn a_fall_is_seen_though_little_of_the_rate_is_used() {
        let mut path = Path::new();
        let found = path.run(0..10, Bitrate::from_mbps(4), 100);
        assert!(found > Bitrate::from_mbps(2), "{found}");
        path.run(10..12, Bitrate::from_mbps(4), 60);
        path.run(12..13, Bitrate::from_kbps(800), 60);
        let [rate, queue] = [path.estimator.rate().0, path.estimator.queueing().0 / 1_000_000];
        assert!(rate < 1_000_000 && queue < 1_000, "{rate} bit/s, a queue of {queue} ms");
    }

    #[test]
    fn a_slow_path_is_found_though_large_packets_take_long_on_it() {
        let mut path = Path::new();
        let (mut now, ends) = (Instant::ZERO, [10, 25].map(Duration::from_secs));
        for (end, kbps) in ends.into_iter().zip([150, 600]) {
            for size in [100, 1_200].into_iter().cycle() {
                if now.since(Instant::ZERO) > end {
                    break;
                }
                path.send(now, Bytes(size), Bitrate::from_kbps(kbps));
                now = path.sent_by;
            }
        }
        let found = path.estimator.capacity();
        assert!((510_000..660_000).contains(&found.0), "{found} of 600 kbit/s");
    }

    #[test]
    fn marks_lower_the_rate_where_no_queue_shows() {
        let run = |is_marked| {
            let (mut path, rate) = (Path::new(), Bitrate::from_mbps(4));
            path.run(0..4, rate, 100);
            path.is_marked = is_marked;
            path.run(4..9, Bitrate::from_mbps(20), 100)
        };
        let [without, with] = [false, true].map(run);
        let is_lower = without > Bitrate::from_mbps(10) && with < Bitrate::from_mbps(2);
        assert!(is_lower, "{without} without marks, {with} with them");
    }
}
