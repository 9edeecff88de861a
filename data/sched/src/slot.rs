//! One stream's state in the scheduler: contract, windows, head frame, counters; and the records
//! that the scheduler takes and gives.

use selvedge_stream::{Contract, Kind, Late, Window, Windows};
use selvedge_units::{Instant, Span};

use crate::tournament::Key;
use crate::window::WindowSet;

/// A stream's place in a scheduler: the lowest that was free when it was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamIndex(pub u32);

/// A frame that has come to the front of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// When the frame arrived in its queue, not when it became head.
    pub arrival: Instant,
    /// Its kind, which decides the window that it is counted in.
    pub kind: Kind,
    /// Its own deadline, taken as it is. `None`: by the contract, that is `arrival + delay` if it
    /// states a delay, else `max(previous frame's deadline, arrival) + period`.
    pub deadline: Option<Instant>,
}

/// What became of a frame that missed its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is lost (`late = drop`): the stream has no head until the caller pushes the next.
    Dropped,
    /// It stays head (`late = send`) and is due again.
    Kept {
        /// Its next deadline, after the moment of the poll.
        deadline: Instant,
    },
}

/// A head frame that missed its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Whose frame it is.
    pub stream: StreamIndex,
    /// The deadline that it missed; the first of them, if there are several.
    pub deadline: Instant,
    /// How many deadlines this record stands for, at least 1. More than 1 only for a kept frame
    /// that nobody polled for longer than its period: each elapsed period is a miss.
    pub misses: u64,
    /// What became of it.
    pub verdict: Verdict,
    /// Whether any of the misses violated the window-constraint.
    pub violation: bool,
}

/// A frame that was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its deadline, the last one if it was kept over several.
    pub deadline: Instant,
    /// Whether it had missed a deadline before.
    pub late: bool,
}

/// What has become of a stream's frames since it was added. Each counter saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames served, the late ones included.
    pub sent: u64,
    /// Frames served after missing at least one deadline.
    pub late: u64,
    /// Deadlines missed; a kept frame may miss several.
    pub missed: u64,
    /// Frames dropped, because they expired or were forfeited.
    pub dropped: u64,
    /// Misses that the window did not allow; every miss, if there is no window.
    pub violations: u64,
}

impl Counters {
    pub(crate) fn count_misses(&mut self, misses: u64, violations: u64) {
        self.missed = self.missed.saturating_add(misses);
        self.violations = self.violations.saturating_add(violations);
    }

    pub(crate) fn count_drop(&mut self) {
        self.dropped = self.dropped.saturating_add(1);
    }

    pub(crate) fn count_sent(&mut self, late: bool) {
        self.sent = self.sent.saturating_add(1);
        self.late = self.late.saturating_add(u64::from(late));
    }
}

/// The head frame, with what the contract said when it became head.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) kind: Kind,
    pub(crate) deadline: Instant,
    pub(crate) period: Span,
    pub(crate) priority: i32,
    pub(crate) missed: bool,
    pub(crate) key: Key,
}

impl Queued {
    /// "Its ready time is its deadline minus T."
    pub(crate) fn ready(&self) -> Instant {
        self.deadline - self.period
    }

    /// Moves a kept frame's deadline past `now`; how many deadlines that were missed. The same as
    /// `while deadline <= now { deadline += period }`, in constant time.
    pub(crate) fn move_past(&mut self, now: Instant) -> u64 {
        let misses = now.since(self.deadline).0 / self.period.0 + 1;
        self.deadline += self.period * misses;
        self.missed = true;
        misses
    }
}

/// A stream.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// As it holds for the next frame.
    pub(crate) contract: Contract,
    pub(crate) windows: WindowSet,
    /// Whether the contract's windows are still to be taken over, by the next frame.
    pub(crate) windows_changed: bool,
    /// The deadline of the last frame that was head; zero before the first, which does no harm
    /// because the rule takes the later of it and the arrival.
    pub(crate) last_deadline: Instant,
    pub(crate) head: Option<Queued>,
    pub(crate) counters: Counters,
}

impl Slot {
    pub(crate) fn new(contract: &Contract) -> Self {
        let contract = Contract {
            period: at_least_one(contract.period),
            windows: within_bounds(&contract.windows),
            ..*contract
        };
        Self {
            windows: WindowSet::new(&contract.windows),
            contract,
            windows_changed: false,
            last_deadline: Instant::ZERO,
            head: None,
            counters: Counters::default(),
        }
    }

    /// The deadline of a frame that comes up next.
    pub(crate) fn next_deadline(&self, head: &Head) -> Instant {
        let by_contract = || match self.contract.delay {
            Some(delay) => head.arrival + delay,
            None => self.last_deadline.max(head.arrival) + self.contract.period,
        };
        head.deadline.unwrap_or_else(by_contract)
    }

    pub(crate) fn drops_late(&self) -> bool {
        self.contract.late == Late::Drop
    }
}

/// A period of zero would let a kept frame expire for ever.
pub(crate) fn at_least_one(period: Span) -> Span {
    period.max(Span(1))
}

/// Windows with `x <= y`, which the rules keep true and fractions rely on.
pub(crate) fn within_bounds(windows: &Windows) -> Windows {
    let bound = |w: Window| Window { lose: w.lose.min(w.of), of: w.of };
    match windows {
        Windows::Whole(window) => Windows::Whole(bound(*window)),
        Windows::PerKind(windows) => Windows::PerKind(windows.map(bound)),
    }
}
