//! Rings and pools in shared memory: one producer that keeps to the layout, and producers that write
//! anything. Here the memory is on the heap, so that Miri can check it.
#![cfg(not(loom))]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use selvedge_data_memory::{
    PayloadSpan, PoolError, PoolWriter, Producer, Region, RegionError, UntrustedConsumer,
    UntrustedPoolReader, pool_region, ring_region,
};

struct Heap(NonNull<u8>, Layout);

impl Heap {
    fn region(len: usize) -> Arc<dyn Region> {
        let layout = Layout::from_size_align(len, 128).unwrap();
        // SAFETY: the tests allocate more than zero bytes.
        let base = unsafe { alloc_zeroed(layout) };
        Arc::new(Self(NonNull::new(base).unwrap(), layout))
    }
}

// SAFETY: the bytes are accessed through raw pointers only.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

// SAFETY: allocated at a multiple of 128, freed when dropped, and no reference is made to it.
unsafe impl Region for Heap {
    fn base(&self) -> NonNull<u8> {
        self.0
    }
    fn len(&self) -> usize {
        self.1.size()
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0.as_ptr(), self.1) };
    }
}

/// Writes a word into the region, as another process would.
fn poke(region: &Arc<dyn Region>, at: usize, word: u32) {
    assert!(at + 4 <= region.len());
    // SAFETY: within the region, and aligned.
    let word_there = unsafe { region.base().add(at).cast::<AtomicU32>().as_ref() };
    word_there.store(word, Ordering::Relaxed);
}

#[test]
fn items_cross_between_threads() {
    let region = Heap::region(ring_region::<u64>(8));
    let mut lender = UntrustedConsumer::<u64>::create(&region, 0, 8).unwrap();
    let mut producer = Producer::<u64>::within(&region, 0, 8).unwrap();
    let items = if cfg!(miri) { 100 } else { 100_000 };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..items {
                while producer.push(n).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        let mut next = 0;
        while next < items {
            match lender.pop_copy().unwrap() {
                Some(item) => {
                    assert_eq!(item, next);
                    next += 1;
                    lender.free(1);
                }
                None => std::thread::yield_now(),
            }
        }
    });
    assert!(lender.is_abandoned());
}

#[test]
fn what_was_lent_and_not_freed_is_found_again() {
    let region = Heap::region(ring_region::<u64>(4));
    let mut lender = UntrustedConsumer::<u64>::create(&region, 0, 4).unwrap();
    let mut producer = Producer::<u64>::within(&region, 0, 4).unwrap();
    assert_eq!(producer.push_slice(&[1, 2, 3, 4, 5]), 4);
    assert_eq!((lender.pop_copy(), lender.pop_copy()), (Ok(Some(1)), Ok(Some(2))));
    assert_eq!(producer.push(5), Err(5), "a lent slot is not free");
    lender.free(1);
    assert_eq!((producer.push(5), lender.outstanding()), (Ok(()), 1));
    // As after a kill: no report is made, and another lender follows.
    let _dead = lender;
    let mut lender = UntrustedConsumer::<u64>::resume(&region, 0, 4).unwrap();
    let again: Vec<u64> = std::iter::from_fn(|| lender.pop_copy().unwrap()).collect();
    assert_eq!(again, [2, 3, 4, 5]);
    drop(lender);
    assert!(producer.is_abandoned());
    let _lender = UntrustedConsumer::<u64>::resume(&region, 0, 4).unwrap();
    assert!(!producer.is_abandoned(), "a new reader has come");
}

#[test]
fn a_producer_that_comes_back_goes_on() {
    let region = Heap::region(ring_region::<u64>(4));
    let mut lender = UntrustedConsumer::<u64>::create(&region, 0, 4).unwrap();
    let mut producer = Producer::<u64>::within(&region, 0, 4).unwrap();
    producer.push(1).unwrap();
    drop(producer);
    let mut producer = Producer::<u64>::within(&region, 0, 4).unwrap();
    producer.push(2).unwrap();
    assert_eq!((lender.pop_copy(), lender.pop_copy()), (Ok(Some(1)), Ok(Some(2))));
}

#[test]
fn corrupt_headers_are_refused() {
    let region = Heap::region(ring_region::<u64>(4));
    assert_eq!(Producer::<u64>::within(&region, 0, 4).unwrap_err(), RegionError::Header);
    let mut lender = UntrustedConsumer::<u64>::create(&region, 0, 4).unwrap();
    for capacity in [0, 1, 3, 131_072] {
        let error = UntrustedConsumer::<u64>::create(&region, 0, capacity).unwrap_err();
        assert_eq!(error, RegionError::Header, "{capacity}");
    }
    assert!(matches!(
        UntrustedConsumer::<u64>::create(&region, 0, 8),
        Err(RegionError::Bounds { .. })
    ));
    assert!(matches!(
        UntrustedConsumer::<u64>::create(&region, 64, 4),
        Err(RegionError::Bounds { .. })
    ));
    assert!(matches!(
        UntrustedConsumer::<u64>::create(&region, usize::MAX & !127, 4),
        Err(RegionError::Bounds { .. })
    ));
    // More items than slots: no item is trusted until the counter is valid again.
    poke(&region, 128, 5);
    assert_eq!(lender.pop_copy(), Err(RegionError::Header));
    assert_eq!(UntrustedConsumer::<u64>::resume(&region, 0, 4).unwrap_err(), RegionError::Header);
    poke(&region, 128, 2);
    assert_eq!((lender.pop_copy(), lender.pop_copy()), (Ok(Some(0)), Ok(Some(0))));
    poke(&region, 128, 1);
    assert_eq!(lender.pop_copy(), Err(RegionError::Header), "it went back");
    // The lender's own counter is not the one in the region.
    poke(&region, 128, 3);
    poke(&region, 256, 77);
    assert_eq!(lender.pop_copy(), Ok(Some(0)));
    poke(&region, 0, 8);
    assert_eq!(UntrustedConsumer::<u64>::resume(&region, 0, 4).unwrap_err(), RegionError::Header);
}

