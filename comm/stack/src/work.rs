//! A connection's modules as the work of elements, between the application and the socket or the ring.

mod datagram;
mod sealing;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use selvedge_comm_local::PeerId;
use selvedge_data_stack::auto::Monitor;
use selvedge_data_stack::deliver::Delivery;
use selvedge_data_stack::message::Message;
use selvedge_data_stack::module::{Direction, Outputs, Reason};
use selvedge_data_stack::stack::ConnectionModules;
use selvedge_os::clock::Clock;
use selvedge_os::transmit::{Outgoing, Transmitter};
use selvedge_units::{Bytes, Duration, Instant};

pub(crate) use self::datagram::Datagram;
pub(crate) use self::sealing::Sealing;
use crate::concurrency::MultiThreaded;
use crate::element::ModuleChain;
use crate::negotiation::NEGOTIATION_MAX;
use crate::rings::Rings;
use crate::wake::{DueWakers, WakerList};

/// The byte after each message of the application.
pub(crate) const DATA: u8 = 0;
/// The byte after the message that announces the end of the stream of messages.
pub(crate) const CLOSING: u8 = 1;
/// The byte after messages in which the two ends agree on contracts.
pub(crate) const NEGOTIATION: u8 = 2;
/// Negotiation messages that may wait to be read; others are lost and retransmitted.
const NEGOTIATIONS_MAX: usize = 8;

/// The headers of `ui | unreliable | net`.
pub(crate) const APART: usize = 18;

/// The carrier of datagrams.
#[derive(Debug)]
pub(crate) enum Lower {
    /// A socket.
    Udp(Arc<Mutex<Transmitter>>),
    /// A ring in shared memory.
    Ring(Arc<Rings>, PeerId),
}

/// A connection's modules, its outgoing and its incoming side.
#[derive(Debug)]
pub(crate) struct ConnectionChain {
    pub(crate) line: ConnectionModules<MultiThreaded>,
    /// While the application has too much to read, arriving datagrams are dropped before any work.
    drops_unread: bool,
    /// Headers of its messages may arrive in a separate buffer: they have [`APART`] bytes of headers.
    pub(crate) splits_headers: bool,
    lower: Lower,
    /// The secure layer, where the endpoint has a secret or a key. Over shared memory it carries
    /// only keepalives, since that memory belongs to the two processes alone.
    pub(crate) sealing: Option<Sealing>,
    pub(crate) peer: SocketAddr,
    clock: Clock,
    outgoing: Mutex<Outbox>,
    delivery: Mutex<Delivery>,
    /// The peer has announced that it closes.
    closed: AtomicBool,
    /// The peer's messages about contracts, and whether there are any.
    negotiation: (Mutex<VecDeque<Vec<u8>>>, AtomicBool),
    arrived: Condvar,
    /// Threads that wait for `arrived`.
    waiters: AtomicUsize,
    /// Tasks that wait for room, and tasks that wait for messages.
    tasks: [WakerList; 2],
    alarms: Arc<DueWakers>,
    /// The traffic of the two directions so far: out, in.
    pub(crate) flows: [Flow; 2],
    /// Monitors of the two streams: out, in.
    pub(crate) monitors: [Monitor<MultiThreaded>; 2],
}

