//! An open connection: the endpoint's part of it, and the application's part.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use selvedge_data_net_secure::PublicKey;
use selvedge_data_stack::auto::Event;
use selvedge_data_stack::endpoint::Peer;
use selvedge_data_stack::model::StreamId;
use selvedge_data_stack::module::Direction;
use selvedge_units::{Duration, Instant};

use super::negotiations::Negotiations;
use crate::element::{EntryPort, Pipeline};
use crate::work::{ConnectionChain, Sealing};

/// The endpoint's part.
#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) pipeline: Arc<Pipeline<ConnectionChain>>,
    pub(super) streams: [StreamId; 2],
    /// The port for datagrams.
    pub(super) port: EntryPort<ConnectionChain>,
    /// The port for the application's messages, with the ticket of the next one.
    pub(super) sending: Arc<Mutex<(EntryPort<ConnectionChain>, u64)>>,
    pub(super) negotiations: Arc<Mutex<Negotiations>>,
    /// The static key of the other end.
    pub(super) identity: Option<PublicKey>,
    pub(super) disconnected: Arc<AtomicBool>,
    /// An `unknown` message for this connection has arrived.
    pub(super) is_unknown: Arc<AtomicBool>,
    /// Since when its ring is gone.
    pub(super) lost: Option<Instant>,
    /// Events of the manager that the application has not read yet.
    pub(super) news: Arc<Mutex<News>>,
}

impl Peer for ConnectionState {
    fn address(&self) -> SocketAddr {
        self.pipeline.work().peer
    }

    fn is_sealed(&self) -> bool {
        self.pipeline.work().sealing.is_some()
    }

    fn has_ring(&self) -> bool {
        self.pipeline.work().has_ring()
    }

    fn was_heard(&mut self) -> bool {
        self.pipeline.work().sealing.as_ref().is_some_and(Sealing::was_heard)
    }

    fn is_spent(&self) -> bool {
        self.pipeline.work().sealing.as_ref().is_some_and(Sealing::is_spent)
    }

    fn keepalive(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.pipeline.work().sealing.as_ref()?.alive(now).ok()
    }

    fn handle_keepalive(&mut self, datagram: &[u8]) {
        if let Some(sealing) = &self.pipeline.work().sealing {
            sealing.handle_keepalive(datagram);
        }
    }
}

/// Events of the manager about the streams of a connection, by direction.
pub(super) type News = VecDeque<(Direction, Event)>;

/// The application's part. It is no connection yet: dropping it closes nothing.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) id: u32,
    pub(super) pipeline: Arc<Pipeline<ConnectionChain>>,
    /// The application's port, and the ticket of the next message.
    pub(super) port: Arc<Mutex<(EntryPort<ConnectionChain>, u64)>>,
    /// The contracts that are being negotiated with the other end.
    pub(super) negotiations: Arc<Mutex<Negotiations>>,
    /// The network's part of a delay, in each direction, as measured when the connection was made.
    pub(super) network: Duration,
    pub(super) streams: [StreamId; 2],
    pub(super) disconnected: Arc<AtomicBool>,
    pub(super) is_unknown: Arc<AtomicBool>,
    /// Events that the application has not read yet.
    pub(super) news: Arc<Mutex<News>>,
}
