//! A connection as the application has it: send, receive, flush; blocking, and as futures.
//!
//! What is sent goes into the plant's first pipe, and elements take it on. What is received is
//! what they delivered; a thread that waits for it reads the endpoint's socket meanwhile.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;

use selvedge_data_stack::auto::{Event, Granted, PolicingError};
use selvedge_data_stack::message::{Buffers, Message};
use selvedge_data_stack::model::StreamId;
use selvedge_data_stack::module::{Direction, Reason};
use selvedge_data_stack::stack::{ConnectionModules, SendError};
use selvedge_units::{Bytes, Duration, Instant};

use super::buffer::Buffer;
use super::error::RecvError;
use super::negotiations::Negotiations;
use super::open::{News, Opened};
use super::receive::{process_input_for, watch};
use super::shared::Shared;
use crate::concurrency::MultiThreaded;
use crate::element::{EntryPort, Pipeline};
use crate::sync::lock;
use crate::work::{CLOSING, ConnectionChain, DATA};

/// A connection. Dropping it closes it.
#[derive(Debug)]
pub struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u32,
    pub(super) pipeline: Arc<Pipeline<ConnectionChain>>,
    /// The application's port, and the next message's ticket.
    pub(super) port: Arc<Mutex<(EntryPort<ConnectionChain>, u64)>>,
    /// What is being agreed on with the other end.
    pub(super) negotiations: Arc<Mutex<Negotiations>>,
    /// What the network takes of a delay, either way, as it was when the connection was made.
    pub(super) network: Duration,
    pub(super) streams: [StreamId; 2],
    pub(super) disconnected: Arc<AtomicBool>,
    is_unknown: Arc<AtomicBool>,
    /// What the application has not been told.
    pub(super) news: Arc<Mutex<News>>,
    /// The peer has closed it, and all that it sent before has been read.
    pub(super) closed: AtomicBool,
}

impl Connection {
    pub(super) fn new(shared: &Arc<Shared>, opened: Opened) -> Self {
        let Opened { id, pipeline, port, negotiations, network, streams, gone, is_unknown, news } =
            opened;
        Self {
            shared: Arc::clone(shared),
            id,
            pipeline,
            port,
            negotiations,
            network,
            streams,
            disconnected: gone,
            is_unknown,
            news,
            closed: AtomicBool::new(false),
        }
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.pipeline.work().peer
    }

    /// Whether an `unknown` message has come since the last call. It may be forged; otherwise the process at the
    /// other end was killed, and another has its address. The caller opens another connection, and gives this
    /// one up when the other is confirmed.
    #[must_use]
    pub fn take_unknown(&self) -> bool {
        self.is_unknown.swap(false, Ordering::Relaxed)
    }

    /// What this host guarantees of what is sent and of what is received, and how much of the delay
    /// the other one and the network take.
    #[must_use]
    pub fn granted(&self) -> [Option<Granted>; 2] {
        let manager = lock(&self.shared.manager);
        self.streams.map(|id| manager.granted(id))
    }

    /// Half of the time there and back, as it was measured when the connection was made.
    #[must_use]
    pub const fn network(&self) -> Duration {
        self.network
    }

    /// What happened to what is sent (`Down`) and received (`Up`) since the last call: who exceeds
    /// its contract, was assigned anew, is policed, is released. The last 64 of them are kept.
    #[must_use]
    pub fn events(&self) -> Vec<(Direction, Event)> {
        lock(&self.news).drain(..).collect()
    }

    /// The modules and who serves them, a line for each: name, down, up, messages waiting.
    pub fn show(&self) -> Vec<(String, String, String, (u64, u64))> {
        let steps = self.pipeline.work().line.composition().steps();
        let waiting = self.pipeline.waiting();
        steps
            .iter()
            .enumerate()
            .zip(waiting)
            .map(|((place, step), waiting)| {
                let at = |direction| self.pipeline.assigned(place, direction).to_string();
                (step.to_string(), at(Direction::Down), at(Direction::Up), waiting)
            })
            .collect()
    }

    /// What went no further on this end, by reason, where anything did.
    #[must_use]
    pub fn dropped(&self) -> Vec<(Reason, u64)> {
        let connection = self.pipeline.work().line.connection();
        let count = |why| (why, connection.dropped(why));
        Reason::ALL.into_iter().map(count).filter(|&(_, count)| count > 0).collect()
    }

