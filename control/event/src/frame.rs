//! What travels between two hosts: a channel's name with what concerns it.

use serde::{Deserialize, Serialize};

use crate::message::MESSAGE_MAX;

/// The longest frame: a message, a name and their lengths.
const FRAME_MAX: usize = MESSAGE_MAX + 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame<'a> {
    /// "I have this channel open", with sinks or without; the other is to answer likewise.
    Here { channel: &'a str, wants: bool, answer: bool },
    /// "I have it no more."
    Left { channel: &'a str },
    /// A message on a channel.
    Carry {
        channel: &'a str,
        #[serde(with = "serde_bytes", borrow)]
        message: &'a [u8],
    },
}

impl<'a> Frame<'a> {
    /// Appends the frame; every one that is made here fits.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        let start = to.len();
        let content = match self {
            Frame::Here { channel, .. } | Frame::Left { channel } => channel.len(),
            Frame::Carry { channel, message } => channel.len() + message.len(),
        };
        to.resize(start + content + 32, 0);
        let size = postcard::to_slice(self, &mut to[start..]).map_or(0, |bytes| bytes.len());
        to.truncate(start + size);
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > FRAME_MAX {
            return None;
        }
        let (frame, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(frame)
    }

    pub(crate) fn channel(&self) -> &'a str {
        match self {
            Frame::Here { channel, .. }
            | Frame::Left { channel }
            | Frame::Carry { channel, .. } => channel,
        }
    }
}
