//! How much of a stream is looked at before the others have their turn.

use std::sync::atomic::AtomicBool;

use selvedge_data_stream::Kind;
use selvedge_data_stream::WhenFull;
use selvedge_os::clock::Clock;
use selvedge_place_engine::inlet::{IPV4_UDP, Inlet, InletParams, Offer};

use super::*;

const LIMITS: Limits = Limits { packet: 100, overhead: IPV4_UDP };

fn ends() -> (SharedOutlet, Inlet, StreamSegment) {
    let segment = StreamSegment::create("turns", 64, Bytes(1 << 22)).unwrap();
    let bell = Arc::new(Doorbell::create().unwrap());
    let outlet = SharedOutlet::new(&segment, true, LIMITS, (Arc::clone(&bell), 0)).unwrap();
    let params = InletParams {
        clock: Clock::turned_by_hand(),
        full: WhenFull::Drop,
        overhead: IPV4_UDP,
        payload_max: 60,
        ssrc: 1,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let inlet = crate::inlet::inlet(&params, &segment, bell, 0, stop).unwrap();
    (outlet, inlet, segment)
}

fn offer(inlet: &mut Inlet, packets: usize) {
    let mut packet = [0; 12];
    packet[..2].copy_from_slice(&[0x80, 96]);
    let slices = vec![&packet[..]; packets];
    let offer = Offer { kind: Kind::Data, referenced: false, closes: false, timestamp: 0 };
    inlet.offer(offer, &slices).unwrap();
}

/// Frames that a turn takes.
fn set_knob(outlet: &mut SharedOutlet) -> usize {
    std::iter::from_fn(|| outlet.pop(Instant::ZERO)).count()
}

#[test]
fn frames_of_many_packets_take_no_longer_a_turn_than_others() {
    let (mut outlet, mut inlet, _segment) = ends();
    let packets = WALK + WALK / 2;
    for _ in 0..4 {
        offer(&mut inlet, packets);
    }
    // Four frames of one and a half turns each.
    let mut taken = Vec::new();
    while !outlet.is_empty() {
        taken.push(turn(&mut outlet));
    }
    assert_eq!(taken, [0, 1, 1, 0, 1, 1]);
    for _ in 0..50 {
        offer(&mut inlet, 1);
    }
    assert_eq!(turn(&mut outlet), 50, "small ones are not held up");
    assert_eq!(outlet.refused().read().total(), 0);
}

#[test]
fn a_frame_that_took_several_turns_is_the_same() {
    let (mut outlet, mut inlet, _segment) = ends();
    let packets = 3 * WALK + 5;
    offer(&mut inlet, packets);
    assert_eq!([(); 3].map(|()| turn(&mut outlet)), [0; 3]);
    let frame = outlet.pop(Instant::ZERO).unwrap();
    assert_eq!(usize::from(frame.packets), packets);
    assert!(outlet.is_empty());
    let (mut cursor, mut size) = (PacketCursor::default(), Bytes(0));
    for _ in 0..packets {
        let (_, len) = outlet.packet(frame.payload, &mut cursor).unwrap();
        size += Bytes(len as u64 + IPV4_UDP);
    }
    assert_eq!((frame.size, cursor.offset()), (size, frame.payload.len as usize));
}

#[test]
fn refused_frames_of_many_packets_are_bounded_as_well() {
    let (mut outlet, mut inlet, segment) = ends();
    for n in 0..4 {
        offer(&mut inlet, 2 * WALK + 1);
        // One packet less than lie there: found out at the end.
        let slot = segment.ring_at() + 384 + 64 * n;
        let fewer = (2 * WALK as u16).to_ne_bytes();
        for (k, byte) in fewer.into_iter().enumerate() {
            // SAFETY: a byte of the segment's memory, mapped as long as `segment` lives.
            unsafe { segment.region.base().add(slot + 4 + k).write_volatile(byte) };
        }
    }
    let mut refused = Vec::new();
    while !outlet.is_empty() {
        assert_eq!(turn(&mut outlet), 0);
        refused.push(outlet.refused().read().total());
    }
    // The last has nothing behind it, so its turn ends with it.
    assert_eq!(refused, [0, 1, 1, 2, 2, 3, 3, 4]);
}
