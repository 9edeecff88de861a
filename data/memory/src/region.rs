//! Memory that is shared: a part of a segment that other processes have mapped too, in which rings and pools
//! lie in the same layout as in process.
//!
//! Other processes may change the content at any time, and a hostile one to any value. So it is read by
//! atomics and by volatile copies only, each value once, into memory of this process, and no reference to it
//! is ever made.

use alloc::sync::Arc;
use core::ptr::NonNull;

use crate::HeaderError;

/// Bytes that other processes may read and write too.
///
/// # Safety
/// [`base`](Self::base) and [`len`](Self::len) always return the same values. Any thread may read and write
/// those bytes through raw pointers for as long as the value lives. They begin at a multiple of 128, and are
/// never the target of a Rust reference other than to atomics and cells.
pub unsafe trait Region: Send + Sync {
    /// The first byte.
    fn base(&self) -> NonNull<u8>;
    /// The number of bytes.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Types for which every pattern of bits is a value, without padding: only these may be read from a
/// [`Region`].
///
/// # Safety
/// As stated above.
pub unsafe trait Plain: Copy + Send + 'static {}

// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}

/// Why a region does not hold the expected layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// It is too short for that, or it would begin at an address that is not a multiple of 128.
    #[error(
        "{wanted} bytes at {at} do not lie in a segment of {len}, or not at a multiple of 128; \
        lay it out as documented"
    )]
    Bounds {
        /// Where it would begin.
        at: usize,
        /// Bytes it would take.
        wanted: usize,
        /// Bytes of the region.
        len: usize,
    },
    /// A ring's header states another capacity or slot size than it should, or more items than
    /// slots.
    #[error(
        "the ring's header is corrupt; use the segment as it was handed out and let only its own \
        producer write"
    )]
    Header,
    /// The layout's header is not the expected one.
    #[error(transparent)]
    Layout(#[from] HeaderError),
}

/// Bytes that are copied at once.
const WORD: usize = size_of::<u64>();

/// A run of bytes of a region, checked to lie in it.
#[derive(Clone)]
pub(crate) struct RegionSlice {
    base: NonNull<u8>,
    len: usize,
    /// Keeps the memory mapped.
    _region: Arc<dyn Region>,
}

// SAFETY: the bytes may be used from any thread, by the contract of `Region`.
unsafe impl Send for RegionSlice {}
// SAFETY: as above.
unsafe impl Sync for RegionSlice {}

impl RegionSlice {
    pub(crate) fn new(
        region: &Arc<dyn Region>,
        at: usize,
        wanted: usize,
    ) -> Result<Self, RegionError> {
        let len = region.len();
        let fits = at.is_multiple_of(128) && at.checked_add(wanted).is_some_and(|end| end <= len);
        if !fits {
            return Err(RegionError::Bounds { at, wanted, len });
        }
        // SAFETY: `at` is within the region's bytes.
        let base = unsafe { region.base().add(at) };
        Ok(Self { base, len: wanted, _region: Arc::clone(region) })
    }

    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Copies bytes out, each read once. `from` and the length must lie in the part.
    pub(crate) fn copy_out(&self, from: usize, to: &mut [u8]) {
        assert!(from.checked_add(to.len()).is_some_and(|end| end <= self.len), "within the part");
        let (head, words) = self.parts(from, to.len());
        let (first, rest) = to.split_at_mut(head);
        let (middle, last) = rest.split_at_mut(words * WORD);
        for (n, byte) in first.iter_mut().enumerate() {
            // SAFETY: within the part, as asserted.
            *byte = unsafe { self.base.add(from + n).read_volatile() };
        }
        for (n, word) in middle.chunks_exact_mut(WORD).enumerate() {
            // SAFETY: as above, and aligned by `parts`.
            let read =
                unsafe { self.base.add(from + head + n * WORD).cast::<u64>().read_volatile() };
            word.copy_from_slice(&read.to_ne_bytes());
        }
        let behind = from + head + words * WORD;
        for (n, byte) in last.iter_mut().enumerate() {
            // SAFETY: as above.
            *byte = unsafe { self.base.add(behind + n).read_volatile() };
        }
    }

    /// Copies bytes in. `at` and the length must lie in the part.
    pub(crate) fn copy_in(&self, at: usize, from: &[u8]) {
        assert!(at.checked_add(from.len()).is_some_and(|end| end <= self.len), "within the part");
        let (head, words) = self.parts(at, from.len());
        let (first, rest) = from.split_at(head);
        let (middle, last) = rest.split_at(words * WORD);
        for (n, &byte) in first.iter().enumerate() {
            // SAFETY: within the part, as asserted.
            unsafe { self.base.add(at + n).write_volatile(byte) };
        }
        for (n, word) in middle.as_chunks::<WORD>().0.iter().enumerate() {
            let to = at + head + n * WORD;
            // SAFETY: as above, and aligned by `parts`.
            unsafe { self.base.add(to).cast::<u64>().write_volatile(u64::from_ne_bytes(*word)) };
        }
        let behind = at + head + words * WORD;
        for (n, &byte) in last.iter().enumerate() {
            // SAFETY: as above.
            unsafe { self.base.add(behind + n).write_volatile(byte) };
        }
    }

    /// How many bytes lie before the first whole word of these, and how many words follow.
    fn parts(&self, at: usize, len: usize) -> (usize, usize) {
        let head = self.base.as_ptr().wrapping_add(at).align_offset(WORD).min(len);
        (head, (len - head) / WORD)
    }
}
