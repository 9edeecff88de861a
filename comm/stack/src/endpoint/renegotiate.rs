//! New contracts for a live connection: both hosts agree on them, as they did when it was made.
//!
//! The requester checks whether the contract would fit here, sends a request to the other end, and applies
//! the contract once the answer is yes. If no answer arrives, or the contract no longer fits here, it
//! requests the old contract from the other end again. The endpoint's thread retransmits requests until they
//! are answered. It answers those of the other end one at a time, each once.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use selvedge_data_stack::assign::Guarantee;
use selvedge_data_stack::auto::{Event, RenegotiateError};
use selvedge_data_stack::contract::Contract;
use selvedge_data_stack::message::Message;
use selvedge_data_stack::model::StreamId;
use selvedge_data_stack::module::Direction;
use selvedge_units::{Duration, Instant};

use super::connection::Connection;
use super::negotiations::{Negotiations, Reply};
use super::open::ConnectionState;
use super::shared::Shared;
use super::task;
use crate::element::{EntryPort, Pipeline};
use crate::negotiation::Negotiation;
use crate::sync::lock;
use crate::work::{ConnectionChain, NEGOTIATION};

/// How often a request is sent, and the time between two.
const ATTEMPTS_MAX: u32 = 30;
const WAIT: Duration = Duration::from_millis(100);
/// Requests of the other end are handled at least this far apart, since each is a decision.
const CLOSEST: Duration = Duration::from_millis(10);

/// Why the old contract still holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NegotiationError {
    /// The new contract does not fit on this host.
    #[error("this host refuses: {0}")]
    Local(#[from] RenegotiateError),
    /// The new contract does not fit on the other host.
    #[error("{peer} refuses: {why}")]
    Remote {
        /// The other host.
        peer: SocketAddr,
        /// Its reason.
        why: String,
    },
    /// The other end does not answer.
    #[error("{0} does not answer; the old contract holds: try again when it receives")]
    Silent(SocketAddr),
    /// Another request is not answered yet.
    #[error("another contract of this connection is being agreed on; wait for it")]
    Busy,
}

/// Sends a negotiation message through a connection's stack; returns whether there was room for it.
fn send_negotiation(
    shared: &Shared,
    pipeline: &Arc<Pipeline<ConnectionChain>>,
    port: &Mutex<(EntryPort<ConnectionChain>, u64)>,
    text: &str,
) -> bool {
    let work = pipeline.work();
    let mut port = lock(port);
    if work.is_closed() || work.line.check_send(text.len() + 1, port.1).is_some() {
        return false;
    }
    let message = Message::copy_of(text.as_bytes(), work.line.buffers());
    let mut message = message.numbered(port.1, shared.clock.now());
    message.append(&[NEGOTIATION]);
    if let Err((message, _)) = port.0.enqueue(message) {
        work.line.buffers().recycle(message);
        return false;
    }
    port.1 += 1;
    drop(port);
    shared.elements.notify_or_run(pipeline, true);
    true
}

/// The endpoint thread's means to negotiate for a connection.
struct Negotiator {
    id: u32,
    pipeline: Arc<Pipeline<ConnectionChain>>,
    port: Arc<Mutex<(EntryPort<ConnectionChain>, u64)>>,
    negotiations: Arc<Mutex<Negotiations>>,
    streams: [StreamId; 2],
}

impl Shared {
    /// Sends the requests that are due, and handles the messages that arrived.
    pub(super) fn run_negotiations(&self, now: Instant) {
        let due = |open: &ConnectionState| {
            open.pipeline.work().has_negotiation()
                || lock(&open.negotiations)
                    .asked
                    .as_ref()
                    .is_some_and(|asked| now >= asked.retry_at)
        };
        let negotiator = |(id, open): (u32, &ConnectionState)| Negotiator {
            id,
            pipeline: Arc::clone(&open.pipeline),
            port: Arc::clone(&open.sending),
            negotiations: Arc::clone(&open.negotiations),
            streams: open.streams,
        };
        let state = self.connections.lock();
        let open = state.endpoint.connections().filter(|(_, open)| due(open));
        let talkers: Vec<Negotiator> = open.map(negotiator).collect();
        drop(state);
        for negotiator in talkers {
            self.handle_negotiations(&negotiator, now);
            self.retransmit_requests(&negotiator, now);
        }
    }

