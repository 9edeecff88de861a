//! Binds, then serves on a thread of its own until it is stopped or dropped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use selvedge_control_config::view::NodeView;
use selvedge_units::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::access::{AccessGate, AdmittedRequest};
use crate::app::{App, Limits, stopped};
use crate::problem::Problem;
use crate::publish::{publish, record};
use crate::{api, assets, connection, socket};

/// Bytes the kernel may hold for one client: what is in flight to a slow one, and how stale it is.
const SEND_BUFFER: u32 = 256 * 1024;
/// How long open requests may take to end once the server is to stop.
const GRACE: Duration = Duration::from_secs(1);

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
    /// Others could reach it, and nothing would keep them out.
    #[error(
        "listening on {0} lets other machines in; set [node] token, or listen on a loopback \
         address such as 127.0.0.1:7700"
    )]
    TokenRequired(SocketAddr),
    /// The token is too easy, or no header can carry it.
    #[error(
        "the token can't be used: {0}; set [node] token to 8 or more printable ASCII characters"
    )]
    BadToken(&'static str),
    /// The system refused a socket or a thread.
    #[error("cannot start the web server on {0}: {1}")]
    System(SocketAddr, #[source] io::Error),
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `listen` and serves `view` there, with the default [`Limits`]. Once this
    /// returns, clients can connect. If `token` is set, every client must bring it.
    ///
    /// # Errors
    /// [`ServerError`]: the port is taken, or `listen` is not a loopback address and there is no
    /// `token`, ...; nothing runs then.
    pub fn start(
        view: Arc<dyn NodeView>,
        listen: SocketAddr,
        token: Option<String>,
    ) -> Result<Self, ServerError> {
        Self::start_with(view, listen, token, Limits::default())
    }

    /// As [`start`](Self::start), with other limits.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        view: Arc<dyn NodeView>,
        listen: SocketAddr,
        token: Option<String>,
        limits: Limits,
    ) -> Result<Self, ServerError> {
        check_token(listen, token.as_deref())?;
        let system = |error| ServerError::System(listen, error);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
        let listener = runtime.block_on(async { bind(listen) }).map_err(|e| explain(listen, e))?;
        let address = listener.local_addr().map_err(system)?;

        let (stop, stopping) = watch::channel(false);
        let app = Arc::new(App {
            view,
            gate: AccessGate::new(address, token),
            limits,
            history: Arc::default(),
            published: watch::Sender::default(),
            sockets: Arc::new(Semaphore::new(limits.sockets)),
            stopping,
        });
        let serve = move || runtime_loop(&runtime, listener, app);
        let thread =
            std::thread::Builder::new().name("selvedge-web".into()).spawn(serve).map_err(system)?;
        tracing::info!(%address, "page, API and metrics");
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens: the port that was chosen, if it was to be any.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, lets requests end, closes WebSockets, and returns within about a second.
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

fn check_token(listen: SocketAddr, token: Option<&str>) -> Result<(), ServerError> {
    match token {
        None if listen.ip().is_loopback() => Ok(()),
        None => Err(ServerError::TokenRequired(listen)),
        Some(token) if token.len() < 8 => Err(ServerError::BadToken("it is too short")),
        Some(token) if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(ServerError::BadToken("it holds a space or another character outside of ASCII"))
        }
        Some(_) => Ok(()),
    }
}

fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Old connections of the last run may linger for minutes.
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(listen)?;
    socket.listen(128)
}

fn explain(listen: SocketAddr, error: io::Error) -> ServerError {
    match error.kind() {
        io::ErrorKind::AddrInUse => ServerError::InUse(listen),
        io::ErrorKind::PermissionDenied => ServerError::Denied(listen),
        io::ErrorKind::AddrNotAvailable => ServerError::NoSuchAddress(listen),
        _ => ServerError::System(listen, error),
    }
}

fn runtime_loop(runtime: &Runtime, listener: TcpListener, app: Arc<App>) {
    let slots = Arc::new(Semaphore::new(app.limits.connections));
    let all = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    runtime.block_on(async {
        tokio::spawn(publish(
            Arc::clone(&app.view),
            app.limits.snapshot_every,
            Arc::clone(&app.history),
            app.published.clone(),
        ));
        tokio::spawn(record(Arc::clone(&app.view), Arc::clone(&app.history)));
        let mut stopping = app.stopping.clone();
        tokio::select! {
            () = accept(listener, &app, &slots) => {}
            () = stopped(&mut stopping) => {}
        }
        // Whoever ends gives its permit back; those that don't end in time are dropped.
        let ended = async {
            let _slots = slots.acquire_many(all(app.limits.connections)).await;
            let _sockets = app.sockets.acquire_many(all(app.limits.sockets)).await;
        };
        let _ = timeout(GRACE.into(), ended).await;
    });
}

async fn accept(listener: TcpListener, app: &Arc<App>, slots: &Arc<Semaphore>) {
    let router = router(Arc::clone(app));
    loop {
        let Ok(slot) = Arc::clone(slots).acquire_owned().await else { return };
        let tcp = match listener.accept().await {
            Ok((tcp, _)) => tcp,
            Err(error) => {
                // Out of file descriptors, mostly: give others time to close theirs.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(100).into()).await;
                continue;
            }
        };
        let (router, limits) = (router.clone(), app.limits);
        let stopping = app.stopping.clone();
        tokio::spawn(async move {
            connection::serve(tcp, router, limits.request, limits.stall, stopping).await;
            drop(slot);
        });
    }
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/api/v1/node", get(api::node))
        .route("/api/v1/channels", get(api::channels))
        .route("/api/v1/stacks", get(api::stacks))
        .route("/api/v1/history", get(api::history))
        .route("/api/v1/streams/{name}", get(api::stream).patch(api::patch_stream))
        .route("/api/v1/links/{name}", get(api::link).patch(api::patch_link))
        .route("/api/v1/events", get(api::events))
        .route("/api/v1/reload", post(api::reload))
        .route("/api/v1/save", post(api::save))
        .route("/metrics", get(api::metrics))
        .route("/ws", get(socket::upgrade))
        .fallback(file)
        .method_not_allowed_fallback(api::no_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), enter))
        .with_state(app)
}

async fn file(request: Request) -> Response {
    let served = assets::serve(request.uri(), request.headers());
    match (served, request.method().as_str()) {
        (Some(file), "GET" | "HEAD") => file,
        (Some(_), _) => ([(header::ALLOW, "GET, HEAD")], api::no_method().await).into_response(),
        (None, _) => api::no_route().await.into_response(),
    }
}

/// Around every request: the gate, the time limit, the fixed headers.
async fn enter(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let mut response = match app.gate.admit(&head) {
        Ok(admitted) => {
            let request = Request::from_parts(head, body);
            let mut response = match timeout(app.limits.request.into(), next.run(request)).await {
                Ok(response) => response,
                Err(_) => too_slow().into_response(),
            };
            if let AdmittedRequest::WithCookie(cookie) = admitted
                && let Ok(cookie) = HeaderValue::from_str(&cookie)
            {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            response
        }
        Err(problem) if problem.status == StatusCode::UNAUTHORIZED => {
            let mut response = match head.uri.path() {
                "/" => assets::token_page(),
                _ => problem.into_response(),
            };
            let scheme = HeaderValue::from_static("Bearer realm=\"selvedge\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
            response
        }
        Err(problem) => problem.into_response(),
    };
    assets::guard(response.headers_mut());
    response
}

fn too_slow() -> Problem {
    let message = "the request took too long to arrive";
    Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", message, "send it at once")
}
