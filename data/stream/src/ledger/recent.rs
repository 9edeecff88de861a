//! Counts over the last ten seconds: a few bytes for each second, of which a frame touches one
//! cache line. Queueing delays are read from the ledger's entries on request.

use selvedge_units::{Duration, Instant};

use crate::Histogram;

const SECONDS: u32 = 10;
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
    /// Queueing delay of the frames sent, as far as the ledger's window reaches back.
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

/// A whole second since the run began, in 29 bits; the last one, after 17 years, never ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Second(pub(super) u32);

impl Second {
    pub(super) const BITS: u32 = 29;

    pub(super) const fn of(now: Instant) -> Self {
        let second = now.0 / NANOS_PER_SECOND;
        let last = (1 << Self::BITS) - 1;
        Self(if second < last { second as u32 } else { last as u32 })
    }

    /// Its place among the older ones.
    const fn entry_index(self) -> usize {
        (self.0 % (SECONDS - 1)) as usize
    }

    /// Whether this is one of the ten seconds up to `last`.
    pub(super) const fn is_recent(self, last: Self) -> bool {
        self.0 <= last.0 && last.0 - self.0 < SECONDS
    }
}

/// How long a frame queued, in units of 16 ns up to 68 s; the largest number stands for frames
/// that were not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queueing(u32);

impl Queueing {
    const UNIT_BITS: u32 = 4;
    pub(super) const NOT_SENT: Self = Self(u32::MAX);

    pub(super) fn of(span: Duration) -> Self {
        Self((span.0 >> Self::UNIT_BITS).min(u64::from(u32::MAX - 1)) as u32)
    }

    pub(super) fn span(self) -> Option<Duration> {
        (self != Self::NOT_SENT).then_some(Duration(u64::from(self.0) << Self::UNIT_BITS))
    }
}

/// The counts of one second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    of: Second,
    pub(super) frames: u32,
    pub(super) on_time: u32,
    pub(super) decodable: u32,
}

/// The numbers to add to a second's counts: frames settled, of these sent, and of these on time and
/// decodable.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) frames: u32,
    pub(super) sent: u32,
    pub(super) on_time: u32,
    pub(super) decodable: u32,
}

impl Counts {
    pub(super) const fn add(&mut self, sum: &Sum) {
        self.frames += sum.frames;
        self.on_time += sum.on_time;
        self.decodable += sum.decodable;
    }
}

/// Counts of the newest second that has any, and of the nine before it: those of second `n` lie at
/// `n mod 9`. The newest lie last, beside the other fields that every frame touches.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct Seconds {
    older: [Counts; SECONDS as usize - 1],
    pub(super) newest: Counts,
}

impl Seconds {
    /// The counts of a second, cleared if they were an older one's; `None` if they already are a
    /// newer one's.
    #[inline]
    pub(super) fn of(&mut self, second: Second) -> Option<&mut Counts> {
        if self.newest.of == second {
            return Some(&mut self.newest);
        }
        if self.newest.of.0 < second.0 {
            let counts = Counts { of: second, ..Counts::default() };
            let before = core::mem::replace(&mut self.newest, counts);
            self.older[before.of.entry_index()] = before;
            return Some(&mut self.newest);
        }
        let counts = &mut self.older[second.entry_index()];
        if counts.of.0 < second.0 && second.is_recent(self.newest.of) {
            *counts = Counts { of: second, ..Counts::default() };
        }
        (counts.of == second).then_some(counts)
    }

    /// The sum of the ten seconds up to this one, without delays.
    pub(super) fn total(&self, last: Second) -> Recent {
        let mut total = Recent::default();
        let all = self.older.iter().chain([&self.newest]);
        for counts in all.filter(|counts| counts.of.is_recent(last)) {
            total.frames += u64::from(counts.frames);
            total.on_time += u64::from(counts.on_time);
            total.decodable += u64::from(counts.decodable);
        }
        total
    }
}
