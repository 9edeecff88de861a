//! The user interface. Its proxy part, which copies, runs in the application's call
//! ([`Stack::handle_message`](crate::stack::Stack::handle_message)); this is the remote part, which
//! checks the size.

use super::interface::{Call, Module, Outputs, Reason};
use crate::concurrency::Concurrency;
use crate::message::Message;

/// The remote part of the user interface.
#[derive(Debug)]
pub struct Ui {
    largest: usize,
}

impl Ui {
    /// Accepts messages of at most this size.
    #[must_use]
    pub const fn new(largest: usize) -> Self {
        Self { largest }
    }
}

impl<C: Concurrency> Module<C> for Ui {
    fn down(&self, message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        if message.len() > self.largest {
            return call.drop(message, Reason::TooLarge);
        }
        out.down(message);
    }

    fn up(&self, message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        if message.len() > self.largest {
            return call.drop(message, Reason::TooLarge);
        }
        out.up(message);
    }

    fn wrap(&self, header: &mut Message, parts: &[&[u8]], _: &Call<'_, C>) -> bool {
        header.len() + parts.iter().map(|part| part.len()).sum::<usize>() <= self.largest
    }
}
