//! The routes, and the layers around every request: the gate, the limits, the fixed headers.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use selvedge_units::Instant;
use tokio::time::timeout;

use crate::access::AdmittedRequest;
use crate::app::App;
use crate::places::Slot;
use crate::problem::Problem;
use crate::{api, assets, receivers, socket};

/// The largest body of a request, in bytes.
const BODY_MAX: usize = 4096;

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/api/v1/node", get(api::node))
        .route("/api/v1/channels", get(api::channels))
        .route("/api/v1/stacks", get(api::stacks))
        .route("/api/v1/history", get(api::history))
        .route("/api/v1/streams/{name}", get(api::stream).patch(api::patch_stream))
        .route("/api/v1/streams/{name}/streamlet", get(api::streamlet))
        .route("/api/v1/streams/{name}/receivers", post(receivers::ask))
        .route("/api/v1/streams/{name}/receivers/{port}", delete(receivers::leave))
        .route("/api/v1/links/{name}", get(api::link).patch(api::patch_link))
        .route("/api/v1/events", get(api::events))
        .route("/api/v1/reload", post(api::reload))
        .route("/api/v1/save", post(api::save))
        .route("/metrics", get(api::metrics))
        .route("/ws", get(socket::upgrade))
        .route("/watch/ws", get(socket::upgrade_to_watch))
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

/// Around every request.
async fn enter(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let now = Instant(0) + app.began.elapsed().into();
    let mut response = match app.gate.admit(&head, now) {
        Ok(admitted) => {
            let AdmittedRequest { role, cookie } = admitted;
            let mut request = Request::from_parts(head, body);
            request.extensions_mut().insert(role);
            let mut response = match timeout(app.limits.request.into(), answer(request, next)).await
            {
                Ok(response) => response,
                Err(_) => too_slow().into_response(),
            };
            if let Some(Ok(cookie)) = cookie.map(HeaderValue::try_from) {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            response
        }
        Err(problem) if problem.status == StatusCode::UNAUTHORIZED => {
            let mut response = match head.uri.path() {
                "/" | "/watch" => assets::token_page(),
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

/// Waits for the complete request, during which another client may take its place, then for the answer.
async fn answer(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_MAX).await else {
        let message = format!("the body is cut off or longer than {BODY_MAX} bytes");
        let (status, remedy) = (StatusCode::PAYLOAD_TOO_LARGE, "send one small object");
        return Problem::new(status, "bad-body", message, remedy).into_response();
    };
    if let Some(slot) = head.extensions.get::<Arc<Slot>>() {
        slot.asks();
    }
    next.run(Request::from_parts(head, Body::from(body))).await
}

fn too_slow() -> Problem {
    let message = "the request took too long to arrive";
    Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", message, "send it at once")
}

/// The answer of a node with TLS to clients that use plain HTTP.
pub(crate) fn to_tls(app: Arc<App>) -> Router {
    Router::new().fallback(async move |request: Request| {
        let mut response = match app.gate.host(request.headers()) {
            Ok(host) => {
                let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
                let there = format!("https://{host}{path}");
                let (status, message) = (StatusCode::TEMPORARY_REDIRECT, "this node speaks TLS");
                let remedy = format!("ask {there}");
                let problem = Problem::new(status, "tls-only", message, remedy);
                let mut response = problem.into_response();
                if let Ok(there) = HeaderValue::try_from(there) {
                    response.headers_mut().insert(header::LOCATION, there);
                }
                response
            }
            Err(problem) => problem.into_response(),
        };
        assets::guard(response.headers_mut());
        response
    })
}
