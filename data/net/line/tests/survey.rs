//! Surveys of modelled paths in virtual time: what was put in is what is found, and nothing else.

use std::net::SocketAddr;

use selvedge_data_net_line::{
    DelayModel, Drop, Ecn, Jitter, Limit, Line, LineModel, LossModel, Packet, Prober, QueueModel,
    Rate, Reflector, Survey, Trace,
};
use selvedge_units::{Bitrate, Bytes, Duration, Instant, Share};

const HEADERS: Bytes = Bytes(28);
const LIMIT: Bitrate = Bitrate::from_mbps(1);
/// What the far end's clock shows more, and runs faster, in billionths.
const AHEAD: u64 = 1 << 50;
const FASTER: u64 = 30_000;

fn near() -> SocketAddr {
    ([192, 0, 2, 1], 40_000).into()
}

fn model(rate: Option<Bitrate>, delay_ms: u64, loss: LossModel) -> LineModel {
    let delay = DelayModel { delay: Duration::from_millis(delay_ms), ..DelayModel::default() };
    LineModel { rate: rate.map(Rate::Constant), delay, loss, ..LineModel::default() }
}

fn share(text: &str) -> Share {
    text.parse().expect("a share")
}

fn mbps(n: u64) -> Option<Bitrate> {
    Some(Bitrate::from_mbps(n))
}

/// The two ends, the lines between them, and what each end has sent.
struct Path {
    prober: Prober,
    reflector: Reflector,
    lines: [Line<Vec<u8>>; 2],
    sent: [u64; 2],
    now: Instant,
}

impl Path {
    fn new(there: LineModel, back: LineModel) -> Self {
        let lines = [Line::new(there, 7, "there"), Line::new(back, 7, "back")];
        let prober = Prober::new(5, HEADERS, LIMIT);
        let reflector = Reflector::new(LIMIT);
        Self { prober, reflector, lines, sent: [0; 2], now: Instant::ZERO }
    }

    fn far_clock(&self) -> Instant {
        Instant(AHEAD + self.now.0 + self.now.0 / 1_000_000_000 * FASTER)
    }

    fn send(&mut self, direction: usize, datagram: &[u8]) {
        let size = Bytes(datagram.len() as u64 + HEADERS.0);
        self.sent[direction] += size.0;
        let packet =
            Packet { size, port: 0, flow: 1, ecn: Ecn::NotCapable, payload: datagram.to_vec() };
        self.lines[direction].handle_packet(self.now, packet);
        while self.lines[direction].poll_dropped().is_some() {}
    }

    fn turn(&mut self) {
        let mut buffer = Vec::new();
        let next = self.lines.iter().filter_map(Line::poll_timeout);
        let next = next.chain([self.prober.poll_timeout()]).min();
        self.now = next.expect("the prober always has one");
        while self.prober.poll_transmit(self.now, &mut buffer) {
            self.send(0, &buffer);
        }
        while let Some(arrived) = self.lines[0].poll_packet(self.now) {
            let far_clock = self.far_clock();
            self.reflector.handle_datagram(far_clock, near(), 9, &arrived.packet.payload);
            while let Some(to) = self.reflector.poll_transmit(far_clock, &mut buffer) {
                assert_eq!(to, near());
                self.send(1, &buffer);
            }
        }
        while let Some(arrived) = self.lines[1].poll_packet(self.now) {
            self.prober.handle_datagram(self.now, &arrived.packet.payload);
        }
        for line in &mut self.lines {
            while line.poll_dropped().is_some() {}
        }
    }

    fn survey(mut self, seconds: u64) -> Survey {
        while self.now < Instant::ZERO + Duration::from_secs(seconds) {
            self.turn();
        }
        let most = LIMIT * Duration::from_secs(seconds + 1);
        assert!(self.sent.iter().all(|sent| *sent <= most.0), "{:?} of {most:?}", self.sent);
        self.prober.survey().expect("probes were answered")
    }
}

fn found(there: LineModel, back: LineModel) -> Survey {
    Path::new(there, back).survey(60)
}

fn is_near(found: u64, wanted: u64, off: u64) -> bool {
    found.abs_diff(wanted) <= off
}

fn lost_share(lost: u64, probes: u64) -> f64 {
    lost as f64 / probes as f64
}

#[test]
fn a_link_is_found_as_it_is() {
    let link = || model(mbps(5), 40, LossModel::Bernoulli(share("2 %")));
    let survey = found(link(), link());
    for way in [&survey.there, &survey.back] {
        let rate = way.rate().expect("it has a limit");
        assert!(is_near(rate.0, 5_000_000, 500_000), "{rate}");
        assert!(is_near(survey.delay.0, 40_000_000, 1_000_000), "{}", survey.delay);
        let spread = *way.variation.last().expect("there is one");
        assert!(spread < Duration::from_millis(5), "{spread}");
        let lost = lost_share(way.lost, way.probes);
        assert!((0.01..=0.03).contains(&lost), "{lost}");
        assert!(matches!(way.loss, LossModel::Bernoulli(_)), "{:?}", way.loss);
        let trace = way.trace().expect("it has a limit");
        let mean = Trace::from_csv(&trace).expect("it is one").mean();
        assert!(is_near(mean.0, 5_000_000, 500_000), "{mean}");
    }
}

