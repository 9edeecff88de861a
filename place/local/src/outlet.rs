//! A source's end of the ring to one sink: the mailbox, the sink's rule for when it is full, and how to
//! call it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::process::Pid;
use rustix::thread::futex;
use selvedge_host::memory::Mapping;
use selvedge_stream::{MailError, MailSpec, MailWriter, Region, mail_region};

use crate::inlet::RingError;
use crate::member::PeerId;
use crate::say::{Full, Waking};
use crate::signal;

/// How the sink is called.
#[derive(Debug)]
enum Call {
    Futex,
    Event(OwnedFd),
    Signal { process: OwnedFd, number: i32, every: bool },
}

#[derive(Debug)]
pub(crate) struct Outlet {
    pub(crate) peer: PeerId,
    writer: MailWriter,
    call: Call,
    full: Full,
    /// Whether something was written that the sink has not been shown.
    is_dirty: bool,
    /// The first bytes of the newest event, for signals.
    value: u64,
    pub(crate) dropped: u64,
}

/// The largest ring that a sink may want.
const ROOM_MAX: u64 = 1 << 28;

impl Outlet {
    pub(crate) fn open(
        peer: PeerId,
        pid: Option<Pid>,
        memory: OwnedFd,
        event: Option<OwnedFd>,
        waking: Waking,
        full: Full,
    ) -> Result<Self, RingError> {
        let least = MailSpec { capacity: 0, bound: 1, overwrites: false }.clamped().capacity;
        let lens = mail_region(least)..=mail_region(ROOM_MAX);
        let region: Arc<dyn Region> = Arc::new(Mapping::open(memory, lens)?);
        let writer = MailWriter::within(&region, 0)?;
        let call = match waking {
            Waking::Futex => Call::Futex,
            Waking::Event => {
                let event = event.ok_or(RingError::NoEvent)?;
                // A descriptor that blocks would let a sink stop its sources.
                rustix::fs::fcntl_setfl(&event, rustix::fs::OFlags::NONBLOCK)?;
                Call::Event(event)
            }
            Waking::Signal { number, every } if signal::is_real_time(number) => {
                let process = pid.and_then(|pid| signal::peer(pid).ok()).ok_or(RingError::Gone)?;
                Call::Signal { process, number, every }
            }
            Waking::Signal { number, .. } => return Err(RingError::Signal(number)),
        };
        Ok(Self { peer, writer, call, full, is_dirty: false, value: 0, dropped: 0 })
    }

    pub(crate) fn blocks(&self) -> bool {
        self.full == Full::Block
    }

    /// Whether an event of this length would find room.
    #[inline]
    pub(crate) fn has_room(&mut self, len: usize) -> bool {
        // One that broke its ring is found out by `put`; one that is too long never fits.
        !matches!(self.writer.room_for(len), Err(MailError::Full))
    }

    /// Writes an event; `Ok(false)` if there was no room and it was dropped by the sink's own rule.
    ///
    /// # Errors
    /// [`MailError::Full`] if the sink blocks its sources; [`MailError::TooLong`]; or what the sink
    /// did to its memory.
    #[inline]
    pub(crate) fn put(&mut self, tag: u64, bytes: &[u8]) -> Result<bool, MailError> {
        match self.writer.put(tag, bytes) {
            Ok(()) => {}
            Err(MailError::Full) if self.blocks() => return Err(MailError::Full),
            Err(MailError::Full) | Err(MailError::TooLong { .. }) => {
                self.dropped += 1;
                self.writer.skip();
                return Ok(false);
            }
            Err(corrupt) => return Err(corrupt),
        }
        self.is_dirty = true;
        if let Call::Signal { process, number, every } = &self.call {
            let mut first = [0; 8];
            let given = bytes.len().min(8);
            first[..given].copy_from_slice(&bytes[..given]);
            self.value = u64::from_ne_bytes(first);
            if *every {
                let _ = self.writer.flush();
                signal::send(process.as_fd(), *number, self.value);
                self.is_dirty = false;
            }
        }
        Ok(true)
    }

    /// An event that it is not to have for want of room.
    pub(crate) fn skip(&mut self) {
        self.dropped += 1;
        self.writer.skip();
    }

    /// Shows the sink what was written, and calls it if it sleeps.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if !std::mem::take(&mut self.is_dirty) || !self.writer.flush() {
            return;
        }
        match &self.call {
            Call::Futex => {
                let _ = futex::wake(self.writer.bell(), futex::Flags::empty(), 1);
            }
            // Adding 1 fails only when the counter is full, that is, when it wakes anyway.
            Call::Event(event) => drop(rustix::io::write(event, &1_u64.to_ne_bytes())),
            Call::Signal { process, number, .. } => {
                signal::send(process.as_fd(), *number, self.value);
            }
        }
    }

    /// Events that wait there.
    pub(crate) fn waiting(&mut self) -> Result<usize, MailError> {
        self.writer.waiting()
    }

    /// Events that it lost since it was too slow, as it says.
    pub(crate) fn missed(&self) -> u64 {
        self.writer.missed()
    }
}
