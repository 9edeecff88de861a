//! An open connection: the endpoint's part of it, and the application's part.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use selvedge_data_net_secure::PublicKey;
use selvedge_data_stack::auto::Event;
use selvedge_data_stack::model::StreamId;
use selvedge_data_stack::module::Direction;
use selvedge_units::{Duration, Instant};

use super::negotiations::Negotiations;
use crate::element::{EntryPort, Pipeline};
use crate::work::ConnectionChain;

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
    pub(super) last_heard: Instant,
    /// An authentic datagram of the other end has arrived.
    pub(super) is_confirmed: bool,
    /// When the last keepalive was sent.
    pub(super) last_keepalive: Option<Instant>,
    pub(super) disconnected: Arc<AtomicBool>,
    /// An `unknown` message for this connection has arrived.
    pub(super) is_unknown: Arc<AtomicBool>,
    /// Since when its ring is gone.
    pub(super) lost: Option<Instant>,
    /// Events of the manager that the application has not read yet.
    pub(super) news: Arc<Mutex<News>>,
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
