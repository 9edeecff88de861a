//! Counts over the last ten seconds, in a bucket for each second.

use alloc::boxed::Box;
use alloc::vec;

use selvedge_units::Instant;

use crate::Histogram;
use crate::fetch::prefetch;

const BUCKETS: u32 = 10;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Counts of the frames settled in the last ten seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// Frames settled.
    pub frames: u64,
    /// Of these, sent whole by their deadline.
    pub on_time: u64,
    /// Of these, with all their references on time too.
    pub decodable: u64,
    /// Queueing delay of the frames sent.
    pub queueing: Histogram,
}

impl Recent {
    /// Share of the frames that were on time, 0 to 1; `None` if none was settled.
    #[must_use]
    pub fn on_time_share(&self) -> Option<f64> {
        self.share(self.on_time)
    }

    /// Share of the frames that are decodable, 0 to 1; `None` if none was settled.
    #[must_use]
    pub fn decodable_share(&self) -> Option<f64> {
        self.share(self.decodable)
    }

    fn share(&self, part: u64) -> Option<f64> {
        (self.frames > 0).then(|| part as f64 / self.frames as f64)
    }
}

/// A whole second since the run began; the last one lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Second(u32);

impl Second {
    pub(super) const fn of(now: Instant) -> Self {
        let second = now.0 / NANOS_PER_SECOND;
        Self(if second < u32::MAX as u64 { second as u32 } else { u32::MAX })
    }
}

/// A bucket for each of the last ten seconds that something was counted in.
#[derive(Clone, Debug)]
pub(super) struct RecentBuckets {
    /// That of second `n` lies at `n mod 10`, with the second that it is of.
    buckets: Box<[(Second, Recent)]>,
}

impl Default for RecentBuckets {
    fn default() -> Self {
        Self { buckets: vec![<(Second, Recent)>::default(); BUCKETS as usize].into() }
    }
}

impl RecentBuckets {
    /// Counts in a second's bucket, which is emptied if it was an older second's; if it is a newer
    /// one's by now, nothing is counted.
    pub(super) fn count(&mut self, second: Second, count: impl FnOnce(&mut Recent)) {
        let (of, bucket) = &mut self.buckets[(second.0 % BUCKETS) as usize];
        if of.0 < second.0 {
            *of = second;
            *bucket = Recent::default();
        }
        if *of == second {
            count(bucket);
        }
    }

    /// Asks for the memory that counting in a second will touch, but for the delay's bucket.
    pub(super) fn fetch_ahead(&self, second: Second) {
        let (of, bucket) = &self.buckets[(second.0 % BUCKETS) as usize];
        prefetch(of);
        prefetch(&bucket.frames);
        bucket.queueing.fetch_ahead();
    }

    /// The sum of the ten seconds up to this one.
    pub(super) fn total(&self, last: Second) -> Recent {
        let mut total = Recent::default();
        let within = |of: u32| of <= last.0 && last.0 - of < BUCKETS;
        for (_, bucket) in self.buckets.iter().filter(|(of, _)| within(of.0)) {
            total.frames += bucket.frames;
            total.on_time += bucket.on_time;
            total.decodable += bucket.decodable;
            total.queueing.merge(&bucket.queueing);
        }
        total
    }
}
