//! The sending end: which packet goes on which path, and when.

use std::collections::BTreeMap;
use std::sync::Arc;

use selvedge_data_link::PathEstimate;
use selvedge_data_net_rate::{BaseDelay, Estimator};
use selvedge_data_stream::rtp::FrameTag;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::datagram::{
    DESCRIPTION_HEADER, Datagram, DatagramError, Head, OVERHEAD, PARITY_OVERHEAD, PathId, StreamId,
    encode_description, sent_at,
};
use crate::descriptions::Descriptions;
use crate::flight::Held;
use crate::path::{Cost, Path, PathParams, PathStatus};
use crate::protection::{Block, CERTAIN, Protection, REPAIRS_MAX, Worth, both};
use crate::reorder::GUARD;

/// What may delay a packet beside what is measured: the far end gives packets on a little before their deadline.
const MARGIN: Duration = Duration(GUARD.0 + 2_000_000);

/// After so long with less than half of the rate, rates that are known are looked at again.
const UNUSED: Duration = Duration::from_millis(500);

/// After so long without any, where the rates are less than what would be sent: what waits was given up, and the paths
/// would stand idle.
const STARVED: Duration = Duration::from_millis(150);

/// The size of a probe that repeats no packet.
const PADDED: Bytes = Bytes(1_200);

/// A datagram that is sent now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// On which path.
    pub path: PathId,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// A stream at the sending end.
#[derive(Debug, Default)]
struct Stream {
    /// The sequence of its next packet.
    next: u32,
    protection: Protection,
}

/// Parities and further copies of lost packets take at most this part of the rate, and what they did not take for so long.
const EXTRA: u64 = 3;
const EXTRA_FOR: Duration = Duration::from_millis(300);

/// The sending end of a bond. A packet costs O(paths), a report O(its packets). It holds the packets that are under
/// way or wait: as many as the paths carry until the deadlines, and at most 8192 a path under way.
#[derive(Debug)]
pub struct Sender {
    /// What the layers below put before each datagram.
    below: Bytes,
    paths: BTreeMap<PathId, Path>,
    /// The least delay of all paths.
    base: BaseDelay,
    streams: BTreeMap<StreamId, Stream>,
    descriptions: Descriptions,
    owed: Bytes,
    /// What parities and further copies may take now, and since when.
    extra: (Bytes, Instant),
    expired: u64,
    /// What would be sent if there were room.
    demand: Bitrate,
    /// Until when packets came at half of the rate at least.
    used_until: Instant,
    /// When one came last.
    placed: Instant,
    /// No path is used that needs more than this.
    reserve_most: Duration,
}

impl Sender {
    /// A bond without paths, whose datagrams have so many bytes of headers before them.
    #[must_use]
    pub fn new(below: Bytes) -> Self {
        Self {
            below,
            paths: BTreeMap::new(),
            base: BaseDelay::default(),
            streams: BTreeMap::new(),
            descriptions: Descriptions::default(),
            owed: Bytes(0),
            extra: (Bytes(0), Instant::ZERO),
            expired: 0,
            demand: Bitrate(0),
            used_until: Instant::ZERO,
            placed: Instant::ZERO,
            reserve_most: Duration(u64::MAX),
        }
    }

    /// Adds a path; one of this number that is there begins anew, and what it held goes on others.
    pub fn add_path(&mut self, now: Instant, id: PathId, params: PathParams) {
        self.remove_path(now, id);
        self.paths.insert(id, Path::new(now, params));
        self.descriptions.repeat(now);
    }

    /// Describes a stream to the far end, in at most [`DESCRIPTION_MAX`](crate::DESCRIPTION_MAX) bytes; a longer text is
    /// not sent.
    pub fn describe(&mut self, now: Instant, stream: StreamId, text: &str) {
        self.descriptions.set(now, stream, text);
    }

    /// Describes all streams once more soon: the far end began anew.
    pub fn repeat_descriptions(&mut self, now: Instant) {
        self.descriptions.repeat(now);
    }

