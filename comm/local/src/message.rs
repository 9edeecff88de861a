//! The messages of members over their control socket, once each: their roles, and the memory into
//! which a source puts a sink's events. `docs/events-local.md` has examples.

use selvedge_control_event::Overflow;
use selvedge_os::control;
use serde::{Deserialize, Serialize};

/// How a sink is woken when it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum WakeMethod {
    /// By its mailbox's bell, a futex: for a thread that waits for nothing else.
    #[default]
    Futex,
    /// By an eventfd, for a program that waits for descriptors.
    Event,
    /// By a real-time signal with a value: the first eight bytes of the newest event.
    Signal {
        /// The signal: `SIGRTMIN()` to `SIGRTMAX()`.
        number: i32,
        /// Whether each event sends one, even while the sink is awake.
        every: bool,
    },
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Message {
    /// The first message, from both sides.
    Hello { channel: String, source: bool, sink: bool },
    /// From a sink to a source: its mailbox as a memfd, and its eventfd if it is woken by one.
    Attach {
        #[serde(rename = "waking")]
        wake_method: WakeMethod,
        full: Overflow,
    },
}

/// Parses bytes as a member does, for fuzzing; returns whether they are a message. A valid message
/// survives being encoded and parsed again.
#[doc(hidden)]
#[must_use]
pub fn is_message(bytes: &[u8]) -> bool {
    control::is_message::<Message>(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_no_part_of_one_is_one() {
        let wake_method = WakeMethod::Signal { number: -3, every: false };
        for say in [
            Message::Hello { channel: "load".to_owned(), source: true, sink: false },
            Message::Attach { wake_method, full: Overflow::Block },
        ] {
            let bytes = control::encode(&say);
            assert!(is_message(&bytes));
            assert_eq!(control::decode(&bytes), Ok(say));
            for end in 0..bytes.len() {
                assert!(!is_message(&bytes[..end]));
            }
            for bit in 0..bytes.len() * 8 {
                let mut wrong = bytes.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                let _ = is_message(&wrong);
            }
        }
    }

    #[test]
    fn messages_are_as_the_documents_have_them() {
        let text = std::fs::read_to_string("../../docs/events-local.md").expect("it is there");
        let examples = text.lines().filter(|line| line.starts_with("{\"v\""));
        assert_eq!(examples.inspect(|line| assert!(is_message(line.as_bytes()))).count(), 2);
    }
}
