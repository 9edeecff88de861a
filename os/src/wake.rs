//! Waking a thread that sleeps until its next deadline: an eventfd, and a [`Bell`] that saves the system call
//! while the sleeper is awake.
//!
//! Producers put work where the sleeper will find it (a ring), then call [`Waker::wake`]. The sleeper looks
//! for work, then calls [`Sleeper::wait_until`]; no wake-up is ever lost: one that arrives while the sleeper
//! is awake makes its next wait return at once, like the token of `std::thread::park`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use selvedge_data_memory::Bell;
use selvedge_units::{Duration, Instant};

use crate::clock::{Clock, exact_timers, timespec};
use crate::eventfd::EventFd;

#[derive(Debug)]
struct Shared {
    bell: Bell,
    event: EventFd,
}

/// Wakes one [`Sleeper`]; clones wake the same one, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

/// Sleeps until an instant or a wake-up, whichever is first. One thread owns it.
#[derive(Debug)]
pub struct Sleeper {
    shared: Arc<Shared>,
    clock: Clock,
    spin: Duration,
}

/// Why a wait returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The instant has come.
    TimedOut,
    /// A waker called.
    Notified,
}

/// A sleeper on this clock, which watches the clock instead of sleeping for the last `spin` before an instant
/// (zero: never), and its waker.
///
/// # Errors
/// If no more file descriptors may be opened.
pub fn sleeper(clock: Clock, spin: Duration) -> io::Result<(Sleeper, Waker)> {
    let shared = Arc::new(Shared { bell: Bell::default(), event: EventFd::new()? });
    Ok((Sleeper { shared: Arc::clone(&shared), clock, spin }, Waker(shared)))
}

impl Waker {
    /// Wakes the sleeper, or makes its next wait return at once. A fence and a load if it has been notified
    /// already, an atomic swap if it is awake, a system call only if it sleeps.
    pub fn wake(&self) {
        if self.0.bell.notify() {
            self.0.event.ring();
        }
    }
}

impl Sleeper {
    /// The sleeper's state, for a sleeper that waits for other events as well.
    #[must_use]
    pub fn bell(&self) -> &Bell {
        &self.shared.bell
    }

    /// The event that its wakers write to.
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    /// Waits until `at` ([`Instant::MAX`]: only for a wake-up). A wake-up since the last wait returned ends
    /// it at once. A simulated clock is advanced to `at` instead.
    pub fn wait_until(&mut self, at: Instant) -> Woken {
        exact_timers();
        let bell = &self.shared.bell;
        if !bell.prepare_sleep() {
            bell.take();
            return Woken::Notified;
        }
        if !self.clock.advance_to(at) {
            self.sleep(at - self.spin);
        }
        while self.shared.bell.is_sleeping() && self.clock.now() < at {
            std::hint::spin_loop();
        }
        if self.shared.bell.take() { Woken::Notified } else { Woken::TimedOut }
    }

    /// Polls until woken or until `at`.
    fn sleep(&self, at: Instant) {
        while self.shared.bell.is_sleeping() {
            let left = at.since(self.clock.now());
            if left == Duration::ZERO {
                return;
            }
            let timeout = timespec(left.0);
            let mut fds = [PollFd::new(&self.shared.event, PollFlags::IN)];
            match poll(&mut fds, (at != Instant::MAX).then_some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // The event may be that of an earlier wake-up, whose write came after its wait had returned:
                // empty it, and check the state again.
                Ok(_) => self.shared.event.clear(),
                // Out of kernel memory: an early return is allowed, but no busy loop.
                Err(_) => {
                    self.clock.sleep_until(at.min(self.clock.now() + Duration::from_millis(1)));
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn pair() -> (Clock, Sleeper, Waker) {
        let clock = Clock::new();
        let (sleeper, waker) = sleeper(clock, Duration::ZERO).unwrap();
        (clock, sleeper, waker)
    }

    #[test]
    fn waits_out_its_time_when_nobody_calls() {
        let (clock, mut sleeper, _waker) = pair();
        let at = clock.now() + Duration::from_millis(3);
        assert_eq!(sleeper.wait_until(at), Woken::TimedOut);
        assert!(clock.now() >= at);
        assert_eq!(sleeper.wait_until(Instant::ZERO), Woken::TimedOut);
    }

    #[test]
    fn a_call_while_awake_is_kept_for_one_wait() {
        let (_, mut sleeper, waker) = pair();
        waker.wake();
        waker.clone().wake();
        assert_eq!(sleeper.wait_until(Instant::MAX), Woken::Notified);
        assert_eq!(sleeper.wait_until(Instant::ZERO), Woken::TimedOut);
    }

    #[test]
    fn a_late_event_of_an_old_call_does_not_end_a_later_wait() {
        let (clock, mut sleeper, _waker) = pair();
        sleeper.shared.event.ring();
        let at = clock.now() + Duration::from_millis(3);
        assert_eq!(sleeper.wait_until(at), Woken::TimedOut);
        assert!(clock.now() >= at);
    }

    /// Waits for a time that differs from turn to turn, so that two threads meet at every stage.
    fn linger(turn: u64) {
        for _ in 0..(turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 500 {
            std::hint::spin_loop();
        }
    }

    /// Producers publish one item at a time and wait until it is seen; the sleeper waits with no time limit.
    /// So every single wake-up counts: with one producer, a lost one leaves both waiting for ever, which the
    /// deadline turns into a failure.
    fn ping_pong(producers: usize, rounds: u64) {
        let (clock, mut sleeper, waker) = pair();
        let end = clock.now() + Duration::from_secs(60);
        let lanes: Arc<Vec<[AtomicU64; 2]>> =
            Arc::new((0..producers).map(|_| [const { AtomicU64::new(0) }; 2]).collect());
        let work = Arc::clone(&lanes);
        let consumer = std::thread::spawn(move || {
            // Relaxed: the test is about the ordering of waker and sleeper.
            let mut looks = 0;
            while work.iter().any(|[_, seen]| seen.load(Ordering::Relaxed) < rounds) {
                for [published, seen] in work.iter() {
                    seen.store(published.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                // Wake-ups get lost between looking and sleeping: stay there for a moment.
                looks += 1;
                linger(looks);
                if work.iter().any(|[_, seen]| seen.load(Ordering::Relaxed) < rounds) {
                    sleeper.wait_until(Instant::MAX);
                }
            }
        });
        let producer = |lane: usize| {
            let [published, seen] = &lanes[lane];
            for round in 1..=rounds {
                linger(round);
                published.store(round, Ordering::Relaxed);
                waker.wake();
                while seen.load(Ordering::Relaxed) < round {
                    assert!(clock.now() < end, "the sleeper slept through call {round}");
                    std::thread::yield_now();
                }
            }
        };
        std::thread::scope(|scope| {
            for lane in 0..producers {
                scope.spawn(move || producer(lane));
            }
        });
        consumer.join().unwrap();
    }

    #[test]
    fn no_wake_is_lost() {
        ping_pong(1, 20_000);
    }

    #[test]
    fn no_wake_is_lost_among_several_producers() {
        ping_pong(3, 5_000);
    }
}
