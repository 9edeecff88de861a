//! Frames over one path of 100 ms that loses packets, each due 200 ms after it was sent and those 100 ms: too soon for a repair.

use std::collections::{BTreeMap, BinaryHeap};

use selvedge_data_net_bond::{PathId, PathParams, RateParams, Receiver, Sender, StreamId};
use selvedge_data_stream::rtp::FrameTag;
use selvedge_data_stream::{Kind, References};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

const FRAMES: u32 = 1_500;
const PACKETS: u16 = 10;
const WAY: Duration = Duration::from_millis(100);
const DELAY: Duration = Duration::from_millis(200);

/// What is under way, the earliest first, and chances from a seed.
#[derive(Default)]
struct Path {
    packets: BinaryHeap<(std::cmp::Reverse<Instant>, bool, Vec<u8>)>,
    seed: u64,
}

impl Path {
    fn send(&mut self, now: Instant, is_back: bool, bytes: Vec<u8>, lost_percent: u64) {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        if (self.seed >> 33) % 100 >= lost_percent {
            self.packets.push((std::cmp::Reverse(now + WAY), is_back, bytes));
        }
    }
}

fn tag(seq: u32, packet: u16) -> FrameTag {
    FrameTag {
        seq,
        kind: if seq.is_multiple_of(50) { Kind::Intra } else { Kind::Predicted },
        referenced: true,
        first: packet == 0,
        last: packet + 1 == PACKETS,
        refs: References::NONE,
        left_ms: 0,
        deadline_ms: 0,
    }
}

/// Frames whose packets all came, packets that were restored, and bytes that were sent.
fn run(lost_percent: u64, is_tagged: bool) -> (usize, u64, Bytes) {
    let (mut sender, mut receiver) = (Sender::new(Bytes(28)), Receiver::default());
    let (mut path, rate) = (Path::default(), Bitrate::from_mbps(10));
    let rate = RateParams { start: rate, least: rate, most: rate };
    sender.add_path(Instant::ZERO, PathId(0), PathParams { rate, ..PathParams::default() });
    sender.set_reserve_most(DELAY / 2);
    let (mut whole, mut sent) = (BTreeMap::<u32, u16>::new(), Bytes(0));
    for ms in 0..u64::from(FRAMES) * 40 + 2_000 {
        let now = Instant::ZERO + Duration::from_millis(ms);
        if ms % 40 == 0 && ms / 40 < u64::from(FRAMES) {
            for packet in 0..PACKETS {
                let (seq, deadline) = ((ms / 40) as u32, now + DELAY);
                let tag = Some(tag(seq, packet)).filter(|_| is_tagged);
                let mut bytes = vec![0; 1_000];
                bytes[..4].copy_from_slice(&seq.to_be_bytes());
                sender.handle_packet(now, StreamId(1), deadline, tag.as_ref(), bytes.into());
            }
        }
        while let Some((at, is_back, bytes)) = path.packets.pop() {
            if at.0 > now {
                path.packets.push((at, is_back, bytes));
                break;
            } else if is_back {
                sender.handle_datagram(now, &bytes).unwrap();
            } else {
                receiver.handle_datagram(now, &bytes, false).unwrap();
            }
        }
        sender.handle_timeout(now);
        receiver.handle_timeout(now);
        while let Some(transmit) = sender.poll_transmit(now) {
            sent += Bytes(transmit.bytes.len() as u64);
            path.send(now, false, transmit.bytes, lost_percent);
        }
        while let Some(transmit) = receiver.poll_transmit(now) {
            path.send(now, true, transmit.bytes, 0);
        }
        while let Some(delivered) = receiver.poll_packet() {
            let seq = u32::from_be_bytes(*delivered.packet.first_chunk().unwrap());
            *whole.entry(seq).or_default() += 1;
        }
    }
    let whole = whole.values().filter(|packets| **packets == PACKETS).count();
    (whole, receiver.counts().restored, sent)
}

#[test]
fn what_cannot_be_repaired_in_time_is_protected_beforehand() {
    let all = FRAMES as usize;
    let (plain, none, plain_bytes) = run(5, false);
    let (whole, restored, bytes) = run(5, true);
    assert!(plain < all * 3 / 4 && none == 0, "{plain} of {all} without parities");
    assert!(whole > all * 99 / 100 && restored > 500, "{whole} of {all}, {restored} restored");
    assert!(bytes.0 < plain_bytes.0 * 3 / 2, "{bytes:?} beside {plain_bytes:?}");
}

#[test]
fn a_path_that_loses_nothing_carries_no_parities() {
    let (plain, _, plain_bytes) = run(0, false);
    assert_eq!(run(0, true), (plain, 0, plain_bytes));
    assert_eq!(plain, FRAMES as usize);
}