    fn retransmit_requests(&self, negotiator: &Negotiator, now: Instant) {
        let mut negotiations = lock(&negotiator.negotiations);
        let Some(asked) = negotiations.asked.as_mut().filter(|asked| now >= asked.retry_at) else {
            return;
        };
        if asked.answer.is_some() || asked.attempts >= ATTEMPTS_MAX {
            asked.retry_at = Instant::MAX;
            let waker = asked.waker.take();
            if asked.unattended {
                negotiations.asked = None;
            }
            drop(negotiations);
            waker.into_iter().for_each(Waker::wake);
            return;
        }
        (asked.attempts, asked.retry_at) = (asked.attempts + 1, now + WAIT);
        let text = asked.text.clone();
        drop(negotiations);
        // A request that finds no room is sent again later.
        send_negotiation(self, &negotiator.pipeline, &negotiator.port, &text);
    }

    fn handle_negotiations(&self, negotiator: &Negotiator, now: Instant) {
        let Some(heard) = negotiator.pipeline.work().take_negotiation() else { return };
        let Some(talk) = Negotiation::parse(&heard) else { return };
        let (number, outcome) = match talk {
            Negotiation::Request(number, way, contract, there) => {
                return self.answer(negotiator, now, number, (way, contract, there));
            }
            Negotiation::Accept(number, there) => (number, Reply::Agreed(there)),
            Negotiation::Reject(number, why) => (number, Reply::Refused(why)),
        };
        let mut negotiations = lock(&negotiator.negotiations);
        let Some(asked) = negotiations.asked.as_mut().filter(|asked| asked.number == number) else {
            return;
        };
        if asked.unattended {
            negotiations.asked = None;
            return;
        }
        asked.answer.get_or_insert(outcome);
        asked.retry_at = Instant::MAX;
        let waker = asked.waker.take();
        drop(negotiations);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Answers a request of the other end; a repeated one gets the same answer.
    fn answer(
        &self,
        negotiator: &Negotiator,
        now: Instant,
        number: u64,
        (way, contract, there): (Direction, Contract, Duration),
    ) {
        let mut negotiations = lock(&negotiator.negotiations);
        let text = match &negotiations.answered {
            Some((last, text, _)) if *last == number => text.clone(),
            // Drops late old requests, and requests that come faster than a host can decide.
            Some((last, _, when)) if *last > number || now.since(*when) < CLOSEST => return,
            _ => {
                // The other end's outgoing stream is incoming here.
                let own = if way == Direction::Down { Direction::Up } else { Direction::Down };
                let crossing = negotiations
                    .asked
                    .as_ref()
                    .is_some_and(|asked| asked.direction == own && !asked.unattended);
                let found = if crossing {
                    Err("this end asks for another contract of the same stream; try again"
                        .to_owned())
                } else {
                    let id = negotiator.streams[usize::from(own == Direction::Up)];
                    self.settle(id, contract, there).map_err(|error| error.to_string())
                };
                let talk = match found {
                    Ok(guarantee) => Negotiation::Accept(number, guarantee.latency),
                    Err(why) => Negotiation::Reject(number, why),
                };
                let text = talk.text();
                negotiations.answered = Some((number, text.clone(), now));
                text
            }
        };
        drop(negotiations);
        tracing::debug!(connection = negotiator.id, text, "answered");
        send_negotiation(self, &negotiator.pipeline, &negotiator.port, &text);
    }

    /// Applies a contract that the other end requested.
    fn settle(
        &self,
        id: StreamId,
        contract: Contract,
        remote_delay: Duration,
    ) -> Result<Guarantee, RenegotiateError> {
        let mut events = Vec::new();
        let found =
            lock(&self.manager).renegotiate_with(id, contract, remote_delay, &mut events)?;
        events.push(Event::Renegotiated { stream: id, contract });
        self.notify_applications(&events);
        self.publish_assignments();
        Ok(found)
    }
}

impl Connection {
    /// Negotiates with the other end a new contract for the sent (`Down`) or received (`Up`)
    /// stream; waits some seconds at most for its answer. The new contract holds if it fits both
    /// hosts; otherwise the old one does. The other end need only be alive and able to receive; its
    /// application is notified ([`Event::Renegotiated`]).
    ///
    /// # Errors
    /// [`NegotiationError`], which states by how much the contract does not fit, and where.
    pub fn renegotiate(
        &self,
        direction: Direction,
        contract: Contract,
    ) -> Result<Guarantee, NegotiationError> {
        task::block_on(self.renegotiate_async(direction, contract))
    }

