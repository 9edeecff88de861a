//! One TCP connection: HTTP/1 over a stream whose stalled writes end it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use selvedge_units::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::app::stopped;

/// The largest head of a request, in bytes.
const HEAD_MAX: usize = 16 * 1024;

/// Serves one connection until the client leaves, stalls, is silent, or the server stops.
pub(crate) async fn serve(
    tcp: TcpStream,
    router: Router,
    head_timeout: Duration,
    stall: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    // Pictures and replies are small and wanted now.
    let _ = tcp.set_nodelay(true);
    let io = TokioIo::new(StallGuard::new(tcp, stall));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout.to_std())
        .max_buf_size(HEAD_MAX)
        .serve_connection(io, TowerToHyperService::new(router))
        .with_upgrades();
    tokio::pin!(connection);
    let served = tokio::select! {
        served = &mut connection => served,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "connection ended");
    }
}

/// A TCP stream that fails once a write has made no progress for `patience`, so that a client
/// that stops reading gives back its memory.
struct StallGuard {
    tcp: TcpStream,
    patience: Duration,
    deadline: Pin<Box<Sleep>>,
    waiting: bool,
}

impl StallGuard {
    fn new(tcp: TcpStream, patience: Duration) -> Self {
        let deadline = Box::pin(sleep_until(Instant::now() + patience.to_std()));
        Self { tcp, patience, deadline, waiting: false }
    }

    fn check_progress<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        if !self.waiting {
            self.waiting = true;
            self.deadline.as_mut().reset(Instant::now() + self.patience.to_std());
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
    }
}

impl AsyncRead for StallGuard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(context, buffer)
    }
}

impl AsyncWrite for StallGuard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tcp).poll_write(context, bytes);
        self.check_progress(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tcp).poll_write_vectored(context, slices);
        self.check_progress(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
