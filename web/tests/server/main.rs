//! The real server on a free port, with a plain TCP client.

mod api;
mod gate;
mod http;
mod idle_node;
mod limits;
mod metrics;
mod receivers;
mod slow;
mod socket;
mod tls;
mod videos;
