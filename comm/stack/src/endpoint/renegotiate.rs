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
use super::open::Open;
use super::shared::Shared;
use super::talks::{Reply, Talks};
use super::task;
use crate::element::{EntryPort, Pipeline};
use crate::sync::lock;
use crate::talk::Talk;
use crate::work::{LineWork, TALK};

/// How often a question is said, and how long between.
const SAID_MAX: u32 = 30;
const WAIT: Duration = Duration::from_millis(100);
/// Questions of the other end come no closer than this: each is a decision.
const CLOSEST: Duration = Duration::from_millis(10);

/// Why the old contract goes on holding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgreeError {
    /// It does not fit here.
    #[error("this host refuses: {0}")]
    Here(#[from] RenegotiateError),
    /// It does not fit there.
    #[error("{peer} refuses: {why}")]
    There {
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
fn say(
    shared: &Shared,
    pipeline: &Arc<Pipeline<LineWork>>,
    port: &Mutex<(EntryPort<LineWork>, u64)>,
    text: &str,
) -> bool {
    let work = pipeline.work();
    let mut port = lock(port);
    if work.is_closed() || work.line.check_send(text.len() + 1, port.1).is_some() {
        return false;
    }
    let message = Message::copy_of(text.as_bytes(), work.line.buffers());
    let mut message = message.numbered(port.1, shared.clock.now());
    message.append(&[TALK]);
    if let Err((message, _)) = port.0.enqueue(message) {
        work.line.buffers().recycle(message);
        return false;
    }
    port.1 += 1;
    drop(port);
    shared.elements.prompt(pipeline, true);
    true
}

/// What the endpoint's thread needs of a connection to talk.
struct Talker {
    id: u32,
    pipeline: Arc<Pipeline<LineWork>>,
    port: Arc<Mutex<(EntryPort<LineWork>, u64)>>,
    talks: Arc<Mutex<Talks>>,
    streams: [StreamId; 2],
}

impl Shared {
    /// Says what is due to be said about contracts, and hears what came.
    pub(super) fn talk(&self, now: Instant) {
        let due = |open: &Open| {
            open.pipeline.work().has_talk()
                || lock(&open.talks).asked.as_ref().is_some_and(|asked| now >= asked.again)
        };
        let talker = |(&id, open): (&u32, &Open)| Talker {
            id,
            pipeline: Arc::clone(&open.pipeline),
            port: Arc::clone(&open.sending),
            talks: Arc::clone(&open.talks),
            streams: open.streams,
        };
        let talkers: Vec<Talker> =
            lock(&self.open).iter().filter(|(_, open)| due(open)).map(talker).collect();
        for talker in talkers {
            self.hear(&talker, now);
            self.ask_again(&talker, now);
        }
    }

    fn ask_again(&self, talker: &Talker, now: Instant) {
        let mut talks = lock(&talker.talks);
        let Some(asked) = talks.asked.as_mut().filter(|asked| now >= asked.again) else { return };
        if asked.answer.is_some() || asked.said >= SAID_MAX {
            asked.again = Instant::MAX;
            let waker = asked.waker.take();
            if asked.alone {
                talks.asked = None;
            }
            drop(talks);
            waker.into_iter().for_each(Waker::wake);
            return;
        }
        (asked.said, asked.again) = (asked.said + 1, now + WAIT);
        let text = asked.text.clone();
        drop(talks);
        // What finds no room is said again.
        say(self, &talker.pipeline, &talker.port, &text);
    }

    fn hear(&self, talker: &Talker, now: Instant) {
        let Some(heard) = talker.pipeline.work().take_talk() else { return };
        let Some(talk) = Talk::parse(&heard) else { return };
        let (number, outcome) = match talk {
            Talk::Ask(number, way, contract, there) => {
                return self.answer(talker, now, number, (way, contract, there));
            }
            Talk::Yes(number, there) => (number, Reply::Agreed(there)),
            Talk::No(number, why) => (number, Reply::Refused(why)),
        };
        let mut talks = lock(&talker.talks);
        let Some(asked) = talks.asked.as_mut().filter(|asked| asked.number == number) else {
            return;
        };
        if asked.alone {
            talks.asked = None;
            return;
        }
        asked.answer.get_or_insert(outcome);
        asked.again = Instant::MAX;
        let waker = asked.waker.take();
        drop(talks);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Answers a question of the other end; one that was answered before as then.
    fn answer(
        &self,
        talker: &Talker,
        now: Instant,
        number: u64,
        (way, contract, there): (Direction, Contract, Duration),
    ) {
        let mut talks = lock(&talker.talks);
        let text = match &talks.answered {
            Some((last, text, _)) if *last == number => text.clone(),
            // Old ones that come late, and more than a host can decide on.
            Some((last, _, when)) if *last > number || now.since(*when) < CLOSEST => return,
            _ => {
                // What it sends is received here.
                let own = if way == Direction::Down { Direction::Up } else { Direction::Down };
                let crossing =
                    talks.asked.as_ref().is_some_and(|asked| asked.way == own && !asked.alone);
                let found = if crossing {
                    Err("this end asks for another contract of the same stream; try again"
                        .to_owned())
                } else {
                    let id = talker.streams[usize::from(own == Direction::Up)];
                    self.settle(id, contract, there).map_err(|error| error.to_string())
                };
                let talk = match found {
                    Ok(guarantee) => Talk::Yes(number, guarantee.latency),
                    Err(why) => Talk::No(number, why),
                };
                let text = talk.text();
                talks.answered = Some((number, text.clone(), now));
                text
            }
        };
        drop(talks);
        tracing::debug!(connection = talker.id, text, "answered");
        say(self, &talker.pipeline, &talker.port, &text);
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
        self.tell(&events);
        self.enact_all();
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
    /// [`AgreeError`], which says by how much it does not fit, and where.
    pub fn renegotiate(
        &self,
        direction: Direction,
        contract: Contract,
    ) -> Result<Guarantee, AgreeError> {
        task::block_on(self.renegotiate_async(direction, contract))
    }

    /// [`Connection::renegotiate`] for a task. Dropped before it is ready, the old contract holds.
    pub const fn renegotiate_async(
        &self,
        direction: Direction,
        contract: Contract,
    ) -> Renegotiating<'_> {
        Renegotiating { connection: self, direction, contract, number: None }
    }
}

/// A contract that is being agreed on.
#[derive(Debug)]
#[must_use = "nothing is asked unless it is polled"]
pub struct Renegotiating<'a> {
    connection: &'a Connection,
    direction: Direction,
    contract: Contract,
    /// Of the question, while it is not answered.
    number: Option<u64>,
}

impl Renegotiating<'_> {
    fn stream(&self) -> StreamId {
        self.connection.streams[usize::from(self.direction == Direction::Up)]
    }

    /// Asks; its number.
    fn ask(&self) -> Result<u64, AgreeError> {
        let (connection, shared) = (self.connection, &self.connection.shared);
        let mut talks = lock(&connection.talks);
        if talks.asked.as_ref().is_some_and(|asked| !asked.alone) {
            return Err(AgreeError::Busy);
        }
        let found = lock(&shared.manager).try_renegotiate(self.stream(), self.contract)?;
        let here = found.latency + connection.network;
        talks.ask(self.direction, self.contract, here, false);
        let number = talks.next;
        Ok(number)
    }

    /// The other end may believe that the new contract holds, which it does not.
    fn take_back(&self) {
        let (connection, shared) = (self.connection, &self.connection.shared);
        let (old, granted) = {
            let manager = lock(&shared.manager);
            (manager.stated(self.stream()), manager.granted(self.stream()))
        };
        let mut talks = lock(&connection.talks);
        talks.asked = None;
        if let (Some(old), Some(granted)) = (old, granted) {
            let here = granted.guarantee.latency + connection.network;
            talks.ask(self.direction, old, here, true);
        }
    }

    fn outcome(&mut self, waker: &Waker) -> Option<Result<Guarantee, AgreeError>> {
        let (connection, shared) = (self.connection, &self.connection.shared);
        let peer = connection.peer();
        let number = match self.number {
            Some(number) => number,
            None => match self.ask() {
                Ok(number) => *self.number.insert(number),
                Err(error) => return Some(Err(error)),
            },
        };
        let gone =
            connection.gone.load(Ordering::Acquire) || connection.pipeline.work().is_closed();
        let answer = {
            let mut talks = lock(&connection.talks);
            let asked = talks.asked.as_mut().filter(|asked| asked.number == number);
            match asked {
                Some(asked) if asked.answer.is_none() && asked.said < SAID_MAX && !gone => {
                    asked.waker = Some(waker.clone());
                    return None;
                }
                Some(asked) if asked.answer.is_none() && asked.again != Instant::MAX && !gone => {
                    // Said for the last time, and still waited for.
                    asked.waker = Some(waker.clone());
                    return None;
                }
                Some(asked) => asked.answer.take(),
                None => None,
            }
        };
        let answer = match answer {
            None => Err(AgreeError::Silent(peer)),
            Some(Reply::Refused(why)) => {
                lock(&connection.talks).asked = None;
                self.number = None;
                return Some(Err(AgreeError::There { peer, why }));
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
                shared.tell(&events);
                shared.enact_all();
                found.map_err(AgreeError::Here)
            }
        };
        match answer {
            Ok(_) => lock(&connection.talks).asked = None,
            Err(_) => self.take_back(),
        }
        self.number = None;
        Some(answer)
    }
}

impl Future for Renegotiating<'_> {
    type Output = Result<Guarantee, AgreeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.outcome(context.waker()) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

impl Drop for Renegotiating<'_> {
    fn drop(&mut self) {
        if self.number.is_some() {
            self.take_back();
        }
    }
}
