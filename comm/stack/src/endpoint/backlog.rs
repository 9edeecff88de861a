//! Connections that other hosts made and the application has not accepted yet, and the threads and
//! tasks that wait for one.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use selvedge_units::Duration;

use super::open::Opened;
use crate::sync::lock;

/// The largest number of connections that wait.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Backlog {
    pending: Mutex<Pending>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Pending {
    /// No caller can accept any more.
    closed: bool,
    connections: VecDeque<Opened>,
    wakers: Vec<Waker>,
}

impl Backlog {
    pub(super) fn is_full(&self) -> bool {
        lock(&self.pending).connections.len() >= MOST
    }

    /// Adds a connection; returns it if there are too many.
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

    /// The oldest connection; waits at most `patience`.
    pub(super) fn pop(&self, patience: Duration) -> Option<Opened> {
        let until = Instant::now().checked_add(patience.into());
        let mut held = lock(&self.pending);
        loop {
            if let Some(connection) = held.connections.pop_front() {
                return Some(connection);
            }
            // A wait without a limit is checked again after an hour.
            let end = until.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600).into());
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            held = self.arrived.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The oldest connection, for a task.
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

    /// Accepts no more, and returns all waiting connections, so that the caller closes them.
    pub(super) fn close(&self) -> Vec<Opened> {
        let mut held = lock(&self.pending);
        held.closed = true;
        held.connections.drain(..).collect()
    }
}
