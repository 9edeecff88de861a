//! Media speed: when a frame is due, against a clock that the caller reads.

use selvedge_units::{Duration, Instant};

/// Keeps a source at media speed without drift.
///
/// Frames are due at fixed distances from the first. A source that is late by less than the slack
/// catches up; one that is later (the machine slept) continues from now, so that it does not send all
/// missed frames at once.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    start: Option<Instant>,
    slack: Duration,
}

impl Pacer {
    /// Catches up on up to `slack`.
    #[must_use]
    pub const fn new(slack: Duration) -> Self {
        Self { start: None, slack }
    }

    /// The decoding time that is due now; `None` before the first frame.
    #[must_use]
    pub fn position(&self, now: Instant) -> Option<Duration> {
        self.start.map(|start| now.since(start))
    }

    /// When the frame of this decoding time is due. The first frame is due now. Decoding times
    /// must not go back.
    pub fn due(&mut self, now: Instant, decode_time: Duration) -> Instant {
        let late = |due: Instant| now.since(due) > self.slack;
        match self.start.map(|start| start + decode_time) {
            Some(due) if !late(due) => due,
            _ => {
                self.start = Some(Instant(now.0.saturating_sub(decode_time.0)));
                now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }
    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn due_times_stand_at_fixed_distances_from_the_first() {
        let mut pacer = Pacer::new(ms(500));
        assert_eq!(pacer.due(at(1000), ms(0)), at(1000));
        // Each call is a little late; the next due time is not.
        for n in 1..1000 {
            assert_eq!(pacer.due(at(1000 + 40 * n + 7), ms(40 * n)), at(1000 + 40 * n));
        }
    }

    #[test]
    fn a_little_late_catches_up_and_very_late_goes_on_from_now() {
        let mut pacer = Pacer::new(ms(500));
        pacer.due(at(0), ms(0));
        assert_eq!(pacer.due(at(540), ms(40)), at(40));
        assert_eq!(pacer.due(at(5000), ms(80)), at(5000));
        assert_eq!(pacer.due(at(5001), ms(120)), at(5040));
    }
}
