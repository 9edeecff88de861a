//! The endpoint's connections behind a lock: the pure [`Endpoint`], and the threads and tasks that wait for it.
//!
//! `hellos.rs` handles its events, `receive.rs` passes datagrams to it.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use selvedge_comm_local::PeerId;
use selvedge_data_net_secure::Session;
use selvedge_data_stack::compose::Composition;
use selvedge_data_stack::endpoint::Endpoint;
use selvedge_data_stack::model::StreamId;
use selvedge_units::Duration;

use super::open::{ConnectionState, Opened};
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

/// All that the lock protects.
#[derive(Debug)]
pub(super) struct State {
    pub(super) endpoint: Endpoint<ConnectionState, HalfOpen, Opened>,
    /// The tasks that wait for an answer, by connection.
    pub(super) calls: HashMap<u32, PendingCall>,
    /// The tasks that wait for a connection to accept.
    accepting: Vec<Waker>,
}

/// The endpoint's connections.
#[derive(Debug)]
pub(super) struct Connections {
    state: Mutex<State>,
    /// A connection waits to be accepted.
    arrived: Condvar,
}

impl Connections {
    pub(super) fn new(options: &Options) -> Self {
        let mut endpoint = Endpoint::new(options.identity.clone(), &wire::seed(), options.silence);
        endpoint.handshakes().allow(options.peers.clone());
        let state = State { endpoint, calls: HashMap::new(), accepting: Vec::new() };
        Self { state: Mutex::new(state), arrived: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Gives up all waiting tasks, since the endpoint ends.
    pub(super) fn end_calls(&self) {
        let over: Vec<PendingCall> = self.lock().calls.drain().map(|(_, caller)| caller).collect();
        over.into_iter().filter_map(|caller| caller.waker).for_each(Waker::wake);
    }

    /// Whether there is no connection, no task waits for an answer, and no peer for this end's.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.calls.is_empty() && state.endpoint.is_settled()
    }

    /// Starts to wait for this connection.
    pub(super) fn begin_call(&self, id: u32) {
        self.lock().calls.insert(id, PendingCall::default());
    }

    /// Stops waiting for this connection.
    pub(super) fn end_call(&self, id: u32) {
        let mut state = self.lock();
        state.endpoint.handshakes().abandon(id);
        state.calls.remove(&id);
    }

    /// The events that arrived for a connection, and wakes the caller's task at the next one;
    /// `None` once the endpoint has ended.
    pub(super) fn take_news(&self, id: u32, waker: &Waker) -> Option<Vec<CallNews>> {
        let mut state = self.lock();
        let caller = state.calls.get_mut(&id)?;
        caller.waker = Some(waker.clone());
        Some(std::mem::take(&mut caller.news))
    }

    /// Makes a connection wait to be accepted; returns it if there are too many.
    pub(super) fn enqueue_unaccepted(&self, opened: Opened) -> Result<(), Box<Opened>> {
        let mut state = self.lock();
        state.endpoint.enqueue_unaccepted(opened).map_err(Box::new)?;
        let wakers = std::mem::take(&mut state.accepting);
        drop(state);
        self.arrived.notify_one();
        wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// The connection that has waited longest to be accepted; waits at most `patience` for one.
    pub(super) fn accept(&self, patience: Duration) -> Option<Opened> {
        let until = Instant::now().checked_add(patience.into());
        let mut state = self.lock();
        loop {
            if let Some(opened) = state.endpoint.accept() {
                return Some(opened);
            }
            // A wait without a limit is checked again after an hour.
            let end = until.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600).into());
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.arrived.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The same, for a task.
    pub(super) fn poll_accept(&self, context: &Context<'_>) -> Poll<Opened> {
        let mut state = self.lock();
        if let Some(opened) = state.endpoint.accept() {
            return Poll::Ready(opened);
        }
        if !state.accepting.iter().any(|waker| waker.will_wake(context.waker())) {
            state.accepting.push(context.waker().clone());
        }
        Poll::Pending
    }
}
