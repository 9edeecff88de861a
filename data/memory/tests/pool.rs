//! The pool against a list of committed payloads, and between two threads.

#![allow(clippy::disallowed_methods, reason = "tests of what two threads share")]
#![cfg(not(loom))]

mod threads;

use std::thread;

use proptest::prelude::*;
use proptest::sample::Index;
use selvedge_data_memory::{PayloadSpan, PoolError, PoolReader, PoolWriter, SpanError, pool};
use selvedge_units::Bytes;

const HEADER: u64 = 16;

#[derive(Clone, Debug)]
enum Step {
    /// Reserve this many bytes, fill them, keep this many, commit.
    Commit(usize, usize),
    /// Reserve and drop.
    Abandon(usize),
    Release(Index),
    ReleaseAgain(Index),
    Stamp(Index, u8),
    /// Present a span that may never have existed.
    Forge(PayloadSpan),
}

fn step() -> impl Strategy<Value = Step> {
    let len = || 0..200_usize;
    prop_oneof![
        8 => (len(), len()).prop_map(|(len, keep)| Step::Commit(len, keep)),
        1 => len().prop_map(Step::Abandon),
        6 => any::<Index>().prop_map(Step::Release),
        1 => any::<Index>().prop_map(Step::ReleaseAgain),
        2 => (any::<Index>(), any::<u8>()).prop_map(|(which, byte)| Step::Stamp(which, byte)),
        2 => (prop_oneof![0..2000_u64, any::<u64>()], prop_oneof![0..200_u32, any::<u32>()])
            .prop_map(|(start, len)| Step::Forge(PayloadSpan { start, len })),
    ]
}

struct Payload {
    span: PayloadSpan,
    bytes: Vec<u8>,
    released: bool,
}

/// The pool beside all payloads that were ever committed to it.
struct Model {
    writer: PoolWriter,
    reader: PoolReader,
    payloads: Vec<Payload>,
    tail: u64,
    head: u64,
    fill: u8,
}

impl Model {
    fn stride(len: usize) -> u64 {
        HEADER + (len as u64).next_multiple_of(HEADER)
    }

    fn release(&mut self, n: usize) {
        assert_eq!(self.reader.release(self.payloads[n].span), Ok(()));
        self.payloads[n].released = true;
        // All room before the oldest payload that is not released is free.
        let mut waiting = self.payloads.iter().filter(|p| !p.released);
        self.head = waiting.next().map_or(self.tail, |p| p.span.start - HEADER);
    }

    fn fits(&self, len: usize) -> bool {
        let capacity = self.writer.capacity().0;
        let (needed, bytes_to_end) = (Self::stride(len), capacity - self.tail % capacity);
        let skipped = if needed > bytes_to_end { bytes_to_end } else { 0 };
        skipped + needed <= capacity - (self.tail - self.head)
    }

    fn commit(&mut self, len: usize, keep: usize) {
        let (fits, largest) = (self.fits(len), self.writer.largest());
        match self.writer.reserve(len) {
            Ok(mut reservation) => {
                assert!(fits && Bytes(len as u64) <= largest);
                self.fill = self.fill.wrapping_add(1);
                assert_eq!(reservation.bytes_mut().len(), len);
                reservation.bytes_mut().fill(self.fill);
                reservation.truncate(keep);
                let kept = len.min(keep);
                let span = reservation.commit();
                assert_eq!(span.len as usize, kept);
                assert!(span.start >= self.tail + HEADER);
                self.tail = span.start + Self::stride(kept) - HEADER;
                let bytes = vec![self.fill; kept];
                self.payloads.push(Payload { span, bytes, released: false });
            }
            Err(PoolError::TooLarge { .. }) => assert!(Bytes(len as u64) > largest),
            Err(PoolError::Full { .. }) => assert!(!fits),
        }
    }

    fn pick(&self, which: &Index, released: bool) -> Option<usize> {
        let some: Vec<_> =
            (0..self.payloads.len()).filter(|&n| self.payloads[n].released == released).collect();
        (!some.is_empty()).then(|| *which.get(&some))
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Commit(len, keep) => self.commit(len, keep),
            Step::Abandon(len) => {
                if let Ok(mut reservation) = self.writer.reserve(len) {
                    reservation.bytes_mut().fill(0xaa);
                }
            }
            Step::Release(which) => {
                if let Some(n) = self.pick(&which, false) {
                    self.release(n);
                }
            }
            Step::ReleaseAgain(which) => {
                if let Some(n) = self.pick(&which, true) {
                    let span = self.payloads[n].span;
                    assert_eq!(self.reader.bytes(span), Err(SpanError::Released(span)));
                    assert_eq!(self.reader.release(span), Err(SpanError::Released(span)));
                }
            }
            Step::Stamp(which, byte) => {
                if let Some(n) = self.pick(&which, false) {
                    let payload = &mut self.payloads[n];
                    self.reader.bytes_mut(payload.span).unwrap().fill(byte);
                    payload.bytes.fill(byte);
                }
            }
            Step::Forge(span) => {
                if !self.payloads.iter().any(|p| p.span == span && !p.released) {
                    assert!(self.reader.bytes(span).is_err());
                    assert!(self.reader.bytes_mut(span).is_err());
                    assert!(self.reader.release(span).is_err());
                }
            }
        }
        self.check();
    }

    fn check(&self) {
        for payload in self.payloads.iter().filter(|p| !p.released) {
            assert_eq!(self.reader.bytes(payload.span), Ok(&payload.bytes[..]));
        }
        let held = Bytes(self.tail - self.head);
        assert_eq!(self.reader.held(), held);
        assert_eq!(self.writer.free(), self.writer.capacity() - held);
    }
}

