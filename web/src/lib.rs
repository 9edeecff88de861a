//! The page, the API and the metrics of a node, over HTTP.
//!
//! Everything comes from a [`NodeView`](selvedge_control_config::view::NodeView): its snapshot feeds the
//! page, `/api/v1` and `/metrics`; changes go back through its knobs. `docs/api.md` has the
//! routes and fields.
//!
//! `[node] tls` and its tokens say who may come in.
//!
//! A [`Server`] runs on one thread of its own, so that however many browsers look on, they take
//! at most one core from the engine. All that a client can make it hold is bounded by [`Limits`].

mod access;
mod api;
mod app;
mod assets;
mod certificate;
mod connection;
mod history;
mod knobs;
mod metrics;
mod places;
mod problem;
mod publish;
mod routes;
mod server;
mod session;
mod socket;
mod video;

pub use app::Limits;
pub use certificate::{CertificateError, Fingerprint, FingerprintError};
pub use server::{Server, ServerError};
