//! The reading side of a mailbox: it copies messages out before it uses them, and sleeps.

use alloc::vec::Vec;
use core::fmt;

use super::block::{MailboxSpec, RECORD_OVERHEAD, Shared, stride};
use super::{MailboxError, TRIES};
use crate::Bell;
#[cfg(not(loom))]
use crate::region::{Region, RegionError};
#[cfg(not(loom))]
use crate::sync::Arc;
use crate::sync::{Ordering, fence};

/// A message, copied out: no other code can change it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxMessage<'a> {
    /// The writer's tag.
    pub tag: u64,
    /// Its number, modulo 2^32.
    pub number: u32,
    /// How many messages directly before it were missed.
    pub missed: u32,
    /// Its content.
    pub bytes: &'a [u8],
}

/// The reading side.
pub struct MailboxReader {
    shared: Shared,
    head: u64,
    tail_seen: u64,
    /// The number that the next message should have.
    number: u32,
    missed: u64,
    buffer: Vec<u8>,
    /// Tag, number, missed and length of the last taken message.
    last: (u64, u32, u32, usize),
}

impl MailboxReader {
    pub(super) fn of(shared: Shared) -> Self {
        let (buffer, last) = (Vec::new(), (0, 0, 0, 0));
        Self { shared, head: 0, tail_seen: 0, number: 0, missed: 0, buffer, last }
    }

    /// Lays out an empty mailbox in a region; returns its reading side.
    ///
    /// # Errors
    /// [`RegionError::Bounds`] if it does not fit there.
    #[cfg(not(loom))]
    pub fn create(
        region: &Arc<dyn Region>,
        at: usize,
        spec: MailboxSpec,
    ) -> Result<Self, RegionError> {
        Shared::create(region, at, spec).map(Self::of)
    }

    /// Its size.
    #[must_use]
    pub const fn spec(&self) -> MailboxSpec {
        self.shared.spec
    }