#[test]
fn payloads_cross_and_their_room_comes_back() {
    let region = Heap::region(pool_region(256));
    let mut claims = UntrustedPoolReader::create(&region, 0, 256).unwrap();
    let mut writer = PoolWriter::within(&region, 0, 256).unwrap();
    for round in 0..50_u8 {
        let mut one = writer.reserve(40).unwrap();
        one.bytes_mut().fill(round);
        let span = one.commit();
        assert!(claims.claim(span), "{round}");
        let mut seen = [0; 40];
        assert!(claims.read(span, 0, &mut seen));
        assert_eq!(seen, [round; 40]);
        assert!(!claims.read(span, 1, &mut seen), "not beyond the end");
        claims.free(span);
        assert!(!claims.read(span, 0, &mut seen), "freed");
    }
    let held: Vec<_> = (0..5).map(|_| writer.reserve(40).map(|r| r.commit())).collect();
    assert!(matches!(held[4], Err(PoolError::Full { .. })), "{held:?}");
    // The second's room is freed with the third's: the first two were never reported.
    let last = held[2].unwrap();
    assert!(claims.claim(last));
    claims.free(last);
    assert!(writer.reserve(40).is_ok());
}

#[test]
fn payloads_of_any_length_are_read_from_any_place() {
    let region = Heap::region(pool_region(256));
    let mut claims = UntrustedPoolReader::create(&region, 0, 256).unwrap();
    let mut writer = PoolWriter::within(&region, 0, 256).unwrap();
    for len in 1..40_usize {
        let mut one = writer.reserve(len).unwrap();
        (0..).zip(one.bytes_mut()).for_each(|(n, byte)| *byte = n);
        let span = one.commit();
        assert!(claims.claim(span), "{len}");
        for at in 0..len {
            let mut seen = vec![0xff; len - at];
            assert!(claims.read(span, at, &mut seen));
            assert!((at as u8..).zip(&seen).all(|(n, byte)| *byte == n), "{len} from {at}");
        }
        claims.free(span);
    }
}

#[test]
fn spans_that_make_no_sense_are_not_claimed() {
    let region = Heap::region(pool_region(256));
    let mut claims = UntrustedPoolReader::create(&region, 0, 256).unwrap();
    let span = |start, len| PayloadSpan { start, len };
    for bad in [
        span(0, 8), // no room for a header before it
        span(15, 8),
        span(24, 8),   // not at a multiple of 16
        span(16, 0),   // of no bytes
        span(16, 241), // beyond the end
        span(16, u32::MAX),
        span(240, 32),     // in two pieces
        span(256 + 32, 8), // more than the pool ahead
        span(u64::MAX - 15, 8),
        span(u64::MAX, u32::MAX),
    ] {
        assert!(!claims.claim(bad), "{bad:?}");
        assert!(!claims.read(bad, 0, &mut [0]), "{bad:?}");
    }
    assert!(claims.claim(span(16, 240)));
    assert!(!claims.claim(span(16, 240)), "not twice");
    assert!(
        UntrustedPoolReader::create(&region, 0, 100).is_err()
            && UntrustedPoolReader::create(&region, 0, 0).is_err()
    );
    assert!(matches!(
        UntrustedPoolReader::create(&region, 0, 512),
        Err(RegionError::Bounds { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever a producer writes into the whole segment, at any time: claimed spans lie inside, claims do
    /// not overlap, and nothing panics.
    // Miri does not support atomics that are written half by half, as a hostile producer may.
    #[cfg(not(miri))]
    #[test]
    fn a_hostile_producer_reaches_nothing(
        writes in prop::collection::vec((0_usize..2000, any::<u32>(), 0_usize..4), 1..200),
        sane in prop::collection::vec((0_u64..600, 0_u32..300), 1..200),
    ) {
        const CAPACITY: u64 = 512;
        let at = ring_region::<selvedge_data_stream::Descriptor>(8);
        let region = Heap::region(at + pool_region(CAPACITY));
        let mut lender = UntrustedConsumer::<selvedge_data_stream::Descriptor>::create(&region, 0, 8).unwrap();
        let mut claims = UntrustedPoolReader::create(&region, at, CAPACITY).unwrap();
        let mut claimed: Vec<PayloadSpan> = Vec::new();
        let mut tail = 0_u32;
        for (n, &(place, word, repeat)) in writes.iter().enumerate() {
            poke(&region, place % (region.len() / 4) * 4, word);
            let (start, len) = sane[n % sane.len()];
            let slot = 384 + (tail as usize % 8) * 64;
            for (offset, word) in [(12, len), (16, (start * 16) as u32), (20, 0)] {
                poke(&region, slot + offset, word);
            }
            tail = tail.wrapping_add(1);
            poke(&region, 128, tail);
            for _ in 0..=repeat {
                let Ok(Some(item)) = lender.pop_copy() else { break };
                let span = item.span();
                if claims.claim(span) {
                    let apart = claimed
                        .last()
                        .is_none_or(|last| span.start - 16 >= last.start + u64::from(last.len));
                    prop_assert!(apart);
                    let read = claims.read(span, 0, &mut vec![0; span.len as usize]);
                    prop_assert!(read);
                    claimed.push(span);
                }
                if n % 3 == 0 && let Some(oldest) = claimed.first().copied() {
                    claims.free(oldest);
                    claimed.remove(0);
                }
                lender.free(1);
            }
        }
    }
}
