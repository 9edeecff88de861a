//! The manager's sample of all streams: it finds deviations and reacts to them (section 4.3).

use selvedge_units::{Duration, Instant};

use super::super::{Event, Policer, TrafficSample, Violation};
use super::Manager;
use crate::assign;
use crate::contract::{LATE_ONE_IN, Promise, Traffic};
use crate::model::StreamId;

/// The slack before a rate counts as exceeded: a sixteenth.
const SLACK: u64 = 16;
/// Late messages of a firm stream that may come at once, before those of one in [`LATE_ONE_IN`] are used up.
const LATE_BURST: u64 = 10;

/// A stream that departed from its contract or its grant for long enough.
struct Deviation {
    id: StreamId,
    what: Violation,
    seen: TrafficSample,
    /// Since its sample before.
    elapsed: Duration,
}

impl Manager {
    /// Samples the streams that are due: `samples` returns the traffic of each since its last sample. Deviations
    /// that have lasted for the activation delay are acted upon now.
    pub fn sample(
        &mut self,
        now: Instant,
        mut samples: impl FnMut(StreamId) -> TrafficSample,
        events: &mut Vec<Event>,
    ) {
        self.last_sample = now;
        let mut due: Vec<Deviation> = Vec::new();
        let mut exceeded = false;
        for n in 0..self.records.len() {
            let id = StreamId(n);
            let before = self.records[n].last_sample;
            let elapsed = now.since(before);
            if !self.is_due(id, now) || elapsed == Duration::ZERO {
                continue;
            }
            let seen = samples(id);
            self.records[n].last_sample = now;
            self.count_late(id, &seen, events);
            let violation = self.violation(id, &seen, elapsed);
            let activation = self.settings(id).activation;
            let book = &mut self.records[n];
            if seen.left > 0 {
                book.experienced = seen.latency;
            }
            let Some(what) = violation else {
                (book.poor_since, book.reported) = (None, false);
                let good_since = *book.good_since.get_or_insert(before);
                if book.policer.is_some() && now.since(good_since) >= activation {
                    (book.policer, book.granted.policed) = (None, false);
                    events.push(Event::Released { stream: id });
                }
                continue;
            };
            book.good_since = None;
            exceeded |= book.policer.is_none() && !what.is_suffered();
            // It began at some time in the period that ends now.
            let since = *book.poor_since.get_or_insert(before);
            if !std::mem::replace(&mut book.reported, true) {
                events.push(Event::Violated { stream: id, what });
            }
            if now.since(since) >= activation && book.policer.is_none() {
                due.push(Deviation { id, what, seen, elapsed });
            }
        }
        self.react(now, exceeded, &due, events);
    }

    /// Reacts first to streams that exceed their grant. Streams that are only late are improved
    /// only if no stream did (`exceeded`), since excess is the likelier cause.
    fn react(&mut self, now: Instant, exceeded: bool, due: &[Deviation], events: &mut Vec<Event>) {
        for Deviation { id, seen, elapsed, .. } in due.iter().filter(|one| !one.what.is_suffered())
        {
            self.handle_excess(*id, seen, *elapsed, events);
            self.records[id.0].poor_since = Some(now);
        }
        if exceeded {
            return;
        }
        for Deviation { id, what, .. } in due.iter().filter(|one| one.what.is_suffered()) {
            self.records[id.0].poor_since = Some(now);
            let (latencies, goal) = (self.latencies(), self.settings(*id).goal);
            let better = assign::improve(&self.machine, &self.streams, *id, &latencies, goal);
            let firm = &mut self.records[id.0].firm;
            match better {
                Some(found) => {
                    // The new assignment is judged by the messages to come.
                    firm.excess = 0;
                    self.apply_decision(*id, found, events);
                }
                None if matches!(what, Violation::Late { .. }) && !firm.is_broken => {
                    firm.is_broken = true;
                    events.push(Event::Broken { stream: *id, what: *what });
                }
                None => {}
            }
        }
    }

    /// Counts the late messages of a stream with a firm delay against those that it may have.
    fn count_late(&mut self, id: StreamId, seen: &TrafficSample, events: &mut Vec<Event>) {
        let firm = &mut self.records[id.0].firm;
        let counted = firm.excess.saturating_add(seen.late.saturating_mul(LATE_ONE_IN));
        firm.excess = counted.saturating_sub(seen.left).min(2 * LATE_BURST * LATE_ONE_IN);
        if firm.excess == 0 && std::mem::take(&mut firm.is_broken) {
            events.push(Event::Mended { stream: id });
        }
    }

    /// Handles a stream that exceeds its grant: by the heuristic with the traffic as it is, or by policing.
    fn handle_excess(
        &mut self,
        id: StreamId,
        seen: &TrafficSample,
        elapsed: Duration,
        events: &mut Vec<Event>,
    ) {
        let granted = self.streams[id.0].contract;
        let actual = actual(granted.traffic, seen, elapsed);
        self.streams[id.0].contract.traffic = actual;
        let (latencies, goal) = (self.latencies(), self.settings(id).goal);
        match assign::assign(&self.machine, &self.streams, id, &latencies, goal) {
            Ok(decision) => {
                self.records[id.0].accepted = actual;
                self.apply_decision(id, decision, events);
            }
            Err(refusal) => {
                self.streams[id.0].contract = granted;
                let book = &mut self.records[id.0];
                book.policer = Some(Policer::new(book.accepted));
                book.granted.policed = true;
                events.push(Event::Policed { stream: id, refusal });
            }
        }
    }

    fn violation(
        &self,
        id: StreamId,
        seen: &TrafficSample,
        elapsed: Duration,
    ) -> Option<Violation> {
        let book = &self.records[id.0];
        let granted = book.accepted;
        if seen.largest > granted.largest {
            return Some(Violation::Size { samples: seen.largest, granted: granted.largest });
        }
        let expected = elapsed.0 / granted.average.0.max(1) + granted.burst();
        if seen.messages > expected + expected / SLACK {
            let samples = Duration(elapsed.0 / seen.messages);
            return Some(Violation::Rate { samples, granted: granted.average });
        }
        let bound = book.granted.guarantee.latency;
        let is_firm = self.streams[id.0].contract.quality.promise == Promise::Firm;
        if is_firm && book.firm.excess > LATE_BURST * LATE_ONE_IN {
            return Some(Violation::Late { longest: seen.latency_max, granted: bound });
        }
        if seen.left > 0 && seen.latency > bound {
            return Some(Violation::Latency { samples: seen.latency, granted: bound });
        }
        None
    }
}

/// The traffic descriptor of the observed traffic; never less than the grant.
fn actual(granted: Traffic, seen: &TrafficSample, elapsed: Duration) -> Traffic {
    let expected = elapsed.0 / granted.average.0.max(1) + granted.burst();
    let average = if seen.messages > expected + expected / SLACK {
        Duration((elapsed.0 / seen.messages).max(1)).min(granted.average)
    } else {
        granted.average
    };
    let closest = seen.closest.unwrap_or(granted.minimum);
    Traffic {
        average,
        minimum: granted.minimum.min(closest).min(average),
        interval: granted.interval.max(average),
        largest: granted.largest.max(seen.largest),
    }
}
