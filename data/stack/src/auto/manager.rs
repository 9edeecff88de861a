//! The manager (the paper's CIM): it grants, samples and decides.

mod sample;

use selvedge_units::{Bytes, Duration, Instant};

use super::{Event, Granted, ManagerSettings, Policer, RenegotiateError};
use crate::assign::{self, Decision, Guarantee, Refusal, StreamLatency};
use crate::contract::{Contract, Traffic};
use crate::elements::ElementSet;
use crate::model::{Evaluation, Formulas, Machine, Stream, StreamId};

#[derive(Clone, Debug)]
struct StreamRecord {
    open: bool,
    /// The contract as the application stated it.
    declared: Contract,
    /// The traffic that the present configuration was made for.
    accepted: Traffic,
    granted: Granted,
    poor_since: Option<Instant>,
    /// Whether the present deviation was reported; it is reported once.
    reported: bool,
    good_since: Option<Instant>,
    policer: Option<Policer>,
    experienced: Duration,
    firm: FirmRecord,
    /// Its own settings, if it has some.
    settings: Option<ManagerSettings>,
    last_sample: Instant,
}

/// How a firm delay is kept.
#[derive(Clone, Copy, Debug, Default)]
struct FirmRecord {
    /// [`LATE_ONE_IN`] for each late message, less one for each message; never below zero.
    excess: u64,
    /// It is not kept, and no assignment is better.
    is_broken: bool,
}

/// Decides for one host. It allocates when connections open, close or are moved, never per message.
#[derive(Clone, Debug)]
pub struct Manager {
    machine: Machine,
    streams: Vec<Stream>,
    records: Vec<StreamRecord>,
    meta: ManagerSettings,
    last_sample: Instant,
}

impl Manager {
    /// A manager of these elements without connections.
    #[must_use]
    pub const fn new(machine: Machine, meta: ManagerSettings, now: Instant) -> Self {
        Self { machine, streams: Vec::new(), records: Vec::new(), meta, last_sample: now }
    }

    /// Grants a stream: the connection-time configuration of section 4.2. Streams of one connection
    /// are granted one after the other; the caller closes the first if the second is refused.
    ///
    /// While a firm delay is broken none is granted.
    ///
    /// # Errors
    /// [`RenegotiateError::Contract`], [`RenegotiateError::Refused`]; then nothing is changed.
    pub fn open(&mut self, stream: Stream) -> Result<(StreamId, Decision), RenegotiateError> {
        let contract = stream.contract.check()?;
        let is_broken = |book: &StreamRecord| book.open && book.firm.is_broken;
        if let Some(broken) = self.records.iter().position(is_broken) {
            return Err(Refusal::Broken(StreamId(broken)).into());
        }
        let free = self.records.iter().position(|book| !book.open);
        let id = StreamId(free.unwrap_or(self.streams.len()));
        let mut streams = self.streams.clone();
        match free {
            Some(n) => streams[n] = stream,
            None => streams.push(stream),
        }
        let latencies = self.latencies();
        let decision = assign::assign(&self.machine, &streams, id, &latencies, self.meta.goal)?;
        self.streams = decision.streams.clone();
        let book = StreamRecord {
            open: true,
            declared: contract,
            accepted: contract.traffic,
            granted: Granted { guarantee: decision.guarantee, ..Granted::default() },
            poor_since: None,
            reported: false,
            good_since: None,
            policer: None,
            experienced: Duration::ZERO,
            firm: FirmRecord::default(),
            settings: None,
            last_sample: self.last_sample,
        };
        match free {
            Some(n) => self.records[n] = book,
            None => self.records.push(book),
        }
        self.update_guarantees(&decision, id);
        Ok((id, decision))
    }

    /// Closes a stream and gives its share to those that got less than they requested.
    pub fn close(&mut self, id: StreamId, events: &mut Vec<Event>) {
        let Some(book) = self.records.get_mut(id.0).filter(|book| book.open) else { return };
        book.open = false;
        self.streams[id.0].assign_all(ElementSet::EMPTY);
        self.redistribute(events);
    }

    /// Requests a new contract for a stream. It holds if it fits; otherwise the old one still holds.
    pub fn renegotiate(
        &mut self,
        id: StreamId,
        contract: Contract,
        events: &mut Vec<Event>,
    ) -> Result<Guarantee, RenegotiateError> {
        let remote_delay =
            self.streams.get(id.0).map_or(Duration::ZERO, |stream| stream.remote_delay);
        self.renegotiate_with(id, contract, remote_delay, events)
    }

