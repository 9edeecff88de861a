//! An eventfd: a thread or process waits for its descriptor, others ring it. Nothing here blocks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// An event that was rung or not; readable as long as it was.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new event.
    ///
    /// # Errors
    /// If no more file descriptors may be opened.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// The event of another process, which may have made it blocking: its owner could then stop this process.
    ///
    /// # Errors
    /// If the descriptor can't be set to non-blocking.
    pub fn of(file: OwnedFd) -> io::Result<Self> {
        rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self(file))
    }

    /// The same event with another descriptor.
    ///
    /// # Errors
    /// If no more file descriptors may be opened.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Rings: ends the wait of all threads that wait for it.
    pub fn ring(&self) {
        // Adding 1 fails only when the counter is full, that is, when it is readable anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Forgets that it was rung, so that it does not end the next wait.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
