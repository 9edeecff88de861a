//! The traffic of a stream: counted by the elements that serve it, read by the manager.

use selvedge_units::{Bytes, Duration, Instant};

use crate::concurrency::{Concurrency, Counter, SingleThreaded};

selvedge_units::named! {
    /// The amount of monitoring.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Detail {
        /// Inter-arrival times and sizes.
        Traffic = "traffic",
        /// Latencies as well.
        #[default]
        Full = "full",
    }
}

/// Counters of one stream. Any call may add to them. Each figure is exact, but a reading while
/// messages arrive may include a message's size and not yet its number.
#[derive(Debug)]
pub struct Monitor<C: Concurrency = SingleThreaded> {
    /// Whether latencies are monitored: 1, or 0.
    latencies: C::Counter,
    messages: C::Counter,
    bytes: C::Counter,
    largest: C::Counter,
    last: C::Counter,
    closest: C::Counter,
    left: C::Counter,
    latency_sum: C::Counter,
    latency_max: C::Counter,
}

/// No message yet.
const NEVER: u64 = u64::MAX;

impl<C: Concurrency> Default for Monitor<C> {
    fn default() -> Self {
        let zero = || C::Counter::new(0);
        Self {
            latencies: C::Counter::new(1),
            messages: zero(),
            bytes: zero(),
            largest: zero(),
            last: C::Counter::new(NEVER),
            closest: C::Counter::new(NEVER),
            left: zero(),
            latency_sum: zero(),
            latency_max: zero(),
        }
    }
}

/// The traffic of a stream since the last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficSample {
    /// Messages that arrived, including those refused by policing.
    pub messages: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// The largest.
    pub largest: Bytes,
    /// The least time between two; `None` with fewer than two.
    pub closest: Option<Duration>,
    /// Messages that left.
    pub left: u64,
    /// Their mean latency; zero if none left, or if latencies are not monitored.
    pub latency: Duration,
    /// Their longest.
    pub latency_max: Duration,
}

impl<C: Concurrency> Monitor<C> {
    /// Sets the amount of monitoring from now on.
    pub fn watch(&self, detail: Detail) {
        self.latencies.store(u64::from(detail == Detail::Full));
    }

    /// Counts a message that arrived.
    pub fn arrived(&self, now: Instant, size: Bytes) {
        let last = self.last.swap(now.0);
        if last != NEVER {
            self.closest.lower(now.0.saturating_sub(last));
        }
        self.bytes.add(size.0);
        self.largest.raise(size.0);
        self.messages.add(1);
    }

    /// Counts a message that left, with its latency.
    pub fn left(&self, latency: Duration) {
        if self.latencies.load() != 0 {
            self.latency_sum.add(latency.0);
            self.latency_max.raise(latency.0);
            self.left.add(1);
        }
    }

    /// The traffic since the last call; resets the counters.
    pub fn take(&self) -> TrafficSample {
        let left = self.left.swap(0);
        let closest = self.closest.swap(NEVER);
        TrafficSample {
            messages: self.messages.swap(0),
            bytes: Bytes(self.bytes.swap(0)),
            largest: Bytes(self.largest.swap(0)),
            closest: (closest != NEVER).then_some(Duration(closest)),
            left,
            latency: Duration(self.latency_sum.swap(0) / left.max(1)),
            latency_max: Duration(self.latency_max.swap(0)),
        }
    }
}
