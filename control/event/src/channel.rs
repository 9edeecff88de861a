//! A channel's end on one host: sinks with their queues, filters, and dispatch by deadline. Sources
//! and sinks do not know each other, and this module does not know the transport.
//!
//! An event is stored once, for all sinks. Memory for events is allocated as they come and reused;
//! once the stores have grown to the sum of the bounds, nothing is allocated.

use std::sync::Arc;

use selvedge_units::Instant;
use serde::{Deserialize, Serialize};

use crate::attribute::Attributes;
use crate::event::{Delivery, Event, SinkId};
use crate::filter::{Filter, FilterInput, FilterResult, SINKS_MAX, SharedBlocks, SinkState};
use crate::format::Format;
use crate::queue::{Overflow, Queue, QueuedEvent};

/// The longest queue of a sink.
pub const BOUND_MAX: usize = 4096;

/// The sinks that get an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Every sink.
    All,
    /// One sink, in turn.
    One,
}

/// A sink's options.
#[derive(Debug)]
pub struct Subscription {
    /// The largest number of waiting events, 1 to [`BOUND_MAX`].
    pub bound: usize,
    /// The rule beyond that.
    pub overflow: Overflow,
    /// The filter of its events.
    pub filter: Option<Filter>,
}

/// The fates of the events for a sink; each event is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkCounts {
    /// Events that were delivered to it.
    pub delivered: u64,
    /// Events that its own filter refused, or for which the channel's filter did not choose it.
    pub filtered: u64,
    /// Events whose deadline passed before their delivery.
    pub expired: u64,
    /// Events for which there was no room.
    pub overflowed: u64,
    /// Events whose filtering a fault ended.
    pub faulted: u64,
}

impl SinkCounts {
    /// The state of the sink for filters, while `waiting` events wait for it.
    fn state(self, waiting: usize) -> SinkState {
        let Self { delivered, expired, overflowed, faulted, .. } = self;
        let dropped = expired + overflowed + faulted;
        SinkState { waiting: waiting as u64, delivered, dropped }
    }
}

/// Why an event was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The record's size differs from that of the channel's format.
    #[error("the record has {size} bytes, and the channel's format {wanted}")]
    Size {
        /// The record's size.
        size: usize,
        /// The format's size.
        wanted: usize,
    },
    /// A blocking sink has no room: no sink got the event. The source tries again when there is room.
    #[error("a sink that blocks its sources has no room; wait, or give it another overflow rule")]
    Blocked(SinkId),
    /// A member is behind, and this event had to wait for it: no sink got it.
    #[error("a member has not taken half of what can be kept for it; wait until it has taken some")]
    Behind,
}

/// Why a sink can't subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// The channel is full.
    #[error("the channel has {SINKS_MAX} sinks on this host, which is the most; share one")]
    Full,
    /// The channel is not open on this host.
    #[error("the channel is not open on this host; open it first")]
    Closed,
    /// The bound is out of range.
    #[error("a bound is from 1 to {BOUND_MAX}, not {0}")]
    Bound(usize),
}

#[derive(Debug)]
struct Sink {
    queue: Queue,
    filter: Option<Filter>,
    sink_counts: SinkCounts,
}

#[derive(Debug, Default)]
struct StoredEvent {
    record: Vec<u8>,
    attributes: Vec<u8>,
    /// The number of queues that hold the event.
    uses: usize,
}

/// An event that was taken out of a sink's queue, and stays stored until the next is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    sink: SinkId,
    waiting: QueuedEvent,
}

/// A channel's end on one host.
#[derive(Debug)]
pub struct Channel {
    name: Arc<str>,
    format: Format,
    wake: Wake,
    sinks: Vec<Option<Sink>>,
    /// The filter that is called for each event before any sink.
    filter: Option<Filter>,
    stored: Vec<StoredEvent>,
    free: Vec<usize>,
    /// The place of the last delivered event, to be freed at the next turn.
    taken: Option<usize>,
    sent: u64,
    rejected: u64,
    turn: usize,
}

