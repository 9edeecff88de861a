//! The frames between two hosts: a channel's name with a message about it.

use serde::{Deserialize, Serialize};

use crate::message::MESSAGE_MAX;

/// The longest frame: a message, a name and their lengths.
const FRAME_MAX: usize = MESSAGE_MAX + 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame<'a> {
    /// The sender has this channel open, with sinks or without; with `answer` the other host must
    /// answer likewise.
    Announce { channel: &'a str, wants: bool, answer: bool },
    /// The sender has left the channel.
    Leave { channel: &'a str },
    /// A message on a channel.
    Event {
        channel: &'a str,
        #[serde(with = "serde_bytes", borrow)]
        message: &'a [u8],
    },
    /// A message that is retransmitted until it was taken, and the number of its predecessor.
    Reliable {
        channel: &'a str,
        number: u64,
        before: u64,
        #[serde(with = "serde_bytes", borrow)]
        message: &'a [u8],
    },
    /// The sender has taken all up to this number, and has room for `room` more; with `again` the
    /// other host retransmits from there.
    Credit { channel: &'a str, through: u64, room: u64, again: bool },
    /// The receiver must continue after this number; `dropped` is the total of events dropped for it.
    Skip { channel: &'a str, to: u64, dropped: u64 },
    /// A message between the hosts' managers.
    Control {
        #[serde(with = "serde_bytes", borrow)]
        bytes: &'a [u8],
    },
}

impl<'a> Frame<'a> {
    /// Appends the frame; every frame that is made here fits.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        let start = to.len();
        let content = match self {
            Frame::Announce { channel, .. }
            | Frame::Leave { channel }
            | Frame::Credit { channel, .. }
            | Frame::Skip { channel, .. } => channel.len(),
            Frame::Event { channel, message } | Frame::Reliable { channel, message, .. } => {
                channel.len() + message.len()
            }
            Frame::Control { bytes } => bytes.len(),
        };
        to.resize(start + content + 48, 0);
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

    /// The channel of the frame; `None` for managers' messages.
    pub(crate) fn channel(&self) -> Option<&'a str> {
        match self {
            Frame::Announce { channel, .. }
            | Frame::Leave { channel }
            | Frame::Event { channel, .. }
            | Frame::Reliable { channel, .. }
            | Frame::Credit { channel, .. }
            | Frame::Skip { channel, .. } => Some(channel),
            Frame::Control { .. } => None,
        }
    }
}
