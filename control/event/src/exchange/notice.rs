//! Notices about a host's channels and their members, the rights of other hosts, and errors of opening.

use super::{CHANNEL_NAME_MAX, CHANNELS_MAX};
use crate::event::ChannelId;
use crate::format::FormatId;
use crate::formats::ReadError;
use crate::transmit::HostId;

/// The largest number of waiting notices; older ones are dropped.
pub(super) const NOTICES_MAX: usize = 1024;

/// A notice to this host about a channel's member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The channel.
    pub channel: ChannelId,
    /// The other host.
    pub host: HostId,
    /// The event.
    pub kind: NoticeKind,
}

/// An event of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// The member has opened the channel.
    Joined,
    /// The member has left.
    Left,
    /// The member was silent for [`LEASE`](crate::LEASE): it has crashed, or the network is cut.
    Lost,
    /// The member's records can't be read, and why.
    Unreadable(ReadError),
    /// The member did something without the right; reported once for each right.
    Refused(Right),
    /// This number of reliable events was dropped for the member: it had not taken them, and others came.
    Undelivered(u64),
    /// This number of reliable events of the member was dropped before they were taken here.
    Missed(u64),
}

/// A right of another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// Send events on a channel.
    Publish,
    /// Get events of a channel.
    Subscribe,
}

/// Returns whether a host has a right on a channel.
pub type Permit = Box<dyn Fn(HostId, &str, Right) -> bool + Send>;

/// Why a channel can't be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The name is empty or too long.
    #[error("a channel's name has 1 to {CHANNEL_NAME_MAX} bytes, this one has {0}")]
    Name(usize),
    /// The channel is open with another format.
    #[error("\"{name}\" is open here with format {has}, not {wanted}; open it with the same")]
    Format {
        /// Its name.
        name: String,
        /// Its format.
        has: FormatId,
        /// The requested format.
        wanted: FormatId,
    },
    /// Too many channels are open.
    #[error("{CHANNELS_MAX} channels are open on this host, which is the most; close some")]
    Full,
}
