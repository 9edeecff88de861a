//! A mailbox: messages of any length from one writer to one reader, who need not trust each other
//! and may sleep. The way of events inside a host; `mail/block.rs` states the layout.
//!
//! The writer publishes `tail` with release order after it has written messages, as many at a time as
//! it likes. When there is no room it is told so - or, if the mailbox overwrites, it moves `low` beyond
//! the oldest messages, then writes over them; the reader copies a message out and looks at `low`
//! afterwards: what was overwritten meanwhile is not believed (a seqlock). So a reader that is slow,
//! stopped or dead holds nobody up, and costs the writer no look at what the reader writes.
//!
//! Each side keeps its own counters to itself and believes the other's only after a check. Whatever a
//! hostile side writes, the other reads garbage at worst, or [`MailError::Corrupt`].
//!
//! Before it sleeps the reader sets `bell` and looks once more; the writer publishes, then looks at
//! `bell`. Of two that do so at the same time at least one sees the other, by the fences in between.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

mod block;

pub use self::block::MailSpec;
#[cfg(not(loom))]
pub use self::block::mail_region;
use self::block::{AROUND, Shared, stride};
#[cfg(not(loom))]
use crate::region::{Region, RegionError};
#[cfg(not(loom))]
use crate::sync::Arc;
use crate::sync::{AtomicU32, Ordering, fence};

const AWAKE: u32 = 0;
/// What `bell` holds while the reader sleeps.
pub const MAIL_ASLEEP: u32 = 1;
const CALLED: u32 = 2;

/// How often a reader tries anew when it is overwritten while it reads.
const TRIES: usize = 8;

/// Why a message was not put in, or none can be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailError {
    /// There is no room, and the mailbox does not overwrite.
    Full,
    /// The message can never fit.
    TooLong {
        /// Its bytes.
        len: usize,
        /// The most.
        most: usize,
    },
    /// What the other side wrote makes no sense: believe nothing more.
    Corrupt,
}

impl fmt::Display for MailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the mailbox is full; come again when some was read"),
            Self::TooLong { len, most } => {
                write!(
                    f,
                    "a message of {len} bytes does not fit, at most {most}; ask for more room"
                )
            }
            Self::Corrupt => {
                f.write_str("the other side broke the mailbox; it is not used any more")
            }
        }
    }
}

impl core::error::Error for MailError {}

/// A mailbox in this process.
#[must_use]
pub fn mailbox(spec: MailSpec) -> (MailWriter, MailReader) {
    let (ours, theirs) = Shared::pair(spec.clamped());
    (MailWriter::of(ours), MailReader::of(theirs))
}

/// The side that writes.
pub struct MailWriter {
    shared: Shared,
    /// Where the next message begins.
    tail: u64,
    /// What the reader has been shown.
    published: u64,
    /// The oldest message that has its room.
    low: u64,
    /// What each message from `low` to `tail` takes.
    sizes: VecDeque<u32>,
    number: u32,
}

impl MailWriter {
    fn of(shared: Shared) -> Self {
        let sizes = VecDeque::with_capacity(shared.spec.bound as usize);
        Self { shared, tail: 0, published: 0, low: 0, sizes, number: 0 }
    }

    /// The writing side of a mailbox that a reader has laid out in a region, and nobody wrote into
    /// yet.
    ///
    /// # Errors
    /// [`RegionError`] if no such mailbox lies there.
    #[cfg(not(loom))]
    pub fn within(region: &Arc<dyn Region>, at: usize) -> Result<Self, RegionError> {
        Shared::open(region, at).map(Self::of)
    }

    /// How large it is.
    #[must_use]
    pub const fn spec(&self) -> MailSpec {
        self.shared.spec
    }

    /// Writes a message behind those that wait; the reader sees it after [`flush`](Self::flush). Linear
    /// in its length; never waits.
    ///
    /// # Errors
    /// [`MailError`]; nothing is changed then.
    #[inline]
    pub fn put(&mut self, tag: u64, bytes: &[u8]) -> Result<(), MailError> {
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

    /// Whether a message of this length can be put in now; makes room where that overwrites.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn room_for(&mut self, len: usize) -> Result<(), MailError> {
        self.make_room(stride(len as u64), len)
    }

    /// A message that is not put in: the reader will know that it missed one.
    pub fn skip(&mut self) {
        self.number = self.number.wrapping_add(1);
    }

