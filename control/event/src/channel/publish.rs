//! How an event gets to the sinks that want it, by the channel's filter, their own, and their room.

use selvedge_units::{Instant, Span};

use super::{Channel, Event, Fates, PublishError, Sink, SinkId, Wake};
use crate::filter::{Choice, Question, SINKS_MAX, SharedBlocks, SinkState};
use crate::queue::Waiting;

impl Channel {
    /// Sends an event to the sinks that want it; how many they are. Expired ones are taken, too, and
    /// counted when they would have been delivered. Linear in the sinks and their bounds.
    ///
    /// # Errors
    /// If nobody can have it; nothing is changed then.
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
            self.turned_away += 1;
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
                let waiting = Waiting { deadline: event.deadline, sequence, stored };
                self.stored[stored].uses += 1;
                let gone = sink.queue.push(waiting);
                let mine = gone == Some(waiting);
                if let Some(gone) = gone {
                    sink.fates.overflowed += 1;
                    self.release_but(gone.stored, stored);
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
            sink.fates.overflowed += 1;
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
        let (left, sent) = (left(now, event.deadline), sequence);
        let Event { record, attributes, .. } = event;
        let question = Question { record, attributes, left, sequence, sent, sinks };
        filter.ask(&question, blocks).ok().flatten().unwrap_or(Choice::NONE).sinks
    }

    fn states<'s>(&self, states: &'s mut [SinkState; SINKS_MAX]) -> &'s [SinkState] {
        for (state, sink) in states.iter_mut().zip(&self.sinks) {
            if let Some(sink) = sink {
                let Fates { delivered, expired, overflowed, faulted, .. } = sink.fates;
                let dropped = expired + overflowed + faulted;
                *state = SinkState { waiting: sink.queue.len() as u64, delivered, dropped };
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
            sink.fates.filtered += 1;
            return false;
        }
        let Some(filter) = &mut sink.filter else { return true };
        let left = left(now, event.deadline);
        let own = SinkState {
            waiting: sink.queue.len() as u64,
            delivered: sink.fates.delivered,
            dropped: sink.fates.expired + sink.fates.overflowed + sink.fates.faulted,
        };
        // An event filter sees its own sink only.
        let sinks = std::slice::from_ref(&own);
        let Event { record, attributes, .. } = event;
        let question = Question { record, attributes, left, sequence, sent: sequence, sinks };
        match filter.ask(&question, blocks) {
            Ok(Some(_)) => true,
            Ok(None) => {
                sink.fates.filtered += 1;
                false
            }
            Err(_) => {
                sink.fates.faulted += 1;
                false
            }
        }
    }

    /// As `release`, but the one that is being sent is given back by its sender.
    fn release_but(&mut self, stored: usize, sent: usize) {
        if stored == sent {
            self.stored[stored].uses -= 1;
        } else {
            self.release(stored);
        }
    }
}

/// How long until a deadline, in nanoseconds; 0 if it has passed.
fn left(now: Instant, deadline: Option<Instant>) -> Option<u64> {
    deadline.map(|deadline| {
        let Span(left) = deadline.since(now);
        left
    })
}
