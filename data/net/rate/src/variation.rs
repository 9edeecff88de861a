//! Whether a path's delays vary without a queue, as radio's do, and their mean.

use selvedge_units::{Duration, Instant};

use crate::base_delay::Delay;

/// A path begins to count as varying where its delays vary by more than this, and ceases below the second.
const BEGINS: Duration = Duration::from_millis(6);
const CEASES: Duration = Duration::from_millis(2);
/// How long it is known that a path varies.
const KNOWN: Duration = Duration::from_secs(60);
/// The mean delay is of so much time, and of at least so many packets.
const MEAN: Duration = Duration::from_millis(100);
const MEAN_PACKETS: u64 = 4;
/// No delay counts as further off.
const MOST: Duration = Duration::from_secs(1);

/// By how much delays vary from packet to packet. A queue grows and drains steadily, so a packet's delay lies in the
/// middle of its neighbours' there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variation {
    before: [Option<Delay>; 2],
    present: Duration,
    /// The largest of late.
    largest: Duration,
    is_varying: bool,
    mean: Option<(Instant, Delay)>,
}

impl Variation {
    /// Takes the delay of the next packet that arrived, when it was sent, and whether that was after a pause.
    pub(crate) fn handle_delay(&mut self, sent: Instant, delay: Delay, is_paused: bool) {
        let (since, mean) = self.mean.unwrap_or((sent, delay));
        let part = sent.since(since).0.saturating_mul(1_000) / MEAN.0;
        self.mean = Some((since.max(sent), mean.moved(delay, part.min(1_000 / MEAN_PACKETS))));
        // A queue may be gone after a pause.
        let [first, second] = if is_paused { [None; 2] } else { self.before };
        if let (Some(first), Some(second)) = (first, second) {
            let off = second.off_middle([first, delay]).min(MOST);
            self.present = (self.present * 31 + off) / 32;
        }
        self.before = [second, Some(delay)];
    }

    /// So much time passed since the last call. Returns whether the path counts as varying from now on.
    pub(crate) fn handle_time(&mut self, passed: Duration) -> bool {
        let fades = self.largest * (passed.min(KNOWN).0 / 1_000_000) / (KNOWN.0 / 1_000_000);
        self.largest = self.present.max(self.largest - fades);
        let was_varying = self.is_varying;
        self.is_varying = self.largest > if was_varying { CEASES } else { BEGINS };
        self.is_varying && !was_varying
    }

    pub(crate) const fn is_varying(&self) -> bool {
        self.is_varying
    }

    /// The mean delay of late.
    pub(crate) fn mean(&self) -> Option<Delay> {
        self.mean.map(|(_, mean)| mean)
    }

    /// What the mean may exceed the least mean by, although there is no queue.
    pub(crate) fn without_queue(&self) -> Duration {
        if self.is_varying { self.largest * 2 } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets every 5 ms with these delays; whether the path counts as varying after each 20 of them.
    fn varies(variation: &mut Variation, delay: impl Fn(u64) -> u64) -> Vec<bool> {
        let sent = |n: u64| Instant(n * 5_000_000);
        let mut all = Vec::new();
        for n in 0..200 {
            let arrives = sent(n) + Duration::from_millis(delay(n));
            variation.handle_delay(sent(n), Delay::between(sent(n), arrives), false);
            if n % 20 == 19 {
                variation.handle_time(Duration::from_millis(100));
                all.push(variation.is_varying());
            }
        }
        all
    }

    #[test]
    fn a_queue_is_no_variation() {
        let grows = |n: u64| 20 + n.min(200 - n) * 4;
        assert_eq!(varies(&mut Variation::default(), grows), [false; 10]);
    }

    #[test]
    fn a_path_that_varied_is_known_to_for_a_minute() {
        let mut variation = Variation::default();
        let jitters = varies(&mut variation, |n| 60 + n * 37 % 61);
        assert!(jitters[3..].iter().all(|varies| *varies));
        let mean = variation.mean().map(|mean| mean.since(Delay::between(Instant(0), Instant(0))));
        assert!(mean.is_some_and(|mean| (80..100).contains(&(mean.0 / 1_000_000))), "{mean:?}");
        assert_eq!(varies(&mut variation, |_| 60), [true; 10]);
        assert!((0..4).all(|_| !variation.handle_time(KNOWN / 2)) && !variation.is_varying());
        assert_eq!(variation.without_queue(), Duration::ZERO);
    }
}
