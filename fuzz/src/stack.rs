//! A stack's line and its peer's datagrams: any line is a stack or an error; any datagrams leave a
//! stack that neither panics nor delivers messages that were not sent, in bounded memory.

use std::sync::Arc;

use crate::choices::Choices;
use selvedge_data_stack::compose::Composition;
use selvedge_data_stack::module::{Chunk, Key, Keys, Task, WorkerPool};
use selvedge_data_stack::stack::{ConnectionModules, Stack};
use selvedge_units::Instant;

const LINES: [&str; 7] = [
    "ui | reliable | net",
    "ui | reliable | frag(300) | net",
    "ui | compress | unreliable | frag(200) | fec(3,2) | net",
    "ui | encrypt(chacha20) | reliable | frag(500) | net",
    "ui | checksum | unreliable(ordered) | net",
    "ui | compress | reliable | encrypt(aes256) | frag(400) | fec(2,1) | net",
    SHARED,
];
/// Its messages are of three chunks, which slaves share.
const SHARED: &str = "ui | encrypt(aes256) | unreliable | frag(20000) | net";
const BODY: [&[u8]; 2] = [&[0x5a; 700], &[0x5a; 40_000]];

/// A worker pool in which the master does all the work, last part first.
#[derive(Debug)]
struct Alone;

impl WorkerPool for Alone {
    fn each(&self, parts: &mut [Chunk<'_>], task: Task<'_>) {
        parts.iter_mut().enumerate().rev().for_each(|(n, part)| task(n, part));
    }
}

pub fn fuzz(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(composition) = text.parse::<Composition>()
    {
        assert_eq!(composition.to_string().parse(), Ok(composition));
    }
    let mut choices = Choices::new(bytes);
    let line = LINES[usize::from(choices.byte()) % LINES.len()];
    let composition: Composition = line.parse().expect("a stack");
    let keys = Keys { send: Key([1; 32]), receive: Key([2; 32]) };
    let [mut end, mut peer] = [keys.clone(), keys.swapped()].map(|keys| {
        let crew: Option<Arc<dyn WorkerPool>> = (line == SHARED).then(|| Arc::new(Alone) as _);
        let line = ConnectionModules::with_worker_pool(&composition, 7, Some(&keys), crew.as_ref());
        Stack::new(line.expect("there are keys"))
    });
    let body = BODY[usize::from(line == SHARED)];
    let (mut now, mut sent, mut came) = (Instant::ZERO, 0_u32, 0_u32);
    let mut kept: Vec<Vec<u8>> = Vec::new();
    while !choices.is_empty() {
        now = Instant(now.0 + u64::from(choices.byte()) * 100_000);
        match choices.byte() % 4 {
            0 => sent += u32::from(peer.handle_message(now, body).is_ok()),
            1 if !kept.is_empty() => {
                // A datagram of the peer, changed, cut short or unchanged, perhaps again.
                let mut datagram = kept[usize::from(choices.byte()) % kept.len()].clone();
                let at = usize::from(choices.byte()) % datagram.len().max(1);
                match choices.byte() % 3 {
                    0 => datagram.truncate(at),
                    1 => datagram[at] ^= choices.byte(),
                    _ => {}
                }
                end.handle_datagram(now, &datagram);
            }
            2 => {
                let len = usize::from(choices.byte());
                end.handle_datagram(now, choices.bytes(len));
            }
            _ => end.handle_timeout(now),
        }
        peer.handle_timeout(now);
        while let Some(datagram) = peer.poll_transmit() {
            if kept.len() < 64 {
                kept.push(datagram.bytes().to_vec());
            }
            peer.recycle(datagram);
        }
        while let Some(answer) = end.poll_transmit() {
            peer.handle_datagram(now, answer.bytes());
            end.recycle(answer);
        }
        while let Some(message) = end.poll_message() {
            assert_eq!(message.bytes(), body, "only what was sent is delivered");
            came += 1;
            end.recycle(message);
        }
    }
    assert!(came <= sent, "each at most once");
}
