//! The manager's look at all streams: what is wrong with each, and what is done about it (section 4.3).

use selvedge_units::{Duration, Instant};

use super::super::{Event, Observed, Policer, Violation};
use super::Manager;
use crate::assign;
use crate::contract::Traffic;
use crate::model::StreamId;

/// The slack before a rate counts as exceeded: a sixteenth.
const SLACK: u64 = 16;

impl Manager {
    /// Looks at all streams: `observed` gives what was seen of each since the look before. What
    /// has been wrong for the activation delay is acted upon now.
    pub fn look(
        &mut self,
        now: Instant,
        mut observed: impl FnMut(StreamId) -> Observed,
        events: &mut Vec<Event>,
    ) {
        let elapsed = now.since(self.looked);
        let before = std::mem::replace(&mut self.looked, now);
        if elapsed == Duration::ZERO {
            return;
        }
        let mut due: Vec<(StreamId, Violation, Observed)> = Vec::new();
        let mut exceeded = false;
        for n in 0..self.books.len() {
            let id = StreamId(n);
            let seen = observed(id);
            if !self.books[n].open {
                continue;
            }
            let violation = self.violation(id, &seen, elapsed);
            let activation = self.meta.activation;
            let book = &mut self.books[n];
            if seen.left > 0 {
                book.experienced = seen.latency;
            }
            let Some(what) = violation else {
                (book.poor_since, book.told) = (None, false);
                let good_since = *book.good_since.get_or_insert(before);
                if book.policer.is_some() && now.since(good_since) >= activation {
                    (book.policer, book.granted.policed) = (None, false);
                    events.push(Event::Released { stream: id });
                }
                continue;
            };
            book.good_since = None;
            exceeded |= book.policer.is_none() && !matches!(what, Violation::Latency { .. });
            // It began at some time in the period that ends now.
            let since = *book.poor_since.get_or_insert(before);
            if !std::mem::replace(&mut book.told, true) {
                events.push(Event::Violated { stream: id, what });
            }
            if now.since(since) >= activation && book.policer.is_none() {
                due.push((id, what, seen));
            }
        }
        self.act(now, elapsed, exceeded, &due, events);
    }

    /// First those that send more than was granted; those that only suffer if nobody did
    /// (`exceeded`), since that is the likelier cause.
    fn act(
        &mut self,
        now: Instant,
        elapsed: Duration,
        exceeded: bool,
        due: &[(StreamId, Violation, Observed)],
        events: &mut Vec<Event>,
    ) {
        let suffers = |what: &Violation| matches!(what, Violation::Latency { .. });
        for (id, _, seen) in due.iter().filter(|(_, what, _)| !suffers(what)) {
            self.misbehaves(*id, seen, elapsed, events);
            self.books[id.0].poor_since = Some(now);
        }
        if exceeded {
            return;
        }
        for (id, ..) in due.iter().filter(|(_, what, _)| suffers(what)) {
            self.books[id.0].poor_since = Some(now);
            let standings = self.standings();
            let goal = self.meta.goal;
            let better = assign::improve(&self.machine, &self.streams, *id, &standings, goal);
            if let Some(found) = better {
                self.enact(*id, found, events);
            }
        }
    }

    /// The stream's own traffic exceeds what was granted: the heuristic with the traffic as it is,
    /// or policing.
    fn misbehaves(
        &mut self,
        id: StreamId,
        seen: &Observed,
        elapsed: Duration,
        events: &mut Vec<Event>,
    ) {
        let granted = self.streams[id.0].contract;
        let actual = actual(granted.traffic, seen, elapsed);
        self.streams[id.0].contract.traffic = actual;
        let standings = self.standings();
        match assign::assign(&self.machine, &self.streams, id, &standings, self.meta.goal) {
            Ok(decision) => {
                self.books[id.0].accepted = actual;
                self.enact(id, decision, events);
            }
            Err(refusal) => {
                self.streams[id.0].contract = granted;
                let book = &mut self.books[id.0];
                book.policer = Some(Policer::new(book.accepted));
                book.granted.policed = true;
                events.push(Event::Policed { stream: id, refusal });
            }
        }
    }

    fn violation(&self, id: StreamId, seen: &Observed, elapsed: Duration) -> Option<Violation> {
        let book = &self.books[id.0];
        let granted = book.accepted;
        if seen.largest > granted.largest {
            return Some(Violation::Size { observed: seen.largest, granted: granted.largest });
        }
        let expected = elapsed.0 / granted.average.0.max(1) + granted.burst();
        if seen.messages > expected + expected / SLACK {
            let observed = Duration(elapsed.0 / seen.messages);
            return Some(Violation::Rate { observed, granted: granted.average });
        }
        let bound = book.granted.guarantee.latency;
        if seen.left > 0 && seen.latency > bound {
            return Some(Violation::Latency { observed: seen.latency, granted: bound });
        }
        None
    }
}

/// The traffic descriptor of what was seen; never less than what was granted.
fn actual(granted: Traffic, seen: &Observed, elapsed: Duration) -> Traffic {
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
