//! Threads that keep something going until their owner drops them, and the request to stop that they
//! check at each step and in their pauses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use selvedge_units::Duration;

/// A thread; dropped, it is requested to stop, and waited for.
#[derive(Debug)]
pub struct Keeper {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

/// The request to a thread to stop.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Keeper {
    /// Starts a thread of this name.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub fn start(name: String, work: impl FnOnce(&Stop) + Send + 'static) -> std::io::Result<Self> {
        let stop = Stop::default();
        let own = stop.clone();
        let thread = thread::Builder::new().name(name).spawn(move || work(&own))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Requests it to stop; `drop` waits for it.
    pub fn request_stop(&self) {
        self.stop.0.store(true, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.request_stop();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

impl Stop {
    /// Whether the thread is requested to stop.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The thread waits this long, unless requested to stop.
    pub fn pause(&self, wait: Duration) {
        let until = Instant::now() + wait.to_std();
        while !self.is_requested() && Instant::now() < until {
            thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
    }

    /// The same request for others that wait on the thread's behalf.
    #[must_use]
    pub const fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }
}
