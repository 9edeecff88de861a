//! A program's subscription: calls through memory, and a service's events.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::thread::futex;
use selvedge_data_memory::Bell;
use selvedge_os::clock::{Clock, exact_timers, timespec};
use selvedge_os::eventfd::EventFd;
use selvedge_units::{Instant, Span};

use crate::client::{Client, ClientError, ServiceEvent, When};
use crate::say::tag;
use crate::segment::{PutError, Reader, Writer};
use crate::service::DATA_MAX;

/// A subscription: calls through memory, and events. Ends when dropped.
#[derive(Debug)]
pub struct Subscription {
    pub(crate) client: Client,
    pub(crate) calls: Writer,
    pub(crate) events: Reader,
    /// What calls us, if we are called by an eventfd.
    pub(crate) own: Option<EventFd>,
    /// What calls the host.
    pub(crate) theirs: EventFd,
    pub(crate) preferred: bool,
    pub(crate) clock: Clock,
}

impl Subscription {
    /// Whether the scheduler prefers this program for events, as it wished.
    #[must_use]
    pub const fn is_preferred(&self) -> bool {
        self.preferred
    }

    /// A fast call: written where the service looks when it next runs; nobody is woken. No system
    /// call. In a bit pattern it goes to `entry`, or to the first that is free.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn fast(&mut self, entry: Option<u32>, data: &[u8]) -> Result<(), PutError> {
        self.put(entry, tag::FAST, data)?;
        self.calls.show();
        Ok(())
    }

    /// A deferred call. Many cost the service one wake-up at most, and none if it looks in time anyway.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn deferred(
        &mut self,
        when: When,
        entry: Option<u32>,
        data: &[u8],
    ) -> Result<(), PutError> {
        match when {
            // Not shown yet.
            When::NextCall => self.put(entry, tag::NEXT_CALL, data),
            // The host looks at all calls before it hands out anything.
            When::BeforeDispatch => {
                self.put(entry, tag::BEFORE_DISPATCH, data)?;
                self.calls.show();
                Ok(())
            }
            When::After(span) => {
                let due = self.clock.now() + span;
                self.put(entry, due.0, data)?;
                self.calls.show();
                if !self.calls.looks_by(due) {
                    self.wake();
                }
                Ok(())
            }
        }
    }

    /// A call that is made at once; with it all that waited for the next one. A sleeping host is woken.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn direct(&mut self, entry: Option<u32>, data: &[u8]) -> Result<(), PutError> {
        self.put(entry, tag::DIRECT, data)?;
        self.wake();
        Ok(())
    }

    /// The generic call, through the service's socket: waits for the reply.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn call(&mut self, data: &[u8]) -> Result<Vec<u8>, ClientError> {
        self.wake();
        self.client.call(data)
    }

    fn put(&mut self, entry: Option<u32>, tag: u64, data: &[u8]) -> Result<(), PutError> {
        if data.len() > DATA_MAX {
            return Err(PutError::Outside);
        }
        self.calls.put(entry, tag, data)
    }

    /// Shows what was written, and wakes the host if it sleeps.
    fn wake(&mut self) {
        if self.calls.flush() {
            self.theirs.ring();
        }
    }

    /// Takes the next event, without a system call; late ones are passed over.
    ///
    /// # Errors
    /// [`ClientError::Garbled`] if the service's memory makes no sense.
    pub fn take(&mut self) -> Result<Option<ServiceEvent<'_>>, ClientError> {
        /// So that one who raises faster than this takes does not keep it here.
        const LATE_MAX: usize = 65_536;
        for _ in 0..LATE_MAX {
            let taken = self.events.take().map_err(|_| ClientError::Garbled)?;
            let Some((entry, tag)) = taken else { return Ok(None) };
            let deadline = (tag != u64::MAX).then_some(Instant(tag));
            if deadline.is_none_or(|deadline| deadline >= self.clock.now()) {
                return Ok(Some(ServiceEvent { entry, deadline, data: self.events.bytes() }));
            }
        }
        Ok(None)
    }

    /// The paper's `flag`: how many events were written so far, by a look at the memory.
    #[must_use]
    pub fn flag(&self) -> u64 {
        self.events.flag()
    }

    /// Whether there is an event, by a look at the memory.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.events.has_mail()
    }

    /// Readable when events have come ([`Waking::Event`]), for a loop of the program's own, which calls
    /// [`arm`](Self::arm) before it waits.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.own.as_ref().map(AsFd::as_fd)
    }

    /// About to wait to be called; false if there are events to take first.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        if let Some(own) = &self.own {
            own.clear();
        }
        self.events.lie_down(Instant::MAX)
    }

    /// Waits for an event, until an instant of [`Clock::shared`]; false if none came, or the service
    /// is gone.
    pub fn wait(&mut self, until: Instant) -> bool {
        /// The connection is looked at now and then, since a futex does not tell of its end.
        const LOOK: Span = Span::from_millis(100);
        exact_timers();
        while !self.has_events() {
            let now = self.clock.now();
            if now >= until || !self.is_alive() {
                break;
            }
            if !self.arm() {
                break;
            }
            let end = until.min(now + LOOK);
            match &self.own {
                Some(own) => {
                    let left = timespec(end.since(now).0);
                    let _ = poll(&mut [PollFd::new(own, PollFlags::IN)], Some(&left));
                }
                None => self.sleep_until(end),
            }
            self.events.rise();
        }
        self.has_events()
    }

    fn sleep_until(&self, end: Instant) {
        let bell = self.events.bell();
        let mut wait = futex::Wait::new();
        wait.val = Bell::ASLEEP.into();
        wait.uaddr = futex::WaitPtr::new(bell.word().as_ptr().cast());
        wait.flags = futex::WaitFlags::SIZE_U32;
        let end = timespec(end.0);
        let flags = futex::WaitvFlags::empty();
        while bell.is_asleep() {
            match futex::waitv(&[wait], flags, Some(&end), futex::ClockId::Monotonic) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Whether the service's host is still there.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.client.socket, PollFlags::RDHUP)];
        let now = timespec(0);
        match poll(&mut fds, Some(&now)) {
            Ok(_) => {
                !fds[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR)
            }
            Err(error) => error == Errno::INTR,
        }
    }
}
