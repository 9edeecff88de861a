//! Whether a reader sleeps, and whether a writer called it: one word, in process or in memory that
//! processes share. Rings of frames, mailboxes, boards and threads' wake-ups all use it; which system
//! call ends the sleep (futex, eventfd, signal) is not its business.
//!
//! A writer publishes its work, then calls; a reader prepares to sleep, and looks for work or a call
//! before it does. There are two ways to call:
//!
//! - [`call`](Bell::notify) leaves a mark even with a reader that is awake, whose next sleep then ends at
//!   once, like the token of a parked thread. It is for readers that can't look for work themselves.
//! - [`notify_sleeper`](Bell::notify_sleeper) leaves one with a sleeping reader only, which looks for work
//!   after it has shown that it will sleep ([`prepare_sleep_unless`](Bell::prepare_sleep_unless)).
//!
//! Of a writer and a reader that do so at the same time at least one sees the other, by the fences in
//! between. The loom tests try every interleaving.

use crate::sync::{AtomicU32, Ordering, fence};

/// The reader runs, and nobody called since it last woke.
const AWAKE: u32 = 0;
/// The reader sleeps, or is about to.
const SLEEPING: u32 = 1;
/// A writer called; the reader has not taken notice yet.
const NOTIFIED: u32 = 2;

/// A reader's state. A word that is none of the three counts as a call.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Bell(AtomicU32);

impl Bell {
    /// What the word holds while the reader sleeps: what a futex waits on.
    pub const SLEEPING: u32 = SLEEPING;

    /// A word of shared memory as a bell.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn of(word: &AtomicU32) -> &Self {
        // SAFETY: a bell is transparent, and every pattern of bits is one.
        unsafe { &*core::ptr::from_ref(word).cast() }
    }

    /// The word, for a futex.
    #[must_use]
    pub const fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Says that there is work. True: the reader sleeps, and this caller owes it the system call. A
    /// fence and a load if it has been called already, an atomic swap if it is awake.
    #[must_use = "the reader waits for the system call"]
    pub fn notify(&self) -> bool {
        // The work was published before; this fence orders it before the load below. If the load
        // reads CALLED, then the reader's swap that takes CALLED away comes after it, and so,
        // by the fence that follows that swap in `take`, the reader sees the work.
        fence(Ordering::SeqCst);
        if self.0.load(Ordering::Relaxed) == NOTIFIED {
            return false;
        }
        // Otherwise the swap itself publishes (release) to the swap that takes the call
        // (acquire), and exactly one caller sees ASLEEP and owes the system call.
        self.0.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING
    }

    /// As [`call`](Self::notify), but a reader that is awake is left alone. A fence and a load then.
    #[must_use = "the reader waits for the system call"]
    #[inline]
    pub fn notify_sleeper(&self) -> bool {
        // Orders the work, published before, before the load: see `prepare_sleep_unless`.
        fence(Ordering::SeqCst);
        self.is_sleeping()
            && self
                .0
                .compare_exchange(SLEEPING, NOTIFIED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// The reader is about to sleep; false if a writer called meanwhile.
    pub fn prepare_sleep(&self) -> bool {
        // Only AWAKE may become ASLEEP: a call that came meanwhile must not be overwritten.
        self.0.compare_exchange(AWAKE, SLEEPING, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// The reader is about to sleep unless it finds work; false if it does, and nobody sleeps.
    pub fn prepare_sleep_unless(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.0.store(SLEEPING, Ordering::Relaxed);
        // Either the writer's load in `notify_sleeper` sees this store, or `has_work` sees its work.
        fence(Ordering::SeqCst);
        let sleeps = !has_work();
        if !sleeps {
            self.wake();
        }
        sleeps
    }

    /// Whether nobody has called since the reader prepared to sleep.
    #[must_use]
    pub fn is_sleeping(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SLEEPING
    }

    /// Whether the reader is awake and nobody has called.
    #[must_use]
    pub fn is_awake(&self) -> bool {
        self.0.load(Ordering::Relaxed) == AWAKE
    }

    /// The reader is awake; whether there was a call.
    pub fn take(&self) -> bool {
        let before = self.0.swap(AWAKE, Ordering::AcqRel);
        // Pairs with the fence in `call`, see there.
        fence(Ordering::SeqCst);
        before != AWAKE && before != SLEEPING
    }

    /// The reader is awake and looks for work by itself: calls are forgotten.
    pub fn wake(&self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }
}
