//! The page, the API and the metrics of a node, over HTTP.
//!
//! Everything comes from a [`NodeView`](selvedge_control_config::view::NodeView): its snapshot feeds the
//! page, `/api/v1` and `/metrics`; changes go back through its knobs. `docs/api.md` has the
//! routes and fields.
//!
//! `[node] tls` and its tokens decide which clients are admitted.
//!
//! A [`Server`] runs on one thread of its own, so that any number of browsers takes at most one core
//! from the engine. [`Limits`] bound all resources that clients can make it hold.

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
mod receivers;
mod routes;
mod server;
mod session;
mod socket;
mod video;

pub use app::Limits;
pub use certificate::{CertificateError, Fingerprint, FingerprintError};
pub use server::{Server, ServerError};
