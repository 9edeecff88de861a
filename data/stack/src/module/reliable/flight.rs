//! The sender's window: twice what the path delivers in its shortest round trip. So it grows as long as more
//! in flight means more delivered, and a queue that only makes the round trip longer does not widen it.

use selvedge_units::{Duration, Instant};

use super::format::{BYTES_MAX, BYTES_MIN, ROOM_MAX, ROOM_MIN};

/// How long a sample counts, at least; at most twice as long.
const MEMORY: Duration = Duration::from_secs(5);

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Amount {
    fn max(self, other: Self) -> Self {
        Self { messages: self.messages.max(other.messages), bytes: self.bytes.max(other.bytes) }
    }
}

/// The best of the samples of one span of time.
#[derive(Clone, Copy, Debug)]
struct Best {
    round_trip: Duration,
    /// The most that arrived in a time like the shortest round trip.
    delivered: Amount,
}

const NONE: Best =
    Best { round_trip: Duration(u64::MAX), delivered: Amount { messages: 0, bytes: 0 } };

/// What has been delivered, and the window that follows from it.
#[derive(Debug)]
pub(super) struct Flight {
    /// All that was acknowledged so far.
    delivered: Amount,
    /// Of the present span of [`MEMORY`], and of the one before.
    best: [Best; 2],
    began: Instant,
    /// What the receiver keeps, in messages.
    room: u64,
}

impl Default for Flight {
    fn default() -> Self {
        Self { delivered: Amount::default(), best: [NONE; 2], began: Instant::ZERO, room: ROOM_MIN }
    }
}

impl Flight {
    /// All that was acknowledged so far: noted with each message when it is sent.
    pub(super) fn delivered(&self) -> Amount {
        self.delivered
    }

    /// Counts a message that was acknowledged.
    pub(super) fn handle_delivered(&mut self, bytes: usize) {
        self.delivered.messages += 1;
        self.delivered.bytes += bytes as u64;
    }

    /// Notes how many messages the receiver keeps.
    pub(super) fn handle_room(&mut self, messages: u64) {
        self.room = messages.clamp(ROOM_MIN, ROOM_MAX);
    }

    /// Takes the sample of a message that was sent once: its round trip, and what had been acknowledged when it
    /// was sent.
    pub(super) fn sample(&mut self, now: Instant, round_trip: Duration, before: Amount) {
        if now.since(self.began) >= MEMORY {
            (self.began, self.best) = (now, [NONE, self.best[0]]);
        }
        let shortest = self.best[0].round_trip.min(self.best[1].round_trip).min(round_trip);
        // At the same rate the shortest round trip delivers its part.
        let part = |delivered: u64| {
            let part =
                u128::from(delivered) * u128::from(shortest.0) / u128::from(round_trip.0.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let delivered = Amount {
            messages: part(self.delivered.messages - before.messages),
            bytes: part(self.delivered.bytes - before.bytes),
        };
        let best = &mut self.best[0];
        best.round_trip = best.round_trip.min(round_trip);
        best.delivered = best.delivered.max(delivered);
    }

    /// The largest number of messages and bytes in flight.
    pub(super) fn window(&self) -> Amount {
        let most = self.best[0].delivered.max(self.best[1].delivered);
        Amount {
            messages: most.messages.saturating_mul(2).clamp(ROOM_MIN, self.room),
            bytes: most.bytes.saturating_mul(2).clamp(BYTES_MIN, BYTES_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A path of 2,000 messages of 1 kB a second: what it delivers in 500 ms is 1,000 messages.
    fn path(flight: &mut Flight, from: Instant, round_trip: Duration, messages: u64) -> Instant {
        let before = flight.delivered();
        for _ in 0..messages {
            flight.handle_delivered(1000);
        }
        flight.sample(from + round_trip, round_trip, before);
        from + round_trip
    }

    #[test]
    fn it_is_twice_the_rate_times_the_shortest_round_trip() {
        let mut flight = Flight::default();
        flight.handle_room(ROOM_MAX);
        assert_eq!(flight.window(), Amount { messages: 256, bytes: 1 << 20 });
        let now = path(&mut flight, Instant::ZERO, ms(500), 1000);
        assert_eq!(flight.window(), Amount { messages: 2000, bytes: 2_000_000 });
        // A queue of as much again: the rate is the same.
        let now = path(&mut flight, now, ms(1000), 2000);
        assert_eq!(flight.window().messages, 2000);
        // What was long ago counts no more.
        let now = path(&mut flight, now + MEMORY, ms(500), 300);
        path(&mut flight, now + MEMORY, ms(500), 300);
        assert_eq!(flight.window(), Amount { messages: 600, bytes: BYTES_MIN });
    }

    #[test]
    fn it_has_bounds_and_keeps_to_what_the_receiver_keeps() {
        let mut flight = Flight::default();
        path(&mut flight, Instant::ZERO, ms(500), 1 << 20);
        assert_eq!(flight.window(), Amount { messages: ROOM_MIN, bytes: BYTES_MAX });
        for (stated, kept) in [(1000, 1000), (1, ROOM_MIN), (u64::MAX, ROOM_MAX)] {
            flight.handle_room(stated);
            assert_eq!(flight.window().messages, kept);
        }
        // A round trip of no time divides by nothing.
        path(&mut flight, Instant::ZERO, Duration(0), 1);
    }
}
