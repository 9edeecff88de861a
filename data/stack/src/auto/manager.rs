//! The manager (the paper's CIM): grants, looks, decides.

use selvedge_units::{Bytes, Instant, Span};

use super::{Event, Granted, Meta, Observed, Policer, RenegotiateError, Violation};
use crate::assign::{self, Decision, Guarantee, Standing};
use crate::contract::{Contract, Traffic};
use crate::elements::Elements;
use crate::model::{Evaluation, Machine, Reading, Stream, StreamId};

#[derive(Clone, Debug)]
struct Book {
    open: bool,
    /// As the application stated it.
    stated: Contract,
    /// The traffic that the present configuration was made for.
    accepted: Traffic,
    granted: Granted,
    poor_since: Option<Instant>,
    /// What is wrong has been told and not acted upon in vain since.
    told: bool,
    good_since: Option<Instant>,
    policer: Option<Policer>,
    experienced: Span,
}

/// Decides for one host. It allocates when connections come, go or are moved, never per message.
#[derive(Clone, Debug)]
pub struct Manager {
    machine: Machine,
    streams: Vec<Stream>,
    books: Vec<Book>,
    meta: Meta,
    looked: Instant,
}

/// The slack before a rate counts as exceeded: a sixteenth.
const SLACK: u64 = 16;

impl Manager {
    /// A manager of these elements without connections.
    #[must_use]
    pub const fn new(machine: Machine, meta: Meta, now: Instant) -> Self {
        Self { machine, streams: Vec::new(), books: Vec::new(), meta, looked: now }
    }

    /// Grants a stream: the connection-time configuration of section 4.2. Streams that share a
    /// connection are granted one after the other; close the first if the second is refused.
    ///
    /// # Errors
    /// [`RenegotiateError::Contract`], [`RenegotiateError::Refused`]; nothing is changed then.
    pub fn open(&mut self, stream: Stream) -> Result<(StreamId, Decision), RenegotiateError> {
        let contract = stream.contract.check()?;
        let free = self.books.iter().position(|book| !book.open);
        let id = StreamId(free.unwrap_or(self.streams.len()));
        let mut streams = self.streams.clone();
        match free {
            Some(n) => streams[n] = stream,
            None => streams.push(stream),
        }
        let standings = self.standings();
        let decision = assign::assign(&self.machine, &streams, id, &standings, self.meta.goal)?;
        self.streams = decision.streams.clone();
        let book = Book {
            open: true,
            stated: contract,
            accepted: contract.traffic,
            granted: Granted { guarantee: decision.guarantee, ..Granted::default() },
            poor_since: None,
            told: false,
            good_since: None,
            policer: None,
            experienced: Span::ZERO,
        };
        match free {
            Some(n) => self.books[n] = book,
            None => self.books.push(book),
        }
        self.regrant(&decision, id);
        Ok((id, decision))
    }

    /// Closes a stream and gives what it leaves to those that got less than they asked for.
    pub fn close(&mut self, id: StreamId, events: &mut Vec<Event>) {
        let Some(book) = self.books.get_mut(id.0).filter(|book| book.open) else { return };
        book.open = false;
        self.streams[id.0].assign_all(Elements::EMPTY);
        self.redistribute(events);
    }

    /// States new requirements. They hold if they fit; else the old ones go on holding.
    ///
    /// # Errors
    /// [`RenegotiateError`].
    pub fn renegotiate(
        &mut self,
        id: StreamId,
        contract: Contract,
        events: &mut Vec<Event>,
    ) -> Result<Guarantee, RenegotiateError> {
        let elsewhere = self.streams.get(id.0).map_or(Span::ZERO, |stream| stream.elsewhere);
        self.renegotiate_with(id, contract, elsewhere, events)
    }

    /// What [`Manager::renegotiate`] would give now; nothing is changed.
    ///
    /// # Errors
    /// As [`Manager::renegotiate`].
    pub fn try_renegotiate(
        &self,
        id: StreamId,
        contract: Contract,
    ) -> Result<Guarantee, RenegotiateError> {
        self.clone().renegotiate(id, contract, &mut Vec::new())
    }

    /// [`Manager::renegotiate`], where the other host and the network take so much of the delay from
    /// now on.
    ///
    /// # Errors
    /// As [`Manager::renegotiate`]; what they took before is what counts then.
    pub fn renegotiate_with(
        &mut self,
        id: StreamId,
        contract: Contract,
        elsewhere: Span,
        events: &mut Vec<Event>,
    ) -> Result<Guarantee, RenegotiateError> {
        let contract = contract.check()?;
        if !self.books.get(id.0).is_some_and(|book| book.open) {
            return Err(RenegotiateError::Closed(id));
        }
        let stream = &mut self.streams[id.0];
        let before = (stream.contract, stream.elsewhere);
        (stream.contract, stream.elsewhere) = (contract, elsewhere);
        let standings = self.standings();
        let found = assign::assign(&self.machine, &self.streams, id, &standings, self.meta.goal);
        let decision = found.inspect_err(|_| {
            (self.streams[id.0].contract, self.streams[id.0].elsewhere) = before;
        })?;
        let book = &mut self.books[id.0];
        (book.stated, book.accepted) = (contract, contract.traffic);
        (book.poor_since, book.told, book.policer) = (None, false, None);
        let guarantee = decision.guarantee;
        self.enact(id, decision, events);
        Ok(guarantee)
    }

    /// Changes how the manager decides; from the next look on.
    pub fn set(&mut self, meta: Meta) {
        self.meta = meta;
    }

    /// How the manager decides.
    #[must_use]
    pub const fn meta(&self) -> Meta {
        self.meta
    }

    /// When the next look is due.
    #[must_use]
    pub fn next_look(&self) -> Instant {
        self.looked + self.meta.sampling
    }

