//! Raised events that wait for delivery: earliest deadline first, then in the order of raising. And
//! calls that wait for their time. Pure: time is an argument.

use std::collections::BTreeMap;

use selvedge_units::Instant;

use crate::service::{DATA_MAX, EventSink, EventTarget, ServiceEventDraft};

/// The largest number of waiting events.
pub(crate) const EVENTS_MAX: usize = 4096;

/// An event that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The index of its service.
    pub(crate) service: usize,
    pub(crate) target: EventTarget,
    pub(crate) entry: Option<u32>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) cpu: bool,
    pub(crate) data: Vec<u8>,
}

/// Entries in the order of their instants; equal ones in the order of arrival.
#[derive(Debug)]
pub(crate) struct TimeQueue<T> {
    entries: BTreeMap<(Instant, u64), T>,
    /// The number of the next entry.
    number: u64,
    most: usize,
}

impl<T> TimeQueue<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self { entries: BTreeMap::new(), number: 0, most }
    }

    /// Adds an entry; returns it if there is no room.
    pub(crate) fn push(&mut self, at: Instant, what: T) -> Result<(), T> {
        if self.entries.len() >= self.most {
            return Err(what);
        }
        self.entries.insert((at, self.number), what);
        self.number += 1;
        Ok(())
    }

    /// When the first entry is due.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|(&(at, _), _)| at)
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.entries.pop_first().map(|(_, what)| what)
    }

    /// The first entry, if it is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<T> {
        if self.first()? <= now { self.pop() } else { None }
    }
}

/// Collects the events that a service raises.
pub(crate) struct EventCollector<'q> {
    pub(crate) queue: &'q mut TimeQueue<Event>,
    pub(crate) service: usize,
    pub(crate) subscribers: usize,
    pub(crate) raised: u64,
    /// The number of events that were too long, or too many.
    pub(crate) dropped: u64,
}

impl EventSink for EventCollector<'_> {
    fn raise(&mut self, event: ServiceEventDraft<'_>) {
        self.raised += 1;
        if event.data.len() > DATA_MAX {
            self.dropped += 1;
            return;
        }
        let ServiceEventDraft { target, data, entry, deadline, cpu } = event;
        let data = data.to_vec();
        let waits = Event { service: self.service, target, entry, deadline, cpu, data };
        if self.queue.push(deadline.unwrap_or(Instant::MAX), waits).is_err() {
            self.dropped += 1;
        }
    }

    fn subscribers(&self) -> usize {
        self.subscribers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_deadline_comes_first_then_as_raised() {
        let mut queue = TimeQueue::new(4);
        let mut raiser =
            EventCollector { queue: &mut queue, service: 3, subscribers: 1, raised: 0, dropped: 0 };
        raiser.raise(ServiceEventDraft::to_all(b"none"));
        raiser.raise(ServiceEventDraft::to_one(b"late").due(Instant(9)));
        raiser.raise(ServiceEventDraft::to_pid(1, b"soon").due(Instant(5)).preferred());
        raiser.raise(ServiceEventDraft::to_all(b"later").due(Instant(9)).at(2));
        raiser.raise(ServiceEventDraft::to_all(b"too many"));
        raiser.raise(ServiceEventDraft::to_all(&[0; DATA_MAX + 1]));
        assert_eq!((raiser.raised, raiser.dropped, raiser.subscribers()), (6, 2, 1));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|event| event.data).collect();
        assert_eq!(order, [&b"soon"[..], b"late", b"later", b"none"]);
    }

    #[test]
    fn what_waits_for_its_time_is_not_early() {
        let mut calls = TimeQueue::new(2);
        calls.push(Instant(20), 'b').unwrap();
        calls.push(Instant(10), 'a').unwrap();
        assert_eq!(calls.push(Instant(0), 'c'), Err('c'));
        assert_eq!(calls.pop_due(Instant(9)), None);
        assert_eq!(calls.pop_due(Instant(10)), Some('a'));
        assert_eq!(calls.first(), Some(Instant(20)));
    }
}
