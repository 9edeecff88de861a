//! A test program: work that is due in each period, like a video player's decoding.
//!
//! It waits for the beginning of each period by the clock, takes a stated amount of processor time, and
//! records how long after the beginning it ran and whether it was done by the end. Real programs are judged
//! by nothing else.

use std::sync::atomic::{AtomicBool, Ordering};

use selvedge_os::clock::Clock;
use selvedge_units::{Duration, Instant};
use serde::Serialize;

use crate::class::{self, ClockTarget};

/// The work to do.
#[derive(Clone, Copy, Debug)]
pub struct PlayerParams {
    /// The time between two frames.
    pub period: Duration,
    /// Processor time for each.
    pub work: Duration,
    /// The number of frames.
    pub frames: u64,
}

/// The results. Frames whose period was over before they began are skipped, as in a player, and count as
/// late.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlayerReport {
    /// Frames that were to be played.
    pub frames: u64,
    /// Frames done by the end of their period.
    pub on_time: u64,
    /// Frames that never began.
    pub skipped: u64,
    /// From the beginning of the period to the first instruction, in nanoseconds, in the order of frames; a
    /// whole period for frames that never began.
    #[serde(skip)]
    pub delays: Vec<u64>,
    /// From the beginning of the period to the end of the frame's work, likewise: its work and all the time
    /// that it spent on the run queue. For a frame that never began, which has no end, a whole period; more
    /// for one that was late.
    #[serde(skip)]
    pub ends: Vec<u64>,
}

impl PlayerReport {
    /// On-time frames as a share of all, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.on_time as f64 / self.frames.max(1) as f64
    }

    /// A frame that was not begun.
    fn skip(&mut self, period: Duration) {
        self.skipped += 1;
        self.delays.push(period.0);
        self.ends.push(period.0);
    }
}

/// The limit that `per_mille` of a thousand delays do not exceed, in milliseconds.
#[must_use]
pub fn within_ms(delays: &[u64], per_mille: usize) -> f64 {
    let mut sorted = delays.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() * per_mille).div_ceil(1000).max(1) - 1;
    sorted.get(place).map_or(0.0, |&nanos| nanos as f64 / 1e6)
}

/// Plays on this thread from `start` on, until all frames are done or `stop` is set.
#[must_use]
pub fn play(plan: &PlayerParams, clock: Clock, start: Instant, stop: &AtomicBool) -> PlayerReport {
    let mut played = PlayerReport { frames: plan.frames, ..PlayerReport::default() };
    for frame in 0..plan.frames {
        if stop.load(Ordering::Relaxed) {
            (frame..plan.frames).for_each(|_| played.skip(plan.period));
            break;
        }
        let begins = start + plan.period * frame;
        let due = begins + plan.period;
        if clock.now() >= due {
            played.skip(plan.period);
            continue;
        }
        clock.sleep_until(begins);
        let began = clock.now();
        played.delays.push(began.since(begins).0);
        burn(plan.work, stop);
        // A frame that was stopped has no end either; it is late whatever the time.
        let ended = clock.now();
        let stopped = stop.load(Ordering::Relaxed);
        played.ends.push(if stopped { plan.period.0 } else { 0 }.max(ended.since(begins).0));
        played.on_time += u64::from(ended <= due && !stopped);
    }
    played
}

/// Takes `work` of processor time on this thread.
pub fn burn(work: Duration, stop: &AtomicBool) {
    let me = ClockTarget::Thread(class::this_thread());
    let spent = || class::time_of(me).unwrap_or(Duration::ZERO);
    let end = spent() + work;
    while spent() < end && !stop.load(Ordering::Relaxed) {
        for _ in 0..64 {
            std::hint::spin_loop();
        }
    }
}
