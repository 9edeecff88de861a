//! Making a connection: the way is measured, then hellos are said until there is an answer.
//!
//! The endpoint's thread says them and puts answers down here; a [`Connecting`] is woken for each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use selvedge_data_stack::compose::{Composition, Medium};
use selvedge_data_stack::contract::Contract;
use selvedge_data_stack::model::StreamId;
use selvedge_units::{Instant, Span};
use snow::HandshakeState;

use super::shared::{Opening, Shared};
use super::{ConnectError, Connection, lock};
use crate::wire::{self, Proposal};

/// How often a hello is said, and how long between.
const HELLOS: u32 = 30;
const WAIT: Span = Span::from_millis(100);
/// So many probes measure the way, of which the fastest counts; no more are begun after this time.
const PROBES: u32 = 4;
const PROBING: Span = Span::from_millis(2);
/// Answers kept until they are looked at: more than questions are not.
const ANSWERS_MAX: usize = 4;

/// A welcome or a refusal, and what is in it.
type Answer = (u8, Vec<u8>);

/// Who waits for an answer.
#[derive(Debug)]
struct Caller {
    /// What is said: a probe, and then the hello.
    words: Vec<u8>,
    way: Way,
    to: SocketAddr,
    said: u32,
    again: Instant,
    answers: Vec<Answer>,
    waker: Option<Waker>,
}

/// How long the way is.
#[derive(Debug, Default)]
struct Way {
    /// What the echo of the last probe has in it, and when it was said.
    nonce: u64,
    said: Instant,
    /// Since when it is measured.
    begun: Instant,
    echoes: u32,
    /// There and back, the shortest so far.
    shortest: Option<Span>,
    is_known: bool,
}

impl Way {
    /// A probe, said now.
    fn probe(&mut self, id: u32, now: Instant) -> Vec<u8> {
        (self.nonce, self.said) = (wire::random() as u64, now);
        wire::datagram(wire::PROBE, id, &self.nonce.to_be_bytes())
    }
}

/// All that wait for answers, by connection.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<HashMap<u32, Caller>>);

impl Calls {
    /// Nobody will look any more: those that wait are given up.
    pub(super) fn end(&self) {
        let over: Vec<Caller> = lock(&self.0).drain().map(|(_, caller)| caller).collect();
        over.into_iter().filter_map(|caller| caller.waker).for_each(Waker::wake);
    }