    /// Shows the reader what was written. True: it sleeps, and this caller owes it the call.
    #[must_use = "the reader waits for the call"]
    #[inline]
    pub fn flush(&mut self) -> bool {
        self.show();
        // The fence orders the store of `tail` before the look at `bell`; see `lie_down`.
        fence(Ordering::SeqCst);
        let bell = &self.shared.header().bell.0;
        bell.load(Ordering::Relaxed) == MAIL_ASLEEP
            && bell
                .compare_exchange(MAIL_ASLEEP, CALLED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Messages that wait, as far as the reader says.
    ///
    /// # Errors
    /// [`MailError::Corrupt`] if what it says makes no sense.
    pub fn waiting(&mut self) -> Result<usize, MailError> {
        let head = self.head()?;
        let mut at = self.low;
        let read = self.sizes.iter().take_while(|size| {
            at += u64::from(**size);
            at <= head
        });
        Ok(self.sizes.len() - read.count())
    }

    /// Messages that the reader says it never got.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.shared.header().reader.0.missed.load(Ordering::Relaxed)
    }

    /// Whether the reader says that it is gone.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.shared.header().reader.0.gone.load(Ordering::Acquire) != 0
    }

    /// The word that the reader sleeps on, for a futex.
    #[must_use]
    pub fn bell(&self) -> &AtomicU32 {
        &self.shared.header().bell.0
    }

    /// Shows the reader what was written, and calls nobody: who sleeps goes on sleeping, and finds it
    /// when it wakes for another reason.
    #[inline]
    pub fn show(&mut self) {
        self.published = self.tail;
        self.shared.header().writer.0.tail.store(self.tail, Ordering::Release);
    }

    fn head(&self) -> Result<u64, MailError> {
        let head = self.shared.header().reader.0.head.load(Ordering::Acquire);
        if head <= self.published { Ok(head) } else { Err(MailError::Corrupt) }
    }

    #[inline]
    fn has_room(&self, takes: u64) -> bool {
        let spec = self.shared.spec;
        self.tail + takes - self.low <= spec.capacity && (self.sizes.len() as u64) < spec.bound
    }

    #[inline]
    fn make_room(&mut self, takes: u64, len: usize) -> Result<(), MailError> {
        if self.has_room(takes) {
            return Ok(());
        }
        let spec = self.shared.spec;
        if takes > spec.capacity {
            return Err(MailError::TooLong { len, most: spec.longest() });
        }
        if !spec.overwrites {
            let head = self.head()?;
            while let Some(size) = self.sizes.front().copied().map(u64::from)
                && self.low + size <= head
            {
                self.low += size;
                self.sizes.pop_front();
            }
            return if self.has_room(takes) { Ok(()) } else { Err(MailError::Full) };
        }
        while !self.has_room(takes)
            && let Some(size) = self.sizes.pop_front()
        {
            self.low += u64::from(size);
        }
        if self.low > self.published {
            // A reader never sees `low` beyond `tail`.
            self.show();
        }
        // Release: whoever sees it sees a `tail` that is no less.
        self.shared.header().writer.0.low.store(self.low, Ordering::Release);
        // `low` is seen by whoever sees anything of what is written now; see `was_overwritten`.
        fence(Ordering::Release);
        Ok(())
    }
}

impl Drop for MailWriter {
    fn drop(&mut self) {
        self.shared.header().writer.0.gone.store(1, Ordering::Release);
    }
}

/// A message, copied out: nobody can change it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mail<'a> {
    /// What its writer gave with it.
    pub tag: u64,
    /// Its number, modulo 2^32.
    pub number: u32,
    /// How many messages before it were never got.
    pub missed: u32,
    /// What it says.
    pub bytes: &'a [u8],
}

/// The side that reads.
pub struct MailReader {
    shared: Shared,
    head: u64,
    tail_seen: u64,
    /// The number that the next message should have.
    number: u32,
    missed: u64,
    buffer: Vec<u8>,
    /// Tag, number, missed and length of what was taken last.
    last: (u64, u32, u32, usize),
}

impl MailReader {
    fn of(shared: Shared) -> Self {
        let (buffer, last) = (Vec::new(), (0, 0, 0, 0));
        Self { shared, head: 0, tail_seen: 0, number: 0, missed: 0, buffer, last }
    }

    /// Lays an empty mailbox out in a region; the reading side of it.
    ///
    /// # Errors
    /// [`RegionError::Bounds`] if it does not fit there.
    #[cfg(not(loom))]
    pub fn create(
        region: &Arc<dyn Region>,
        at: usize,
        spec: MailSpec,
    ) -> Result<Self, RegionError> {
        Shared::create(region, at, spec).map(Self::of)
    }

    /// How large it is.
    #[must_use]
    pub const fn spec(&self) -> MailSpec {
        self.shared.spec
    }

