//! The records that a scheduler takes and gives: heads of queues in; decisions and fates of frames out.

use selvedge_data_stream::Kind;
use selvedge_units::{Bytes, Instant};

/// A stream's index in a scheduler: the lowest that was free when it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamIndex(pub u32);

/// A frame that has reached the front of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// When the frame was enqueued, not when it became head.
    pub arrival: Instant,
    /// Its kind, which decides the window in which it is counted.
    pub kind: Kind,
    /// Its own deadline, used unchanged. `None`: by the contract, that is `arrival + delay` if it states a
    /// delay, else `max(previous frame's deadline, arrival) + period`.
    pub deadline: Option<Instant>,
    /// Its size, for the disciplines that share a link by bytes.
    pub size: Bytes,
}

impl Head {
    /// A frame of the kind `Data`, of one byte, that states no deadline: for disciplines that look at sizes,
    /// all such frames are alike.
    #[must_use]
    pub const fn arrived(arrival: Instant) -> Self {
        Self { arrival, kind: Kind::Data, deadline: None, size: Bytes(1) }
    }
}

/// The fate of a frame that missed its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is lost (`late = drop`): the stream has no head until the caller enqueues the next.
    Dropped,
    /// It stays head (`late = send`) and is due again.
    Kept {
        /// Its next deadline, after the instant of the poll.
        deadline: Instant,
    },
}

/// A head frame that missed its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The frame's stream.
    pub stream: StreamIndex,
    /// The deadline that it missed; the first of them, if there are several.
    pub deadline: Instant,
    /// How many deadlines this record stands for, at least 1. More than 1 only for a kept frame that was not
    /// polled for longer than its period: each elapsed period is a miss.
    pub misses: u64,
    /// Its fate.
    pub verdict: Verdict,
    /// Whether any of the misses violated the window-constraint.
    pub violation: bool,
}

/// What the caller must do at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A frame has missed its deadline; there may be more.
    Expired(Expiry),
    /// This stream's head must be sent.
    Send(StreamIndex),
    /// Nothing may go.
    Idle,
}

/// The fate of a head; see [`Scheduler::dequeue_or_expire`](crate::Scheduler::dequeue_or_expire).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The frame's stream.
    pub stream: StreamIndex,
    /// Its deadline.
    pub deadline: Instant,
    /// Whether it had missed its deadline and is dropped; otherwise it is sent.
    pub dropped: bool,
    /// Whether its loss violates the window-constraint.
    pub violation: bool,
}

/// A frame that was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dequeued {
    /// Its deadline, the last one if it was kept over several.
    pub deadline: Instant,
    /// Whether it had missed a deadline before.
    pub late: bool,
}