    /// Whether nobody waits.
    pub(super) fn are_over(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// An answer came.
    pub(super) fn answer(&self, id: u32, kind: u8, payload: &[u8]) {
        let mut calls = lock(&self.0);
        let Some(caller) = calls.get_mut(&id) else { return };
        if caller.answers.len() < ANSWERS_MAX {
            caller.answers.push((kind, payload.to_vec()));
        }
        let waker = caller.waker.take();
        drop(calls);
        waker.into_iter().for_each(Waker::wake);
    }

    /// A probe came back: the next, or the way is known.
    pub(super) fn echo(&self, shared: &Shared, id: u32, payload: &[u8]) {
        let now = shared.clock.now();
        let mut calls = lock(&self.0);
        let Some(caller) = calls.get_mut(&id) else { return };
        let way = &mut caller.way;
        if way.is_known || payload != way.nonce.to_be_bytes() {
            return;
        }
        let took = now.since(way.said);
        way.shortest = Some(way.shortest.map_or(took, |least| least.min(took)));
        way.echoes += 1;
        if way.echoes < PROBES && now.since(way.begun) < PROBING {
            caller.words = way.probe(id, now);
            caller.again = now + WAIT;
            shared.send(&caller.words, caller.to);
            return;
        }
        way.is_known = true;
        // Nothing is said until there is a hello.
        caller.again = Instant::MAX;
        let waker = caller.waker.take();
        drop(calls);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Says again what is due; wakes those for whom it has been said often enough.
    pub(super) fn look(&self, shared: &Shared, now: Instant) {
        let mut over = Vec::new();
        for (&id, caller) in lock(&self.0).iter_mut().filter(|(_, caller)| now >= caller.again) {
            if caller.said < HELLOS {
                (caller.said, caller.again) = (caller.said + 1, now + WAIT);
                if !caller.way.is_known {
                    caller.words = caller.way.probe(id, now);
                }
                shared.send(&caller.words, caller.to);
            } else {
                over.extend(caller.waker.take());
            }
        }
        over.into_iter().for_each(Waker::wake);
    }
}

/// A connection in the making. Dropping it gives the attempt up.
#[derive(Debug)]
#[must_use = "nothing is said unless it is polled"]
pub struct Connecting {
    shared: Arc<Shared>,
    /// `None` once there is an outcome.
    call: Option<Result<Call, ConnectError>>,
}

struct Call {
    id: u32,
    peer: SocketAddr,
    /// Once the hello has been said.
    state: Option<HandshakeState>,
    composition: Composition,
    contracts: [Contract; 2],
    streams: [StreamId; 2],
    /// What the network takes of the delay, either way.
    network: Span,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Call({:08x} to {})", self.id, self.peer)
    }
}

impl Connecting {
    pub(super) fn new(
        shared: &Arc<Shared>,
        peer: SocketAddr,
        line: &str,
        contracts: [Contract; 2],
    ) -> Self {
        let call = Some(Call::new(shared, peer, line, contracts));
        Self { shared: Arc::clone(shared), call }
    }
}

impl Call {
    fn new(
        shared: &Shared,
        peer: SocketAddr,
        line: &str,
        [out, back]: [Contract; 2],
    ) -> Result<Self, ConnectError> {
        let composition: Composition = line
            .parse()
            .map_err(|why| ConnectError::Stack { line: line.chars().take(200).collect(), why })?;
        for contract in [out, back] {
            contract.check().map_err(|error| ConnectError::Here(error.to_string()))?;
        }
        // What the other host takes is not known yet; it decides with what this one takes.
        let streams = shared.grant(&composition, [out, back], [Span::ZERO; 2]);
        let streams = streams.map_err(ConnectError::Here)?;
        let probed = probe(shared, peer);
        let id = probed.inspect_err(|_| shared.release(streams))?;
        let (contracts, network) = ([out, back], Span::ZERO);
        Ok(Self { id, peer, state: None, composition, contracts, streams, network })
    }

    /// Says the first hello, now that it is known how long the way is.
    fn greet(&mut self, shared: &Shared, there_and_back: Span) -> Result<(), ConnectError> {
        self.network = Span(there_and_back.0 / 2);
        let no_exchange = || ConnectError::Here("the key exchange can't be made".to_owned());
        let door = match self.composition.medium() {
            Medium::Udp => None,
            Medium::Memory => {
                let door = shared.rings.door(self.id);
                Some(door.map_err(|error| ConnectError::Here(error.to_string()))?)
            }
        };
        let proposal = Proposal {
            line: self.composition.to_string(),
            out: self.contracts[0],
            back: self.contracts[1],
            there: shared.latencies(self.streams),
            network: self.network,
            door,
        };
        let secret = shared.options.secret.as_ref();
        let mut state = wire::noise(secret, true).ok_or_else(no_exchange)?;
        let mut text = proposal.text().into_bytes();
        text.resize(text.len().max(wire::HELLO_MIN), 0);
        let mut payload = vec![0; wire::LONGEST];
        let len = state.write_message(&text, &mut payload).map_err(|_| no_exchange())?;
        let hello = wire::datagram(wire::HELLO, self.id, &payload[..len]);
        self.state = Some(state);
        if let Some(caller) = lock(&shared.calls.0).get_mut(&self.id) {
            shared.send(&hello, self.peer);
            (caller.words, caller.said) = (hello, 1);
            caller.again = shared.clock.now() + WAIT;
        }
        Ok(())
    }