#[test]
fn another_link_is_found_as_another_and_each_way_by_itself() {
    let survey = found(model(mbps(1), 10, LossModel::None), model(mbps(16), 10, LossModel::None));
    let rate = |found: Option<Bitrate>| found.expect("it has a limit").0;
    assert!(is_near(rate(survey.there.rate()), 1_000_000, 100_000), "{:?}", survey.there.rate());
    assert!(is_near(rate(survey.back.rate()), 16_000_000, 1_600_000), "{:?}", survey.back.rate());
    assert!(is_near(survey.delay.0, 10_000_000, 1_000_000), "{}", survey.delay);
    assert_eq!((survey.there.loss, survey.back.loss), (LossModel::None, LossModel::None));
}

#[test]
fn a_link_without_a_limit_has_no_rate() {
    let survey = found(model(None, 25, LossModel::None), model(mbps(2), 25, LossModel::None));
    assert_eq!((survey.there.rate(), survey.there.trace()), (None, None));
    assert!(survey.back.rate().is_some());
}

#[test]
fn bursts_of_loss_are_told_from_single_ones() {
    // Both lose one packet of 21.
    let bursts = LossModel::GilbertElliott {
        worsens: share("1 %"),
        recovers: share("20 %"),
        good: Share::ZERO,
        bad: Share::ONE,
    };
    let singles = LossModel::Bernoulli(share("4.76 %"));
    for (there, back) in [(bursts, singles), (singles, bursts)] {
        let survey = found(model(mbps(5), 40, there), model(mbps(5), 40, back));
        let (of_bursts, of_singles) =
            if there == bursts { (survey.there, survey.back) } else { (survey.back, survey.there) };
        let LossModel::GilbertElliott { worsens, recovers, .. } = of_bursts.loss else {
            panic!("{:?}", of_bursts.loss)
        };
        assert!((6_000_000..16_000_000).contains(&worsens.billionths()), "{worsens}");
        assert!((140_000_000..270_000_000).contains(&recovers.billionths()), "{recovers}");
        let LossModel::Bernoulli(lost) = of_singles.loss else { panic!("{:?}", of_singles.loss) };
        assert!((37_000_000..58_000_000).contains(&lost.billionths()), "{lost}");
    }
}

#[test]
fn a_delay_that_varies_is_found_by_each_way() {
    let mut there = model(mbps(20), 40, LossModel::None);
    there.delay.jitter = Jitter::Uniform(Duration::from_millis(8));
    let survey = found(there, model(mbps(20), 40, LossModel::None));
    let middle = survey.delay + survey.there.variation[32];
    // The shortest round trip is 32 ms and 40 ms long.
    assert!(is_near(survey.delay.0, 36_000_000, 1_000_000), "{}", survey.delay);
    assert!(is_near(middle.0, 44_000_000, 1_500_000), "{middle}");
    assert!(*survey.back.variation.last().expect("one") < Duration::from_millis(1));
}

#[test]
fn a_short_queue_loses_no_probes_to_the_trains() {
    let mut short = model(mbps(2), 20, LossModel::None);
    short.queue = QueueModel::DropTail { limit: Limit::packets(12) };
    let survey = found(short.clone(), short);
    let lost = lost_share(survey.there.lost, survey.there.probes);
    assert!(lost < 0.01, "{lost}");
    let rate = survey.there.rate().expect("it has a limit");
    assert!(is_near(rate.0, 2_000_000, 200_000), "{rate}");
}

#[test]
fn a_path_that_answers_nothing_has_no_survey() {
    let mut path =
        Path::new(model(None, 1, LossModel::Bernoulli(Share::ONE)), LineModel::default());
    for _ in 0..20 {
        path.turn();
    }
    assert!(!path.prober.is_answered() && path.prober.survey().is_none());
    assert_eq!(path.lines[0].counts().dropped(Drop::Lost), 20);
    assert_eq!(path.sent[1], 0);
}

/// All that a reflector sends for one datagram.
fn answers(
    reflector: &mut Reflector,
    now: Instant,
    from: SocketAddr,
    bytes: &[u8],
) -> Vec<Vec<u8>> {
    let nonce = u64::from(from.port());
    reflector.handle_datagram(now, from, nonce, bytes);
    let (mut all, mut buffer) = (Vec::new(), Vec::new());
    while let Some(to) = reflector.poll_transmit(now, &mut buffer) {
        assert_eq!(to, from);
        all.push(buffer.clone());
    }
    all
}