    /// Takes the oldest message; `None` if there is none now.
    ///
    /// # Errors
    /// [`MailError::Corrupt`], from then on always, if what the writer wrote makes no sense.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Mail<'_>>, MailError> {
        self.take_from(false)
    }

    /// The message that was taken last; one of no bytes before the first.
    #[must_use]
    #[inline]
    pub fn last(&self) -> Mail<'_> {
        let (tag, number, missed, len) = self.last;
        Mail { tag, number, missed, bytes: &self.buffer[..len] }
    }

    /// Takes the newest message; those before it count as missed.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_latest(&mut self) -> Result<Option<Mail<'_>>, MailError> {
        self.take_from(true)
    }

    #[inline]
    fn take_from(&mut self, latest: bool) -> Result<Option<Mail<'_>>, MailError> {
        for attempt in 0..TRIES {
            if (self.head == self.tail_seen || latest) && !self.look()? {
                return Ok(None);
            }
            // One that is overtaken again and again goes on with the newest.
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
                return Err(MailError::Corrupt);
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

    /// Copies a message's bytes into our own buffer, each word read once.
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

    /// Looks how far the writer is; whether there is anything.
    #[inline]
    fn look(&mut self) -> Result<bool, MailError> {
        let tail = self.shared.header().writer.0.tail.load(Ordering::Acquire);
        let spec = self.shared.spec;
        let sound = tail >= self.tail_seen
            && tail.is_multiple_of(8)
            && (spec.overwrites || tail - self.head <= spec.capacity);
        if !sound {
            return Err(MailError::Corrupt);
        }
        self.tail_seen = tail;
        Ok(tail != self.head)
    }

    /// Whether what was read at a position was overwritten, or may be; then we stand at the oldest
    /// message that was not.
    #[inline]
    fn was_overwritten(&mut self, at: u64) -> Result<bool, MailError> {
        if !self.shared.spec.overwrites {
            return Ok(false);
        }
        // If anything that was read before was of a later message, then this sees the `low` that
        // was stored before it.
        fence(Ordering::Acquire);
        let low = self.shared.header().writer.0.low.load(Ordering::Acquire);
        if low <= at {
            return Ok(false);
        }
        self.look()?;
        if low > self.tail_seen || !low.is_multiple_of(8) {
            return Err(MailError::Corrupt);
        }
        self.head = low;
        Ok(true)
    }

    /// Goes to the newest message; false if that was overwritten at once.
    fn jump_to_last(&mut self) -> Result<bool, MailError> {
        if self.head == self.tail_seen {
            return Ok(false);
        }
        let takes = self.shared.word(self.tail_seen - 8).load(Ordering::Relaxed);
        if self.was_overwritten(self.tail_seen - 8)? {
            return Ok(false);
        }
        let waits = self.tail_seen - self.head;
        if takes < AROUND || takes > waits || !takes.is_multiple_of(8) {
            return Err(MailError::Corrupt);
        }
        self.head = self.tail_seen - takes;
        Ok(true)
    }

    /// Whether there is something to take: no system call, and nothing is changed.
    #[must_use]
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.shared.header().writer.0.tail.load(Ordering::Acquire) != self.head
    }

    /// About to sleep, on [`bell`](Self::bell) as long as it is [`MAIL_ASLEEP`]; false if there is
    /// something to take, and nobody sleeps.
    #[must_use]
    pub fn lie_down(&self) -> bool {
        let bell = &self.shared.header().bell.0;
        bell.store(MAIL_ASLEEP, Ordering::Relaxed);
        // Either the writer's look at `bell` sees this store, or ours sees its `tail`.
        fence(Ordering::SeqCst);
        let quiet = !self.has_mail();
        if !quiet {
            self.rise();
        }
        quiet
    }

    /// Awake again.
    pub fn rise(&self) {
        self.shared.header().bell.0.store(AWAKE, Ordering::Relaxed);
    }

    /// The word to sleep on.
    #[must_use]
    pub fn bell(&self) -> &AtomicU32 {
        &self.shared.header().bell.0
    }

    /// Whether the writer is gone. What it wrote before can still be taken.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.shared.header().writer.0.gone.load(Ordering::Acquire) != 0
    }

    /// Messages that were never got.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.missed
    }
}

impl Drop for MailReader {
    fn drop(&mut self) {
        self.shared.header().reader.0.gone.store(1, Ordering::Release);
    }
}

impl fmt::Debug for MailWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailWriter").field("tail", &self.tail).finish_non_exhaustive()
    }
}

impl fmt::Debug for MailReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailReader").field("head", &self.head).finish_non_exhaustive()
    }
}
