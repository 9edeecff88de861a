//! What was sent and not yet reported.

use std::collections::VecDeque;

use selvedge_units::{Bytes, Instant};

/// Packets of a path under way that its sending end remembers, at most: three seconds of 30 Mbit/s. Older ones
/// are left out.
pub const UNDER_WAY_MAX: usize = 8_192;

/// A packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) size: Bytes,
    /// Whether the sender paused before it.
    pub(crate) is_paused: bool,
}

/// Packets' numbers follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("packet {number} follows packet {before}; number packets one by one")]
pub struct SentError {
    /// The packet's number.
    pub number: u64,
    /// That of the packet before.
    pub before: u64,
}

/// Packets under way, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unreported {
    first: u64,
    packets: VecDeque<Sent>,
}

impl Unreported {
    /// The number of the packet that is sent next, if one was sent.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    pub(crate) fn handle_sent(&mut self, number: u64, sent: Sent) -> Result<(), SentError> {
        if self.next() == 0 {
            self.first = number;
        } else if number != self.next() {
            return Err(SentError { number, before: self.next() - 1 });
        }
        if self.packets.len() == UNDER_WAY_MAX {
            self.packets.pop_front();
            self.first += 1;
        }
        self.packets.push_back(sent);
        Ok(())
    }

    /// The number of the oldest packet of which nothing is known.
    pub(crate) const fn first(&self) -> u64 {
        self.first
    }

    /// When the oldest packet of which nothing is known was sent.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.packets.front().map(|sent| sent.at)
    }

    /// Takes the oldest packet if its number is below this.
    pub(crate) fn take_before(&mut self, end: u64) -> Option<(u64, Sent)> {
        if self.first >= end {
            return None;
        }
        let sent = self.packets.pop_front()?;
        self.first += 1;
        Some((self.first - 1, sent))
    }
}
