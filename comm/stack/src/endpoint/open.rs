//! A connection that was made: what the endpoint keeps of it, and what the application's end gets.

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

/// What the endpoint keeps.
#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) pipeline: Arc<Pipeline<ConnectionChain>>,
    pub(super) streams: [StreamId; 2],
    /// Where datagrams go in,
    pub(super) port: EntryPort<ConnectionChain>,
    /// and messages of the application, with the next one's ticket.
    pub(super) sending: Arc<Mutex<(EntryPort<ConnectionChain>, u64)>>,
    pub(super) negotiations: Arc<Mutex<Negotiations>>,
    /// Whose static key the other end has.
    pub(super) identity: Option<PublicKey>,
    pub(super) last_heard: Instant,
    /// The other end has been heard.
    pub(super) is_confirmed: bool,
    /// When it was last said that this end lives.
    pub(super) last_keepalive: Option<Instant>,
    pub(super) disconnected: Arc<AtomicBool>,
    /// An `unknown` message for it has come.
    pub(super) is_unknown: Arc<AtomicBool>,
    /// Since when its ring is gone.
    pub(super) lost: Option<Instant>,
    /// What the manager did and the application has not been told.
    pub(super) news: Arc<Mutex<News>>,
}

/// What the manager did to the streams of a connection, by direction.
pub(super) type News = VecDeque<(Direction, Event)>;

/// What the application's end gets. It is no connection yet: dropped, nothing is closed.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) id: u32,
    pub(super) pipeline: Arc<Pipeline<ConnectionChain>>,
    pub(super) port: Arc<Mutex<(EntryPort<ConnectionChain>, u64)>>,
    pub(super) negotiations: Arc<Mutex<Negotiations>>,
    pub(super) network: Duration,
    pub(super) streams: [StreamId; 2],
    pub(super) gone: Arc<AtomicBool>,
    pub(super) is_unknown: Arc<AtomicBool>,
    pub(super) news: Arc<Mutex<News>>,
}
