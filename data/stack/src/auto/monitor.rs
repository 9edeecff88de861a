//! The traffic of a stream: counted by the elements that serve it, read by the manager.

use selvedge_data_stream::Histogram;
use selvedge_units::{Bytes, Duration, Instant};

use crate::concurrency::{Concurrency, Counter, SingleThreaded, State};

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
    delays: C::State<Delays>,
}

/// The delays of the messages that left.
#[derive(Clone, Debug, Default)]
struct Delays {
    /// Since the last sample.
    recent: RecentDelays,
    /// Since the beginning.
    all: Histogram,
    /// Messages that took longer than was granted, since the beginning.
    late: u64,
    /// The granted delay; zero before the first grant.
    granted: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct RecentDelays {
    left: u64,
    sum: Duration,
    longest: Duration,
    late: u64,
}

/// The delays of a stream on this host since the connection was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeasuredDelay {
    /// Messages that left.
    pub messages: u64,
    /// The mean.
    pub mean: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The longest.
    pub worst: Duration,
    /// Messages that took longer than was granted.
    pub late: u64,
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
            delays: C::State::new(Delays::default()),
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
    /// Those that took longer than was granted.
    pub late: u64,
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
        if self.latencies.load() == 0 {
            return;
        }
        self.delays.with(|delays| {
            let late = u64::from(delays.granted > Duration::ZERO && latency > delays.granted);
            let RecentDelays { left, sum, longest, .. } = delays.recent;
            delays.recent = RecentDelays {
                left: left + 1,
                sum: sum + latency,
                longest: longest.max(latency),
                late: delays.recent.late + late,
            };
            delays.late += late;
            delays.all.record(latency);
        });
    }

    /// Sets the delay that is granted: longer ones are counted as late from now on.
    pub fn grant(&self, delay: Duration) {
        self.delays.with(|delays| delays.granted = delay);
    }

    /// The delays since the connection was made.
    pub fn measured(&self) -> MeasuredDelay {
        self.delays.with(|Delays { all, late, .. }| MeasuredDelay {
            messages: all.count(),
            mean: all.mean().unwrap_or_default(),
            p99: all.quantile(0.99).unwrap_or_default(),
            worst: all.max().unwrap_or_default(),
            late: *late,
        })
    }

    /// The traffic since the last call; resets the counters.
    pub fn take(&self) -> TrafficSample {
        let RecentDelays { left, sum, longest, late } =
            self.delays.with(|delays| std::mem::take(&mut delays.recent));
        let closest = self.closest.swap(NEVER);
        TrafficSample {
            messages: self.messages.swap(0),
            bytes: Bytes(self.bytes.swap(0)),
            largest: Bytes(self.largest.swap(0)),
            closest: (closest != NEVER).then_some(Duration(closest)),
            left,
            latency: Duration(sum.0 / left.max(1)),
            latency_max: longest,
            late,
        }
    }
}
