//! Making a connection: hellos are said until there is an answer.
//!
//! The endpoint's thread says them and puts answers down here; a [`Connecting`] is woken for each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use selvedge_stack::compose::Composition;
use selvedge_stack::contract::Contract;
use selvedge_stack::model::StreamId;
use selvedge_units::{Instant, Span};
use snow::HandshakeState;

use super::shared::Shared;
use super::{ConnectError, Connection, lock};
use crate::wire::{self, Proposal};

/// How often a hello is said, and how long between.
const HELLOS: u32 = 30;
const WAIT: Span = Span::from_millis(100);
/// Answers kept until they are looked at: more than questions are not.
const ANSWERS_MAX: usize = 4;

/// A welcome or a refusal, and what is in it.
type Answer = (u8, Vec<u8>);

/// Who waits for an answer.
#[derive(Debug)]
struct Caller {
    hello: Vec<u8>,
    to: SocketAddr,
    said: u32,
    again: Instant,
    answers: Vec<Answer>,
    waker: Option<Waker>,
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

    /// Says again what is due; wakes those for whom it has been said often enough.
    pub(super) fn look(&self, shared: &Shared, now: Instant) {
        let mut over = Vec::new();
        for caller in lock(&self.0).values_mut().filter(|caller| now >= caller.again) {
            if caller.said < HELLOS {
                (caller.said, caller.again) = (caller.said + 1, now + WAIT);
                shared.send(&caller.hello, caller.to);
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
    state: HandshakeState,
    composition: Composition,
    streams: [StreamId; 2],
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
        let there = shared.latencies(streams);
        let proposal = Proposal { line: composition.to_string(), out, back, there };
        let greeted = greet(shared, peer, &proposal);
        let (id, state) = greeted.inspect_err(|_| shared.release(streams))?;
        Ok(Self { id, peer, state, composition, streams })
    }

    /// What there is of an answer; `None` if it must be waited for.
    fn outcome(
        &mut self,
        shared: &Arc<Shared>,
        waker: &Waker,
    ) -> Option<Result<Connection, ConnectError>> {
        let (answers, over) = {
            let mut calls = lock(&shared.calls.0);
            let Some(caller) = calls.get_mut(&self.id) else {
                return Some(Err(ConnectError::Over(self.peer)));
            };
            caller.waker = Some(waker.clone());
            let over = caller.said >= HELLOS && shared.clock.now() >= caller.again;
            (std::mem::take(&mut caller.answers), over)
        };
        let mut payload = vec![0; wire::LONGEST];
        for (kind, answer) in answers {
            if kind == wire::REFUSAL {
                let why = String::from_utf8_lossy(&answer).chars().take(300).collect();
                return Some(Err(ConnectError::There { peer: self.peer, why }));
            }
            if let Ok(len) = self.state.read_message(&answer, &mut payload) {
                let there = wire::answered(&payload[..len]).unwrap_or_default();
                let mut manager = lock(&shared.manager);
                self.streams.iter().zip(there).for_each(|(&id, there)| manager.answered(id, there));
                drop(manager);
                let keys = wire::keys(&mut self.state, true);
                let Self { id, peer, composition, streams, .. } = self;
                let opened = shared.open(*id, *peer, composition, &keys, *streams, Vec::new());
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
        }
    }
}

/// Says the first hello; which connection it is for.
fn greet(
    shared: &Shared,
    to: SocketAddr,
    proposal: &Proposal,
) -> Result<(u32, HandshakeState), ConnectError> {
    let no_exchange = || ConnectError::Here("the key exchange can't be made".to_owned());
    let mut state = wire::noise(shared.options.secret.as_ref(), true).ok_or_else(no_exchange)?;
    let mut text = proposal.text().into_bytes();
    text.resize(text.len().max(wire::HELLO_MIN), 0);
    let mut payload = vec![0; wire::LONGEST];
    let len = state.write_message(&text, &mut payload).map_err(|_| no_exchange())?;
    // The first bytes of a fresh public key are as good a number as any.
    let id = u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]).max(1);
    let hello = wire::datagram(wire::HELLO, id, &payload[..len]);
    shared.send(&hello, to);
    let again = shared.clock.now() + WAIT;
    let caller = Caller { hello, to, said: 1, again, answers: Vec::new(), waker: None };
    let mut calls = lock(&shared.calls.0);
    match calls.entry(id) {
        // Once in four billion calls.
        Entry::Occupied(_) => Err(no_exchange()),
        Entry::Vacant(entry) => {
            entry.insert(caller);
            Ok((id, state))
        }
    }
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
