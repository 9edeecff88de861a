//! The clock of a run: `CLOCK_MONOTONIC` counted from the run's beginning, and precise sleeping.
//!
//! Every thread of a run holds a copy of the same [`Clock`], so that their instants compare. The pure rooms
//! never see it: they get the [`Instant`] that [`Clock::now`] returned.
//!
//! A clock may be advanced by hand instead: then time is simulated, and all its users - engine, sleepers,
//! frame producers - run the same code as in real time.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec, clock_gettime};
use selvedge_units::{Duration, Instant};

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Nanoseconds of `CLOCK_MONOTONIC` since the clock was made, or simulated ones. Copies share their
/// beginning, and the simulated time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: u64,
    /// The time of a clock that is advanced by hand.
    simulated_nanos: Option<&'static AtomicU64>,
}

/// The wall clock, for recordings; nothing is ever scheduled by it.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads it")]
pub fn wall_time() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// Confines this thread, and those that it will start, to one core. False if the system refuses.
#[must_use]
pub fn pin_to_core(core: usize) -> bool {
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return false;
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).is_ok()
}

impl Clock {
    /// The clock's beginning in nanoseconds of `CLOCK_MONOTONIC`: differs from run to run.
    #[must_use]
    pub const fn origin_nanos(&self) -> u64 {
        self.origin
    }

    /// A clock that reads [`Instant::ZERO`] now.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "making one reads the time")]
    pub fn new() -> Self {
        Self { origin: read(ClockId::Monotonic), simulated_nanos: None }
    }

    /// `CLOCK_MONOTONIC` itself: the same instants in every process of this machine.
    #[must_use]
    pub const fn shared() -> Self {
        Self { origin: 0, simulated_nanos: None }
    }

    /// A simulated clock, at [`Instant::ZERO`]. It stands still until [`advance_to`](Self::advance_to); a
    /// thread that sleeps by it advances it. Its copies may live for ever, so 8 bytes stay allocated.
    #[must_use]
    pub fn simulated() -> Self {
        Self { origin: 0, simulated_nanos: Some(Box::leak(Box::default())) }
    }

    /// Advances a simulated clock to an instant, unless it is past that; false for a real one.
    pub fn advance_to(&self, at: Instant) -> bool {
        let Some(hand) = self.simulated_nanos else { return false };
        hand.fetch_max(at.0, Ordering::SeqCst);
        true
    }

    /// Whether it shows the kernel's time rather than a simulated one.
    #[must_use]
    pub const fn is_real(&self) -> bool {
        self.simulated_nanos.is_none()
    }

    /// This clock, or a real one in place of a simulated one: for waits on the kernel, which knows no other
    /// time.
    #[must_use]
    pub fn real(self) -> Self {
        if self.simulated_nanos.is_some() { Self::new() } else { self }
    }

    /// The time now; never goes back.
    #[must_use]
    pub fn now(&self) -> Instant {
        if let Some(hand) = self.simulated_nanos {
            return Instant(hand.load(Ordering::SeqCst));
        }
        Instant(read(ClockId::Monotonic).saturating_sub(self.origin))
    }

    /// An instant in nanoseconds of `CLOCK_TAI`.
    #[must_use]
    pub fn tai_nanos(&self, at: Instant) -> u64 {
        let ahead = read(ClockId::Tai).saturating_sub(read(ClockId::Monotonic));
        self.origin.saturating_add(at.0).saturating_add(ahead)
    }

    /// When `CLOCK_REALTIME` read `stamp`, given both clocks now. Stamps in the future count as now, and
    /// stamps before `earliest` as `earliest`. So a step of the wall clock between stamp and reading cannot
    /// move an instant out of the interval in which it must lie.
    #[must_use]
    pub fn from_wall_stamp(&self, stamp: u64, read_at: WallReading, earliest: Instant) -> Instant {
        let age = Duration(read_at.wall.saturating_sub(stamp));
        (read_at.now - age).max(earliest).min(read_at.now)
    }

    /// This clock and `CLOCK_REALTIME`, read together. A thread may lose its processor between the two
    /// readings; then they are repeated, a few times at most.
    pub fn with_wall(&self) -> WallReading {
        const CLOSE: Duration = Duration::from_micros(1);
        let read_both = || {
            let before = self.now();
            let wall = read(ClockId::Realtime);
            let now = self.now();
            (WallReading { wall, now }, now.since(before))
        };
        let (mut best, mut closest) = read_both();
        for _ in 0..7 {
            if closest <= CLOSE {
                break;
            }
            let (reading, apart) = read_both();
            if apart < closest {
                (best, closest) = (reading, apart);
            }
        }
        best
    }

