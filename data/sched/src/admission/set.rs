//! The set under test in scaled integers. One unit of time is a nanosecond divided by the link's rate in
//! bit/s, so that both periods and service times are whole numbers.
//!
//! [`check`](super::check) makes it from the request; every test reads it. A part of the set, or the set with
//! one stream changed, is another view of the same loads: nothing is copied.

use selvedge_data_stream::{Class, Kind, Window, Windows};
use selvedge_units::{Bitrate, Bytes, Duration};

use crate::Tree;

use super::share::Share;
use super::{Load, Pattern, Policy, Request, RequestError, Service};

/// Bits per byte times nanoseconds per second: the service time of one byte in scaled time.
pub(super) const BYTE: u128 = 8 * 1_000_000_000;
const TIME_MAX: u64 = 1 << 63;
pub(super) const RATE_MAX: u64 = (1 << 48) - 1;
const SIZE_MAX: u64 = (1 << 48) - 1;

/// A view of the loads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set<'a> {
    pub(super) policy: Policy,
    pub(super) pattern: Pattern,
    /// bit/s; 1 if all services are times.
    pub(super) rate: u64,
    pub(super) quantum: Bytes,
    pub(super) tree: Option<&'a Tree>,
    loads: &'a [Load],
    /// A stream that replaces the one at that index.
    patch: Option<(usize, Load)>,
}

/// A stream in scaled time: each below 2^111.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Service time of its largest frame.
    pub(super) cost: u128,
    pub(super) period: u128,
    /// From the instant at which the frame may go to its deadline.
    pub(super) deadline: u128,
    /// The class in which it competes: the stated one under `mixed`, otherwise the one that the policy gives
    /// all streams.
    pub(super) class: Class,
    pub(super) priority: i32,
    pub(super) weight: u128,
}

impl<'a> Set<'a> {
    pub(super) fn new(ask: &Request<'a>) -> Result<Self, RequestError> {
        if u32::try_from(ask.loads.len()).is_err() {
            return Err(RequestError::Streams(ask.loads.len()));
        }
        let sized = ask.loads.iter().any(|load| matches!(load.service, Service::Size(_)));
        let rate = match ask.rate {
            None if sized => return Err(RequestError::Rate(None)),
            None => 1,
            Some(Bitrate(rate)) if (1..=RATE_MAX).contains(&rate) => rate,
            Some(rate) => return Err(RequestError::Rate(Some(rate))),
        };
        for (index, load) in ask.loads.iter().enumerate() {
            let time = |span: Duration| (1..=TIME_MAX).contains(&span.0);
            let contract = &load.contract;
            if !time(contract.period) || !contract.delay.is_none_or(time) {
                return Err(RequestError::Time(index));
            }
            let sound = match load.service {
                Service::Time(span) => time(span),
                Service::Size(size) => (1..=SIZE_MAX).contains(&size.0),
            };
            if !sound {
                return Err(RequestError::Service(index));
            }
            if Kind::ALL.iter().any(|&kind| {
                let Window { lose, of } = contract.windows.of(kind);
                lose > of
            }) {
                return Err(RequestError::Window(index));
            }
            if contract.weight == 0 {
                return Err(RequestError::Weight(index));
            }
        }
        let Request { policy, pattern, quantum, tree, loads, .. } = *ask;
        Ok(Self { policy, pattern, rate, quantum, tree, loads, patch: None })
    }

    pub(super) fn len(&self) -> usize {
        self.loads.len()
    }

    /// The first `n` streams.
    pub(super) fn first(self, n: usize) -> Self {
        Self { loads: &self.loads[..n], ..self }
    }

    /// The same with one stream changed.
    pub(super) fn with(self, index: usize, load: Load) -> Self {
        Self { patch: Some((index, load)), ..self }
    }

    /// The same set on a link of another rate.
    pub(super) fn at_rate(self, rate: u64) -> Self {
        Self { rate, ..self }
    }

    pub(super) fn load(&self, index: usize) -> &Load {
        match &self.patch {
            Some((patched, load)) if *patched == index => load,
            _ => &self.loads[index],
        }
    }

    pub(super) fn loads(&self) -> impl Iterator<Item = &Load> {
        (0..self.len()).map(|index| self.load(index))
    }

    pub(super) fn job(&self, load: &Load) -> Job {
        let rate = u128::from(self.rate);
        let Load { contract, service } = load;
        // A stream that waits for its period may go one period before its deadline, no sooner.
        let delay = contract.delay.unwrap_or(contract.period);
        let deadline = if contract.work_conserving { delay } else { delay.min(contract.period) };
        Job {
            cost: match service {
                Service::Time(span) => u128::from(span.0) * rate,
                Service::Size(size) => u128::from(size.0) * BYTE,
            },
            period: u128::from(contract.period.0) * rate,
            deadline: u128::from(deadline.0) * rate,
            class: match self.policy {
                Policy::Mixed => contract.class,
                Policy::Edf => Class::Edf,
                Policy::Priority => Class::Priority,
                _ => Class::Fair,
            },
            priority: contract.priority,
            weight: u128::from(contract.weight),
        }
    }

    pub(super) fn jobs(&self) -> impl Iterator<Item = Job> {
        self.loads().map(|load| self.job(load))
    }

    /// The service that a stream needs, as a share of the link.
    pub(super) fn share(&self, load: &Load) -> Share {
        let (serve, of) = self.required_frames(load);
        let period = u128::from(load.contract.period.0);
        match load.service {
            // At most 2^79 over 2^79.
            Service::Time(span) => Share::new(u128::from(span.0) * serve, period * of),
            // At most 2^97 over 2^127.
            Service::Size(size) => {
                Share::new(u128::from(size.0) * BYTE * serve, period * u128::from(self.rate) * of)
            }
        }
    }

    /// The number of frames that must be served, and out of how many.
    pub(super) fn required_frames(&self, load: &Load) -> (u128, u128) {
        if self.policy.counts_windows() { required_frames(load) } else { (1, 1) }
    }

    /// The service that all streams need. O(N).
    pub(super) fn share_of_all(&self) -> Share {
        self.share_of(|_| true)
    }

    /// The service that the streams of some classes need. O(N).
    pub(super) fn share_of(&self, classes: impl Fn(Class) -> bool) -> Share {
        let those = self.loads().filter(|load| classes(self.job(load).class));
        those.fold(Share::ZERO, |sum, load| sum.plus(self.share(load)))
    }

    /// Scaled time in nanoseconds, rounded up; saturates.
    pub(super) fn span(&self, scaled: u128) -> Duration {
        Duration(u64::try_from(scaled.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX))
    }
}

/// `y - x` of `y`, or all frames where there is no window. With a window for each kind, the one that requires
/// least counts: the number of frames of a kind is not known, and every kind needs this much.
fn required_frames(load: &Load) -> (u128, u128) {
    let of = |window: Window| match window {
        Window { of: 0, .. } => (1, 1),
        Window { lose, of } => (u128::from(of - lose), u128::from(of)),
    };
    match &load.contract.windows {
        Windows::Whole(window) => of(*window),
        Windows::PerKind(windows) => windows
            .iter()
            .map(|window| of(*window))
            .min_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)))
            .unwrap_or((1, 1)),
    }
}
