//! What an application sends: bytes to be copied into the connection's buffers, or a message that is
//! in one already.

use crate::concurrency::MultiThreaded;
use selvedge_data_stack::message::{Buffers, Message};
use selvedge_data_stack::stack::Line;

/// What is sent.
#[derive(Debug)]
pub(super) enum What<'a> {
    /// To be copied.
    Bytes(&'a [u8]),
    /// To be copied one after the other.
    Parts(&'a [&'a [u8]]),
    /// To go as it is.
    Message(Message),
}

impl What<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Parts(parts) => parts.iter().map(|part| part.len()).sum(),
            Self::Message(message) => message.len(),
        }
    }

    /// Its bytes, if they lie in one piece.
    pub(super) fn in_one(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Parts(_) => None,
            Self::Message(message) => Some(message.bytes()),
        }
    }

    /// As a message in a buffer of this line.
    pub(super) fn message(&mut self, line: &Line<MultiThreaded>) -> Message {
        let len = self.len();
        match self {
            Self::Bytes(bytes) => Message::copy_of(bytes, line.buffers()),
            Self::Parts(parts) => {
                let mut message = Message::with_room(len, line.buffers());
                parts.iter().for_each(|part| message.append(part));
                message
            }
            Self::Message(message) => std::mem::take(message),
        }
    }

    /// Its buffer serves others, if it was not sent.
    pub(super) fn give_back(&mut self, buffers: &Buffers<MultiThreaded>) {
        if let Self::Message(message) = self {
            buffers.give(std::mem::take(message));
        }
    }
}
