//! How an endpoint is set up, and what it counts.

use std::sync::atomic::AtomicU64;

use selvedge_data_net_secure::{Identity, PublicKey};
use selvedge_data_stack::auto::ManagerSettings;
use selvedge_units::Duration;

/// How an endpoint is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Elements, each a thread; 1 ..= 16.
    pub elements: u8,
    /// How it proves who it is. With a secret or a key all that it sends and takes is sealed; without,
    /// nothing is, and the modules `encrypt` have keys that a man in the middle may know.
    pub identity: Identity,
    /// With a static key: whose ends may connect, and may be connected to.
    pub peers: Vec<PublicKey>,
    /// Which of them it connects to; of one the only one.
    pub peer: Option<PublicKey>,
    /// Threads that share the encryption of messages above 16 KiB with the elements, 0 ..= 16.
    pub slaves: u8,
    /// How the manager decides.
    pub meta: ManagerSettings,
    /// A peer that has said nothing for so long is gone. Endpoints say that they live four times as
    /// often, so both ends should have about the same.
    pub silence: Duration,
}

impl Default for Options {
    /// Two elements, no secret or key, no slaves; a peer may be silent for a minute.
    fn default() -> Self {
        let silence = Duration::from_secs(60);
        Self {
            elements: 2,
            identity: Identity::Open,
            peers: Vec::new(),
            peer: None,
            slaves: 0,
            meta: ManagerSettings::default(),
            silence,
        }
    }
}

/// What an endpoint counted.
#[derive(Debug, Default)]
pub struct Counters {
    /// Datagrams for no connection of ours, or no handshake.
    pub strangers: AtomicU64,
    /// Hellos that were refused or did not fit.
    pub refused: AtomicU64,
    /// Times that the manager assigned streams anew.
    pub reassigned: AtomicU64,
}
