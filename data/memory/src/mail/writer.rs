//! The writing side of a mailbox: it finds room, writes messages, publishes them, and returns whether to wake
//! the reader.

use alloc::collections::VecDeque;
use core::fmt;

use super::MailboxError;
use super::block::{MailboxSpec, Shared, stride};
use crate::Bell;
#[cfg(not(loom))]
use crate::region::{Region, RegionError};
#[cfg(not(loom))]
use crate::sync::Arc;
use crate::sync::{Ordering, fence};

/// The writing side.
pub struct MailboxWriter {
    shared: Shared,
    /// Where the next message begins.
    tail: u64,
    /// The position that was published to the reader.
    published: u64,
    /// The oldest message whose room is not reused.
    low: u64,
    /// The bytes of each message from `low` to `tail`.
    sizes: VecDeque<u32>,
    number: u32,
}

impl MailboxWriter {
    pub(super) fn of(shared: Shared) -> Self {
        let sizes = VecDeque::with_capacity(shared.spec.bound as usize);
        Self { shared, tail: 0, published: 0, low: 0, sizes, number: 0 }
    }

    /// The writing side of a mailbox that a reader has laid out in a region, and into which nothing was
    /// written yet.
    ///
    /// # Errors
    /// [`RegionError`] if no such mailbox lies there.
    #[cfg(not(loom))]
    pub fn within(region: &Arc<dyn Region>, at: usize) -> Result<Self, RegionError> {
        Shared::open(region, at).map(Self::of)
    }

    /// Its size.
    #[must_use]
    pub const fn spec(&self) -> MailboxSpec {
        self.shared.spec
    }

    /// Writes a message behind those that wait; the reader sees it after [`flush`](Self::flush). Linear in
    /// its length; never blocks.
    ///
    /// # Errors
    /// [`MailboxError`]; nothing is changed then.
    #[inline]
    pub fn put(&mut self, tag: u64, bytes: &[u8]) -> Result<(), MailboxError> {
        let takes = stride(bytes.len() as u64);
        self.make_room(takes, bytes.len())?;
        let at = self.tail;
        let shared = &self.shared;
        let order = Ordering::Relaxed;
        shared.word(at).store(bytes.len() as u64 | u64::from(self.number) << 32, order);
        shared.word(at + 8).store(tag, order);
        let (whole, rest) = bytes.as_chunks::<8>();
        let (front, back) = shared.words(at + 16, whole.len());
        for (word, chunk) in front.iter().chain(back).zip(whole) {
            word.store(u64::from_ne_bytes(*chunk), order);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            let word = shared.word(at + 16 + whole.len() as u64 * 8);
            word.store(u64::from_ne_bytes(last), order);
        }
        shared.word(at + takes - 8).store(takes, order);
        self.tail = at + takes;
        self.sizes.push_back(takes as u32);
        self.number = self.number.wrapping_add(1);
        Ok(())
    }

    /// Whether a message of this length can be written now; makes room in a mailbox that overwrites.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn room_for(&mut self, len: usize) -> Result<(), MailboxError> {
        self.make_room(stride(len as u64), len)
    }

    /// Skips a message that is not written: the reader will count it as missed.
    pub fn skip(&mut self) {
        self.number = self.number.wrapping_add(1);
    }

    /// Publishes the written messages to the reader. True: it sleeps, and this caller must wake it.
    #[must_use = "the reader waits for the call"]
    #[inline]
    pub fn flush(&mut self) -> bool {
        self.publish_silently();
        self.bell().notify_sleeper()
    }

    /// Waiting messages, according to the reader.
    ///
    /// # Errors
    /// [`MailboxError::Corrupt`] if the reader's counter is invalid.
    pub fn waiting(&mut self) -> Result<usize, MailboxError> {
        let head = self.head()?;
        let mut at = self.low;
        let read = self.sizes.iter().take_while(|size| {
            at += u64::from(**size);
            at <= head
        });
        Ok(self.sizes.len() - read.count())
    }

    /// Messages missed, according to the reader.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.shared.header().reader.0.missed.load(Ordering::Relaxed)
    }

    /// Whether the reader has marked itself as gone.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.shared.header().reader.0.gone.load(Ordering::Acquire) != 0
    }

    /// The bell on which the reader sleeps.
    #[must_use]
    pub fn bell(&self) -> &Bell {
        &self.shared.header().bell.0
    }

    /// Publishes the written messages without waking the reader: a sleeping reader finds them when it wakes
    /// for another reason.
    #[inline]
    pub fn publish_silently(&mut self) {
        self.published = self.tail;
        self.shared.header().writer.0.tail.store(self.tail, Ordering::Release);
    }

    fn head(&self) -> Result<u64, MailboxError> {
        let head = self.shared.header().reader.0.head.load(Ordering::Acquire);
        if head <= self.published { Ok(head) } else { Err(MailboxError::Corrupt) }
    }

    #[inline]
    fn has_room(&self, takes: u64) -> bool {
        let spec = self.shared.spec;
        self.tail + takes - self.low <= spec.capacity && (self.sizes.len() as u64) < spec.bound
    }

    #[inline]
    fn make_room(&mut self, takes: u64, len: usize) -> Result<(), MailboxError> {
        if self.has_room(takes) {
            return Ok(());
        }
        let spec = self.shared.spec;
        if takes > spec.capacity {
            return Err(MailboxError::TooLong { len, most: spec.longest() });
        }
        if !spec.overwrites {
            let head = self.head()?;
            while let Some(size) = self.sizes.front().copied().map(u64::from)
                && self.low + size <= head
            {
                self.low += size;
                self.sizes.pop_front();
            }
            return if self.has_room(takes) { Ok(()) } else { Err(MailboxError::Full) };
        }
        while !self.has_room(takes)
            && let Some(size) = self.sizes.pop_front()
        {
            self.low += u64::from(size);
        }
        if self.low > self.published {
            // A reader never sees `low` beyond `tail`.
            self.publish_silently();
        }
        // Release: a thread that sees it sees a `tail` that is no less.
        self.shared.header().writer.0.low.store(self.low, Ordering::Release);
        // A thread that sees anything written from here on also sees `low`; see `was_overwritten`.
        fence(Ordering::Release);
        Ok(())
    }
}

impl Drop for MailboxWriter {
    fn drop(&mut self) {
        self.shared.header().writer.0.gone.store(1, Ordering::Release);
    }
}

impl fmt::Debug for MailboxWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailWriter").field("tail", &self.tail).finish_non_exhaustive()
    }
}
