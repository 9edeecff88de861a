//! Modules that several elements call at once: their state is behind locks, their counts are atomics.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use selvedge_data_stack::concurrency::{Concurrency, Counter, State};

/// Any number of threads may call a connection's modules.
#[derive(Clone, Copy, Debug)]
pub struct MultiThreaded;

/// State behind a lock.
#[derive(Debug)]
pub struct Locked<T>(Mutex<T>);

/// An atomic number.
#[derive(Debug)]
pub struct Atomic(AtomicU64);

impl Concurrency for MultiThreaded {
    type State<T: fmt::Debug + Send + 'static> = Locked<T>;
    type Counter = Atomic;
}

impl<T> State<T> for Locked<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// A module that panicked (which would be a bug) leaves its state as it was, and the other
    /// threads continue with it.
    #[inline]
    fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Counter for Atomic {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    #[inline]
    fn load(&self) -> u64 {
        self.0.load(Relaxed)
    }

    #[inline]
    fn store(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    #[inline]
    fn add(&self, more: u64) -> u64 {
        self.0.fetch_add(more, Relaxed)
    }

    #[inline]
    fn swap(&self, value: u64) -> u64 {
        self.0.swap(value, Relaxed)
    }

    #[inline]
    fn lower(&self, value: u64) {
        self.0.fetch_min(value, Relaxed);
    }

    #[inline]
    fn raise(&self, value: u64) {
        self.0.fetch_max(value, Relaxed);
    }
}
