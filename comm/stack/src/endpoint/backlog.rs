//! Connections that other hosts made and nobody has accepted yet, and who waits for one: threads
//! and tasks.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use selvedge_units::Duration;

use super::open::Opened;
use crate::sync::lock;

/// Connections that wait, at most.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Backlog {
    pending: Mutex<Pending>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Pending {
    /// Nobody can accept any more.
    closed: bool,
    connections: VecDeque<Opened>,
    wakers: Vec<Waker>,
}

impl Backlog {
    pub(super) fn is_full(&self) -> bool {
        lock(&self.pending).connections.len() >= MOST
    }

    /// Adds one; gives it back if there are too many.
    pub(super) fn push(&self, connection: Opened) -> Result<(), Box<Opened>> {
        let mut held = lock(&self.pending);
        if held.closed || held.connections.len() >= MOST {
            return Err(Box::new(connection));
        }
        held.connections.push_back(connection);
        let wakers = std::mem::take(&mut held.wakers);
        drop(held);
        self.arrived.notify_one();
        wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// The first; waits for at most so long.
    pub(super) fn pop(&self, patience: Duration) -> Option<Opened> {
        let until = Instant::now().checked_add(patience.into());
        let mut held = lock(&self.pending);
        loop {
            if let Some(connection) = held.connections.pop_front() {
                return Some(connection);
            }
            // A wait without an end in sight is looked at again after an hour.
            let end = until.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600).into());
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            held = self.arrived.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The first, for a task.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Opened> {
        let mut held = lock(&self.pending);
        if let Some(connection) = held.connections.pop_front() {
            return Poll::Ready(connection);
        }
        if !held.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            held.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Takes no more, and gives all that wait, so that they are closed.
    pub(super) fn close(&self) -> Vec<Opened> {
        let mut held = lock(&self.pending);
        held.closed = true;
        held.connections.drain(..).collect()
    }
}
