//! What an item costs on its way through the ring, mostly between two threads, beside `rtrb`'s.
//!
//! `cargo run --release -p selvedge-lab-measure --example ring_bench`
//!
//! The rings take turns, so that both see the same machine; each figure is the median of all
//! rounds, and the ratio that of the medians (below 1: ours is faster).

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::hint::{black_box, spin_loop};
use std::thread;
use std::time::Instant;

use selvedge_lab_measure::median;

const CAPACITY: usize = 256;
const ITEMS: u64 = 4_000_000;
const BATCH: usize = 32;
const ROUNDS: usize = 11;

/// As large as a frame's descriptor.
type Descriptor = [u64; 9];

fn main() {
    println!("{ITEMS} items a round, {ROUNDS} rounds, capacity {CAPACITY}; ns per item");
    println!("{:<28}{:>9}{:>9}{:>8}", "", "ours", "rtrb", "ratio");
    compare("72 bytes, in one thread", ours_alone, theirs_alone);
    compare("8 bytes, one by one", ours::<u64>, theirs::<u64>);
    compare("72 bytes, one by one", ours::<Descriptor>, theirs::<Descriptor>);
    compare("8 bytes, by 32", ours_batched::<u64>, theirs_batched::<u64>);
    compare("72 bytes, by 32", ours_batched::<Descriptor>, theirs_batched::<Descriptor>);
}

fn compare(name: &str, ours: fn() -> f64, theirs: fn() -> f64) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        a.push(ours());
        b.push(theirs());
    }
    let (a, b) = (median(a), median(b));
    println!("{name:<28}{a:>9.2}{b:>9.2}{:>8.2}", a / b);
}

/// Runs both sides to their ends and returns nanoseconds per item.
fn timed(produce: impl FnOnce() + Send, consume: impl FnOnce()) -> f64 {
    thread::scope(|scope| {
        let start = Instant::now();
        let producer = scope.spawn(produce);
        consume();
        producer.join().expect("the producer has no way to panic");
        start.elapsed().as_nanos() as f64 / ITEMS as f64
    })
}

/// Waits for the other side: spins, and lets it run if it shares the core.
fn wait(tries: &mut u32) {
    *tries += 1;
    if tries.is_multiple_of(128) { thread::yield_now() } else { spin_loop() }
}

trait Item: Copy + Default + Send {
    fn numbered(n: u64) -> Self;
}

impl Item for u64 {
    fn numbered(n: u64) -> Self {
        n
    }
}

impl Item for Descriptor {
    fn numbered(n: u64) -> Self {
        [n; 9]
    }
}

/// Fills the ring and empties it, without another thread: the instructions alone.
fn ours_alone() -> f64 {
    let (mut producer, mut consumer) = selvedge_data_memory::ring::<Descriptor>(CAPACITY);
    let start = Instant::now();
    for n in 0..ITEMS / CAPACITY as u64 {
        while producer.push(Descriptor::numbered(n)).is_ok() {}
        while let Some(item) = consumer.pop() {
            black_box(item);
        }
    }
    start.elapsed().as_nanos() as f64 / ITEMS as f64
}

fn theirs_alone() -> f64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<Descriptor>::new(CAPACITY);
    let start = Instant::now();
    for n in 0..ITEMS / CAPACITY as u64 {
        while producer.push(Descriptor::numbered(n)).is_ok() {}
        while let Ok(item) = consumer.pop() {
            black_box(item);
        }
    }
    start.elapsed().as_nanos() as f64 / ITEMS as f64
}

fn ours<T: Item>() -> f64 {
    let (mut producer, mut consumer) = selvedge_data_memory::ring::<T>(CAPACITY);
    let produce = move || {
        let mut tries = 0;
        for n in 0..ITEMS {
            while producer.push(T::numbered(n)).is_err() {
                wait(&mut tries);
            }
        }
    };
    let consume = move || {
        let (mut taken, mut tries) = (0, 0);
        while taken < ITEMS {
            match consumer.pop() {
                Some(item) => {
                    black_box(item);
                    taken += 1;
                }
                None => wait(&mut tries),
            }
        }
    };
    timed(produce, consume)
}

fn theirs<T: Item>() -> f64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<T>::new(CAPACITY);
    let produce = move || {
        let mut tries = 0;
        for n in 0..ITEMS {
            while producer.push(T::numbered(n)).is_err() {
                wait(&mut tries);
            }
        }
    };
    let consume = move || {
        let (mut taken, mut tries) = (0, 0);
        while taken < ITEMS {
            match consumer.pop() {
                Ok(item) => {
                    black_box(item);
                    taken += 1;
                }
                Err(_) => wait(&mut tries),
            }
        }
    };
    timed(produce, consume)
}

fn ours_batched<T: Item>() -> f64 {
    let (mut producer, mut consumer) = selvedge_data_memory::ring::<T>(CAPACITY);
    let produce = move || {
        let mut tries = 0;
        for n in 0..ITEMS / BATCH as u64 {
            let items = [T::numbered(n); BATCH];
            let mut left = &items[..];
            while !left.is_empty() {
                match producer.push_slice(left) {
                    0 => wait(&mut tries),
                    count => left = &left[count..],
                }
            }
        }
    };
    let consume = move || {
        let (mut items, mut taken, mut tries) = ([T::default(); BATCH], 0, 0);
        while taken < ITEMS {
            match consumer.pop_into(&mut items) {
                0 => wait(&mut tries),
                count => {
                    black_box(&items[..count]);
                    taken += count as u64;
                }
            }
        }
    };
    timed(produce, consume)
}

fn theirs_batched<T: Item>() -> f64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<T>::new(CAPACITY);
    let produce = move || {
        let mut tries = 0;
        for n in 0..ITEMS / BATCH as u64 {
            let items = [T::numbered(n); BATCH];
            let mut left = &items[..];
            while !left.is_empty() {
                match producer.push_partial_slice(left) {
                    ([], _) => wait(&mut tries),
                    (_, later) => left = later,
                }
            }
        }
    };
    let consume = move || {
        let (mut items, mut taken, mut tries) = ([T::default(); BATCH], 0, 0);
        while taken < ITEMS {
            match consumer.pop_partial_slice(&mut items) {
                ([], _) => wait(&mut tries),
                (popped, _) => taken += black_box(popped).len() as u64,
            }
        }
    };
    timed(produce, consume)
}
