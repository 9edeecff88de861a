//! A connection as the application has it: send, receive, flush.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use selvedge_stack::element::{Plant, Port};
use selvedge_stack::message::Message;
use selvedge_stack::model::StreamId;
use selvedge_stack::module::{Direction, Reason};
use selvedge_stack::stack::{Line, SendError};
use selvedge_units::{Instant, Span};

use crate::work::LineWork;

use super::buffer::Buffer;
use super::shared::Shared;
use super::{CLOSE, DATA, RecvError, lock};

/// A connection. Dropping it closes it.
#[derive(Debug)]
pub struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u32,
    pub(super) plant: Arc<Plant<LineWork>>,
    /// The application's port, and the next message's ticket.
    pub(super) port: Mutex<(Port<LineWork>, u64)>,
    pub(super) streams: [StreamId; 2],
    pub(super) gone: Arc<AtomicBool>,
    pub(super) closed: AtomicBool,
}

impl Connection {
    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.plant.work().peer
    }

    /// What this host guarantees of what is sent and of what is received.
    #[must_use]
    pub fn granted(&self) -> [Option<selvedge_stack::auto::Granted>; 2] {
        let manager = lock(&self.shared.manager);
        self.streams.map(|id| manager.granted(id))
    }

    /// The modules and who serves them, a line for each: name, down, up, messages waiting.
    pub fn show(&self) -> Vec<(String, String, String, (u64, u64))> {
        let steps = self.plant.work().line.composition().steps();
        let waiting = self.plant.waiting();
        steps
            .iter()
            .enumerate()
            .zip(waiting)
            .map(|((place, step), waiting)| {
                let at = |direction| self.plant.assigned(place, direction).to_string();
                (step.to_string(), at(Direction::Down), at(Direction::Up), waiting)
            })
            .collect()
    }

    /// What went no further on this end, by reason, where anything did.
    #[must_use]
    pub fn dropped(&self) -> Vec<(Reason, u64)> {
        let connection = self.plant.work().line.connection();
        let count = |why| (why, connection.dropped(why));
        Reason::ALL.into_iter().map(count).filter(|&(_, count)| count > 0).collect()
    }

    /// Sends a message; waits while the window is full, for at most so long.
    ///
    /// # Errors
    /// [`SendError`]; [`SendError::Full`] when the time is over.
    pub fn send(&self, bytes: &[u8], patience: Duration) -> Result<(), SendError> {
        self.put(bytes.len(), DATA, patience, |line| Message::copy_of(bytes, line.buffers()))
    }

    /// Sends the message that these parts make, one after the other: they are gathered by the one
    /// copy that [`Connection::send`] makes as well.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub fn send_parts(&self, parts: &[&[u8]], patience: Duration) -> Result<(), SendError> {
        let len = parts.iter().map(|part| part.len()).sum();
        self.put(len, DATA, patience, |line| {
            let mut message = Message::empty(line.buffers());
            parts.iter().for_each(|part| message.append(part));
            message
        })
    }

    /// A buffer for a message of this length, to be written and then sent by [`Connection::post`].
    /// What is in it at first is left over from some message before.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Buffer {
        Buffer::new(Message::of_len(len, self.plant.work().line.buffers()), &self.plant)
    }

    /// Sends a message without a copy. A buffer of another connection is sent as well.
    ///
    /// # Errors
    /// As [`Connection::send`]; the buffer is gone then.
    pub fn post(&self, buffer: Buffer, patience: Duration) -> Result<(), SendError> {
        let message = buffer.into_message();
        self.put(message.len(), DATA, patience, |_| message)
    }

    fn put(
        &self,
        len: usize,
        tag: u8,
        patience: Duration,
        make: impl FnOnce(&Line) -> Message,
    ) -> Result<(), SendError> {
        let until = self.shared.clock.now() + Span(patience.as_nanos() as u64);
        let mut port = lock(&self.port);
        let mut waits = 0_u32;
        loop {
            let now = self.shared.clock.now();
            match self.objection(len, port.1, now) {
                None => break,
                Some(SendError::Full) if now < until => {
                    waits += 1;
                    self.give_way(waits);
                }
                Some(error) => return Err(error),
            }
        }
        self.put_in(&mut port, tag, make)
    }

    /// Puts a message of the application in, if there is room for it now.
    pub(super) fn try_put(
        &self,
        len: usize,
        make: impl FnOnce(&Line) -> Message,
    ) -> Result<(), SendError> {
        let mut port = lock(&self.port);
        match self.objection(len, port.1, self.shared.clock.now()) {
            Some(error) => Err(error),
            None => self.put_in(&mut port, DATA, make),
        }
    }

    /// Why a message of this length can't go in now, if it can't.
    fn objection(&self, len: usize, ticket: u64, now: Instant) -> Option<SendError> {
        if self.gone.load(Ordering::Acquire) {
            return Some(SendError::Dead);
        }
        let size = selvedge_units::Bytes(len as u64);
        self.plant.work().line.objection(len + 1, ticket).or_else(|| {
            let admitted = lock(&self.shared.manager).admit(self.streams[0], now, size);
            admitted.is_err().then_some(SendError::Full)
        })
    }

    fn put_in(
        &self,
        port: &mut (Port<LineWork>, u64),
        tag: u8,
        make: impl FnOnce(&Line) -> Message,
    ) -> Result<(), SendError> {
        let (work, now) = (self.plant.work(), self.shared.clock.now());
        let message = make(&work.line);
        let size = selvedge_units::Bytes(message.len() as u64);
        let mut message = Line::named(message, port.1, now);
        message.append(&[tag]);
        work.monitors[0].arrived(now, size);
        // The pipe holds more than any window, so it is full for moments only.
        for waits in 0..100_000_u32 {
            match port.0.put(message) {
                Ok(()) => {
                    port.1 += 1;
                    if tag == DATA {
                        work.flows[0].add(size.0 as usize);
                    }
                    self.shared.elements.prompt(&self.plant, false);
                    return Ok(());
                }
                Err((back, _)) => message = back,
            }
            self.give_way(waits);
        }
        work.line.buffers().give(message);
        Err(SendError::Full)
    }

    /// Receives the next message into `into`, which is emptied first; waits for at most so long.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv(&self, into: &mut Vec<u8>, patience: Duration) -> Result<(), RecvError> {
        let message = self.take(patience)?;
        into.clear();
        into.extend_from_slice(&message);
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
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn take(&self, patience: Duration) -> Result<Buffer, RecvError> {
        let until = self.shared.clock.now() + Span(patience.as_nanos() as u64);
        loop {
            let left = until.since(self.shared.clock.now());
            let next = || self.next(left.min(Span::from_millis(50)));
            match self.take_of(next) {
                Err(RecvError::Timeout) if left > Span::ZERO => {}
                outcome => return outcome,
            }
        }
    }

    /// The next message that has come already.
    pub(super) fn try_take(&self) -> Result<Buffer, RecvError> {
        self.take_of(|| self.plant.work().pop(Duration::ZERO))
    }

    /// The next message for the application of those that `next` gives.
    fn take_of(&self, mut next: impl FnMut() -> Option<Message>) -> Result<Buffer, RecvError> {
        let work = self.plant.work();
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(RecvError::Closed);
            }
            let Some(mut message) = next() else { break };
            match message.cut::<1>() {
                Some([DATA]) => {
                    work.flows[1].add(message.len());
                    return Ok(Buffer::new(message, &self.plant));
                }
                Some([CLOSE]) => self.closed.store(true, Ordering::Release),
                _ => {}
            }
            work.line.buffers().give(message);
        }
        let dead = self.gone.load(Ordering::Acquire) || work.line.is_dead();
        Err(if dead { RecvError::Dead } else { RecvError::Timeout })
    }

    /// Lets go what was sent and held back.
    pub(super) fn let_go(&self) {
        self.shared.elements.prompt(&self.plant, true);
    }

    /// The next message, of whichever sort; waits for at most so long.
    fn next(&self, wait: Span) -> Option<Message> {
        let (shared, work) = (&self.shared, self.plant.work());
        if let Some(message) = work.pop(Duration::ZERO) {
            return Some(message);
        }
        // What was sent and held back may be what the peer waits for.
        shared.elements.prompt(&self.plant, true);
        let before = shared.receiving.fetch_add(1, Ordering::AcqRel);
        let message = match shared.intake.try_lock() {
            Ok(mut intake) if before == 0 => {
                shared.pumped.fetch_add(1, Ordering::Relaxed);
                intake.pump(shared, wait.min(Span::from_millis(5)));
                drop(intake);
                work.pop(Duration::ZERO)
            }
            _ => work.pop(Duration::from_nanos(wait.min(Span::from_millis(5)).0)),
        };
        shared.receiving.fetch_sub(1, Ordering::AcqRel);
        message
    }

    /// A sender waits: lets go what was held back, and reads what the peer says.
    fn give_way(&self, waits: u32) {
        let shared = &self.shared;
        shared.elements.prompt(&self.plant, true);
        match shared.intake.try_lock() {
            Ok(mut intake) => {
                shared.pumped.fetch_add(1, Ordering::Relaxed);
                intake.pump(shared, Span::from_micros(50));
            }
            Err(_) => pause(waits),
        }
    }

    /// Waits until all that was sent has arrived, as far as the stack can know; whether it has.
    pub fn flush(&self, patience: Duration) -> bool {
        let until = self.shared.clock.now() + Span(patience.as_nanos() as u64);
        let modules = self.plant.work().line.modules();
        let mut waits = 0;
        loop {
            if self.plant.is_clear() && modules.iter().all(|module| module.is_quiet()) {
                return true;
            }
            if self.shared.clock.now() >= until || self.gone.load(Ordering::Acquire) {
                return false;
            }
            waits += 1;
            self.give_way(waits);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Acquire) && !self.plant.work().line.is_dead() {
            let times = if self.plant.work().line.composition().has("reliable") { 1 } else { 3 };
            for _ in 0..times {
                let _ = self.put(0, CLOSE, Duration::from_millis(10), |line| {
                    Message::empty(line.buffers())
                });
            }
            let _ = self.flush(Duration::from_millis(500));
        }
        self.shared.shut(self.id);
    }
}

/// A little while, longer after many.
pub(super) fn pause(waits: u32) {
    if waits < 100 {
        thread::yield_now();
    } else {
        thread::park_timeout(Duration::from_micros(50));
    }
}