/// A count of messages and bytes.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Flow {
    pub(crate) fn add(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.messages.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// Datagrams that wait for others, to go to the kernel in one call.
#[derive(Debug, Default)]
struct Outbox {
    datagrams: Vec<Message>,
    bytes: usize,
    /// One of the datagrams should not wait: it is an acknowledgement.
    urgent: bool,
    /// The time of the last transmission.
    sent: Instant,
}

/// Datagrams of one call: as many as one run of UDP GSO carries.
const RUN: usize = 64;
const RUN_BYTES: usize = 60_000;
/// Datagrams and bytes that may wait for room in a ring before senders have to wait.
const BACKPRESSURE: (usize, usize) = (1024, 256 << 10);
/// Datagrams and bytes that may wait there at all. Modules make some themselves, and pipes pass on
/// what senders enqueued before the ring was full: none of it may be lost.
const OUTBOX_MAX: (usize, usize) = (8 * BACKPRESSURE.0, 8 * BACKPRESSURE.1);
/// Datagrams that follow each other within this time wait to be batched: half the time of a call.
const CLOSE: Duration = Duration::from_micros(20);

/// Messages that the application has not taken, at most. Beyond it arriving datagrams are dropped
/// below the transport, and a reliable peer retransmits them.
const UNREAD_MAX: usize = 1024;
/// The same limit in bytes: about the size of a processor's cache.
const UNREAD_BYTES: usize = 2 << 20;

fn exceeds_unread_limit(delivery: &Delivery) -> bool {
    delivery.len() >= UNREAD_MAX || delivery.bytes() >= UNREAD_BYTES
}

impl ConnectionChain {
    pub(crate) fn new(
        line: ConnectionModules<MultiThreaded>,
        lower: Lower,
        sealing: Option<Sealing>,
        peer: SocketAddr,
        clock: Clock,
        alarms: Arc<DueWakers>,
    ) -> Self {
        let delivery = Mutex::new(Delivery::new(line.composition().order()));
        Self {
            drops_unread: !line.composition().has("reliable"),
            splits_headers: sealing.is_none() && line.composition().headers() == Some(APART),
            line,
            lower,
            sealing,
            peer,
            clock,
            outgoing: Mutex::default(),
            delivery,
            closed: AtomicBool::new(false),
            negotiation: Default::default(),
            alarms,
            arrived: Condvar::new(),
            waiters: AtomicUsize::new(0),
            tasks: Default::default(),
            flows: Default::default(),
            monitors: Default::default(),
        }
    }

    fn delivery(&self) -> MutexGuard<'_, Delivery> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outgoing(&self) -> MutexGuard<'_, Outbox> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the peer has announced that it closes.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn enqueue_negotiation(&self, text: &[u8]) {
        let mut negotiation = self.negotiation.0.lock().unwrap_or_else(PoisonError::into_inner);
        if negotiation.len() < NEGOTIATIONS_MAX && text.len() <= NEGOTIATION_MAX {
            negotiation.push_back(text.to_vec());
            self.negotiation.1.store(true, Ordering::Release);
        }
    }

    /// Whether the peer has sent a message about contracts.
    pub(crate) fn has_negotiation(&self) -> bool {
        self.negotiation.1.load(Ordering::Acquire)
    }

    /// Takes the oldest of these messages.
    pub(crate) fn take_negotiation(&self) -> Option<Vec<u8>> {
        let mut negotiation = self.negotiation.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = negotiation.pop_front();
        self.negotiation.1.store(!negotiation.is_empty(), Ordering::Release);
        first
    }

    /// The next message for the application; waits at most `patience`.
    pub(crate) fn pop(&self, patience: Duration) -> Option<Message> {
        let mut delivery = self.delivery();
        if delivery.is_empty() && patience > Duration::ZERO {
            self.waiters.fetch_add(1, Ordering::AcqRel);
            let waited = self.arrived.wait_timeout(delivery, patience.into());
            delivery = waited.unwrap_or_else(PoisonError::into_inner).0;
            self.waiters.fetch_sub(1, Ordering::AcqRel);
        }
        let message = delivery.pop();
        self.line.connection().set_full(exceeds_unread_limit(&delivery));
        message
    }

    /// Whether a thread waits in [`pop`](Self::pop).
    #[cfg(test)]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiters.load(Ordering::Acquire) > 0
    }

    /// Wakes this task once there may be room for its message: after an answer of the peer, or at
    /// the latest at the next tick.
    pub(crate) fn wake_sender(&self, waker: &Waker) {
        self.tasks[0].add(waker);
    }

    /// Wakes this task once a message has arrived, or none will arrive.
    pub(crate) fn wake_receiver(&self, waker: &Waker) {
        self.tasks[1].add(waker);
    }

    /// Schedules tasks to be woken once no lock is held.
    fn wake(&self, which: usize) {
        if let Some(wakers) = self.tasks[which].take() {
            self.alarms.add(wakers);
        }
    }

    /// Wakes all tasks, since the connection is over. The caller holds no lock.
    pub(crate) fn wake_all(&self) {
        self.tasks.iter().filter_map(WakerList::take).flatten().for_each(Waker::wake);
    }

    /// Passes the waiting datagrams to the kernel. Those that it does not take are lost, as on any network.
    fn transmit(&self, outbox: &mut Outbox, now: Instant) {
        if outbox.datagrams.is_empty() {
            return;
        }
        let datagrams = outbox.datagrams.iter().map(Message::bytes);
        let count = match &self.lower {
            Lower::Udp(transmitter) => {
                let to = self.peer;
                let outgoing: Vec<Outgoing<'_>> =
                    datagrams.map(|bytes| Outgoing { to, head: &[], bytes }).collect();
                let mut transmitter = transmitter.lock().unwrap_or_else(PoisonError::into_inner);
                transmitter.send_batch(&outgoing);
                outgoing.len()
            }
            // Datagrams to a process that is gone are lost.
            Lower::Ring(rings, to) => rings.send(*to, datagrams).unwrap_or(outbox.datagrams.len()),
        };
        let mut bytes = 0;
        for datagram in outbox.datagrams.drain(..count) {
            bytes += datagram.len();
            self.line.buffers().recycle(datagram);
        }
        outbox.bytes -= bytes;
        outbox.urgent &= !outbox.datagrams.is_empty();
        outbox.sent = now;
    }

    /// Whether senders have to wait, since datagrams wait for room below.
    pub(crate) fn has_backpressure(&self) -> bool {
        if !self.has_ring() {
            return false;
        }
        let outbox = self.outgoing();
        outbox.datagrams.len() >= BACKPRESSURE.0 || outbox.bytes >= BACKPRESSURE.1
    }

    /// Whether no datagram waits below the modules.
    pub(crate) fn has_left(&self) -> bool {
        self.outgoing().datagrams.is_empty()
    }

    /// The secure layer that seals the datagrams, if any.
    fn seals(&self) -> Option<&Sealing> {
        self.sealing.as_ref().filter(|_| !self.has_ring())
    }

    /// Whether its datagrams go through shared memory.
    pub(crate) const fn has_ring(&self) -> bool {
        matches!(self.lower, Lower::Ring(..))
    }
}