    /// Sends a message; waits while the window is full, for at most so long.
    ///
    /// # Errors
    /// [`SendError`]; [`SendError::Full`] when the time is over.
    pub fn send(&self, bytes: &[u8], patience: Duration) -> Result<(), SendError> {
        self.put(&mut Payload::Bytes(bytes), DATA, patience)
    }

    /// Sends the message that these parts make, one after the other: they are gathered by the one
    /// copy that [`Connection::send`] makes as well.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub fn send_parts(&self, parts: &[&[u8]], patience: Duration) -> Result<(), SendError> {
        self.put(&mut Payload::Parts(parts), DATA, patience)
    }

    /// A buffer for a message of this length, to be written and then sent by [`Connection::post`].
    /// What is in it at first is left over from some message before.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Buffer {
        Buffer::new(Message::of_len(len, self.pipeline.work().line.buffers()), &self.pipeline)
    }

    /// Sends a message without a copy. A buffer of another connection is sent as well.
    ///
    /// # Errors
    /// As [`Connection::send`]; the buffer is gone then.
    pub fn post(&self, buffer: Buffer, patience: Duration) -> Result<(), SendError> {
        self.put(&mut Payload::Message(buffer.into_message()), DATA, patience)
    }

    fn put(&self, payload: &mut Payload<'_>, tag: u8, patience: Duration) -> Result<(), SendError> {
        let until = self.shared.clock.now() + patience;
        let mut waits = 0_u32;
        loop {
            match self.try_put(payload, tag) {
                Err(SendError::Full) if self.shared.clock.now() < until => {}
                Err(error) => {
                    payload.recycle(self.pipeline.work().line.buffers());
                    return Err(error);
                }
                Ok(()) => return Ok(()),
            }
            waits += 1;
            self.yield_to_reader(waits);
        }
    }

    /// Puts a message in, if there is room for it now; else `what` still has it.
    fn try_put(&self, payload: &mut Payload<'_>, tag: u8) -> Result<(), SendError> {
        let (work, now) = (self.pipeline.work(), self.shared.clock.now());
        let mut port = lock(&self.port);
        if let Some(error) = self.check_send(payload.len(), port.1, tag, now) {
            return Err(error);
        }
        // Who runs ahead of the modules has all that waits leave the processor's cache.
        if port.0.waiting() * payload.len() as u64 > AHEAD || work.has_backpressure() {
            return Err(SendError::Full);
        }
        if let Some(bytes) = payload.contiguous()
            && bytes.len() >= DIRECT
            && self.pipeline.is_drained()
            && self.pipeline.assigned_elements().count() == 1
            && work.send_direct(&[bytes, &[tag]], port.1, now)
        {
            port.1 += 1;
            drop(port);
            self.sent(Bytes(bytes.len() as u64), tag, now);
            payload.recycle(work.line.buffers());
            return Ok(());
        }
        let message = payload.message(&work.line);
        let size = message.size();
        let mut message = message.numbered(port.1, now);
        message.append(&[tag]);
        // The pipe holds more than any window, so it is full or busy for moments only.
        if let Err((mut message, _)) = port.0.enqueue(message) {
            let _ = message.take_trailer::<1>();
            *payload = Payload::Message(message);
            return Err(SendError::Full);
        }
        port.1 += 1;
        drop(port);
        self.sent(size, tag, now);
        self.shared.elements.notify_or_run(&self.pipeline, false);
        Ok(())
    }

    /// A message of this size went in.
    fn sent(&self, size: Bytes, tag: u8, now: Instant) {
        let work = self.pipeline.work();
        work.monitors[0].arrived(now, size);
        if tag == DATA {
            work.flows[0].add(size.0 as usize);
        }
    }

    /// Why a message of this length can't go in now, if it can't.
    fn check_send(&self, len: usize, ticket: u64, tag: u8, now: Instant) -> Option<SendError> {
        let work = self.pipeline.work();
        if work.is_closed() {
            return Some(SendError::Closed);
        }
        if self.disconnected.load(Ordering::Acquire) {
            return Some(SendError::PeerLost);
        }
        let size = Bytes(len as u64);
        work.line.check_send(len + 1, ticket).or_else(|| {
            // That there is no more to come is part of no contract.
            if tag != DATA {
                return None;
            }
            let admitted = lock(&self.shared.manager).admit(self.streams[0], now, size);
            match admitted.err()? {
                PolicingError::TooSoon(_) => Some(SendError::Full),
                PolicingError::TooLarge { size, largest } => {
                    Some(SendError::BeyondContract { size, largest })
                }
            }
        })
    }

    /// Lets go what was sent and held back.
    pub(super) fn flush_held(&self) {
        self.shared.elements.notify_or_run(&self.pipeline, true);
    }

    /// A sender waits: lets go what was held back, and reads what the peer says.
    fn yield_to_reader(&self, waits: u32) {
        let shared = &self.shared;
        shared.elements.notify_or_run(&self.pipeline, true);
        match shared.socket_reader.try_lock() {
            Ok(mut socket_reader) => {
                shared.last_input.fetch_add(1, Ordering::Relaxed);
                process_input_for(&mut socket_reader, shared, Duration::from_micros(50));
            }
            Err(_) => pause(waits),
        }
    }

    /// Receives the next message into `into`, which is emptied first; waits for at most so long.
    pub fn recv(&self, into: &mut Vec<u8>, patience: Duration) -> Result<(), RecvError> {
        self.take(patience)?.take_into(into);
        Ok(())
    }

    /// Receives the next message into these parts, each filled before the next; how long it was.
    /// What is longer than all of them is cut.
    ///
    /// # Errors
    /// As [`Connection::recv`].
    pub fn recv_parts(
        &self,
        parts: &mut [&mut [u8]],
        patience: Duration,
    ) -> Result<usize, RecvError> {
        let message = self.take(patience)?;
        let mut rest = &message[..];
        for part in parts {
            let (bytes, after) = rest.split_at(rest.len().min(part.len()));
            part[..bytes.len()].copy_from_slice(bytes);
            rest = after;
        }
        Ok(message.len())
    }

    /// The next message without a copy; waits for at most so long.
    pub fn take(&self, patience: Duration) -> Result<Buffer, RecvError> {
        let until = self.shared.clock.now() + patience;
        loop {
            let left = until.since(self.shared.clock.now());
            let next = || self.next(left.min(Duration::from_millis(50)));
            match self.take_next(next) {
                Err(RecvError::Timeout) if left > Duration::ZERO => {}
                outcome => return outcome,
            }
        }
    }

    /// The next message that has come already.
    fn try_take(&self) -> Result<Buffer, RecvError> {
        self.take_next(|| self.pipeline.work().pop(Duration::ZERO))
    }

    /// The next message for the application of those that `next` gives.
    fn take_next(&self, mut next: impl FnMut() -> Option<Message>) -> Result<Buffer, RecvError> {
        let work = self.pipeline.work();
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(RecvError::Closed);
            }
            let Some(mut message) = next() else { break };
            match message.take_trailer::<1>() {
                Some([DATA]) => {
                    work.flows[1].add(message.len());
                    return Ok(Buffer::new(message, &self.pipeline));
                }
                Some([CLOSING]) => self.closed.store(true, Ordering::Release),
                _ => {}
            }
            work.line.buffers().recycle(message);
        }
        let dead = self.disconnected.load(Ordering::Acquire) || work.line.has_lost_peer();
        Err(if dead { RecvError::PeerLost } else { RecvError::Timeout })
    }

    /// The next message that elements have in hand, if they have one: where several serve this
    /// connection, their threads deliver it a moment after it was read.
    fn pop_from_elements(&self) -> Option<Message> {
        let work = self.pipeline.work();
        for _ in 0..MOMENTS {
            if self.pipeline.is_clear_of(Direction::Up) {
                break;
            }
            if let Some(message) = work.pop(MOMENT) {
                return Some(message);
            }
        }
        work.pop(Duration::ZERO)
    }

    /// The next message, of whichever sort; waits for at most so long.
    fn next(&self, wait: Duration) -> Option<Message> {
        let (shared, work) = (&self.shared, self.pipeline.work());
        if let Some(message) = work.pop(Duration::ZERO) {
            return Some(message);
        }
        // What was sent and held back may be what the peer waits for.
        shared.elements.notify_or_run(&self.pipeline, true);
        let before = shared.receiving.fetch_add(1, Ordering::AcqRel);
        let message = if before > 0 {
            // This thread is counted twice, so that 1 always means a thread that reads itself.
            shared.receiving.fetch_add(1, Ordering::AcqRel);
            let message = work.pop(wait.min(ROUND));
            shared.receiving.fetch_sub(1, Ordering::AcqRel);
            message
        } else if let Ok(mut socket_reader) = shared.socket_reader.try_lock() {
            shared.last_input.fetch_add(1, Ordering::Relaxed);
            let _ = watch(&mut socket_reader, shared)
                || process_input_for(&mut socket_reader, shared, wait.min(ROUND));
            drop(socket_reader);
            self.pop_from_elements()
        } else {
            // The endpoint's thread releases the socket soon, and then expects this one to read.
            work.pop(wait.min(HANDOVER))
        };
        shared.receiving.fetch_sub(1, Ordering::AcqRel);
        message
    }

    /// Waits until all that was sent has arrived, as far as the stack can know; whether it has.
    pub fn flush(&self, patience: Duration) -> bool {
        let mut until = self.shared.clock.now() + patience;
        let (work, mut waits, mut closed) = (self.pipeline.work(), 0, false);
        loop {
            let quiet = || work.line.modules().iter().all(|module| module.is_acknowledged());
            if self.pipeline.is_drained() && work.has_left() && quiet() {
                return true;
            }
            let now = self.shared.clock.now();
            if work.is_closed() && !std::mem::replace(&mut closed, true) {
                // It says what it has for as long as it waits itself.
                until = until.min(now + LAST);
            }
            if now >= until || self.disconnected.load(Ordering::Acquire) {
                return false;
            }
            waits += 1;
            self.yield_to_reader(waits);
        }
    }

    /// Closes connections together. Those whose peers are gone take half a second in all; where each
    /// is dropped, each takes as long.
    pub fn close_all(connections: Vec<Self>) {
        let begun = std::time::Instant::now();
        let left = || LAST - begun.elapsed().into();
        connections.iter().for_each(|connection| connection.send_close(left()));
        for connection in connections {
            let _ = connection.flush(left());
            connection.forget();
        }
    }

    /// Tells the peer that there is no more to come, unless it has said so itself.
    fn send_close(&self, patience: Duration) {
        let times = if self.pipeline.work().line.composition().has("reliable") { 1 } else { 3 };
        for _ in 0..times {
            let _ = self.put(&mut Payload::Bytes(&[]), CLOSING, patience.min(CLOSE_PATIENCE));
        }
    }

    /// Ends it without a word.
    pub(super) fn forget(self) {
        self.shared.remove_connection(self.id);
    }

    /// [`Connection::send`] for a task: ready when the stack has the message. While the window is
    /// full it waits; put a time limit around it where it should not.
    pub const fn send_async<'a>(&'a self, bytes: &'a [u8]) -> SendFuture<'a> {
        SendFuture { connection: self, payload: Payload::Bytes(bytes) }
    }

    /// [`Connection::post`] for a task.
    pub fn post_async(&self, buffer: Buffer) -> SendFuture<'_> {
        SendFuture { connection: self, payload: Payload::Message(buffer.into_message()) }
    }

    /// [`Connection::take`] for a task: ready when there is a message, or will be none.
    pub const fn take_async(&self) -> Taking<'_> {
        Taking(self)
    }

    /// [`Connection::recv`] for a task. A message is never lost to a future that is dropped.
    ///
    /// # Errors
    /// As [`Connection::recv`], but never [`RecvError::Timeout`].
    pub async fn recv_async(&self, into: &mut Vec<u8>) -> Result<(), RecvError> {
        self.take_async().await?.take_into(into);
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.disconnected.load(Ordering::Acquire) && !self.pipeline.work().line.has_lost_peer()
        {
            self.send_close(CLOSE_PATIENCE);
            // One that has closed waits for no more than that we have what it sent.
            let _ = self.flush(if self.pipeline.work().is_closed() { LAST / 10 } else { LAST });
        }
        self.shared.remove_connection(self.id);
    }
}

