//! The messages between two members of a channel: a format's description, a request for one, an event.

use selvedge_units::Duration;
use serde::{Deserialize, Serialize};

use crate::attribute::{AttributeError, Attributes};
use crate::format::{Format, FormatId};

/// The longest message, in bytes: the largest record, all attributes, and the envelope.
pub const MESSAGE_MAX: usize = 72 * 1024;
/// The first byte of each message, which distinguishes peers of other versions.
const VERSION: u8 = 1;

/// A message. It borrows the bytes that it was decoded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Describes a format.
    Describe {
        /// The format's identity.
        format: FormatId,
        /// Its name.
        name: &'a str,
        /// Its canonical text.
        text: &'a str,
    },
    /// Requests the description of a format.
    Request {
        /// The format's identity.
        format: FormatId,
    },
    /// A record.
    Event {
        /// Its format.
        format: FormatId,
        /// The number of the event among this source's events on the channel.
        sequence: u64,
        /// The time that was left until its deadline when it was sent; no clock is shared.
        left: Option<Duration>,
        /// The attributes.
        attributes: Attributes<'a>,
        /// The record, as it lies in the sender's memory.
        record: &'a [u8],
    },
}

/// The encoded form.
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
    /// The message has more than [`MESSAGE_MAX`] bytes.
    #[error("the message takes more than {MESSAGE_MAX} bytes; send less at a time")]
    TooLarge,
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are too many.
    #[error("the message has {0} bytes, more than {MESSAGE_MAX}")]
    TooLarge(usize),
    /// The peer has another version.
    #[error("the message is of version {0}, and this understands {VERSION}; update the older peer")]
    Version(u8),
    /// The bytes are not a message of this protocol.
    #[error("the message ends in the middle, or is none; the sender is broken")]
    Malformed,
    /// The attributes are invalid.
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
    /// If it is too large; then the buffer is unchanged.
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

    /// Decodes a message; allocates nothing.
    ///
    /// # Errors
    /// The error in the bytes.
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
