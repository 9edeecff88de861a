//! Virtual senders and networks: every instant is computed.

use super::*;
use proptest::prelude::*;
use selvedge_data_stream::rtp::{FrameTag, Header, packet_len, stamp_deadline, write_packet};
use selvedge_data_stream::{Kind, References};

const PERIOD: i64 = 40_000_000;
const MS: i64 = 1_000_000;
/// The receiver's clock when the sender's shows zero.
const OFFSET: i64 = 7_000_000_000;

/// A frame as it was sent. Times are nanoseconds on the sender's clock.
#[derive(Clone, Copy)]
struct Sent {
    seq: u32,
    /// Place in display order, relative to decoding order, in periods.
    reorder: i64,
    /// When its first packet was sent; the others follow every millisecond.
    at: i64,
    deadline: i64,
    packets: i64,
    refs: References,
}

fn frame(seq: u32) -> Sent {
    let arrival = i64::from(seq) * PERIOD + 1_000 * MS;
    Sent {
        seq,
        reorder: 0,
        at: arrival,
        deadline: arrival + 100 * MS,
        packets: 3,
        refs: References::to([u32::from(seq > 0)]),
    }
}

/// Decoding order I P B B P B B ...: P is shown two places later, B one place earlier.
fn reordered(seq: u32) -> Sent {
    let reorder = if seq == 0 { 0 } else { [-1, 2, -1][seq as usize % 3] };
    Sent { reorder, ..frame(seq) }
}

fn datagrams(sent: &Sent) -> Vec<(i64, Vec<u8>)> {
    (0..sent.packets)
        .map(|i| {
            let at = sent.at + i * MS;
            let header = Header {
                marker: i + 1 == sent.packets,
                payload_type: 96,
                sequence: (i64::from(sent.seq) * sent.packets + i) as u16,
                timestamp: ((i64::from(sent.seq) + sent.reorder) * 3600) as u32,
                ssrc: 1,
            };
            let tag = FrameTag {
                seq: sent.seq,
                kind: Kind::Predicted,
                referenced: true,
                first: i == 0,
                last: i + 1 == sent.packets,
                refs: sent.refs,
                left_ms: 0,
                deadline_ms: 0,
            };
            let mut bytes = vec![0; packet_len(100)];
            write_packet(&mut bytes, header, tag, &[0; 100]);
            stamp_deadline(&mut bytes, Instant(sent.deadline as u64), Instant(at as u64));
            (at, bytes)
        })
        .collect()
}

/// Sends frames through a network that delays each packet by the result of `delay`, a function of its sending
/// time and its count; `None` loses it. Returns the meter after all packets, in order of arrival.
fn through(
    frames: impl Iterator<Item = Sent>,
    offset: i64,
    mut delay: impl FnMut(i64, u64) -> Option<i64>,
) -> StreamMeter {
    let mut arrivals = Vec::new();
    for (count, (at, bytes)) in frames.flat_map(|frame| datagrams(&frame)).enumerate() {
        if let Some(delay) = delay(at, count as u64) {
            arrivals.push((at + delay + offset, bytes));
        }
    }
    arrivals.sort_by_key(|(at, _)| *at);
    let mut meter = StreamMeter::new(ClockRate::VIDEO);
    for (at, bytes) in arrivals {
        meter.handle_packet(Instant(at as u64), &bytes);
    }
    meter.finish();
    meter
}

/// Frames of `frames` whose last packet arrives after the deadline by more than the shortest delay.
fn truly_late(
    frames: impl Iterator<Item = Sent>,
    shortest: i64,
    mut delay: impl FnMut(i64, u64) -> Option<i64>,
) -> u64 {
    let mut count = 0;
    let mut late = 0;
    for frame in frames {
        let mut whole = i64::MIN;
        for (at, _) in datagrams(&frame) {
            whole = whole.max(at + delay(at, count).unwrap());
            count += 1;
        }
        late += u64::from(whole > frame.deadline + shortest);
    }
    late
}

/// A bottleneck that serves one packet per `service`, first come, first served.
fn bottleneck(service: i64, base: i64) -> impl FnMut(i64, u64) -> Option<i64> {
    let mut free = i64::MIN;
    move |at, _| {
        free = free.max(at) + service;
        Some(free - at + base)
    }
}

