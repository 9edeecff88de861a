//! DualPI2 against the pseudo-code of RFC 9332, appendix A, followed in floating point under the names that it
//! has there. Added are what it leaves open: the turns of the scheduler, and the range of the base probability.

use super::*;
use crate::random::Random;

/// A packet: when it came, its size, its mark, its number.
type Numbered = (u64, u64, Ecn, u64);

#[derive(Default)]
struct RfcQueue {
    packets: VecDeque<Numbered>,
    count: f64,
}

impl RfcQueue {
    fn time(&self, now: u64) -> f64 {
        self.packets.front().map_or(0.0, |first| (now - first.0) as f64 / 1e9)
    }

    fn recur(&mut self, likelihood: f64) -> bool {
        self.count += likelihood;
        if self.count > 1.0 {
            self.count -= 1.0;
            return true;
        }
        false
    }
}

/// Times are in seconds, but for those of packets and updates.
struct Rfc {
    lq: RfcQueue,
    cq: RfcQueue,
    k: f64,
    p: f64,
    p_cl: f64,
    p_c: f64,
    prevq: f64,
    updated: u64,
    /// Of the weighted round robin.
    credit: f64,
}

const TARGET: f64 = 0.015;
const RTT_MAX: f64 = 0.1;
const T_UPDATE: f64 = 0.015;
const ALPHA: f64 = 0.1 * T_UPDATE / (RTT_MAX * RTT_MAX);
const BETA: f64 = 0.3 / RTT_MAX;
const MIN_TH: f64 = 0.0008;
const RANGE: f64 = 0.0004;
const TH_LEN: usize = 1;
const P_L_MAX: f64 = 1.0;

impl Rfc {
    fn new(k: f64) -> Self {
        let (lq, cq) = (RfcQueue::default(), RfcQueue::default());
        Self { lq, cq, k, p: 0.0, p_cl: 0.0, p_c: 0.0, prevq: 0.0, updated: 0, credit: 0.0 }
    }

    fn updates_until(&mut self, now: u64) {
        const PERIOD: u64 = 15_000_000;
        while self.updated + PERIOD <= now {
            self.updated += PERIOD;
            let curq = self.cq.time(self.updated).max(self.lq.time(self.updated));
            self.p += ALPHA * (curq - TARGET) + BETA * (curq - self.prevq);
            self.p = self.p.clamp(0.0, 1.0);
            self.p_cl = (self.p * self.k).min(1.0);
            self.p_c = self.p * self.p;
            self.prevq = curq;
        }
    }

    fn enqueue(&mut self, packet: Numbered) {
        self.updates_until(packet.0);
        let field = match packet.2 {
            Ecn::NotCapable => 0,
            Ecn::LowLatency => 1,
            Ecn::Capable => 2,
            Ecn::Marked => 3,
        };
        let queue = if field % 2 == 1 { &mut self.lq } else { &mut self.cq };
        queue.packets.push_back(packet);
    }

    fn laqm(&self, qdelay: f64) -> f64 {
        if qdelay >= MIN_TH + RANGE {
            1.0
        } else if qdelay > MIN_TH {
            (qdelay - MIN_TH) / RANGE
        } else {
            0.0
        }
    }

    fn is_scheduled_lq(&self) -> bool {
        !self.lq.packets.is_empty() && (self.cq.packets.is_empty() || self.credit <= 0.0)
    }

    fn sends(&mut self, lq: bool, size: u64) {
        let other = if lq { &self.cq } else { &self.lq };
        if !other.packets.is_empty() {
            self.credit += size as f64 * if lq { 1.0 } else { -15.0 };
        }
    }

