//! Holding a stream to its contract: the generic cell rate algorithm, and the largest message.

use selvedge_units::{Bytes, Instant};

use crate::contract::Traffic;

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicingError {
    /// The message comes before the contract allows it.
    #[error("too many messages; the next may come at {}.{:09} s", .0.0 / 1_000_000_000, .0.0 % 1_000_000_000)]
    TooSoon(Instant),
    /// The message is larger than the contract allows.
    #[error("a message of {size}, the contract allows {largest}; send less in one, or renegotiate")]
    TooLarge {
        /// Its size.
        size: Bytes,
        /// The contract's largest.
        largest: Bytes,
    },
}

/// Admits conforming messages: `beta` at once, and one each `X_avg` in the long run.
#[derive(Clone, Copy, Debug)]
pub struct Policer {
    traffic: Traffic,
    /// When the next message would be due if they came evenly.
    due: Instant,
}

impl Policer {
    /// A policer whose whole burst is free.
    #[must_use]
    pub const fn new(traffic: Traffic) -> Self {
        Self { traffic, due: Instant::ZERO }
    }

    /// Whether a message may pass now; counts it if so. Constant time.
    pub fn admit(&mut self, now: Instant, size: Bytes) -> Result<(), PolicingError> {
        if size > self.traffic.largest {
            return Err(PolicingError::TooLarge { size, largest: self.traffic.largest });
        }
        let tolerance = self.traffic.average * self.traffic.burst().saturating_sub(1);
        let earliest = self.due - tolerance;
        if now < earliest {
            return Err(PolicingError::TooSoon(earliest));
        }
        self.due = self.due.max(now) + self.traffic.average;
        Ok(())
    }
}