    /// [`Connection::renegotiate`] for a task. If it is dropped before it is ready, the old contract holds.
    pub const fn renegotiate_async(
        &self,
        direction: Direction,
        contract: Contract,
    ) -> RenegotiateFuture<'_> {
        RenegotiateFuture { connection: self, direction, contract, number: None }
    }
}

/// A contract that is being negotiated.
#[derive(Debug)]
#[must_use = "nothing is asked unless it is polled"]
pub struct RenegotiateFuture<'a> {
    connection: &'a Connection,
    direction: Direction,
    contract: Contract,
    /// The number of the request, while it is not answered.
    number: Option<u64>,
}

impl RenegotiateFuture<'_> {
    fn stream(&self) -> StreamId {
        self.connection.opened.streams[usize::from(self.direction == Direction::Up)]
    }

    /// Adds a request; returns its number.
    fn add_request(&self) -> Result<u64, NegotiationError> {
        let (connection, shared) = (self.connection, &self.connection.shared);
        let mut negotiations = lock(&connection.opened.negotiations);
        if negotiations.asked.as_ref().is_some_and(|asked| !asked.unattended) {
            return Err(NegotiationError::Busy);
        }
        let found = lock(&shared.manager).try_renegotiate(self.stream(), self.contract)?;
        let here = found.latency + connection.opened.network;
        negotiations.add_request(self.direction, self.contract, here, false);
        let number = negotiations.next;
        Ok(number)
    }

    /// Requests the old contract again, since the other end may believe that the new one holds.
    fn withdraw(&self) {
        let (connection, shared) = (self.connection, &self.connection.shared);
        let (old, granted) = {
            let manager = lock(&shared.manager);
            (manager.declared(self.stream()), manager.granted(self.stream()))
        };
        let mut negotiations = lock(&connection.opened.negotiations);
        negotiations.asked = None;
        if let (Some(old), Some(granted)) = (old, granted) {
            let here = granted.guarantee.latency + connection.opened.network;
            negotiations.add_request(self.direction, old, here, true);
        }
    }

    fn outcome(&mut self, waker: &Waker) -> Option<Result<Guarantee, NegotiationError>> {
        let (connection, shared) = (self.connection, &self.connection.shared);
        let peer = connection.peer();
        let number = match self.number {
            Some(number) => number,
            None => match self.add_request() {
                Ok(number) => *self.number.insert(number),
                Err(error) => return Some(Err(error)),
            },
        };
        let gone =
            connection.opened.disconnected.load(Ordering::Acquire) || connection.work().is_closed();
        let answer = {
            let mut negotiations = lock(&connection.opened.negotiations);
            let asked = negotiations.asked.as_mut().filter(|asked| asked.number == number);
            match asked {
                // After the last transmission its answer may still arrive.
                Some(asked)
                    if asked.answer.is_none()
                        && !gone
                        && (asked.attempts < ATTEMPTS_MAX || asked.retry_at != Instant::MAX) =>
                {
                    asked.waker = Some(waker.clone());
                    return None;
                }
                Some(asked) => asked.answer.take(),
                None => None,
            }
        };
        let answer = match answer {
            None => Err(NegotiationError::Silent(peer)),
            Some(Reply::Refused(why)) => {
                lock(&connection.opened.negotiations).asked = None;
                self.number = None;
                return Some(Err(NegotiationError::Remote { peer, why }));
            }
            Some(Reply::Agreed(there)) => {
                let mut events = Vec::new();
                let remote_delay = there + connection.opened.network;
                let found = lock(&shared.manager).renegotiate_with(
                    self.stream(),
                    self.contract,
                    remote_delay,
                    &mut events,
                );
                shared.notify_applications(&events);
                shared.publish_assignments();
                found.map_err(NegotiationError::Local)
            }
        };
        match answer {
            Ok(_) => lock(&connection.opened.negotiations).asked = None,
            Err(_) => self.withdraw(),
        }
        self.number = None;
        Some(answer)
    }
}

impl Future for RenegotiateFuture<'_> {
    type Output = Result<Guarantee, NegotiationError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.outcome(context.waker()) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

impl Drop for RenegotiateFuture<'_> {
    fn drop(&mut self) {
        if self.number.is_some() {
            self.withdraw();
        }
    }
}
