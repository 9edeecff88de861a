//! The settings of an endpoint, and its counters.

use std::sync::atomic::AtomicU64;

use selvedge_data_net_secure::{Identity, PublicKey};
use selvedge_data_stack::auto::ManagerSettings;
use selvedge_units::Duration;

use crate::reservation::Reservation;

/// The settings of an endpoint.
#[derive(Clone, Debug)]
pub struct Options {
    /// Elements, each a thread; 1 ..= 16.
    pub elements: u8,
    /// How the endpoint authenticates itself. With a secret or a key all traffic is sealed.
    /// Otherwise nothing is, and a man in the middle may know the keys of the modules `encrypt`.
    pub identity: Identity,
    /// With a static key: the keys of the peers that may connect and be connected to.
    pub peers: Vec<PublicKey>,
    /// The key of the peer to connect to; with one peer, that one.
    pub peer: Option<PublicKey>,
    /// Threads that share the encryption of messages above 16 KiB with the elements, 0 ..= 16.
    pub slaves: u8,
    /// The processor time of the elements, which firm contracts need. What the kernel refuses of it is in
    /// [`EndpointView::reservation`](super::EndpointView::reservation).
    pub reservation: Option<Reservation>,
    /// Whether a thread that sends may run a resting element's modules in place of the element's own thread. That
    /// spares a wake-up. The thread that reads the socket may in any case.
    pub senders_serve: bool,
    /// How the manager decides.
    pub meta: ManagerSettings,
    /// A peer that was silent for this long is gone. Endpoints send keepalives four times as often,
    /// so both ends should use similar values.
    pub silence: Duration,
}

impl Default for Options {
    /// Two elements without reserved time, no secret or key, no worker threads; a peer may be silent for a minute.
    fn default() -> Self {
        let silence = Duration::from_secs(60);
        Self {
            elements: 2,
            identity: Identity::Open,
            peers: Vec::new(),
            peer: None,
            slaves: 0,
            reservation: None,
            senders_serve: true,
            meta: ManagerSettings::default(),
            silence,
        }
    }
}

/// The counters of an endpoint.
#[derive(Debug, Default)]
pub struct Counters {
    /// Datagrams for no connection of this endpoint, or no handshake.
    pub strangers: AtomicU64,
    /// Hellos that were refused or did not fit.
    pub refused: AtomicU64,
    /// The number of times that the manager assigned streams anew.
    pub reassigned: AtomicU64,
}
