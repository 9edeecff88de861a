//! Waiting in tests: for a condition, with an end. A test that sleeps for a time instead fails on a slow
//! machine and is slow on a fast one.

use std::time::{Duration, Instant};

/// For what takes no time of its own, on a machine with much else to do, or a simulated one.
pub const TIMEOUT: Duration = Duration::from_secs(180);
/// After so many looks at a condition in a row the thread rests between two: the longer, the longer it has
/// waited, so that what is waited for has the processors.
const LOOKS: u32 = 20;
const REST: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(20));

/// Waits until a condition holds.
///
/// # Panics
/// If it does not within [`TIMEOUT`]; `what` names the condition.
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    assert!(holds_within(TIMEOUT, holds), "never: {what}");
}

/// Waits until there is a value, and returns it.
///
/// # Panics
/// If there is none within [`TIMEOUT`]; `what` names the value.
pub fn until_some<T>(what: &str, mut value: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(what, || {
        found = value();
        found.is_some()
    });
    found.expect("the wait was for it")
}

/// Waits until a condition holds, no longer than this; whether it does.
pub fn holds_within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    let mut looks = 0;
    loop {
        if holds() {
            return true;
        }
        let waited = began.elapsed();
        if waited >= limit {
            return false;
        }
        looks += 1;
        if looks < LOOKS {
            std::thread::yield_now();
        } else {
            std::thread::park_timeout((waited / 50).clamp(REST.0, REST.1));
        }
    }
}
