//! The endpoint's handshakes: the pure [`Handshakes`] behind a lock, and the tasks that wait for an outcome.
//!
//! `hellos.rs` drives them and handles their events.

use std::collections::HashMap;
use std::sync::Mutex;
use std::task::Waker;

use selvedge_comm_local::PeerId;
use selvedge_data_net_secure::{Counts, Handshakes, Session};
use selvedge_data_stack::compose::Composition;
use selvedge_data_stack::model::StreamId;
use selvedge_units::Duration;

use super::options::Options;
use crate::sync::lock;
use crate::wire;

/// The state of a connection that another host makes, until that host has shown that it has the keys.
#[derive(Debug)]
pub(super) struct HalfOpen {
    pub(super) composition: Composition,
    pub(super) streams: [StreamId; 2],
    pub(super) ring: Option<PeerId>,
    pub(super) network: Duration,
}

/// An event for a connection that this host makes.
#[derive(Debug)]
pub(super) enum CallNews {
    /// A host answered the probe; the round-trip time.
    Reached(Duration),
    /// The other host agrees.
    Welcomed(Vec<u8>, Box<Session>),
    /// The other host refuses.
    Refused(Vec<u8>),
    /// The other host does not answer.
    Silent,
}

#[derive(Debug, Default)]
pub(super) struct PendingCall {
    pub(super) news: Vec<CallNews>,
    pub(super) waker: Option<Waker>,
}

/// The handshakes, and the tasks that wait, by connection.
#[derive(Debug)]
pub(super) struct Handshaking(pub(super) Mutex<(Handshakes<HalfOpen>, HashMap<u32, PendingCall>)>);

impl Handshaking {
    pub(super) fn new(options: &Options) -> Self {
        let mut handshakes = Handshakes::new(options.identity.clone(), &wire::seed());
        handshakes.allow(options.peers.clone());
        Self(Mutex::new((handshakes, HashMap::new())))
    }

    /// Gives up all waiting tasks, since the endpoint ends.
    pub(super) fn end(&self) {
        let over: Vec<PendingCall> = lock(&self.0).1.drain().map(|(_, caller)| caller).collect();
        over.into_iter().filter_map(|caller| caller.waker).for_each(Waker::wake);
    }

    /// Whether no task waits for an answer, and no peer for this end's.
    pub(super) fn is_empty(&self) -> bool {
        let state = lock(&self.0);
        state.1.is_empty() && state.0.is_settled()
    }

    /// Starts to wait for this connection.
    pub(super) fn begin(&self, id: u32) {
        lock(&self.0).1.insert(id, PendingCall::default());
    }

    /// Stops waiting for this connection.
    pub(super) fn remove(&self, id: u32) {
        let mut state = lock(&self.0);
        state.0.abandon(id);
        state.1.remove(&id);
    }

    /// The events that arrived for a connection, and wakes the caller's task at the next one;
    /// `None` once the endpoint has ended.
    pub(super) fn take(&self, id: u32, waker: &Waker) -> Option<Vec<CallNews>> {
        let mut state = lock(&self.0);
        let caller = state.1.get_mut(&id)?;
        caller.waker = Some(waker.clone());
        Some(std::mem::take(&mut caller.news))
    }

    pub(super) fn counts(&self) -> Counts {
        lock(&self.0).0.counts()
    }
}
