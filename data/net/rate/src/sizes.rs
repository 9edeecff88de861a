//! How much packets differ in size. A large packet is on its way for longer than a small one, by its time on the slowest
//! line; that is no queue.

use selvedge_units::{Bytes, Duration, Instant};

/// The least delay is remembered for up to twice as long.
const REMEMBERED: Duration = Duration::from_secs(5);

/// The smallest and the largest packet of the last five to ten seconds.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    present: [Bytes; 2],
    before: [Bytes; 2],
    began: Instant,
}

const NONE: [Bytes; 2] = [Bytes(u64::MAX), Bytes(0)];

impl Sizes {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { present: NONE, before: NONE, began: now }
    }

    pub(crate) fn handle_sent(&mut self, now: Instant, size: Bytes) {
        if now.since(self.began) >= REMEMBERED {
            (self.before, self.present, self.began) = (self.present, NONE, now);
        }
        let [least, most] = self.present;
        self.present = [least.min(size), most.max(size)];
    }

    /// By how much they differ.
    pub(crate) fn difference(&self) -> Bytes {
        let [least, most] =
            [self.present[0].min(self.before[0]), self.present[1].max(self.before[1])];
        most - least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_long_ago_do_not_count() {
        let mut sizes = Sizes::new(Instant::ZERO);
        assert_eq!(sizes.difference(), Bytes(0));
        let mut at = |second, size| {
            sizes.handle_sent(Instant::ZERO + Duration::from_secs(second), Bytes(size));
            sizes.difference()
        };
        assert_eq!(
            [at(0, 1200), at(1, 200), at(6, 700), at(11, 800)].map(|d| d.0),
            [0, 1000, 1000, 100]
        );
    }
}