#[test]
fn constant_delay_makes_nothing_late_however_little_time_was_left() {
    for make in [frame, reordered] {
        for (delay, offset) in [(0, OFFSET), (300 * MS, OFFSET), (20 * MS, 0)] {
            // The last packet goes out 2 ms after the first, just at the deadline.
            let frames = (0..500).map(make).map(|f| Sent { deadline: f.at + 2 * MS, ..f });
            let seen = through(frames, offset, |_, _| Some(delay)).snapshot();
            assert_eq!((seen.on_time, seen.late), (Some(500), Some(0)), "{delay} {offset}");
            assert_eq!((seen.decodable, seen.decodable_share), (Some(500), Some(1.0)));
            assert_eq!((seen.lost, seen.jitter_units > 0), (0, true));
        }
    }
}

#[test]
fn what_was_sent_late_is_late() {
    let frames = (0..100).map(|seq| {
        let f = frame(seq);
        if seq >= 50 { Sent { deadline: f.at - 20 * MS, ..f } } else { f }
    });
    let seen = through(frames, OFFSET, |_, _| Some(5 * MS)).snapshot();
    assert_eq!((seen.on_time, seen.late, seen.decodable), (Some(50), Some(50), Some(50)));
}

#[test]
fn jitter_within_the_time_left_is_harmless() {
    // 0 to 29 ms, without pattern but always the same.
    let jitter = |_, n: u64| Some((n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as i64 % 30 * MS);
    for make in [frame, reordered] {
        let seen = through((0..1000).map(make), OFFSET, jitter).snapshot();
        assert_eq!(seen.late, Some(0));
        assert!(seen.jitter_ms > 5.0 && seen.jitter_ms < 30.0, "{}", seen.jitter_ms);
    }
}

#[test]
fn a_queue_that_outgrows_the_time_left_makes_frames_late() {
    // 3 packets per 40 ms fit 12 ms each; at 15 ms each the queue grows by 5 ms per frame. With
    // 98 ms left for the last packet, all frames after the 20th or so are late.
    for make in [frame, reordered] {
        let calm = through((0..300).map(make), OFFSET, bottleneck(12 * MS, 10 * MS)).snapshot();
        assert_eq!(calm.late, Some(0));
        let frames = (0..400).map(make);
        let seen = through(frames, OFFSET, bottleneck(15 * MS, 10 * MS)).snapshot();
        let frames = (0..400).map(make);
        assert_eq!(seen.late, Some(truly_late(frames, 25 * MS, bottleneck(15 * MS, 10 * MS))));
        assert!(seen.late > Some(360));
        assert!(seen.queueing_ms.unwrap() > 1500.0);
    }
}

#[test]
fn a_standing_queue_stays_known_and_its_end_too() {
    // 150 ms more than before, for a while; 98 ms were left.
    let delay = |at: i64, _| {
        let queue = if (10..20).contains(&(at / 1_000_000_000)) { 150 * MS } else { 0 };
        Some(5 * MS + queue)
    };
    let seen = through((0..1000).map(reordered), OFFSET, delay).snapshot();
    assert_eq!(seen.late, Some(truly_late((0..1000).map(reordered), 5 * MS, delay)));
    assert_eq!(seen.late, Some(250));
    assert!(seen.queueing_ms.unwrap() < 1.0);
}

#[test]
fn one_delayed_frame_of_a_single_packet_is_late() {
    let frames = (0..300).map(|seq| Sent { packets: 1, ..reordered(seq) });
    let spike = |_, n| Some(if n == 200 { 250 * MS } else { 5 * MS });
    assert_eq!(through(frames, OFFSET, spike).snapshot().late, Some(1));
}

#[test]
fn an_early_start_of_the_source_does_not_spoil_the_scale() {
    // The first frame arrived 400 ms early, as from a filled pipeline.
    let frames = (0..300).map(|seq| {
        let early = if seq == 0 { 400 * MS } else { 0 };
        let f = frame(seq);
        Sent { at: f.at - early, deadline: f.deadline - early, ..f }
    });
    let frames = frames.map(|f| Sent { deadline: f.at + 2 * MS, ..f });
    let seen = through(frames, OFFSET, |_, _| Some(5 * MS)).snapshot();
    assert_eq!((seen.on_time, seen.late), (Some(300), Some(0)));
}

#[test]
fn clocks_that_drift_apart_stay_one_scale() {
    // 50 millionths for an hour: 180 ms, in both directions.
    for sign in [-1, 1] {
        let frames = (0..90_000)
            .map(|seq| Sent { packets: 1, ..frame(seq) })
            .map(|f| Sent { deadline: f.at + 3 * MS, ..f });
        let seen = through(frames, OFFSET, |at, _| Some(200 * MS + sign * at / 20_000)).snapshot();
        assert_eq!(seen.late, Some(0));
    }
}

#[test]
fn media_time_that_begins_anew_begins_a_new_scale() {
    let frames = (0..200).map(|seq| {
        let reorder = if seq >= 100 { -100_000 } else { 0 };
        Sent { reorder, ..frame(seq) }
    });
    assert_eq!(through(frames, OFFSET, |_, _| Some(5 * MS)).snapshot().late, Some(0));
}

#[test]
fn lost_packets_lose_their_frames_and_those_that_need_them() {
    // Frame 10 loses a packet, and frame 20 is not seen; frames 15 and 25 refer to no other.
    let frames = (0..30_u32).map(|seq| {
        let near = u32::from(!seq.is_multiple_of(5));
        Sent { refs: References::to([near]), ..frame(seq) }
    });
    let lose = |_, n: u64| (n != 31 && !(60..63).contains(&n)).then_some(MS);
    let seen = through(frames, OFFSET, lose).snapshot();
    assert_eq!((seen.lost, seen.frames, seen.complete), (4, 30, 28));
    assert_eq!((seen.incomplete, seen.unseen), (1, Some(1)));
    assert_eq!((seen.on_time, seen.decodable), (Some(28), Some(20)));
    let share = seen.lost_share.unwrap();
    assert!((share - 4.0 / 90.0).abs() < 1e-9);
}

#[test]
fn a_shared_clock_judges_exactly() {
    let deadline_of = |seq: u32| (seq != 3).then(|| Instant(u64::from(seq) * 1000 + 500));
    let mut meter = StreamMeter::with_shared_clock(ClockRate::VIDEO, deadline_of);
    for (seq, at) in [(0, 500), (1, 1501), (2, 2400), (3, 3900)] {
        let sent = Sent { packets: 1, ..frame(seq) };
        meter.handle_packet(Instant(at), &datagrams(&sent)[0].1);
    }
    let seen = meter.snapshot();
    assert_eq!((seen.on_time, seen.late), (Some(3), Some(1)));
}

#[test]
fn streams_without_tags_have_frames_but_no_deadlines() {
    let mut meter = StreamMeter::new(ClockRate::VIDEO);
    for n in 0..30_u8 {
        let bytes = [0x80, 96 | u8::from(n % 3 == 2) << 7, 0, n, 0, 0, 0, n / 3, 0, 0, 0, 1, 5];
        meter.handle_packet(Instant(u64::from(n) * 1_000_000), &bytes);
    }
    meter.handle_timeout(Instant(40_000_000));
    assert_eq!(meter.snapshot().pending, 8, "too early to give up");
    meter.handle_timeout(Instant(6_000_000_000));
    let seen = meter.snapshot();
    assert_eq!((seen.frames, seen.complete, seen.pending), (10, 10, 0));
    assert_eq!((seen.on_time, seen.decodable, seen.unseen), (None, None, None));
    assert_eq!((seen.packets, seen.bytes, seen.mean_bps), (30, 390, 390 * 8 * 1000 / 29));
}

#[test]
fn another_source_takes_over_only_when_it_goes_on() {
    let mut meter = StreamMeter::new(ClockRate::VIDEO);
    let packet = |number: u8, source: u8| [0x80, 96, 0, number, 0, 0, 0, 0, 0, 0, 0, source];
    for number in 0..10 {
        meter.handle_packet(Instant::ZERO, &packet(number, 1));
        meter.handle_packet(Instant::ZERO, &packet(100 + number, 2));
    }
    let seen = meter.snapshot();
    assert_eq!((seen.packets, seen.stray, seen.lost, seen.restarts), (10, 10, 0, 0));
    meter.handle_packet(Instant::ZERO, &packet(110, 2));
    meter.handle_packet(Instant::ZERO, &packet(111, 2));
    let seen = meter.snapshot();
    // The packet that was on trial counts as well.
    assert_eq!((seen.packets, seen.stray, seen.lost, seen.restarts), (13, 9, 0, 1));
}

#[test]
fn the_first_picture_of_a_new_source_is_whole() {
    let mut meter = StreamMeter::new(ClockRate::VIDEO);
    let mut send = |ssrc: u8, from: u32| {
        for sent in (from..from + 10).map(frame) {
            for (at, mut bytes) in datagrams(&sent) {
                bytes[11] = ssrc;
                let later = 20_000 * MS * i64::from(ssrc);
                meter.handle_packet(Instant((at + later) as u64), &bytes);
            }
        }
    };
    send(1, 0);
    // The stream begins with the intra picture again, to which all other frames refer.
    send(2, 0);
    meter.handle_timeout(Instant(90_000_000_000));
    let seen = meter.snapshot();
    assert_eq!((seen.restarts, seen.stray, seen.incomplete), (1, 0, 0));
    assert_eq!((seen.frames, seen.decodable), (20, Some(20)));
}

#[test]
fn what_is_no_media_packet_is_counted_apart() {
    let mut meter = StreamMeter::new(ClockRate::VIDEO);
    meter.handle_packet(Instant::ZERO, &[]);
    meter.handle_packet(Instant::ZERO, &[0; 100]);
    // A sender report.
    meter.handle_packet(Instant::ZERO, &[0x80, 200, 0, 6, 0, 0, 0, 1]);
    let seen = meter.snapshot();
    assert_eq!((seen.packets, seen.malformed, seen.stray), (0, 2, 1));
    assert_eq!((seen.lost_share, seen.on_time_share, seen.mean_bps), (None, None, 0));
    let json = serde_json::to_string(&seen).unwrap();
    assert_eq!(serde_json::from_str::<MeterSnapshot>(&json).unwrap(), seen);
}

/// Nearly valid packets, which pass the first checks of the parser.
fn almost_packet() -> impl Strategy<Value = Vec<u8>> {
    let header = (any::<u16>(), any::<u32>(), 0..3_u32, any::<bool>());
    let tag = (any::<u32>(), 0..6_u8, any::<[bool; 2]>(), any::<[u16; 3]>(), any::<i16>());
    (header, tag, any::<bool>()).prop_map(|(header, tag, near)| {
        let (sequence, timestamp, ssrc, marker) = header;
        let (seq, kind, [first, last], [back, far, deadline_ms], left_ms) = tag;
        let (sequence, seq) = if near { (sequence % 64, seq % 64) } else { (sequence, seq) };
        let mut bytes = vec![0; packet_len(4)];
        let kind = Kind::from_number(kind).unwrap();
        let refs = References::to([back, far].map(u32::from));
        let header = Header { marker, payload_type: 96, sequence, timestamp, ssrc };
        let tag =
            FrameTag { seq, kind, referenced: false, first, last, refs, left_ms, deadline_ms };
        write_packet(&mut bytes, header, tag, &[1; 4]);
        bytes
    })
}

proptest! {
    #[test]
    fn no_packets_at_no_time_break_it(
        packets in proptest::collection::vec(
            (any::<u64>(), prop_oneof![almost_packet(), proptest::collection::vec(any::<u8>(), 0..80)]),
            0..200,
        ),
        hertz in 1..u32::MAX,
    ) {
        let mut meter = StreamMeter::new(ClockRate::new(hertz).unwrap());
        for (count, (at, bytes)) in packets.into_iter().enumerate() {
            meter.handle_packet(Instant(at), &bytes);
            meter.handle_timeout(Instant(at));
            let seen = meter.snapshot();
            let counted = seen.packets + seen.duplicates + seen.stray + seen.malformed;
            prop_assert_eq!(counted, count as u64 + 1);
            prop_assert!(seen.pending <= 64 + 8);
        }
        meter.finish();
        let seen = meter.snapshot();
        prop_assert_eq!(seen.pending, 0);
        prop_assert!(seen.decodable <= seen.on_time);
        prop_assert_eq!(seen.frames, seen.complete + seen.incomplete + seen.unseen.unwrap_or(0));
    }
}
