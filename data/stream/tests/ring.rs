//! The ring against a queue of the standard library, and between two threads.

#![allow(clippy::disallowed_methods, reason = "tests of what two threads share")]
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::thread;

use proptest::prelude::*;
use selvedge_stream::ring;

#[derive(Clone, Debug)]
enum Step {
    Push(u64),
    PushSlice(Vec<u64>),
    Pop,
    PopInto(usize),
    Peek,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<u64>().prop_map(Step::Push),
        prop::collection::vec(any::<u64>(), 0..12).prop_map(Step::PushSlice),
        Just(Step::Pop),
        (0..12_usize).prop_map(Step::PopInto),
        Just(Step::Peek),
    ]
}

/// Fewer under Miri, which takes a thousand times as long.
const STEPS: usize = if cfg!(miri) { 20 } else { 200 };

fn cases() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if cfg!(miri) {
        config.cases = 2;
        config.failure_persistence = None;
    }
    config
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn behaves_as_a_bounded_queue(
        capacity in 0..20_usize,
        steps in prop::collection::vec(step(), 0..STEPS),
    ) {
        let (mut producer, mut consumer) = ring::<u64>(capacity);
        let mut model = VecDeque::new();
        let capacity = producer.capacity();
        for step in steps {
            match step {
                Step::Push(item) => {
                    let room = model.len() < capacity;
                    prop_assert_eq!(producer.push(item), if room { Ok(()) } else { Err(item) });
                    if room {
                        model.push_back(item);
                    }
                }
                Step::PushSlice(items) => {
                    let room = items.len().min(capacity - model.len());
                    prop_assert_eq!(producer.push_slice(&items), room);
                    model.extend(&items[..room]);
                }
                Step::Pop => prop_assert_eq!(consumer.pop(), model.pop_front()),
                Step::PopInto(room) => {
                    let mut taken = vec![0; room];
                    let count = consumer.pop_into(&mut taken);
                    prop_assert_eq!(count, room.min(model.len()));
                    prop_assert_eq!(&taken[..count], &model.drain(..count).collect::<Vec<_>>()[..]);
                }
                Step::Peek => prop_assert_eq!(consumer.peek(), model.front()),
            }
            prop_assert_eq!(consumer.len(), model.len());
            prop_assert_eq!(consumer.is_empty(), model.is_empty());
            prop_assert_eq!(producer.free(), capacity - model.len());
        }
    }
}

/// Items that straddle words, so that a torn read would show.
#[derive(Clone, Copy)]
struct Wide([u64; 9]);

#[test]
fn two_threads_see_every_item_once_and_whole() {
    let total: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let (mut producer, mut consumer) = ring::<Wide>(64);
    let writer = thread::spawn(move || {
        for n in 0..total {
            let mut item = Wide([n; 9]);
            while let Err(back) = producer.push(item) {
                item = back;
                thread::yield_now();
            }
        }
    });
    let mut batch = [Wide([0; 9]); 16];
    let mut next = 0;
    loop {
        let ended = consumer.is_abandoned();
        let count = consumer.pop_into(&mut batch);
        for item in &batch[..count] {
            assert_eq!(item.0, [next; 9]);
            next += 1;
        }
        if ended && count == 0 {
            break;
        }
        if count == 0 {
            thread::yield_now();
        }
    }
    writer.join().unwrap();
    assert_eq!(next, total);
}
