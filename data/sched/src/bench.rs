//! What a decision costs: choose, serve, and bring up the next frame, on backlogged streams.
//!
//! The one place here that reads a clock; for measurements only (`selvedge bench decide`).

use alloc::vec::Vec;
use core::hint::black_box;
use std::time::{Duration, Instant as Clock};

use selvedge_stream::{Contract, Window};
use selvedge_units::{Instant, Span};

use crate::{Discipline, Head, Scheduler, StreamIndex};

/// A sample lasts about this long: long against the clock's resolution, short against the time
/// between interruptions.
const SAMPLE: Duration = Duration::from_micros(1500);

/// Nanoseconds per decision: the median of `samples` (at least 1) samples of about 1.5 ms.
///
/// A decision is `choose`, `serve` and `push_head` of the next frame. There are `streams` (at
/// least 1) work-conserving ones, always backlogged, with periods spread over half to one and a
/// half times their number and windows of up to 8 frames, the same in each call. Nothing expires,
/// so this is the price of rule a, of the key and of the selection. Takes `samples` times 1.5 ms,
/// and some milliseconds to begin.
#[must_use]
pub fn decide(discipline: Discipline, streams: u32, samples: usize) -> f64 {
    let mut sched = Scheduler::new(discipline);
    let mut seed = 1;
    for _ in 0..streams.max(1) {
        let s = sched.add(&contract(&mut seed, u64::from(streams)));
        push(&mut sched, s);
    }
    // Doubles until a batch lasts a sample; that warms the caches up, too.
    let mut batch = 1_u64;
    while time(&mut sched, batch) < SAMPLE {
        batch *= 2;
    }
    let mut figures: Vec<f64> = (0..samples.max(1))
        .map(|_| time(&mut sched, batch).as_nanos() as f64 / batch as f64)
        .collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// So many decisions on such streams, for counting instructions; a number that depends on all of
/// them.
#[must_use]
pub fn run(discipline: Discipline, streams: u32, decisions: u64) -> u64 {
    let mut sched = Scheduler::new(discipline);
    let mut seed = 1;
    for _ in 0..streams.max(1) {
        let s = sched.add(&contract(&mut seed, u64::from(streams)));
        push(&mut sched, s);
    }
    (0..decisions).fold(0, |sum, _| sum ^ u64::from(decision(&mut sched).0))
}

#[inline(never)]
fn decision(sched: &mut Scheduler) -> StreamIndex {
    let s = sched.choose(black_box(Instant::ZERO)).expect("every stream has a head");
    black_box(sched.serve_and_push(s, Head::arrived(Instant::ZERO)));
    s
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn time(sched: &mut Scheduler, decisions: u64) -> Duration {
    let start = Clock::now();
    for _ in 0..decisions {
        black_box(decision(sched));
    }
    start.elapsed()
}

fn push(sched: &mut Scheduler, s: StreamIndex) {
    let head = Head::arrived(Instant::ZERO);
    black_box(sched.push_head(s, head));
}

fn contract(seed: &mut u64, streams: u64) -> Contract {
    let period = 1000 * (streams / 2).max(1) + random(seed) % (1000 * streams.max(1));
    let of = 1 + random(seed) % 8;
    let lose = random(seed) % (of + 1);
    let window = |n: u64| u16::try_from(n).expect("at most 8");
    Contract::new(Span(period), Window { lose: window(lose), of: window(of) })
}

/// Marsaglia's xorshift (64 bits; 13, 7, 17).
const fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_every_discipline() {
        for discipline in Discipline::ALL {
            let figure = decide(discipline, 3, 1);
            assert!(figure.is_finite() && figure > 0.0, "{discipline}: {figure}");
        }
    }
}
