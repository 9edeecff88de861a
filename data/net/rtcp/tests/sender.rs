//! A sender beside a path and receivers that report in different ways.

use std::collections::VecDeque;

use proptest::prelude::*;
use selvedge_data_net_rate::RateParams;
use selvedge_data_net_rtcp::{ArrivalReporter, Sender, SenderParams, TRANSPORT_ID, Transmit};
use selvedge_data_stream::rtp::{self, FrameTag, Header, Packet};
use selvedge_data_stream::{Kind, References};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

const SSRC: u32 = 0x0506_0708;
const AGAIN: (u32, u8) = (0x0a0b_0c0d, 97);
const MS: fn(u64) -> Duration = Duration::from_millis;
const BELOW: Bytes = Bytes(28);

fn at(ms: u64) -> Instant {
    Instant::ZERO + MS(ms)
}

fn sender() -> Sender {
    let params = SenderParams {
        delay: MS(1_000),
        retransmissions: AGAIN.0,
        name: "a name".to_owned(),
        below: BELOW,
        rate: RateParams::default(),
    };
    let mut sender = Sender::new(Instant::ZERO, params);
    sender.set_clock_rate(90_000);
    sender
}

fn packet(sequence: u16, timestamp: u32, payload: usize) -> Vec<u8> {
    let header = Header { marker: true, payload_type: 96, sequence, timestamp, ssrc: SSRC };
    let tag = FrameTag {
        seq: 1,
        kind: Kind::Predicted,
        referenced: true,
        first: true,
        last: true,
        refs: References::from_bits(0),
        left_ms: 0,
        deadline_ms: 0,
    };
    let mut bytes = vec![0; rtp::packet_len(payload)];
    rtp::write_packet(&mut bytes, header, tag, &vec![sequence as u8; payload]);
    bytes
}

fn number_of(packet: &[u8]) -> u16 {
    let element = rtp::extension_element(packet, TRANSPORT_ID).unwrap();
    u16::from_be_bytes(element.try_into().unwrap())
}

/// How a receiver reports.
#[derive(Clone, Copy, PartialEq)]
enum Reports {
    Arrivals,
    Transport,
    Loss,
    Nothing,
}

