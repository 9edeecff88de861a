//! Receivers that ask for a stream: by a token of that stream, for their own address alone, and for a while.
//!
//! The address is the connection's; a request names a port. So no holder of a token can aim a stream at another host.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use selvedge_control_config::view::AskError;
use selvedge_units::Duration;
use serde::Deserialize;
use serde_json::json;
use subtle::ConstantTimeEq;

use crate::access::bearer_of;
use crate::app::App;
use crate::knobs;
use crate::places::Slot;
use crate::problem::{Problem, json_response};

/// How long a receiver gets frames without asking again: at most, and where it does not say.
const LASTS_MAX: u64 = 300;
const LASTS: u64 = 30;
const DELAY_MAX: Duration = Duration::from_secs(600);
const REMEDY: &str =
    "send an object such as {\"port\": 5004, \"delay\": \"100 ms\", \"for_s\": 30}";

/// What a receiver asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Its port.
    port: u16,
    delay: Option<String>,
    for_s: Option<u64>,
}

pub(crate) async fn ask(
    State(app): State<Arc<App>>,
    Extension(slot): Extension<Arc<Slot>>,
    Path(stream): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    check_token(&app, &stream, &headers).await?;
    let wanted: Wanted = serde_json::from_slice(&body)
        .map_err(|error| Problem::bad("bad-json", "", error.to_string(), REMEDY))?;
    let bad = |field, text: String| Problem::bad("bad-value", field, text, REMEDY);
    if wanted.port == 0 {
        return Err(bad("port", "0 is no port".to_owned()));
    }
    let lasts = wanted.for_s.unwrap_or(LASTS);
    if !(1..=LASTS_MAX).contains(&lasts) {
        return Err(bad("for_s", format!("{lasts} is out of range, 1 to {LASTS_MAX} s")));
    }
    let delay = wanted.delay.map(|delay| {
        let parsed = delay.parse::<Duration>().ok();
        let delay = knobs::shorten(&delay);
        parsed
            .filter(|parsed| (Duration::from_millis(1)..=DELAY_MAX).contains(parsed))
            .ok_or_else(|| bad("delay", format!("\"{delay}\" is no time from 1 ms to 600 s")))
    });
    let (delay, lasts) = (delay.transpose()?, Duration::from_secs(lasts));
    let to = SocketAddr::new(slot.address, wanted.port);
    let view = Arc::clone(&app.view);
    let asked = tokio::task::spawn_blocking(move || view.ask(&stream, to, delay, lasts)).await;
    let asked = asked.unwrap_or_else(|error| Err(AskError::Refused(error.to_string())));
    asked.map(|granted| json_response(StatusCode::OK, json!(granted).to_string())).map_err(refused)
}

pub(crate) async fn leave(
    State(app): State<Arc<App>>,
    Extension(slot): Extension<Arc<Slot>>,
    Path((stream, port)): Path<(String, u16)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    check_token(&app, &stream, &headers).await?;
    let (view, to) = (Arc::clone(&app.view), SocketAddr::new(slot.address, port));
    let left = tokio::task::spawn_blocking(move || view.leave(&stream, to)).await;
    if left.unwrap_or(false) {
        return Ok(json_response(StatusCode::OK, json!({ "left": to.to_string() }).to_string()));
    }
    let text = format!("{to} has not asked for it, or too long ago");
    Err(Problem::new(StatusCode::NOT_FOUND, "unknown-receiver", text, "ask from the same address"))
}

/// Whether the request has the token of this stream's receivers.
async fn check_token(app: &App, stream: &str, headers: &HeaderMap) -> Result<(), Problem> {
    // A reload may hold the file for as long as its sources take to open.
    let (view, name) = (Arc::clone(&app.view), stream.to_owned());
    let token = tokio::task::spawn_blocking(move || view.receivers_token(&name)).await;
    let token = token.ok().flatten();
    let token = token.ok_or_else(|| refused(AskError::NoStream(knobs::shorten(stream))))?;
    let given = headers.get(header::AUTHORIZATION).and_then(|value| bearer_of(value.as_bytes()));
    if given.is_some_and(|given| bool::from(given.ct_eq(token.as_str().as_bytes()))) {
        return Ok(());
    }
    let message = "receivers of this stream need its token, and none or a wrong one came";
    let remedy = "send Authorization: Bearer TOKEN";
    Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message, remedy).at("Authorization"))
}

fn refused(error: AskError) -> Problem {
    let message = error.to_string();
    match error {
        AskError::NoStream(_) => {
            let remedy = "give it receivers = { token = ... } in the node file";
            Problem::new(StatusCode::NOT_FOUND, "unknown-stream", message, remedy).at("stream")
        }
        AskError::TooMany(_) => {
            let remedy = "ask again later";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-receivers", message, remedy)
        }
        AskError::Refused(_) => {
            Problem::new(StatusCode::CONFLICT, "refused", message, "see what the message names")
        }
    }
}