    /// Removes a path; what it held goes on others.
    pub fn remove_path(&mut self, now: Instant, id: PathId) {
        if let Some(mut path) = self.paths.remove(&id) {
            let held = path.fall_silent(now);
            self.move_on(now, held);
        }
    }

    /// What is known of each path.
    pub fn paths(&self) -> impl Iterator<Item = (PathId, PathStatus)> {
        let is_used = self.is_used();
        self.paths.iter().map(move |(id, path)| (*id, path.status(is_used(path))))
    }

    /// The rate at which packets should come: what all paths that deliver carry together, or, if none does, the
    /// least at which they are tried.
    #[must_use]
    pub fn rate(&self) -> Bitrate {
        self.sum_of(Estimator::rate)
    }

    /// What the link before the bond should know: the rate, what it may become soon, and how long before its deadline
    /// a packet should come here, so that each path in use brings it in time, after a repair where packets are lost.
    #[must_use]
    pub fn estimate(&self) -> PathEstimate {
        let repair = |path| self.time_of_repair(path).unwrap_or_default();
        let needs = |path| needs(path, &self.base) + repair(path);
        let reserve = self.used().map(needs).max().unwrap_or_default();
        PathEstimate { rate: self.rate(), expected: self.sum_of(Estimator::expected), reserve }
    }

    fn sum_of(&self, rate: impl Fn(&Estimator) -> Bitrate) -> Bitrate {
        let all = self.used().map(|path| rate(&path.estimator).0).sum::<u64>();
        if all > 0 {
            return Bitrate(all);
        }
        self.paths.values().map(|path| path.params.rate.least).max().unwrap_or_default()
    }

    /// Sets what would be sent if there were room: where the rates are still to be found and are less than a quarter
    /// above it, probes fill the paths.
    pub const fn set_demand(&mut self, demand: Bitrate) {
        self.demand = demand;
    }

    /// Sets what a path may need at most by its excess delay, and with the repair of its losses: a part of the shortest
    /// time that frames have. What a path can't repair within it is protected beforehand.
    pub const fn set_reserve_most(&mut self, most: Duration) {
        self.reserve_most = most;
    }

    /// The paths of the best rank.
    fn used(&self) -> impl Iterator<Item = &Path> {
        let is_used = self.is_used();
        self.paths.values().filter(move |path| is_used(path))
    }

    /// From the loss of a packet on this path to its repair, if a packet may need so much before its deadline.
    fn time_of_repair(&self, path: &Path) -> Option<Duration> {
        let time = path.time_of_repair();
        (needs(path, &self.base) + time <= self.reserve_most).then_some(time)
    }

    fn is_used(&self) -> impl Fn(&Path) -> bool + use<> {
        let (base, most) = (self.base.clone(), self.reserve_most);
        let in_time = move |path: &Path| {
            let times = path.times_without_queue(|delay| base.queueing(delay));
            path.mtu.most().is_none() && times + MARGIN <= most
        };
        let rank = move |path: &Path| match path.is_active() {
            false => Rank::Silent,
            true if !in_time(path) => Rank::Slow,
            true if path.params.is_spare => Rank::Spare,
            true => Rank::Good,
        };
        let best = self.paths.values().map(&rank).min().unwrap_or(Rank::Silent);
        move |path| best < Rank::Silent && rank(path) == best
    }

    /// Whether the rate of a path is worth finding: all paths together carry less than what would be sent, or, where it
    /// costs nothing, less than a quarter above that, or would without the fastest, which may fail. A rate that is known is worth
    /// finding anew from the given time on: where it is so low that the frames that wait don't fit, hardly a packet
    /// comes, and nothing else would show that the path carries more by now. A single stream whose group is given up has
    /// nothing to send until its next group.
    fn wants(&self) -> impl Fn(PathId, &Path) -> Option<Instant> + use<> {
        let is_used = self.is_used();
        let used = self.paths.iter().filter(|(_, path)| is_used(path));
        let rates: Vec<_> = used.map(|(id, path)| (path.rate().0, *id)).collect();
        let all: u64 = rates.iter().map(|(rate, _)| rate).sum();
        let fastest = rates.into_iter().max();
        let (demand, needed) = (self.demand.0, self.demand.0 / 4 * 5);
        let (starved, unused) = (self.placed + STARVED, self.used_until + UNUSED);
        move |id, path| {
            let is_free = path.params.cost == Cost::Free;
            let helps = fastest.is_some_and(|(rate, of)| of != id && all - rate < needed);
            if is_free && all < demand {
                Some(starved)
            } else if all < if is_free { needed } else { demand } {
                Some(unused)
            } else {
                (is_free && helps).then_some(Instant(u64::MAX))
            }
        }
    }

