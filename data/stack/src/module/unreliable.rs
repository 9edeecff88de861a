//! Unreliable transport: connection-oriented, each message at most once.
//!
//! The header is the message's number, `u64`, big-endian. Messages are delivered in the order of
//! arrival. With `ordered`, messages that newer ones overtook are dropped at the end of their way
//! ([`Delivery`](crate::deliver::Delivery)), since elements may briefly reorder them.

use selvedge_data_net_secure::{SequenceStatus, Window};

use super::interface::{Call, Critical, Direction, Module, Outputs, Reason};
use crate::concurrency::{Concurrency, SingleThreaded, State};
use crate::message::Message;

/// Sends once, delivers at most once.
#[derive(Debug)]
pub struct Unreliable<C: Concurrency = SingleThreaded> {
    received: C::State<Window>,
}

impl<C: Concurrency> Default for Unreliable<C> {
    fn default() -> Self {
        Self { received: C::State::new(Window::new()) }
    }
}

impl<C: Concurrency> Module<C> for Unreliable<C> {
    fn critical(&self, direction: Direction) -> Critical {
        if direction == Direction::Up { Critical::Window } else { Critical::Nothing }
    }

    fn down(&self, mut message: Message, _: &Call<'_, C>, out: &mut Outputs) {
        message.push(&message.ticket.to_be_bytes());
        out.down(message);
    }

    fn up(&self, mut message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        let Some(number) = message.pull().map(u64::from_be_bytes) else {
            return call.drop(message, Reason::Malformed);
        };
        message.ticket = number;
        let standing = self.received.with(|window| window.mark(number));
        match standing {
            SequenceStatus::Newest | SequenceStatus::Late => out.up(message),
            SequenceStatus::Seen => call.drop(message, Reason::Duplicate),
            SequenceStatus::Beyond => call.drop(message, Reason::Late),
        }
    }

    fn wrap(&self, header: &mut Message, _: &[&[u8]], _: &Call<'_, C>) -> bool {
        header.push(&header.ticket.to_be_bytes());
        true
    }
}
