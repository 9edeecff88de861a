//! Wake-ups of tasks: none is missed, and none happens under a lock, since a waker runs foreign code.
//!
//! A task that found nothing adds its waker to [`WakerList`] and looks once more. A thread that
//! adds something takes the wakers afterwards. Under a lock it collects them in [`DueWakers`], and
//! invokes them once it has released all locks.

use core::mem;
use core::task::Waker;

use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Tasks that wait for something.
#[derive(Debug, Default)]
pub struct WakerList {
    some: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl WakerList {
    /// Wakes this task with the others, once. The task looks again after this call.
    pub fn add(&self, waker: &Waker) {
        let mut wakers = lock(&self.wakers);
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        self.some.store(true, Ordering::SeqCst);
    }

    /// The wakers to be invoked, if there are any: one atomic load if there are none.
    pub fn take(&self) -> Option<Vec<Waker>> {
        self.some.load(Ordering::SeqCst).then(|| {
            let mut wakers = lock(&self.wakers);
            self.some.store(false, Ordering::SeqCst);
            mem::take(&mut *wakers)
        })
    }
}

/// Wakers that are due.
#[derive(Debug, Default)]
pub struct DueWakers {
    some: AtomicBool,
    due: Mutex<Vec<Waker>>,
}

impl DueWakers {
    /// Adds wakers for the next call of [`DueWakers::ring`]; the caller rings afterwards.
    pub fn add(&self, wakers: Vec<Waker>) {
        lock(&self.due).extend(wakers);
        self.some.store(true, Ordering::Release);
    }

    /// Invokes the wakers. The caller holds no lock.
    pub fn ring(&self) {
        if self.some.load(Ordering::Acquire) && self.some.swap(false, Ordering::AcqRel) {
            let due = mem::take(&mut *lock(&self.due));
            due.into_iter().for_each(Waker::wake);
        }
    }
}
