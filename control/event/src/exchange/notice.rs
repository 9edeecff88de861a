//! What a host is told of its channels' members, what others may do, and why a channel can't be opened.

use super::{CHANNEL_NAME_MAX, CHANNELS_MAX};
use crate::event::ChannelId;
use crate::format::FormatId;
use crate::formats::ReadError;
use crate::transmit::HostId;

/// The most notices that wait; older ones are dropped.
pub(super) const NOTICES_MAX: usize = 1024;

/// Something that a host is told of a channel's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The channel.
    pub channel: ChannelId,
    /// The other host.
    pub host: HostId,
    /// What happened.
    pub kind: NoticeKind,
}

/// What happened to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// It has opened the channel.
    Joined,
    /// It has left.
    Left,
    /// It was not heard for [`LEASE`](crate::LEASE): it has crashed, or the network is cut.
    Lost,
    /// What it sends can't be read, and why.
    Unreadable(ReadError),
    /// It did what it may not; told once for each right.
    Refused(Right),
    /// So many reliable events were dropped for it: it had not taken them, and others came.
    Undelivered(u64),
    /// So many reliable events of this member were dropped before they were taken here.
    Missed(u64),
}

/// What another host may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// Send events on a channel.
    Publish,
    /// Get events of a channel.
    Subscribe,
}

/// Says whether a host has a right on a channel.
pub type Permit = Box<dyn Fn(HostId, &str, Right) -> bool + Send>;

/// Why a channel can't be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Its name is empty or long.
    #[error("a channel's name has 1 to {CHANNEL_NAME_MAX} bytes, this one has {0}")]
    Name(usize),
    /// It is open with another format.
    #[error("\"{name}\" is open here with format {has}, not {wanted}; open it with the same")]
    Format {
        /// Its name.
        name: String,
        /// Its format.
        has: FormatId,
        /// The one that was asked for.
        wanted: FormatId,
    },
    /// Too many.
    #[error("{CHANNELS_MAX} channels are open on this host, which is the most; close some")]
    Full,
}
