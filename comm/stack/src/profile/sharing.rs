//! How worker threads speed up a message, and the cost of their help.

use std::hint::black_box;

use selvedge_data_stack::module::Chunk;
use selvedge_os::clock::Clock;
use selvedge_units::Instant;
use serde::{Deserialize, Serialize};

use super::measured::{median, sized};
use crate::worker_threads::WorkerThreads;

/// The encryption of one large message, alone and shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sharing {
    /// The module.
    pub module: String,
    /// The message's size in bytes.
    pub bytes: usize,
    /// The threads that share the message with its master; 0: none.
    pub slaves: u8,
    /// Nanoseconds on the way down.
    pub down: f64,
    /// Nanoseconds on the way up.
    pub up: f64,
}

/// Measures the encryption of messages of `bytes` bytes with each number of worker threads, in
/// `rounds` rounds each. Worker threads without a core of their own only add cost.
#[must_use]
pub fn sharing(bytes: usize, rounds: usize) -> Vec<Sharing> {
    let mut all = Vec::new();
    for cipher in ["encrypt(chacha20)", "encrypt(aes256)"] {
        for slaves in [0, 1, 2, 3] {
            // A thread that can't be started is not measured.
            let Ok(worker_pool) = WorkerThreads::start(slaves) else { continue };
            let line = format!("ui | {cipher} | unreliable | frag(1400) | net");
            let composition = line.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
            let [down, up] = sized(&composition, 1, bytes, rounds, worker_pool.as_ref());
            all.push(Sharing { module: cipher.to_owned(), bytes, slaves, down, up });
        }
    }
    all
}

/// The number of messages that are timed at once.
const MESSAGES: u64 = 32;

/// Nanoseconds of one worker thread's help with a message, beyond the work itself: the master and
/// the worker share two empty parts, in `rounds` rounds.
#[must_use]
pub fn calling(rounds: usize) -> f64 {
    // Without threads there is no help, so its cost does not matter.
    let Ok(Some(worker_pool)) = WorkerThreads::start(1) else { return 1.0 };
    let mut bytes = [0; 2];
    let round = |_| {
        let clock = Clock::new();
        for _ in 0..MESSAGES {
            let part = |chunk| Chunk { chunk, tag: [0; 16], intact: false };
            let mut parts: Vec<Chunk<'_>> = bytes.chunks_mut(1).map(part).collect();
            worker_pool.each(&mut parts, &|index, part| part.intact = black_box(index) < 2);
        }
        clock.now().since(Instant::ZERO).0 as f64 / MESSAGES as f64
    };
    median((0..rounds.max(3)).map(round).collect()).max(1.0)
}
