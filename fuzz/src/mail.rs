//! A mailbox whose other side writes anything anywhere, at any time: a reader gets garbage or a
//! refusal, and never more bytes than fit; a writer gets a result, or the error that the mailbox is
//! broken. Nothing hangs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::choices::Choices;
use selvedge_data_memory::{MailboxReader, MailboxSpec, MailboxWriter, Region, mailbox_region};
use selvedge_os::memory::Memfd;

const CAPACITY: u64 = 1024;

pub fn fuzz(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let overwrites = choices.byte() % 2 == 1;
    let spec =
        MailboxSpec { capacity: CAPACITY, bound: 1 + u64::from(choices.byte() % 9), overwrites };
    let len = mailbox_region(CAPACITY);
    let memory = Arc::new(Memfd::create("fuzz", len).expect("memory to share"));
    let region: Arc<dyn Region> = memory.clone();
    let mut reader = MailboxReader::create(&region, 0, spec).expect("it fits");
    let mut writer = MailboxWriter::within(&region, 0).expect("it is new");
    let (mut scribbled, mut skipped) = (false, false);
    let (mut put, mut got) = (0_u64, 0_u64);
    while !choices.is_empty() {
        match choices.byte() % 8 {
            0 => {
                let at = usize::from(choices.word()) % (len / 8) * 8;
                let word = u64::from(choices.word()) << (choices.byte() % 49);
                memory.atomic(at).store(word, Ordering::Relaxed);
                scribbled = true;
            }
            1..=3 => {
                let size = usize::from(choices.word()) % (spec.longest() + 2);
                let fill = put as u8;
                if writer.put(put, &vec![fill; size]).is_ok() {
                    put += 1;
                }
            }
            4 => _ = writer.flush(),
            5 => {
                let latest = choices.byte() % 2 == 1;
                skipped |= latest;
                let taken = if latest { reader.take_latest() } else { reader.take() };
                match taken {
                    Ok(Some(mail)) => {
                        got += 1;
                        assert!(mail.bytes.len() <= spec.longest());
                        if !scribbled {
                            assert!(mail.bytes.iter().all(|byte| *byte == mail.tag as u8));
                        }
                    }
                    Ok(None) => {}
                    Err(_) => assert!(scribbled, "honest sides understand each other"),
                }
            }
            6 => {
                let _ = (reader.prepare_sleep(), reader.has_message(), reader.last().bytes.len());
                assert!(scribbled || writer.waiting().is_ok());
            }
            _ => {
                // Another writer attaches to the memory as it is, or refuses to.
                if scribbled && let Ok(other) = MailboxWriter::within(&region, 0) {
                    assert!(mailbox_region(other.spec().capacity) <= len);
                }
            }
        }
    }
    assert!(scribbled || got <= put);
    assert!(scribbled || overwrites || skipped || reader.missed() == 0);
}
