//! Who may call the modules of a connection at once, and how the state that they share is kept.
//!
//! Modules are written once, for any [`Concurrency`]. One thread, such as a simulation's, needs no
//! locks: [`SingleThreaded`]. Elements on several threads bring theirs (`selvedge-comm-stack`).

use core::cell::{Cell, RefCell};
use core::fmt;

/// Who may call a connection's modules at once.
pub trait Concurrency: fmt::Debug + 'static {
    /// State that calls take turns to change.
    type State<T: fmt::Debug + Send + 'static>: State<T> + fmt::Debug;
    /// A number that any call may change.
    type Counter: Counter;
}

/// State that one call at a time changes.
pub trait State<T> {
    /// State that begins so.
    fn new(value: T) -> Self;

    /// Changes it, or looks at it. `change` is short, and does not come here again.
    fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R;
}

/// A number; each operation is one step, and orders nothing else.
pub trait Counter: fmt::Debug {
    /// A number that begins so.
    fn new(value: u64) -> Self;

    /// What it is.
    fn load(&self) -> u64;

    /// From now on it is this.
    fn store(&self, value: u64);

    /// Adds; returns what it was, and wraps around.
    fn add(&self, more: u64) -> u64;

    /// From now on it is this; returns what it was.
    fn swap(&self, value: u64) -> u64;

    /// It becomes this if this is less.
    fn lower(&self, value: u64);

    /// It becomes this if this is more.
    fn raise(&self, value: u64);
}

/// One thread calls all modules of a connection.
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
