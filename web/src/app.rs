//! What the server hands to each connection and request: the node's view, limits, and the sign to stop.

use std::sync::{Arc, Mutex};

use selvedge_control_config::view::NodeView;
use selvedge_units::Duration;
use tokio::sync::{Semaphore, watch};

use crate::access::AccessGate;
use crate::history::History;
use crate::publish::Published;

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// TCP connections at a time, 1 or more; a further one takes the place of the oldest whose request
    /// is not whole, or is refused. So many of them as the node file has it come of one address. Default 128.
    pub connections: usize,
    /// WebSockets at a time; a further one is refused. Default 32.
    pub sockets: usize,
    /// Time between the snapshots that WebSockets send, more than zero. Default 250 ms.
    pub snapshot_every: Duration,
    /// A request's header takes at most this long to arrive, with the TLS handshake before it.
    /// Default 2 s.
    pub header: Duration,
    /// A request takes at most this long from then on to be whole and answered. Default 10 s.
    pub request: Duration,
    /// A client that reads nothing for this long is cut off. Default 20 s.
    pub stall: Duration,
    /// A WebSocket that says nothing for this long, not even a pong, is closed; more than zero.
    /// Default 20 s.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            sockets: 32,
            snapshot_every: Duration::from_millis(250),
            header: Duration::from_secs(2),
            request: Duration::from_secs(10),
            stall: Duration::from_secs(20),
            silence: Duration::from_secs(20),
        }
    }
}

/// All that a request can reach.
pub(crate) struct App {
    pub(crate) view: Arc<dyn NodeView>,
    pub(crate) gate: AccessGate,
    /// What sessions' time counts from.
    pub(crate) began: std::time::Instant,
    pub(crate) limits: Limits,
    pub(crate) history: Arc<Mutex<History>>,
    pub(crate) published: watch::Sender<Published>,
    pub(crate) sockets: Arc<Semaphore>,
    pub(crate) stopping: watch::Receiver<bool>,
}

/// Returns once the server is to stop.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}
