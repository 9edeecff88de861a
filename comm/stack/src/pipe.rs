//! Pipes: queues of messages before a module, whose locking depends on their number of users.
//!
//! Each side of a pipe - writers, readers - has one *half* of a lock-free ring. A sole user of a
//! side owns the half and needs no lock. With several users the half is shared behind a mutex.
//! Users register themselves. An owner that sees another user registered moves its half behind the
//! mutex at its next turn, so locking changes while messages flow and no other user stops for it.
//!
//! Messages leave in the order in which they were enqueued, each with a ticket. Readers may finish
//! them in any order: [`Pipe::complete`] passes on the outcomes in order of the tickets.

use std::collections::BTreeMap;

use selvedge_data_memory::{Consumer, Producer, ring};

use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// A user of a pipe, as a bit: an element, or a port of the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PipeUser(u64);

impl PipeUser {
    /// User number `n`, 0 ..= 63.
    #[must_use]
    pub const fn new(n: u8) -> Self {
        Self(1 << (n & 63))
    }
}

/// Padding for fields that are written while messages flow: two cache lines of 64 bytes, since processors
/// fetch them in pairs. Without it each message would make other cores fetch the neighbouring fields anew.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

/// One side of a pipe.
#[derive(Debug)]
#[repr(align(128))]
struct Side<H> {
    users: AtomicU64,
    shared: Mutex<Option<H>>,
}

/// A user's end of a side; it owns the half while this user is the only one.
#[derive(Debug)]
pub struct PipeEnd<H> {
    half: Option<H>,
    registered: bool,
}

impl<H> Default for PipeEnd<H> {
    fn default() -> Self {
        Self { half: None, registered: false }
    }
}

/// A writer's end.
pub type WriterEnd<T> = PipeEnd<Producer<T>>;
/// A reader's end.
pub type ReaderEnd<T> = PipeEnd<Reader<T>>;

/// How a user reached a half.
enum Access<'a, H> {
    Owned(&'a mut H),
    Shared(MutexGuard<'a, Option<H>>),
}

impl<H> Side<H> {
    fn new(half: H) -> Self {
        Self { users: AtomicU64::new(0), shared: Mutex::new(Some(half)) }
    }

    /// The half; `None` while another user still owns it.
    fn access<'a>(&'a self, me: PipeUser, hand: &'a mut PipeEnd<H>) -> Option<Access<'a, H>> {
        if !hand.registered {
            self.users.fetch_or(me.0, Ordering::AcqRel);
            hand.registered = true;
        }
        let alone = self.users.load(Ordering::Acquire) == me.0;
        if hand.half.is_some() && !alone {
            *lock(&self.shared) = hand.half.take();
        }
        if hand.half.is_none() {
            let mut table = lock(&self.shared);
            if !alone {
                return table.is_some().then_some(Access::Shared(table));
            }
            hand.half = table.take();
        }
        hand.half.as_mut().map(Access::Owned)
    }

    /// Moves the half behind the mutex if others want it.
    fn release_to_shared(&self, me: PipeUser, hand: &mut PipeEnd<H>) {
        if hand.half.is_some() && self.users.load(Ordering::Acquire) != me.0 {
            *lock(&self.shared) = hand.half.take();
        }
    }

    /// Stops using this side.
    fn unregister(&self, me: PipeUser, hand: &mut PipeEnd<H>) {
        if let Some(half) = hand.half.take() {
            *lock(&self.shared) = Some(half);
        }
        if std::mem::take(&mut hand.registered) {
            self.users.fetch_and(!me.0, Ordering::AcqRel);
        }
    }
}

/// The readers' half: the ring's end and the next ticket.
#[derive(Debug)]
pub struct Reader<T> {
    ring: Consumer<T>,
    next: u64,
}

/// Why a message was not enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnqueueError {
    /// There is no room.
    Full,
    /// Another user still owns the writers' half, and will share it at its next turn.
    Busy,
}

/// A message that was dequeued.
#[derive(Debug)]
pub struct Dequeued<T> {
    /// The message.
    pub message: T,
    /// Its place in the order.
    pub ticket: u64,
    /// Whether a lock was needed.
    pub locked: bool,
}

/// Outcomes that wait for those of earlier tickets, by ticket.
type Waiting<O> = BTreeMap<u64, O>;

/// A pipe of messages `T`, whose processing has outcomes `O`.
#[derive(Debug)]
pub struct Pipe<T, O> {
    writers: Side<Producer<T>>,
    readers: Side<Reader<T>>,
    put: CachePadded<AtomicU64>,
    done: CachePadded<AtomicU64>,
    waiting: Mutex<Waiting<O>>,
    /// How far readers may run ahead of the completed tickets.
    ahead: u64,
}

