//! A connection as the application has it: send, receive, flush; blocking, and as futures.
//!
//! Sent messages go into the pipeline's first pipe, and elements take them further. Received messages are
//! those that elements delivered; a thread that waits for one reads the endpoint's socket meanwhile.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread;

use selvedge_data_stack::auto::{Event, Granted, PolicingError};
use selvedge_data_stack::message::{Buffers, Message};
use selvedge_data_stack::module::{Direction, Reason};
use selvedge_data_stack::stack::{ConnectionModules, SendError};
use selvedge_units::{Bytes, Duration, Instant};

use super::buffer::Buffer;
use super::error::RecvError;
use super::open::Opened;
use super::receive::{process_input_for, watch};
use super::shared::Shared;
use crate::concurrency::MultiThreaded;
use crate::sync::lock;
use crate::work::{CLOSING, ConnectionChain, DATA};

/// A connection. Dropping it closes it.
#[derive(Debug)]
pub struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) opened: Opened,
    /// The peer has closed the connection, and all messages before that have been read.
    pub(super) closed: AtomicBool,
}

impl Connection {
    pub(super) fn new(shared: &Arc<Shared>, opened: Opened) -> Self {
        Self { shared: Arc::clone(shared), opened, closed: AtomicBool::new(false) }
    }

    pub(super) fn work(&self) -> &ConnectionChain {
        self.opened.pipeline.work()
    }

