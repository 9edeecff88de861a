//! The asynchronous form of the calls: futures that need no particular runtime.
//!
//! Whoever serves the connection wakes them: the endpoint's thread, an element's, or a thread that
//! sends. So they run under any executor, and [`block_on`] is one for a single thread.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use selvedge_data_stack::stack::SendError;

use super::buffer::Buffer;
use super::connection::Connection;
use super::what::What;
use super::{Endpoint, RecvError};
use crate::work::DATA;

/// A message on its way into a stack. Dropped before it is ready, nothing is sent.
#[derive(Debug)]
#[must_use = "nothing is sent unless it is polled"]
pub struct Sending<'a> {
    connection: &'a Connection,
    what: What<'a>,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.what.give_back(self.connection.plant.work().line.buffers());
    }
}

/// The next message of a connection.
#[derive(Debug)]
#[must_use = "nothing is received unless it is polled"]
pub struct Taking<'a>(&'a Connection);

/// The next connection that another host makes.
#[derive(Debug)]
#[must_use = "nothing is accepted unless it is polled"]
pub struct Accepting<'a>(&'a Endpoint);

impl Endpoint {
    /// [`Endpoint::accept`] for a task: ready when another host has made a connection.
    pub const fn accept_async(&self) -> Accepting<'_> {
        Accepting(self)
    }
}

impl Connection {
    /// [`Connection::send`] for a task: ready when the stack has the message. While the window is
    /// full it waits; put a time limit around it where it should not.
    pub const fn send_async<'a>(&'a self, bytes: &'a [u8]) -> Sending<'a> {
        Sending { connection: self, what: What::Bytes(bytes) }
    }

    /// [`Connection::post`] for a task.
    pub fn post_async(&self, buffer: Buffer) -> Sending<'_> {
        Sending { connection: self, what: What::Message(buffer.into_message()) }
    }

    /// [`Connection::take`] for a task: ready when there is a message, or will be none.
    pub const fn take_async(&self) -> Taking<'_> {
        Taking(self)
    }

    /// [`Connection::recv`] for a task. A message is never lost to a future that is dropped.
    ///
    /// # Errors
    /// As [`Connection::recv`], but never [`RecvError::Timeout`].
    pub async fn recv_async(&self, into: &mut Vec<u8>) -> Result<(), RecvError> {
        self.take_async().await?.take_into(into);
        Ok(())
    }
}

impl Future for Sending<'_> {
    type Output = Result<(), SendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, what } = &mut *self;
        let mut once = || connection.try_put(what, DATA);
        let refused = |outcome: &Result<(), SendError>| matches!(outcome, Err(SendError::Full));
        let outcome = once();
        if !refused(&outcome) {
            return Poll::Ready(outcome);
        }
        // Room that came since is seen now, or wakes us.
        connection.plant.work().wake_sender(context.waker());
        let outcome = once();
        if refused(&outcome) { Poll::Pending } else { Poll::Ready(outcome) }
    }
}

impl Future for Taking<'_> {
    type Output = Result<Buffer, RecvError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let once = || match self.0.try_take() {
            Err(RecvError::Timeout) => Poll::Pending,
            outcome => Poll::Ready(outcome),
        };
        let outcome = once();
        if outcome.is_ready() {
            return outcome;
        }
        self.0.plant.work().wake_receiver(context.waker());
        // What was sent and held back may be what the peer waits for.
        self.0.let_go();
        once()
    }
}

impl Future for Accepting<'_> {
    type Output = Connection;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Connection> {
        self.0.shared.backlog.poll(context)
    }
}

struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread until it is ready.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// Runs a future on this thread for at most so long; `None` if it was not ready by then, and it is
/// dropped.
pub fn block_on_for<F: Future>(future: F, patience: Duration) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    let begun = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let left = patience.checked_sub(begun.elapsed())?;
        thread::park_timeout(left);
    }
}