    /// The packet's number and whether it is marked; numbers of dropped ones are added.
    fn dequeue(&mut self, now: u64, dropped: &mut Vec<u64>) -> Option<(u64, bool)> {
        self.updates_until(now);
        while !self.lq.packets.is_empty() || !self.cq.packets.is_empty() {
            let mut is_marked = false;
            if self.is_scheduled_lq() {
                let (since, size, _, number) = self.lq.packets.pop_front()?;
                if self.p_cl < P_L_MAX {
                    let qdelay = (now - since) as f64 / 1e9;
                    let is_longer = self.lq.packets.len() > TH_LEN;
                    let native = if is_longer { self.laqm(qdelay) } else { 0.0 };
                    is_marked = self.lq.recur(native.max(self.p_cl));
                } else {
                    if self.lq.recur(self.p_c) {
                        dropped.push(number);
                        continue;
                    }
                    is_marked = self.lq.recur(self.p_cl);
                }
                self.sends(true, size);
                return Some((number, is_marked));
            }
            let (_, size, ecn, number) = self.cq.packets.pop_front()?;
            if self.cq.recur(self.p_c) {
                if ecn == Ecn::NotCapable || self.p_c >= (1.0 / (self.k * self.k)).min(1.0) {
                    dropped.push(number);
                    continue;
                }
                is_marked = true;
            }
            self.sends(false, size);
            return Some((number, is_marked));
        }
        None
    }
}

/// Both of them, what they did alike, and whether they did.
struct Both {
    ours: DualPi2<u64>,
    rfc: Rfc,
    is_alike: bool,
    /// The largest distance of the base probabilities.
    apart: f64,
    classes: Vec<Ecn>,
    /// Marked in the low-latency queue and in the classic one, dropped likewise.
    fates: [u32; 4],
}

impl Both {
    fn enqueue(&mut self, now: u64, size: u64, ecn: Ecn) {
        let number = self.classes.len() as u64;
        self.classes.push(ecn);
        let packet = Packet { size: Bytes(size), flow: 0, port: 0, ecn, payload: number };
        self.ours.enqueue(Instant(now), packet, &mut Dropped::new());
        self.rfc.enqueue((now, size, ecn, number));
    }

    /// The size of the packet that is sent.
    fn dequeue(&mut self, now: u64) -> Option<u64> {
        let (mut dropped, mut rfc_dropped) = (Dropped::new(), Vec::new());
        let sent = self.ours.dequeue(Instant(now), &mut dropped);
        let marked = sent.as_ref().map(|packet| (packet.payload, packet.ecn == Ecn::Marked));
        let dropped: Vec<u64> = dropped.iter().map(|(packet, _)| packet.payload).collect();
        self.is_alike &= marked == self.rfc.dequeue(now, &mut rfc_dropped);
        self.is_alike &= dropped == rfc_dropped;
        let base = self.ours.base as f64 / ONE as f64;
        self.apart = self.apart.max((base - self.rfc.p).abs());
        let is_classic =
            |number: u64| usize::from(self.classes[number as usize] != Ecn::LowLatency);
        if let Some((number, true)) = marked {
            self.fates[is_classic(number)] += 1;
        }
        for number in dropped {
            self.fates[2 + is_classic(number)] += 1;
        }
        sent.map(|packet| packet.size.0)
    }

    /// Packets come at random for so long, at this rate of each queue, to a link of 10 Mbit/s.
    fn run(&mut self, from: u64, seconds: u64, rates: [u64; 2], random: &mut Random) {
        let until = from + seconds * 1_000_000_000;
        let (mut now, mut free) = (from, Some(from));
        while now < until && self.is_alike {
            let size = 200 + random.below(1_300);
            let is_low_latency = random.below(rates[0] + rates[1]) < rates[0];
            let classic = if random.below(2) == 0 { Ecn::Capable } else { Ecn::NotCapable };
            let ecn = if is_low_latency { Ecn::LowLatency } else { classic };
            // Mean 850 bytes.
            now += random.below(2 * 850 * 8_000 / (rates[0] + rates[1]) * 1_000);
            while let Some(at) = free.filter(|at| *at < now) {
                free = self.dequeue(at).map(|sent| at + sent * 800);
            }
            self.enqueue(now, size, ecn);
            free = free.or(Some(now));
        }
    }
}

/// Through light load, each queue's overload, and both's, and back.
fn compare(coupling: u32) -> Both {
    let params = DualPi2Params { coupling, ..DualPi2Params::default() };
    let mut both = Both {
        ours: DualPi2::new(params),
        rfc: Rfc::new(2.0),
        is_alike: true,
        apart: 0.0,
        classes: Vec::new(),
        fates: [0; 4],
    };
    let mut random = Random::named(1, "packets");
    // In kbit/s.
    let loads =
        [[2_000, 7_000], [1, 10_600], [9_700, 1], [4_000, 6_500], [14_000, 3_000], [2_000, 3_000]];
    for (rates, n) in loads.into_iter().zip(0..) {
        both.run(n * 10_000_000_000, 10, rates, &mut random);
    }
    both
}