    /// What there is of an answer; `None` if it must be waited for.
    fn outcome(
        &mut self,
        shared: &Arc<Shared>,
        waker: &Waker,
    ) -> Option<Result<Connection, ConnectError>> {
        let (answers, over, way) = {
            let mut calls = lock(&shared.calls.0);
            let Some(caller) = calls.get_mut(&self.id) else {
                return Some(Err(ConnectError::Over(self.peer)));
            };
            caller.waker = Some(waker.clone());
            let over = caller.said >= HELLOS && shared.clock.now() >= caller.again;
            let way = caller.way.shortest.filter(|_| caller.way.is_known);
            (std::mem::take(&mut caller.answers), over, way)
        };
        if self.state.is_none()
            && let Some(way) = way
            && let Err(error) = self.greet(shared, way)
        {
            return Some(Err(error));
        }
        let mut payload = vec![0; wire::LONGEST];
        for (kind, answer) in answers {
            if kind == wire::REFUSAL {
                let why = String::from_utf8_lossy(&answer).chars().take(300).collect();
                return Some(Err(ConnectError::There { peer: self.peer, why }));
            }
            if let Some(state) = &mut self.state
                && let Ok(len) = state.read_message(&answer, &mut payload)
            {
                let (there, door) = wire::answered(&payload[..len]).unwrap_or_default();
                let ring = match (self.composition.medium(), door) {
                    (Medium::Udp, _) => None,
                    (Medium::Memory, None) => {
                        let why = "the other end does not say where its memory is".to_owned();
                        return Some(Err(ConnectError::Here(why)));
                    }
                    (Medium::Memory, Some(door)) => match shared.rings.call(self.id, door) {
                        Ok(ring) => Some(ring),
                        Err(why) => return Some(Err(ConnectError::Here(why.to_string()))),
                    },
                };
                let mut manager = lock(&shared.manager);
                let elsewhere = there.map(|there| there + self.network);
                let both = self.streams.iter().zip(elsewhere);
                both.for_each(|(&id, elsewhere)| manager.answered(id, elsewhere));
                drop(manager);
                let keys = wire::keys(state, true);
                let Self { id, peer, composition, streams, network, .. } = self;
                let opened = shared.open(Opening {
                    id: *id,
                    peer: *peer,
                    composition,
                    keys: &keys,
                    streams: *streams,
                    ring,
                    network: *network,
                    welcome: Vec::new(),
                });
                let many = "too many connections, or the same number twice; try again";
                // What was granted goes with the connection from now on.
                self.streams = [StreamId(usize::MAX); 2];
                return Some(opened.ok_or_else(|| ConnectError::Here(many.to_owned())));
            }
        }
        over.then_some(Err(ConnectError::Silent(self.peer)))
    }

    /// Nobody waits for an answer any more.
    fn end(&self, shared: &Shared) {
        lock(&shared.calls.0).remove(&self.id);
        if self.streams[0].0 != usize::MAX {
            shared.release(self.streams);
            shared.rings.close(self.id);
        }
    }
}

/// Says the first probe; which connection it is for.
fn probe(shared: &Shared, to: SocketAddr) -> Result<u32, ConnectError> {
    let (id, now) = ((wire::random() as u32).max(1), shared.clock.now());
    let mut way = Way { begun: now, ..Way::default() };
    let words = way.probe(id, now);
    let (answers, again, first) = (Vec::new(), now + WAIT, words.clone());
    let caller = Caller { words, way, to, said: 1, again, answers, waker: None };
    match lock(&shared.calls.0).entry(id) {
        // Once in four billion calls.
        Entry::Occupied(_) => {
            return Err(ConnectError::Here("the same number twice; try again".into()));
        }
        Entry::Vacant(entry) => _ = entry.insert(caller),
    }
    shared.send(&first, to);
    Ok(id)
}

impl Future for Connecting {
    type Output = Result<Connection, ConnectError>;

    /// # Panics
    /// When polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { shared, call } = &mut *self;
        let mut open = call.take().expect("it is polled until it is ready")?;
        match open.outcome(shared, context.waker()) {
            Some(outcome) => {
                open.end(shared);
                Poll::Ready(outcome)
            }
            None => {
                *call = Some(Ok(open));
                Poll::Pending
            }
        }
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some(Ok(call)) = self.call.take() {
            call.end(&self.shared);
        }
    }
}