impl ModuleChain for ConnectionChain {
    type Message = Message;

    fn module_count(&self) -> usize {
        self.line.modules().len()
    }

    fn run(
        &self,
        place: usize,
        direction: Direction,
        message: Message,
        now: Instant,
        out: &mut Vec<(Direction, Message)>,
    ) -> Duration {
        let call = self.line.call(now);
        let mut message = message;
        if direction == Direction::Up
            && place + 1 == self.line.modules().len()
            && let Some(sealing) = self.seals()
        {
            if let Err(why) = sealing.open(&mut message) {
                call.drop(message, why);
                return Duration::ZERO;
            }
            if message.is_empty() {
                self.line.buffers().recycle(message);
                return Duration::ZERO;
            }
        }
        let mut outputs = Outputs::default();
        self.line.modules()[place].handle(direction, message, &call, &mut outputs);
        out.extend(outputs.drain());
        if direction == Direction::Up {
            // The datagram may be an acknowledgement.
            self.wake(0);
        }
        Duration::ZERO
    }

    fn handle_timeout(&self, place: usize, now: Instant, out: &mut Vec<(Direction, Message)>) {
        let module = &self.line.modules()[place];
        if module.poll_timeout().is_some_and(|due| due <= now) {
            let mut outputs = Outputs::default();
            module.handle_timeout(&self.line.call(now), &mut outputs);
            out.extend(outputs.drain());
        }
        if place == 0 {
            self.wake(0);
            if self.line.has_lost_peer() {
                self.wake(1);
            }
        }
    }

