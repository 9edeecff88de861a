//! One TCP connection: HTTP/1, over TLS where the node has it, over a stream whose stalled writes end
//! it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use selvedge_units::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::app::{Limits, stopped};
use crate::places::Slot;

/// The largest head of a request, in bytes.
const HEAD_MAX: usize = 16 * 1024;
/// The first byte of a TLS handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// The state that serves all connections.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) router: Router,
    /// With TLS: its acceptor, and the router that answers plain HTTP.
    pub(crate) tls: Option<(TlsAcceptor, Router)>,
    pub(crate) limits: Limits,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Serving {
    /// Serves one connection until the client leaves, stalls, is silent, loses its slot, or the
    /// server stops.
    pub(crate) async fn serve(mut self, tcp: TcpStream, slot: Arc<Slot>) {
        let mut stopping = self.stopping.clone();
        let stopped = async {
            stopped(&mut stopping).await;
            // A complete request is still answered.
            if !slot.is_waiting() {
                std::future::pending::<()>().await;
            }
        };
        let until = Instant::now() + self.limits.header.to_std();
        // Pictures and replies are small and needed at once.
        let _ = tcp.set_nodelay(true);
        tokio::select! {
            () = stopped => {}
            () = slot.lost() => tracing::debug!("a connection made room for another"),
            () = self.converse(tcp, &slot, until) => {}
        }
    }

    /// A request's head must arrive by `until`.
    async fn converse(&mut self, tcp: TcpStream, slot: &Arc<Slot>, until: Instant) {
        let Some((tls, elsewhere)) = self.tls.take() else {
            let io = StallGuard::new(tcp, self.limits.stall, Arc::clone(slot), false);
            return self.speak(io, slot, until).await;
        };
        let mut first = [0];
        if !matches!(timeout_at(until, tcp.peek(&mut first)).await, Ok(Ok(1))) {
            return;
        }
        let is_tls = first == [HANDSHAKE];
        let io = StallGuard::new(tcp, self.limits.stall, Arc::clone(slot), is_tls);
        if !is_tls {
            self.router = elsewhere;
            return self.speak(io, slot, until).await;
        }
        match timeout_at(until, tls.accept(io)).await {
            Ok(Ok(io)) => {
                slot.begins();
                self.speak(io, slot, until).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
            Err(_) => {}
        }
    }

    async fn speak<S>(&mut self, io: S, slot: &Arc<Slot>, until: Instant)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(|mut request: Request<Incoming>| {
            let slot = Arc::clone(slot);
            request.extensions_mut().insert(Arc::clone(&slot));
            let answer = router.call(request.map(Body::new));
            async move {
                let answer = answer.await;
                // A client that switches to WebSocket keeps its slot.
                if !answer.as_ref().is_ok_and(|a| a.status() == StatusCode::SWITCHING_PROTOCOLS) {
                    slot.answered();
                }
                answer
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(until.saturating_duration_since(Instant::now()))
            .max_buf_size(HEAD_MAX)
            .serve_connection(TokioIo::new(io), service)
            .with_upgrades();
        tokio::pin!(connection);
        let served = tokio::select! {
            served = &mut connection => served,
            () = stopped(&mut self.stopping) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "connection ended");
        }
    }
}

/// A TCP stream that fails once a write has made no progress for `patience`, so that the memory of a
/// client that stops reading is released.
struct StallGuard {
    tcp: TcpStream,
    patience: Duration,
    deadline: Pin<Box<Sleep>>,
    waiting: bool,
    /// Whether the slot knows that the request has begun, or learns it elsewhere: a TLS handshake is no request.
    begun: bool,
    /// Kept for as long as the connection lasts, under any protocol.
    slot: Arc<Slot>,
}

impl StallGuard {
    fn new(tcp: TcpStream, patience: Duration, slot: Arc<Slot>, begun: bool) -> Self {
        let deadline = Box::pin(sleep_until(Instant::now() + patience.to_std()));
        Self { tcp, patience, deadline, waiting: false, begun, slot }
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
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.tcp).poll_read(context, buffer);
        if !self.begun && buffer.filled().len() > before {
            self.begun = true;
            self.slot.begins();
        }
        // The kernel has the whole response.
        if read.is_pending() && !self.waiting {
            self.slot.waits_if_answered();
        }
        read
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
