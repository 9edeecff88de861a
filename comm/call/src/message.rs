//! The messages of programs and services to each other over the service's control socket, beside shared memory.
//! `docs/ecalls.md` has examples.

use selvedge_comm_local::WakeMethod;
use selvedge_os::control;
use serde::{Deserialize, Serialize};

use crate::segment::Layout;

/// What a program asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    /// "What are you?" Answered with a [`Description`](crate::Description).
    Describe {},
    /// A generic call: the bytes behind it; its reply is the bytes behind the answer.
    Call {},
    /// "I want your events", in the memory that comes with it, called so; an eventfd comes with it, too, if
    /// it is called by that.
    Subscribe {
        up: Layout,
        #[serde(rename = "waking")]
        wake_method: WakeMethod,
        preference: Option<Preference>,
    },
}

/// The answer to a call, whose reply lies behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Called {}

/// The answer to a subscription, with the memory for calls, and the eventfd that calls the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subscribed {
    /// Whether the processor's scheduler will prefer the program for events, as it wished.
    pub(crate) preferred: bool,
}

/// Processor time that a subscriber wants for its events: the scheduler prefers it while it has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preference {
    /// Its period, in nanoseconds.
    pub period_ns: u64,
    /// Processor time in each period, in nanoseconds.
    pub service_ns: u64,
    /// It may miss `x` of any `y` periods.
    pub window: (u16, u16),
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

/// Reads bytes as a service does, for fuzzing: whether they are a message. What is one comes back from
/// its own text as it was.
#[doc(hidden)]
#[must_use]
pub fn is_message(bytes: &[u8]) -> bool {
    control::is_message::<Request>(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_no_part_of_one_is_one() {
        let preference = Preference { period_ns: 1 << 40, service_ns: 300, window: (1, 700) };
        let asks = [
            Request::Describe {},
            Request::Call {},
            Request::Subscribe {
                up: Layout::default(),
                wake_method: WakeMethod::Signal { number: 34, every: true },
                preference: Some(preference),
            },
        ];
        let mut counts = [0; 2];
        for ask in asks {
            let bytes = control::encode(&ask);
            assert!(is_message(&bytes));
            assert_eq!(control::decode(&bytes), Ok(ask));
            for end in 0..bytes.len() {
                assert!(!is_message(&bytes[..end]));
            }
            // One bit is wrong: refused, or another message; never more than that.
            for bit in 0..bytes.len() * 8 {
                let mut wrong = bytes.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                counts[usize::from(is_message(&wrong))] += 1;
            }
        }
        assert!(counts[0] > 10 && counts[1] > 10, "{counts:?}");
    }

    #[test]
    fn messages_are_as_the_documents_have_them() {
        let text = std::fs::read_to_string("../../docs/ecalls.md").expect("it is there");
        let examples = text.lines().filter(|line| line.starts_with("{\"v\""));
        assert_eq!(examples.inspect(|line| assert!(is_message(line.as_bytes()))).count(), 1);
    }
}
