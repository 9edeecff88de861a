//! The rates of encoders that follow a link. The measured rate comes from the link's owner, and the rate that each
//! encoder aims at goes to that encoder's owner.

use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// Encoders aim at nine tenths of the link's rate. The rest covers packet headers, a picture larger
/// than its share, and changes too small for a new setting.
const AIM_TENTHS: u64 = 9;

/// A setting changes by at least a twentieth of itself.
const STEP: u64 = 20;

/// A setting rises by at most a quarter of itself at a time.
const RISE: u64 = 4;

/// A setting that would rise by less than this per step would hardly rise at all.
const RISE_MIN: Bitrate = Bitrate::from_kbps(1);

/// A setting rises only when it has stood for this time.
const RISE_AFTER: Duration = Duration::from_secs(1);

/// Intra pictures are large: one is requested at most this often.
const REQUEST_EVERY: Duration = Duration::from_secs(1);

/// When a stream's encoder gets a request for an intra picture, so that the stream need not wait for its next group.
#[derive(Clone, Copy, Debug, Default)]
pub struct IntraRequests {
    /// Frames that were lost with a reference, as far as they were seen.
    lost: u64,
    requested: Instant,
}

impl IntraRequests {
    /// So many frames were lost with a reference since the stream began. Whether to request an intra picture.
    #[must_use]
    pub fn handle_lost(&mut self, now: Instant, lost: u64) -> bool {
        let is_more = lost > self.lost;
        self.lost = lost;
        is_more && self.request(now)
    }

    /// An intra picture is wanted. Whether to request it: not if one was a moment ago.
    #[must_use]
    pub fn request(&mut self, now: Instant) -> bool {
        let is_due = now.since(self.requested) >= REQUEST_EVERY;
        if is_due {
            self.requested = now;
        }
        is_due
    }
}

/// An encoder that follows the link's rate.
#[derive(Clone, Debug)]
pub struct Encoder {
    weight: u32,
    least: Bitrate,
    most: Bitrate,
    set: Option<Setting>,
}

/// What an encoder aims at.
#[derive(Clone, Copy, Debug)]
struct Setting {
    rate: Bitrate,
    since: Instant,
}

impl Encoder {
    /// An encoder that gets its share by `weight`, from `least` to `most`. Where `most` is below
    /// `least`, `least` is the rate.
    #[must_use]
    pub fn new(weight: u32, least: Bitrate, most: Bitrate) -> Self {
        Self { weight, least, most: most.max(least), set: None }
    }

    /// The rate that the encoder aims at; none before the first call of [`follow`].
    #[must_use]
    pub fn rate(&self) -> Option<Bitrate> {
        self.set.map(|set| set.rate)
    }

    /// It gets its share by another weight from now on.
    pub const fn set_weight(&mut self, weight: u32) {
        self.weight = weight;
    }

    /// The share at a level of bit/s per unit of weight, in units of 2⁻³².
    fn share(&self, level: u128) -> Bitrate {
        let share = (level * u128::from(self.weight)) >> 32;
        Bitrate(u64::try_from(share).unwrap_or(u64::MAX)).clamp(self.least, self.most)
    }

    /// Goes to `target`: down at once, up in steps.
    fn aim(&mut self, target: Bitrate, now: Instant) {
        let rate = match self.set {
            None => target,
            Some(Setting { rate: Bitrate(rate), since }) => {
                let step = rate / STEP;
                let falls = target.0 < rate - step;
                let rises = target.0 > rate.saturating_add(step) && now.since(since) >= RISE_AFTER;
                if !falls && !rises {
                    return;
                }
                let bound = rate.saturating_add((rate / RISE).max(RISE_MIN.0));
                Bitrate(target.0.min(bound))
            }
        };
        self.set = Some(Setting { rate, since: now });
    }
}

/// What encoders may aim at together where so much waits in the link, and a frame has `delay`: beyond a quarter of that, what
/// waits goes within half of it. It is there after the path became slower, or where repairs take their part.
#[must_use]
pub fn beside_waiting(rate: Bitrate, waiting: Bytes, delay: Duration) -> Bitrate {
    let beyond = Bytes(waiting.0.saturating_sub((rate * (delay / 4)).0));
    Bitrate(rate.0.saturating_sub((beyond / (delay / 2)).0))
}

/// Shares the rate of a link among encoders by weight, and sets each. `fixed` is what streams that
/// can't follow offer. Where the rate does not suffice for the least of all, each gets its least,
/// and the link selects frames.
pub fn follow(encoders: &mut [Encoder], rate: Bitrate, fixed: Bitrate, now: Instant) {
    let aim = u128::from(rate.0) * u128::from(AIM_TENTHS) / 10;
    let free = aim.saturating_sub(u128::from(fixed.0));
    let level = level(encoders, free);
    for encoder in encoders {
        encoder.aim(encoder.share(level), now);
    }
}

