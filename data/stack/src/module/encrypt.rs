//! Encryption: ChaCha20-Poly1305 (RFC 8439) or AES-256-GCM, by `ring`, with keys of an earlier key exchange.
//!
//! | offset | what |
//! |---|---|
//! | 0 | the message's nonce, `u64`, big-endian: counted, never used twice with a key |
//! | 8 | the message in chunks of at most [`CHUNK`] bytes, each encrypted by itself, in place |
//! | end | the chunks' tags, 16 bytes each, in order |
//!
//! A chunk's nonce is its index and the message's nonce. The message's length is authenticated as
//! well, so chunks can't be cut off, exchanged or moved. Chunks are independent: with a
//! [`WorkerPool`] several threads work on one message, each on chunks of its own, and nothing is
//! copied. The other end sees no difference.

use core::fmt;
use std::sync::Arc;

use selvedge_data_net_secure::{AeadKey, Cipher, Keys, SequenceStatus, TAG, Window};

use super::interface::{Call, Critical, Direction, Module, Outputs, Reason};
use super::worker_pool::{Chunk, WorkerPool};
use crate::concurrency::{Concurrency, Counter, SingleThreaded, State};
use crate::message::Message;

/// Bytes of a chunk.
pub const CHUNK: usize = 16_384;
/// Chunks of the longest message, with the headers of the modules above.
const CHUNKS_MAX: usize = 80;

/// Encrypts and decrypts.
pub struct Encrypt<C: Concurrency = SingleThreaded> {
    cipher: Cipher,
    send: AeadKey,
    receive: AeadKey,
    next: C::Counter,
    received: C::State<Window>,
    worker_pool: Option<Arc<dyn WorkerPool>>,
}

impl<C: Concurrency> fmt::Debug for Encrypt<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encrypt").field("cipher", &self.cipher).finish_non_exhaustive()
    }
}

impl<C: Concurrency> Encrypt<C> {
    /// A module with these keys.
    #[must_use]
    pub fn new(cipher: Cipher, keys: &Keys) -> Self {
        Self {
            cipher,
            send: AeadKey::new(cipher, &keys.send),
            receive: AeadKey::new(cipher, &keys.receive),
            next: C::Counter::new(0),
            received: C::State::new(Window::new()),
            worker_pool: None,
        }
    }

    /// The same, with worker threads that share messages of more than one chunk.
    #[must_use]
    pub fn shared_with(self, worker_pool: Option<Arc<dyn WorkerPool>>) -> Self {
        Self { worker_pool, ..self }
    }

    /// The next message's nonce, for [`Encrypt::seal`].
    pub fn nonce(&self) -> u64 {
        self.next.add(1)
    }

    /// Encrypts one chunk in place: the work of a worker thread. `total` is the whole message's
    /// length. `None` if it can't be encrypted.
    pub fn seal(
        &self,
        nonce: u64,
        total: usize,
        index: usize,
        chunk: &mut [u8],
    ) -> Option<[u8; TAG]> {
        self.send.seal(of(nonce, index), &bound(total), chunk)
    }

    /// Prepends the nonce and appends the chunks' tags to a message whose chunks are sealed.
    pub fn finish(&self, message: &mut Message, nonce: u64, tags: &[[u8; TAG]]) {
        tags.iter().for_each(|tag| message.append(tag));
        message.push(&nonce.to_be_bytes());
        // The bytes differ each time, and so does the name.
        message.name = nonce as u32;
    }

    /// Finishes a message that is authentic.
    fn opened(
        &self,
        mut message: Message,
        nonce: u64,
        total: usize,
        call: &Call<'_, C>,
        out: &mut Outputs,
    ) {
        // Only an authentic message moves the window; two elements may have had the same one.
        match self.received.with(|window| window.mark(nonce)) {
            SequenceStatus::Newest | SequenceStatus::Late => {}
            SequenceStatus::Seen | SequenceStatus::Beyond => {
                return call.drop(message, Reason::Replayed);
            }
        }
        message.set_len(total);
        out.up(message);
    }
}

/// A message's length without the tags; `None` if no message has this length.
fn plain(len: usize) -> Option<usize> {
    let chunks = len.div_ceil(CHUNK + TAG).max(1);
    let total = len.checked_sub(chunks * TAG)?;
    (total.div_ceil(CHUNK).max(1) == chunks).then_some(total)
}

