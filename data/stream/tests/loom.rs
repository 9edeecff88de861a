//! Rings and pools under every interleaving that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p selvedge-stream --test loom --release`
#![cfg(loom)]

use loom::thread;
use selvedge_stream::{PayloadSpan, PoolWriter, pool, ring};
use selvedge_units::Bytes;

/// Every interleaving with at most this many preemptions; the rest of the model's choices (which
/// store a load sees) are tried in full.
fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

/// More items than slots, so that slots are used again.
#[test]
fn ring_hands_over_each_item_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring::<u32>(2);
        let writer = thread::spawn(move || {
            for n in 0..3 {
                while producer.push(n).is_err() {
                    thread::yield_now();
                }
            }
        });
        for n in 0..3 {
            let item = loop {
                match consumer.pop() {
                    Some(item) => break item,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(item, n);
        }
        writer.join().unwrap();
        assert!(consumer.is_abandoned());
        assert_eq!(consumer.pop(), None);
    });
}

#[test]
fn ring_batches_are_seen_whole_and_in_order() {
    model(3, || {
        let (mut producer, mut consumer) = ring::<u32>(2);
        let writer = thread::spawn(move || {
            let mut left = &[0, 1, 2][..];
            while !left.is_empty() {
                let count = producer.push_slice(left);
                left = &left[count..];
                thread::yield_now();
            }
        });
        let mut next = 0;
        while next < 3 {
            let mut items = [u32::MAX; 2];
            let count = consumer.pop_into(&mut items);
            for item in &items[..count] {
                assert_eq!(*item, next);
                next += 1;
            }
            thread::yield_now();
        }
        writer.join().unwrap();
    });
}

/// `is_abandoned`, then an empty ring: nothing can follow.
#[test]
fn ring_ends_after_its_last_item() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring::<u32>(2);
        let writer = thread::spawn(move || {
            for n in 0..2 {
                producer.push(n).unwrap();
            }
        });
        let mut count = 0;
        loop {
            let ended = consumer.is_abandoned();
            match consumer.pop() {
                Some(_) => count += 1,
                None if ended => break,
                None => thread::yield_now(),
            }
        }
        assert_eq!(count, 2);
        writer.join().unwrap();
    });
}

/// Either half may be the last to go, and a producer that sees the other gone may still push.
#[test]
fn ring_halves_may_go_at_any_time() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring::<u32>(2);
        let writer = thread::spawn(move || {
            let before = producer.is_abandoned();
            let pushed = producer.push(7).is_ok();
            assert!(pushed);
            assert!(!before || producer.is_abandoned());
        });
        assert!(matches!(consumer.pop(), None | Some(7)));
        drop(consumer);
        writer.join().unwrap();
    });
}

fn commit(writer: &mut PoolWriter, byte: u8) -> Option<PayloadSpan> {
    let mut reservation = writer.reserve(1).ok()?;
    reservation.bytes_mut()[0] = byte;
    Some(reservation.commit())
}

/// A pool of two places, three payloads: the first place is used again.
#[test]
fn pool_hands_over_each_payload_and_takes_its_room_back() {
    model(3, || {
        let (mut writer, mut reader) = pool(Bytes(64));
        let (mut producer, mut consumer) = ring::<PayloadSpan>(4);
        let source = thread::spawn(move || {
            for n in 0..3 {
                let span = loop {
                    match commit(&mut writer, n) {
                        Some(span) => break span,
                        None => thread::yield_now(),
                    }
                };
                producer.push(span).unwrap();
            }
        });
        for n in 0..3 {
            let span = loop {
                match consumer.pop() {
                    Some(span) => break span,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(reader.bytes(span), Ok(&[n][..]));
            reader.bytes_mut(span).unwrap()[0] = 9;
            reader.release(span).unwrap();
        }
        assert_eq!(reader.held(), Bytes(0));
        source.join().unwrap();
    });
}

/// The writer gets nothing back before both are released, whatever it sees meanwhile.
#[test]
fn pool_frees_in_order_when_released_out_of_order() {
    model(3, || {
        let (mut writer, mut reader) = pool(Bytes(64));
        let first = commit(&mut writer, 1).unwrap();
        let second = commit(&mut writer, 2).unwrap();
        let sink = thread::spawn(move || {
            reader.release(second).unwrap();
            assert_eq!(reader.bytes(first), Ok(&[1][..]));
            reader.release(first).unwrap();
            reader
        });
        let third = commit(&mut writer, 3);
        let reader = sink.join().unwrap();
        if let Some(third) = third {
            assert_eq!(reader.bytes(third), Ok(&[3][..]));
        }
        assert_eq!(reader.held() + writer.free(), writer.capacity());
    });
}

/// A span that is seen without its commit names nothing, or the whole payload.
#[test]
fn pool_span_is_good_as_soon_as_it_is_committed() {
    model(3, || {
        let (mut writer, reader) = pool(Bytes(64));
        let source = thread::spawn(move || commit(&mut writer, 5).unwrap());
        let guess = PayloadSpan { start: 16, len: 1 };
        if let Ok(bytes) = reader.bytes(guess) {
            assert_eq!(bytes, [5]);
        }
        assert_eq!(source.join().unwrap(), guess);
    });
}
