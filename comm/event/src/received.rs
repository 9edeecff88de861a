//! An event as its reader gets it: a copy out of the exchange, in memory that can be used again.

use selvedge_control_event::{Attributes, Delivery, Event};
use selvedge_units::Instant;

/// An event as its reader gets it, for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// When it is of no more use, by [`Participant::now`](crate::Participant::now).
    pub deadline: Option<Instant>,
    /// Counts the channel's events on this host.
    pub sequence: u64,
    /// The record, in the channel's format.
    pub record: Vec<u8>,
    attributes: Vec<u8>,
}

impl Received {
    /// What rides on it.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes::parse(&self.attributes).unwrap_or_default()
    }

    /// As an event, to be published again.
    pub fn event(&self) -> Event<'_> {
        Event { deadline: self.deadline, attributes: self.attributes(), record: &self.record }
    }

    pub(crate) fn set(&mut self, delivery: &Delivery<'_>) {
        let Delivery { sequence, event, .. } = *delivery;
        (self.deadline, self.sequence) = (event.deadline, sequence);
        self.record.clear();
        self.record.extend_from_slice(event.record);
        self.attributes.clear();
        self.attributes.extend_from_slice(event.attributes.bytes());
    }
}