fn of(nonce: u64, index: usize) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&(index as u32).to_be_bytes());
    bytes[4..].copy_from_slice(&nonce.to_be_bytes());
    bytes
}

fn bound(total: usize) -> [u8; 8] {
    (total as u64).to_be_bytes()
}

impl<C: Concurrency> Module<C> for Encrypt<C> {
    fn critical(&self, direction: Direction) -> Critical {
        if direction == Direction::Up { Critical::Window } else { Critical::Nothing }
    }

    fn down(&self, mut message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        let (nonce, total) = (self.nonce(), message.len());
        let mut tags = [[0; TAG]; CHUNKS_MAX];
        // An empty message has a chunk as well.
        let count = total.div_ceil(CHUNK).max(1);
        let Some(tags) = tags.get_mut(..count) else { return call.drop(message, Reason::TooLarge) };
        let sealed = if let Some(worker_pool) = self.worker_pool.as_ref().filter(|_| count > 1) {
            let chunks = message.bytes_mut().chunks_mut(CHUNK);
            let part = |chunk| Chunk { chunk, tag: [0; TAG], intact: false };
            let mut parts: Vec<_> = chunks.map(part).collect();
            // Worker threads share the key, not the module.
            let key = &self.send;
            worker_pool.each(&mut parts, &|index, part| {
                let tag = key.seal(of(nonce, index), &bound(total), part.chunk);
                (part.tag, part.intact) = (tag.unwrap_or_default(), tag.is_some());
            });
            tags.iter_mut().zip(&parts).for_each(|(tag, part)| *tag = part.tag);
            parts.iter().all(|part| part.intact)
        } else {
            let mut rest = message.bytes_mut();
            tags.iter_mut().enumerate().all(|(index, tag)| {
                let len = rest.len().min(CHUNK);
                let (chunk, after) = core::mem::take(&mut rest).split_at_mut(len);
                rest = after;
                let sealed = self.seal(nonce, total, index, chunk);
                *tag = sealed.unwrap_or_default();
                sealed.is_some()
            })
        };
        // No unencrypted message leaves.
        if !sealed {
            return call.drop(message, Reason::Unsealed);
        }
        self.finish(&mut message, nonce, tags);
        out.down(message);
    }

    fn up(&self, mut message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        let Some(nonce) = message.pull().map(u64::from_be_bytes) else {
            return call.drop(message, Reason::Malformed);
        };
        // Checked before any work: an old message must not be replayed.
        match self.received.with(|window| window.standing(nonce)) {
            SequenceStatus::Newest | SequenceStatus::Late => {}
            SequenceStatus::Seen => return call.drop(message, Reason::Replayed),
            SequenceStatus::Beyond => return call.drop(message, Reason::Late),
        }
        let Some(total) = plain(message.len()) else {
            return call.drop(message, Reason::Malformed);
        };
        let (text, tags) = message.bytes_mut().split_at_mut(total);
        if let Some(worker_pool) = self.worker_pool.as_ref().filter(|_| total > CHUNK) {
            let tagged = text.chunks_mut(CHUNK).zip(tags.as_chunks::<TAG>().0);
            let part = |(chunk, &tag)| Chunk { chunk, tag, intact: false };
            let mut parts: Vec<_> = tagged.map(part).collect();
            let key = &self.receive;
            worker_pool.each(&mut parts, &|index, part| {
                let (nonce, bound) = (of(nonce, index), bound(total));
                part.intact = key.open(nonce, &bound, part.chunk, part.tag);
            });
            if !parts.iter().all(|part| part.intact) {
                return call.drop(message, Reason::Forged);
            }
            return self.opened(message, nonce, total, call, out);
        }
        let mut rest = text;
        for (index, tag) in tags.as_chunks::<TAG>().0.iter().enumerate() {
            let (chunk, after) = rest.split_at_mut(rest.len().min(CHUNK));
            if !self.receive.open(of(nonce, index), &bound(total), chunk, *tag) {
                return call.drop(message, Reason::Forged);
            }
            rest = after;
        }
        self.opened(message, nonce, total, call, out);
    }
}
