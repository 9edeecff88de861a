//! The receiver's meter: any datagrams at any times leave its counters consistent.
//!
//! Input: a byte of options, the clock rate, then operations. A made packet continues the one before,
//! so that frames, gaps and jumps are a byte away; a raw one consists of the bytes that follow.

use crate::choices::Choices;
use selvedge_data_receive::{ClockRate, MeterSnapshot, StreamMeter};
use selvedge_data_stream::rtp::{FrameTag, Header, packet_len, write_packet};
use selvedge_data_stream::{Kind, References};
use selvedge_units::{Duration, Instant};

pub fn fuzz(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let shared = choices.byte() & 1 == 1;
    let rate = ClockRate::new(choices.long()).unwrap_or(ClockRate::VIDEO);
    let mut meter = if shared {
        StreamMeter::with_shared_clock(rate, |seq| {
            (seq % 3 != 0).then_some(Instant(u64::from(seq) * 40_000_000))
        })
    } else {
        StreamMeter::new(rate)
    };
    let mut now = Instant::ZERO;
    let mut handled = 0;
    let mut maker = Maker::default();
    while !choices.is_empty() {
        let op = choices.byte();
        match op % 16 {
            0 => meter.handle_timeout(now),
            1 => meter.finish(),
            // The kernel's clock may be set back.
            2 => now = now - Duration(choices.magnitude()),
            3 => now += Duration(choices.magnitude()),
            4 | 5 => {
                let len = usize::from(choices.byte());
                meter.handle_packet(now, choices.bytes(len));
                handled += 1;
            }
            _ => {
                now += Duration(u64::from(op) * 100_000);
                meter.handle_packet(now, maker.packet(&mut choices));
                handled += 1;
            }
        }
        let snapshot = meter.snapshot();
        consistent(&snapshot, handled);
    }
    meter.finish();
    let snapshot = meter.snapshot();
    consistent(&snapshot, handled);
    assert_eq!(snapshot.pending, 0, "all is settled at the end");
    serde_json::to_string(&snapshot).expect("a snapshot serialises");
}

/// Packets, each made from the one before.
struct Maker {
    header: Header,
    tag: FrameTag,
    tagged: bool,
    packet: Vec<u8>,
}

impl Default for Maker {
    fn default() -> Self {
        let header = Header { marker: false, payload_type: 96, sequence: 0, timestamp: 0, ssrc: 1 };
        let tag = FrameTag {
            seq: 0,
            kind: Kind::Predicted,
            referenced: true,
            first: true,
            last: true,
            refs: References::NONE,
            left_ms: 100,
            deadline_ms: 0,
        };
        Self { header, tag, tagged: true, packet: Vec::new() }
    }
}

impl Maker {
    fn packet(&mut self, choices: &mut Choices<'_>) -> &[u8] {
        let what = choices.byte();
        self.header.sequence = self.header.sequence.wrapping_add(1);
        (self.tag.first, self.tag.last) = (what & 1 != 0, what & 2 != 0);
        self.header.marker = self.tag.last;
        if self.tag.first {
            self.tag.seq = self.tag.seq.wrapping_add(1);
            self.header.timestamp = self.header.timestamp.wrapping_add(3600);
        }
        if what & 4 != 0 {
            self.tag.refs = References::to([choices.byte().into(), choices.word().into()]);
        }
        if what & 8 != 0 {
            let step = choices.byte().cast_signed();
            self.header.sequence = self.header.sequence.wrapping_add_signed(step.into());
        }
        if what & 16 != 0 {
            self.tag.seq = self.tag.seq.wrapping_add_signed(choices.byte().cast_signed().into());
        }
        if what & 32 != 0 {
            self.tag.left_ms = choices.word().cast_signed();
            self.tag.deadline_ms = choices.word();
        }
        if what & 64 != 0 {
            match choices.byte() % 6 {
                0 => self.header.sequence = choices.word(),
                1 => self.tag.seq = choices.long(),
                2 => self.header.timestamp = choices.long(),
                3 => self.header.ssrc = choices.byte().into(),
                4 => self.tagged ^= true,
                _ => self.tag.refs = References::UNKNOWN,
            }
        }
        let payload = [0x5a; 3];
        self.packet.resize(packet_len(payload.len()), 0);
        write_packet(&mut self.packet, self.header, self.tag, &payload);
        if !self.tagged {
            // No extension: its bytes become payload.
            self.packet[0] &= !0x10;
        }
        &self.packet
    }
}

fn consistent(s: &MeterSnapshot, handled: u64) {
    assert_eq!(s.packets + s.duplicates + s.stray + s.malformed, handled);
    assert_eq!(s.frames, s.complete + s.incomplete + s.unseen.unwrap_or(0));
    let (on_time, late) = (s.on_time.unwrap_or(0), s.late.unwrap_or(0));
    assert!(on_time + late <= s.complete);
    assert!(s.decodable.unwrap_or(0) <= on_time);
    assert!(s.complete + s.incomplete + s.after_settled <= s.packets);
    // Each packet skips at most 3000 others and 4096 frames.
    assert!(s.lost <= s.packets * 3000, "{} lost", s.lost);
    assert!(s.unseen.unwrap_or(0) <= s.packets * 4097, "{s:?}");
    assert!(s.pending <= 64 + 8 && s.restarts <= handled);
    assert!(s.jitter_units <= u64::from(u32::MAX));
    for share in [s.lost_share, s.on_time_share, s.decodable_share].into_iter().flatten() {
        assert!((0.0..=1.0).contains(&share), "{share}");
    }
    assert!(s.jitter_ms.is_finite() && s.queueing_ms.is_none_or(|ms| ms >= 0.0));
}