    /// The address of the other end.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.work().peer
    }

    /// Whether an `unknown` message has arrived since the last call. It may be forged; otherwise
    /// the process at the other end was killed, and another has its address. The caller then opens
    /// another connection, and drops this one when the other is confirmed.
    #[must_use]
    pub fn take_unknown(&self) -> bool {
        self.opened.is_unknown.swap(false, Ordering::Relaxed)
    }

    /// This host's guarantees for sent and for received messages, and how much of the delay the
    /// other host and the network take.
    #[must_use]
    pub fn granted(&self) -> [Option<Granted>; 2] {
        let manager = lock(&self.shared.manager);
        self.opened.streams.map(|id| manager.granted(id))
    }

    /// Half of the round-trip time, as it was measured when the connection was made.
    #[must_use]
    pub const fn network(&self) -> Duration {
        self.opened.network
    }

    /// Events of the sent (`Down`) and received (`Up`) streams since the last call: a stream
    /// exceeds its contract, is assigned anew, policed or released. The last 64 events are kept.
    #[must_use]
    pub fn events(&self) -> Vec<(Direction, Event)> {
        lock(&self.opened.news).drain(..).collect()
    }

    /// The modules and the elements that serve them, a line for each: name, down, up, waiting messages.
    pub fn show(&self) -> Vec<(String, String, String, (u64, u64))> {
        let steps = self.work().line.composition().steps();
        let waiting = self.opened.pipeline.waiting();
        steps
            .iter()
            .enumerate()
            .zip(waiting)
            .map(|((place, step), waiting)| {
                let at = |direction| self.opened.pipeline.assigned(place, direction).to_string();
                (step.to_string(), at(Direction::Down), at(Direction::Up), waiting)
            })
            .collect()
    }

    /// Sent messages that wait in its pipes, or are worked on.
    #[must_use]
    pub fn backlog(&self) -> u64 {
        self.opened.pipeline.waiting().map(|(down, _)| down).sum()
    }

    /// The counts of messages that this end dropped, by reason, without zeros.
    #[must_use]
    pub fn dropped(&self) -> Vec<(Reason, u64)> {
        let connection = self.work().line.connection();
        let count = |why| (why, connection.dropped(why));
        Reason::ALL.into_iter().map(count).filter(|&(_, count)| count > 0).collect()
    }

    /// Sends a message; waits while the window is full, at most `patience`.
    ///
    /// # Errors
    /// [`SendError`]; [`SendError::Full`] if the time is over.
    pub fn send(&self, bytes: &[u8], patience: Duration) -> Result<(), SendError> {
        self.put(&mut Payload::Bytes(bytes), DATA, patience)
    }

    /// Sends the message that these parts make, one after the other. They are gathered by the one
    /// copy that [`Connection::send`] makes as well.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub fn send_parts(&self, parts: &[&[u8]], patience: Duration) -> Result<(), SendError> {
        self.put(&mut Payload::Parts(parts), DATA, patience)
    }

    /// A buffer for a message of this length, to be written and then sent by [`Connection::post`].
    /// It initially holds bytes of an earlier message.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Buffer {
        Buffer::new(Message::of_len(len, self.work().line.buffers()), &self.opened.pipeline)
    }

    /// Sends a message without a copy. A buffer of another connection may be sent as well.
    ///
    /// # Errors
    /// As [`Connection::send`]; the buffer is lost in this case.
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
                    payload.recycle(self.work().line.buffers());
                    return Err(error);
                }
                Ok(()) => return Ok(()),
            }
            waits += 1;
            self.yield_to_reader(waits);
        }
    }

    /// Enqueues a message if there is room for it now; otherwise it stays in `payload`.
    fn try_put(&self, payload: &mut Payload<'_>, tag: u8) -> Result<(), SendError> {
        let (work, now) = (self.work(), self.shared.clock.now());
        let mut port = lock(&self.opened.port);
        if let Some(error) = self.check_send(payload.len(), port.1, tag, now) {
            return Err(error);
        }
        // A sender that runs ahead of the modules evicts the waiting messages from the processor's cache.
        if port.0.waiting() * payload.len() as u64 > AHEAD || work.has_backpressure() {
            return Err(SendError::Full);
        }
        if let Some(bytes) = payload.contiguous()
            && bytes.len() >= DIRECT
            && !self.shared.elements.is_reserved()
            && self.opened.pipeline.is_drained()
            && self.opened.pipeline.assigned_elements().count() == 1
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
        // Its time on this host begins when it has been copied: before, the application's thread may have waited.
        let is_reserved = self.shared.elements.is_reserved();
        let begins = if is_reserved { self.shared.clock.now() } else { now };
        let mut message = message.numbered(port.1, begins);
        message.append(&[tag]);
        // The pipe holds more than any window, so it is full or busy only for moments.
        if let Err((mut message, _)) = port.0.enqueue(message) {
            let _ = message.take_trailer::<1>();
            *payload = Payload::Message(message);
            return Err(SendError::Full);
        }
        port.1 += 1;
        drop(port);
        self.sent(size, tag, now);
        self.shared.elements.notify_or_run(&self.opened.pipeline, false);
        Ok(())
    }

    /// Counts a message of this size that was enqueued.
    fn sent(&self, size: Bytes, tag: u8, now: Instant) {
        let work = self.work();
        work.monitors[0].arrived(now, size);
        if tag == DATA {
            work.flows[0].add(size.0 as usize);
        }
    }

    /// Why a message of this length can't be enqueued now, if it can't.
    fn check_send(&self, len: usize, ticket: u64, tag: u8, now: Instant) -> Option<SendError> {
        let work = self.work();
        if work.is_closed() {
            return Some(SendError::Closed);
        }
        if self.opened.disconnected.load(Ordering::Acquire) {
            return Some(SendError::PeerLost);
        }
        let size = Bytes(len as u64);
        work.line.check_send(len + 1, ticket).or_else(|| {
            // Contracts do not cover the message that announces the end.
            if tag != DATA {
                return None;
            }
            let admitted = lock(&self.shared.manager).admit(self.opened.streams[0], now, size);
            match admitted.err()? {
                PolicingError::TooSoon(_) => Some(SendError::Full),
                PolicingError::TooLarge { size, largest } => {
                    Some(SendError::BeyondContract { size, largest })
                }
            }
        })
    }

    /// Sends messages that were held back for batching.
    pub(super) fn flush_held(&self) {
        self.shared.elements.notify_or_run(&self.opened.pipeline, true);
    }

    /// Sends messages that were held back and reads the peer's answers, while a sender waits.
    fn yield_to_reader(&self, waits: u32) {
        let shared = &self.shared;
        shared.elements.notify_or_run(&self.opened.pipeline, true);
        match shared.socket_reader.try_lock() {
            _ if shared.elements.is_reserved() => pause(waits),
            Ok(mut socket_reader) => {
                shared.last_input.fetch_add(1, Ordering::Relaxed);
                process_input_for(&mut socket_reader, shared, Duration::from_micros(50));
            }
            Err(_) => pause(waits),
        }
    }

    /// Receives the next message into `into`, which is emptied first; waits at most `patience`.
    pub fn recv(&self, into: &mut Vec<u8>, patience: Duration) -> Result<(), RecvError> {
        self.take(patience)?.take_into(into);
        Ok(())
    }

    /// Receives the next message into these parts, each filled before the next; returns its length.
    /// A message longer than all parts is truncated.
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

    /// The next message without a copy; waits at most `patience`.
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

    /// The next message that has already arrived.
    fn try_take(&self) -> Result<Buffer, RecvError> {
        self.take_next(|| self.work().pop(Duration::ZERO))
    }

    /// The next application message among those that `next` returns.
    fn take_next(&self, mut next: impl FnMut() -> Option<Message>) -> Result<Buffer, RecvError> {
        let work = self.work();
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(RecvError::Closed);
            }
            let Some(mut message) = next() else { break };
            match message.take_trailer::<1>() {
                Some([DATA]) => {
                    work.flows[1].add(message.len());
                    return Ok(Buffer::new(message, &self.opened.pipeline));
                }
                Some([CLOSING]) => self.closed.store(true, Ordering::Release),
                _ => {}
            }
            work.line.buffers().recycle(message);
        }
        let dead = self.opened.disconnected.load(Ordering::Acquire) || work.line.has_lost_peer();
        Err(if dead { RecvError::PeerLost } else { RecvError::Timeout })
    }

    /// The next message that elements are working on, if any: where several serve this connection,
    /// their threads deliver it a moment after it was read.
    fn pop_from_elements(&self) -> Option<Message> {
        let work = self.work();
        for _ in 0..MOMENTS {
            if self.opened.pipeline.is_clear_of(Direction::Up) {
                break;
            }
            if let Some(message) = work.pop(MOMENT) {
                return Some(message);
            }
        }
        work.pop(Duration::ZERO)
    }

    /// The next message of any kind; waits at most `wait`.
    fn next(&self, wait: Duration) -> Option<Message> {
        let (shared, work) = (&self.shared, self.work());
        if let Some(message) = work.pop(Duration::ZERO) {
            return Some(message);
        }
        // The peer may be waiting for messages that this end held back.
        shared.elements.notify_or_run(&self.opened.pipeline, true);
        if shared.elements.is_reserved() {
            // The endpoint's thread has reserved time, and this one may have none.
            return work.pop(wait);
        }
        let before = shared.receiving.fetch_add(1, Ordering::AcqRel);
        let message = if before > 0 {
            // This thread counts twice, so that a count of 1 always means a thread that reads by itself.
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
            // The endpoint's thread releases the socket soon, and then expects this thread to read it.
            work.pop(wait.min(HANDOVER))
        };
        shared.receiving.fetch_sub(1, Ordering::AcqRel);
        message
    }

    /// Waits until all sent messages have arrived, as far as the stack can know; returns whether they have.
    pub fn flush(&self, patience: Duration) -> bool {
        let mut until = self.shared.clock.now() + patience;
        let (work, mut waits, mut closed) = (self.work(), 0, false);
        loop {
            let quiet = || work.line.modules().iter().all(|module| module.is_acknowledged());
            if self.opened.pipeline.is_drained() && work.has_left() && quiet() {
                return true;
            }
            let now = self.shared.clock.now();
            if work.is_closed() && !std::mem::replace(&mut closed, true) {
                // A closing peer acknowledges only for as long as it waits itself.
                until = until.min(now + LAST);
            }
            if now >= until || self.opened.disconnected.load(Ordering::Acquire) {
                return false;
            }
            waits += 1;
            self.yield_to_reader(waits);
        }
    }

    /// Closes connections together. Those with vanished peers take half a second in all; dropped
    /// one by one, each takes that long.
    pub fn close_all(connections: Vec<Self>) {
        let begun = std::time::Instant::now();
        let left = || LAST - begun.elapsed().into();
        connections.iter().for_each(|connection| connection.send_close(left()));
        for connection in connections {
            let _ = connection.flush(left());
            connection.forget();
        }
    }

    /// Announces to the peer that no more messages follow.
    fn send_close(&self, patience: Duration) {
        let times = if self.work().line.composition().has("reliable") { 1 } else { 3 };
        for _ in 0..times {
            let _ = self.put(&mut Payload::Bytes(&[]), CLOSING, patience.min(CLOSE_PATIENCE));
        }
    }

    /// Ends the connection without a message to the peer.
    pub(super) fn forget(self) {
        self.shared.remove_connection(self.opened.id);
    }

    /// [`Connection::send`] for a task: ready when the stack has the message. While the window is
    /// full it waits; callers that must not wait put a time limit around it.
    pub const fn send_async<'a>(&'a self, bytes: &'a [u8]) -> SendFuture<'a> {
        SendFuture { connection: self, payload: Payload::Bytes(bytes) }
    }

    /// [`Connection::post`] for a task.
    pub fn post_async(&self, buffer: Buffer) -> SendFuture<'_> {
        SendFuture { connection: self, payload: Payload::Message(buffer.into_message()) }
    }

    /// [`Connection::take`] for a task: ready when there is a message, or none will come.
    pub const fn take_async(&self) -> Taking<'_> {
        Taking(self)
    }

    /// [`Connection::recv`] for a task. Dropping the future loses no message.
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
        if !self.opened.disconnected.load(Ordering::Acquire) && !self.work().line.has_lost_peer() {
            self.send_close(CLOSE_PATIENCE);
            // A peer that has closed waits only until this end has received all of its messages.
            let _ = self.flush(if self.work().is_closed() { LAST / 10 } else { LAST });
        }
        self.shared.remove_connection(self.opened.id);
    }
}

