//! Handlers in a stated order, each of which may change the event or keep it from the later ones.
//! After Q-Fabric's sections 3.2.2 and 3.2.5: preprocessing, and filtering before costlier steps.

use selvedge_units::Instant;

use crate::attribute::Attributes;
use crate::event::Event;
use crate::filter::{Filter, FilterInput, SharedBlocks, SinkState};

/// Whether the later handlers get the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continue {
    /// The later handlers get the event.
    Next,
    /// The event stops here: it is finished or not wanted.
    Stop,
}

/// An event on its way through handlers.
#[derive(Clone, Copy, Debug)]
pub struct HandlerEvent<'e> {
    /// The number of the event among its source's events.
    pub sequence: u64,
    /// The deadline.
    pub deadline: Option<Instant>,
    /// The attributes.
    pub attributes: Attributes<'e>,
}

/// The action of a handler; it may change the record, but not its length.
type Action<'h> = Box<dyn FnMut(&HandlerEvent<'_>, &mut [u8]) -> Continue + Send + 'h>;

enum Step<'h> {
    Call(Action<'h>),
    Filter(Box<Filter>),
}

/// Handlers in their order.
#[derive(Default)]
pub struct Handlers<'h> {
    steps: Vec<Step<'h>>,
    /// How often each was called, and how often it stopped an event.
    counts: Vec<(u64, u64)>,
    record: Vec<u8>,
}

impl std::fmt::Debug for Handlers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handlers").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl<'h> Handlers<'h> {
    /// Adds a handler after the others.
    pub fn add(
        &mut self,
        action: impl FnMut(&HandlerEvent<'_>, &mut [u8]) -> Continue + Send + 'h,
    ) -> &mut Self {
        self.push(Step::Call(Box::new(action)))
    }

    /// Adds a filter after the others: events that it refuses, or faults on, stop there.
    pub fn add_filter(&mut self, filter: Filter) -> &mut Self {
        self.push(Step::Filter(Box::new(filter)))
    }

    fn push(&mut self, step: Step<'h>) -> &mut Self {
        self.steps.push(step);
        self.counts.push((0, 0));
        self
    }

    /// How often each handler was called, and how often it stopped an event, in their order.
    #[must_use]
    pub fn counts(&self) -> &[(u64, u64)] {
        &self.counts
    }

    /// Runs the handlers on an event; returns the resulting record if no handler stopped it.
    /// Allocates only while records grow.
    pub fn run(
        &mut self,
        now: Instant,
        event: &HandlerEvent<'_>,
        record: &[u8],
        blocks: &mut SharedBlocks,
    ) -> Option<&[u8]> {
        self.record.clear();
        self.record.extend_from_slice(record);
        for (step, counts) in self.steps.iter_mut().zip(&mut self.counts) {
            counts.0 += 1;
            let then = match step {
                Step::Call(action) => action(event, &mut self.record),
                Step::Filter(filter) => ask(filter, now, event, &self.record, blocks),
            };
            if then == Continue::Stop {
                counts.1 += 1;
                return None;
            }
        }
        Some(&self.record)
    }
}

fn ask(
    filter: &mut Filter,
    now: Instant,
    event: &HandlerEvent<'_>,
    record: &[u8],
    blocks: &mut SharedBlocks,
) -> Continue {
    if record.len() != filter.input_size() {
        return Continue::Stop;
    }
    let HandlerEvent { sequence, deadline, attributes } = *event;
    let event = Event { deadline, attributes, record };
    let sinks = &[SinkState::default()];
    let question = FilterInput { event, now, sequence, sinks };
    match filter.ask(&question, blocks) {
        Ok(Some(_)) => Continue::Next,
        Ok(None) | Err(_) => Continue::Stop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, program};
    use selvedge_control_code::Interpreted;

    const NOW: Instant = Instant(100);

    fn event() -> HandlerEvent<'static> {
        HandlerEvent {
            sequence: 0,
            deadline: Some(Instant(105)),
            attributes: Attributes::default(),
        }
    }

    #[test]
    fn each_may_change_the_event_or_stop_the_next() {
        let mut blocks = SharedBlocks::default();
        let mut seen = Vec::new();
        let mut handlers = Handlers::default();
        handlers
            .add(|_, record| {
                record[0] += 1;
                Continue::Next
            })
            .add(|_, record| if record[0] > 5 { Continue::Stop } else { Continue::Next })
            .add(|_, record| {
                seen.push(record[0]);
                Continue::Next
            });
        assert_eq!(handlers.run(NOW, &event(), &[3], &mut blocks), Some(&[4][..]));
        assert_eq!(handlers.run(NOW, &event(), &[7], &mut blocks), None);
        assert_eq!(handlers.counts(), [(2, 0), (2, 1), (1, 0)]);
        drop(handlers);
        assert_eq!(seen, [4]);
    }

    #[test]
    fn filters_stand_among_them() {
        let format = Format::parse("f", "input { int cpu; };").unwrap();
        let source = "{ if (input.cpu > 80 && event.left == 5) return 1; return 0; }";
        let program = program("busy", source, &format).unwrap();
        let mut blocks = SharedBlocks::default();
        let filter = Filter::new(Box::new(Interpreted::new(program)), "s", &mut blocks).unwrap();
        let mut count = 0;
        let mut handlers = Handlers::default();
        handlers.add_filter(filter).add(|_, _| {
            count += 1;
            Continue::Next
        });
        for cpu in [90_i32, 70, 81] {
            let passed = handlers.run(NOW, &event(), &cpu.to_ne_bytes(), &mut blocks).is_some();
            assert_eq!(passed, cpu > 80);
        }
        assert_eq!(handlers.run(NOW, &event(), &[1], &mut blocks), None, "of another length");
        assert_eq!(handlers.counts(), [(4, 2), (2, 0)]);
        drop(handlers);
        assert_eq!(count, 2);
    }
}
