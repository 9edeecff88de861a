//! The payload arena of one stream: a producer writes each frame's packets once, in place; a consumer reads
//! them where they lie, and releases the room.
//!
//! Payloads follow one another in a circle; one that would wrap begins at the start instead. Each
//! has a record header before it:
//!
//! | offset | what |
//! |---|---|
//! | 0 | position of the payload's first byte, `u64`, little-endian |
//! | 8 | bytes of payload, `u32`, little-endian |
//! | 12 | state, `u32`, little-endian: 1 committed, 2 released, 3 skipped room |
//! | 16 | the payload, padded to a multiple of 16 |
//!
//! Positions count bytes since the beginning and never wrap; a byte lies at its position modulo
//! the capacity. The producer owns everything but `head..tail`, which the consumer owns, headers
//! included. Room is freed in order of allocation: a payload released before an older one is
//! marked, and freed with it. So the bookkeeping needs no memory of its own.
//!
//! A committed payload is freed only by a release. Check that its descriptor has a place in the ring
//! ([`Producer::free`](crate::Producer::free)) before the commit.

mod arena;
#[cfg(not(loom))]
mod region;

use alloc::vec::Vec;
use core::fmt;

#[cfg(not(loom))]
pub use self::region::{UntrustedPoolReader, pool_region};

use selvedge_units::Bytes;

use self::arena::{Arena, HEADER, Record, State, stride};
use crate::sync::{Arc, Ordering};

/// Where a frame's packets lie in its stream's pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadSpan {
    /// Position of the first byte, counted from the pool's beginning (not wrapped).
    pub start: u64,
    /// Bytes, headers of the records included.
    pub len: u32,
}

/// Why room could not be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Too little is free now; the consumer's next release may change that.
    #[error(
        "no room for {wanted}, {free} of the pool are free; release payloads or give the stream a \
        larger pool"
    )]
    Full {
        /// Requested bytes.
        wanted: Bytes,
        /// Bytes free, though perhaps not in one piece.
        free: Bytes,
    },
    /// It never fits.
    #[error(
        "{wanted} never fit, the pool takes {largest} at once; give the stream a pool of more \
        than twice the size"
    )]
    TooLarge {
        /// Requested bytes.
        wanted: Bytes,
        /// The most that can be reserved.
        largest: Bytes,
    },
}

/// Why a span is not valid in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// No committed payload lies there.
    #[error(
        "{} bytes at position {} are no payload of this pool; use spans as `commit` returned them",
        .0.len,
        .0.start
    )]
    Unknown(PayloadSpan),
    /// The payload there has been released.
    #[error(
        "{} bytes at position {} were released before; release each payload once, after its use",
        .0.len,
        .0.start
    )]
    Released(PayloadSpan),
}

/// Makes a pool of `capacity` bytes, rounded up to a multiple of 16, at least 64 B and at most
/// 1 GiB. A payload takes 16 bytes more than its length, rounded up to a multiple of 16, and at
/// most half of the capacity. Nothing is allocated afterwards.
#[must_use]
pub fn pool(capacity: Bytes) -> (PoolWriter, PoolReader) {
    let arena = Arc::new(Arena::new(capacity));
    let writer = PoolWriter { arena: Arc::clone(&arena), tail: 0, head_seen: 0, apart: None };
    (writer, PoolReader { arena, head: 0 })
}

/// The half that writes payloads.
pub struct PoolWriter {
    arena: Arc<Arena>,
    tail: u64,
    head_seen: u64,
    /// Where a payload is written first if other processes may write to the pool's memory at any time.
    apart: Option<Vec<u8>>,
}

