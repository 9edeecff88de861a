//! The endpoint's handshakes: the pure [`Handshakes`] behind a lock, and who waits for their outcome.
//!
//! `hellos.rs` drives them and does what follows.

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

/// What is kept of a connection that another host makes, until it has shown that it has the keys.
#[derive(Debug)]
pub(super) struct HalfOpen {
    pub(super) composition: Composition,
    pub(super) streams: [StreamId; 2],
    pub(super) ring: Option<PeerId>,
    pub(super) network: Duration,
}

/// What came for a connection that this host makes.
#[derive(Debug)]
pub(super) enum CallNews {
    /// The way is so long, there and back.
    Reached(Duration),
    /// The other host agrees.
    Welcomed(Vec<u8>, Box<Session>),
    /// It does not.
    Refused(Vec<u8>),
    /// It does not answer.
    Silent,
}

#[derive(Debug, Default)]
pub(super) struct PendingCall {
    pub(super) news: Vec<CallNews>,
    pub(super) waker: Option<Waker>,
}

/// The handshakes, and who waits, by connection.
#[derive(Debug)]
pub(super) struct Handshaking(pub(super) Mutex<(Handshakes<HalfOpen>, HashMap<u32, PendingCall>)>);

impl Handshaking {
    pub(super) fn new(options: &Options) -> Self {
        let mut handshakes = Handshakes::new(options.identity.clone(), &wire::seed());
        handshakes.allow(options.peers.clone());
        Self(Mutex::new((handshakes, HashMap::new())))
    }

    /// Nobody will look any more: those that wait are given up.
    pub(super) fn end(&self) {
        let over: Vec<PendingCall> = lock(&self.0).1.drain().map(|(_, caller)| caller).collect();
        over.into_iter().filter_map(|caller| caller.waker).for_each(Waker::wake);
    }

    /// Whether nobody waits, here or for this end's word.
    pub(super) fn is_empty(&self) -> bool {
        let state = lock(&self.0);
        state.1.is_empty() && state.0.is_settled()
    }

    /// Somebody waits for this connection.
    pub(super) fn begin(&self, id: u32) {
        lock(&self.0).1.insert(id, PendingCall::default());
    }

    /// Nobody waits for it any more.
    pub(super) fn remove(&self, id: u32) {
        let mut state = lock(&self.0);
        state.0.abandon(id);
        state.1.remove(&id);
    }

    /// What has come for a connection, whose task is woken for what comes next; `None` if nobody
    /// will look any more.
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