    /// The configuration: all streams, closed ones without elements.
    #[must_use]
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// The elements and their costs.
    #[must_use]
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// New costs of a stream's modules, as profiled; they count from the next decision on.
    pub fn refresh(&mut self, id: StreamId, costs: &[crate::model::Cost]) {
        if let Some(stream) = self.streams.get_mut(id.0)
            && stream.modules.len() == costs.len()
        {
            stream.modules.copy_from_slice(costs);
        }
    }

    /// What an open stream was promised.
    #[must_use]
    pub fn granted(&self, id: StreamId) -> Option<Granted> {
        let book = self.books.get(id.0).filter(|book| book.open)?;
        let elsewhere = self.streams.get(id.0).map_or(Span::ZERO, |stream| stream.elsewhere);
        Some(Granted { elsewhere, ..book.granted })
    }

    /// What the other host and the network take of a stream's delay, as it answered.
    pub fn answered(&mut self, id: StreamId, elsewhere: Span) {
        if self.books.get(id.0).is_some_and(|book| book.open) {
            self.streams[id.0].elsewhere = elsewhere;
            self.refresh_guarantee(id);
        }
    }

    /// Whether a message may enter now; counts it if so. Only streams that are policed are held.
    ///
    /// # Errors
    /// [`super::Policed`].
    pub fn admit(&mut self, id: StreamId, now: Instant, size: Bytes) -> Result<(), super::Policed> {
        match self.books.get_mut(id.0).and_then(|book| book.policer.as_mut()) {
            Some(policer) => policer.admit(now, size),
            None => Ok(()),
        }
    }

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
        if elapsed == Span::ZERO {
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
        elapsed: Span,
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
        elapsed: Span,
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

    fn violation(&self, id: StreamId, seen: &Observed, elapsed: Span) -> Option<Violation> {
        let book = &self.books[id.0];
        let granted = book.accepted;
        if seen.largest > granted.largest {
            return Some(Violation::Size { observed: seen.largest, granted: granted.largest });
        }
        let expected = elapsed.0 / granted.average.0.max(1) + granted.burst();
        if seen.messages > expected + expected / SLACK {
            let observed = Span(elapsed.0 / seen.messages);
            return Some(Violation::Rate { observed, granted: granted.average });
        }
        let bound = book.granted.guarantee.latency;
        if seen.left > 0 && seen.latency > bound {
            return Some(Violation::Latency { observed: seen.latency, granted: bound });
        }
        None
    }

    fn standings(&self) -> Vec<Standing> {
        // Against what it asked for: those with the most room give first.
        let standing = |(book, stream): (&Book, &Stream)| Standing {
            experienced: book.experienced,
            guaranteed: stream.allowed(),
        };
        self.books.iter().zip(&self.streams).map(standing).collect()
    }

    fn enact(&mut self, id: StreamId, decision: Decision, events: &mut Vec<Event>) {
        self.regrant(&decision, id);
        self.streams = decision.streams;
        let book = &mut self.books[id.0];
        (book.policer, book.granted.policed) = (None, false);
        if !decision.moved.is_empty() {
            let (phase, moved) = (decision.phase, decision.moved);
            events.push(Event::Reassigned { stream: id, phase, moved });
        }
    }

    /// What a decision changes in what streams can rely on: in both ways for those moved, and only
    /// to the worse for others, whose bound still must be true.
    fn regrant(&mut self, decision: &Decision, who: StreamId) {
        let found = Evaluation::new(&self.machine, &decision.streams, Reading::Corrected);
        for (n, book) in self.books.iter_mut().enumerate().filter(|(_, book)| book.open) {
            let id = StreamId(n);
            let new = Guarantee::of(&found, id);
            if id == who
                || decision.moved.contains(&id)
                || new.latency > book.granted.guarantee.latency
            {
                book.granted.guarantee = new;
            }
        }
    }

    /// Streams that got less than they asked for: those that are policed, then by number.
    fn redistribute(&mut self, events: &mut Vec<Event>) {
        let mut short: Vec<(bool, StreamId)> = Vec::new();
        for (n, book) in self.books.iter().enumerate().filter(|(_, book)| book.open) {
            let late = book.granted.guarantee.latency > self.streams[n].allowed();
            if book.granted.policed || late {
                short.push((!book.granted.policed, StreamId(n)));
            }
        }
        short.sort_unstable();
        for (_, id) in short {
            if self.books[id.0].granted.policed {
                // It will be seen again, and its traffic tried again, at the next look.
                (self.books[id.0].policer, self.books[id.0].granted.policed) = (None, false);
                events.push(Event::Released { stream: id });
                continue;
            }
            let standings = self.standings();
            let goal = self.meta.goal;
            match assign::improve(&self.machine, &self.streams, id, &standings, goal) {
                Some(decision) => self.enact(id, decision, events),
                None => self.refresh_guarantee(id),
            }
        }
    }

    fn refresh_guarantee(&mut self, id: StreamId) {
        let found = Evaluation::new(&self.machine, &self.streams, Reading::Corrected);
        self.books[id.0].granted.guarantee = Guarantee::of(&found, id);
    }

    /// The contract as the application stated it.
    #[must_use]
    pub fn stated(&self, id: StreamId) -> Option<Contract> {
        self.books.get(id.0).filter(|book| book.open).map(|book| book.stated)
    }
}

/// The traffic descriptor of what was seen; never less than what was granted.
fn actual(granted: Traffic, seen: &Observed, elapsed: Span) -> Traffic {
    let expected = elapsed.0 / granted.average.0.max(1) + granted.burst();
    let average = if seen.messages > expected + expected / SLACK {
        Span((elapsed.0 / seen.messages).max(1)).min(granted.average)
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
