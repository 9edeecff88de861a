//! The share of a path's packets that is lost, of late.

use selvedge_units::Share;

/// It is measured over about so many packets.
const PACKETS: u64 = 400;

/// The share of packets that is lost, from what reports say of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss(u64);

impl Loss {
    /// All of them, in the units of [`Self::parts`].
    pub const ALL: u64 = 1 << 16;

    /// The loss where so many of 256 packets are gone.
    #[must_use]
    pub fn of_256(lost: u8) -> Self {
        Self(u64::from(lost) * Self::ALL / 256)
    }

    /// Takes whether each packet of a report arrived.
    pub fn handle_packets(&mut self, has_arrived: impl Iterator<Item = bool>) {
        let (mut all, mut missing) = (0, 0);
        for has_arrived in has_arrived {
            all += 1;
            missing += u64::from(!has_arrived);
        }
        let before = self.0 * PACKETS.saturating_sub(all);
        self.0 = (before + missing * Self::ALL) / PACKETS.max(all);
    }

    /// Forgets a part of what was: few packets follow, of which each counts more.
    pub const fn fade(&mut self) {
        self.0 -= self.0 / 32;
    }

    /// The loss, in units of 2^-16.
    #[must_use]
    pub const fn parts(self) -> u64 {
        self.0
    }

    /// The share that is lost.
    #[must_use]
    pub fn share(self) -> Share {
        Share::from_billionths((self.0 * 1_000_000_000 / Self::ALL) as u32).unwrap_or(Share::ONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_the_latest_packets() {
        let mut loss = Loss::default();
        let percent = |loss: Loss| loss.share().billionths() / 10_000_000;
        for _ in 0..200 {
            loss.handle_packets((0..10).map(|n| n > 0));
        }
        assert_eq!(percent(loss), 9);
        for _ in 0..40 {
            loss.handle_packets(std::iter::repeat_n(true, 10));
        }
        assert_eq!(percent(loss), 3);
        // A report of more packets than it is measured over counts alone.
        loss.handle_packets(std::iter::repeat_n(false, 600));
        assert_eq!((loss.parts(), loss.share()), (Loss::ALL, Share::ONE));
        loss.fade();
        assert_eq!((percent(loss), percent(Loss::of_256(64))), (96, 25));
        loss.handle_packets(std::iter::empty());
        assert_eq!(percent(loss), 96);
    }
}
