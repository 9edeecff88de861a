//! Unreliable transport: connection-oriented, each message at most once.
//!
//! The header is the message's number, `u64`, big-endian. Messages are delivered as they come;
//! with `ordered`, those that newer ones overtook are dropped.

use std::sync::Mutex;

use super::window::{Standing, Window};
use super::{Call, Direction, Module, Outputs, Reason, lock};
use crate::message::Message;

/// Sends once, delivers at most once.
#[derive(Debug)]
pub struct Unreliable {
    ordered: bool,
    received: Mutex<Window>,
}

impl Unreliable {
    /// Delivers as messages come, or only those that no newer one overtook.
    #[must_use]
    pub const fn new(ordered: bool) -> Self {
        Self { ordered, received: Mutex::new(Window::new()) }
    }
}

impl Module for Unreliable {
    fn name(&self) -> &'static str {
        "unreliable"
    }

    fn handle(
        &self,
        direction: Direction,
        mut message: Message,
        call: &Call<'_>,
        out: &mut Outputs,
    ) {
        if direction == Direction::Down {
            message.push(&message.ticket.to_be_bytes());
            return out.down(message);
        }
        let Some(number) = message.pull().map(u64::from_be_bytes) else {
            return call.drop(message, Reason::Malformed);
        };
        message.ticket = number;
        let standing = lock(&self.received).mark(number);
        match standing {
            Standing::Newest => out.up(message),
            Standing::Late if !self.ordered => out.up(message),
            Standing::Seen => call.drop(message, Reason::Duplicate),
            Standing::Late | Standing::Beyond => call.drop(message, Reason::Late),
        }
    }
}
