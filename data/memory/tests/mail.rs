//! Mailboxes: order, room, overwriting, sleeping, and a side that writes anything.
#![cfg(not(loom))]
#![allow(clippy::disallowed_methods, reason = "tests of what two threads share")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use selvedge_data_memory::{
    HeaderError, MailboxError, MailboxReader, MailboxSpec, MailboxWriter, Region, RegionError,
    mailbox, mailbox_region,
};

const KEEPS: MailboxSpec = MailboxSpec { capacity: 512, bound: 8, overwrites: false };
const OVERWRITES: MailboxSpec = MailboxSpec { overwrites: true, ..KEEPS };

struct Heap(NonNull<u8>, Layout);

impl Heap {
    fn region(len: usize) -> Arc<dyn Region> {
        let layout = Layout::from_size_align(len, 128).unwrap();
        // SAFETY: the tests allocate more than zero bytes.
        let base = unsafe { alloc_zeroed(layout) };
        Arc::new(Self(NonNull::new(base).unwrap(), layout))
    }
}

// SAFETY: the bytes are accessed through atomics only.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

// SAFETY: allocated at a multiple of 128, freed when dropped, and referred to by atomics only.
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
fn poke(region: &Arc<dyn Region>, at: usize, word: u64) {
    assert!(at.is_multiple_of(8) && at + 8 <= region.len());
    // SAFETY: within the region, and aligned.
    let there = unsafe { region.base().add(at).cast::<AtomicU64>().as_ref() };
    there.store(word, Ordering::Relaxed);
}

fn shared(spec: MailboxSpec) -> (Arc<dyn Region>, MailboxWriter, MailboxReader) {
    let region = Heap::region(mailbox_region(spec.capacity));
    let reader = MailboxReader::create(&region, 0, spec).unwrap();
    let writer = MailboxWriter::within(&region, 0).unwrap();
    (region, writer, reader)
}

fn taken(reader: &mut MailboxReader) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(mail) = reader.take().unwrap() {
        all.push((mail.tag, mail.bytes.to_vec()));
    }
    all
}

#[test]
fn messages_of_all_lengths_arrive_in_order() {
    for spec in [KEEPS, OVERWRITES] {
        let (_region, mut writer, mut reader) = shared(spec);
        // Miri is slow.
        for len in (0..=spec.longest()).step_by(if cfg!(miri) { 61 } else { 1 }) {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8 ^ len as u8).collect();
            writer.put(len as u64, &bytes).unwrap();
            assert!(!reader.has_message(), "not shown yet");
            assert!(!writer.flush(), "it does not sleep");
            assert_eq!(taken(&mut reader), [(len as u64, bytes)]);
        }
        let too_long = vec![0; spec.longest() + 1];
        let most = spec.longest();
        assert_eq!(writer.put(0, &too_long), Err(MailboxError::TooLong { len: most + 1, most }));
    }
}

#[test]
fn one_that_keeps_is_full_by_messages_and_by_bytes() {
    let (_region, mut writer, mut reader) = shared(KEEPS);
    for n in 0..8 {
        writer.put(n, &[]).unwrap();
    }
    assert_eq!(writer.put(8, &[]), Err(MailboxError::Full));
    writer.skip();
    let _ = writer.flush();
    assert_eq!(writer.waiting(), Ok(8));
    assert_eq!(reader.take().unwrap().unwrap().tag, 0);
    writer.put(9, &[]).unwrap();
    let _ = writer.flush();
    assert_eq!(
        taken(&mut reader).iter().map(|one| one.0).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6, 7, 9]
    );
    assert_eq!((reader.missed(), writer.missed()), (1, 1));
    let half = [7; 200];
    assert_eq!((writer.put(0, &half), writer.put(0, &half)), (Ok(()), Ok(())));
    assert_eq!(writer.put(0, &half), Err(MailboxError::Full));
}

#[test]
fn one_that_overwrites_has_the_newest_and_counts_the_rest() {
    let (_region, mut writer, mut reader) = shared(OVERWRITES);
    for n in 0..20 {
        writer.put(n, &[n as u8]).unwrap();
        let _ = writer.flush();
    }
    let tags: Vec<u64> = taken(&mut reader).iter().map(|one| one.0).collect();
    assert_eq!(tags, (12..20).collect::<Vec<_>>());
    assert_eq!(reader.missed(), 12);
    // A batch longer than the mailbox: unpublished messages are overwritten, too.
    for n in 20..40 {
        writer.put(n, &[]).unwrap();
    }
    let _ = writer.flush();
    assert_eq!(reader.take_latest().unwrap().unwrap().tag, 39);
    assert_eq!(reader.take().unwrap(), None);
    assert_eq!(reader.missed(), 31);
}

