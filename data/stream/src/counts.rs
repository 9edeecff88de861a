//! The counts of a stream since it was added: the same value from the scheduler and the ledger up
//! to a placement's report, so it outlives the engine that counted it.

use selvedge_units::Bytes;

use crate::Totals;

/// The scheduler's counts of a stream's frames since it was added. Each counter saturates.
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
    /// The counters of these values, in the order of the fields.
    #[must_use]
    pub const fn new([sent, late, missed, dropped, violations]: [u64; 5]) -> Self {
        Self { sent, late, missed, dropped, violations }
    }

    /// The values, in the same order.
    #[must_use]
    pub const fn values(self) -> [u64; 5] {
        let Self { sent, late, missed, dropped, violations } = self;
        [sent, late, missed, dropped, violations]
    }
}

/// All counts of a stream since it was added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The ledger's totals.
    pub totals: Totals,
    /// The scheduler's counters.
    pub counters: Counters,
    /// Bytes sent.
    pub sent_bytes: Bytes,
    /// Packets that the kernel refused.
    pub send_errors: u64,
}
