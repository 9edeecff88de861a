//! A source's end of the ring to one sink: the mailbox, the sink's rule for when it is full, and how to
//! call it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::process::Pid;
use selvedge_control_event::Overflow;
use selvedge_data_memory::{MailboxError, MailboxSpec, MailboxWriter, Region, mailbox_region};
use selvedge_os::eventfd::EventFd;
use selvedge_os::memory::Memfd;

use crate::message::WakeMethod;
use crate::ring::{PeerId, RingError};
use crate::waker::Waker;

#[derive(Debug)]
pub(crate) struct RingWriter {
    pub(crate) peer: PeerId,
    writer: MailboxWriter,
    call: Waker,
    full: Overflow,
    /// Whether something was written that the sink has not been shown.
    is_dirty: bool,
    /// The first bytes of the newest event, for signals.
    value: u64,
    pub(crate) dropped: u64,
}

/// The largest ring that a sink may want.
const ROOM_MAX: u64 = 1 << 28;

impl RingWriter {
    pub(crate) fn open(
        peer: PeerId,
        pid: Option<Pid>,
        memory: OwnedFd,
        event: Option<OwnedFd>,
        wake_method: WakeMethod,
        full: Overflow,
    ) -> Result<Self, RingError> {
        let least = MailboxSpec { capacity: 0, bound: 1, overwrites: false }.clamped().capacity;
        let lens = mailbox_region(least)..=mailbox_region(ROOM_MAX);
        let region: Arc<dyn Region> = Arc::new(Memfd::open(memory, lens)?);
        let writer = MailboxWriter::within(&region, 0)?;
        let call = Waker::new(wake_method, pid, event)?;
        Ok(Self { peer, writer, call, full, is_dirty: false, value: 0, dropped: 0 })
    }

    pub(crate) fn blocks(&self) -> bool {
        self.full == Overflow::Block
    }

    /// Whether an event of this length would find room.
    #[inline]
    pub(crate) fn has_room(&mut self, len: usize) -> bool {
        // One that broke its ring is found out by `put`; one that is too long never fits.
        !matches!(self.writer.room_for(len), Err(MailboxError::Full))
    }

    /// Writes an event; `Ok(false)` if there was no room and it was dropped by the sink's own rule.
    ///
    /// # Errors
    /// [`MailboxError::Full`] if the sink blocks its sources; [`MailboxError::TooLong`]; or what the sink
    /// did to its memory.
    #[inline]
    pub(crate) fn put(&mut self, tag: u64, bytes: &[u8]) -> Result<bool, MailboxError> {
        match self.writer.put(tag, bytes) {
            Ok(()) => {}
            Err(MailboxError::Full) if self.blocks() => return Err(MailboxError::Full),
            Err(MailboxError::Full) | Err(MailboxError::TooLong { .. }) => {
                self.dropped += 1;
                self.writer.skip();
                return Ok(false);
            }
            Err(corrupt) => return Err(corrupt),
        }
        self.is_dirty = true;
        if self.call.carries_value() {
            self.value = Waker::value(bytes);
            if self.call.signals_every() {
                let _ = self.writer.flush();
                self.call.wake(self.writer.bell(), self.value);
                self.is_dirty = false;
            }
        }
        Ok(true)
    }

    /// An event that it is not to have for want of room.
    pub(crate) fn count_skipped(&mut self) {
        self.dropped += 1;
        self.writer.skip();
    }

    /// Shows the sink what was written, and calls it if it sleeps.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if !std::mem::take(&mut self.is_dirty) || !self.writer.flush() {
            return;
        }
        self.call.wake(self.writer.bell(), self.value);
    }

    /// Shows the sink what was written; the event by which it is to be called, if it sleeps.
    #[inline]
    pub(crate) fn publish_silently(&mut self) -> Option<&Arc<EventFd>> {
        let is_owed = std::mem::take(&mut self.is_dirty) && self.writer.flush();
        if is_owed { self.call.event() } else { None }
    }

    /// Whether it is called by an event.
    pub(crate) fn has_event(&self) -> bool {
        self.call.event().is_some()
    }

    /// Whether at most half of it waits to be read, by number and by bytes.
    pub(crate) fn is_half_empty(&mut self, len: usize) -> bool {
        let spec = self.writer.spec();
        let bound = spec.bound.min(spec.capacity / (len as u64 + 32).max(64));
        self.writer.waiting().is_ok_and(|waiting| waiting as u64 * 2 <= bound)
    }

    /// Events that wait there.
    pub(crate) fn waiting(&mut self) -> Result<usize, MailboxError> {
        self.writer.waiting()
    }

    /// Events that it lost since it was too slow, as it says.
    pub(crate) fn missed(&self) -> u64 {
        self.writer.missed()
    }
}
