//! Rings and pools under every interleaving that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p selvedge-data-memory --test loom --release`
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use selvedge_data_memory::{Bell, MailboxSpec, PayloadSpan, PoolWriter, mailbox, pool, ring};
use selvedge_units::Bytes;

/// Every interleaving with at most this many preemptions; the rest of the model's choices (which store a load
/// sees) are explored in full.
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

/// Either half may be dropped last, and a producer that sees the other gone may still push.
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

/// The writer gets no room back before both are released, whatever it sees meanwhile.
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

/// A span that is seen without its commit is either invalid or names the whole payload.
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

const KEEPS: MailboxSpec = MailboxSpec { capacity: 64, bound: 2, overwrites: false };

/// Nothing is lost, and messages are whole, when the writer waits for room.
#[test]
fn mail_that_is_kept_arrives_whole_and_in_order() {
    model(2, || {
        let (mut writer, mut reader) = mailbox(MailboxSpec { bound: 1, ..KEEPS });
        let other = thread::spawn(move || {
            for n in 0..2_u64 {
                while writer.put(n, &n.to_ne_bytes()).is_err() {
                    thread::yield_now();
                }
                let _ = writer.flush();
            }
        });
        for n in 0..2_u64 {
            loop {
                if let Some(mail) = reader.take().unwrap() {
                    assert_eq!((mail.tag, mail.bytes), (n, &n.to_ne_bytes()[..]));
                    break;
                }
                thread::yield_now();
            }
        }
        other.join().unwrap();
        assert_eq!(reader.take(), Ok(None));
        assert_eq!(reader.missed(), 0);
    });
}

/// A message that is overwritten while it is read is never returned.
#[test]
fn mail_that_is_overwritten_is_not_torn() {
    for latest in [false, true] {
        model(2, move || {
            let (mut writer, mut reader) =
                mailbox(MailboxSpec { bound: 1, overwrites: true, ..KEEPS });
            let other = thread::spawn(move || {
                // Long enough that each lies where the previous one lay.
                for n in 1..=3_u64 {
                    let mut bytes = [0; 16];
                    bytes[..8].copy_from_slice(&n.to_ne_bytes());
                    bytes[8..].copy_from_slice(&n.to_ne_bytes());
                    writer.put(n, &bytes).unwrap();
                    let _ = writer.flush();
                }
            });
            let mut last = 0;
            for _ in 0..2 {
                let taken = if latest { reader.take_latest() } else { reader.take() };
                if let Some(mail) = taken.unwrap() {
                    assert!(mail.tag > last, "in order");
                    last = mail.tag;
                    assert_eq!(mail.bytes[..8], last.to_ne_bytes());
                    assert_eq!(mail.bytes[8..], last.to_ne_bytes());
                }
            }
            other.join().unwrap();
            while let Some(mail) = reader.take().unwrap() {
                last = mail.tag;
            }
            assert_eq!(last, 3, "the newest is there in the end");
        });
    }
}

/// A reader that prepares to sleep is notified of earlier writes, or sees them itself.
#[test]
fn no_call_to_a_sleeping_reader_is_lost() {
    loom::model(|| {
        let (mut writer, mut reader) = mailbox(KEEPS);
        let woken = loom::sync::Arc::new(loom::sync::Notify::new());
        let call = loom::sync::Arc::clone(&woken);
        let other = thread::spawn(move || {
            for n in 0..2 {
                writer.put(n, &[]).unwrap();
                if writer.flush() {
                    call.notify();
                }
            }
        });
        let mut next = 0;
        while next < 2 {
            while let Some(mail) = reader.take().unwrap() {
                assert_eq!(mail.tag, next);
                next += 1;
            }
            if next < 2 && reader.prepare_sleep() {
                // A lost notification leaves it here for ever, which loom reports.
                woken.wait();
                reader.finish_sleep();
            }
        }
        other.join().unwrap();
    });
}

/// A reader that can't look for work itself is notified of everything written before it slept.
#[test]
fn no_call_to_a_reader_that_waits_for_calls_is_lost() {
    loom::model(|| {
        let shared = loom::sync::Arc::new((Bell::default(), AtomicU32::new(0)));
        let woken = loom::sync::Arc::new(loom::sync::Notify::new());
        let (theirs, call) = (loom::sync::Arc::clone(&shared), loom::sync::Arc::clone(&woken));
        let other = thread::spawn(move || {
            for n in 1..=2 {
                // Relaxed: the test is about the ordering of the bell.
                theirs.1.store(n, Ordering::Relaxed);
                if theirs.0.notify() {
                    call.notify();
                }
            }
        });
        while shared.1.load(Ordering::Relaxed) < 2 {
            if shared.0.prepare_sleep() {
                // A lost notification leaves it here for ever, which loom reports.
                woken.wait();
            }
            shared.0.take();
        }
        other.join().unwrap();
    });
}