    /// Takes the oldest message; `None` if there is none now.
    ///
    /// # Errors
    /// [`MailboxError::Corrupt`], from then on always, if the writer wrote invalid values.
    #[inline]
    pub fn take(&mut self) -> Result<Option<MailboxMessage<'_>>, MailboxError> {
        self.take_from(false)
    }

    /// The last taken message; one of no bytes before the first.
    #[must_use]
    #[inline]
    pub fn last(&self) -> MailboxMessage<'_> {
        let (tag, number, missed, len) = self.last;
        MailboxMessage { tag, number, missed, bytes: &self.buffer[..len] }
    }

    /// Takes the newest message; those before it count as missed.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_latest(&mut self) -> Result<Option<MailboxMessage<'_>>, MailboxError> {
        self.take_from(true)
    }

    #[inline]
    fn take_from(&mut self, latest: bool) -> Result<Option<MailboxMessage<'_>>, MailboxError> {
        for attempt in 0..TRIES {
            if (self.head == self.tail_seen || latest) && !self.look()? {
                return Ok(None);
            }
            // A reader that is overtaken again and again continues with the newest message.
            if (latest || attempt > 2) && !self.jump_to_last()? {
                continue;
            }
            let (shared, at) = (&self.shared, self.head);
            let first = shared.word(at).load(Ordering::Relaxed);
            let tag = shared.word(at + 8).load(Ordering::Relaxed);
            if self.was_overwritten(at)? {
                continue;
            }
            let (len, number) = (first & u64::from(u32::MAX), (first >> 32) as u32);
            if stride(len) > self.shared.spec.capacity.min(self.tail_seen - at) {
                return Err(MailboxError::Corrupt);
            }
            self.copy_out(at + 16, len as usize);
            if self.was_overwritten(at)? {
                continue;
            }
            self.head = at + stride(len);
            let missed = number.wrapping_sub(self.number);
            self.number = number.wrapping_add(1);
            let reader = &self.shared.header().reader.0;
            if missed > 0 {
                self.missed += u64::from(missed);
                reader.missed.store(self.missed, Ordering::Relaxed);
            }
            reader.head.store(self.head, Ordering::Release);
            self.last = (tag, number, missed, len as usize);
            return Ok(Some(self.last()));
        }
        Ok(None)
    }

    /// Copies a message's bytes into the reader's own buffer, each word read once.
    #[inline]
    fn copy_out(&mut self, from: u64, len: usize) {
        let room = len.next_multiple_of(8);
        if self.buffer.len() < room {
            self.buffer.resize(room, 0);
        }
        let (chunks, _) = self.buffer[..room].as_chunks_mut::<8>();
        let (front, back) = self.shared.words(from, chunks.len());
        for (chunk, word) in chunks.iter_mut().zip(front.iter().chain(back)) {
            *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    }

    /// Reads the writer's position; returns whether a message waits.
    #[inline]
    fn look(&mut self) -> Result<bool, MailboxError> {
        let tail = self.shared.header().writer.0.tail.load(Ordering::Acquire);
        let spec = self.shared.spec;
        let sound = tail >= self.tail_seen
            && tail.is_multiple_of(8)
            && (spec.overwrites || tail - self.head <= spec.capacity);
        if !sound {
            return Err(MailboxError::Corrupt);
        }
        self.tail_seen = tail;
        Ok(tail != self.head)
    }

    /// Whether the bytes read at a position were overwritten, or may have been; then the reader moves to the
    /// oldest message that was not.
    #[inline]
    fn was_overwritten(&mut self, at: u64) -> Result<bool, MailboxError> {
        if !self.shared.spec.overwrites {
            return Ok(false);
        }
        // If any earlier read was of a later message, then this sees the `low` that was stored before it.
        fence(Ordering::Acquire);
        let low = self.shared.header().writer.0.low.load(Ordering::Acquire);
        if low <= at {
            return Ok(false);
        }
        self.look()?;
        if low > self.tail_seen || !low.is_multiple_of(8) {
            return Err(MailboxError::Corrupt);
        }
        self.head = low;
        Ok(true)
    }

    /// Moves to the newest message; false if that was overwritten at once.
    fn jump_to_last(&mut self) -> Result<bool, MailboxError> {
        if self.head == self.tail_seen {
            return Ok(false);
        }
        let takes = self.shared.word(self.tail_seen - 8).load(Ordering::Relaxed);
        if self.was_overwritten(self.tail_seen - 8)? {
            return Ok(false);
        }
        let waits = self.tail_seen - self.head;
        if takes < RECORD_OVERHEAD || takes > waits || !takes.is_multiple_of(8) {
            return Err(MailboxError::Corrupt);
        }
        self.head = self.tail_seen - takes;
        Ok(true)
    }

    /// Whether a message waits: no system call, and nothing is changed.
    #[must_use]
    #[inline]
    pub fn has_message(&self) -> bool {
        self.shared.header().writer.0.tail.load(Ordering::Acquire) != self.head
    }

    /// The reader is about to sleep, on [`bell`](Self::bell) as long as it is [`Bell::SLEEPING`]; false if a
    /// message waits, and then it stays awake.
    #[must_use]
    pub fn prepare_sleep(&self) -> bool {
        self.bell().prepare_sleep_unless(|| self.has_message())
    }

    /// Marks the reader as awake again.
    pub fn finish_sleep(&self) {
        self.bell().wake();
    }

    /// The bell on which the reader sleeps.
    #[must_use]
    pub fn bell(&self) -> &Bell {
        &self.shared.header().bell.0
    }

    /// Whether the writer is gone. Messages that it wrote before can still be taken.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.shared.header().writer.0.gone.load(Ordering::Acquire) != 0
    }

    /// Messages that were missed.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.missed
    }
}

impl Drop for MailboxReader {
    fn drop(&mut self) {
        self.shared.header().reader.0.gone.store(1, Ordering::Release);
    }
}

impl fmt::Debug for MailboxReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailReader").field("head", &self.head).finish_non_exhaustive()
    }
}
