//! The near end of a survey: it sends probes and trains, and notes what comes back.

use std::ops::Range;

use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::datagram::{
    Content, Datagram, Dispersion, PROBE_INTERVAL, TRAIN_INTERVAL, TrainReceiver, train_packets_max,
};
use super::estimate::{Probe, Survey};

/// From one attempt to reach the far end to the next.
const HELLO_INTERVAL: Duration = Duration::from_millis(200);
/// The packets of the first trains. Later ones have twice as many until they take [`LONG`], and half as many where
/// they take [`TOO_LONG`] or lose more than a quarter, as in a short queue.
const TRAIN_PACKETS: u32 = 8;
const LONG: Duration = Duration::from_millis(50);
const TOO_LONG: Duration = Duration::from_millis(200);

/// The near end. Memory grows by a probe every 10 ms.
#[derive(Debug, Default)]
pub struct Prober {
    nonce: u64,
    headers: Bytes,
    train_packets_max: u32,
    /// The far end's nonce, and when it came.
    far: Option<(u64, Instant)>,
    next: Instant,
    probes: Vec<Probe>,
    /// The packets of the train there that are to be sent.
    packets: Range<u32>,
    incoming: TrainReceiver,
    /// There and back: the trains of each second, and how many packets the last one has.
    trains: [Vec<Dispersion>; 2],
    sizes: [u32; 2],
}

impl Prober {
    /// A near end that sends no more than this on average. `nonce` is a random number, `headers` what IP and UDP add
    /// to a datagram.
    #[must_use]
    pub fn new(nonce: u64, headers: Bytes, limit: Bitrate) -> Self {
        let train_packets_max = train_packets_max(limit);
        let sizes = [TRAIN_PACKETS; 2];
        Self { nonce, headers, train_packets_max, sizes, ..Self::default() }
    }

    /// Whether the far end has answered a probe.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.probes.iter().any(|probe| probe.echo.is_some())
    }

    /// Takes what came from the far end.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) {
        let Some(Datagram { to, from, content }) = Datagram::read(bytes) else { return };
        if to != self.nonce || self.far.is_some_and(|(far, _)| far != from) {
            return;
        }
        match content {
            Content::Nonce if self.far.is_none() => {
                (self.far, self.next) = (Some((from, now)), now);
            }
            Content::Echo { number, came, seen, dispersion } => {
                let index = (number as usize).wrapping_sub(1);
                if self.probes.get(index).is_none_or(|probe| probe.echo.is_some()) {
                    return;
                }
                self.probes[index].echo = Some((Instant(came), now));
                for (n, probe) in self.probes[..=index].iter_mut().rev().take(64).enumerate() {
                    probe.has_arrived |= n == 0 || seen >> n & 1 == 1;
                }
                self.note_train(0, dispersion);
            }
            Content::Train { train, number, sent } if train as usize <= self.trains[1].len() => {
                self.incoming.handle_packet(now, train, number, sent);
                self.note_train(1, self.incoming.dispersion);
            }
            _ => {}
        }
    }

    /// Notes what has come of a train, there or back.
    fn note_train(&mut self, direction: usize, found: Dispersion) {
        let index = (found.train as usize).wrapping_sub(1);
        if let Some(train) = self.trains[direction].get_mut(index)
            && found.pairs < self.train_packets_max
        {
            *train = found;
        }
    }

    /// When [`Self::poll_transmit`] has something again.
    #[must_use]
    pub const fn poll_timeout(&self) -> Instant {
        self.next
    }

    /// Writes what is to be sent now; false if there is nothing more.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> bool {
        let (to, began) = self.far.unwrap_or((0, now));
        let content = if let Some(number) = self.packets.next() {
            Content::Train { train: self.trains[0].len() as u32, number, sent: now.0 }
        } else if now < self.next {
            return false;
        } else if self.far.is_none() {
            self.next = now + HELLO_INTERVAL;
            Content::Probe { number: 0, train: 0, packets: 0 }
        } else {
            // A sender that was held up does not make up for it.
            self.next = (self.next + PROBE_INTERVAL).max(now);
            let since = now.since(began).0;
            let second = since / TRAIN_INTERVAL.0 + 1;
            if second > self.trains[0].len() as u64 {
                self.begin_trains(second as usize);
            }
            let is_first_half = since % TRAIN_INTERVAL.0 < TRAIN_INTERVAL.0 / 2;
            self.probes.push(Probe { sent: now, is_first_half, has_arrived: false, echo: None });
            let number = self.probes.len() as u32;
            let train = if is_first_half { 0 } else { second as u32 };
            Content::Probe { number, train, packets: self.sizes[1] }
        };
        Datagram { to, from: self.nonce, content }.write(buffer);
        true
    }

    /// Begins the trains of this second.
    fn begin_trains(&mut self, second: usize) {
        for (trains, size) in self.trains.iter_mut().zip(&mut self.sizes) {
            match trains.last() {
                Some(last) if last.pairs == 0 => {}
                Some(last) if last.span > TOO_LONG.0 || last.pairs * 4 < (*size - 1) * 3 => {
                    *size /= 2;
                }
                Some(last) if last.span < LONG.0 => *size *= 2,
                _ => {}
            }
            *size = (*size).max(TRAIN_PACKETS / 2).min(self.train_packets_max);
            trains.resize(second, Dispersion::default());
        }
        self.packets = 0..self.sizes[0];
    }

    /// What is known of the path until now; `None` if that is nothing.
    #[must_use]
    pub fn survey(&self) -> Option<Survey> {
        Survey::new(&self.probes, [&self.trains[0], &self.trains[1]], self.headers)
    }
}