impl PoolWriter {
    /// Reserves `len` bytes in one piece, in constant time and without waiting. Their content is that of
    /// earlier payloads. A reservation that is dropped leaves no trace.
    ///
    /// # Errors
    /// [`PoolError::Full`] for now, [`PoolError::TooLarge`] for good.
    pub fn reserve(&mut self, len: usize) -> Result<Reservation<'_>, PoolError> {
        let wanted = Bytes(len as u64);
        if wanted > self.largest() {
            return Err(PoolError::TooLarge { wanted, largest: self.largest() });
        }
        let needed = stride(len as u64);
        let bytes_to_end = self.arena.bytes_to_end(self.tail);
        let skipped = if needed > bytes_to_end { bytes_to_end } else { 0 };
        if skipped + needed > self.free_slots_at(self.head_seen) {
            self.head_seen = self.arena.head().load(Ordering::Acquire);
            let free = self.free_slots_at(self.head_seen);
            if skipped + needed > free {
                return Err(PoolError::Full { wanted, free: Bytes(free) });
            }
        }
        let at = self.tail + skipped;
        self.arena.trace_write(at, needed);
        if let Some(apart) = &mut self.apart
            && apart.len() < len
        {
            apart.resize(len, 0);
        }
        Ok(Reservation { writer: self, at, len })
    }

    /// The longest payload that can ever be reserved.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        // More than half could find the empty pool divided in two pieces, either of them too short.
        Bytes(self.arena.capacity() / 2 / HEADER * HEADER - HEADER)
    }

    /// Bytes free now, headers included, though perhaps not in one piece.
    #[must_use]
    pub fn free(&self) -> Bytes {
        Bytes(self.free_slots_at(self.arena.head().load(Ordering::Acquire)))
    }

    /// Bytes that the pool holds, headers included.
    #[must_use]
    pub fn capacity(&self) -> Bytes {
        Bytes(self.arena.capacity())
    }

    fn free_slots_at(&self, head: u64) -> u64 {
        // In shared memory the counters may have any values.
        self.arena.capacity().saturating_sub(self.tail.wrapping_sub(head))
    }
}

/// Room for one payload, not yet seen by the reader.
#[must_use = "a reservation that is not committed is given back"]
pub struct Reservation<'a> {
    writer: &'a mut PoolWriter,
    /// Position of the record.
    at: u64,
    len: usize,
}

impl Reservation<'_> {
    /// The bytes to fill.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if let Some(apart) = &mut self.writer.apart {
            return &mut apart[..self.len];
        }
        let bytes = self.writer.arena.bytes(self.at + HEADER, self.len as u64);
        // SAFETY: `reserve` found these bytes free, in one piece, and outside of `head..tail`: the
        // reader does not touch them before `commit`, and the writer is borrowed meanwhile.
        unsafe { &mut *bytes }
    }

    /// Releases all but the first `len` bytes; without effect if there are no more than those.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Hands the bytes to the reader, which finds them by the span.
    #[must_use = "only this span finds and frees the payload"]
    pub fn commit(self) -> PayloadSpan {
        let Self { writer, at, len } = self;
        let len = len as u64;
        let span = PayloadSpan { start: at + HEADER, len: len as u32 };
        let arena = &*writer.arena;
        if let Some(apart) = &writer.apart {
            arena.copy_in(span.start, &apart[..len as usize]);
        }
        // SAFETY: `reserve` found everything from `tail` to the record's end free, and the reader
        // does not touch it before `tail` is stored.
        unsafe {
            if at > writer.tail {
                let skipped = (at - writer.tail - HEADER) as u32;
                let start = writer.tail + HEADER;
                arena.put(writer.tail, Record { start, len: skipped, state: State::Skipped });
            }
            arena.put(at, Record { start: span.start, len: span.len, state: State::Committed });
        }
        arena.trace_write(at, stride(len));
        writer.tail = at + stride(len);
        arena.tail().store(writer.tail, Ordering::Release);
        span
    }
}

/// The half that reads payloads and releases their room.
pub struct PoolReader {
    arena: Arc<Arena>,
    head: u64,
}

