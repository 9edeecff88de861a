//! A model of how BELABOX leads an encoder over SRT, from its published description (github.com/BELABOX/belacoder, README and
//! the constants of `belacoder.c`): the bitrate follows the packets in SRT's send buffer and the round trip.

/// Bit/s.
const LEAST: f64 = 300_000.0;
/// Added at most each half second, beside a thirtieth.
const UP: f64 = 30_000.0;
/// Taken off where there is congestion, beside a tenth where it is heavy.
const DOWN: f64 = 100_000.0;
/// Bits of an SRT packet.
const PACKET: f64 = 1_316.0 * 8.0;

/// The controller; it looks each 20 ms. Times are in milliseconds.
#[derive(Debug)]
pub(super) struct Belabox {
    rate: f64,
    most: f64,
    latency: f64,
    buffer_mean: f64,
    buffer_jitter: f64,
    buffer_before: f64,
    sending: f64,
    trip_mean: f64,
    trip_change: f64,
    trip_before: f64,
    trip_least: f64,
    trip_jitter: f64,
    up_at: f64,
    down_at: f64,
}

impl Belabox {
    /// It begins at the most, as the encoder does.
    pub(super) const fn new(most: f64, latency: f64) -> Self {
        Self {
            rate: most,
            most,
            latency,
            buffer_mean: 0.0,
            buffer_jitter: 0.0,
            buffer_before: 0.0,
            sending: 0.0,
            trip_mean: 0.0,
            trip_change: 0.0,
            trip_before: 300.0,
            trip_least: 200.0,
            trip_jitter: 0.0,
            up_at: 0.0,
            down_at: 0.0,
        }
    }

    /// What the encoder is set to: whole steps of 100 kbit/s.
    pub(super) const fn rate(&self) -> f64 {
        (self.rate / 100_000.0).floor() * 100_000.0
    }

    /// So many packets are in the send buffer; the round trip is this; so many bit/s were sent of late.
    pub(super) fn look(&mut self, now: f64, buffer: f64, trip: f64, sending: f64) {
        self.buffer_mean = 0.99 * self.buffer_mean + 0.01 * buffer;
        self.buffer_jitter = (0.99 * self.buffer_jitter).max(buffer - self.buffer_before);
        self.buffer_before = buffer;
        self.sending = 0.97 * self.sending + 0.03 * sending;
        self.trip_mean =
            if self.trip_mean == 0.0 { trip } else { 0.99 * self.trip_mean + 0.01 * trip };
        let change = trip - self.trip_before;
        self.trip_change = 0.8 * self.trip_change + 0.2 * change;
        self.trip_before = trip;
        self.trip_least *= 1.001;
        if trip < self.trip_least && self.trip_change < 1.0 {
            self.trip_least = trip;
        }
        self.trip_jitter = (0.99 * self.trip_jitter).max(change);

        let within = self.sending * (self.latency / 2.0) / 1_000.0 / PACKET;
        let full = (self.buffer_mean + self.buffer_jitter) * 4.0;
        let heavy = self.buffer_mean + (self.buffer_jitter * 3.0).max(self.buffer_mean);
        let heavy = heavy.max(50.0).min(within);
        let light = (self.buffer_mean + self.buffer_jitter * 2.5).max(50.0);
        let slow = self.trip_mean + (self.trip_jitter * 4.0).max(self.trip_mean * 0.15);
        let fast = self.trip_least + (self.trip_jitter * 2.0).max(1.0);
        if self.rate > LEAST && (trip >= self.latency / 3.0 || buffer > full) {
            (self.rate, self.down_at) = (LEAST, now + 200.0);
        } else if now > self.down_at && (trip > self.latency / 5.0 || buffer > heavy) {
            self.rate -= DOWN + self.rate / 10.0;
            self.down_at = now + 250.0;
        } else if now > self.down_at && (trip > slow || buffer > light) {
            self.rate -= DOWN;
            self.down_at = now + 200.0;
        } else if now > self.up_at && trip < fast && self.trip_change < 0.01 {
            self.rate += UP + self.rate / 30.0;
            self.up_at = now + 500.0;
        }
        self.rate = self.rate.clamp(LEAST, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_queue_ends_in_the_least_and_an_empty_one_raises_it_again() {
        let mut belabox = Belabox::new(6e6, 1_000.0);
        let mut look = |from: u32, to: u32, buffer, trip| {
            for n in from..to {
                belabox.look(f64::from(n) * 20.0, buffer, trip, 3e6);
            }
            belabox.rate()
        };
        assert_eq!(look(0, 100, 20.0, 400.0), LEAST);
        let risen = look(100, 1_000, 20.0, 60.0);
        assert!(risen > 1e6, "{risen}");
        // A fifth of the latency is heavy congestion, and takes steps.
        let fallen = look(1_000, 1_050, 20.0, 210.0);
        assert!(fallen < risen - 2.0 * DOWN && fallen > LEAST, "{fallen} after {risen}");
    }
}
