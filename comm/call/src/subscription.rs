//! A program's subscription: calls through memory, and a service's events.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::thread::futex;
use selvedge_comm_local::WakeMethod;
use selvedge_data_memory::Bell;
use selvedge_os::clock::{Clock, exact_timers, timespec};
use selvedge_os::control::ControlError;
use selvedge_os::eventfd::EventFd;
use selvedge_units::{Duration, Instant};

use crate::client::{Client, ClientError};
use crate::message::{Preference, Request, Subscribed, tag};
use crate::segment::{Layout, PutError, Reader, Writer};
use crate::service::DATA_MAX;

/// A program's options for a service's events, and for its calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubscribeOptions {
    /// The memory for its calls.
    pub calls: Layout,
    /// The memory for events.
    pub events: Layout,
    /// How the program is woken when it sleeps.
    pub wake_method: WakeMethod,
    /// Processor time for its events.
    pub preference: Option<Preference>,
}

/// When a deferred call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferral {
    /// With this program's next direct or generic call.
    NextCall,
    /// After this time, and not before.
    After(Duration),
    /// Before the service's host delivers any event.
    BeforeDispatch,
}

/// An event of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceEvent<'a> {
    /// The entry, if the memory is a bit pattern.
    pub entry: Option<u32>,
    /// The deadline.
    pub deadline: Option<Instant>,
    /// The payload.
    pub data: &'a [u8],
}

/// A subscription: calls through memory, and events. Dropping it ends it.
#[derive(Debug)]
pub struct Subscription {
    client: Client,
    calls: Writer,
    events: Reader,
    /// The eventfd that wakes this program, if it is woken by one.
    our_event: Option<EventFd>,
    /// The eventfd that wakes the host.
    service_event: EventFd,
    preferred: bool,
    clock: Clock,
}

impl Client {
    /// Subscribes: memory in both directions, shared with the service from now on.
    pub fn subscribe(mut self, wish: SubscribeOptions) -> Result<Subscription, ClientError> {
        let events = Reader::create(wish.events)?;
        let own = match wish.wake_method {
            WakeMethod::Event => Some(EventFd::new()?),
            WakeMethod::Futex | WakeMethod::Signal { .. } => None,
        };
        let SubscribeOptions { calls: up, wake_method, preference, .. } = wish;
        let fds: Vec<BorrowedFd<'_>> =
            [events.file().as_fd()].into_iter().chain(own.as_ref().map(AsFd::as_fd)).collect();
        let mut answer =
            self.ask::<Subscribed>(&Request::Subscribe { up, wake_method, preference }, &[], &fds)?;
        let preferred = answer.body.preferred;
        let (Some(theirs), Some(memory)) = (answer.fds.pop(), answer.fds.pop()) else {
            return Err(ControlError::Malformed("no memory came".to_owned()).into());
        };
        let theirs = EventFd::of(theirs)?;
        let calls = Writer::open(memory)?;
        let clock = Clock::shared();
        Ok(Subscription {
            client: self,
            calls,
            events,
            our_event: own,
            service_event: theirs,
            preferred,
            clock,
        })
    }
}

impl Subscription {
    /// Whether the scheduler prefers this program for events, as requested.
    #[must_use]
    pub const fn is_preferred(&self) -> bool {
        self.preferred
    }

    /// A fast call: written where the service looks when it next runs, without a wake-up or a
    /// system call. In a bit pattern it goes to `entry`, or to the first free one.
    pub fn call_fast(&mut self, entry: Option<u32>, data: &[u8]) -> Result<(), PutError> {
        self.put(entry, tag::FAST, data)?;
        self.calls.publish_silently();
        Ok(())
    }

    /// A deferred call. Many of them cost the service at most one wake-up, and none if it looks in
    /// time anyway.
    pub fn call_deferred(
        &mut self,
        when: Deferral,
        entry: Option<u32>,
        data: &[u8],
    ) -> Result<(), PutError> {
        match when {
            // Not published yet.
            Deferral::NextCall => self.put(entry, tag::NEXT_CALL, data),
            // The host reads all calls before it delivers any event.
            Deferral::BeforeDispatch => {
                self.put(entry, tag::BEFORE_DISPATCH, data)?;
                self.calls.publish_silently();
                Ok(())
            }
            Deferral::After(span) => {
                let due = self.clock.now() + span;
                self.put(entry, due.0, data)?;
                self.calls.publish_silently();
                if !self.calls.polls_before(due) {
                    self.wake();
                }
                Ok(())
            }
        }
    }