    fn emit(&self, direction: Direction, mut message: Message, _: Instant) {
        let now = self.clock.now();
        match direction {
            Direction::Down => {
                if !message.control {
                    self.monitors[0].left(now.since(message.arrived));
                }
                if let Some(sealing) = self.seals()
                    && sealing.seal(&mut message, now).is_err()
                {
                    return self.line.call(now).drop(message, Reason::Unsealed);
                }
                let mut outbox = self.outgoing();
                if outbox.datagrams.len() >= OUTBOX_MAX.0 || outbox.bytes >= OUTBOX_MAX.1 {
                    return self.line.call(now).drop(message, Reason::NoRoom);
                }
                outbox.bytes += message.len();
                outbox.urgent |= message.control;
                outbox.datagrams.push(message);
                if outbox.datagrams.len() >= RUN || outbox.bytes >= RUN_BYTES {
                    self.transmit(&mut outbox, now);
                }
            }
            Direction::Up => {
                match message.bytes().split_last() {
                    // Contracts are about whole messages, not about their parts or the modules' own
                    // messages.
                    Some((&DATA, body)) => {
                        self.monitors[1].arrived(message.arrived, Bytes(body.len() as u64));
                        self.monitors[1].left(now.since(message.arrived));
                    }
                    Some((&CLOSING, _)) => self.closed.store(true, Ordering::Release),
                    Some((&NEGOTIATION, text)) => self.enqueue_negotiation(text),
                    _ => {}
                }
                let mut delivery = self.delivery();
                delivery.push(message, &self.line.call(now));
                self.line.connection().set_full(exceeds_unread_limit(&delivery));
                let ready = !delivery.is_empty();
                drop(delivery);
                if ready && self.waiters.load(Ordering::Acquire) > 0 {
                    self.arrived.notify_one();
                }
                if ready {
                    self.wake(1);
                }
            }
        }
    }

    fn flush(&self, now: Instant, idle: bool) -> bool {
        let mut outbox = self.outgoing();
        if idle || outbox.urgent || now.since(outbox.sent) >= CLOSE {
            self.transmit(&mut outbox, now);
        }
        !outbox.datagrams.is_empty()
    }
}

impl ConnectionChain {
    /// Sends a message from the sender's memory, if the modules only prepend headers and no other
    /// message is before it; returns whether it did. Messages held back for batching go first.
    pub(crate) fn send_direct(&self, parts: &[&[u8]], ticket: u64, now: Instant) -> bool {
        let Lower::Udp(transmitter) = &self.lower else { return false };
        // Encryption in place would change the application's memory.
        if self.sealing.is_some() {
            return false;
        }
        let Some(header) = self.line.wrap(parts, ticket, now) else { return false };
        let mut outbox = self.outgoing();
        self.transmit(&mut outbox, now);
        let mut all = [&[][..]; 8];
        let count = parts.len() + 1;
        all[0] = header.bytes();
        all[1..count].copy_from_slice(parts);
        // Datagrams that the kernel does not take are lost, as on any network.
        let mut transmitter = transmitter.lock().unwrap_or_else(PoisonError::into_inner);
        transmitter.send_parts(self.peer, &all[..count]);
        drop(transmitter);
        self.line.buffers().recycle(header);
        let sent = self.clock.now();
        outbox.sent = sent;
        self.monitors[0].left(sent.since(now));
        true
    }

    /// Copies a datagram from the network into a message; `None` if there is no room for it.
    pub(crate) fn datagram(&self, datagram: Datagram<'_>, now: Instant) -> Option<Message> {
        // A reliable transport decides itself: it must receive acknowledgements in any case.
        if self.drops_unread && self.line.connection().is_full() {
            self.line.connection().count(Reason::NoRoom);
            return None;
        }
        let buffers = self.line.buffers();
        let datagram = if self.splits_headers { datagram } else { datagram.contiguous() };
        let mut message = match datagram {
            Datagram::SharedBuffer(bytes) => Message::copy_of(bytes, buffers),
            // The buffer that was returned last, so that the two used in turn stay in the cache.
            Datagram::OwnBuffer(bytes) => {
                Message::received(std::mem::replace(bytes, buffers.datagram()))
            }
            Datagram::SplitHeaders(headers, bytes) => {
                Message::apart(headers, std::mem::replace(bytes, buffers.datagram()), buffers)
            }
        };
        message.arrived = now;
        Some(message)
    }
}
