//! A thread that wakes many sleepers, so that the sender of an event does not have to: a wake-up
//! costs as much as all other work together.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use selvedge_os::eventfd::EventFd;

/// The largest number of wake-ups that wait; each is for a sleeper, so there are hardly more than rings.
const CALLS_MAX: usize = 1024;

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    work_added: Condvar,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Arc<EventFd>>,
    /// Whether the thread waits.
    is_idle: bool,
    is_over: bool,
}

impl Shared {
    fn serve(&self) {
        let mut calls = Vec::new();
        loop {
            {
                let mut state = self.state.lock();
                while state.calls.is_empty() && !state.is_over {
                    state.is_idle = true;
                    // `ring` and the end both change the state under the lock and then notify.
                    self.work_added.wait(&mut state);
                }
                state.is_idle = false;
                if state.calls.is_empty() {
                    return;
                }
                std::mem::swap(&mut calls, &mut state.calls);
            }
            // These writes do not block.
            calls.drain(..).for_each(|event| event.ring());
        }
    }
}

/// Wakes on a thread that is started at the first use; requested wake-ups are done before it ends.
#[derive(Debug, Default)]
pub(crate) struct WakerThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl WakerThread {
    /// Wakes all of them, and empties the list; false if the caller has to do it.
    pub(crate) fn ring(&mut self, calls: &mut Vec<Arc<EventFd>>) -> bool {
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("local-ringer".to_owned());
            self.thread = thread.spawn(move || shared.serve()).ok();
        }
        if self.thread.is_none() {
            return false;
        }
        let is_idle = {
            let mut state = self.shared.state.lock();
            if state.calls.len() + calls.len() > CALLS_MAX {
                return false;
            }
            state.calls.append(calls);
            std::mem::take(&mut state.is_idle)
        };
        if is_idle {
            self.shared.work_added.notify_one();
        }
        true
    }
}

impl Drop for WakerThread {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.work_added.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
