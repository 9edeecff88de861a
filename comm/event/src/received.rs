//! An event as its reader gets it: copied out of the exchange, in memory that can be reused.

use selvedge_control_event::{Attributes, Delivery, Event};
use selvedge_units::Instant;

/// An event that its reader owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The deadline, by [`Participant::now`](crate::Participant::now).
    pub deadline: Option<Instant>,
    /// The number of the event among the channel's events on this host.
    pub sequence: u64,
    /// The record, in the channel's format.
    pub record: Vec<u8>,
    attributes: Vec<u8>,
}

impl Received {
    /// The attributes of the event.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes::parse(&self.attributes).unwrap_or_default()
    }

    /// The event in the form in which it can be published again.
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