impl<T: Send, O> Pipe<T, O> {
    /// A pipe for `capacity` messages, 2 ..= 65536, rounded up to a power of two.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let (producer, consumer) = ring(capacity);
        let ahead = producer.capacity().min(64) as u64;
        Self {
            writers: Side::new(producer),
            readers: Side::new(Reader { ring: consumer, next: 0 }),
            put: CachePadded(AtomicU64::new(0)),
            done: CachePadded(AtomicU64::new(0)),
            waiting: Mutex::new(BTreeMap::new()),
            ahead,
        }
    }

    /// Enqueues a message. Returns whether a lock was needed.
    ///
    /// # Errors
    /// Returns the message with the reason.
    pub fn enqueue(
        &self,
        me: PipeUser,
        hand: &mut WriterEnd<T>,
        message: T,
    ) -> Result<bool, (T, EnqueueError)> {
        let put = |ring: &mut Producer<T>, message: T| {
            if !ring.has_room() {
                return Err((message, EnqueueError::Full));
            }
            // The message is counted before any reader can take it. Only the user of the half
            // changes the count.
            let count = self.put.0.load(Ordering::Relaxed);
            self.put.0.store(count + 1, Ordering::Release);
            ring.push(message).map_err(|message| (message, EnqueueError::Full))
        };
        match self.writers.access(me, hand) {
            None => Err((message, EnqueueError::Busy)),
            Some(Access::Owned(ring)) => put(ring, message).map(|()| false),
            Some(Access::Shared(mut table)) => match table.as_mut() {
                Some(ring) => put(ring, message).map(|()| true),
                None => Err((message, EnqueueError::Busy)),
            },
        }
    }

    /// Whether the pipe looks empty; a cheap test that answers most looks.
    #[inline]
    pub fn appears_empty(&self, hand: &ReaderEnd<T>) -> bool {
        match &hand.half {
            Some(reader) => reader.ring.is_empty(),
            None => hand.registered && self.is_drained(),
        }
    }

    /// Dequeues the oldest message, if there is one and the readers have not run too far ahead.
    pub fn dequeue(&self, me: PipeUser, hand: &mut ReaderEnd<T>) -> Option<Dequeued<T>> {
        if self.appears_empty(hand) {
            return None;
        }
        let take = |reader: &mut Reader<T>| {
            let ticket = reader.next;
            if ticket.saturating_sub(self.done.0.load(Ordering::Acquire)) >= self.ahead {
                return None;
            }
            let message = reader.ring.pop()?;
            reader.next += 1;
            Some((message, ticket))
        };
        let (taken, locked) = match self.readers.access(me, hand)? {
            Access::Owned(reader) => (take(reader), false),
            Access::Shared(mut table) => (take(table.as_mut()?), true),
        };
        taken.map(|(message, ticket)| Dequeued { message, ticket, locked })
    }

    /// Whether the pipe is empty, and all messages taken from it are completed.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let done = self.done.0.load(Ordering::Acquire);
        self.put.0.load(Ordering::Acquire) == done
    }

    /// The number of messages in the pipe, or taken and not completed.
    #[must_use]
    pub fn len(&self) -> u64 {
        let done = self.done.0.load(Ordering::Acquire);
        self.put.0.load(Ordering::Acquire).saturating_sub(done)
    }

    /// Whether there are no such messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Completes a message that was dequeued. `pass` is called for each outcome whose turn has
    /// come, in order of tickets; it returns the part that can't be passed on yet. Returns whether
    /// such an outcome is left: the caller then calls [`Pipe::flush`] later.
    ///
    /// `alone`: the message was dequeued without a lock, and this user still owns the half.
    pub fn complete(
        &self,
        ticket: u64,
        outcome: O,
        alone: bool,
        mut pass: impl FnMut(O) -> Option<O>,
    ) -> bool {
        // No other user took a later message, so no outcome can wait behind this one.
        let outcome = if alone && self.done.0.load(Ordering::Acquire) == ticket {
            match pass(outcome) {
                None => {
                    self.done.0.store(ticket + 1, Ordering::Release);
                    return false;
                }
                Some(rest) => rest,
            }
        } else {
            outcome
        };
        let mut waiting = lock(&self.waiting);
        waiting.insert(ticket, outcome);
        self.forward_results(&mut waiting, pass)
    }

    /// Retries outcomes that could not be passed on. Returns as [`Pipe::complete`] does.
    pub fn flush(&self, pass: impl FnMut(O) -> Option<O>) -> bool {
        self.forward_results(&mut lock(&self.waiting), pass)
    }

    fn forward_results(
        &self,
        waiting: &mut Waiting<O>,
        mut pass: impl FnMut(O) -> Option<O>,
    ) -> bool {
        loop {
            let turn = self.done.0.load(Ordering::Acquire);
            let Some(outcome) = waiting.remove(&turn) else { return false };
            if let Some(rest) = pass(outcome) {
                waiting.insert(turn, rest);
                return true;
            }
            self.done.0.store(turn + 1, Ordering::Release);
        }
    }

    /// Shares the writers' half if others want it. Users call it often.
    pub fn share_writer_end(&self, me: PipeUser, hand: &mut WriterEnd<T>) {
        self.writers.release_to_shared(me, hand);
    }

    /// Shares the readers' half if others want it. Users call it often.
    pub fn share_reader_end(&self, me: PipeUser, hand: &mut ReaderEnd<T>) {
        self.readers.release_to_shared(me, hand);
    }

    /// Stops reading.
    pub fn unregister_reader(&self, me: PipeUser, hand: &mut ReaderEnd<T>) {
        self.readers.unregister(me, hand);
    }

    /// Stops writing.
    pub fn unregister_writer(&self, me: PipeUser, hand: &mut WriterEnd<T>) {
        self.writers.unregister(me, hand);
    }

    /// The number of writers and of readers.
    #[must_use]
    pub fn users(&self) -> (u32, u32) {
        let count = |users: &AtomicU64| users.load(Ordering::Relaxed).count_ones();
        (count(&self.writers.users), count(&self.readers.users))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PipeUser = PipeUser::new(0);
    const B: PipeUser = PipeUser::new(1);

    #[test]
    fn the_only_user_needs_no_lock_and_several_do() {
        let pipe: Pipe<u32, ()> = Pipe::new(8);
        let (mut a, mut b) = (WriterEnd::default(), WriterEnd::default());
        assert_eq!(pipe.enqueue(A, &mut a, 1), Ok(false));
        // A owns the half until its next turn.
        assert_eq!(pipe.enqueue(B, &mut b, 2), Err((2, EnqueueError::Busy)));
        assert_eq!(pipe.enqueue(A, &mut a, 3), Ok(true));
        assert_eq!(pipe.enqueue(B, &mut b, 2), Ok(true));
        pipe.unregister_writer(A, &mut a);
        assert_eq!(pipe.enqueue(B, &mut b, 4), Ok(false));
        let mut reading = ReaderEnd::default();
        let taken: Vec<u32> = std::iter::from_fn(|| pipe.dequeue(A, &mut reading))
            .map(|taken| taken.message)
            .collect();
        assert_eq!(taken, [1, 3, 2, 4]);
    }

    #[test]
    fn outcomes_pass_in_order() {
        let pipe: Pipe<u32, u32> = Pipe::new(8);
        let (mut writing, mut a, mut b) =
            (WriterEnd::default(), ReaderEnd::default(), ReaderEnd::default());
        for n in 0..4 {
            pipe.enqueue(A, &mut writing, n).unwrap();
        }
        let first = pipe.dequeue(A, &mut a).unwrap();
        assert!(!first.locked && pipe.dequeue(B, &mut b).is_none());
        pipe.share_reader_end(A, &mut a);
        let second = pipe.dequeue(B, &mut b).unwrap();
        let third = pipe.dequeue(A, &mut a).unwrap();
        assert!(second.locked && third.locked);
        let mut passed = Vec::new();
        for taken in [third, second] {
            assert!(!pipe.complete(taken.ticket, taken.message, false, |n| {
                passed.push(n);
                None
            }));
        }
        assert_eq!((passed.len(), pipe.len()), (0, 4));
        // The first outcome can't be passed on at once; then all are.
        assert!(pipe.complete(first.ticket, first.message, true, Some));
        assert!(!pipe.flush(|n| {
            passed.push(n);
            None
        }));
        assert_eq!(passed, [0, 1, 2]);
        assert!(!pipe.is_drained());
        let last = pipe.dequeue(B, &mut b).unwrap();
        assert!(!pipe.complete(last.ticket, last.message, false, |_| None));
        assert!(pipe.is_drained());
    }

    #[test]
    fn full_is_full() {
        let pipe: Pipe<u32, ()> = Pipe::new(2);
        let mut hand = WriterEnd::default();
        assert_eq!(
            [pipe.enqueue(A, &mut hand, 1), pipe.enqueue(A, &mut hand, 2)],
            [Ok(false), Ok(false)]
        );
        assert_eq!(pipe.enqueue(A, &mut hand, 3), Err((3, EnqueueError::Full)));
    }
}
