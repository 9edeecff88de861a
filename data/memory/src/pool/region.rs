//! Pools in memory that processes share: the same layout and the same writer, and a reader that keeps its
//! state where the writer can't reach it.
//!
//! [`UntrustedPoolReader`] never reads the headers of records, nor the writer's counter: a span is checked
//! against the pool's bounds and against earlier claims, which it must follow. Room that was skipped, or
//! committed by a producer that died before it could enqueue the descriptor, is freed with later payloads.

use alloc::sync::Arc;

use super::PoolWriter;
use super::arena::{Arena, HEADER, bytes_of, is_capacity, stride};
use crate::PayloadSpan;
use crate::region::{Region, RegionError, RegionSlice};
use crate::sync::{self, Ordering};

/// Bytes that a pool of this capacity takes in a region.
#[must_use]
pub const fn pool_region(capacity: u64) -> usize {
    bytes_of(capacity)
}

fn part(region: &Arc<dyn Region>, at: usize, capacity: u64) -> Result<RegionSlice, RegionError> {
    if !is_capacity(capacity) {
        return Err(RegionError::Header);
    }
    RegionSlice::new(region, at, pool_region(capacity))
}

impl PoolWriter {
    /// The writing half of a pool that lies in a region; continues where the last writer stopped.
    ///
    /// # Errors
    /// [`RegionError`] if it does not fit there, or its counters are invalid.
    pub fn within(region: &Arc<dyn Region>, at: usize, capacity: u64) -> Result<Self, RegionError> {
        let arena = sync::Arc::new(Arena::within(part(region, at, capacity)?, capacity));
        let tail = arena.tail().load(Ordering::Acquire);
        let head_seen = arena.head().load(Ordering::Acquire);
        if tail.wrapping_sub(head_seen) > capacity || !tail.is_multiple_of(HEADER) {
            return Err(RegionError::Header);
        }
        Ok(Self { arena, tail, head_seen, apart: Some(alloc::vec::Vec::new()) })
    }
}

/// The reading half of a pool whose writer is not trusted.
pub struct UntrustedPoolReader {
    arena: Arena,
    bytes: RegionSlice,
    /// Everything before this position is free; the writer sees it.
    head: u64,
    /// The next payload lies behind this position.
    next: u64,
}

impl UntrustedPoolReader {
    /// Makes an empty pool in a region.
    ///
    /// # Errors
    /// [`RegionError`] if it does not fit there.
    pub fn create(region: &Arc<dyn Region>, at: usize, capacity: u64) -> Result<Self, RegionError> {
        let claims = Self::resume(region, at, capacity)?;
        claims.arena.tail().store(0, Ordering::Relaxed);
        claims.arena.head().store(0, Ordering::Release);
        Ok(Self { head: 0, next: 0, ..claims })
    }

    /// Takes over a pool that lies in a region already.
    ///
    /// # Errors
    /// [`RegionError`] if it does not fit there, or its counter is invalid.
    pub fn resume(region: &Arc<dyn Region>, at: usize, capacity: u64) -> Result<Self, RegionError> {
        let bytes = part(region, at, capacity)?;
        let arena = Arena::within(bytes.clone(), capacity);
        let head = arena.head().load(Ordering::Acquire);
        if !head.is_multiple_of(HEADER) {
            return Err(RegionError::Header);
        }
        Ok(Self { arena, bytes, head, next: head })
    }

    /// Claims the next payload; returns false, and changes nothing, for a span that lies outside, in two
    /// pieces, or not behind earlier ones.
    pub fn claim(&mut self, span: PayloadSpan) -> bool {
        let capacity = self.arena.capacity();
        let Some(record) = span.start.checked_sub(HEADER) else { return false };
        let Some(end) = record.checked_add(stride(span.len.into())) else { return false };
        let sound = span.len > 0
            && record.is_multiple_of(HEADER)
            && record >= self.next
            && end - self.head <= capacity
            && stride(span.len.into()) <= self.arena.bytes_to_end(record);
        if sound {
            self.next = end;
        }
        sound
    }

    /// Frees everything up to the end of a claimed payload, this payload included.
    pub fn free(&mut self, span: PayloadSpan) {
        let end = (span.start.saturating_sub(HEADER)).saturating_add(stride(span.len.into()));
        if end > self.head && end <= self.next {
            self.head = end;
            self.arena.head().store(end, Ordering::Release);
        }
    }

    /// Copies bytes out of a claimed payload, each read once; false if the payload does not hold all of them.
    pub fn read(&self, span: PayloadSpan, at: usize, to: &mut [u8]) -> bool {
        let inside = self.offset(span, at, to.len());
        inside.inspect(|&from| self.bytes.copy_out(from, to)).is_some()
    }

    /// The offset in the region's part of bytes of a payload.
    fn offset(&self, span: PayloadSpan, at: usize, len: usize) -> Option<usize> {
        let record = span.start.checked_sub(HEADER)?;
        let end = record.checked_add(stride(span.len.into()))?;
        let held = record >= self.head && end <= self.next;
        let one_piece = end - record <= self.arena.bytes_to_end(record);
        let inside = at.checked_add(len)? <= span.len as usize;
        let first = (span.start % self.arena.capacity()) as usize;
        (held && one_piece && inside).then(|| pool_region(0) + first + at)
    }
}

impl core::fmt::Debug for UntrustedPoolReader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Claims").field("head", &self.head).field("next", &self.next).finish()
    }
}