    /// What [`Manager::renegotiate`] would return now; nothing is changed.
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

    /// [`Manager::renegotiate`], with a new value for the part of the delay that the other host and
    /// the network take.
    ///
    /// # Errors
    /// As [`Manager::renegotiate`]; then the previous part still counts.
    pub fn renegotiate_with(
        &mut self,
        id: StreamId,
        contract: Contract,
        remote_delay: Duration,
        events: &mut Vec<Event>,
    ) -> Result<Guarantee, RenegotiateError> {
        let contract = contract.check()?;
        if !self.records.get(id.0).is_some_and(|book| book.open) {
            return Err(RenegotiateError::Closed(id));
        }
        let stream = &mut self.streams[id.0];
        let before = (stream.contract, stream.remote_delay);
        (stream.contract, stream.remote_delay) = (contract, remote_delay);
        let (latencies, goal) = (self.latencies(), self.settings(id).goal);
        let found = assign::assign(&self.machine, &self.streams, id, &latencies, goal);
        let decision = found.inspect_err(|_| {
            (self.streams[id.0].contract, self.streams[id.0].remote_delay) = before;
        })?;
        let book = &mut self.records[id.0];
        (book.declared, book.accepted) = (contract, contract.traffic);
        (book.poor_since, book.reported, book.policer) = (None, false, None);
        book.firm = FirmRecord::default();
        let guarantee = decision.guarantee;
        self.apply_decision(id, decision, events);
        Ok(guarantee)
    }

    /// Assigns a module of a stream by hand, the first in its direction being 0. No decision moves the stream's
    /// modules from then on, until a call with no element.
    ///
    /// # Errors
    /// [`RenegotiateError::Closed`]; [`RenegotiateError::Refused`] if an element or the module does not exist, or
    /// if a condition or a firm delay were broken. Then nothing is changed.
    pub fn pin(
        &mut self,
        id: StreamId,
        module: usize,
        elements: ElementSet,
        events: &mut Vec<Event>,
    ) -> Result<Guarantee, RenegotiateError> {
        if !self.records.get(id.0).is_some_and(|book| book.open) {
            return Err(RenegotiateError::Closed(id));
        }
        let mut streams = self.streams.clone();
        let stream = &mut streams[id.0];
        let exist = ElementSet::first(self.machine.available.len());
        let missing = elements.without(exist);
        if module >= stream.modules.len() || !missing.is_empty() {
            return Err(Refusal::NoSuchPlace { module, missing }.into());
        }
        stream.is_pinned = !elements.is_empty();
        if stream.is_pinned {
            stream.assigned[module] = elements;
        }
        let (latencies, goal) = (self.latencies(), self.settings(id).goal);
        let mut decision = assign::assign(&self.machine, &streams, id, &latencies, goal)?;
        if streams[id.0].assigned != self.streams[id.0].assigned && !decision.moved.contains(&id) {
            decision.moved.push(id);
        }
        let guarantee = decision.guarantee;
        self.apply_decision(id, decision, events);
        self.records[id.0].firm = FirmRecord::default();
        Ok(guarantee)
    }

    /// Changes the settings, from the next sample on.
    pub fn set(&mut self, meta: ManagerSettings) {
        self.meta = meta;
    }

    /// Gives a stream settings of its own, from its next sample on, or with `None` those of all others again.
    pub fn set_own(&mut self, id: StreamId, settings: Option<ManagerSettings>) {
        if let Some(book) = self.records.get_mut(id.0).filter(|book| book.open) {
            book.settings = settings;
        }
    }

    /// The settings of streams that have none of their own.
    #[must_use]
    pub const fn meta(&self) -> ManagerSettings {
        self.meta
    }

    /// The settings of a stream of its own.
    #[must_use]
    pub fn own_settings(&self, id: StreamId) -> Option<ManagerSettings> {
        self.records.get(id.0).filter(|book| book.open)?.settings
    }

    /// The settings that count for a stream.
    #[must_use]
    pub fn settings(&self, id: StreamId) -> ManagerSettings {
        self.own_settings(id).unwrap_or(self.meta)
    }

    /// When the next sample of a stream is due. O(streams).
    #[must_use]
    pub fn next_sample(&self) -> Instant {
        let open = self.records.iter().filter(|book| book.open);
        let next =
            |book: &StreamRecord| book.last_sample + book.settings.unwrap_or(self.meta).sampling;
        open.map(next).min().unwrap_or(self.last_sample + self.meta.sampling)
    }

