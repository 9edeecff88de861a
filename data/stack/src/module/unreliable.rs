//! Unreliable transport: connection-oriented, each message at most once.
//!
//! The header is the message's number, `u64`, big-endian. Messages are delivered as they come;
//! with `ordered`, those that newer ones overtook are dropped, at the end of their way
//! ([`Delivery`](crate::deliver::Delivery)), since elements may exchange them for a moment.

use std::sync::Mutex;

use super::window::{Standing, Window};
use super::{Call, Critical, Direction, Module, Outputs, Reason, lock};
use crate::message::Message;

/// Sends once, delivers at most once.
#[derive(Debug)]
pub struct Unreliable {
    received: Mutex<Window>,
}

impl Default for Unreliable {
    fn default() -> Self {
        Self { received: Mutex::new(Window::new()) }
    }
}

impl Module for Unreliable {
    fn name(&self) -> &'static str {
        "unreliable"
    }

    fn critical(&self, direction: Direction) -> Critical {
        if direction == Direction::Up { Critical::Window } else { Critical::Nothing }
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
            Standing::Newest | Standing::Late => out.up(message),
            Standing::Seen => call.drop(message, Reason::Duplicate),
            Standing::Beyond => call.drop(message, Reason::Late),
        }
    }
    fn wrap(&self, header: &mut Message, _: &[&[u8]], _: &Call<'_>) -> bool {
        header.push(&header.ticket.to_be_bytes());
        true
    }
}
