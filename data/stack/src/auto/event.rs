//! What the manager grants, sees and decides, for elements to enact and applications to know.

use selvedge_units::{Bytes, Duration};

use crate::assign::{Guarantee, Phase, Refusal};
use crate::contract::{Contract, ContractError};
use crate::model::StreamId;

/// What a stream was promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// By the model, in the configuration of that time.
    pub guarantee: Guarantee,
    /// Whether it is held to its contract, since nothing fits what it does.
    pub policed: bool,
    /// What the other host and the network take of the delay.
    pub remote_delay: Duration,
}

impl Granted {
    /// The longest that a message takes on both hosts and between them.
    #[must_use]
    pub fn from_end_to_end(&self) -> Duration {
        self.guarantee.latency + self.remote_delay
    }
}

/// What a stream does, or gets, that was not agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// It sends more often: the mean time between messages against the granted.
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
}

/// What the manager did, for the elements to enact and the application to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Streams are assigned anew.
    Reassigned {
        /// On whose account.
        stream: StreamId,
        /// By which phase.
        phase: Phase,
        /// Whose assignment changed.
        moved: Vec<StreamId>,
    },
    /// Something is wrong, for the first time or again after a decision.
    Violated {
        /// With whom.
        stream: StreamId,
        /// What.
        what: Violation,
    },
    /// Nothing fits; the stream is held to what it was granted. The application may send less, or
    /// renegotiate.
    Policed {
        /// Who.
        stream: StreamId,
        /// What stood in the way.
        refusal: Refusal,
    },
    /// It keeps to its contract again.
    Released {
        /// Who.
        stream: StreamId,
    },
    /// The other end has asked for this contract, and it holds from now on.
    Renegotiated {
        /// Whose.
        stream: StreamId,
        /// What was asked for.
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
            | Self::Renegotiated { stream, .. }
            | Self::Released { stream } => *stream == id,
        }
    }
}

/// Why new requirements were not granted; the old ones hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenegotiateError {
    /// They make no sense.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// They don't fit.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is no such stream.
    #[error("stream {} is closed or never was; renegotiate a stream that is open", .0.0)]
    Closed(StreamId),
}
