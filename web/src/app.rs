//! The state that the server passes to each connection and request: the node's view, limits, and the
//! stop signal.

use std::sync::{Arc, Mutex};

use selvedge_control_config::view::NodeView;
use selvedge_units::Duration;
use tokio::sync::{Semaphore, watch};

use crate::access::AccessGate;
use crate::history::History;
use crate::publish::Published;

/// The resources that clients may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// TCP connections at a time, 1 or more; a further one replaces the oldest whose request is
    /// incomplete, or is refused. The node file limits how many of them one address may have. Default
    /// 128.
    pub connections: usize,
    /// WebSockets at a time; a further one is refused. Default 32.
    pub sockets: usize,
    /// Time between the snapshots that WebSockets send, more than zero. Default 250 ms.
    pub snapshot_every: Duration,
    /// A request's header must arrive within this time, with the TLS handshake before it. Default 2 s.
    pub header: Duration,
    /// A request must then be complete and answered within this time. Default 10 s.
    pub request: Duration,
    /// A client that reads nothing for this long is cut off. Default 20 s.
    pub stall: Duration,
    /// A WebSocket that sends nothing for this long, not even a pong, is closed; more than zero.
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

/// The state that requests can reach.
pub(crate) struct App {
    pub(crate) view: Arc<dyn NodeView>,
    pub(crate) gate: AccessGate,
    /// The zero of sessions' times.
    pub(crate) began: std::time::Instant,
    pub(crate) limits: Limits,
    pub(crate) history: Arc<Mutex<History>>,
    pub(crate) published: watch::Sender<Published>,
    pub(crate) sockets: Arc<Semaphore>,
    pub(crate) stopping: watch::Receiver<bool>,
}

/// Returns once the server must stop.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}
