//! An event on its way from its source to the channel, and from the channel to a sink.

use selvedge_units::Instant;

use crate::attribute::Attributes;

/// A sink of a channel; numbers are reused after a sink has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SinkId(pub(crate) u32);

/// A channel that is open on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelId(pub(crate) usize);

/// An event on its way to the sinks.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The deadline.
    pub deadline: Option<Instant>,
    /// The attributes.
    pub attributes: Attributes<'a>,
    /// The record, in the channel's format.
    pub record: &'a [u8],
}

/// An event as a sink gets it.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The sink that gets it.
    pub sink: SinkId,
    /// The number of the event among the channel's events on this host.
    pub sequence: u64,
    /// The event.
    pub event: Event<'a>,
}