    /// Whether a stream's sample is due.
    #[must_use]
    pub fn is_due(&self, id: StreamId, now: Instant) -> bool {
        let book = self.records.get(id.0).filter(|book| book.open);
        book.is_some_and(|book| now >= book.last_sample + self.settings(id).sampling)
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

    /// Sets new costs of a stream's modules, as measured; they count from the next decision on.
    pub fn refresh(&mut self, id: StreamId, costs: &[crate::model::Cost]) {
        if let Some(stream) = self.streams.get_mut(id.0)
            && stream.modules.len() == costs.len()
        {
            stream.modules.copy_from_slice(costs);
        }
    }

    /// The grant of an open stream.
    #[must_use]
    pub fn granted(&self, id: StreamId) -> Option<Granted> {
        let book = self.records.get(id.0).filter(|book| book.open)?;
        let remote_delay =
            self.streams.get(id.0).map_or(Duration::ZERO, |stream| stream.remote_delay);
        Some(Granted { remote_delay, ..book.granted })
    }

    /// Sets the part of a stream's delay that the other host and the network take, as the peer reported it.
    pub fn answered(&mut self, id: StreamId, remote_delay: Duration) {
        if self.records.get(id.0).is_some_and(|book| book.open) {
            self.streams[id.0].remote_delay = remote_delay;
            self.refresh_guarantee(id);
        }
    }

    /// Whether a message may enter now; counts it if so. Only streams that are policed are limited.
    pub fn admit(
        &mut self,
        id: StreamId,
        now: Instant,
        size: Bytes,
    ) -> Result<(), super::PolicingError> {
        match self.records.get_mut(id.0).and_then(|book| book.policer.as_mut()) {
            Some(policer) => policer.admit(now, size),
            None => Ok(()),
        }
    }

    fn latencies(&self) -> Vec<StreamLatency> {
        // Measured against the requested latency: streams with the most slack give way first.
        let standing = |(book, stream): (&StreamRecord, &Stream)| StreamLatency {
            experienced: book.experienced,
            guaranteed: stream.allowed(),
        };
        self.records.iter().zip(&self.streams).map(standing).collect()
    }

    fn apply_decision(&mut self, id: StreamId, decision: Decision, events: &mut Vec<Event>) {
        self.update_guarantees(&decision, id);
        self.streams = decision.streams;
        let book = &mut self.records[id.0];
        (book.policer, book.granted.policed) = (None, false);
        if !decision.moved.is_empty() {
            let (phase, moved) = (decision.phase, decision.moved);
            events.push(Event::Reassigned { stream: id, phase, moved });
        }
    }

    /// Updates the guarantees after a decision: those of moved streams in any case, those of others
    /// only if they became worse, so that every bound remains true.
    fn update_guarantees(&mut self, decision: &Decision, who: StreamId) {
        let found = Evaluation::new(&self.machine, &decision.streams, Formulas::Corrected);
        for (n, book) in self.records.iter_mut().enumerate().filter(|(_, book)| book.open) {
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

    /// Improves streams that got less than they requested: first those that are policed, then by number.
    fn redistribute(&mut self, events: &mut Vec<Event>) {
        let mut short: Vec<(bool, StreamId)> = Vec::new();
        for (n, book) in self.records.iter().enumerate().filter(|(_, book)| book.open) {
            let late = book.granted.guarantee.latency > self.streams[n].allowed();
            if book.granted.policed || late {
                short.push((!book.granted.policed, StreamId(n)));
            }
        }
        short.sort_unstable();
        for (_, id) in short {
            if self.records[id.0].granted.policed {
                // The next sample observes the stream again, and its traffic gets another decision.
                (self.records[id.0].policer, self.records[id.0].granted.policed) = (None, false);
                events.push(Event::Released { stream: id });
                continue;
            }
            let (latencies, goal) = (self.latencies(), self.settings(id).goal);
            match assign::improve(&self.machine, &self.streams, id, &latencies, goal) {
                Some(decision) => self.apply_decision(id, decision, events),
                None => self.refresh_guarantee(id),
            }
        }
    }

    fn refresh_guarantee(&mut self, id: StreamId) {
        let found = Evaluation::new(&self.machine, &self.streams, Formulas::Corrected);
        self.records[id.0].granted.guarantee = Guarantee::of(&found, id);
    }

    /// The contract as the application stated it.
    #[must_use]
    pub fn declared(&self, id: StreamId) -> Option<Contract> {
        self.records.get(id.0).filter(|book| book.open).map(|book| book.declared)
    }
}