/// Fewer under Miri, which takes a thousand times as long.
const STEPS: usize = if cfg!(miri) { 20 } else { 100 };

fn cases() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if cfg!(miri) {
        config.cases = 2;
        config.failure_persistence = None;
    }
    config
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn keeps_each_payload_until_it_is_released(
        capacity in 0..1000_u64,
        steps in prop::collection::vec(step(), 0..STEPS),
    ) {
        let (writer, reader) = pool(Bytes(capacity));
        let mut model = Model { writer, reader, payloads: Vec::new(), tail: 0, head: 0, fill: 0 };
        for step in steps {
            model.step(step);
        }
        // After any steps, an empty pool has its full capacity.
        for n in 0..model.payloads.len() {
            if !model.payloads[n].released {
                model.release(n);
            }
        }
        prop_assert_eq!(model.reader.held(), Bytes(0));
        let largest = model.writer.largest().0 as usize;
        prop_assert!(model.writer.reserve(largest).is_ok());
    }
}

fn commit(writer: &mut PoolWriter, bytes: &[u8]) -> PayloadSpan {
    let mut reservation = writer.reserve(bytes.len()).unwrap();
    reservation.bytes_mut().copy_from_slice(bytes);
    reservation.commit()
}

#[test]
fn room_is_freed_in_order_of_allocation() {
    let (mut writer, mut reader) = pool(Bytes(128));
    let [a, b] = [commit(&mut writer, b"a"), commit(&mut writer, b"b")];
    reader.release(b).unwrap();
    assert_eq!(writer.free(), Bytes(64), "b waits for a");
    assert_eq!(reader.bytes(a), Ok(&b"a"[..]));
    reader.release(a).unwrap();
    assert_eq!(writer.free(), Bytes(128));
}

#[test]
fn a_payload_that_would_wrap_begins_at_the_start() {
    let (mut writer, mut reader) = pool(Bytes(128));
    let a = commit(&mut writer, &[1; 40]);
    reader.release(a).unwrap();
    let b = commit(&mut writer, &[2; 40]);
    assert_eq!(b.start, 80, "fits to the byte");
    let c = commit(&mut writer, &[3; 20]);
    assert_eq!(c.start, 128 + 16);
    let full = PoolError::Full { wanted: Bytes(17), free: Bytes(16) };
    assert_eq!(writer.reserve(17).unwrap_err(), full);
    assert_eq!(reader.bytes(b), Ok(&[2; 40][..]));
    assert_eq!(reader.bytes(c), Ok(&[3; 20][..]));
}

#[test]
fn what_never_fits_says_what_would() {
    let (mut writer, _reader) = pool(Bytes(128));
    let error = writer.reserve(49).unwrap_err();
    assert_eq!(error, PoolError::TooLarge { wanted: Bytes(49), largest: Bytes(48) });
    assert!(error.to_string().contains("takes 48 B at once"), "{error}");
    assert!(writer.reserve(48).is_ok());
    assert!(writer.reserve(usize::MAX).is_err());
}

#[test]
fn a_span_of_another_pool_is_unknown() {
    let (_, mut reader) = pool(Bytes(128));
    let (mut writer, _other) = pool(Bytes(128));
    let span = commit(&mut writer, b"elsewhere");
    assert_eq!(reader.bytes(span), Err(SpanError::Unknown(span)));
    assert_eq!(reader.release(span), Err(SpanError::Unknown(span)));
}

#[test]
fn two_threads_pass_payloads_that_are_released_out_of_order() {
    let total: u32 = if cfg!(miri) { 60 } else { 30_000 };
    let (mut writer, mut reader) = pool(Bytes(4096));
    let make = move |n: u32| {
        let len = (n.wrapping_mul(2_654_435_761) >> 23) as usize;
        let mut reservation = loop {
            // Reserved twice: a reservation may be dropped and made again.
            if writer.reserve(len).is_ok() {
                break writer.reserve(len).unwrap();
            }
            thread::yield_now();
        };
        reservation.bytes_mut().fill(n as u8);
        (n, reservation.commit())
    };
    let mut kept = None;
    threads::pass(16, total, make, |n, (number, span)| {
        assert_eq!(number, n);
        let bytes = reader.bytes_mut(span).unwrap();
        assert!(bytes.iter().all(|&byte| byte == n as u8));
        bytes.fill(!0);
        // Two are released in the other order.
        match kept.take() {
            None => kept = Some(span),
            Some(older) => {
                reader.release(span).unwrap();
                reader.release(older).unwrap();
            }
        }
    });
}
