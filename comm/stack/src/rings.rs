//! Shared memory below stacks (`net(shm)`): each connection has a ring in each direction, in sealed memory
//! that the two processes share. `selvedge-comm-local` makes the rings, checks all that the other side
//! writes, and reports at once when a process is gone. Hello and welcome state where each end is reached.
//!
//! A process that corrupts a ring is cut off from it, and loses only that connection.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use selvedge_comm_local::{JoinError, PeerId, PutOutcome, RingEvent, RingPeers};

use crate::sync::lock;
use crate::wire::{RingAddress, random};

/// Messages taken from one ring at once, before other work has its turn.
const AT_ONCE: usize = 64;

/// Why the other end's memory can't be reached.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// This end can't listen.
    #[error(transparent)]
    Local(#[from] JoinError),
    /// The other end does not listen.
    #[error(
        "net(shm) does not reach the other end's memory ({0}); both must run on one machine, in one network namespace, as one user: use net between machines"
    )]
    Remote(#[source] std::io::Error),
}

/// The state of the ring out of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingStatus {
    /// The ring is being made.
    Calling,
    /// The ring is ready.
    Ready,
    /// The other process is gone, or has corrupted or closed the shared memory.
    Disconnected,
}

/// An endpoint's rings; nothing is allocated before the first connection needs one.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    held: Mutex<Option<RingState>>,
    /// Whether there are any rings.
    some: AtomicBool,
    /// Readable when another process wakes this one.
    wake_event: OnceLock<OwnedFd>,
}

#[derive(Debug)]
struct RingState {
    links: RingPeers,
    name: u128,
    /// Connections by the ring that they send into.
    outs: HashMap<PeerId, (u32, RingStatus)>,
    /// Connections by the ring that they receive from.
    ins: HashMap<PeerId, u32>,
    /// Connections by the token with which the peer will request that ring.
    tokens: HashMap<String, u32>,
}

impl RingState {
    /// The connection that a ring belongs to.
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

    /// Calls `run` if there are rings.
    fn with_rings<T>(&self, run: impl FnOnce(&mut RingState) -> T) -> Option<T> {
        if !self.some.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.held).as_mut().map(run)
    }

    /// The address at which a connection's other end may make its ring to this one, once.
    pub(crate) fn ring_address(&self, id: u32) -> Result<RingAddress, RingError> {
        self.with(|held| {
            let token = random();
            held.links.admit_token(&spelt(token));
            held.tokens.insert(spelt(token), id);
            RingAddress { name: held.name, token }
        })
    }

    /// Starts to make a connection's ring to the other end; [`Rings::poll_changes`] reports when it
    /// is ready.
    pub(crate) fn call(&self, id: u32, ring_address: RingAddress) -> Result<PeerId, RingError> {
        let called = self.with(|held| {
            let called =
                held.links.connect(&address(ring_address.name), &spelt(ring_address.token))?;
            held.outs.insert(called, (id, RingStatus::Calling));
            Ok(called)
        })?;
        called.map_err(RingError::Remote)
    }

    /// Stops sending and receiving for a connection.
    pub(crate) fn close(&self, id: u32) {
        self.with_rings(|held| {
            let RingState { links, outs, ins, tokens, .. } = held;
            let out = outs.extract_if(|_, (of, _)| *of == id).map(|(ring, _)| ring);
            let both = out.chain(ins.extract_if(|_, of| *of == id).map(|(ring, _)| ring));
            both.for_each(|ring| links.close(ring));
            tokens.retain(|_, of| *of != id);
        });
    }

    /// Connections whose outgoing rings changed since the last call; one atomic load if none has.
    pub(crate) fn poll_changes(&self) -> Vec<(u32, RingStatus)> {
        let changes = self.with_rings(|held| {
            let mut changes = Vec::new();
            for news in held.links.news() {
                let (ring, way) = match news {
                    RingEvent::Ready(ring) => (ring, RingStatus::Ready),
                    RingEvent::Gone(ring) => (ring, RingStatus::Disconnected),
                };
                // Either of the two rings shows that the other process is gone.
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

    /// Whether an outgoing ring is known to be gone.
    pub(crate) fn is_gone(&self, ring: PeerId) -> bool {
        self.with_rings(|held| {
            held.outs.get(&ring).is_none_or(|(_, way)| *way == RingStatus::Disconnected)
        }) == Some(true)
    }

    /// Whether no received datagram of a connection waits to be taken.
    pub(crate) fn is_drained(&self, id: u32) -> bool {
        let drained = self.with_rings(|held| {
            let RingState { links, ins, tokens, .. } = held;
            !ins.iter().any(|(ring, of)| *of == id && links.has_unread_of(*ring))
                && !tokens.iter().any(|(token, of)| *of == id && links.has_by(token))
        });
        drained.unwrap_or(true)
    }

    /// Passes received datagrams to `take`, with their connections; returns their number. Each
    /// datagram is read at most once.
    pub(crate) fn take(&self, mut take: impl FnMut(u32, &[u8])) -> usize {
        let taken = self.with_rings(|held| {
            for count in 0..AT_ONCE {
                let Some(at) = held.links.take() else { return count };
                let ring = held.links.message(at).0;
                match held.connection_of(ring) {
                    Some(id) => take(id, held.links.message(at).1),
                    // Datagrams of a connection that was closed here.
                    None => held.links.close(ring),
                }
            }
            AT_ONCE
        });
        taken.unwrap_or(0)
    }

    /// The descriptor that is readable when something arrives; `None` without rings. The flag is
    /// false if there is already something to take.
    pub(crate) fn prepare_wait(&self) -> Option<(&OwnedFd, bool)> {
        let quiet = self.with_rings(|held| held.links.prepare_wait())?;
        Some((self.wake_event.get()?, quiet))
    }

    /// Puts datagrams into a ring, in order, and wakes its reader; returns how many went in. The
    /// others have no room, or the ring is still being made. `None` if the ring no longer exists.
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