    /// A call that is made at once, with all that waited for the next one. A sleeping host is woken.
    pub fn call_direct(&mut self, entry: Option<u32>, data: &[u8]) -> Result<(), PutError> {
        self.put(entry, tag::DIRECT, data)?;
        self.wake();
        Ok(())
    }

    /// The generic call, through the service's socket: waits for the reply.
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

    /// Publishes the written calls, and wakes the host if it sleeps.
    fn wake(&mut self) {
        if self.calls.flush() {
            self.service_event.ring();
        }
    }

    /// Takes the next event, without a system call; late ones are skipped.
    ///
    /// # Errors
    /// [`ClientError::Control`] if the service's memory is invalid.
    pub fn take(&mut self) -> Result<Option<ServiceEvent<'_>>, ClientError> {
        /// A bound, so that a source that raises faster than this takes does not keep the thread here.
        const LATE_MAX: usize = 65_536;
        for _ in 0..LATE_MAX {
            let taken = self.events.take();
            let taken =
                taken.map_err(|_| ControlError::Malformed("the memory for events".to_owned()))?;
            let Some((entry, tag)) = taken else { return Ok(None) };
            let deadline = (tag != u64::MAX).then_some(Instant(tag));
            if deadline.is_none_or(|deadline| deadline >= self.clock.now()) {
                return Ok(Some(ServiceEvent { entry, deadline, data: self.events.bytes() }));
            }
        }
        Ok(None)
    }

    /// The paper's `flag`: the number of events written so far, by a look at the memory.
    #[must_use]
    pub fn flag(&self) -> u64 {
        self.events.flag()
    }

    /// Whether there is an event, by a look at the memory.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.events.has_message()
    }

    /// Readable when events have come ([`WakeMethod::Event`]), for a loop of the program's own,
    /// which calls [`prepare_wait`](Self::prepare_wait) before it waits.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.our_event.as_ref().map(AsFd::as_fd)
    }

    /// Prepares to wait for a wake-up; false if there are events to take first.
    #[must_use]
    pub fn prepare_wait(&mut self) -> bool {
        if let Some(own) = &self.our_event {
            own.clear();
        }
        self.events.prepare_sleep(Instant::MAX)
    }

    /// Waits for an event, until an instant of [`Clock::shared`]; false if none came, or the
    /// service is gone.
    pub fn wait(&mut self, until: Instant) -> bool {
        /// The connection is checked now and then, since a futex does not signal its end.
        const POLL_EVERY: Duration = Duration::from_millis(100);
        exact_timers();
        while !self.has_events() {
            let now = self.clock.now();
            if now >= until || !self.is_alive() {
                break;
            }
            if !self.prepare_wait() {
                break;
            }
            let end = until.min(now + POLL_EVERY);
            match &self.our_event {
                Some(own) => {
                    let left = timespec(end.since(now).0);
                    let _ = poll(&mut [PollFd::new(own, PollFlags::IN)], Some(&left));
                }
                None => self.sleep_until(end),
            }
            self.events.finish_sleep();
        }
        self.has_events()
    }

    fn sleep_until(&self, end: Instant) {
        let bell = self.events.bell();
        let mut wait = futex::Wait::new();
        wait.val = Bell::SLEEPING.into();
        wait.uaddr = futex::WaitPtr::new(bell.word().as_ptr().cast());
        wait.flags = futex::WaitFlags::SIZE_U32;
        let end = timespec(end.0);
        let flags = futex::WaitvFlags::empty();
        while bell.is_sleeping() {
            match futex::waitv(&[wait], flags, Some(&end), futex::ClockId::Monotonic) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Whether the service's host is still there.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.client.connection.is_open()
    }
}
