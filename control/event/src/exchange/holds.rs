//! Events that an OUT filter holds back: each is sent when its time comes, unless another host
//! answers the same question before.

use selvedge_units::{Duration, Instant};

use crate::attribute::{Attributes, Value};
use crate::event::Event;

/// The attribute, a number, that names the question which an event answers. While an OUT filter
/// holds such an event back, another host's answer to the same question suppresses it. So of many
/// hosts that could answer, the one whose filter waits least does. If filters wait longer on busier
/// hosts, the least loaded host answers.
pub const ANSWERS: &str = "answers";
/// The longest time that an event is held back.
pub const HOLD_MAX: Duration = Duration::from_secs(10);
/// The largest number of events of a channel that are held back.
const HELD_BACK_MAX: usize = 64;

/// An event that is held back.
#[derive(Debug)]
pub(super) struct HeldBack {
    at: Instant,
    answers: Option<i64>,
    /// The members that the filter chose, as bits, and the event's number.
    pub(super) chosen: (u128, u64),
    deadline: Option<Instant>,
    attributes: Vec<u8>,
    record: Vec<u8>,
}

impl HeldBack {
    pub(super) fn event(&self) -> Event<'_> {
        let attributes = Attributes::parse(&self.attributes).unwrap_or_default();
        Event { deadline: self.deadline, attributes, record: &self.record }
    }
}

/// The events that a channel holds back.
#[derive(Debug, Default)]
pub(super) struct Holds {
    events: Vec<HeldBack>,
    suppressed: u64,
}

impl Holds {
    /// The number of events that were never sent: another host had answered, or there were too many.
    pub(super) fn suppressed(&self) -> u64 {
        self.suppressed
    }

    /// When the next event is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.events.iter().map(|held| held.at).min()
    }

    /// Holds an event back for a while; if there are too many, the one that is due next is dropped unsent.
    pub(super) fn push(
        &mut self,
        now: Instant,
        hold: Duration,
        event: Event<'_>,
        chosen: (u128, u64),
    ) {
        if self.events.len() >= HELD_BACK_MAX {
            let first = (0..self.events.len()).min_by_key(|place| self.events[*place].at);
            if let Some(first) = first {
                self.events.swap_remove(first);
                self.suppressed += 1;
            }
        }
        self.events.push(HeldBack {
            at: now + hold.min(HOLD_MAX),
            answers: answers(event.attributes),
            chosen,
            deadline: event.deadline,
            attributes: event.attributes.bytes().to_vec(),
            record: event.record.to_vec(),
        });
    }

    /// An event that is due and has not expired.
    pub(super) fn pop(&mut self, now: Instant) -> Option<HeldBack> {
        loop {
            let at = self.events.iter().position(|held| held.at <= now)?;
            let held = self.events.swap_remove(at);
            if held.deadline.is_none_or(|deadline| deadline >= now) {
                return Some(held);
            }
        }
    }

    /// Drops the events that answer the same question, since another host has answered it.
    pub(super) fn suppress(&mut self, attributes: Attributes<'_>) {
        if self.events.is_empty() {
            return;
        }
        if let Some(answered) = answers(attributes) {
            let before = self.events.len();
            self.events.retain(|held| held.answers != Some(answered));
            self.suppressed += (before - self.events.len()) as u64;
        }
    }
}

fn answers(attributes: Attributes<'_>) -> Option<i64> {
    match attributes.get(ANSWERS) {
        Some(Value::Long(number)) => Some(number),
        _ => None,
    }
}