    /// Sleeps until `at`, returning at once if it has passed. Wakes late by the scheduler's
    /// wake-up latency (tens of microseconds on an idle machine), never early.
    pub fn sleep_until(&self, at: Instant) {
        self.sleep_until_exact(at, Duration::ZERO);
    }

    /// Sleeps until `spin` before `at`, then watches the clock: precise to some tens of nanoseconds while the
    /// thread keeps its processor, at the cost of `spin` of processor time.
    pub fn sleep_until_exact(&self, at: Instant, spin: Duration) {
        if self.advance_to(at) {
            return;
        }
        exact_timers();
        let wake = at - spin;
        while self.now() < wake {
            let request = timespec(self.origin.saturating_add(wake.0));
            match clock_nanosleep_absolute(ClockId::Monotonic, &request) {
                Ok(()) | Err(Errno::INTR) => {}
                // Only an unsupported clock or an invalid time leads here, and neither is possible: the clock
                // exists and `timespec` writes valid times. Yield the processor.
                Err(_) => std::thread::yield_now(),
            }
        }
        while self.now() < at {
            std::hint::spin_loop();
        }
    }
}

/// Both clocks at one instant.
#[derive(Clone, Copy, Debug)]
pub struct WallReading {
    /// Nanoseconds of `CLOCK_REALTIME`.
    pub wall: u64,
    /// The run's clock.
    pub now: Instant,
}

fn read(id: ClockId) -> u64 {
    nanos(clock_gettime(id))
}

/// Nanoseconds in a time of the kernel; zero for times before its epoch.
fn nanos(t: Timespec) -> u64 {
    let secs = u64::try_from(t.tv_sec).unwrap_or(0);
    secs.saturating_mul(NANOS_PER_SEC).saturating_add(u64::try_from(t.tv_nsec).unwrap_or(0))
}

/// A time in the kernel's form. The seconds of a `u64` of nanoseconds always fit.
pub fn timespec(nanos: u64) -> Timespec {
    Timespec {
        tv_sec: (nanos / NANOS_PER_SEC).cast_signed(),
        tv_nsec: (nanos % NANOS_PER_SEC).cast_signed(),
    }
}

/// Turns off, once per thread, the rounding of this thread's timers (50 us by default).
pub fn exact_timers() {
    thread_local!(static ASKED: Cell<bool> = const { Cell::new(false) });
    if !ASKED.replace(true) {
        // Refused only by kernels without timer slack, which round nothing.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_zero_and_does_not_go_back() {
        let clock = Clock::new();
        assert!(clock.now() < Instant::ZERO + Duration::from_secs(60));
        let mut last = Instant::ZERO;
        for _ in 0..1000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn copies_agree() {
        let clock = Clock::new();
        let copy = clock;
        let (before, between, after) = (clock.now(), copy.now(), clock.now());
        assert!(before <= between && between <= after);
    }

    #[test]
    fn never_wakes_early() {
        let clock = Clock::new();
        for spin in [Duration::ZERO, Duration::from_micros(200)] {
            let at = clock.now() + Duration::from_millis(2);
            clock.sleep_until_exact(at, spin);
            assert!(clock.now() >= at);
        }
        clock.sleep_until(Instant::ZERO);
    }

    #[test]
    fn a_clock_turned_by_hand_goes_only_where_it_is_turned() {
        let clock = Clock::simulated();
        let copy = clock;
        assert_eq!(copy.now(), Instant::ZERO);
        assert!(clock.advance_to(Instant(7)) && clock.advance_to(Instant(5)));
        assert_eq!(copy.now(), Instant(7));
        copy.sleep_until_exact(Instant(1 << 60), Duration(1 << 59));
        assert_eq!(clock.now(), Instant(1 << 60));
        assert_eq!(Clock::simulated().now(), Instant::ZERO);
        assert!(!Clock::new().advance_to(Instant::MAX));
    }

    #[test]
    fn a_wall_stamp_stays_between_the_last_look_and_now() {
        let clock = Clock::new();
        let now = Instant(5_000);
        let read_at = WallReading { wall: 1_000_000, now };
        let earliest = Instant(4_000);
        assert_eq!(clock.from_wall_stamp(999_800, read_at, earliest), Instant(4_800));
        assert_eq!(clock.from_wall_stamp(1_000_100, read_at, earliest), now);
        assert_eq!(clock.from_wall_stamp(0, read_at, earliest), earliest);
    }
}
