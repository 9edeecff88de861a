//! Prefetching memory before it is needed. A link of many streams touches a few cache lines of one stream
//! after another; code that knows which comes soon need not wait for them.

use core::ops::Range;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches the cache line in which `value` begins. Costs an instruction, changes nothing.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    prefetch_at(core::ptr::from_ref(value).cast());
}

/// Prefetches all lines of `value`, the first eight at most.
#[inline(always)]
pub fn prefetch_whole<T>(value: &T) {
    prefetch_lines(value, 0..size_of::<T>().div_ceil(LINE).min(8));
}

/// Prefetches these lines of `value`, its first being 0. Reads nothing: `value` need not be valid.
#[inline(always)]
pub fn prefetch_lines<T>(value: *const T, lines: Range<usize>) {
    let start: *const u8 = value.cast();
    for line in lines {
        prefetch_at(start.wrapping_add(line * LINE));
    }
}

#[inline(always)]
fn prefetch_at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction has no visible effect, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
