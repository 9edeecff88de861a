//! How a sink waits: it polls its rings, and then sleeps until the first event wakes it.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::thread::futex;
use selvedge_data_memory::Bell;
use selvedge_os::clock::{exact_timers, timespec};
use selvedge_os::signal;
use selvedge_units::{Duration, Instant};

use super::{Sink, WaitOutcome};
use crate::message::WakeMethod;

/// The largest number of futexes that a thread can wait for at once.
const WAITS_MAX: usize = 128;
/// How long a wait for signals may overlook a new source.
const SIGNAL_TURN: Duration = Duration::from_millis(20);

impl Sink {
    /// Readable when the sink is woken, for a loop of the program's own ([`WakeMethod::Event`]).
    /// The loop calls [`arm`](Self::arm) before it waits, and afterwards [`take`](Self::take) until
    /// it returns `None`.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().map(AsFd::as_fd)
    }

    /// Prepares to wait for a wake-up. False if there is an event to take first: then no source
    /// wakes the sink.
    #[must_use]
    pub fn prepare_wait(&mut self) -> bool {
        if let Some(epoll) = &self.epoll {
            // Wake-ups that were already handled would end the wait.
            let now = timespec(0);
            let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 16];
            while epoll::wait(epoll, &mut events[..], Some(&now))
                .is_ok_and(|(got, _)| got.len() == 16)
            {}
        }
        self.prepare_sleep()
    }

    fn prepare_sleep(&mut self) -> bool {
        if self.shared().for_sink.load(Ordering::Relaxed) != self.seen {
            self.refresh();
            return false;
        }
        let quiet = self.readers.iter().all(|reader| reader.reader.prepare_sleep());
        if !quiet {
            self.finish_sleep();
        }
        quiet
    }

    fn finish_sleep(&self) {
        for reader in &self.readers {
            reader.reader.finish_sleep();
        }
    }

    /// Waits until there is an event, or until an instant of [`Clock::shared`] ([`Instant::MAX`]:
    /// for ever). Polls the rings first, for as long as the options state.
    pub fn wait(&mut self, until: Instant) -> WaitOutcome {
        if self.has_events() {
            return WaitOutcome::Available;
        }
        if self.options.spin > Duration::ZERO {
            let end = until.min(self.clock.now() + self.options.spin);
            while self.clock.now() < end {
                for _ in 0..16 {
                    if self.has_events() {
                        return WaitOutcome::Available;
                    }
                    std::hint::spin_loop();
                }
            }
        }
        if !self.prepare_sleep() {
            return WaitOutcome::Available;
        }
        exact_timers();
        let woken = self.sleep(until);
        self.finish_sleep();
        woken
    }

    /// Sleeps until the sink is woken.
    fn sleep(&mut self, until: Instant) -> WaitOutcome {
        loop {
            let due = until != Instant::MAX && self.clock.now() >= until;
            let called = self.readers.iter().any(|reader| !reader.reader.bell().is_sleeping())
                || self.shared().for_sink.load(Ordering::Relaxed) != self.seen;
            if called {
                return WaitOutcome::Available;
            }
            if due {
                return WaitOutcome::TimedOut;
            }
            let done = match self.options.wake_method {
                WakeMethod::Futex => self.sleep_on_futexes(until),
                WakeMethod::Event => self.sleep_on_events(until),
                WakeMethod::Signal { number, .. } => {
                    let most = until.since(self.clock.now()).min(SIGNAL_TURN);
                    signal::wait(number, most);
                    Ok(())
                }
            };
            if done.is_err() {
                // Even that is impossible: avoid a busy loop.
                self.clock.sleep_until(until.min(self.clock.now() + Duration::from_millis(1)));
                return WaitOutcome::Available;
            }
        }
    }

    fn sleep_on_futexes(&self, until: Instant) -> Result<(), Errno> {
        let wait = |token: &AtomicU32, value: u32| {
            let mut wait = futex::Wait::new();
            wait.val = value.into();
            wait.uaddr = futex::WaitPtr::new(token.as_ptr().cast());
            wait.flags = futex::WaitFlags::SIZE_U32;
            wait
        };
        // As many as the kernel accepts; there are never more members.
        let mut waits = [const { futex::Wait::new() }; WAITS_MAX];
        let bells =
            self.readers.iter().map(|reader| wait(reader.reader.bell().word(), Bell::SLEEPING));
        let all = std::iter::once(wait(&self.member.shared.for_sink, self.seen)).chain(bells);
        let count = waits.iter_mut().zip(all).map(|(place, wait)| *place = wait).count();
        let end = timespec(until.0);
        let end = (until != Instant::MAX).then_some(&end);
        let flags = futex::WaitvFlags::empty();
        match futex::waitv(&waits[..count], flags, end, futex::ClockId::Monotonic) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn sleep_on_events(&self, until: Instant) -> Result<(), Errno> {
        let left = timespec(until.since(self.clock.now()).0);
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 16];
        let epoll = self.epoll.as_ref().ok_or(Errno::BADF)?;
        let left = (until != Instant::MAX).then_some(&left);
        match epoll::wait(epoll, &mut events[..], left) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

pub(super) fn watch(epoll: &OwnedFd, event: BorrowedFd<'_>) -> Result<(), Errno> {
    // Edge-triggered, so that the eventfds need not be emptied.
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(epoll, event, epoll::EventData::new_u64(0), flags)
}
