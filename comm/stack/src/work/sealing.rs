//! The secure layer below a connection's modules: what leaves is sealed, what comes is opened.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge_data_net_secure::{HEADER, OpenError, Opener, SealError, Sealer, TAG};
use selvedge_data_stack::message::Message;
use selvedge_data_stack::module::Reason;
use selvedge_units::Instant;

use crate::sync::lock;

/// Both directions' keys of a connection.
#[derive(Debug)]
pub(crate) struct Sealing {
    sealer: Mutex<Sealer>,
    opener: Mutex<Opener>,
    /// Something authentic has come since this was asked last.
    heard: AtomicBool,
    /// So much was forged that the connection has to end.
    spent: AtomicBool,
}

impl Sealing {
    pub(crate) fn new(sealer: Sealer, opener: Opener) -> Self {
        let (heard, spent) = Default::default();
        Self { sealer: Mutex::new(sealer), opener: Mutex::new(opener), heard, spent }
    }

    /// Makes a datagram of a message, in place.
    pub(crate) fn seal(&self, message: &mut Message, now: Instant) -> Result<(), SealError> {
        let (header, tag) = lock(&self.sealer).seal(message.bytes_mut(), now)?;
        message.append(&tag);
        message.push(&header);
        Ok(())
    }

    /// The message of a datagram, in place; or why it is dropped. One without bytes only says that the
    /// other end lives.
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

    /// A datagram that is to say that the other end lives, and nothing else.
    pub(crate) fn handle_keepalive(&self, datagram: &[u8]) {
        let _ = self.opened(&mut datagram.to_vec());
    }

    /// What says that this end lives.
    pub(crate) fn alive(&self, now: Instant) -> Result<Vec<u8>, SealError> {
        lock(&self.sealer).packet(&[], now)
    }

    /// Whether something authentic has come since this was asked last.
    pub(crate) fn was_heard(&self) -> bool {
        self.heard.swap(false, Ordering::AcqRel)
    }

    /// Whether the connection has to end.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Acquire)
    }
}