/// The highest level at which the shares fit into `free`, by bisection: shares only grow with it.
/// A level above `free` changes nothing, for one weight alone would fill the link.
fn level(encoders: &[Encoder], free: u128) -> u128 {
    let fits = |level| {
        encoders.iter().map(|encoder| u128::from(encoder.share(level).0)).sum::<u128>() <= free
    };
    let (mut low, mut high) = (0, free << 32);
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kbps(encoders: &[Encoder]) -> Vec<u64> {
        encoders.iter().map(|e| e.rate().expect("each was set").0 / 1000).collect()
    }

    fn encoder(weight: u32, least: u64, most: u64) -> Encoder {
        Encoder::new(weight, Bitrate::from_kbps(least), Bitrate::from_kbps(most))
    }

    fn second(n: u64) -> Instant {
        Instant(0) + Duration::from_secs(n)
    }

    #[test]
    fn shares_go_by_weight_between_least_and_most() {
        let shares = |streams: &[(u32, u64, u64)], fixed, expected: &[u64]| {
            let mut encoders: Vec<_> = streams.iter().map(|&(w, l, m)| encoder(w, l, m)).collect();
            let rate = Bitrate::from_kbps(10_000);
            follow(&mut encoders, rate, Bitrate::from_kbps(fixed), second(0));
            let near = kbps(&encoders).iter().zip(expected).all(|(a, b)| a.abs_diff(*b) <= 1);
            assert!(near, "{streams:?} beside {fixed}: {:?}", kbps(&encoders));
        };
        shares(&[(1, 100, 20_000), (2, 100, 20_000)], 0, &[3000, 6000]);
        shares(&[(1, 100, 20_000), (2, 100, 20_000)], 3000, &[2000, 4000]);
        shares(&[(1, 100, 20_000), (1, 100, 1000)], 0, &[8000, 1000]);
        shares(&[(1, 6000, 20_000), (2, 100, 20_000)], 0, &[6000, 3000]);
        shares(&[(1, 7000, 20_000), (1, 8000, 20_000)], 0, &[7000, 8000]);
        shares(&[(0, 300, 20_000), (1, 100, 2000)], 0, &[300, 2000]);
    }

    #[test]
    fn a_rate_falls_at_once_and_rises_in_steps() {
        let mut one = [encoder(1, 100, 8000)];
        let mut set = |rate, millis| {
            let now = Instant(0) + Duration::from_millis(millis);
            follow(&mut one, Bitrate::from_kbps(rate), Bitrate(0), now);
            kbps(&one)[0]
        };
        assert_eq!(set(4000, 0), 3600);
        assert_eq!(set(1000, 10), 900);
        assert_eq!(set(4000, 1009), 900, "it has not stood for a second");
        assert_eq!(set(4000, 1010), 1125);
        assert_eq!(set(4000, 2010), 1406);
        assert_eq!(set(1600, 3010), 1406, "a change below a twentieth is none");
        assert_eq!(set(1500, 3020), 1406);
        assert_eq!(set(1400, 3030), 1260);
        assert_eq!(set(100, 3040), 100, "the least holds");
    }

    #[test]
    fn what_waits_for_long_lowers_the_aim() {
        let (rate, second) = (Bitrate::from_mbps(4), Duration::from_secs(1));
        let left = |kilobytes| beside_waiting(rate, Bytes(kilobytes * 1_000), second).0 / 1_000;
        assert_eq!(
            [0, 125, 187, 250, 375, u64::MAX / 1_000].map(left),
            [4000, 4000, 3008, 2000, 0, 0]
        );
        assert_eq!(beside_waiting(Bitrate(0), Bytes(1), Duration::ZERO), Bitrate(0));
    }

    #[test]
    fn an_intra_picture_is_requested_where_more_is_lost_once_a_second() {
        let mut intra = IntraRequests::default();
        assert!(!intra.handle_lost(second(9), 0));
        assert!(intra.handle_lost(second(9), 1));
        assert!(!intra.handle_lost(second(9), 2));
        assert!(!intra.handle_lost(second(10), 2));
        assert!(intra.handle_lost(second(10), 3));
        assert!(!intra.request(second(10)) && intra.request(second(11)));
    }

    #[test]
    fn hostile_values_neither_panic_nor_leave_the_range() {
        let most = Bitrate(u64::MAX);
        let mut encoders: Vec<_> = (0..500)
            .map(|n| match n % 4 {
                0 => Encoder::new(u32::MAX, Bitrate(0), most),
                1 => Encoder::new(0, Bitrate(0), Bitrate(0)),
                2 => Encoder::new(1, most, Bitrate(0)),
                _ => Encoder::new(n, Bitrate::from_kbps(1), Bitrate::from_kbps(900)),
            })
            .collect();
        let rates = [Bitrate(0), most, Bitrate(1), Bitrate(0), most];
        for (n, rate) in (0..).zip(rates) {
            for fixed in [Bitrate(0), most] {
                follow(&mut encoders, rate, fixed, second(9 - n));
                let within = |e: &Encoder| e.rate().is_some_and(|r| r >= e.least && r <= e.most);
                assert!(encoders.iter().all(within), "{rate} beside {fixed}");
            }
        }
        follow(&mut [], most, Bitrate(0), second(0));
    }

    #[test]
    fn an_encoder_whose_rate_was_zero_rises_again() {
        let mut one = [Encoder::new(1, Bitrate(0), Bitrate::from_kbps(500))];
        follow(&mut one, Bitrate(0), Bitrate(0), second(0));
        assert_eq!(one[0].rate(), Some(Bitrate(0)));
        for n in 1..40 {
            follow(&mut one, Bitrate::from_mbps(1), Bitrate(0), second(n));
        }
        assert!(one[0].rate() > Some(Bitrate::from_kbps(470)), "{:?}", one[0].rate());
    }
}
