//! A connection's line as the work of elements: its ends are the socket and the application.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use selvedge_host::clock::Clock;
use selvedge_stack::auto::Monitor;
use selvedge_stack::deliver::Delivery;
use selvedge_stack::element::Work;
use selvedge_stack::message::Message;
use selvedge_stack::module::{Direction, Outputs, Reason};
use selvedge_stack::stack::Line;
use selvedge_units::{Instant, Span};

/// A connection's modules, its way out and its way in.
#[derive(Debug)]
pub(crate) struct LineWork {
    pub(crate) line: Line,
    socket: Arc<UdpSocket>,
    pub(crate) peer: SocketAddr,
    clock: Clock,
    delivery: Mutex<Delivery>,
    arrived: Condvar,
    /// What the two streams do: out, in.
    pub(crate) monitors: [Monitor; 2],
}

/// Messages that the application has not taken, at most; then what comes is dropped below the
/// transport, and a reliable peer sends it again.
const UNREAD_MAX: usize = 1024;

impl LineWork {
    pub(crate) fn new(line: Line, socket: Arc<UdpSocket>, peer: SocketAddr, clock: Clock) -> Self {
        let delivery = Mutex::new(Delivery::new(line.composition().order()));
        let (arrived, monitors) = (Condvar::new(), Default::default());
        Self { line, socket, peer, clock, delivery, arrived, monitors }
    }

    fn delivery(&self) -> MutexGuard<'_, Delivery> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the application has so much to read that nothing more is taken from the network.
    pub(crate) fn is_full(&self) -> bool {
        self.delivery().len() >= UNREAD_MAX
    }

    /// The next message for the application; waits for at most so long.
    pub(crate) fn pop(&self, patience: Duration) -> Option<Message> {
        let mut delivery = self.delivery();
        if delivery.is_empty() {
            let waited = self.arrived.wait_timeout(delivery, patience);
            delivery = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        delivery.pop()
    }
}

impl Work for LineWork {
    type Message = Message;

    fn places(&self) -> usize {
        self.line.modules().len()
    }

    fn run(
        &self,
        place: usize,
        direction: Direction,
        message: Message,
        now: Instant,
        out: &mut Vec<(Direction, Message)>,
    ) -> Span {
        let mut outputs = Outputs::default();
        let call = self.line.call(now);
        self.line.modules()[place].handle(direction, message, &call, &mut outputs);
        out.extend(outputs.drain());
        Span::ZERO
    }

    fn tick(&self, place: usize, now: Instant, out: &mut Vec<(Direction, Message)>) {
        let module = &self.line.modules()[place];
        if module.due().is_some_and(|due| due <= now) {
            let mut outputs = Outputs::default();
            module.tick(&self.line.call(now), &mut outputs);
            out.extend(outputs.drain());
        }
    }

    fn leave(&self, direction: Direction, message: Message, _: Instant) {
        let now = self.clock.now();
        match direction {
            Direction::Down => {
                if !message.control {
                    self.monitors[0].left(now.since(message.arrived));
                }
                // What the kernel does not take is lost, as on any network.
                let _ = self.socket.send_to(message.bytes(), self.peer);
                self.line.buffers().give(message);
            }
            Direction::Up => {
                self.monitors[1].left(now.since(message.arrived));
                let mut delivery = self.delivery();
                delivery.push(message, &self.line.call(now));
                let ready = !delivery.is_empty();
                drop(delivery);
                if ready {
                    self.arrived.notify_one();
                }
            }
        }
    }
}

impl LineWork {
    /// A datagram that the network brought, or nothing where there is no room for it.
    pub(crate) fn datagram(&self, bytes: &[u8]) -> Option<Message> {
        if self.is_full() {
            self.line.connection().count(Reason::NoRoom);
            return None;
        }
        let mut message = Message::copy_of(bytes, self.line.buffers());
        message.arrived = self.clock.now();
        self.monitors[1].arrived(message.arrived, message.size());
        Some(message)
    }
}
