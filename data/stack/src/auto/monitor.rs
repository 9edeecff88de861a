//! What a stream does: counted by the elements that serve it, read by the manager.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use selvedge_units::{Bytes, Instant, Span};

/// How much is monitored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Detail {
    /// Inter-arrival times and sizes.
    Traffic,
    /// Latencies as well.
    #[default]
    Full,
}

/// Counts of one stream. Any thread may add to it; each figure is exact, though one that is taken
/// while messages arrive may hold a message's size and not yet its number.
#[derive(Debug)]
pub struct Monitor {
    latencies: AtomicBool,
    messages: AtomicU64,
    bytes: AtomicU64,
    largest: AtomicU64,
    last: AtomicU64,
    closest: AtomicU64,
    left: AtomicU64,
    latency_sum: AtomicU64,
    latency_max: AtomicU64,
}

/// No message yet.
const NEVER: u64 = u64::MAX;

impl Default for Monitor {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            latencies: AtomicBool::new(true),
            messages: zero(),
            bytes: zero(),
            largest: zero(),
            last: AtomicU64::new(NEVER),
            closest: AtomicU64::new(NEVER),
            left: zero(),
            latency_sum: zero(),
            latency_max: zero(),
        }
    }
}

/// What was seen of a stream since the look before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Messages that arrived, those refused by policing included.
    pub messages: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// The largest.
    pub largest: Bytes,
    /// The least time between two; `None` with fewer than two.
    pub closest: Option<Span>,
    /// Messages that left.
    pub left: u64,
    /// Their mean latency; zero if none left, or if latencies are not monitored.
    pub latency: Span,
    /// Their longest.
    pub latency_max: Span,
}

impl Monitor {
    /// From now on, as much as this.
    pub fn watch(&self, detail: Detail) {
        self.latencies.store(detail == Detail::Full, Relaxed);
    }

    /// A message arrived.
    pub fn arrived(&self, now: Instant, size: Bytes) {
        let last = self.last.swap(now.0, Relaxed);
        if last != NEVER {
            self.closest.fetch_min(now.0.saturating_sub(last), Relaxed);
        }
        self.bytes.fetch_add(size.0, Relaxed);
        self.largest.fetch_max(size.0, Relaxed);
        self.messages.fetch_add(1, Relaxed);
    }

    /// A message left, so long after it arrived.
    pub fn left(&self, latency: Span) {
        if self.latencies.load(Relaxed) {
            self.latency_sum.fetch_add(latency.0, Relaxed);
            self.latency_max.fetch_max(latency.0, Relaxed);
            self.left.fetch_add(1, Relaxed);
        }
    }

    /// What was seen since the last call; begins afresh.
    pub fn take(&self) -> Observed {
        let left = self.left.swap(0, Relaxed);
        let closest = self.closest.swap(NEVER, Relaxed);
        Observed {
            messages: self.messages.swap(0, Relaxed),
            bytes: Bytes(self.bytes.swap(0, Relaxed)),
            largest: Bytes(self.largest.swap(0, Relaxed)),
            closest: (closest != NEVER).then_some(Span(closest)),
            left,
            latency: Span(self.latency_sum.swap(0, Relaxed) / left.max(1)),
            latency_max: Span(self.latency_max.swap(0, Relaxed)),
        }
    }
}
