//! How many threads may call the modules of a connection at once, and how shared state is kept.
//!
//! Modules are written once, for any [`Concurrency`]. One thread, such as a simulation's, needs no
//! locks: [`SingleThreaded`]. Elements on several threads supply their own (`selvedge-comm-stack`).

use core::cell::{Cell, RefCell};
use core::fmt;

/// How modules keep their state, by the number of threads that call them at once.
pub trait Concurrency: fmt::Debug + 'static {
    /// State that one call at a time may change.
    type State<T: fmt::Debug + Send + 'static>: State<T> + fmt::Debug;
    /// A number that any call may change.
    type Counter: Counter;
}

/// State that one call at a time may change.
pub trait State<T> {
    /// State with this initial value.
    fn new(value: T) -> Self;

    /// Changes or reads the state. `change` must be short, and must not call this again.
    fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R;
}

/// A number; each operation is atomic, and orders no other memory access.
pub trait Counter: fmt::Debug {
    /// A counter with this initial value.
    fn new(value: u64) -> Self;

    /// Returns the value.
    fn load(&self) -> u64;

    /// Sets the value.
    fn store(&self, value: u64);

    /// Adds, wrapping around; returns the previous value.
    fn add(&self, more: u64) -> u64;

    /// Sets the value; returns the previous one.
    fn swap(&self, value: u64) -> u64;

    /// Sets the value if the new one is less.
    fn lower(&self, value: u64);

    /// Sets the value if the new one is more.
    fn raise(&self, value: u64);
}

/// A single thread calls all modules of a connection.
#[derive(Clone, Copy, Debug)]
pub struct SingleThreaded;

impl Concurrency for SingleThreaded {
    type State<T: fmt::Debug + Send + 'static> = RefCell<T>;
    type Counter = Cell<u64>;
}

impl<T> State<T> for RefCell<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.borrow_mut())
    }
}

impl Counter for Cell<u64> {
    fn new(value: u64) -> Self {
        Self::new(value)
    }

    fn load(&self) -> u64 {
        self.get()
    }

    fn store(&self, value: u64) {
        self.set(value);
    }

    fn add(&self, more: u64) -> u64 {
        self.replace(self.get().wrapping_add(more))
    }

    fn swap(&self, value: u64) -> u64 {
        self.replace(value)
    }

    fn lower(&self, value: u64) {
        self.set(self.get().min(value));
    }

    fn raise(&self, value: u64) {
        self.set(self.get().max(value));
    }
}
