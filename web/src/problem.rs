//! A client's error, as the JSON that it receives: code, text, field and remedy.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use selvedge_control_config::view::{KnobError, ReloadError};
use serde::Serialize;

/// One refusal. Over HTTP it has a status; over the WebSocket only the body is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    #[serde(skip)]
    pub(crate) status: StatusCode,
    /// A word for programs: `bad-value`, `unknown-stream`, ...
    pub(crate) code: &'static str,
    /// The error, with the offending value.
    pub(crate) message: String,
    /// The JSON key or header at fault, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    /// The remedy.
    pub(crate) remedy: String,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { status, code, message: message.into(), field: None, remedy: remedy.into() }
    }

    /// A request that can't be read or a value that can't be accepted: 400.
    pub(crate) fn bad(
        code: &'static str,
        field: &str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message, remedy).at(field)
    }

    pub(crate) fn at(mut self, field: &str) -> Self {
        self.field = (!field.is_empty()).then(|| field.into());
        self
    }

    /// A refusal by the node itself while setting `field`.
    pub(crate) fn from_knob(error: &KnobError, field: &str) -> Self {
        let message = error.to_string();
        let seen = "GET /api/v1/node lists them";
        match error {
            KnobError::NoStream(_) => {
                Self::new(StatusCode::NOT_FOUND, "unknown-stream", message, seen).at("stream")
            }
            KnobError::NoLink(_) => {
                Self::new(StatusCode::NOT_FOUND, "unknown-link", message, seen).at("link")
            }
            KnobError::Range(_) => {
                let (message, remedy) = split_remedy(&message, "give a value in range");
                Self::bad("bad-value", field, message, remedy)
            }
            KnobError::Stopping => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "stopping",
                message,
                "try again once the node runs",
            ),
        }
    }

    /// A reload or save that the node refuses; nothing has then changed.
    pub(crate) fn from_reload(error: &ReloadError) -> Self {
        let text = error.to_string();
        let conflict = |code, remedy| Self::new(StatusCode::CONFLICT, code, text.clone(), remedy);
        match error {
            ReloadError::File(errors) => {
                let key = errors.errors().first().map_or("", |first| &*first.key);
                let remedy = "mend the file and reload it again; nothing was changed";
                Self::bad("bad-file", key, text.clone(), remedy)
            }
            ReloadError::Restart(keys) => {
                let key = keys.first().map_or("", |key| &**key);
                conflict("needs-restart", "restart the node, or leave these as they were").at(key)
            }
            ReloadError::Refused(_) => conflict("refused", "see what the message names"),
            ReloadError::Unusable { .. } => conflict("unusable-file", "see what the message names"),
            ReloadError::NoFile => conflict("no-file", "start the node by selvedge run"),
        }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Error texts here read `what is wrong; what to do`: the two halves, or `fallback` for the second.
pub(crate) fn split_remedy(text: &str, fallback: &str) -> (String, String) {
    match text.rsplit_once("; ") {
        Some((wrong, remedy)) => (wrong.into(), remedy.into()),
        None => (text.into(), fallback.into()),
    }
}

/// A JSON body that must not be cached.
pub(crate) fn json_response(status: StatusCode, body: String) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body).into_response()
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::json!({ "error": self.json() }).to_string();
        json_response(self.status, body)
    }
}
