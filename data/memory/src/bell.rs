//! Whether a reader sleeps, and whether a writer notified it: one word, in process or in memory that
//! processes share. Rings of frames, mailboxes, boards and threads' wake-ups all use it; the system call that
//! ends the sleep (futex, eventfd, signal) is up to its user.
//!
//! A writer publishes its work, then notifies; a reader prepares to sleep, and looks for work or a
//! notification before it does. There are two ways to notify:
//!
//! - [`notify`](Bell::notify) leaves a mark even with a reader that is awake, whose next sleep then ends at
//!   once, like the token of a parked thread. It is for readers that can't look for work themselves.
//! - [`notify_sleeper`](Bell::notify_sleeper) leaves a mark with a sleeping reader only, which looks for work
//!   after it has shown that it will sleep ([`prepare_sleep_unless`](Bell::prepare_sleep_unless)).
//!
//! If a writer and a reader do so at the same time, at least one sees the other, by the fences in between.
//! The loom tests try every interleaving.

use crate::sync::{AtomicU32, Ordering, fence};

/// The reader runs, and no writer notified it since it last woke.
const AWAKE: u32 = 0;
/// The reader sleeps, or is about to.
const SLEEPING: u32 = 1;
/// A writer notified; the reader has not noticed yet.
const NOTIFIED: u32 = 2;

/// A reader's state. A word that is none of the three counts as a notification.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Bell(AtomicU32);

impl Bell {
    /// The value of the word while the reader sleeps, on which a futex waits.
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

    /// Notifies the reader of work. True: the reader sleeps, and this caller must make the system call. A
    /// fence and a load if it has been notified already, an atomic swap if it is awake.
    #[must_use = "the reader waits for the system call"]
    pub fn notify(&self) -> bool {
        // The work was published before; this fence orders it before the load below. If the load reads
        // NOTIFIED, then the reader's swap that takes NOTIFIED away comes after it, and so, by the fence that
        // follows that swap in `take`, the reader sees the work.
        fence(Ordering::SeqCst);
        if self.0.load(Ordering::Relaxed) == NOTIFIED {
            return false;
        }
        // Otherwise the swap itself publishes (release) to the swap that takes the notification (acquire),
        // and exactly one caller sees SLEEPING and must make the system call.
        self.0.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING
    }

    /// Like [`notify`](Self::notify), but does not mark a reader that is awake. A fence and a load then.
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

    /// The reader is about to sleep; false if a writer notified it meanwhile.
    pub fn prepare_sleep(&self) -> bool {
        // Only AWAKE may become SLEEPING: a notification meanwhile must not be overwritten.
        self.0.compare_exchange(AWAKE, SLEEPING, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// The reader is about to sleep unless it finds work; false if it does, and then it stays awake.
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

    /// Whether no writer has notified since the reader prepared to sleep.
    #[must_use]
    pub fn is_sleeping(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SLEEPING
    }

    /// Whether the reader is awake and no writer has notified it.
    #[must_use]
    pub fn is_awake(&self) -> bool {
        self.0.load(Ordering::Relaxed) == AWAKE
    }

    /// Marks the reader as awake; returns whether it was notified.
    pub fn take(&self) -> bool {
        let before = self.0.swap(AWAKE, Ordering::AcqRel);
        // Pairs with the fence in `notify`, see there.
        fence(Ordering::SeqCst);
        before != AWAKE && before != SLEEPING
    }

    /// Marks the reader as awake; it looks for work by itself: notifications are forgotten.
    pub fn wake(&self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }
}