#[test]
fn strangers_replays_and_torn_datagrams_gain_nothing() {
    let mut reflector = Reflector::new(LIMIT);
    let now = Instant::ZERO;
    let mut probe = Vec::new();
    assert!(Prober::new(5, HEADERS, LIMIT).poll_transmit(now, &mut probe));
    // Without its nonce an address gets no more than it sent; torn and foreign datagrams get nothing.
    let nonce = answers(&mut reflector, now, near(), &probe);
    assert_eq!(nonce.iter().map(Vec::len).collect::<Vec<_>>(), [probe.len()]);
    for wrong in [&probe[..83], &[], &nonce[0][..], &[0xff; 1200]] {
        assert!(answers(&mut reflector, now, near(), wrong).is_empty());
    }
    let probe = |from: SocketAddr, number: u32, train: u32| {
        let probe = datagram(u64::from(from.port()), 5, (0u8, number, train, u32::MAX));
        assert_eq!(probe.len(), 84);
        probe
    };
    let sent = answers(&mut reflector, now, near(), &probe(near(), 1, 1));
    assert!((2..120).contains(&sent.len()), "an echo and a train within the limit: {}", sent.len());
    let replayed = answers(&mut reflector, now, near(), &probe(near(), 1, 1));
    assert!(replayed.is_empty(), "a replay");
    // Another train is not due, under another nonce of the prober neither.
    let again = datagram(u64::from(near().port()), 6, (0u8, 1u32, 1u32, 7u32));
    assert_eq!(answers(&mut reflector, now, near(), &again).len(), 1);
    assert_eq!(answers(&mut reflector, now, near(), &probe(near(), 2, 2)).len(), 1);
    assert_eq!(answers(&mut reflector, now, near(), &probe(near(), u32::MAX, 0)).len(), 1);
    assert!(answers(&mut reflector, now, near(), &probe(near(), 3, 0)).is_empty(), "too old");
    // Another address knows another nonce, and while one is answered it has to wait.
    let other: SocketAddr = ([192, 0, 2, 2], 40_001).into();
    assert_eq!(answers(&mut reflector, now, other, &probe(near(), 4, 0)).len(), 1, "its nonce");
    assert!(answers(&mut reflector, now, other, &probe(other, 4, 0)).is_empty(), "it has to wait");
    let later = now + Duration::from_secs(3);
    assert!(!answers(&mut reflector, later, other, &probe(other, 5, 0)).is_empty(), "its turn");
}

/// A datagram as ends write them: the content is its kind from 0 - probe, echo, nonce, train - and its fields.
fn datagram(to: u64, from: u64, content: impl serde::Serialize) -> Vec<u8> {
    let mut bytes = vec![0; 84];
    let magic = u32::from_be_bytes(*b"SLV1");
    postcard::to_slice(&(magic, to, from, content), &mut bytes).expect("it fits");
    bytes
}

#[test]
fn what_a_far_end_makes_up_is_bounded() {
    let (mut prober, mut buffer) = (Prober::new(5, HEADERS, LIMIT), Vec::new());
    let mut is_sending = |prober: &mut Prober, now: Instant| {
        let sent = prober.poll_transmit(now, &mut buffer);
        while prober.poll_transmit(now, &mut buffer) {}
        sent
    };
    // A nonce for another prober is not taken; with one for this the next probe need not wait.
    assert!(is_sending(&mut prober, Instant::ZERO));
    prober.handle_datagram(Instant::ZERO, &datagram(6, 9, 2u8));
    assert!(!is_sending(&mut prober, Instant::ZERO));
    prober.handle_datagram(Instant::ZERO, &datagram(5, 9, 2u8));
    for n in 0..300 {
        let now = Instant(n * 10_000_000);
        assert!(is_sending(&mut prober, now));
        let (any, number) = (u64::MAX / (n + 1), n as u32 + 1);
        let train = number / 50;
        for from in [8, 9] {
            let few = (train, 7u32, any, 0u64);
            let many = (train, u32::MAX, any, any);
            prober.handle_datagram(now, &datagram(5, from, (1u8, u32::MAX, any, any, many)));
            prober.handle_datagram(now, &datagram(5, from, (3u8, train, number, any)));
            prober.handle_datagram(now, &datagram(5, from, (3u8, u32::MAX, u32::MAX, any)));
            assert_eq!(prober.is_answered(), n > 0, "not by another, nor to what was not sent");
            if from == 9 {
                prober.handle_datagram(now, &datagram(5, from, (1u8, number, any, any, few)));
            }
        }
    }
    let survey = prober.survey().expect("it made echoes up");
    assert!(survey.delay <= Duration::from_secs(60));
    for way in [&survey.there, &survey.back] {
        assert!(way.variation.iter().all(|one| *one <= Duration::from_secs(60)));
        if let Some(trace) = way.trace() {
            Trace::from_csv(&trace).expect("it is one");
        }
    }
}
