//! Data-parallel work on one large message: a master, whose message it is, and slaves that work on
//! other chunks of it at the same time. Nothing is copied: each has a part of the message in place.

use core::fmt;

/// A chunk of a message, and what becomes of it.
#[derive(Debug)]
pub struct Chunk<'m> {
    /// The bytes, changed in place.
    pub chunk: &'m mut [u8],
    /// What authenticates them: made on the way down, checked on the way up.
    pub tag: [u8; 16],
    /// Whether they are as they were sent.
    pub intact: bool,
}

/// What is done with a part, by its index.
pub type Task<'a> = &'a (dyn Fn(usize, &mut Chunk<'_>) + Sync);

/// Slaves. The master waits for all parts, so messages leave in the order in which they came.
pub trait WorkerPool: Send + Sync + fmt::Debug {
    /// Does the task once with each part, on several threads, the caller's among them; returns
    /// when all is done.
    fn each(&self, parts: &mut [Chunk<'_>], task: Task<'_>);
}
