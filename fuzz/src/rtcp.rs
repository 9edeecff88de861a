//! A sender of RTP, and any bytes as datagrams of its receiver: the rate stays within its limits, retransmissions stay
//! within a quarter of it, and memory is bounded.

use selvedge_data_net_rate::RateParams;
use selvedge_data_net_rtcp::{Sender, SenderParams, Transmit};
use selvedge_data_stream::rtp::{self, FrameTag, Header};
use selvedge_data_stream::{Kind, References};
use selvedge_units::{Bytes, Duration, Instant};

const SSRC: u32 = 0x0102_0304;

/// Each step is an operation, an argument, and what the operation takes of the bytes that follow.
pub(crate) fn fuzz(mut bytes: &[u8]) {
    let mut now = Instant::ZERO + Duration::from_secs(1);
    let rate = RateParams::default();
    let mut sender = Sender::new(
        now,
        SenderParams {
            delay: Duration::from_millis(200),
            retransmissions: SSRC + 1,
            name: "fuzz".to_owned(),
            below: Bytes(28),
            rate,
        },
    );
    sender.set_clock_rate(90_000);
    let (mut sequence, mut again) = (0_u16, Bytes(0));
    while let Some(([operation, argument], rest)) = bytes.split_first_chunk() {
        let (raw, after) = rest.split_at(rest.len().min(usize::from(*argument)));
        bytes = rest;
        match operation % 4 {
            0 | 1 => {
                let packet = packet(sequence, usize::from(*argument) * 4);
                let due = now + Duration::from_millis(200);
                assert!(sender.handle_packet(now, due, &packet).is_some());
                sequence = sequence.wrapping_add(1);
            }
            2 => now += Duration::from_millis(u64::from(*argument)),
            _ => {
                let _ = sender.handle_datagram(now, raw);
                bytes = after;
            }
        }
        sender.handle_timeout(now);
        while let Some(transmit) = sender.poll_transmit(now) {
            if let Transmit::Media(packet) = transmit {
                again += Bytes(packet.len() as u64 + 28);
            }
        }
        let found = sender.estimate().rate;
        assert!(found >= rate.least && found <= rate.most, "{found}");
        assert!(sender.poll_timeout().is_none_or(|at| at > now));
        assert!(again <= sender.status().sent);
    }
}

fn packet(sequence: u16, payload: usize) -> Vec<u8> {
    let header = Header { marker: false, payload_type: 96, sequence, timestamp: 0, ssrc: SSRC };
    let tag = FrameTag {
        seq: 0,
        kind: Kind::Predicted,
        referenced: false,
        first: true,
        last: true,
        refs: References::from_bits(0),
        left_ms: 0,
        deadline_ms: 0,
    };
    let mut bytes = vec![0; rtp::packet_len(payload)];
    rtp::write_packet(&mut bytes, header, tag, &vec![0; payload]);
    bytes
}
