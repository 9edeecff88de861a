//! The secure layer below a connection's modules: it seals outgoing and opens incoming datagrams.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge_data_net_secure::{HEADER, OpenError, Opener, SealError, Sealer, TAG};
use selvedge_data_stack::message::Message;
use selvedge_data_stack::module::Reason;
use selvedge_units::Instant;

use crate::sync::lock;

/// The keys of both directions of a connection.
#[derive(Debug)]
pub(crate) struct Sealing {
    sealer: Mutex<Sealer>,
    opener: Mutex<Opener>,
    /// An authentic datagram has arrived since the last check.
    heard: AtomicBool,
    /// So many datagrams were forged that the connection has to end.
    spent: AtomicBool,
}

impl Sealing {
    pub(crate) fn new(sealer: Sealer, opener: Opener) -> Self {
        let (heard, spent) = Default::default();
        Self { sealer: Mutex::new(sealer), opener: Mutex::new(opener), heard, spent }
    }

    /// Turns a message into a sealed datagram, in place.
    pub(crate) fn seal(&self, message: &mut Message, now: Instant) -> Result<(), SealError> {
        let (header, tag) = lock(&self.sealer).seal(message.bytes_mut(), now)?;
        message.append(&tag);
        message.push(&header);
        Ok(())
    }

    /// Opens a datagram into its message, in place; or returns why it is dropped. An empty one is a
    /// keepalive.
    pub(crate) fn open(&self, message: &mut Message) -> Result<(), Reason> {
        self.opened(message.bytes_mut())?;
        let _ = message.pull::<HEADER>();
        let _ = message.take_trailer::<TAG>();
        Ok(())
    }

    fn opened(&self, datagram: &mut [u8]) -> Result<(), Reason> {
        let opened = lock(&self.opener).open(datagram).map(|_| ());
        opened.map_err(|why| match why {
            OpenError::Malformed(_) => Reason::Malformed,
            OpenError::Forged(_) => Reason::Forged,
            OpenError::Replayed(_) => Reason::Replayed,
            OpenError::Late(_) => Reason::Late,
            OpenError::Limit => {
                self.spent.store(true, Ordering::Release);
                Reason::Forged
            }
        })?;
        self.heard.store(true, Ordering::Release);
        Ok(())
    }

    /// Handles a datagram that should be a keepalive.
    pub(crate) fn handle_keepalive(&self, datagram: &[u8]) {
        let _ = self.opened(&mut datagram.to_vec());
    }

    /// A keepalive of this end.
    pub(crate) fn alive(&self, now: Instant) -> Result<Vec<u8>, SealError> {
        lock(&self.sealer).packet(&[], now)
    }

    /// Whether an authentic datagram has arrived since the last call.
    pub(crate) fn was_heard(&self) -> bool {
        self.heard.swap(false, Ordering::AcqRel)
    }

    /// Whether the connection has to end.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Acquire)
    }
}
