//! How the coprocessor's engine learns that frames arrived, and where it sleeps. Every producer has a
//! doorbell, and while both are awake neither makes a system call.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll;
use rustix::io::Errno;
use selvedge_data_memory::Bell;
use selvedge_os::clock::{Clock, exact_timers, timespec};
use selvedge_os::wake::{Sleeper, Woken};
use selvedge_place_engine::engine::Poller;
use selvedge_units::{Duration, Instant};

use crate::frame_consumer::SharedConsumer;
use crate::segment::{BELL_STREAMS, Doorbell};

/// A producer's doorbell, and the streams of its bits.
struct Producer {
    doorbell: Arc<Doorbell>,
    /// The stream's number on the link, by its bit.
    numbers: Vec<Option<usize>>,
    /// Streams that use it; a stream that is being removed may have lost its bit to another.
    streams: Vec<usize>,
}

/// The engine's view of all producers.
pub struct SharedPoller {
    clock: Clock,
    /// The control thread's wake-up.
    own: Sleeper,
    epoll: OwnedFd,
    bells: Vec<Producer>,
    /// How long the engine watches instead of sleeping: before an instant, and after the last frame.
    before: Duration,
    after: Duration,
}

impl SharedPoller {
    /// A poller without producers. It watches the clock for `before` ahead of an instant, and the doorbells
    /// for `after` before it sleeps ([`Duration`] of `u64::MAX`: it never sleeps).
    ///
    /// # Errors
    /// If no more file descriptors may be opened.
    pub fn new(
        clock: Clock,
        own: Sleeper,
        before: Duration,
        after: Duration,
    ) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, own.event(), epoll::EventData::new_u64(0), flags)?;
        Ok(Self { clock, own, epoll, bells: Vec::new(), before, after })
    }

    fn states(&self) -> impl Iterator<Item = &Bell> {
        let bells = self.bells.iter().map(|bell| bell.doorbell.state());
        std::iter::once(self.own.bell()).chain(bells)
    }

    /// Marks the engine as awake in all doorbells; returns whether a producer had rung.
    fn finish_sleep(&self) -> bool {
        self.states().fold(false, |called, state| state.take() | called)
    }

    /// Whether no producer has rung since it prepared to sleep.
    fn is_unnotified(&self) -> bool {
        self.states().all(Bell::is_sleeping)
    }

    /// Whether a producer has set a bit that was not taken.
    fn has_bits(&self) -> bool {
        self.bells.iter().any(|bell| {
            let words = bell.numbers.len().div_ceil(64);
            (0..words).any(|word| bell.doorbell.bits(word).load(Ordering::Relaxed) != 0)
        })
    }

    /// Sleeps until woken, or until `at`.
    fn sleep(&self, at: Instant) {
        while self.is_unnotified() {
            let left = at.since(self.clock.now());
            if left == Duration::ZERO {
                return;
            }
            let timeout = timespec(left.0);
            let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 16];
            let timeout = (at != Instant::MAX).then_some(&timeout);
            // Edge-triggered: an event that is older than this sleep ends it at most once.
            match epoll::wait(&self.epoll, &mut events[..], timeout) {
                Ok(_) | Err(Errno::INTR) => {}
                // An early return is allowed, but no busy loop.
                Err(_) => {
                    self.clock.sleep_until(at.min(self.clock.now() + Duration::from_millis(1)));
                    return;
                }
            }
        }
    }
}

impl Poller for SharedPoller {
    type FrameConsumer = SharedConsumer;

    fn ready(&mut self, look: &mut dyn FnMut(usize)) {
        for bell in &self.bells {
            for word in 0..bell.numbers.len().div_ceil(64) {
                let shared = bell.doorbell.bits(word);
                if shared.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                let mut bits = shared.swap(0, Ordering::Acquire);
                while bits != 0 {
                    let bit = word * 64 + bits.trailing_zeros() as usize;
                    // A bit without a stream has no meaning.
                    if let Some(number) = bell.numbers.get(bit).copied().flatten() {
                        look(number);
                    }
                    bits &= bits - 1;
                }
            }
        }
    }

    fn wait_until(&mut self, at: Instant) -> Woken {
        exact_timers();
        if self.after > Duration::ZERO {
            let until = at.min(self.clock.now() + self.after);
            loop {
                if self.has_bits() || !self.own.bell().is_awake() {
                    self.finish_sleep();
                    return Woken::Notified;
                }
                if self.clock.advance_to(until) || self.clock.now() >= until {
                    break;
                }
                std::hint::spin_loop();
            }
            if until == at {
                return Woken::TimedOut;
            }
        }
        // A producer may have rung since the engine looked; then it does not sleep.
        let lain = self.states().all(Bell::prepare_sleep);
        if !lain {
            self.finish_sleep();
            return Woken::Notified;
        }
        if !self.clock.advance_to(at) {
            self.sleep(at - self.before);
        }
        while self.is_unnotified() && self.clock.now() < at {
            std::hint::spin_loop();
        }
        if self.finish_sleep() { Woken::Notified } else { Woken::TimedOut }
    }

    fn attached(&mut self, number: usize, frame_consumer: &mut SharedConsumer) {
        let same = |bell: &Producer| Arc::ptr_eq(&bell.doorbell, &frame_consumer.bell);
        let at = self.bells.iter().position(same).unwrap_or_else(|| {
            let doorbell = Arc::clone(&frame_consumer.bell);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            // A doorbell that can't be watched is checked whenever the engine is awake for others.
            if let Err(error) =
                epoll::add(&self.epoll, doorbell.event(), epoll::EventData::new_u64(0), flags)
            {
                tracing::warn!(%error, "a producer's event can't be watched");
            }
            self.bells.push(Producer { doorbell, numbers: Vec::new(), streams: Vec::new() });
            self.bells.len() - 1
        });
        let bell = &mut self.bells[at];
        let bit = frame_consumer.bit.min(BELL_STREAMS - 1);
        if bell.numbers.len() <= bit {
            bell.numbers.resize(bit + 1, None);
        }
        bell.numbers[bit] = Some(number);
        bell.streams.push(number);
    }

    fn detached(&mut self, number: usize) {
        for bell in &mut self.bells {
            if let Some(slot) = bell.numbers.iter_mut().find(|slot| **slot == Some(number)) {
                *slot = None;
            }
            bell.streams.retain(|stream| *stream != number);
        }
        let epoll = &self.epoll;
        self.bells.retain(|bell| {
            if bell.streams.is_empty() {
                // Its producer may hold the event open; the engine no longer waits for it.
                let _ = epoll::delete(epoll, bell.doorbell.event());
                bell.doorbell.state().take();
            }
            !bell.streams.is_empty()
        });
    }
}
