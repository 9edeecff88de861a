//! Messages that stay in one buffer between application and stack: written there before they are
//! posted, or read there after they arrived.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use selvedge_data_stack::message::Message;

use crate::element::Pipeline;
use crate::work::ConnectionChain;

/// A message in a buffer of its connection, to which the buffer returns.
#[derive(Debug)]
pub struct Buffer {
    message: Message,
    pipeline: Arc<Pipeline<ConnectionChain>>,
}

impl Buffer {
    pub(super) fn new(message: Message, pipeline: &Arc<Pipeline<ConnectionChain>>) -> Self {
        Self { message, pipeline: Arc::clone(pipeline) }
    }

    pub(super) fn into_message(mut self) -> Message {
        std::mem::take(&mut self.message).whole()
    }

    /// Moves the bytes into this vector, which is emptied first; without a copy where possible.
    pub(super) fn take_into(mut self, into: &mut Vec<u8>) {
        self.message.take_into(into);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pipeline.work().line.buffers().recycle(std::mem::take(&mut self.message));
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.message.bytes()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.message.bytes_mut()
    }
}