/// A message on its way into a stack. Dropped before it is ready, nothing is sent.
#[derive(Debug)]
#[must_use = "nothing is sent unless it is polled"]
pub struct SendFuture<'a> {
    connection: &'a Connection,
    payload: Payload<'a>,
}

impl Drop for SendFuture<'_> {
    fn drop(&mut self) {
        self.payload.recycle(self.connection.pipeline.work().line.buffers());
    }
}

/// The next message of a connection.
#[derive(Debug)]
#[must_use = "nothing is received unless it is polled"]
pub struct Taking<'a>(&'a Connection);

impl Future for SendFuture<'_> {
    type Output = Result<(), SendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, payload } = &mut *self;
        let mut once = || connection.try_put(payload, DATA);
        let refused = |outcome: &Result<(), SendError>| matches!(outcome, Err(SendError::Full));
        let outcome = once();
        if !refused(&outcome) {
            return Poll::Ready(outcome);
        }
        // Room that came since is seen now, or wakes us.
        connection.pipeline.work().wake_sender(context.waker());
        let outcome = once();
        if refused(&outcome) { Poll::Pending } else { Poll::Ready(outcome) }
    }
}

impl Future for Taking<'_> {
    type Output = Result<Buffer, RecvError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let once = || match self.0.try_take() {
            Err(RecvError::Timeout) => Poll::Pending,
            outcome => Poll::Ready(outcome),
        };
        let outcome = once();
        if outcome.is_ready() {
            return outcome;
        }
        self.0.pipeline.work().wake_receiver(context.waker());
        // What was sent and held back may be what the peer waits for.
        self.0.flush_held();
        once()
    }
}

