//! The receiving half of a connection: into the application's memory, or the buffer that it came in.

use std::sync::atomic::Ordering;
use std::time::Duration;

use selvedge_data_stack::message::Message;
use selvedge_data_stack::module::Direction;
use selvedge_units::Span;

use super::buffer::Buffer;
use super::connection::span;
use super::{Connection, RecvError};
use crate::work::{CLOSING, DATA};

/// How long a thread waits at once for a message; then it looks again who reads the socket.
const ROUND: Span = Span::from_millis(5);
/// As long, where it is the one that is to read the socket next.
const HANDOVER: Span = Span::from_millis(1);
/// How long a thread that has read the socket waits for elements, and how often; it looks between
/// whether they are done, since they notify it of whole messages only.
const MOMENT: Duration = Duration::from_micros(50);
const MOMENTS: u32 = 20;

fn at_most(wait: Span, most: Span) -> Duration {
    Duration::from_nanos(wait.min(most).0)
}

impl Connection {
    /// Receives the next message into `into`, which is emptied first; waits for at most so long.
    ///
    /// # Errors
    /// [`RecvError`].
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
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn take(&self, patience: Duration) -> Result<Buffer, RecvError> {
        let until = self.shared.clock.now() + span(patience);
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
                Some([CLOSING]) => self.closed.store(true, Ordering::Release),
                _ => {}
            }
            work.line.buffers().give(message);
        }
        let dead = self.gone.load(Ordering::Acquire) || work.line.is_dead();
        Err(if dead { RecvError::Dead } else { RecvError::Timeout })
    }

    /// The next message that elements have in hand, if they have one: where several serve this
    /// connection, their threads deliver it a moment after it was read.
    fn pop_from_elements(&self) -> Option<Message> {
        let work = self.plant.work();
        for _ in 0..MOMENTS {
            if self.plant.is_clear_of(Direction::Up) {
                break;
            }
            if let Some(message) = work.pop(MOMENT) {
                return Some(message);
            }
        }
        work.pop(Duration::ZERO)
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
        let message = if before > 0 {
            // This thread is counted twice, so that 1 always means a thread that reads itself.
            shared.receiving.fetch_add(1, Ordering::AcqRel);
            let message = work.pop(at_most(wait, ROUND));
            shared.receiving.fetch_sub(1, Ordering::AcqRel);
            message
        } else if let Ok(mut intake) = shared.intake.try_lock() {
            shared.pumped.fetch_add(1, Ordering::Relaxed);
            let _ = intake.watch(shared) || intake.pump(shared, wait.min(ROUND));
            drop(intake);
            self.pop_from_elements()
        } else {
            // The endpoint's thread releases the socket soon, and then expects this one to read.
            work.pop(at_most(wait, HANDOVER))
        };
        shared.receiving.fetch_sub(1, Ordering::AcqRel);
        message
    }
}