/// Transport-wide feedback of packets that came: numbers and times.
fn transport(came: &[(u16, Instant)]) -> Vec<u8> {
    let (first, last) = (came[0].0, came[came.len() - 1].0);
    let base = came[0].1.0 / 64_000_000;
    let mut body = [1_u32, SSRC].map(u32::to_be_bytes).concat();
    body.extend(first.to_be_bytes());
    let count = last.wrapping_sub(first) + 1;
    body.extend(count.to_be_bytes());
    body.extend(&(base as u32).to_be_bytes()[1..]);
    body.push(0);
    let found = |n: u16| came.iter().find(|(number, _)| *number == first.wrapping_add(n));
    let statuses: Vec<u16> = (0..count).map(|n| if found(n).is_some() { 2 } else { 0 }).collect();
    for seven in statuses.chunks(7) {
        let bits = seven.iter().enumerate().map(|(n, status)| status << (12 - 2 * n)).sum::<u16>();
        body.extend((0xc000 | bits).to_be_bytes());
    }
    let mut before = (base * 64_000_000 / 250_000).cast_signed();
    for (_, at) in came {
        let now = (at.0 / 250_000).cast_signed();
        body.extend(((now - before) as i16).to_be_bytes());
        before = now;
    }
    body.resize(body.len().next_multiple_of(4), 0);
    let mut bytes = vec![0x8f, 205];
    bytes.extend(((body.len() / 4) as u16).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// A path of one rate, with 20 ms of delay each way and room for 200 ms, and a receiver.
struct Path {
    sender: Sender,
    reports: Reports,
    rate: Bitrate,
    free_at: Instant,
    sequence: u16,
    reporter: Option<ArrivalReporter>,
    came: Vec<(u16, Instant)>,
    counts: [u64; 2],
    highest: u16,
    last_report: (u32, Instant),
    back: VecDeque<(Instant, Vec<u8>)>,
    report_at: Instant,
    /// What is sent of the rate, in hundredths.
    share: u64,
}

impl Path {
    fn new(reports: Reports, rate: Bitrate) -> Self {
        Self {
            sender: sender(),
            reports,
            rate,
            free_at: Instant::ZERO,
            sequence: 65_000,
            reporter: None,
            came: Vec::new(),
            counts: [0; 2],
            highest: 0,
            last_report: (0, Instant::ZERO),
            back: VecDeque::new(),
            report_at: Instant::ZERO,
            share: 100,
        }
    }

    /// Sends as fast as the sender says until then; returns the rate.
    fn run(&mut self, from: u64, until: u64) -> Bitrate {
        let mut room = Bytes(0);
        for now in (from..until).map(at) {
            let rate = Bitrate(self.sender.estimate().rate.0 / 100 * self.share);
            room = (room + rate * MS(1)).min(Bytes(20_000));
            while room >= Bytes(1_100) {
                room = room - Bytes(1_100);
                self.send(now);
            }
            while let Some(transmit) = self.sender.poll_transmit(now) {
                match transmit {
                    Transmit::Control(bytes) => {
                        let middle = u32::from_be_bytes(bytes[10..14].try_into().unwrap());
                        self.last_report = (middle, now + MS(20));
                    }
                    Transmit::Media(copy) => self.carry(now, &copy),
                }
            }
            self.receive(now);
            while self.back.front().is_some_and(|(due, _)| *due <= now) {
                let (_, bytes) = self.back.pop_front().unwrap();
                self.sender.handle_datagram(now, &bytes).unwrap();
            }
            self.sender.handle_timeout(now);
        }
        self.sender.estimate().rate
    }

    fn send(&mut self, now: Instant) {
        let bytes = packet(self.sequence, (now.0 / 11_111) as u32, 1_000);
        let sent = self.sender.handle_packet(now, now + MS(1_000), &bytes).unwrap();
        self.sequence = self.sequence.wrapping_add(1);
        self.carry(now, &sent);
    }

    fn carry(&mut self, now: Instant, sent: &[u8]) {
        self.counts[0] += 1;
        let free_at = self.free_at.max(now) + Bytes(sent.len() as u64 + 28) / self.rate;
        if free_at.since(now) > MS(200) {
            return;
        }
        self.free_at = free_at;
        self.counts[1] += 1;
        self.highest = self.sequence.wrapping_sub(1);
        self.came.push((number_of(sent), free_at + MS(20)));
    }

    fn receive(&mut self, now: Instant) {
        let arrived = self.came.iter().take_while(|(_, at)| *at <= now).count();
        let due = self.report_at <= now && arrived > 0;
        match self.reports {
            Reports::Arrivals => {
                let first = self.sequence.wrapping_sub(self.counts[0] as u16);
                for (number, at) in self.came.drain(..arrived) {
                    let sequence = first.wrapping_add(number - 1);
                    let new = || ArrivalReporter::new(SSRC, sequence, 9, "receiver");
                    let reporter = self.reporter.get_or_insert_with(new);
                    reporter.handle_packet(at, sequence, false);
                }
                let report =
                    self.reporter.as_mut().and_then(|reporter| reporter.poll_transmit(now));
                self.back.extend(report.map(|report| (now + MS(20), report)));
            }
            Reports::Transport if due => {
                let came: Vec<_> = self.came.drain(..arrived).collect();
                self.back.push_back((now + MS(20), transport(&came)));
                self.report_at = now + MS(50);
            }
            Reports::Loss if due => {
                let [sent, came] = std::mem::take(&mut self.counts);
                let lost = ((sent - came) * 256 / sent.max(1)).min(255) as u32;
                let (last, came_at) = self.last_report;
                let since = (now.since(came_at).0 * 65_536 / 1_000_000_000) as u32;
                let block = [1, SSRC, lost << 24, self.highest.into(), 0, last, since];
                let mut bytes = vec![0x81, 201, 0, 7];
                bytes.extend(block.iter().flat_map(|word| word.to_be_bytes()));
                self.back.push_back((now + MS(20), bytes));
                self.came.clear();
                self.report_at = now + MS(1_000);
            }
            _ => {}
        }
    }
}

#[test]
fn the_rate_of_a_path_is_found_by_each_kind_of_report() {
    for (reports, percent) in
        [(Reports::Arrivals, 85..=103), (Reports::Transport, 85..=103), (Reports::Loss, 55..=125)]
    {
        let mut path = Path::new(reports, Bitrate::from_mbps(3));
        let found = path.run(0, 12_000).0 * 100 / 3_000_000;
        assert!(percent.contains(&found), "{found} % of the rate, expected {percent:?}");
        assert!(path.sender.is_reported(at(12_000)) && path.sender.status().round_trip > MS(20));
        // It falls as well.
        path.rate = Bitrate::from_mbps(1);
        let found = path.run(12_000, 22_000).0 * 100 / 1_000_000;
        assert!(found <= *percent.end() + 40, "{found} % of the rate after the fall");
    }
}

#[test]
fn without_reports_the_rate_stays() {
    let mut path = Path::new(Reports::Nothing, Bitrate::from_mbps(3));
    assert_eq!(path.run(0, 12_000), RateParams::default().start);
    assert!(!path.sender.is_reported(at(12_000)));
    // Reports that cease lower it.
    let mut path = Path::new(Reports::Transport, Bitrate::from_mbps(3));
    let found = path.run(0, 8_000);
    path.reports = Reports::Nothing;
    assert!(path.run(8_000, 14_000).0 < found.0 / 8);
}

#[test]
fn copies_find_the_rate_though_little_is_sent() {
    let found = |demand| {
        let mut path = Path::new(Reports::Transport, Bitrate::from_mbps(3));
        path.sender.set_demand(Bitrate::from_kbps(demand));
        path.share = 20;
        path.run(0, 4_000).0 * 100 / 3_000_000
    };
    let rates = [found(10_000), found(100)];
    assert!((85..=103).contains(&rates[0]) && rates[1] < 40, "{rates:?} % of the rate");
}

/// A request for one packet.
fn request(ssrc: u32, sequence: u16) -> Vec<u8> {
    let mut bytes = vec![0x81, 205, 0, 3, 0, 0, 0, 1];
    bytes.extend(ssrc.to_be_bytes());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend([0, 0]);
    bytes
}

#[test]
fn what_is_requested_in_time_is_sent_again() {
    let mut sender = sender();
    let sent = packet(65_535, 9_000, 100);
    sender.handle_packet(at(0), at(1_000), &sent).unwrap();
    sender.handle_packet(at(1), at(1_000), &packet(0, 9_000, 100)).unwrap();
    assert!(matches!(sender.poll_transmit(at(1)), Some(Transmit::Control(_))));
    let mut ask = |now, ssrc, sequence| {
        sender.handle_datagram(now, &request(ssrc, sequence)).unwrap();
        sender.poll_transmit(now).filter(|sent| matches!(sent, Transmit::Media(_)))
    };
    assert_eq!(ask(at(900), SSRC + 1, 65_535), None);
    let Some(Transmit::Media(again)) = ask(at(901), SSRC, 65_535) else { panic!() };
    let read = Packet::parse(&again).unwrap();
    assert_eq!((read.header.ssrc, read.header.payload_type), AGAIN);
    assert_eq!((read.header.sequence, read.header.timestamp, read.header.marker), (0, 9_000, true));
    assert_eq!(number_of(&again), 3);
    // The lost packet's number, and its payload.
    assert_eq!(read.payload[..2], [255, 255]);
    assert_eq!(read.payload[2..], *Packet::parse(&sent).unwrap().payload);
    // A packet that was never sent, and one whose frame is past.
    assert_eq!(ask(at(902), SSRC, 1), None);
    assert_eq!(ask(at(1_001), SSRC, 0), None);
}

#[test]
fn requests_take_a_quarter_of_the_rate_at_most() {
    let mut sender = sender();
    let mut bytes = Bytes(0);
    for ms in 0..4_000 {
        let now = at(ms);
        sender.handle_packet(now, now + MS(1_000), &packet(ms as u16, 0, 500)).unwrap();
        for back in 0..50 {
            sender.handle_datagram(now, &request(SSRC, (ms as u16).wrapping_sub(back))).unwrap();
        }
        while let Some(transmit) = sender.poll_transmit(now) {
            if let Transmit::Media(again) = transmit {
                bytes += Bytes(again.len() as u64) + BELOW;
            }
        }
    }
    let most = Bitrate::from_kbps(125) * MS(4_250);
    assert!(bytes <= most && bytes > Bytes(most.0 / 2), "{bytes} of {most}");
    assert!(sender.take_owed() > bytes);
}

#[test]
fn an_intra_picture_is_requested_for_the_own_source_only() {
    let mut sender = sender();
    sender.handle_packet(at(0), at(40), &packet(0, 0, 100)).unwrap();
    let request =
        |ssrc: u32| [[0x81, 206, 0, 2, 0, 0, 0, 1].as_slice(), &ssrc.to_be_bytes()].concat();
    sender.handle_datagram(at(1), &request(9)).unwrap();
    assert!(!sender.take_intra_request());
    sender.handle_datagram(at(1), &request(SSRC)).unwrap();
    assert!(sender.take_intra_request() && !sender.take_intra_request());
}

/// The time of its clock and of the media that a sender states, in ms.
fn stated(sender: &mut Sender, now: Instant) -> [u64; 2] {
    let Some(Transmit::Control(bytes)) = sender.poll_transmit(now) else { panic!("no report") };
    let ntp = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
    let stamp = u32::from_be_bytes(bytes[16..20].try_into().unwrap());
    [((u128::from(ntp) * 1_000 + (1 << 31)) >> 32) as u64, u64::from(stamp) / 90]
}

#[test]
fn picture_and_sound_are_placed_on_one_clock_though_pictures_are_reordered() {
    let mut sender = sender();
    // Pictures arrive by decoding time and are shown up to 80 ms later.
    for (n, shown_later) in (0..100).zip([80, 0, 40, 0].into_iter().cycle()) {
        let (arrived, shown) = (1_000 + n * 40, 5_000 + n * 40 + shown_later);
        let bytes = packet(n as u16, shown as u32 * 90, 100);
        sender.handle_packet(at(arrived), at(arrived + 1_000), &bytes).unwrap();
    }
    let [clock, media] = stated(&mut sender, at(5_000));
    assert_eq!(clock, 5_000);
    // A picture that is shown when it arrives has a stamp 4 s above its arrival.
    assert!(media.abs_diff(9_000) <= 2, "{media}");
    let bytes = sender.goodbye(at(5_000)).unwrap();
    assert_eq!(bytes[bytes.len() - 8..], [0x81, 203, 0, 1, 5, 6, 7, 8]);
}

proptest! {
    /// Datagrams that begin as feedback does, in any order among packets.
    #[test]
    fn no_datagram_raises_the_rate_above_what_was_sent(
        datagrams in prop::collection::vec((prop::sample::select(vec![1_u8, 11, 15]), prop::collection::vec(any::<[u8; 4]>(), 3..40)), 1..40)
    ) {
        let mut sender = sender();
        for (ms, (kind, body)) in (0..).zip(datagrams) {
            sender.handle_packet(at(ms * 100), at(ms * 100 + 500), &packet(ms as u16, 0, 50)).unwrap();
            let mut bytes = vec![0x80 | kind, 205];
            bytes.extend((body.len() as u16).to_be_bytes());
            bytes.extend(body.concat());
            let _ = sender.handle_datagram(at(ms * 100 + 1), &bytes);
            while sender.poll_transmit(at(ms * 100 + 1)).is_some() {}
        }
        prop_assert!(sender.estimate().rate <= RateParams::default().start);
    }
}
