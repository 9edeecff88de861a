//! The messages of programs and services over the service's control socket, beside shared memory.
//! `docs/ecalls.md` has examples.

use selvedge_comm_local::WakeMethod;
use selvedge_os::control;
use serde::{Deserialize, Serialize};

use crate::segment::Layout;

/// A request of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    /// Requests a [`Description`](crate::Description).
    Describe {},
    /// A generic call: its bytes follow the message, and its reply follows the answer.
    Call {},
    /// Subscribes to the events, in the memory that comes with it, with this wake-up method. An
    /// eventfd comes with it, too, if the program is woken by one.
    Subscribe {
        up: Layout,
        #[serde(rename = "waking")]
        wake_method: WakeMethod,
        preference: Option<Preference>,
    },
}

/// The answer to a call, followed by its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Called {}

/// The answer to a subscription, with the memory for calls, and the eventfd that wakes the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subscribed {
    /// Whether the processor's scheduler will prefer the program for events, as requested.
    pub(crate) preferred: bool,
}

/// Processor time that a subscriber requests for its events: the scheduler prefers it while events wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preference {
    /// The period, in nanoseconds.
    pub period_ns: u64,
    /// Processor time in each period, in nanoseconds.
    pub service_ns: u64,
    /// The window: it may miss `x` of any `y` periods.
    pub window: (u16, u16),
}

/// When a call through memory must be made: the tags of calls.
pub(crate) mod tag {
    /// When the service runs next.
    pub(crate) const FAST: u64 = u64::MAX;
    /// Before any event is dispatched.
    pub(crate) const BEFORE_DISPATCH: u64 = u64::MAX - 1;
    /// With the caller's next call.
    pub(crate) const NEXT_CALL: u64 = u64::MAX - 2;
    /// At once.
    pub(crate) const DIRECT: u64 = u64::MAX - 3;
    /// Smaller tags are instants of `CLOCK_MONOTONIC`.
    pub(crate) const FIRST: u64 = DIRECT;
}

/// Parses bytes as a service does, for fuzzing; returns whether they are a message. A valid message
/// survives being encoded and parsed again.
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
            // With one wrong bit the message is refused, or is another valid message.
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
