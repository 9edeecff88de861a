//! Encrypted records: a sealed record opens once and unchanged, whichever workers share the work. A
//! record that was changed, cut, lengthened, joined from two, replayed, or sealed by other keys never
//! opens, and is counted.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::choices::Choices;
use selvedge_data_stack::message::Message;
use selvedge_data_stack::module::{Chunk, Direction, Key, Keys, Outputs, Reason, Task, WorkerPool};
use selvedge_data_stack::stack::ConnectionModules;
use selvedge_units::Instant;

const LINES: [&str; 2] = [
    "ui | encrypt(chacha20) | unreliable | frag(1400) | net",
    "ui | encrypt(aes256) | reliable | net",
];
/// Around the ends of chunks, where lengths could be mistaken.
const SIZES: [usize; 10] = [0, 1, 15, 16, 17, 16_383, 16_384, 16_385, 32_768, 40_001];
const RECORDS_MAX: usize = 32;

/// A worker pool in which the master does all the work, last part first.
#[derive(Debug)]
struct Alone;

impl WorkerPool for Alone {
    fn each(&self, parts: &mut [Chunk<'_>], task: Task<'_>) {
        parts.iter_mut().enumerate().rev().for_each(|(n, part)| task(n, part));
    }
}

/// Keys that depend on every byte of the input. The fuzzer sees the compared values: with constant keys
/// it puts a tag that was wanted before into its next try, and forges a record.
fn keys_for(bytes: &[u8]) -> (Keys, Keys) {
    let key = |of: u8| {
        let mut hasher = DefaultHasher::new();
        (of, bytes).hash(&mut hasher);
        let mut key = [of; 32];
        key[..8].copy_from_slice(&hasher.finish().to_le_bytes());
        Key(key)
    };
    (Keys { send: key(0), receive: key(1) }, Keys { send: key(2), receive: key(1) })
}

/// The encrypting module's only outcome, if it has one.
fn through(line: &ConnectionModules, way: Direction, message: Message) -> Option<Message> {
    let mut out = Outputs::default();
    line.modules()[1].handle(way, message, &line.call(Instant::ZERO), &mut out);
    let mut all = out.drain();
    let first = all.next().map(|(_, message)| message);
    assert!(all.next().is_none(), "one comes of one");
    first
}

struct Record {
    body: Vec<u8>,
    sealed: Vec<u8>,
    /// It was opened, or must never be because other keys have sealed it.
    opened: bool,
}

pub fn fuzz(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let kind = choices.byte();
    let line = LINES[usize::from(kind & 1)].parse().expect("a stack");
    let (keys, stranger) = keys_for(bytes);
    let shared = [kind & 2 != 0, kind & 4 != 0, false].into_iter();
    let mut ends = [keys.clone(), keys.swapped(), stranger].into_iter().zip(shared).map(
        |(keys, shared)| -> ConnectionModules {
            let crew: Option<Arc<dyn WorkerPool>> = shared.then(|| Arc::new(Alone) as _);
            ConnectionModules::with_worker_pool(&line, 7, Some(&keys), crew.as_ref())
                .expect("there are keys")
        },
    );
    let mut next = || ends.next().expect("three ends");
    let (sender, receiver, stranger) = (next(), next(), next());
    let mut records: Vec<Record> = Vec::new();
    let (mut given, mut passed) = (0_u64, 0_u64);
    while !choices.is_empty() {
        let which = choices.byte();
        if records.is_empty() || (which % 4 == 0 && records.len() < RECORDS_MAX) {
            let size = SIZES[usize::from(which / 4) % SIZES.len()];
            let body = vec![choices.byte(); size];
            let from = if which & 0x80 == 0 { &sender } else { &stranger };
            let message = from.message(&body, records.len() as u64, Instant::ZERO);
            let sealed = through(from, Direction::Down, message).expect("what fits is sealed");
            assert!(size < 16 || !sealed.bytes().windows(size).any(|part| part == body));
            let (sealed, opened) = (sealed.bytes().to_vec(), which & 0x80 != 0);
            records.push(Record { body, sealed, opened });
            continue;
        }
        let count = records.len();
        let n = usize::from(choices.byte()) % count;
        let mut sealed = records[n].sealed.clone();
        let at = usize::from(choices.word()) % sealed.len();
        match which % 8 {
            1 => sealed[at] ^= choices.byte(),
            2 => sealed.truncate(at),
            3 => sealed.extend_from_slice(choices.bytes(64)),
            5 => {
                let other = &records[usize::from(choices.byte()) % count].sealed;
                let end = other.len().min(sealed.len());
                sealed[at.min(end)..end].copy_from_slice(&other[at.min(end)..end]);
            }
            6 => sealed = choices.bytes(300).to_vec(),
            _ => {}
        }
        // A record joined from two may equal the other one.
        let whose = records.iter().position(|record| record.sealed == sealed);
        let message = Message::copy_of(&sealed, receiver.buffers());
        let came = through(&receiver, Direction::Up, message);
        given += 1;
        match (came, whose.map(|n| &mut records[n])) {
            (Some(message), Some(record)) => {
                assert!(!record.opened, "it opened before, or was sealed by other keys");
                assert_eq!(message.bytes(), record.body);
                (record.opened, passed) = (true, passed + 1);
            }
            (Some(_), None) => panic!("nobody sealed this"),
            // Numbers are within the window, so a valid new record opens.
            (None, Some(record)) => assert!(record.opened, "a sound record was dropped"),
            (None, None) => {}
        }
    }
    let dropped: u64 = Reason::ALL.into_iter().map(|why| receiver.connection().dropped(why)).sum();
    assert_eq!(dropped + passed, given, "what does not pass is counted, once");
}
