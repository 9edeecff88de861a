//! What travels between two members of a channel: a format's description, a wish for one, an event.

use selvedge_units::Duration;
use serde::{Deserialize, Serialize};

use crate::attribute::{AttributeError, Attributes};
use crate::format::{Format, FormatId};

/// The longest message, in bytes: the largest record, all attributes, and the envelope.
pub const MESSAGE_MAX: usize = 72 * 1024;
/// The first byte of each message, so that peers of other versions are told apart.
const VERSION: u8 = 1;

/// A message. Its bytes are those that it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// "Records of this identity look so."
    Describe {
        /// The format's identity.
        format: FormatId,
        /// Its name.
        name: &'a str,
        /// Its canonical text.
        text: &'a str,
    },
    /// "What do records of this identity look like?"
    Request {
        /// The format's identity.
        format: FormatId,
    },
    /// A record.
    Event {
        /// What it looks like.
        format: FormatId,
        /// Counts this source's events on the channel.
        sequence: u64,
        /// How long after being sent it is still wanted; no clock is shared.
        left: Option<Duration>,
        /// What rides on it.
        attributes: Attributes<'a>,
        /// The record, as it lies in the sender's memory.
        record: &'a [u8],
    },
}

/// As it is encoded.
#[derive(Serialize, Deserialize)]
enum Wire<'a> {
    Describe {
        format: FormatId,
        name: &'a str,
        text: &'a str,
    },
    Request {
        format: FormatId,
    },
    Event {
        format: FormatId,
        sequence: u64,
        left_ns: Option<u64>,
        #[serde(with = "serde_bytes", borrow)]
        attributes: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        record: &'a [u8],
    },
}

/// Why a message can't be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// It has more than [`MESSAGE_MAX`] bytes.
    #[error("the message takes more than {MESSAGE_MAX} bytes; send less at a time")]
    TooLarge,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Too long.
    #[error("the message has {0} bytes, more than {MESSAGE_MAX}")]
    TooLarge(usize),
    /// A peer of another version.
    #[error("the message is of version {0}, and this understands {VERSION}; update the older peer")]
    Version(u8),
    /// Not a message of ours.
    #[error("the message ends in the middle, or is none; the sender is broken")]
    Malformed,
    /// Its attributes are wrong.
    #[error(transparent)]
    Attributes(#[from] AttributeError),
}

impl<'a> Message<'a> {
    /// The description of a format.
    pub fn describe(format: &'a Format) -> Self {
        Self::Describe { format: format.id(), name: format.name(), text: format.text() }
    }

    /// Appends the message to a buffer; allocates only while the buffer grows.
    ///
    /// # Errors
    /// If it is too large; the buffer is as before then.
    pub fn encode(&self, to: &mut Vec<u8>) -> Result<(), EncodeError> {
        let wire = match *self {
            Self::Describe { format, name, text } => Wire::Describe { format, name, text },
            Self::Request { format } => Wire::Request { format },
            Self::Event { format, sequence, left, attributes, record } => Wire::Event {
                format,
                sequence,
                left_ns: left.map(|span| span.0),
                attributes: attributes.bytes(),
                record,
            },
        };
        let content = match *self {
            Self::Describe { name, text, .. } => name.len() + text.len(),
            Self::Request { .. } => 0,
            Self::Event { attributes, record, .. } => attributes.bytes().len() + record.len(),
        };
        // Numbers take at most ten bytes each, and there are five at most.
        const ENVELOPE: usize = 64;
        if content + ENVELOPE > MESSAGE_MAX {
            return Err(EncodeError::TooLarge);
        }
        let start = to.len();
        to.resize(start + content + ENVELOPE, 0);
        to[start] = VERSION;
        let size = postcard::to_slice(&wire, &mut to[start + 1..]).map(|bytes| bytes.len()).ok();
        to.truncate(size.map_or(start, |size| start + 1 + size));
        size.map(|_| ()).ok_or(EncodeError::TooLarge)
    }

    /// Reads a message; allocates nothing.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MESSAGE_MAX {
            return Err(DecodeError::TooLarge(bytes.len()));
        }
        let (version, rest) = bytes.split_first().ok_or(DecodeError::Malformed)?;
        if *version != VERSION {
            return Err(DecodeError::Version(*version));
        }
        let (wire, after) =
            postcard::take_from_bytes::<Wire<'_>>(rest).map_err(|_| DecodeError::Malformed)?;
        if !after.is_empty() {
            return Err(DecodeError::Malformed);
        }
        Ok(match wire {
            Wire::Describe { format, name, text } => Self::Describe { format, name, text },
            Wire::Request { format } => Self::Request { format },
            Wire::Event { format, sequence, left_ns, attributes, record } => Self::Event {
                format,
                sequence,
                left: left_ns.map(Duration),
                attributes: Attributes::parse(attributes)?,
                record,
            },
        })
    }
}