/// A message on its way into a stack. A future that is dropped before it is ready sends nothing.
#[derive(Debug)]
#[must_use = "nothing is sent unless it is polled"]
pub struct SendFuture<'a> {
    connection: &'a Connection,
    payload: Payload<'a>,
}

impl Drop for SendFuture<'_> {
    fn drop(&mut self) {
        self.payload.recycle(self.connection.work().line.buffers());
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
        // Room that was freed since then is seen now, or wakes this task.
        connection.work().wake_sender(context.waker());
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
        self.0.work().wake_receiver(context.waker());
        // The peer may be waiting for messages that this end held back.
        self.0.flush_held();
        once()
    }
}

/// A message of the application: bytes to be copied into the connection's buffers, or a message
/// that is already in one.
#[derive(Debug)]
enum Payload<'a> {
    /// Bytes to be copied.
    Bytes(&'a [u8]),
    /// Parts to be copied one after the other.
    Parts(&'a [&'a [u8]]),
    /// A message that is sent without a copy.
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

    /// The bytes, if they are in one piece.
    fn contiguous(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Parts(_) => None,
            Self::Message(message) => Some(message.bytes()),
        }
    }

    /// The payload as a message in a buffer of this connection.
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

    /// Returns the buffer for reuse, if the message was not sent.
    fn recycle(&mut self, buffers: &Buffers<MultiThreaded>) {
        if let Self::Message(message) = self {
            buffers.recycle(std::mem::take(message));
        }
    }
}

/// The longest wait of a thread for a message before it checks again which thread reads the socket.
const ROUND: Duration = Duration::from_millis(5);
/// The same wait, for the thread that is to read the socket next.
const HANDOVER: Duration = Duration::from_millis(1);
/// How long a thread that has read the socket waits for elements, and how often. It checks between
/// the waits whether they are done, since they notify it of whole messages only.
const MOMENT: Duration = Duration::from_micros(50);
const MOMENTS: u32 = 20;

/// Messages of at least this number of bytes are sent from the sender's memory, if their stack
/// allows it. Of smaller ones several go to the kernel at once.
const DIRECT: usize = 16 << 10;
/// The bytes that may wait for a connection's first module.
const AHEAD: u64 = 512 << 10;
/// The longest time for announcing the end of a connection, and for the peer to receive all
/// messages; when several are closed together, for all of them.
const CLOSE_PATIENCE: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_millis(500);

/// Pauses briefly, and longer after many waits.
fn pause(waits: u32) {
    if waits < 100 {
        thread::yield_now();
    } else {
        thread::park_timeout(Duration::from_micros(50).into());
    }
}
