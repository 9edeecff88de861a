//! A sink's end of the ring that one source fills: its memory, its mailbox, and its wake-up method.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use selvedge_control_event::Overflow;
use selvedge_data_memory::{MailboxReader, MailboxSpec, Region, mailbox_region};
use selvedge_os::eventfd::EventFd;
use selvedge_os::memory::Memfd;

use crate::message::{Message, WakeMethod};
use crate::ring::{PeerId, RingError, SinkOptions};

#[derive(Debug)]
pub(crate) struct RingReader {
    pub(crate) peer: PeerId,
    /// The token with which its source was admitted.
    pub(crate) token: Box<str>,
    pub(crate) reader: MailboxReader,
    /// The eventfd by which the source wakes the sink, with [`WakeMethod::Event`].
    pub(crate) event: Option<Arc<EventFd>>,
    /// Whether the source is gone, so that no further event comes.
    pub(crate) ended: bool,
}

/// The descriptors that go to the source.
pub(crate) struct SourceFds {
    mapping: Arc<Memfd>,
    event: Option<Arc<EventFd>>,
}

impl SourceFds {
    pub(crate) fn each_fd(&self) -> Vec<BorrowedFd<'_>> {
        let event = self.event.as_ref().map(|event| event.as_fd());
        std::iter::once(self.mapping.file().as_fd()).chain(event).collect()
    }
}

impl RingReader {
    /// Creates a ring with the sink's options, and the message and descriptors for its source.
    pub(crate) fn create(
        peer: PeerId,
        token: &str,
        options: &SinkOptions,
    ) -> Result<(Self, (Message, SourceFds)), RingError> {
        let overwrites = matches!(options.full, Overflow::DropOldest | Overflow::Latest);
        let bound = options.bound as u64;
        // Only the latest counts, but the source needs room to write the next one.
        let bound = if options.full == Overflow::Latest { bound.max(16) } else { bound };
        let spec = MailboxSpec { capacity: options.room.0, bound, overwrites }.clamped();
        let mapping = Arc::new(Memfd::create("selvedge events", mailbox_region(spec.capacity))?);
        let region: Arc<dyn Region> = mapping.clone();
        let reader = MailboxReader::create(&region, 0, spec)?;
        let event = match options.wake_method {
            WakeMethod::Event => Some(Arc::new(EventFd::new()?)),
            WakeMethod::Futex | WakeMethod::Signal { .. } => None,
        };
        let attach = Message::Attach { wake_method: options.wake_method, full: options.full };
        let handed = SourceFds { mapping, event: event.clone() };
        let token = token.into();
        Ok((Self { peer, token, reader, event, ended: false }, (attach, handed)))
    }
}
