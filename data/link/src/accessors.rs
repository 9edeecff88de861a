//! What can be seen of a link and turned on it while it runs.

use std::ops::Range;

use selvedge_data_sched::{Scheduler, StreamIndex};
use selvedge_data_stream::{Contract, Ledger, Windows};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::{Link, LinkParams, RateDerived};

impl Link {
    /// What it was made with, the rate as it is now.
    #[must_use]
    pub const fn params(&self) -> &LinkParams {
        &self.params
    }

    /// The scheduler, for its counters and windows.
    #[must_use]
    pub const fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// What became of a stream's frames.
    #[must_use]
    pub fn ledger(&self, stream: StreamIndex) -> Option<&Ledger> {
        self.ledgers.get(stream.0 as usize)?.as_ref()
    }

    /// Where the large parts of its streams' state lie, for an owner who cares what memory that is.
    pub fn memory(&self) -> impl Iterator<Item = Range<*const u8>> {
        self.ledgers.iter().flatten().map(Ledger::memory).chain(self.scheduler.memory())
    }

    /// Frames of one stream that wait here, those given up but not yet settled included.
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

    /// Bytes that the rate would have allowed in the time that frames waited which might go: what
    /// is sent should be nearly that.
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

    /// Changes windows, priority, weight, period and delay of a stream to those of a contract, from its
    /// next frame on; frames that wait keep their deadlines. What else a contract says stays as it was
    /// when the stream was added. Windows that do not change go on counting.
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

    /// Changes how many bytes may wait, and how much of what late wake-ups missed is made up for.
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

    /// Changes the rate; what no longer fits is given up at once.
    pub fn set_rate(&mut self, now: Instant, rate: Bitrate) {
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