/// What an application sends: bytes to be copied into the connection's buffers, or a message that is
/// in one already.
#[derive(Debug)]
enum Payload<'a> {
    /// To be copied.
    Bytes(&'a [u8]),
    /// To be copied one after the other.
    Parts(&'a [&'a [u8]]),
    /// To go as it is.
    Message(Message),
}

impl Payload<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Parts(parts) => parts.iter().map(|part| part.len()).sum(),
            Self::Message(message) => message.len(),
        }
    }

    /// Its bytes, if they lie in one piece.
    fn contiguous(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Parts(_) => None,
            Self::Message(message) => Some(message.bytes()),
        }
    }

    /// As a message in a buffer of this line.
    fn message(&mut self, line: &ConnectionModules<MultiThreaded>) -> Message {
        let len = self.len();
        match self {
            Self::Bytes(bytes) => Message::copy_of(bytes, line.buffers()),
            Self::Parts(parts) => {
                let mut message = Message::with_room(len, line.buffers());
                parts.iter().for_each(|part| message.append(part));
                message
            }
            Self::Message(message) => std::mem::take(message),
        }
    }

    /// Its buffer serves others, if it was not sent.
    fn recycle(&mut self, buffers: &Buffers<MultiThreaded>) {
        if let Self::Message(message) = self {
            buffers.recycle(std::mem::take(message));
        }
    }
}

/// How long a thread waits at once for a message; then it looks again who reads the socket.
const ROUND: Duration = Duration::from_millis(5);
/// As long, where it is the one that is to read the socket next.
const HANDOVER: Duration = Duration::from_millis(1);
/// How long a thread that has read the socket waits for elements, and how often; it looks between
/// whether they are done, since they notify it of whole messages only.
const MOMENT: Duration = Duration::from_micros(50);
const MOMENTS: u32 = 20;

/// Messages of at least so many bytes are sent from where they lie, if their stack allows it; of
/// smaller ones several go to the kernel at once.
const DIRECT: usize = 16 << 10;
/// Bytes that may wait for a connection's first module.
const AHEAD: u64 = 512 << 10;
/// How long it takes at most to say that a connection ends, and until the peer has all; where several
/// are closed together, all of them.
const CLOSE_PATIENCE: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_millis(500);

/// A little while, longer after many.
fn pause(waits: u32) {
    if waits < 100 {
        thread::yield_now();
    } else {
        thread::park_timeout(Duration::from_micros(50).into());
    }
}
