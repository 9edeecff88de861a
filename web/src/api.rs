//! The JSON API and `/metrics`: each request reads one snapshot or changes one knob.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use selvedge_control_config::view::{KnobError, ReloadError, StreamletQuery};
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::knobs::{self, Target};
use crate::metrics;
use crate::problem::{Problem, json_response};
use crate::publish::lock;

const STREAMLET: &str =
    "write ?number=17, ?to=192.0.2.7:5004 or ?ssrc=1000 of a stream with streamlets";

type Name = Result<Path<String>, PathRejection>;

pub(crate) async fn node(State(app): State<Arc<App>>) -> Response {
    json_of(&app.view.snapshot())
}

pub(crate) async fn channels(State(app): State<Arc<App>>) -> Response {
    let channels = app.view.channels();
    json_response(StatusCode::OK, channels.map_or_else(|| "[]".to_owned(), |all| all.to_string()))
}

pub(crate) async fn stacks(State(app): State<Arc<App>>) -> Response {
    let stacks = app.view.stacks();
    json_response(StatusCode::OK, stacks.map_or_else(|| "[]".to_owned(), |all| all.to_string()))
}

pub(crate) async fn history(State(app): State<Arc<App>>) -> Response {
    let history = lock(&app.history).json();
    json_response(StatusCode::OK, history.to_string())
}

pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let headers =
        [(header::CONTENT_TYPE, metrics::CONTENT_TYPE), (header::CACHE_CONTROL, "no-store")];
    (headers, metrics::render(&app.view.snapshot())).into_response()
}

pub(crate) async fn stream(State(app): State<Arc<App>>, name: Name) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let snapshot = app.view.snapshot();
    let found = snapshot.streams.iter().find(|stream| stream.name == name);
    found.map(json_of).ok_or_else(|| unknown(KnobError::NoStream(knobs::shorten(&name))))
}

/// One streamlet of a stream: `?number=17`, `?to=192.0.2.7:5004`, `?ssrc=1000`, or several of these.
pub(crate) async fn streamlet(
    State(app): State<Arc<App>>,
    name: Name,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let mut wanted = StreamletQuery::default();
    let query = query.unwrap_or_default();
    for (key, value) in query.split('&').filter_map(|part| part.split_once('=')) {
        let known = match key {
            "number" => value.parse().map(|number| wanted.number = Some(number)).is_ok(),
            "ssrc" => value.parse().map(|ssrc| wanted.ssrc = Some(ssrc)).is_ok(),
            "to" => value.parse().map(|to| wanted.to = Some(to)).is_ok(),
            _ => false,
        };
        if !known {
            let text = format!("{} names no streamlet", knobs::shorten(key));
            return Err(Problem::bad("bad-query", key, text, STREAMLET));
        }
    }
    if wanted == StreamletQuery::default() {
        return Err(Problem::bad("bad-query", "", "the query names no streamlet", STREAMLET));
    }
    let found = app.view.streamlet(&name, wanted);
    found.as_ref().map(json_of).ok_or_else(|| {
        let text = format!("stream \"{}\" has no such streamlet", knobs::shorten(&name));
        Problem::new(StatusCode::NOT_FOUND, "unknown-streamlet", text, STREAMLET)
    })
}

pub(crate) async fn link(State(app): State<Arc<App>>, name: Name) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let snapshot = app.view.snapshot();
    let found = snapshot.links.iter().find(|link| link.name == name);
    found.map(json_of).ok_or_else(|| unknown(KnobError::NoLink(knobs::shorten(&name))))
}

pub(crate) async fn patch_stream(
    State(app): State<Arc<App>>,
    name: Name,
    body: Bytes,
) -> Result<Response, Problem> {
    change(&app, Target::Stream(&name_of(name)?), &body)
}

pub(crate) async fn patch_link(
    State(app): State<Arc<App>>,
    name: Name,
    body: Bytes,
) -> Result<Response, Problem> {
    change(&app, Target::Link(&name_of(name)?), &body)
}

fn change(app: &App, target: Target<'_>, body: &[u8]) -> Result<Response, Problem> {
    let remedy = "send an object such as {\"window\": \"1/5\"}";
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        Problem::bad("bad-json", "", format!("the body is not JSON: {error}"), remedy)
    })?;
    let object = value
        .as_object()
        .ok_or_else(|| Problem::bad("bad-json", "", "the body is not a JSON object", remedy))?;
    let accepted = knobs::parse(target, object)?.set_knob(&*app.view)?;
    Ok(json_response(StatusCode::OK, accepted.to_string()))
}

pub(crate) async fn events(State(app): State<Arc<App>>) -> Response {
    json_of(&app.view.events())
}

pub(crate) async fn reload(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let view = Arc::clone(&app.view);
    let applied = apart(move || view.reload()).await?;
    Ok(json_of(&applied))
}

pub(crate) async fn save(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let view = Arc::clone(&app.view);
    let changes = apart(move || view.save()).await?;
    Ok(json_of(&json!({ "changes": changes })))
}

/// Runs a slow operation on a thread of its own; it continues if the client leaves.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ReloadError> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| Problem::from_reload(&error)),
        Err(error) => {
            let (status, text) = (StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
            Err(Problem::new(status, "internal", text, "see the log of the node"))
        }
    }
}

pub(crate) async fn no_route() -> Problem {
    let remedy = "the page is at /, the snapshot at /api/v1/node, metrics at /metrics";
    Problem::new(StatusCode::NOT_FOUND, "no-such-route", "nothing is served here", remedy)
}

pub(crate) async fn no_method() -> Problem {
    let message = "this route does not have that method";
    let remedy = "the Allow header names those it has";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no-such-method", message, remedy)
}

fn name_of(name: Name) -> Result<String, Problem> {
    name.map(|Path(name)| name).map_err(|_| {
        let remedy = "percent-encode it as UTF-8";
        Problem::bad("bad-name", "", "the name in the path can't be read", remedy)
    })
}

fn unknown(error: KnobError) -> Problem {
    Problem::from_knob(&error, "")
}

fn json_of(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(body) => json_response(StatusCode::OK, body),
        Err(error) => {
            let body = json!({ "error": { "code": "internal", "message": error.to_string() } });
            json_response(StatusCode::INTERNAL_SERVER_ERROR, body.to_string())
        }
    }
}
