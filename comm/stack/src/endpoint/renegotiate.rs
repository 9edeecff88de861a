//! New contracts for a connection that lives: both hosts agree on them, as they did when it was made.
//!
//! Who asks looks whether the contract would fit here, asks the other end, and has it hold here once the
//! answer is yes. If there is no answer, or it fits here no more, the other end is asked for the old
//! contract again. The endpoint's thread says questions until they are answered, and answers those of
//! the other end: one at a time, each once.

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

/// How often a question is said, and how long between.
const ATTEMPTS_MAX: u32 = 30;
const WAIT: Duration = Duration::from_millis(100);
/// Questions of the other end come no closer than this: each is a decision.
const CLOSEST: Duration = Duration::from_millis(10);

/// Why the old contract goes on holding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NegotiationError {
    /// It does not fit here.
    #[error("this host refuses: {0}")]
    Local(#[from] RenegotiateError),
    /// It does not fit there.
    #[error("{peer} refuses: {why}")]
    Remote {
        /// Who.
        peer: SocketAddr,
        /// What it says.
        why: String,
    },
    /// The other end does not answer.
    #[error("{0} does not answer; the old contract holds: try again when it receives")]
    Silent(SocketAddr),
    /// One question at a time.
    #[error("another contract of this connection is being agreed on; wait for it")]
    Busy,
}

/// Says something of its own through a connection's stack; whether there was room for it.
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

/// What the endpoint's thread needs of a connection to talk.
struct Negotiator {
    id: u32,
    pipeline: Arc<Pipeline<ConnectionChain>>,
    port: Arc<Mutex<(EntryPort<ConnectionChain>, u64)>>,
    negotiations: Arc<Mutex<Negotiations>>,
    streams: [StreamId; 2],
}

impl Shared {
    /// Says what is due to be said about contracts, and hears what came.
    pub(super) fn run_negotiations(&self, now: Instant) {
        let due = |open: &ConnectionState| {
            open.pipeline.work().has_negotiation()
                || lock(&open.negotiations)
                    .asked
                    .as_ref()
                    .is_some_and(|asked| now >= asked.retry_at)
        };
        let negotiator = |(&id, open): (&u32, &ConnectionState)| Negotiator {
            id,
            pipeline: Arc::clone(&open.pipeline),
            port: Arc::clone(&open.sending),
            negotiations: Arc::clone(&open.negotiations),
            streams: open.streams,
        };
        let talkers: Vec<Negotiator> =
            lock(&self.open).iter().filter(|(_, open)| due(open)).map(negotiator).collect();
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
        // What finds no room is said again.
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

    /// Answers a question of the other end; one that was answered before as then.
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
            // Old ones that come late, and more than a host can decide on.
            Some((last, _, when)) if *last > number || now.since(*when) < CLOSEST => return,
            _ => {
                // What it sends is received here.
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

    /// Has a contract that the other end asked for hold here.
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
    /// Agrees with the other end on a new contract of what is sent (`Down`) or received (`Up`); waits
    /// for its answer, some seconds at most. The new one holds if it fits both hosts; else the old one
    /// does. The other end need do nothing but live, and be able to receive; its application is told
    /// ([`Event::Renegotiated`]).
    ///
    /// # Errors
    /// [`NegotiationError`], which says by how much it does not fit, and where.
    pub fn renegotiate(
        &self,
        direction: Direction,
        contract: Contract,
    ) -> Result<Guarantee, NegotiationError> {
        task::block_on(self.renegotiate_async(direction, contract))
    }

    /// [`Connection::renegotiate`] for a task. Dropped before it is ready, the old contract holds.
    pub const fn renegotiate_async(
        &self,
        direction: Direction,
        contract: Contract,
    ) -> RenegotiateFuture<'_> {
        RenegotiateFuture { connection: self, direction, contract, number: None }
    }
}

/// A contract that is being agreed on.
#[derive(Debug)]
#[must_use = "nothing is asked unless it is polled"]
pub struct RenegotiateFuture<'a> {
    connection: &'a Connection,
    direction: Direction,
    contract: Contract,
    /// Of the question, while it is not answered.
    number: Option<u64>,
}

impl RenegotiateFuture<'_> {
    fn stream(&self) -> StreamId {
        self.connection.streams[usize::from(self.direction == Direction::Up)]
    }

    /// Asks; its number.
    fn add_request(&self) -> Result<u64, NegotiationError> {
        let (connection, shared) = (self.connection, &self.connection.shared);
        let mut negotiations = lock(&connection.negotiations);
        if negotiations.asked.as_ref().is_some_and(|asked| !asked.unattended) {
            return Err(NegotiationError::Busy);
        }
        let found = lock(&shared.manager).try_renegotiate(self.stream(), self.contract)?;
        let here = found.latency + connection.network;
        negotiations.add_request(self.direction, self.contract, here, false);
        let number = negotiations.next;
        Ok(number)
    }

    /// The other end may believe that the new contract holds, which it does not.
    fn withdraw(&self) {
        let (connection, shared) = (self.connection, &self.connection.shared);
        let (old, granted) = {
            let manager = lock(&shared.manager);
            (manager.declared(self.stream()), manager.granted(self.stream()))
        };
        let mut negotiations = lock(&connection.negotiations);
        negotiations.asked = None;
        if let (Some(old), Some(granted)) = (old, granted) {
            let here = granted.guarantee.latency + connection.network;
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
        let gone = connection.disconnected.load(Ordering::Acquire)
            || connection.pipeline.work().is_closed();
        let answer = {
            let mut negotiations = lock(&connection.negotiations);
            let asked = negotiations.asked.as_mut().filter(|asked| asked.number == number);
            match asked {
                Some(asked) if asked.answer.is_none() && asked.attempts < ATTEMPTS_MAX && !gone => {
                    asked.waker = Some(waker.clone());
                    return None;
                }
                Some(asked)
                    if asked.answer.is_none() && asked.retry_at != Instant::MAX && !gone =>
                {
                    // Said for the last time, and still waited for.
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
                lock(&connection.negotiations).asked = None;
                self.number = None;
                return Some(Err(NegotiationError::Remote { peer, why }));
            }
            Some(Reply::Agreed(there)) => {
                let mut events = Vec::new();
                let remote_delay = there + connection.network;
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
            Ok(_) => lock(&connection.negotiations).asked = None,
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
