//! Waking a sink's owner: a thread that waits, or a task that was polled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Instant;

/// A sink's wake-up signal.
#[derive(Debug, Default)]
pub(crate) struct SinkSignal {
    /// Whether a thread or task waits; a notifier checks this first.
    has_waiter: AtomicBool,
    state: Mutex<State>,
    raised: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_rung: bool,
    /// The signal will not be raised any more.
    is_over: bool,
    waker: Option<Waker>,
}

impl SinkSignal {
    pub(crate) fn has_waiter(&self) -> bool {
        self.has_waiter.load(Ordering::SeqCst)
    }

    /// Requests a wake-up from now on. The caller checks for events once more after this call.
    pub(crate) fn listen(&self, waker: Option<Waker>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.is_rung, state.waker) = (state.is_over, waker);
        self.has_waiter.store(true, Ordering::SeqCst);
    }

    /// Stops waiting.
    pub(crate) fn leave(&self) {
        self.has_waiter.store(false, Ordering::SeqCst);
    }

    /// Waits until the signal is raised or `until` has passed; returns true if it was raised.
    pub(crate) fn wait(&self, until: Option<Instant>) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.is_rung && !state.is_over {
            let Some(until) = until else {
                state = self.raised.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.raised.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.is_over
    }

    /// Ends all present and future waits.
    pub(crate) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.raise();
    }

    pub(crate) fn raise(&self) {
        self.has_waiter.store(false, Ordering::SeqCst);
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_rung = true;
            state.waker.take()
        };
        self.raised.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
