//! How much of a stream is checked before the others have their turn.

use std::sync::atomic::AtomicBool;

use selvedge_control_config::{SetConfig, SlotConfig, Streamlet, StreamletGroup};
use selvedge_data_stream::Kind;
use selvedge_data_stream::WhenFull;
use selvedge_data_stream::rtp::IPV4_UDP;
use selvedge_os::clock::Clock;
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer, FrameProducerParams};
use selvedge_place_engine::slot::{Slot, SlotParams};
use selvedge_units::Duration;

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

/// Two streamlets of one set.
fn slot() -> Box<Slot> {
    let sets = vec![SetConfig { name: "all".to_owned(), weight: 1 }];
    let to = "127.0.0.1:6004".parse().unwrap();
    let streamlet = Streamlet { from: None, ssrc: None, to, set: 0 };
    let groups = vec![StreamletGroup { first: 0, count: 2, streamlet }];
    let config = Arc::new(SlotConfig { sets, groups, queue: 4 });
    config.check(false).unwrap();
    Box::new(Slot::new(SlotParams { config, delay: None, pool: Bytes(1 << 20), ssrc: 7 }))
}

#[test]
fn a_slot_copies_frames_and_frees_their_room_at_once() {
    let (mut frame_consumer, mut frame_producer, _segment) = ends();
    let mut slot = slot();
    // The ring has room for 64 frames; each streamlet keeps four.
    for _ in 0..40 {
        for streamlet in 0..2 {
            let mut packet = [5; 60];
            packet[..2].copy_from_slice(&[0x80, 96]);
            frame_producer.enqueue_for(streamlet, Instant::ZERO, 0, &[&packet]).unwrap();
        }
        let mut take = |frame: &Frame, payload: &[u8]| slot.take(frame, payload);
        while frame_consumer.take(Instant::ZERO, &mut take) {}
        assert!(frame_consumer.ring.is_empty() && frame_consumer.held.is_empty());
    }
    let mut sent = Vec::new();
    while slot.promote(Instant::ZERO).is_some() {
        let packet = slot.packet(&mut PacketCursor::default()).unwrap();
        slot.stamp(packet, 3, (Instant::ZERO, Instant::ZERO));
        let packet = slot.bytes(packet);
        sent.push(u32::from_be_bytes(*packet[8..].first_chunk().unwrap()));
        assert!(packet.ends_with(&[5; 40]));
        assert!(slot.promote(Instant::ZERO).is_none(), "one frame is the link's");
        slot.settled(Fate::Sent { queueing: Duration::ZERO, on_time: true });
    }
    assert_eq!(sent, [7, 8, 7, 8, 7, 8, 7, 8]);
    assert_eq!(slot.sets()[0].counts.dropped, 72);
    assert!(frame_consumer.is_empty());
}

#[test]
fn what_is_no_packet_by_now_reaches_no_streamlet() {
    let (frame_consumer, ..) = ends();
    let long = |len: u16| [&len.to_le_bytes()[..], &vec![0; len.into()]].concat();
    for (payload, are) in [
        ([long(60), long(100)].concat(), true),
        (long(101), false),
        (long(STAMPED_LEN as u16 - 1), false),
        (long(60)[..61].to_vec(), false),
        ([long(60), vec![1]].concat(), false),
    ] {
        assert_eq!(frame_consumer.are_packets(&payload), are, "{}", payload.len());
    }
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
