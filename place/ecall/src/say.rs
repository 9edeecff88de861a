//! What programs and services say to each other over the service's socket, beside shared memory. Encoded by
//! postcard, one message a packet.

use selvedge_local::Waking;
use serde::{Deserialize, Serialize};

use crate::segment::Layout;

/// What a program says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Ask<'a> {
    /// "What are you?"
    Describe,
    /// A generic call; an answer is waited for.
    Call {
        #[serde(with = "serde_bytes", borrow)]
        data: &'a [u8],
    },
    /// "I want your events", in the memory that comes with it, called so; an eventfd comes with it, too, if
    /// it is called by that.
    Subscribe { up: Layout, waking: Waking, preference: Option<Preference> },
}

/// What a service says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Told<'a> {
    Described {
        about: &'a str,
        calls: &'a str,
        events: &'a str,
    },
    Reply {
        #[serde(with = "serde_bytes", borrow)]
        data: &'a [u8],
    },
    Refused {
        why: &'a str,
    },
    /// With the memory for calls, and the eventfd that calls the service.
    Subscribed {
        /// Whether the processor's scheduler will prefer the program for events, as it wished.
        preferred: bool,
    },
}

/// Processor time that a subscriber wants for its events: the scheduler prefers it while it has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preference {
    /// Its period, in nanoseconds.
    pub period_ns: u64,
    /// Processor time in each period, in nanoseconds.
    pub service_ns: u64,
    /// It may miss `x` of any `y` periods.
    pub window: (u16, u16),
}

/// What is asked or told, as bytes; empty if it can't be encoded, which none of ours is.
pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_allocvec(message).unwrap_or_default()
}

/// `None` for what is none.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let (message, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(message)
}

/// When a call that came through memory is to be made: the tags of a call.
pub(crate) mod tag {
    /// When the service next runs.
    pub(crate) const FAST: u64 = u64::MAX;
    /// Before anything is dispatched to anybody.
    pub(crate) const BEFORE_DISPATCH: u64 = u64::MAX - 1;
    /// With the caller's next call.
    pub(crate) const NEXT_CALL: u64 = u64::MAX - 2;
    /// At once.
    pub(crate) const DIRECT: u64 = u64::MAX - 3;
    /// Smaller ones are instants of `CLOCK_MONOTONIC`.
    pub(crate) const FIRST: u64 = DIRECT;
}
