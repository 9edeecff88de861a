//! Data-parallel work on one large message: the master, which has the message, and worker threads that work
//! on other chunks of it at the same time. Nothing is copied: each changes a part of the message in place.

use core::fmt;

/// A chunk of a message, and the result.
#[derive(Debug)]
pub struct Chunk<'m> {
    /// The bytes, changed in place.
    pub chunk: &'m mut [u8],
    /// The authentication tag: made on the way down, checked on the way up.
    pub tag: [u8; 16],
    /// Whether the bytes are authentic.
    pub intact: bool,
}

/// The work on a part, by its index.
pub type Task<'a> = &'a (dyn Fn(usize, &mut Chunk<'_>) + Sync);

/// Worker threads. The master waits for all parts, so messages leave in the order in which they came.
pub trait WorkerPool: Send + Sync + fmt::Debug {
    /// Runs the task once for each part, on several threads, the caller's among them; returns when
    /// all is done.
    fn each(&self, parts: &mut [Chunk<'_>], task: Task<'_>);
}
