//! The contract of a connection: the traffic that the application will send, and the service it needs.
//!
//! Section 4.1, after the Tenet suite: one contract per direction.

use core::fmt;

use selvedge_units::{Bytes, Duration};

/// The traffic of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Traffic {
    /// `X_avg` (the paper also writes `X_ave`): mean time between messages over the interval.
    pub average: Duration,
    /// `X_min`: least time between messages.
    pub minimum: Duration,
    /// `I`: the averaging interval.
    pub interval: Duration,
    /// `S_max`: the largest message.
    pub largest: Bytes,
}

/// The service that one direction needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quality {
    /// `D_max`: the longest time from end to end.
    pub delay: Duration,
    /// `B_max`: the longest run of messages that may be lost. A third of it goes to each host and
    /// to the network.
    pub loss_burst: u64,
    /// Whether the delay is a condition or a preference.
    pub promise: Promise,
}

/// The meaning of a stated delay for decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Promise {
    /// The delay is made as short as possible, and the answer states it. The paper's experiment
    /// admits a connection whose delay can't be met at all, so this is its meaning.
    #[default]
    Wanted,
    /// The contract is refused if the delay can't be kept in the worst case, and no later decision
    /// breaks it. Of [`LATE_ONE_IN`] messages at most one is late: the worst case has the longest
    /// wake-up that was measured, and a longer one may follow.
    Firm,
}

/// Of this number of messages with a firm delay at most one is late in the long run.
pub const LATE_ONE_IN: u64 = 1000;

/// One direction's traffic and quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Contract {
    /// The traffic that is sent.
    pub traffic: Traffic,
    /// The required quality of its arrival.
    pub quality: Quality,
}

/// Why a contract is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// The messages have no time between them.
    #[error(
        "an average inter-arrival time of 0; state the mean time between messages, such as 1 ms"
    )]
    NoTime,
    /// The minimum is more than the mean.
    #[error(
        "minimum inter-arrival {minimum} is above the average {average}; it must be at most that"
    )]
    MinimumAboveAverage {
        /// The stated minimum.
        minimum: Duration,
        /// The stated average.
        average: Duration,
    },
    /// No message fits into the interval.
    #[error(
        "averaging interval {interval} is below the average inter-arrival {average}; make it at least that"
    )]
    IntervalTooShort {
        /// The stated interval.
        interval: Duration,
        /// The stated average.
        average: Duration,
    },
    /// The largest message is empty.
    #[error("a largest message of 0 B; state the size of the largest message")]
    NoSize,
    /// The largest message exceeds that of any stack.
    #[error("a largest message of {0}; the most that is carried in one is {MESSAGE_MAX}")]
    TooLarge(Bytes),
    /// The delay is zero, so no message can arrive in time.
    #[error("a largest delay of 0; state how long a message may take, such as 10 ms")]
    NoDelay,
}

/// The largest message that a stack carries.
pub const MESSAGE_MAX: Bytes = Bytes(1 << 20);

impl Traffic {
    /// The traffic of messages of at most this size, evenly spaced.
    #[must_use]
    pub const fn steady(every: Duration, largest: Bytes) -> Self {
        Self { average: every, minimum: every, interval: every, largest }
    }

    /// `beta`: the largest burst, `ceil(I / X_avg)` messages; 0 for traffic without times.
    #[must_use]
    pub const fn burst(&self) -> u64 {
        if self.average.0 == 0 { 0 } else { self.interval.0.div_ceil(self.average.0) }
    }
}

impl Contract {
    /// The contract, if it is valid.
    pub const fn check(self) -> Result<Self, ContractError> {
        let Traffic { average, minimum, interval, largest } = self.traffic;
        if average.0 == 0 {
            return Err(ContractError::NoTime);
        }
        if minimum.0 > average.0 {
            return Err(ContractError::MinimumAboveAverage { minimum, average });
        }
        if interval.0 < average.0 {
            return Err(ContractError::IntervalTooShort { interval, average });
        }
        if largest.0 == 0 {
            return Err(ContractError::NoSize);
        }
        if largest.0 > MESSAGE_MAX.0 {
            return Err(ContractError::TooLarge(largest));
        }
        if self.quality.delay.0 == 0 {
            return Err(ContractError::NoDelay);
        }
        Ok(self)
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Traffic { average, minimum, interval, largest } = self.traffic;
        let Quality { delay, loss_burst, promise } = self.quality;
        let promise = match promise {
            Promise::Wanted => "wanted",
            Promise::Firm => "firm",
        };
        write!(
            f,
            "a message of at most {largest} every {average} (never closer than {minimum}, \
             averaged over {interval}), delay {delay} ({promise}), loss burst {loss_burst}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_contracts_are_named() {
        let traffic = Traffic::steady(Duration::from_millis(1), Bytes(1000));
        let quality =
            Quality { delay: Duration::from_millis(5), loss_burst: 3, promise: Promise::Wanted };
        let good = Contract { traffic, quality };
        assert_eq!(good.check(), Ok(good));
        let with = |traffic| Contract { traffic, quality }.check().unwrap_err().to_string();
        let say = with(Traffic { minimum: Duration::from_millis(2), ..traffic });
        assert_eq!(
            say,
            "minimum inter-arrival 2 ms is above the average 1 ms; it must be at most that"
        );
        assert!(with(Traffic { interval: Duration(3), ..traffic }).contains("3 ns is below"));
        assert!(with(Traffic { largest: Bytes(2 << 20), ..traffic }).contains("2097152 B"));
        assert!(
            with(Traffic { average: Duration::ZERO, ..traffic })
                .contains("inter-arrival time of 0")
        );
        assert_eq!(Traffic { interval: Duration(2_500_000), ..traffic }.burst(), 3);
    }
}
