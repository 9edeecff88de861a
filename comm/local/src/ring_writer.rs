//! A source's end of the ring to one sink: the mailbox, the sink's overflow rule, and its wake-up method.

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
    /// Whether events were written that are not yet published to the sink.
    is_dirty: bool,
    /// The first bytes of the newest event, for signals.
    value: u64,
    pub(crate) dropped: u64,
}

/// The largest ring that a sink may request, in bytes.
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
        // A corrupt ring is detected by `put`; an event that is too long never fits.
        !matches!(self.writer.room_for(len), Err(MailboxError::Full))
    }

    /// Writes an event; `Ok(false)` if there was no room and the sink's rule dropped it.
    ///
    /// # Errors
    /// [`MailboxError::Full`] if the sink blocks its sources; [`MailboxError::TooLong`]; or the
    /// corruption of the memory by the sink.
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

    /// Counts an event that is skipped for lack of room.
    pub(crate) fn count_skipped(&mut self) {
        self.dropped += 1;
        self.writer.skip();
    }

    /// Publishes the written events, and wakes the sink if it sleeps.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if !std::mem::take(&mut self.is_dirty) || !self.writer.flush() {
            return;
        }
        self.call.wake(self.writer.bell(), self.value);
    }

    /// Publishes the written events; returns the eventfd by which a sleeping sink must be woken.
    #[inline]
    pub(crate) fn publish_silently(&mut self) -> Option<&Arc<EventFd>> {
        let is_owed = std::mem::take(&mut self.is_dirty) && self.writer.flush();
        if is_owed { self.call.event() } else { None }
    }

    /// Whether the sink is woken by an eventfd.
    pub(crate) fn has_event(&self) -> bool {
        self.call.event().is_some()
    }

    /// Whether at most half of the ring is unread, by number and by bytes.
    pub(crate) fn is_half_empty(&mut self, len: usize) -> bool {
        let spec = self.writer.spec();
        let bound = spec.bound.min(spec.capacity / (len as u64 + 32).max(64));
        self.writer.waiting().is_ok_and(|waiting| waiting as u64 * 2 <= bound)
    }

    /// The number of events that wait in the ring.
    pub(crate) fn waiting(&mut self) -> Result<usize, MailboxError> {
        self.writer.waiting()
    }

    /// The number of events that the sink lost since it was too slow, as the sink reports.
    pub(crate) fn missed(&self) -> u64 {
        self.writer.missed()
    }
}
