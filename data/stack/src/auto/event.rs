//! The manager's grants, observations and decisions, for elements to apply and applications to read.

use core::fmt;

use selvedge_units::{Bytes, Duration};

use crate::assign::{Guarantee, Phase, Refusal};
use crate::contract::{Contract, ContractError, LATE_ONE_IN};
use crate::model::StreamId;

/// The grant of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The guarantee by the model, in the configuration of that time.
    pub guarantee: Guarantee,
    /// Whether the stream is held to its contract, since no configuration fits its traffic.
    pub policed: bool,
    /// The part of the delay that the other host and the network take.
    pub remote_delay: Duration,
}

impl Granted {
    /// The longest that a message takes on both hosts and between them.
    #[must_use]
    pub fn from_end_to_end(&self) -> Duration {
        self.guarantee.latency + self.remote_delay
    }
}

/// A deviation of a stream from its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// It sends more often: the mean time between messages, observed and granted.
    Rate {
        /// Observed.
        samples: Duration,
        /// Granted.
        granted: Duration,
    },
    /// It sends larger messages.
    Size {
        /// Observed.
        samples: Bytes,
        /// Granted.
        granted: Bytes,
    },
    /// Its messages take longer than was guaranteed.
    Latency {
        /// Observed, on average.
        samples: Duration,
        /// Guaranteed.
        granted: Duration,
    },
    /// More of its messages than one in [`LATE_ONE_IN`] take longer than its firm delay allows.
    Late {
        /// The longest in the period that was sampled last.
        longest: Duration,
        /// Guaranteed.
        granted: Duration,
    },
}

impl Violation {
    /// Whether the stream suffers, and does not exceed its contract.
    pub(crate) const fn is_suffered(&self) -> bool {
        matches!(self, Self::Latency { .. } | Self::Late { .. })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate { samples, granted } => {
                write!(f, "a message comes each {samples}, and its contract says each {granted}")
            }
            Self::Size { samples, granted } => {
                write!(f, "a message has {samples}, and its contract says at most {granted}")
            }
            Self::Latency { samples, granted } => {
                write!(
                    f,
                    "its messages take {samples} on this host on average, and {granted} was estimated"
                )
            }
            Self::Late { longest, granted } => write!(
                f,
                "more than one of {LATE_ONE_IN} messages takes longer on this host than the {granted} that \
                 was granted, {longest} at worst"
            ),
        }
    }
}

/// An action of the manager, for elements to apply and applications to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Streams were assigned anew.
    Reassigned {
        /// The stream that caused it.
        stream: StreamId,
        /// The phase that found the configuration.
        phase: Phase,
        /// The streams whose assignment changed.
        moved: Vec<StreamId>,
    },
    /// A stream deviates from its grant; reported once, and again after the deviation has ended.
    Violated {
        /// The stream.
        stream: StreamId,
        /// The deviation.
        what: Violation,
    },
    /// No configuration fits; the stream is held to its grant. The application may send less, or
    /// renegotiate.
    Policed {
        /// The stream.
        stream: StreamId,
        /// The condition that failed.
        refusal: Refusal,
    },
    /// The stream keeps to its contract again.
    Released {
        /// The stream.
        stream: StreamId,
    },
    /// A firm delay is not kept, and no other assignment is better. Until it is kept again this host
    /// takes no new connection.
    Broken {
        /// The stream.
        stream: StreamId,
        /// What was measured.
        what: Violation,
    },
    /// A broken firm delay is kept again.
    Mended {
        /// The stream.
        stream: StreamId,
    },
    /// The other end has requested this contract, and it holds from now on.
    Renegotiated {
        /// The stream.
        stream: StreamId,
        /// The requested contract.
        contract: Contract,
    },
}

impl Event {
    /// Whether it is about this stream.
    #[must_use]
    pub fn concerns(&self, id: StreamId) -> bool {
        match self {
            Self::Reassigned { stream, moved, .. } => *stream == id || moved.contains(&id),
            Self::Violated { stream, .. }
            | Self::Policed { stream, .. }
            | Self::Broken { stream, .. }
            | Self::Mended { stream }
            | Self::Renegotiated { stream, .. }
            | Self::Released { stream } => *stream == id,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reassigned { stream, phase, moved } => write!(
                f,
                "modules of {} streams are assigned anew ({phase}) for stream {}",
                moved.len(),
                stream.0
            ),
            Self::Violated { stream, what } => write!(f, "stream {}: {what}", stream.0),
            Self::Policed { stream, refusal } => {
                write!(f, "stream {} is held to its contract: {refusal}", stream.0)
            }
            Self::Released { stream } => {
                write!(f, "stream {} keeps to its contract again", stream.0)
            }
            Self::Broken { stream, what } => write!(
                f,
                "the firm delay of stream {} is broken, and no other assignment is better: {what}; \
                 this host takes no new connection until it is kept again",
                stream.0
            ),
            Self::Mended { stream } => {
                write!(f, "the firm delay of stream {} is kept again", stream.0)
            }
            Self::Renegotiated { stream, contract } => {
                write!(f, "stream {} has a new contract: {contract}", stream.0)
            }
        }
    }
}

/// Why a new contract was not granted; the old one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenegotiateError {
    /// The contract is invalid.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// The contract does not fit.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is no such stream.
    #[error("stream {} is closed or never was; renegotiate a stream that is open", .0.0)]
    Closed(StreamId),
}