#[test]
fn each_packet_has_the_fate_that_the_pseudo_code_gives_it() {
    let both = compare(2);
    assert!(both.is_alike, "after {} packets", both.classes.len());
    assert!(both.fates.iter().all(|count| *count > 100), "{:?}", both.fates);
    // 4,000 updates are off by 1 in 2^48 each, which is 1.4e-11 in all.
    assert!(both.apart < 1e-10, "{}", both.apart);
    // Another coupling factor marks other packets.
    assert!(!compare(3).is_alike);
}

#[test]
fn a_low_latency_packet_waits_little_beside_a_standing_queue() {
    let mut queue = DualPi2::new(DualPi2Params::default());
    let mut dropped = Dropped::new();
    let packet =
        |ecn, number| Packet { size: Bytes(1_250), flow: 0, port: 0, ecn, payload: number };
    // A classic packet each ms, a low-latency one every fifth; one is sent each ms.
    let mut waits = [0, 0];
    for now in 0..5_000_u64 {
        let at = Instant::ZERO + Duration::from_millis(now);
        queue.enqueue(at, packet(Ecn::NotCapable, now), &mut dropped);
        if now % 5 == 0 {
            queue.enqueue(at, packet(Ecn::LowLatency, now), &mut dropped);
        }
        if let Some(sent) = queue.dequeue(at, &mut dropped) {
            let wait = &mut waits[usize::from(sent.ecn == Ecn::NotCapable)];
            *wait = now.abs_diff(sent.payload).max(*wait);
        }
    }
    assert!(waits[0] <= 2 && waits[1] > 10, "{waits:?} ms");
}

#[test]
fn the_classic_queue_keeps_its_share_of_the_link() {
    let sent = |classic_one_in| {
        let params = DualPi2Params { classic_one_in, ..DualPi2Params::default() };
        let mut queue = DualPi2::new(params);
        let mut dropped = Dropped::new();
        for n in 0..4_000_u64 {
            let (size, ecn) =
                if n % 2 == 0 { (1_500, Ecn::LowLatency) } else { (700, Ecn::NotCapable) };
            let packet = Packet { size: Bytes(size), flow: 0, port: 0, ecn, payload: () };
            queue.enqueue(Instant::ZERO, packet, &mut dropped);
        }
        let mut sent = [0; 2];
        while sent[0] + sent[1] < 2_000_000 {
            let packet = queue.dequeue(Instant::ZERO, &mut dropped).expect("both are long");
            sent[usize::from(packet.size.0 == 700)] += packet.size.0;
        }
        sent
    };
    for (classic_one_in, times) in [(16, 15), (4, 3)] {
        let [low_latency, classic] = sent(classic_one_in);
        // Not further off than one packet of each.
        assert!(low_latency.abs_diff(times * classic) <= 1_500 + times * 700, "{classic} B");
    }
}

#[test]
fn no_setting_hangs_or_panics() {
    for extreme in [0, u64::MAX] {
        let small = u32::try_from(extreme).unwrap_or(u32::MAX);
        let any = Duration(extreme);
        let params = DualPi2Params {
            target: any,
            rtt_max: any,
            coupling: small,
            ramp_from: any,
            ramp: any,
            unmarked: 0,
            classic_one_in: small,
            limit: Limit { bytes: Bytes(u64::MAX), packets: u32::MAX },
        };
        let mut queue = DualPi2::new(params);
        let (mut dropped, mut sent) = (Dropped::new(), 0);
        for now in [0, 1, 1 << 40, u64::MAX, u64::MAX] {
            for ecn in [Ecn::NotCapable, Ecn::Capable, Ecn::LowLatency, Ecn::Marked] {
                let packet = Packet { size: Bytes(1 << 50), flow: 0, port: 0, ecn, payload: () };
                queue.enqueue(Instant(now), packet, &mut dropped);
            }
            sent += usize::from(queue.dequeue(Instant(now), &mut dropped).is_some());
        }
        while queue.dequeue(Instant::MAX, &mut dropped).is_some() {
            sent += 1;
        }
        assert_eq!((sent + dropped.len(), queue.packets()), (20, 0));
    }
}
