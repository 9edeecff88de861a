//! A hostile producer's whole segment and control messages: bytes are written anywhere, at any time,
//! while the coprocessor's end takes frames, reads and stamps their packets and settles them in any
//! order. The coprocessor only touches memory in the segment, and its own state stays consistent.
use std::sync::Arc;

use selvedge_data_stream::rtp::IPV4_UDP;
use selvedge_data_stream::{DropReason, Fate, Frame, PacketCursor};
use selvedge_os::control;
use selvedge_place_coprocessor::frame_consumer::{Limits, SharedConsumer};
use selvedge_place_coprocessor::message::Request;
use selvedge_place_coprocessor::segment::{Doorbell, StreamSegment};
use selvedge_place_engine::engine::{FrameConsumer, Stamp};
use selvedge_units::{Bytes, Instant};

const LIMITS: Limits = Limits { packet: 300, overhead: IPV4_UDP };

pub fn fuzz(data: &[u8]) {
    if let Ok(Request::Add { stream, .. }) = control::decode(data) {
        let _ = stream.check();
    }
    let segment = StreamSegment::create("fuzz", 8, Bytes(1024)).expect("memory to share");
    let bell = Arc::new(Doorbell::create().expect("memory to share"));
    let fresh = SharedConsumer::new(&segment, true, LIMITS, (Arc::clone(&bell), 0));
    let mut outlet = fresh.expect("it is new");
    let mut held: Vec<Frame> = Vec::new();
    let mut now = Instant(1_000_000_000);
    for step in data.chunks_exact(8) {
        let [what, a, b, c, rest @ ..] = step else { continue };
        let at = usize::from(u16::from_le_bytes([*a, *b]));
        now.0 += 1000;
        match what % 8 {
            // Bytes anywhere: half of all steps.
            0..=3 => {
                for (n, byte) in rest.iter().chain([c]).enumerate() {
                    let place = (at + n) % segment.region.len();
                    // SAFETY: within the region.
                    unsafe { segment.region.base().add(place).write_volatile(*byte) };
                }
            }
            4 => {
                if let Some(frame) = outlet.pop(now) {
                    assert!(frame.packets > 0 && frame.size > Bytes(0));
                    assert!(held.len() < 8, "no more frames than slots");
                    held.push(frame);
                }
            }
            5 => {
                let Some(frame) = held.get(at % held.len().max(1)).copied() else { continue };
                let mut cursor = PacketCursor::default();
                for _ in 0..frame.packets {
                    let Some(packet) = outlet.packet(frame.payload, &mut cursor) else { break };
                    assert!((1..=usize::from(LIMITS.packet)).contains(&packet.1));
                    let stamp = Stamp { sequence: at as u16, deadline: now, now };
                    outlet.stamp(frame.payload, packet, stamp);
                    assert_eq!(outlet.bytes(frame.payload, packet).len(), packet.1);
                }
            }
            6 if !held.is_empty() => {
                let frame = held.swap_remove(at % held.len());
                let fate = Fate::Dropped(DropReason::Removed);
                outlet.settled(&frame, fate);
                outlet.settled(&frame, fate);
            }
            7 if *c == 7 => {
                // The coprocessor's end dies, and another takes over, or refuses to.
                held.clear();
                match SharedConsumer::new(&segment, false, LIMITS, (Arc::clone(&bell), 0)) {
                    Ok(next) => outlet = next,
                    Err(_) => return,
                }
            }
            _ => {}
        }
        assert!(outlet.refused().read().total() < u64::MAX);
    }
}
