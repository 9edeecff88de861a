//! How a sink's owner is woken: a thread that waits, or a task that was polled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Instant;

/// A sink's bell.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// Whether somebody waits for it; who rings looks here first.
    is_awaited: AtomicBool,
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_rung: bool,
    /// Nobody rings any more.
    is_over: bool,
    waker: Option<Waker>,
}

impl Bell {
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::SeqCst)
    }

    /// From now on who has something rings. Look for it once more after this.
    pub(crate) fn listen(&self, waker: Option<Waker>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.is_rung, state.waker) = (state.is_over, waker);
        self.is_awaited.store(true, Ordering::SeqCst);
    }

    /// Nobody waits any more.
    pub(crate) fn leave(&self) {
        self.is_awaited.store(false, Ordering::SeqCst);
    }

    /// Waits until it rings or a time has come: true if it rang.
    pub(crate) fn wait(&self, until: Option<Instant>) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.is_rung && !state.is_over {
            let Some(until) = until else {
                state = self.rung.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.rung.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.is_over
    }

    /// From now on waiting is in vain.
    pub(crate) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.ring();
    }

    pub(crate) fn ring(&self) {
        self.is_awaited.store(false, Ordering::SeqCst);
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_rung = true;
            state.waker.take()
        };
        self.rung.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
