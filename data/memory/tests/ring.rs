//! The ring against a queue of the standard library, and between two threads.

#![allow(clippy::disallowed_methods, reason = "tests of what two threads share")]
#![cfg(not(loom))]

mod threads;

use std::collections::VecDeque;

use proptest::prelude::*;
use selvedge_data_memory::ring;

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
#[derive(Clone, Copy, Default)]
struct Wide([u64; 9]);

#[test]
fn two_threads_see_every_item_once_and_whole() {
    let total = if cfg!(miri) { 200 } else { 200_000 };
    let make = |n: u32| Wide([n.into(); 9]);
    threads::pass(64, total, make, |n, item| assert_eq!(item.0, [n.into(); 9]));
}
