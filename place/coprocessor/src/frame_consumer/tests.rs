//! How much of a stream is checked before the others have their turn.

use std::sync::atomic::AtomicBool;

use selvedge_data_stream::Kind;
use selvedge_data_stream::WhenFull;
use selvedge_data_stream::rtp::IPV4_UDP;
use selvedge_os::clock::Clock;
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer, FrameProducerParams};

use super::*;

const LIMITS: Limits = Limits { packet: 100, overhead: IPV4_UDP };

fn ends() -> (SharedConsumer, FrameProducer, StreamSegment) {
    let segment = StreamSegment::create("turns", 64, Bytes(1 << 22)).unwrap();
    let bell = Arc::new(Doorbell::create().unwrap());
    let frame_consumer =
        SharedConsumer::new(&segment, true, LIMITS, (Arc::clone(&bell), 0)).unwrap();
    let params = FrameProducerParams {
        clock: Clock::simulated(),
        full: WhenFull::Drop,
        overhead: IPV4_UDP,
        payload_max: 60,
        ssrc: 1,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let frame_producer =
        crate::frame_producer::frame_producer(&params, &segment, bell, 0, stop).unwrap();
    (frame_consumer, frame_producer, segment)
}

fn enqueue(frame_producer: &mut FrameProducer, packets: usize) {
    let mut packet = [0; 12];
    packet[..2].copy_from_slice(&[0x80, 96]);
    let slices = vec![&packet[..]; packets];
    let offer = FrameMetadata {
        kind: Kind::Data,
        referenced: false,
        closes: false,
        refs: None,
        timestamp: 0,
    };
    frame_producer.enqueue(offer, &slices).unwrap();
}

/// Frames that a turn takes.
fn turn(frame_consumer: &mut SharedConsumer) -> usize {
    std::iter::from_fn(|| frame_consumer.pop(Instant::ZERO)).count()
}

#[test]
fn frames_of_many_packets_take_no_longer_a_turn_than_others() {
    let (mut frame_consumer, mut frame_producer, _segment) = ends();
    let packets = CHECK_MAX + CHECK_MAX / 2;
    for _ in 0..4 {
        enqueue(&mut frame_producer, packets);
    }
    // Four frames of one and a half turns each.
    let mut taken = Vec::new();
    while !frame_consumer.is_empty() {
        taken.push(turn(&mut frame_consumer));
    }
    assert_eq!(taken, [0, 1, 1, 0, 1, 1]);
    for _ in 0..50 {
        enqueue(&mut frame_producer, 1);
    }
    assert_eq!(turn(&mut frame_consumer), 50, "small ones are not held up");
    assert_eq!(frame_consumer.refused().read().total(), 0);
}

#[test]
fn a_frame_that_took_several_turns_is_the_same() {
    let (mut frame_consumer, mut frame_producer, _segment) = ends();
    let packets = 3 * CHECK_MAX + 5;
    enqueue(&mut frame_producer, packets);
    assert_eq!([(); 3].map(|()| turn(&mut frame_consumer)), [0; 3]);
    let frame = frame_consumer.pop(Instant::ZERO).unwrap();
    assert_eq!(usize::from(frame.packets), packets);
    assert!(frame_consumer.is_empty());
    let (mut cursor, mut size) = (PacketCursor::default(), Bytes(0));
    for _ in 0..packets {
        let (_, len) = frame_consumer.packet(frame.payload, &mut cursor).unwrap();
        size += Bytes(len as u64) + IPV4_UDP;
    }
    assert_eq!((frame.size, cursor.offset()), (size, frame.payload.len as usize));
}

#[test]
fn refused_frames_of_many_packets_are_bounded_as_well() {
    let (mut frame_consumer, mut frame_producer, segment) = ends();
    for n in 0..4 {
        enqueue(&mut frame_producer, 2 * CHECK_MAX + 1);
        // One packet less than stated: found at the end.
        let slot = segment.ring_at() + 384 + 64 * n;
        let fewer = (2 * CHECK_MAX as u16).to_ne_bytes();
        for (k, byte) in fewer.into_iter().enumerate() {
            // SAFETY: a byte of the segment's memory, mapped as long as `segment` lives.
            unsafe { segment.region.base().add(slot + 4 + k).write_volatile(byte) };
        }
    }
    let mut refused = Vec::new();
    while !frame_consumer.is_empty() {
        assert_eq!(turn(&mut frame_consumer), 0);
        refused.push(frame_consumer.refused().read().total());
    }
    // Nothing follows the last one, so its turn ends with it.
    assert_eq!(refused, [0, 1, 1, 2, 2, 3, 3, 4]);
}