impl PoolReader {
    /// A payload's bytes, in constant time.
    ///
    /// # Errors
    /// [`SpanError`] for a span that names no payload, or one that was released.
    pub fn bytes(&self, span: PayloadSpan) -> Result<&[u8], SpanError> {
        self.find(span)?;
        self.arena.trace_read(span.start - HEADER, stride(span.len.into()));
        // SAFETY: a committed payload in `head..tail`: the writer does not touch it before it is
        // released, which takes a mutable borrow of `self`.
        Ok(unsafe { &*self.arena.bytes(span.start, span.len.into()) })
    }

    /// A payload's bytes, for the sender to complete headers in place; in constant time.
    ///
    /// # Errors
    /// [`SpanError`] for a span that names no payload, or one that was released.
    pub fn bytes_mut(&mut self, span: PayloadSpan) -> Result<&mut [u8], SpanError> {
        self.find(span)?;
        self.arena.trace_write(span.start - HEADER, stride(span.len.into()));
        // SAFETY: as in `bytes`, and `self` is borrowed mutably.
        Ok(unsafe { &mut *self.arena.bytes(span.start, span.len.into()) })
    }

    /// Releases a payload's room, now or with the oldest that is not released yet. The time is constant for
    /// each payload freed.
    ///
    /// # Errors
    /// [`SpanError`] for a span that names no payload, or one that was released; nothing changes.
    pub fn release(&mut self, span: PayloadSpan) -> Result<(), SpanError> {
        let (at, tail) = self.find(span)?;
        let record = Record { start: span.start, len: span.len, state: State::Released };
        // SAFETY: `find` found a record there, in `head..tail`, which the reader owns.
        unsafe { self.arena.put(at, record) };
        let mut head = self.head;
        while let Some((record, next)) = self.record(head, tail) {
            if record.state == State::Committed {
                break;
            }
            head = next;
        }
        if head != self.head {
            self.head = head;
            self.arena.head().store(head, Ordering::Release);
        }
        Ok(())
    }

    /// Bytes committed and not freed yet, headers included.
    #[must_use]
    pub fn held(&self) -> Bytes {
        Bytes(self.arena.tail().load(Ordering::Acquire) - self.head)
    }

    /// The position of the record of a committed payload, and of the tail.
    fn find(&self, span: PayloadSpan) -> Result<(u64, u64), SpanError> {
        let tail = self.arena.tail().load(Ordering::Acquire);
        let at = span.start.checked_sub(HEADER).ok_or(SpanError::Unknown(span))?;
        if at < self.head {
            return Err(SpanError::Released(span));
        }
        match self.record(at, tail) {
            Some((record, _)) if (record.start, record.len) == (span.start, span.len) => {
                match record.state {
                    State::Committed => Ok((at, tail)),
                    State::Released => Err(SpanError::Released(span)),
                    State::Skipped => Err(SpanError::Unknown(span)),
                }
            }
            _ => Err(SpanError::Unknown(span)),
        }
    }

    /// The record at a position of `head..tail`, and the position behind it; `None` where no record can lie,
    /// or the bytes are not one.
    fn record(&self, at: u64, tail: u64) -> Option<(Record, u64)> {
        if at >= tail || !at.is_multiple_of(HEADER) {
            return None;
        }
        // SAFETY: `at` is in `head..tail`, which the reader owns, and whole headers are there,
        // since records are multiples of headers.
        let record = unsafe { self.arena.get(at)? };
        let length = stride(record.len.into());
        let fits =
            record.start == at + HEADER && length <= self.arena.bytes_to_end(at).min(tail - at);
        fits.then_some((record, at + length))
    }
}

impl fmt::Debug for PoolWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolWriter").field("tail", &self.tail).finish_non_exhaustive()
    }
}

impl fmt::Debug for PoolReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolReader").field("head", &self.head).finish_non_exhaustive()
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("at", &self.at).field("len", &self.len).finish()
    }
}
