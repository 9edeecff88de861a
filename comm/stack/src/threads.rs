//! Elements on threads: each is a loop, started and stopped with its endpoint.

mod stream;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, JoinHandle, Thread};

use selvedge_data_stack::elements::{ElementId, ElementSet};
use selvedge_os::clock::Clock;
use selvedge_place_cpu::class::{Tid, this_thread};
use selvedge_units::{Duration, Instant};

use crate::element::{ModuleChain, Pipeline, ProcessingElement};

pub use self::stream::{Null, stream};

/// Empty turns before a thread sleeps: some microseconds, less than a wake-up costs. The core may
/// be needed by the very thread that this one waits for.
const SPINS: u32 = 64;
/// The longest sleep of a thread that is not woken.
const REST: Duration = Duration::from_micros(500);
/// How often in a row a thread yields to threads that wait for its element.
const YIELDS: u32 = 1000;
/// How often a thread that enqueued a message tries to lock the element: some 10 us, which is what
/// the largest message takes.
const TRIES: u32 = 400;
/// Messages of one turn, at most.
const TURN_MAX: usize = 64;
/// A poll takes less. During a longer one the thread had no processor, and used none up.
const POLL_MAX: Duration = Duration::from_micros(5);
/// The interval between runs of the modules' timeouts.
const TICK: Duration = Duration::from_micros(200);

/// An element, locked by the thread that serves it at the moment: its own, or a sender.
#[derive(Debug)]
struct ElementSlot<W: ModuleChain> {
    element: Mutex<LockedElement<W>>,
    /// Threads that wait for the element. Without this count its own thread would lock it again first.
    waiters: AtomicUsize,
    /// The element's thread has to look, even if it must wait for the lock.
    notified: AtomicBool,
    /// That thread, once it runs.
    thread: OnceLock<Thread>,
    counts: ElementCounts,
}

/// What an element did so far.
#[derive(Debug, Default)]
pub(crate) struct ElementCounts {
    /// Messages that it dequeued.
    pub(crate) messages: AtomicU64,
    /// Turns of its thread that found nothing.
    pub(crate) empty_polls: AtomicU64,
    /// The nanoseconds that these took.
    pub(crate) polling: AtomicU64,
    /// How often its thread went on after a sleep.
    pub(crate) wake_ups: AtomicU64,
}

#[derive(Debug)]
struct LockedElement<W: ModuleChain> {
    element: ProcessingElement<W>,
    ticked: Instant,
}

impl<W: ModuleChain> ElementSlot<W> {
    fn new(n: u8) -> Self {
        let element = ProcessingElement::new(ElementId(n));
        let element = Mutex::new(LockedElement { element, ticked: Instant::ZERO });
        Self {
            element,
            waiters: AtomicUsize::new(0),
            notified: AtomicBool::new(true),
            thread: OnceLock::new(),
            counts: ElementCounts::default(),
        }
    }

