//! Memory below stacks (`net(shm)`): each connection has a ring each way, in sealed memory that the two
//! processes share. `selvedge-comm-local` makes the rings, checks all that the other side writes to them, and
//! tells at once when a process is gone; hello and welcome say where each end is reached.
//!
//! Whoever corrupts a ring is cut off from it, and loses the one connection that it was for.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use selvedge_comm_local::{JoinError, PeerId, PutOutcome, RingEvent, RingPeers};

use crate::sync::lock;
use crate::wire::{Door, random};

/// Messages taken at once, before others have their turn.
const AT_ONCE: usize = 64;

/// Why the other end's memory can't be reached.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// This end can't listen.
    #[error(transparent)]
    Here(#[from] JoinError),
    /// The other does not.
    #[error(
        "net(shm) does not reach the other end's memory ({0}); both must run on one machine, in one network namespace, as one user: use net between machines"
    )]
    There(#[source] std::io::Error),
}

/// How the ring out of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is being made.
    Calling,
    /// It is there.
    Ready,
    /// The other process is gone, or has broken or closed what it shared.
    Gone,
}

/// An endpoint's rings; nothing of them is there before the first is wanted.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    held: Mutex<Option<Held>>,
    /// Whether there are any.
    some: AtomicBool,
    /// Readable when this process is called.
    called: OnceLock<OwnedFd>,
}

#[derive(Debug)]
struct Held {
    links: RingPeers,
    name: u128,
    /// Connections by the ring that they send into,
    outs: HashMap<PeerId, (u32, Way)>,
    /// by the ring that they receive from,
    ins: HashMap<PeerId, u32>,
    /// and by the word with which that will be asked for.
    words: HashMap<String, u32>,
}

impl Held {
    /// Which connection a ring is for.
    fn whose(&mut self, ring: PeerId) -> Option<u32> {
        if let Some(id) = self.ins.get(&ring) {
            return Some(*id);
        }
        let id = self.links.word(ring).and_then(|word| self.words.remove(word))?;
        self.ins.insert(ring, id);
        Some(id)
    }
}

fn spelt(word: u128) -> String {
    format!("{word:032x}")
}

fn address(name: u128) -> String {
    format!("selvedge-stack-{name:032x}")
}

impl Rings {
    fn with<T>(&self, run: impl FnOnce(&mut Held) -> T) -> Result<T, RingError> {
        let mut held = lock(&self.held);
        if held.is_none() {
            let name = random();
            let links = RingPeers::listen(&address(name))?;
            let called = links.fd().try_clone_to_owned().map_err(JoinError::System)?;
            // It is set once, under the lock.
            let _ = self.called.set(called);
            let (outs, ins, words) = Default::default();
            *held = Some(Held { links, name, outs, ins, words });
            self.some.store(true, Ordering::Release);
        }
        let held = held.as_mut().expect("it was made just now");
        Ok(run(held))
    }

    /// Runs this if there are rings.
    fn if_any<T>(&self, run: impl FnOnce(&mut Held) -> T) -> Option<T> {
        if !self.some.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.held).as_mut().map(run)
    }

    /// Where a connection's other end may make its ring to here, once.
    pub(crate) fn door(&self, id: u32) -> Result<Door, RingError> {
        self.with(|held| {
            let word = random();
            held.links.admit_token(&spelt(word));
            held.words.insert(spelt(word), id);
            Door { name: held.name, word }
        })
    }

    /// Begins a connection's ring to the other end; [`Rings::changes`] says when it is there.
    pub(crate) fn call(&self, id: u32, door: Door) -> Result<PeerId, RingError> {
        let called = self.with(|held| {
            let called = held.links.connect(&address(door.name), &spelt(door.word))?;
            held.outs.insert(called, (id, Way::Calling));
            Ok(called)
        })?;
        called.map_err(RingError::There)
    }

    /// Nothing goes to a connection or comes for it any more.
    pub(crate) fn close(&self, id: u32) {
        self.if_any(|held| {
            let Held { links, outs, ins, words, .. } = held;
            let out = outs.extract_if(|_, (of, _)| *of == id).map(|(ring, _)| ring);
            let both = out.chain(ins.extract_if(|_, of| *of == id).map(|(ring, _)| ring));
            both.for_each(|ring| links.close(ring));
            words.retain(|_, of| *of != id);
        });
    }

    /// Connections whose ways out have changed since; costs one look if none has.
    pub(crate) fn changes(&self) -> Vec<(u32, Way)> {
        let changes = self.if_any(|held| {
            let mut changes = Vec::new();
            for news in held.links.news() {
                let (ring, way) = match news {
                    RingEvent::Ready(ring) => (ring, Way::Ready),
                    RingEvent::Gone(ring) => (ring, Way::Gone),
                };
                // Of the two rings one is enough to know that the other process is gone.
                let out = held.outs.get(&ring).map(|(id, _)| *id);
                let id = out.or_else(|| held.whose(ring));
                for (of, is) in held.outs.values_mut().filter(|(of, _)| Some(*of) == id) {
                    *is = way;
                    changes.push((*of, way));
                }
            }
            changes
        });
        changes.unwrap_or_default()
    }

    /// Whether a way out is known to be gone.
    pub(crate) fn is_gone(&self, ring: PeerId) -> bool {
        self.if_any(|held| held.outs.get(&ring).is_none_or(|(_, way)| *way == Way::Gone))
            == Some(true)
    }

    /// Whether nothing of a connection's waits to be taken.
    pub(crate) fn is_drained(&self, id: u32) -> bool {
        let drained = self.if_any(|held| {
            let Held { links, ins, words, .. } = held;
            !ins.iter().any(|(ring, of)| *of == id && links.has_of(*ring))
                && !words.iter().any(|(word, of)| *of == id && links.has_by(word))
        });
        drained.unwrap_or(true)
    }

    /// Hands datagrams that came to `take`, with the connection that they are for; how many. It
    /// reads each at most once.
    pub(crate) fn take(&self, mut take: impl FnMut(u32, &[u8])) -> usize {
        let taken = self.if_any(|held| {
            for count in 0..AT_ONCE {
                let Some(at) = held.links.take() else { return count };
                let ring = held.links.message(at).0;
                match held.whose(ring) {
                    Some(id) => take(id, held.links.message(at).1),
                    // Of a connection that has been closed here.
                    None => held.links.close(ring),
                }
            }
            AT_ONCE
        });
        taken.unwrap_or(0)
    }

    /// What is readable when something comes; `None` without rings. False beside it if there is
    /// something to take first.
    pub(crate) fn prepare_wait(&self) -> Option<(&OwnedFd, bool)> {
        let quiet = self.if_any(|held| held.links.prepare_wait())?;
        Some((self.called.get()?, quiet))
    }

    /// Puts datagrams into a ring, in order, and calls its reader; how many went in. The others find
    /// no room now, or the ring is still being made. `None` if there is no such ring any more.
    pub(crate) fn send<'a>(
        &self,
        ring: PeerId,
        datagrams: impl Iterator<Item = &'a [u8]>,
    ) -> Option<usize> {
        self.if_any(|held| {
            if held.outs.get(&ring)?.1 == Way::Calling {
                return Some(0);
            }
            let mut count = 0;
            for bytes in datagrams {
                match held.links.put(ring, bytes) {
                    PutOutcome::Done => count += 1,
                    PutOutcome::Dropped => break,
                    PutOutcome::Gone => return None,
                }
            }
            held.links.flush();
            Some(count)
        })?
    }
}