impl Channel {
    /// A channel without sinks.
    pub fn new(name: &str, format: Format, wake: Wake) -> Self {
        Self {
            name: name.into(),
            format,
            wake,
            sinks: Vec::new(),
            filter: None,
            stored: Vec::new(),
            free: Vec::new(),
            taken: None,
            sent: 0,
            rejected: 0,
            turn: 0,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name, for callers that keep it.
    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// The format of its records.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Whether there are any sinks here.
    pub fn has_sinks(&self) -> bool {
        self.sinks.iter().any(Option::is_some)
    }

    /// Sets or removes the channel filter.
    pub fn set_filter(&mut self, filter: Option<Filter>) {
        self.filter = filter;
    }

    /// How often a fault ended the channel filter; `None` without one.
    pub fn filter_faults(&self) -> Option<u64> {
        self.filter.as_ref().map(Filter::faults)
    }

    /// Adds a sink.
    ///
    /// # Errors
    /// If there is no room for another sink, or its bound is out of range.
    pub fn subscribe(&mut self, wish: Subscription) -> Result<SinkId, SubscribeError> {
        if !(1..=BOUND_MAX).contains(&wish.bound) {
            return Err(SubscribeError::Bound(wish.bound));
        }
        let queue = Queue::new(wish.bound, wish.overflow);
        let sink = Some(Sink { queue, filter: wish.filter, sink_counts: SinkCounts::default() });
        let at = match self.sinks.iter().position(Option::is_none) {
            Some(at) => {
                self.sinks[at] = sink;
                at
            }
            None if self.sinks.len() < SINKS_MAX => {
                self.sinks.push(sink);
                self.sinks.len() - 1
            }
            None => return Err(SubscribeError::Full),
        };
        Ok(SinkId(at as u32))
    }

    /// Removes a sink with all events that wait for it; returns the fates of its events.
    pub fn leave(&mut self, sink: SinkId) -> Option<SinkCounts> {
        let mut gone = self.sinks.get_mut(sink.0 as usize)?.take()?;
        while let Some(waiting) = gone.queue.pop() {
            self.release(waiting.stored);
        }
        Some(gone.sink_counts)
    }

    /// The fates of a sink's events.
    pub fn sink_counts(&self, sink: SinkId) -> Option<SinkCounts> {
        self.sinks.get(sink.0 as usize)?.as_ref().map(|sink| sink.sink_counts)
    }

    /// The number of sent events, and of those that the channel filter kept from all sinks.
    pub fn sent(&self) -> (u64, u64) {
        (self.sent, self.rejected)
    }

    /// The least number of events that a blocking sink has room for; `None` if no sink blocks.
    pub fn room(&self) -> Option<usize> {
        self.sinks.iter().flatten().filter_map(|sink| sink.queue.room()).min()
    }

    /// Whether an event waits for a sink; it may have expired.
    pub fn has_event(&self, sink: SinkId) -> bool {
        self.first(sink.0 as usize).is_some()
    }

    /// The sinks with the fates of their events.
    pub fn sinks(&self) -> impl Iterator<Item = (SinkId, SinkCounts)> {
        let sinks = self.sinks.iter().enumerate();
        sinks.filter_map(|(at, sink)| Some((SinkId(at as u32), sink.as_ref()?.sink_counts)))
    }

    fn store(&mut self, event: Event<'_>) -> usize {
        let at = self.free.pop().unwrap_or_else(|| {
            self.stored.push(StoredEvent::default());
            self.stored.len() - 1
        });
        let stored = &mut self.stored[at];
        stored.record.clear();
        stored.record.extend_from_slice(event.record);
        stored.attributes.clear();
        stored.attributes.extend_from_slice(event.attributes.bytes());
        at
    }

    fn release(&mut self, stored: usize) {
        self.stored[stored].uses -= 1;
        if self.stored[stored].uses == 0 {
            self.free.push(stored);
        }
    }

    /// Sends an event to the sinks that want it; returns their number. Expired events are accepted,
    /// too, and counted when they would have been delivered. Linear in the sinks and their bounds.
    ///
    /// # Errors
    /// If no sink can take it; then nothing is changed.
    pub fn publish(
        &mut self,
        now: Instant,
        event: Event<'_>,
        blocks: &mut SharedBlocks,
    ) -> Result<usize, PublishError> {
        let (size, wanted) = (event.record.len(), self.format.size());
        if size != wanted {
            return Err(PublishError::Size { size, wanted });
        }
        let blocking = |sink: &Option<Sink>| sink.as_ref().is_some_and(|one| one.queue.blocks());
        if let Some(at) = self.sinks.iter().position(blocking) {
            return Err(PublishError::Blocked(SinkId(at as u32)));
        }
        let sequence = self.sent;
        self.sent += 1;
        let chosen = self.chosen(now, event, sequence, blocks);
        if chosen == 0 {
            self.rejected += 1;
        }
        if !self.has_sinks() {
            return Ok(0);
        }
        let stored = self.store(event);
        let count = self.sinks.len();
        let (mut got, mut passed_over) = (0, None);
        for step in 0..count {
            let at = if self.wake == Wake::One { (self.turn + step) % count } else { step };
            let Some(mut sink) = self.sinks[at].take() else { continue };
            let wanted =
                self.wants(&mut sink, chosen >> at & 1 == 1, (now, event, sequence), blocks);
            if wanted && self.wake == Wake::One && sink.queue.refuses() {
                // Another sink may have room.
                passed_over = passed_over.or(Some(at));
                self.sinks[at] = Some(sink);
            } else if wanted {
                let waiting = QueuedEvent { deadline: event.deadline, sequence, stored };
                self.stored[stored].uses += 1;
                let gone = sink.queue.push(waiting);
                let mine = gone == Some(waiting);
                if let Some(gone) = gone {
                    sink.sink_counts.overflowed += 1;
                    self.release_except(gone.stored, stored);
                }
                got += usize::from(!mine);
                self.sinks[at] = Some(sink);
                if self.wake == Wake::One && !mine {
                    self.turn = at + 1;
                    break;
                }
            } else {
                self.sinks[at] = Some(sink);
            }
        }
        if self.stored[stored].uses == 0 {
            self.free.push(stored);
        }
        if let (0, Some(sink)) = (got, passed_over.and_then(|at| self.sinks[at].as_mut())) {
            sink.sink_counts.overflowed += 1;
        }
        Ok(got)
    }

    /// The sinks that the channel filter chooses, as bits.
    fn chosen(
        &mut self,
        now: Instant,
        event: Event<'_>,
        sequence: u64,
        blocks: &mut SharedBlocks,
    ) -> u128 {
        if self.filter.is_none() {
            return u128::MAX;
        }
        let mut states = [SinkState::default(); SINKS_MAX];
        let sinks = self.states(&mut states);
        let Some(filter) = &mut self.filter else { return u128::MAX };
        let question = FilterInput { event, now, sequence, sinks };
        filter.ask(&question, blocks).ok().flatten().unwrap_or(FilterResult::NONE).sinks
    }

    fn states<'s>(&self, states: &'s mut [SinkState; SINKS_MAX]) -> &'s [SinkState] {
        for (state, sink) in states.iter_mut().zip(&self.sinks) {
            if let Some(sink) = sink {
                *state = sink.sink_counts.state(sink.queue.len());
            }
        }
        &states[..self.sinks.len()]
    }