    /// Bytes of repairs since this was asked last. They are for the link to pay.
    pub fn take_owed(&mut self) -> Bytes {
        std::mem::take(&mut self.owed)
    }

    /// Packets that were given up, since their deadlines passed here.
    #[must_use]
    pub const fn expired(&self) -> u64 {
        self.expired
    }

    /// Takes a packet of a stream, due at its far end at `deadline` plus the delay of the shortest path. Its frame's tag
    /// states how much depends on it; without one it is sent again if it is lost, and not protected beforehand.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        stream: StreamId,
        deadline: Instant,
        tag: Option<&FrameTag>,
        packet: Arc<[u8]>,
    ) {
        let known = self.streams.entry(stream).or_default();
        let sequence = known.next;
        known.next = sequence.wrapping_add(1);
        let (worth, block) = tag
            .map(|tag| known.protection.handle_packet(sequence, tag, &packet))
            .unwrap_or_default();
        let size = Bytes(packet.len() as u64) + OVERHEAD + self.below;
        self.place(now, Held { stream, sequence, deadline, packet, size, worth, code: None });
        if let Some(block) = block {
            self.protect(now, stream, deadline, &block);
        }
    }

    /// Sends the parities of a block that pay.
    fn protect(&mut self, now: Instant, stream: StreamId, deadline: Instant, block: &Block) {
        for (code, parity) in block.parities(self.chance_of_loss(now, deadline)) {
            let (sequence, worth) = (block.first, Worth::default());
            let size = Bytes(parity.len() as u64) + PARITY_OVERHEAD + self.below;
            if !self.takes_extra(now, size) {
                return;
            }
            let packet = parity.into();
            let code = Some(code);
            if self.place(now, Held { stream, sequence, deadline, packet, size, worth, code }) {
                self.owed += size;
            }
        }
    }

    /// Takes this from what parities and further copies may take, if it suffices: where a full queue loses packets, more of
    /// them would fill it.
    fn takes_extra(&mut self, now: Instant, size: Bytes) -> bool {
        let rate = Bitrate(self.rate().0 / EXTRA);
        let (left, since) = self.extra;
        let most = (rate * EXTRA_FOR).max(size + size);
        let left = (left + rate * now.since(since)).min(most);
        let suffices = left >= size;
        self.extra = (if suffices { left - size } else { left }, now);
        suffices
    }

    /// The chance that a packet that is sent now is lost for good, on all paths in use by their rates.
    fn chance_of_loss(&self, now: Instant, deadline: Instant) -> u64 {
        let (mut all, mut lost) = (0_u64, 0_u128);
        for path in self.used() {
            let [_, sent] = path.sent_by(now, Bytes(0));
            let excess = path.excess(|delay| self.base.queueing(delay));
            // Repairs for which no time was reserved come too late too often.
            let left = deadline.since(sent + excess + MARGIN);
            let is_repaired = self.time_of_repair(path).is_some();
            let chance = path.chance_of_loss(if is_repaired { left } else { Duration::ZERO });
            let rate = path.rate().0 / 1_024 + 1;
            (all, lost) = (all + rate, lost + u128::from(rate) * u128::from(chance));
        }
        (lost / u128::from(all.max(1))) as u64
    }

    /// Gives a packet to the path that brings it in time at the least cost, and of those to the one that is free
    /// first; if none does, to the one that brings it first. Beside a metered path a free one is in time if half of the time is
    /// left then: what waits longer is lost once its path becomes slower, and no other brings it any more.
    fn place(&mut self, now: Instant, held: Held) -> bool {
        let is_used = self.is_used();
        let is_any_used = self.paths.values().any(&is_used);
        let base = &self.base;
        let is_metered = |path: &Path| path.params.cost == Cost::Metered;
        let spared = match self.paths.values().any(|path| is_used(path) && is_metered(path)) {
            true => held.deadline.since(now) / 2,
            false => Duration::ZERO,
        };
        let (mut best, mut rate) = (None, Bitrate(0));
        for (id, path) in &self.paths {
            if is_any_used && !is_used(path) {
                continue;
            }
            rate.0 += path.rate().0;
            let excess = path.excess(|delay| base.queueing(delay));
            let [begins, sent] = path.sent_by(now, held.size);
            let arrives = sent + excess;
            let is_late = arrives + MARGIN > held.deadline;
            let rank = if is_late { arrives } else { begins + path.repair_time() };
            let is_dear = is_metered(path) || arrives + spared > held.deadline;
            let key = (is_late, !is_late && is_dear, rank, excess);
            if best.is_none_or(|(least, _)| key < least) {
                best = Some((key, *id));
            }
        }
        self.placed = now;
        let half = Bitrate(rate.0 / 2).max(Bitrate(1));
        self.used_until = (self.used_until.max(now) + held.size / half).min(now + UNUSED);
        let path = best.and_then(|(_, id)| self.paths.get_mut(&id));
        path.map(|path| path.enqueue(held)).is_some()
    }

    fn is_one_active(&self) -> bool {
        self.paths.values().filter(|path| path.is_active()).count() == 1
    }

    /// The path that is left last: the only one that delivers; or, where all have delivered nothing for too long at once, as
    /// when this host paused, the fastest.
    fn last_path(&self, now: Instant) -> Option<PathId> {
        let is_overdue = |path: &Path| path.silent_at(false).is_some_and(|at| at <= now);
        let active = || self.paths.iter().filter(|(_, path)| path.is_active());
        let is_last = self.is_one_active() || active().all(|(_, path)| is_overdue(path));
        active().filter(|_| is_last).max_by_key(|(_, path)| path.rate()).map(|(id, _)| *id)
    }

    /// What a path lost or held goes on others, if it can be in time; more than once if it is the last chance for a packet
    /// that is worth it. Parities are not sent again.
    fn move_on(&mut self, now: Instant, held: Vec<Held>) {
        for held in held.into_iter().filter(|held| held.code.is_none()) {
            if held.deadline <= now {
                self.expired += 1;
                continue;
            }
            let chance = self.chance_of_loss(now, held.deadline);
            let mut again = chance;
            for copy in 0..REPAIRS_MAX {
                let pays = || held.worth.pays(both(again, CERTAIN - chance));
                if copy > 0 && !(pays() && self.takes_extra(now, held.size)) {
                    break;
                }
                if copy > 0 {
                    again = both(again, chance);
                }
                if self.place(now, held.clone()) {
                    self.owed += held.size;
                } else if copy == 0 {
                    self.expired += 1;
                    break;
                }
            }
        }
    }

    /// Takes a datagram that came back on a path.
    ///
    /// # Errors
    /// [`DatagramError`] if the bytes are no datagram of a bond. The sender is unchanged then.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) -> Result<(), DatagramError> {
        let Datagram::Report(id, report) = Datagram::parse(bytes)? else { return Ok(()) };
        let path = self.paths.get_mut(&id);
        let Some(seen) = path.and_then(|path| path.handle_report(now, &report)) else {
            return Ok(());
        };
        if let Some([least, _]) = seen.delays {
            self.base.handle_delay(now, least, false);
        }
        self.move_on(now, seen.lost);
        Ok(())
    }

    /// Does what is due by `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut held = Vec::new();
        let last = self.last_path(now);
        for (id, path) in &mut self.paths {
            if path.is_active() {
                path.estimator.handle_timeout(now);
            }
            self.expired += path.expire(now);
            if path.silent_at(last == Some(*id)).is_some_and(|at| at <= now) {
                held.extend(path.fall_silent(now));
            }
        }
        self.move_on(now, held);
    }

    /// The datagram that is sent now: a description, a packet, or else a probe.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if let Some(transmit) = self.poll_description(now) {
            return Some(transmit);
        }
        for path in self.paths.values_mut() {
            self.expired += path.expire(now);
        }
        let packet = self.paths.iter_mut().find_map(|(id, path)| Some((*id, path.poll(now)?)));
        let Some((path, (number, held))) = packet else { return self.poll_probe(now) };
        let head = head(path, number, now, Some(&held));
        let bytes = encode(head, &held);
        Some(Transmit { path, bytes })
    }

    /// Descriptions take turns on the paths that deliver.
    fn poll_description(&mut self, now: Instant) -> Option<Transmit> {
        let active = || self.paths.iter().filter(|(_, path)| path.is_active()).map(|(id, _)| *id);
        let count = active().count();
        let turn = now.0 / 1_000_000;
        let path = active().nth(usize::try_from(turn).unwrap_or(0).checked_rem(count)?)?;
        let (stream, text) = self.descriptions.poll(now)?;
        self.owed += self.below + Bytes((DESCRIPTION_HEADER + text.len()) as u64);
        Some(Transmit { path, bytes: encode_description(path, stream, &text) })
    }

    /// A probe repeats a packet that is under way. Where there is none, it is padded; on a path that delivers and is not
    /// used it is empty, unless larger packets vanish there and one is tried. The link does not pay for it.
    fn poll_probe(&mut self, now: Instant) -> Option<Transmit> {
        let wants = self.wants();
        let is_used = self.is_used();
        let due = |(id, path): (&PathId, &mut Path)| {
            let (wanted, is_used) = (wants(*id, path), is_used(path));
            path.poll_probe(now, wanted, is_used).then_some(*id)
        };
        let id = self.paths.iter_mut().find_map(due)?;
        let path = self.paths.get_mut(&id)?;
        let is_empty = path.is_active() && !is_used(path) && !path.mtu.tries(now);
        let padded = if is_empty { OVERHEAD } else { PADDED };
        let others = self.paths.values().filter(|_| padded == PADDED);
        let newest = others.filter_map(Path::newest).next().cloned();
        let size = newest.as_ref().map_or(padded + self.below, |held| held.size);
        let number = self.paths.get_mut(&id)?.handle_sent(now, size, None);
        let head = head(id, number, now, newest.as_ref());
        let bytes = match &newest {
            Some(held) => encode(head, held),
            None => head.encode_probe(padded),
        };
        Some(Transmit { path: id, bytes })
    }

    /// When [`Self::handle_timeout`] and [`Self::poll_transmit`] should be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let wants = self.wants();
        let is_used = self.is_used();
        let is_only = self.is_one_active();
        let due = |(id, path): (&PathId, &Path)| {
            path.poll_timeout(wants(*id, path), is_used(path), is_only)
        };
        let paths = self.paths.iter().filter_map(due).min();
        let is_any_active = self.paths.values().any(Path::is_active);
        let describes = self.descriptions.poll_timeout().filter(|_| is_any_active);
        [paths, describes].into_iter().flatten().min()
    }
}

