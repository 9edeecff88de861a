//! The visible state of a running link and the parameters that can be changed.

use std::ops::Range;

use selvedge_data_sched::{Scheduler, StreamIndex};
use selvedge_data_stream::{Contract, Ledger, Windows};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::{Link, LinkParams, PathEstimate, RateDerived};

impl Link {
    /// The parameters that it was made with; the rate is the current one.
    #[must_use]
    pub const fn params(&self) -> &LinkParams {
        &self.params
    }

    /// The scheduler, for its counters and windows.
    #[must_use]
    pub const fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The ledger of a stream: the fates of its frames.
    #[must_use]
    pub fn ledger(&self, stream: StreamIndex) -> Option<&Ledger> {
        self.ledgers.get(stream.0 as usize)?.as_ref()
    }

    /// Where the large parts of its streams' state lie, for an owner that controls their memory.
    pub fn memory(&self) -> impl Iterator<Item = Range<*const u8>> {
        self.ledgers.iter().flatten().map(Ledger::memory).chain(self.scheduler.memory())
    }

    /// Frames of one stream that wait here, including those given up but not yet settled.
    #[must_use]
    pub fn queued(&self, stream: StreamIndex) -> usize {
        let queue = self.queues.get(stream.0 as usize).and_then(Option::as_ref);
        queue.map_or(0, |q| q.frames.len())
    }

    /// Bytes of all frames that wait to be sent.
    #[must_use]
    pub const fn backlog(&self) -> Bytes {
        self.backlog
    }

    /// Bytes sent since the start.
    #[must_use]
    pub const fn sent_bytes(&self) -> Bytes {
        self.sent_bytes
    }

    /// Bytes that the rate would have allowed while frames waited that could go: the bytes sent
    /// should be nearly as many.
    #[must_use]
    pub fn could_send(&self) -> Bytes {
        self.could_send + self.params.rate * self.waited
    }

    /// The mean rates offered and sent over the last whole second or so.
    #[must_use]
    pub fn rates(&self, now: Instant) -> (Bitrate, Bitrate) {
        (self.offered.last_second(now), self.sent.last_second(now))
    }

    /// Changes a stream's windows; they start afresh.
    pub fn set_windows(&mut self, stream: StreamIndex, windows: Windows) {
        if let Some(queue) = self.queue_mut(stream) {
            queue.contract.windows = windows;
            self.scheduler.set_windows(stream, windows);
        }
    }

    /// Changes a stream's priority.
    pub fn set_priority(&mut self, stream: StreamIndex, priority: i32) {
        if let Some(queue) = self.queue_mut(stream) {
            queue.contract.priority = priority;
            self.scheduler.set_priority(stream, priority);
        }
    }

    /// Changes windows, priority, weight, period and delay of a stream to those of a contract, from
    /// its next frame on; waiting frames keep their deadlines. The other terms of the contract stay
    /// as they were when the stream was added. Windows that do not change keep their counts.
    pub fn set_terms(&mut self, stream: StreamIndex, terms: &Contract) {
        let Some(before) = self.contract(stream).copied() else { return };
        if before.windows != terms.windows {
            self.set_windows(stream, terms.windows);
        }
        if before.priority != terms.priority {
            self.set_priority(stream, terms.priority);
        }
        let Some(queue) = self.queue_mut(stream) else { return };
        let Contract { weight, period, delay, .. } = *terms;
        queue.contract = Contract { weight, period, delay, ..queue.contract };
        if before.weight != weight {
            self.scheduler.set_weight(stream, weight);
        }
        if before.period != period {
            self.scheduler.set_period(stream, period);
        }
        if before.delay != delay {
            self.delays.remove(before.delay);
            self.delays.add(delay);
            self.set_catch_up();
        }
    }

    /// Changes how many bytes may wait, and how many of the bytes missed by late wake-ups are
    /// caught up.
    pub fn set_bounds(&mut self, queue: Option<Bytes>, catch_up: Option<Bytes>) {
        self.params.queue = queue;
        self.params.catch_up = catch_up;
        self.set_catch_up();
    }

    /// The contract of a stream, as it is now.
    #[must_use]
    pub fn contract(&self, stream: StreamIndex) -> Option<&Contract> {
        self.queues.get(stream.0 as usize)?.as_ref().map(|q| &q.contract)
    }

    /// What is known of the path behind it.
    #[must_use]
    pub const fn path(&self) -> PathEstimate {
        PathEstimate { rate: self.params.rate, expected: self.expected, reserve: self.reserve }
    }

    /// Changes the rate; frames that no longer fit are given up at once.
    pub fn set_rate(&mut self, now: Instant, rate: Bitrate) {
        self.set_path(now, PathEstimate { rate, expected: rate, ..self.path() });
    }

    /// Changes what is known of the path behind the link; frames that no longer fit are given up at once. The reserve
    /// is of frames that arrive from now on.
    pub fn set_path(&mut self, now: Instant, path: PathEstimate) {
        let PathEstimate { rate, expected, reserve } = path;
        (self.expected, self.reserve) = (expected.max(rate), reserve);
        self.count_capacity(now);
        self.could_send = self.could_send();
        self.waited = Duration::ZERO;
        self.params.rate = rate;
        self.pacer.set_rate(now, rate);
        self.set_catch_up();
        self.derived = RateDerived::new(&self.pacer, self.params.mtu);
        self.select(now);
    }
}