    fn wants(
        &self,
        sink: &mut Sink,
        chosen: bool,
        (now, event, sequence): (Instant, Event<'_>, u64),
        blocks: &mut SharedBlocks,
    ) -> bool {
        if !chosen {
            sink.sink_counts.filtered += 1;
            return false;
        }
        let Some(filter) = &mut sink.filter else { return true };
        // An event filter sees only its own sink.
        let own = sink.sink_counts.state(sink.queue.len());
        let question = FilterInput { event, now, sequence, sinks: &[own] };
        match filter.ask(&question, blocks) {
            Ok(Some(_)) => true,
            Ok(None) => {
                sink.sink_counts.filtered += 1;
                false
            }
            Err(_) => {
                sink.sink_counts.faulted += 1;
                false
            }
        }
    }

    /// As `release`, except for the event that is being sent: its sender frees it.
    fn release_except(&mut self, stored: usize, sent: usize) {
        if stored == sent {
            self.stored[stored].uses -= 1;
        } else {
            self.release(stored);
        }
    }

    /// The next delivery: of all waiting events, the one with the earliest deadline; without
    /// deadlines, in order. Events whose deadline has passed are dropped and counted.
    pub fn poll(&mut self, now: Instant) -> Option<Delivery<'_>> {
        let taken = self.take(now, None)?;
        Some(self.delivery(taken))
    }

    /// The next event of one sink.
    pub fn poll_sink(&mut self, now: Instant, sink: SinkId) -> Option<Delivery<'_>> {
        let taken = self.take(now, Some(sink))?;
        Some(self.delivery(taken))
    }

    /// Takes the next event, of one sink or of any, out of its queue.
    pub(crate) fn take(&mut self, now: Instant, only: Option<SinkId>) -> Option<Taken> {
        if let Some(taken) = self.taken.take() {
            self.release(taken);
        }
        let within = only.map_or(0..self.sinks.len(), |sink| {
            let at = sink.0 as usize;
            at..(at + 1).min(self.sinks.len()).max(at)
        });
        for at in within.clone() {
            while let Some(late) = self.first(at).filter(|waiting| waiting.is_expired(now)) {
                let sink = self.sinks[at].as_mut()?;
                sink.queue.pop();
                sink.sink_counts.expired += 1;
                self.release(late.stored);
            }
        }
        let heads = within.filter_map(|at| self.first(at).map(|waiting| (waiting.rank(), at)));
        let (_, at) = heads.min()?;
        let sink = self.sinks[at].as_mut()?;
        let waiting = sink.queue.pop()?;
        sink.sink_counts.delivered += 1;
        self.taken = Some(waiting.stored);
        Some(Taken { sink: SinkId(at as u32), waiting })
    }

    /// The event that was taken last.
    pub(crate) fn delivery(&self, Taken { sink, waiting }: Taken) -> Delivery<'_> {
        let stored = &self.stored[waiting.stored];
        let attributes = Attributes::parse(&stored.attributes).unwrap_or_default();
        let event = Event { deadline: waiting.deadline, attributes, record: &stored.record };
        Delivery { sink, sequence: waiting.sequence, event }
    }

    fn first(&self, sink: usize) -> Option<QueuedEvent> {
        self.sinks.get(sink)?.as_ref()?.queue.first()
    }
}