/// Packets go on the paths of the least rank that there is, if they deliver at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It delivers, and needs no more time than there is.
    Good,
    /// So does a spare one.
    Spare,
    /// It delivers too late, or small packets only.
    Slow,
    /// It delivers nothing.
    Silent,
}

/// How long before its deadline a packet should come here, so that this path brings it in time.
fn needs(path: &Path, base: &BaseDelay) -> Duration {
    path.excess(|delay| base.queueing(delay)) + MARGIN
}

/// The head of a datagram with this packet, or with none.
fn head(path: PathId, number: u64, now: Instant, held: Option<&Held>) -> Head {
    Head {
        path,
        stream: held.map_or(StreamId(0), |held| held.stream),
        number,
        sequence: held.map_or(0, |held| held.sequence),
        sent: sent_at(now),
        left: held.map_or(Duration::ZERO, |held| held.deadline.since(now)),
    }
}

fn encode(head: Head, held: &Held) -> Vec<u8> {
    match held.code {
        Some(code) => head.encode_parity(code, &held.packet),
        None => head.encode(&held.packet),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use selvedge_data_net_rate::{Arrival, Report};

    use super::*;
    use crate::datagram::encode_report;

    /// Seconds of a path of this rate, with reports of each packet at once, while so many packets of 1 kB come each
    /// second; returns what is sent.
    fn run(sender: &mut Sender, seconds: Range<u64>, rate: Bitrate, packets: u64) -> u64 {
        let [sent] = run_paths(sender, seconds, [Some(rate)], packets);
        sent
    }

    /// The same of several paths, which deliver nothing if they have no rate.
    fn run_paths<const N: usize>(
        sender: &mut Sender,
        seconds: Range<u64>,
        rates: [Option<Bitrate>; N],
        packets: u64,
    ) -> [u64; N] {
        let (mut sent, mut free_at) = ([0; N], [Instant::ZERO; N]);
        for ms in seconds.start * 1_000..seconds.end * 1_000 {
            let now = Instant(ms * 1_000_000);
            if packets > 0 && ms % (1_000 / packets) == 0 {
                let deadline = now + Duration::from_millis(300);
                sender.handle_packet(now, StreamId(1), deadline, None, [0; 1_000].into());
            }
            sender.handle_timeout(now);
            while let Some(transmit) = sender.poll_transmit(now) {
                let (size, n) = (Bytes(transmit.bytes.len() as u64), usize::from(transmit.path.0));
                sent[n] += size.0;
                let Some(rate) = rates[n] else { continue };
                free_at[n] = free_at[n].max(now) + size / rate;
                let first = u64::from_be_bytes(transmit.bytes[4..12].try_into().unwrap());
                let arrival = Arrival { at: free_at[n], is_marked: false };
                let report = Report { first, packets: vec![Some(arrival)] };
                let bytes = encode_report(transmit.path, &report);
                sender.handle_datagram(now, &bytes).unwrap();
            }
        }
        sent
    }

    #[test]
    fn a_rate_too_low_for_any_frame_is_looked_at_again() {
        let mut sender = Sender::new(Bytes(28));
        sender.add_path(Instant::ZERO, PathId(0), PathParams::default());
        sender.set_demand(Bitrate::from_mbps(1));
        run(&mut sender, 0..10, Bitrate::from_kbps(400), 100);
        let low = sender.rate();
        assert!(low < Bitrate::from_kbps(500), "{low}");
        let demand = |sender: &mut Sender, kbps| sender.set_demand(Bitrate::from_kbps(kbps));
        demand(&mut sender, 200);
        run(&mut sender, 10..11, Bitrate::from_mbps(3), 0);
        let sent = run(&mut sender, 11..12, Bitrate::from_mbps(3), 0);
        assert_eq!(sent, 0, "no more is needed");
        demand(&mut sender, 1_000);
        run(&mut sender, 12..16, Bitrate::from_mbps(3), 0);
        assert!(sender.rate() > Bitrate::from_kbps(1_200), "{}", sender.rate());
        // Half of what is needed is not what shows it.
        let sent = run(&mut sender, 16..18, Bitrate::from_mbps(3), 100);
        assert!(sent < 220 * 1_100, "{sent}");
    }

    #[test]
    fn what_does_not_fit_leaves_no_path_idle() {
        let mut sender = Sender::new(Bytes(28));
        sender.add_path(Instant::ZERO, PathId(0), PathParams::default());
        let rate = Bitrate::from_kbps(400);
        for (demand, seconds) in [(1_000, 0..10), (200, 20..30)] {
            sender.set_demand(Bitrate::from_kbps(demand));
            run(&mut sender, seconds.clone(), rate, 100);
            let sent = run(&mut sender, seconds.end..seconds.end + 1, rate, 0);
            assert_eq!(sent > 25_000, demand == 1_000, "{sent} bytes of {demand} kbit/s");
        }
    }

    #[test]
    fn a_path_is_not_left_for_the_queue_that_it_was_given() {
        let mut sender = Sender::new(Bytes(28));
        (0..2).for_each(|id| sender.add_path(Instant::ZERO, PathId(id), PathParams::default()));
        sender.set_demand(Bitrate::from_mbps(8));
        sender.set_reserve_most(Duration::from_millis(100));
        let rates = |second| [2_000, second].map(|kbps| Some(Bitrate::from_kbps(kbps)));
        run_paths(&mut sender, 0..5, rates(2_000), 500);
        run_paths(&mut sender, 5..6, rates(200), 500);
        let second = sender.paths().nth(1).unwrap().1;
        assert!(second.queueing > Duration::from_millis(100), "{second:?}");
        assert!(second.is_used, "{second:?}");
    }

    /// After a pause of this host no path seems to deliver; the fastest keeps its rate for a second.
    #[test]
    fn paths_that_fall_silent_at_once_leave_the_fastest() {
        let mut sender = Sender::new(Bytes(28));
        (0..2).for_each(|id| sender.add_path(Instant::ZERO, PathId(id), PathParams::default()));
        sender.set_demand(Bitrate::from_mbps(6));
        let rates = [2_000, 4_000].map(|kbps| Some(Bitrate::from_kbps(kbps)));
        run_paths(&mut sender, 0..5, rates, 500);
        run_paths(&mut sender, 5..6, [None, None], 0);
        let sent = Instant(6_000_000_000);
        for _ in 0..40 {
            let deadline = sent + Duration::from_secs(2);
            sender.handle_packet(sent, StreamId(1), deadline, None, [0; 1_000].into());
        }
        while sender.poll_transmit(sent).is_some() {}
        let active = |sender: &Sender| {
            let paths = sender.paths().filter(|(_, path)| path.state == crate::PathState::Active);
            paths.map(|(id, _)| id.0).collect::<Vec<_>>()
        };
        let before = sender.rate();
        sender.handle_timeout(sent + Duration::from_millis(600));
        assert_eq!(active(&sender), [1]);
        assert!(sender.rate().0 > before.0 / 2, "{} of {before}", sender.rate());
        sender.handle_timeout(sent + Duration::from_millis(1_200));
        assert!(active(&sender).is_empty());
    }

    #[test]
    fn a_spare_path_carries_only_what_no_other_does() {
        let mut sender = Sender::new(Bytes(28));
        for is_spare in [false, true] {
            let params = PathParams { is_spare, ..PathParams::default() };
            sender.add_path(Instant::ZERO, PathId(is_spare.into()), params);
        }
        sender.set_demand(Bitrate::from_kbps(800));
        let rate = Some(Bitrate::from_mbps(2));
        let [_, spare] = run_paths(&mut sender, 0..10, [rate, rate], 100);
        assert!(spare > 0 && spare <= 11 * OVERHEAD.0, "{spare}");
        let [_, spare] = run_paths(&mut sender, 10..12, [None, rate], 100);
        assert!(spare > 160_000, "{spare}");
        run_paths(&mut sender, 12..13, [rate, rate], 100);
        let [used, spare] = run_paths(&mut sender, 13..15, [rate, rate], 100);
        assert!(used >= 200_000 && spare <= 3 * OVERHEAD.0, "{used} {spare}");
        let is_used: Vec<_> = sender.paths().map(|(_, path)| path.is_used).collect();
        assert_eq!(is_used, [true, false]);
    }

    #[test]
    fn at_first_four_times_the_rate_is_expected_of_each_path() {
        let mut sender = Sender::new(Bytes(28));
        let none = sender.estimate();
        assert_eq!((none.rate, none.expected), (Bitrate(0), Bitrate(0)));
        for id in 0..2 {
            sender.add_path(Instant::ZERO, PathId(id), PathParams::default());
        }
        let path = sender.estimate();
        let [rate, expected] = [1, 4].map(Bitrate::from_mbps);
        assert_eq!(path, PathEstimate { rate, expected, reserve: MARGIN });
    }
}