#[test]
fn a_sleeper_is_called_once() {
    let (mut writer, reader) = mailbox(KEEPS);
    assert!(reader.prepare_sleep());
    writer.put(1, &[]).unwrap();
    assert!(writer.flush());
    writer.put(2, &[]).unwrap();
    assert!(!writer.flush(), "it was called");
    assert!(!reader.prepare_sleep(), "there is something");
    assert!(!writer.flush(), "it is awake");
}

#[test]
fn each_side_sees_that_the_other_is_gone() {
    let (writer, reader) = mailbox(KEEPS);
    assert!(!writer.is_abandoned() && !reader.is_abandoned());
    drop(writer);
    assert!(reader.is_abandoned());
    let (writer, reader) = mailbox(KEEPS);
    drop(reader);
    assert!(writer.is_abandoned());
}

#[test]
fn threads_hand_over_everything_or_the_newest() {
    const MESSAGES: u64 = if cfg!(miri) { 40 } else { 20_000 };
    for spec in [KEEPS, OVERWRITES] {
        let (_region, mut writer, mut reader) = shared(spec);
        let thread = std::thread::spawn(move || {
            for n in 0..MESSAGES {
                let bytes = vec![n as u8; (n % 100) as usize];
                while let Err(error) = writer.put(n, &bytes) {
                    assert_eq!(error, MailboxError::Full);
                    std::thread::yield_now();
                }
                let _ = writer.flush();
            }
            writer
        });
        let (mut got, mut last) = (0, None);
        while last != Some(MESSAGES - 1) {
            let Some(mail) = reader.take().unwrap() else {
                std::thread::yield_now();
                continue;
            };
            assert!(last.is_none_or(|last| mail.tag > last), "in order");
            assert_eq!(mail.bytes, vec![mail.tag as u8; (mail.tag % 100) as usize], "whole");
            last = Some(mail.tag);
            got += 1;
        }
        assert_eq!(got + reader.missed(), MESSAGES);
        assert!(spec.overwrites || got == MESSAGES);
        drop(thread.join().unwrap());
    }
}

#[test]
fn headers_that_lie_are_refused() {
    let region = Heap::region(mailbox_region(512));
    let refusal = || MailboxWriter::within(&region, 0).unwrap_err();
    assert!(matches!(refusal(), RegionError::Layout(HeaderError::Magic { .. })));
    let number = |what, value| RegionError::Layout(HeaderError::Number { what, value });
    for (at, word, error) in [
        (
            0,
            1,
            RegionError::Layout(HeaderError::Magic {
                is: 1_u64.to_ne_bytes(),
                wanted: *b"SLVGMAIL",
            }),
        ),
        (8, 1, RegionError::Layout(HeaderError::Version { is: 1, wanted: 2 })),
        (8, 2 | 2 << 32, number("its kind", 2)),
        (16, 1023, number("its length", 1023)),
        (24, 511, RegionError::Header),
        (24, 1 << 40, RegionError::Header),
        (24, u64::MAX, RegionError::Header),
        (24, 256, number("its length", 1024)),
        (32, 0, RegionError::Header),
    ] {
        drop(MailboxReader::create(&region, 0, KEEPS).unwrap());
        assert!(MailboxWriter::within(&region, 0).is_ok());
        poke(&region, at, word);
        assert_eq!(refusal(), error, "{at}");
    }
    drop(MailboxReader::create(&region, 0, KEEPS).unwrap());
    poke(&region, 16, 1536);
    poke(&region, 24, 1024);
    assert!(matches!(MailboxWriter::within(&region, 0), Err(RegionError::Bounds { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever one side writes, the other side only reads garbage or refuses.
    #[test]
    fn a_hostile_side_breaks_nothing(
        overwrites: bool,
        steps in prop::collection::vec((0_u8..6, 0_usize..128, any::<u64>(), 0_u64..1024), 1..60),
    ) {
        let (region, mut writer, mut reader) = shared(MailboxSpec { overwrites, ..KEEPS });
        for (what, at, wild, near) in steps {
            match what {
                0 => poke(&region, 64 * 8 + at % 64 * 8, wild),
                1 => poke(&region, 128 + at % 48 * 8, if wild % 2 == 0 { near } else { wild }),
                2 | 3 => {
                    let longest = writer.spec().longest();
                    let bytes = vec![1; near as usize % (longest + 1)];
                    let _ = writer.put(wild, &bytes);
                    let _ = writer.flush();
                }
                4 => {
                    if let Ok(Some(mail)) = reader.take() {
                        prop_assert!(mail.bytes.len() <= KEEPS.longest());
                    }
                }
                _ => {
                    let _ = (reader.take_latest().map(|_| ()), writer.waiting(), reader.prepare_sleep());
                }
            }
        }
    }
}