    /// Locks the element for another thread than its own.
    fn lock(&self) -> MutexGuard<'_, LockedElement<W>> {
        self.waiters.fetch_add(1, Ordering::AcqRel);
        let element = self.element.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_sub(1, Ordering::AcqRel);
        element
    }

    /// Locks the element for its own thread, after the threads that wait for it. A thread that was
    /// not notified and only checks timeouts leaves the element to its current holder.
    fn lock_for_thread(
        &self,
        idle: bool,
        is_reserved: bool,
    ) -> Option<MutexGuard<'_, LockedElement<W>>> {
        if !self.notified.swap(false, Ordering::AcqRel) && idle {
            return self.try_take();
        }
        // A thread of SCHED_DEADLINE that yields gives up the rest of its period.
        for _ in 0..if is_reserved { 0 } else { YIELDS } {
            if self.waiters.load(Ordering::Acquire) == 0 {
                break;
            }
            thread::yield_now();
        }
        Some(self.element.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks the element if it is free now or soon: its thread yields after each message. Leaving a message
    /// to that thread costs a miss of its core's cache, and a sender that runs ahead evicts the others.
    fn take(&self) -> Option<MutexGuard<'_, LockedElement<W>>> {
        let now = self.try_take();
        if now.is_some() {
            return now;
        }
        self.waiters.fetch_add(1, Ordering::AcqRel);
        let soon = (0..TRIES).find_map(|_| {
            std::hint::spin_loop();
            self.try_take()
        });
        self.waiters.fetch_sub(1, Ordering::AcqRel);
        soon
    }

    fn try_take(&self) -> Option<MutexGuard<'_, LockedElement<W>>> {
        match self.element.try_lock() {
            Ok(element) => Some(element),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Has the element's thread look. It sleeps no longer.
    fn notify(&self) {
        self.notified.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Runs a turn of the element, until `enough`; returns whether there was anything to do. The elements that get
    /// messages are notified, of all that there are.
    fn turn(
        &self,
        served: &mut LockedElement<W>,
        clock: Clock,
        slots: &[Arc<Self>],
        enough: impl Fn() -> bool,
    ) -> bool {
        let (LockedElement { element, ticked }, now) = (served, clock.now());
        let (mut worked, mut woken) = (0, ElementSet::EMPTY);
        for _ in 0..TURN_MAX {
            let Some(job) = element.process_next(now) else { break };
            element.forward_result(job, now);
            worked += 1;
            let handed = element.take_handed();
            notify_all(slots, handed.without(woken));
            woken = woken.or(handed);
            if enough() {
                break;
            }
        }
        if now.since(*ticked) >= TICK {
            *ticked = now;
            element.handle_timeout(now);
        }
        // One that was notified at the first message may sleep again at the last.
        if worked > 1 {
            notify_all(slots, woken);
        }
        notify_all(slots, element.take_handed());
        if worked > 0 {
            self.counts.messages.fetch_add(worked, Ordering::Relaxed);
        }
        worked > 0
    }
}

fn notify_all<W: ModuleChain>(slots: &[Arc<ElementSlot<W>>], ids: ElementSet) {
    ids.iter().filter_map(|id| slots.get(usize::from(id.0))).for_each(|slot| slot.notify());
}

/// Called after each turn, without locks.
type After = Arc<dyn Fn() + Send + Sync>;

/// Elements that serve pipelines, each with a thread.
pub struct ElementThreads<W: ModuleChain + 'static> {
    slots: Arc<[Arc<ElementSlot<W>>]>,
    threads: Vec<JoinHandle<()>>,
    tids: Vec<Tid>,
    /// Whether the threads have reserved processor time, so that they serve and no other thread does.
    is_reserved: Arc<AtomicBool>,
    /// Whether a thread that enqueues a message may run an element's turn.
    senders_serve: bool,
    clock: Clock,
    stop: Arc<AtomicBool>,
    after: After,
}

impl<W: ModuleChain + 'static> fmt::Debug for ElementThreads<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elementary").field("seats", &self.slots).finish_non_exhaustive()
    }
}

impl<W: ModuleChain + 'static> ElementThreads<W> {
    /// Starts `count` elements. The system chooses their cores, since other endpoints have elements
    /// with the same numbers.
    ///
    /// # Errors
    /// The system's error if a thread can't be started.
    pub fn start(count: u8, clock: Clock) -> std::io::Result<Self> {
        Self::start_with(count, clock, true, || {})
    }

    /// The same; `after` is called after each turn of an element, by the thread that served it,
    /// without locks. Unless `senders_serve`, threads that send run no turns.
    ///
    /// # Errors
    /// As [`ElementThreads::start`].
    pub fn start_with(
        count: u8,
        clock: Clock,
        senders_serve: bool,
        after: impl Fn() + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let after: After = Arc::new(after);
        let stop = Arc::new(AtomicBool::new(false));
        let slots: Arc<[Arc<ElementSlot<W>>]> =
            (0..count).map(|n| Arc::new(ElementSlot::new(n))).collect();
        let is_reserved = Arc::new(AtomicBool::new(false));
        let (mut threads, mut tids) = (Vec::new(), Vec::new());
        for n in 0..slots.len() {
            let (slots, stop, after) = (Arc::clone(&slots), Arc::clone(&stop), Arc::clone(&after));
            let (reserved, (named, name)) = (Arc::clone(&is_reserved), channel());
            let body = move || {
                let _ = named.send(this_thread());
                serve(&slots, n, clock, &stop, &reserved, &*after);
            };
            threads.push(thread::Builder::new().name(format!("element {n}")).spawn(body)?);
            tids.extend(name.recv());
        }
        Ok(Self { slots, threads, tids, is_reserved, senders_serve, clock, stop, after })
    }

    /// The system's numbers of the threads.
    pub(crate) fn tids(&self) -> &[Tid] {
        &self.tids
    }

    /// Has the threads serve alone from now on, since they have reserved processor time.
    pub(crate) fn set_reserved(&self) {
        self.is_reserved.store(true, Ordering::Release);
    }

    /// Whether the threads serve alone.
    pub(crate) fn is_reserved(&self) -> bool {
        self.is_reserved.load(Ordering::Acquire)
    }

    /// Serves this pipeline from now on, as it is assigned.
    pub fn add(&self, pipeline: &Arc<Pipeline<W>>) {
        self.slots.iter().for_each(|slot| slot.lock().element.add(Arc::clone(pipeline)));
        self.wake();
    }

    /// Stops serving this pipeline.
    pub fn remove(&self, pipeline: &Arc<Pipeline<W>>) {
        self.slots.iter().for_each(|slot| slot.lock().element.remove(pipeline));
    }

    /// What each element did so far.
    pub(crate) fn counts(&self) -> impl Iterator<Item = &ElementCounts> {
        self.slots.iter().map(|slot| &slot.counts)
    }

    /// Wakes all elements, since messages were put into all pipelines.
    pub fn wake(&self) {
        self.slots.iter().for_each(|slot| slot.notify());
    }

    /// Notifies the elements that a message was put into this pipeline. If one element serves all
    /// of it and is free, the caller runs its turn: a wake-up would cost more, and the caller's
    /// core has the message in its cache. If several elements serve it, their threads share the
    /// work. With `idle` the caller has nothing more to enqueue. Threads with reserved time flush by
    /// themselves, and an application's thread has no such time to run a turn in.
    pub fn notify_or_run(&self, pipeline: &Pipeline<W>, idle: bool) {
        if self.is_reserved() || !self.senders_serve {
            if !pipeline.is_drained() {
                notify_all(&self.slots, pipeline.assigned_elements());
            }
            return;
        }
        self.run(pipeline, idle);
    }

    /// [`ElementThreads::notify_or_run`], by a thread that has reserved time if the elements have.
    pub(crate) fn run(&self, pipeline: &Pipeline<W>, idle: bool) {
        let assigned_elements = pipeline.assigned_elements();
        let mut ids = assigned_elements.iter().map(|id| usize::from(id.0));
        if assigned_elements.count() == 1
            && let Some(slot) = ids.next().and_then(|id| self.slots.get(id))
            && let Some(mut served) = slot.take()
        {
            let more =
                slot.turn(&mut served, self.clock, &self.slots, || false) && !pipeline.is_drained();
            served.element.flush(self.clock.now(), idle);
            drop(served);
            (self.after)();
            if !more {
                return;
            }
        }
        notify_all(&self.slots, assigned_elements);
    }
}

