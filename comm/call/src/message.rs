//! What programs and services say to each other over the service's socket, beside shared memory. Encoded by
//! postcard, one message a packet.

use selvedge_comm_local::WakeMethod;
use serde::{Deserialize, Serialize};

use crate::segment::Layout;

/// What a program says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request<'a> {
    /// "What are you?"
    Describe,
    /// A generic call; an answer is waited for.
    Call {
        #[serde(with = "serde_bytes", borrow)]
        data: &'a [u8],
    },
    /// "I want your events", in the memory that comes with it, called so; an eventfd comes with it, too, if
    /// it is called by that.
    Subscribe { up: Layout, wake_method: WakeMethod, preference: Option<Preference> },
}

/// What a service says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Response<'a> {
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

/// Reads bytes as both sides do, for fuzzing: whether they are a message. What is one comes back from
/// its own bytes as it was, and is no longer than they can be.
#[doc(hidden)]
#[must_use]
pub fn is_message(bytes: &[u8]) -> bool {
    let ask: Option<Request<'_>> = decode(bytes);
    if let Some(ask) = &ask {
        let again = encode(ask);
        assert!(again.len() <= bytes.len(), "a message grew on its way");
        assert_eq!(decode::<Request<'_>>(&again).as_ref(), Some(ask));
    }
    let response: Option<Response<'_>> = decode(bytes);
    if let Some(response) = &response {
        let again = encode(response);
        assert!(again.len() <= bytes.len(), "a message grew on its way");
        assert_eq!(decode::<Response<'_>>(&again).as_ref(), Some(response));
    }
    ask.is_some() || response.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_no_part_of_one_is_one() {
        let preference = Preference { period_ns: 1 << 40, service_ns: 300, window: (1, 700) };
        let asks = [
            Request::Describe,
            Request::Call { data: b"what is called" },
            Request::Subscribe {
                up: Layout::default(),
                wake_method: WakeMethod::Signal { number: 34, every: true },
                preference: Some(preference),
            },
        ];
        let mut counts = [0; 2];
        for ask in asks {
            let bytes = encode(&ask);
            assert!(is_message(&bytes));
            assert_eq!(decode::<Request<'_>>(&bytes), Some(ask));
            for end in 0..bytes.len() {
                assert_eq!(decode::<Request<'_>>(&bytes[..end]), None);
            }
            // One bit is wrong: refused, or another message; never more than that.
            for bit in 0..bytes.len() * 8 {
                let mut wrong = bytes.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                counts[usize::from(is_message(&wrong))] += 1;
            }
        }
        assert!(counts[0] > 10 && counts[1] > 10, "{counts:?}");
        let response = Response::Described { about: "a", calls: "", events: "input { int x; };" };
        assert_eq!(decode::<Response<'_>>(&encode(&response)), Some(response));
        let mut long = encode(&Response::Refused { why: "no" });
        long.push(0);
        assert_eq!(decode::<Response<'_>>(&long), None);
    }
}
