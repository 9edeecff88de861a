//! The manager (the paper's CIM): grants, looks, decides.

mod sample;

use selvedge_units::{Bytes, Duration, Instant};

use super::{Event, Granted, ManagerSettings, Policer, RenegotiateError};
use crate::assign::{self, Decision, Guarantee, StreamLatency};
use crate::contract::{Contract, Traffic};
use crate::elements::ElementSet;
use crate::model::{Evaluation, Formulas, Machine, Stream, StreamId};

#[derive(Clone, Debug)]
struct StreamRecord {
    open: bool,
    /// As the application stated it.
    declared: Contract,
    /// The traffic that the present configuration was made for.
    accepted: Traffic,
    granted: Granted,
    poor_since: Option<Instant>,
    /// What is wrong has been told and not acted upon in vain since.
    reported: bool,
    good_since: Option<Instant>,
    policer: Option<Policer>,
    experienced: Duration,
}

/// Decides for one host. It allocates when connections come, go or are moved, never per message.
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

    /// Grants a stream: the connection-time configuration of section 4.2. Streams that share a
    /// connection are granted one after the other; close the first if the second is refused.
    ///
    /// # Errors
    /// [`RenegotiateError::Contract`], [`RenegotiateError::Refused`]; nothing is changed then.
    pub fn open(&mut self, stream: Stream) -> Result<(StreamId, Decision), RenegotiateError> {
        let contract = stream.contract.check()?;
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
        };
        match free {
            Some(n) => self.records[n] = book,
            None => self.records.push(book),
        }
        self.update_guarantees(&decision, id);
        Ok((id, decision))
    }

    /// Closes a stream and gives what it leaves to those that got less than they asked for.
    pub fn close(&mut self, id: StreamId, events: &mut Vec<Event>) {
        let Some(book) = self.records.get_mut(id.0).filter(|book| book.open) else { return };
        book.open = false;
        self.streams[id.0].assign_all(ElementSet::EMPTY);
        self.redistribute(events);
    }

    /// States new requirements. They hold if they fit; else the old ones go on holding.
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
        let latencies = self.latencies();
        let found = assign::assign(&self.machine, &self.streams, id, &latencies, self.meta.goal);
        let decision = found.inspect_err(|_| {
            (self.streams[id.0].contract, self.streams[id.0].remote_delay) = before;
        })?;
        let book = &mut self.records[id.0];
        (book.declared, book.accepted) = (contract, contract.traffic);
        (book.poor_since, book.reported, book.policer) = (None, false, None);
        let guarantee = decision.guarantee;
        self.apply_decision(id, decision, events);
        Ok(guarantee)
    }

    /// Changes how the manager decides; from the next look on.
    pub fn set(&mut self, meta: ManagerSettings) {
        self.meta = meta;
    }

    /// How the manager decides.
    #[must_use]
    pub const fn meta(&self) -> ManagerSettings {
        self.meta
    }

    /// When the next look is due.
    #[must_use]
    pub fn next_sample(&self) -> Instant {
        self.last_sample + self.meta.sampling
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
        let book = self.records.get(id.0).filter(|book| book.open)?;
        let remote_delay =
            self.streams.get(id.0).map_or(Duration::ZERO, |stream| stream.remote_delay);
        Some(Granted { remote_delay, ..book.granted })
    }

    /// What the other host and the network take of a stream's delay, as it answered.
    pub fn answered(&mut self, id: StreamId, remote_delay: Duration) {
        if self.records.get(id.0).is_some_and(|book| book.open) {
            self.streams[id.0].remote_delay = remote_delay;
            self.refresh_guarantee(id);
        }
    }

    /// Whether a message may enter now; counts it if so. Only streams that are policed are held.
    ///
    /// # Errors
    /// [`super::PolicingError`].
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
        // Against what it asked for: those with the most room give first.
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

    /// What a decision changes in what streams can rely on: in both ways for those moved, and only
    /// to the worse for others, whose bound still must be true.
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

    /// Streams that got less than they asked for: those that are policed, then by number.
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
                // It will be seen again, and its traffic tried again, at the next look.
                (self.records[id.0].policer, self.records[id.0].granted.policed) = (None, false);
                events.push(Event::Released { stream: id });
                continue;
            }
            let latencies = self.latencies();
            let goal = self.meta.goal;
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