impl<W: ModuleChain + 'static> Drop for ElementThreads<W> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
        let me = thread::current().id();
        // The thread that drops this may be an element's own.
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != me) {
            let _ = thread.join();
        }
    }
}

fn serve<W: ModuleChain>(
    slots: &[Arc<ElementSlot<W>>],
    n: usize,
    clock: Clock,
    stop: &AtomicBool,
    is_reserved: &AtomicBool,
    after: &dyn Fn(),
) {
    let slot = &slots[n];
    let _ = slot.thread.set(thread::current());
    let (mut idle, counts) = (0, &slot.counts);
    while !stop.load(Ordering::Acquire) {
        let is_reserved = is_reserved.load(Ordering::Relaxed);
        // Spinning would use up reserved time.
        let spins = if is_reserved { 1 } else { SPINS };
        let begun = clock.now();
        let locked = slot.lock_for_thread(idle >= spins, is_reserved);
        let worked = locked.is_some_and(|mut served| {
            let wanted = || slot.waiters.load(Ordering::Acquire) > 0;
            let worked = slot.turn(&mut served, clock, slots, wanted);
            served.element.flush(clock.now(), !worked);
            worked
        });
        after();
        if worked {
            idle = 0;
            continue;
        }
        let polled = clock.now().since(begun).min(POLL_MAX);
        counts.empty_polls.fetch_add(1, Ordering::Relaxed);
        counts.polling.fetch_add(polled.0, Ordering::Relaxed);
        if idle < spins {
            idle += 1;
            std::hint::spin_loop();
        } else {
            thread::park_timeout(REST.into());
            counts.wake_ups.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::element::{EntryPort, External};
    use selvedge_data_stack::elements::ElementSet;

    use super::stream::STREAM_MAX;
    use super::*;

    #[test]
    fn threads_serve_what_is_assigned_and_end() {
        let elementary = ElementThreads::start(2, Clock::new()).unwrap();
        let pipeline = Arc::new(Pipeline::new(Null::new(3), 16));
        (0..3).for_each(|place| pipeline.assign_both(place, ElementSet::first(2)));
        elementary.add(&pipeline);
        let mut port = EntryPort::new(Arc::clone(&pipeline), External::Network);
        let mut put = 0;
        let begun = Clock::new();
        while pipeline.work().left() < 1000 {
            if put < 1000 && port.enqueue(put).is_ok() {
                put += 1;
                elementary.wake();
            }
            thread::yield_now();
            assert!(begun.now() < STREAM_MAX, "{} of 1000 came out", pipeline.work().left());
        }
        elementary.remove(&pipeline);
    }

    #[test]
    fn a_stream_comes_through() {
        assert!(stream(2, 1000) > Duration::ZERO);
    }
}
