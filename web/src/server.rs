//! Binds, then serves on a thread of its own until it is stopped or dropped.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ring::rand::{SecureRandom, SystemRandom};
use selvedge_control_config::view::NodeView;
use selvedge_control_config::{PageConfig, Tls};
use selvedge_units::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::access::AccessGate;
use crate::app::{App, Limits, stopped};
use crate::certificate::{self, CertificateError, Fingerprint, Identity};
use crate::connection::Serving;
use crate::places::{Places, Slot};
use crate::publish::{publish, record};
use crate::routes;
use crate::session::SessionKey;

/// Bytes that the kernel may hold for one client. They bound the data in flight to a slow one, and its
/// age.
const SEND_BUFFER: u32 = 256 * 1024;
/// How long open requests may take to end once the server must stop.
const GRACE: Duration = Duration::from_millis(300);
/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 4096;
/// The response to a client for which there is no place.
const REFUSED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\
    Content-Type: text/plain\r\nContent-Length: 64\r\n\r\n\
    this address has too many connections; close some and try again\n";

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another program has the port.
    #[error(
        "cannot listen on {0}: the port is in use; stop the program that has it, or set [node] \
         listen to another port"
    )]
    InUse(SocketAddr),
    /// Ports below 1024 need a privilege.
    #[error("cannot listen on {0}: not permitted; set [node] listen to a port from 1024 up")]
    Denied(SocketAddr),
    /// The address is not one of this machine.
    #[error(
        "cannot listen on {0}: not an address of this machine; set [node] listen to one, such \
         as 127.0.0.1:7700"
    )]
    NoSuchAddress(SocketAddr),
    /// Other machines could reach it, and no token would keep them out.
    #[error(
        "listening on {0} lets other machines in; set [node] token, or listen on a loopback \
         address such as 127.0.0.1:7700"
    )]
    TokenRequired(SocketAddr),
    /// No certificate can be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// No unforgeable cookie can be made.
    #[error("the system has no random numbers")]
    NoRandomness,
    /// The system refused a socket or a thread.
    #[error("cannot start the web server on {0}: {1}")]
    System(SocketAddr, #[source] io::Error),
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    page: PageConfig,
    fingerprint: Option<Fingerprint>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `view` as `page` configures it, with the default [`Limits`]. Once this returns, clients
    /// can connect. If `page` has tokens, every client must send one of them.
    ///
    /// # Errors
    /// [`ServerError`]: the port is taken, or `page.listen` is not a loopback address and there is no
    /// token, ...; then nothing runs.
    pub fn start(view: Arc<dyn NodeView>, page: PageConfig) -> Result<Self, ServerError> {
        Self::start_with(view, page, Limits::default())
    }

    /// As [`start`](Self::start), with other limits.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        view: Arc<dyn NodeView>,
        mut page: PageConfig,
        limits: Limits,
    ) -> Result<Self, ServerError> {
        let listen = page.listen;
        if page.token.is_none() && !listen.ip().is_loopback() {
            return Err(ServerError::TokenRequired(listen));
        }
        let identity = Identity::of(&page.tls)?;
        let fingerprint = identity.as_ref().map(|identity| identity.fingerprint);
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).map_err(|_| ServerError::NoRandomness)?;
        let system = |error| ServerError::System(listen, error);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
        let listener = runtime.block_on(async { bind(listen) }).map_err(|e| explain(listen, e))?;
        page.listen = listener.local_addr().map_err(system)?;

        let (stop, stopping) = watch::channel(false);
        let app = Arc::new(App {
            view,
            gate: AccessGate::new(&page, SessionKey::new(&secret)),
            began: std::time::Instant::now(),
            limits,
            history: Arc::default(),
            published: watch::Sender::default(),
            sockets: Arc::new(Semaphore::new(limits.sockets)),
            stopping: stopping.clone(),
        });
        let serving = Serving {
            router: routes::router(Arc::clone(&app)),
            tls: identity.map(|identity| {
                (TlsAcceptor::from(identity.config), routes::to_tls(Arc::clone(&app)))
            }),
            limits,
            stopping,
        };
        let per_address = page.connections_per_address.into();
        let serve = move || runtime_loop(&runtime, listener, &app, &serving, per_address);
        let thread =
            std::thread::Builder::new().name("selvedge-web".into()).spawn(serve).map_err(system)?;
        tracing::info!(address = %page.listen, "page, API and metrics");
        Ok(Self { page, fingerprint, stop, thread: Some(thread) })
    }

    /// Its address, with the actual port if any port was requested.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.page.listen
    }

    /// The address of the page, as a browser accepts it; with TLS, also the fingerprint, and where the
    /// certificate is kept.
    #[must_use]
    pub fn announcement(&self) -> String {
        let url = self.page.url(self.page.listen);
        let mut text = format!("page: {url}");
        if self.page.watch_token.is_some() {
            text += &format!("\nwatch: {url}watch?token=TOKEN with the node file's watch_token");
        }
        if let Some(fingerprint) = self.fingerprint {
            text += &format!("\ncertificate: SHA-256 {fingerprint}");
        }
        if let (Tls::Auto, Some(path)) = (&self.page.tls, certificate::kept_at()) {
            text += &format!("\ncertificate: kept in {}", path.display());
        }
        text
    }

    /// Stops accepting, lets requests end, closes WebSockets, and returns within half a second.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the web server's thread panicked");
        }
    }
}

fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Old connections of the last run may linger for minutes.
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(listen)?;
    socket.listen(BACKLOG)
}

fn explain(listen: SocketAddr, error: io::Error) -> ServerError {
    match error.kind() {
        io::ErrorKind::AddrInUse => ServerError::InUse(listen),
        io::ErrorKind::PermissionDenied => ServerError::Denied(listen),
        io::ErrorKind::AddrNotAvailable => ServerError::NoSuchAddress(listen),
        _ => ServerError::System(listen, error),
    }
}

fn runtime_loop(
    runtime: &Runtime,
    listener: TcpListener,
    app: &Arc<App>,
    serving: &Serving,
    per_address: usize,
) {
    runtime.block_on(async {
        tokio::spawn(publish(
            Arc::clone(&app.view),
            app.limits.snapshot_every,
            Arc::clone(&app.history),
            app.published.clone(),
        ));
        tokio::spawn(record(Arc::clone(&app.view), Arc::clone(&app.history)));
        let (alive, mut ended) = mpsc::channel(1);
        let mut stopping = app.stopping.clone();
        tokio::select! {
            () = accept(listener, serving, per_address, alive) => {}
            () = stopped(&mut stopping) => {}
        }
        // Each connection drops its end of the channel when it ends; those that don't end in time are
        // dropped.
        let _ = timeout(GRACE.into(), ended.recv()).await;
    });
}

async fn accept(
    listener: TcpListener,
    serving: &Serving,
    per_address: usize,
    alive: mpsc::Sender<()>,
) {
    let places = Places::new(serving.limits.connections, per_address);
    let places = Arc::new(Mutex::new(places));
    loop {
        // What has arrived is read while the next connection comes, long before its place can be taken.
        yield_now().await;
        let (tcp, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Mostly a lack of file descriptors: gives other connections time to close theirs.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(100).into()).await;
                continue;
            }
        };
        let Some(slot) = Slot::take(&places, from.ip(), alive.clone()) else {
            // A new connection has room for this text, or its client is gone.
            let _ = tcp.try_write(REFUSED);
            continue;
        };
        tokio::spawn(serving.clone().serve(tcp, Arc::new(slot)));
    }
}
