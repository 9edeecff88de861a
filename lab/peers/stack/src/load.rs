//! Sending on one thread while another counts, and round trips.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration as StdDuration, Instant};

use selvedge_units::Duration;

/// Round trips timed for one figure.
pub(crate) const ROUNDS: usize = 2000;
/// What the sender does before anything is counted.
pub(crate) const WARM: StdDuration = StdDuration::from_millis(20);

/// Round trips of a message.
#[derive(Clone, Copy, Debug)]
pub struct Trips {
    /// Half of them are shorter.
    pub median: Duration,
    /// Of 100, 99 are.
    pub p99: Duration,
}

impl Trips {
    pub(crate) fn of(mut trips: Vec<StdDuration>) -> Self {
        trips.sort_unstable();
        let at = |part: usize| {
            let trip = trips.get(trips.len() * part / 100).copied().unwrap_or_default();
            Duration(trip.as_nanos() as u64)
        };
        Self { median: at(50), p99: at(99) }
    }

    /// Times `trip` as often as is usual here.
    pub(crate) fn time(mut trip: impl FnMut()) -> Self {
        let one = |_| {
            let start = Instant::now();
            trip();
            start.elapsed()
        };
        Self::of((0..ROUNDS).map(one).collect())
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Sends on a thread for as long as it lasts, and returns the bytes a second that `receive` took.
pub(crate) fn rate(
    long: StdDuration,
    mut send: impl FnMut() + Send,
    mut receive: impl FnMut() -> Option<usize>,
) -> f64 {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                send();
            }
        });
        let warm = Instant::now();
        while warm.elapsed() < WARM {
            receive();
        }
        let (start, mut bytes) = (Instant::now(), 0);
        while start.elapsed() < long {
            bytes += receive().unwrap_or(0) as u64;
        }
        let found = bytes as f64 / start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        // A sender that waits for room must get it.
        while receive().is_some() {}
        found
    })
}
