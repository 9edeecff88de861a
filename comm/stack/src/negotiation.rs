//! The messages in which the two ends of a live connection negotiate its contracts.
//!
//! These messages pass through the connection's own stack, so they are protected like its payload.
//! A byte after each message distinguishes it from the application's. A lost request is
//! retransmitted, and a duplicate gets the same answer as before.
//!
//! | text | what |
//! |---|---|
//! | `ask N out\|back CONTRACT` | the requester wants this contract for what it sends or receives |
//! | `yes N TIME` | the contract holds; a message takes at most TIME nanoseconds on this host |
//! | `no N WHY` | the contract does not fit; the previous one holds |

use selvedge_data_stack::contract::Contract;
use selvedge_data_stack::module::Direction;
use selvedge_units::Duration;

use crate::wire;

/// The longest message, in bytes.
pub(crate) const NEGOTIATION_MAX: usize = 400;

/// A message of a negotiation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Negotiation {
    /// A request for a contract of what the requester sends (`Down`) or receives (`Up`), with the
    /// longest that a message takes on the requester's host and in the network.
    Request(u64, Direction, Contract, Duration),
    /// The contract holds; the longest that a message takes on the answering host.
    Accept(u64, Duration),
    /// The contract does not fit, and why.
    Reject(u64, String),
}

impl Negotiation {
    pub(crate) fn text(&self) -> String {
        let mut text = match self {
            Self::Request(number, way, contract, here) => {
                let way = if *way == Direction::Down { "out" } else { "back" };
                format!("ask {number} {way} {}", wire::terms(contract, *here))
            }
            Self::Accept(number, here) => format!("yes {number} {}", here.0),
            Self::Reject(number, why) => format!("no {number} {why}"),
        };
        let end = (0..=NEGOTIATION_MAX.min(text.len())).rfind(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        text
    }

    /// Parses a message; `None` if it is not one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > NEGOTIATION_MAX {
            return None;
        }
        let text = str::from_utf8(bytes).ok()?;
        let (kind, rest) = text.split_once(' ')?;
        let (number, rest) = rest.split_once(' ')?;
        let number = number.parse().ok()?;
        Some(match kind {
            "ask" => {
                let (way, terms) = rest.split_once(' ')?;
                let way = match way {
                    "out" => Direction::Down,
                    "back" => Direction::Up,
                    _ => return None,
                };
                let (contract, here) = wire::termed(terms)?;
                Self::Request(number, way, contract, here)
            }
            "yes" => Self::Accept(number, Duration(rest.parse().ok()?)),
            // The text is shown to people, so control characters are escaped.
            "no" => Self::Reject(number, rest.chars().flat_map(char::escape_debug).collect()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use selvedge_data_stack::contract::{Promise, Quality, Traffic};
    use selvedge_units::Bytes;

    use super::*;

    #[test]
    fn talk_is_read_as_it_is_written_and_nothing_else_is() {
        let contract = Contract {
            traffic: Traffic::steady(Duration::from_millis(1), Bytes(1000)),
            quality: Quality {
                delay: Duration::from_millis(5),
                loss_burst: 3,
                promise: Promise::Firm,
            },
        };
        for talk in [
            Negotiation::Request(7, Direction::Down, contract, Duration(12)),
            Negotiation::Request(u64::MAX, Direction::Up, contract, Duration::ZERO),
            Negotiation::Accept(1, Duration(u64::MAX)),
            Negotiation::Reject(2, "a delay of 3 us; at best it is 4 us".to_owned()),
        ] {
            assert_eq!(Negotiation::parse(talk.text().as_bytes()), Some(talk));
        }
        for wrong in
            ["", "ask", "ask 1", "ask 1 out", "ask 1 up 1 1 1 1 1 1 0 0", "yes x 1", "yes 1 -1"]
        {
            assert_eq!(Negotiation::parse(wrong.as_bytes()), None, "{wrong}");
        }
        // An invalid contract.
        assert_eq!(Negotiation::parse(b"ask 1 out 0 0 0 0 0 0 0 0"), None);
        assert_eq!(Negotiation::parse(&[b'x'; NEGOTIATION_MAX + 1]), None);
        assert_eq!(Negotiation::parse(b"\xff\xfe 1 2"), None);
        let long = Negotiation::Reject(3, "\u{e9}".repeat(1000)).text();
        assert!(long.len() <= NEGOTIATION_MAX && Negotiation::parse(long.as_bytes()).is_some());
        let Some(Negotiation::Reject(_, why)) = Negotiation::parse(b"no 1 \x1b[2J") else {
            panic!("it is one")
        };
        assert!(!why.contains('\x1b'), "{why}");
    }
}
