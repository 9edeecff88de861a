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
use crate::wire::{RingAddress, random};

/// Messages taken at once, before others have their turn.
const AT_ONCE: usize = 64;

/// Why the other end's memory can't be reached.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// This end can't listen.
    #[error(transparent)]
    Local(#[from] JoinError),
    /// The other does not.
    #[error(
        "net(shm) does not reach the other end's memory ({0}); both must run on one machine, in one network namespace, as one user: use net between machines"
    )]
    Remote(#[source] std::io::Error),
}

/// How the ring out of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingStatus {
    /// It is being made.
    Calling,
    /// It is there.
    Ready,
    /// The other process is gone, or has broken or closed what it shared.
    Disconnected,
}

/// An endpoint's rings; nothing of them is there before the first is wanted.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    held: Mutex<Option<RingState>>,
    /// Whether there are any.
    some: AtomicBool,
    /// Readable when this process is called.
    wake_event: OnceLock<OwnedFd>,
}

#[derive(Debug)]
struct RingState {
    links: RingPeers,
    name: u128,
    /// Connections by the ring that they send into,
    outs: HashMap<PeerId, (u32, RingStatus)>,
    /// by the ring that they receive from,
    ins: HashMap<PeerId, u32>,
    /// and by the word with which that will be asked for.
    tokens: HashMap<String, u32>,
}

impl RingState {
    /// Which connection a ring is for.
    fn connection_of(&mut self, ring: PeerId) -> Option<u32> {
        if let Some(id) = self.ins.get(&ring) {
            return Some(*id);
        }
        let id = self.links.token(ring).and_then(|token| self.tokens.remove(token))?;
        self.ins.insert(ring, id);
        Some(id)
    }
}

fn spelt(token: u128) -> String {
    format!("{token:032x}")
}

fn address(name: u128) -> String {
    format!("selvedge-stack-{name:032x}")
}

impl Rings {
    fn with<T>(&self, run: impl FnOnce(&mut RingState) -> T) -> Result<T, RingError> {
        let mut held = lock(&self.held);
        if held.is_none() {
            let name = random();
            let links = RingPeers::listen(&address(name))?;
            let called = links.fd().try_clone_to_owned().map_err(JoinError::System)?;
            // It is set once, under the lock.
            let _ = self.wake_event.set(called);
            let (outs, ins, tokens) = Default::default();
            *held = Some(RingState { links, name, outs, ins, tokens });
            self.some.store(true, Ordering::Release);
        }
        let held = held.as_mut().expect("it was made just now");
        Ok(run(held))
    }

    /// Runs this if there are rings.
    fn with_rings<T>(&self, run: impl FnOnce(&mut RingState) -> T) -> Option<T> {
        if !self.some.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.held).as_mut().map(run)
    }

    /// Where a connection's other end may make its ring to here, once.
    pub(crate) fn ring_address(&self, id: u32) -> Result<RingAddress, RingError> {
        self.with(|held| {
            let token = random();
            held.links.admit_token(&spelt(token));
            held.tokens.insert(spelt(token), id);
            RingAddress { name: held.name, token }
        })
    }

    /// Begins a connection's ring to the other end; [`Rings::poll_changes`] says when it is there.
    pub(crate) fn call(&self, id: u32, ring_address: RingAddress) -> Result<PeerId, RingError> {
        let called = self.with(|held| {
            let called =
                held.links.connect(&address(ring_address.name), &spelt(ring_address.token))?;
            held.outs.insert(called, (id, RingStatus::Calling));
            Ok(called)
        })?;
        called.map_err(RingError::Remote)
    }

    /// Nothing goes to a connection or comes for it any more.
    pub(crate) fn close(&self, id: u32) {
        self.with_rings(|held| {
            let RingState { links, outs, ins, tokens, .. } = held;
            let out = outs.extract_if(|_, (of, _)| *of == id).map(|(ring, _)| ring);
            let both = out.chain(ins.extract_if(|_, of| *of == id).map(|(ring, _)| ring));
            both.for_each(|ring| links.close(ring));
            tokens.retain(|_, of| *of != id);
        });
    }

    /// Connections whose ways out have changed since; costs one look if none has.
    pub(crate) fn poll_changes(&self) -> Vec<(u32, RingStatus)> {
        let changes = self.with_rings(|held| {
            let mut changes = Vec::new();
            for news in held.links.news() {
                let (ring, way) = match news {
                    RingEvent::Ready(ring) => (ring, RingStatus::Ready),
                    RingEvent::Gone(ring) => (ring, RingStatus::Disconnected),
                };
                // Of the two rings one is enough to know that the other process is gone.
                let out = held.outs.get(&ring).map(|(id, _)| *id);
                let id = out.or_else(|| held.connection_of(ring));
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
        self.with_rings(|held| {
            held.outs.get(&ring).is_none_or(|(_, way)| *way == RingStatus::Disconnected)
        }) == Some(true)
    }

    /// Whether nothing of a connection's waits to be taken.
    pub(crate) fn is_drained(&self, id: u32) -> bool {
        let drained = self.with_rings(|held| {
            let RingState { links, ins, tokens, .. } = held;
            !ins.iter().any(|(ring, of)| *of == id && links.has_unread_of(*ring))
                && !tokens.iter().any(|(token, of)| *of == id && links.has_by(token))
        });
        drained.unwrap_or(true)
    }

    /// Hands datagrams that came to `take`, with the connection that they are for; how many. It
    /// reads each at most once.
    pub(crate) fn take(&self, mut take: impl FnMut(u32, &[u8])) -> usize {
        let taken = self.with_rings(|held| {
            for count in 0..AT_ONCE {
                let Some(at) = held.links.take() else { return count };
                let ring = held.links.message(at).0;
                match held.connection_of(ring) {
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
        let quiet = self.with_rings(|held| held.links.prepare_wait())?;
        Some((self.wake_event.get()?, quiet))
    }

    /// Puts datagrams into a ring, in order, and calls its reader; how many went in. The others find
    /// no room now, or the ring is still being made. `None` if there is no such ring any more.
    pub(crate) fn send<'a>(
        &self,
        ring: PeerId,
        datagrams: impl Iterator<Item = &'a [u8]>,
    ) -> Option<usize> {
        self.with_rings(|held| {
            if held.outs.get(&ring)?.1 == RingStatus::Calling {
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
