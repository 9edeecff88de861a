//! The dispatcher is one thread that enforces one processor's decisions, a millisecond at a time.
//!
//! Between two samples the kernel goes by the levels. A task with promised time left runs as soon as it
//! wakes, unless another task was chosen. So a wake-up does not wait for a tick, and a task exceeds its
//! service time by at most a tick.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Mutex, MutexGuard};
use selvedge_data_cpu::{
    Config, Counts, EventsFull, Processor, Promise, Refused, Runs, Selected, Task, TaskId,
};
use selvedge_os::clock::Clock;
use selvedge_units::{Duration, Instant};

use crate::class::{self, Class};
use crate::members::{Level, MemberRule, Members};

/// The time between two samples.
pub const TICK: Duration = Duration::from_millis(1);
/// The number of samples between two searches for new threads.
const FIND_EVERY: u64 = 10;
/// The dispatcher's own priority: above all levels.
const PRIORITY: i32 = 50;

/// A task under the dispatcher.
#[derive(Debug)]
struct Dispatched {
    id: TaskId,
    members: Members,
    work_conserving: bool,
    /// Whether each wake-up is an event for it.
    events: bool,
    /// Whether it was asleep at the last sample.
    slept: bool,
    /// The kernel's first refusal to move one of its threads.
    refused: Option<String>,
}

#[derive(Debug)]
struct State {
    processor: Processor,
    tasks: Vec<Dispatched>,
    /// When the last sample was taken.
    last: Instant,
}

/// Decides about one processor, from its creation until it is dropped.
#[derive(Debug)]
pub struct Dispatcher {
    cpu: usize,
    clock: Clock,
    shared: Arc<(Mutex<State>, AtomicBool)>,
    thread: Option<JoinHandle<()>>,
}

/// The counts of a task so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its periods and times.
    pub counts: Counts,
    /// The kernel's first refusal to move one of its threads.
    pub refused: Option<String>,
}

impl Dispatcher {
    /// A dispatcher for one processor, without tasks. It sleeps while it has none.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new(cpu: usize, config: Config) -> std::io::Result<Self> {
        let clock = Clock::new();
        let last = clock.now();
        let state = State { processor: Processor::new(config), tasks: Vec::new(), last };
        let shared = Arc::new((Mutex::new(state), AtomicBool::new(false)));
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("dispatch-{cpu}"))
            .spawn(move || work(clock, &theirs.0, &theirs.1))?;
        Ok(Self { cpu, clock, shared, thread: Some(thread) })
    }

    /// The processor that it decides about.
    #[must_use]
    pub const fn cpu(&self) -> usize {
        self.cpu
    }

    /// Admits a task: it is confined to this processor, and dispatched from the next tick on. With `events`
    /// each of its wake-ups counts as an event for it, due by the end of its period, so that the event-aware
    /// rules favour it.
    ///
    /// # Errors
    /// [`Refused`] if not enough of the processor is left.
    #[expect(clippy::result_large_err, reason = "tasks are refused when they come, which is rare")]
    pub fn admit(
        &self,
        task: &Task,
        who: MemberRule,
        events: bool,
    ) -> Result<(TaskId, Promise), Refused> {
        let mut state = self.state();
        let id = state.processor.admit(task)?;
        let mut members = Members::new(who, Some(self.cpu));
        members.begin();
        let work_conserving = task.is_work_conserving();
        state.tasks.push(Dispatched {
            id,
            members,
            work_conserving,
            events,
            slept: true,
            refused: None,
        });
        let promise = state.processor.promise();
        drop(state);
        self.wake_dispatcher();
        Ok((id, promise))
    }

    /// Reports an event for a task, due in `left`, for which the task is about to be woken. The event-aware
    /// rules decide at once, so that a task that they favour wakes with its preference.
    ///
    /// # Errors
    /// [`EventsFull`] if too many events wait already; the task is preferred for those.
    pub fn raise(&self, id: TaskId, left: Duration) -> Result<(), EventsFull> {
        let mut state = self.state();
        if state.tasks.iter().any(|task| task.id == id) {
            let now = self.clock.now();
            let raised = state.processor.raise(id, now + left);
            // Even if its queue is full, it has events.
            state.processor.wake(id, now);
            state.enforce(now);
            raised?;
        }
        Ok(())
    }

    /// Whether a task would be admitted.
    #[must_use]
    pub fn would_admit(&self, task: &Task) -> bool {
        self.state().processor.clone().admit(task).is_ok()
    }

    /// The promised part of the processor, in hundredths of a per cent.
    #[must_use]
    pub fn load(&self) -> u64 {
        self.state().processor.load().basis_points()
    }

    /// The counts of a task so far; `None` if no task has this id.
    #[must_use]
    pub fn report(&self, id: TaskId) -> Option<Report> {
        let state = self.state();
        let task = state.tasks.iter().find(|task| task.id == id)?;
        Some(Report { counts: state.processor.counts(id), refused: task.refused.clone() })
    }

    /// Removes a task: its threads are ordinary again. Returns its counts.
    pub fn remove(&self, id: TaskId) -> Option<Report> {
        let report = self.report(id)?;
        let mut state = self.state();
        let place = state.tasks.iter().position(|task| task.id == id)?;
        state.tasks.swap_remove(place).members.release();
        state.processor.remove(id);
        Some(report)
    }

    /// Releases all tasks, and no longer dispatches them.
    pub fn release_all(&self) {
        let mut state = self.state();
        for mut task in std::mem::take(&mut state.tasks) {
            task.members.release();
            state.processor.remove(task.id);
        }
    }

    /// The number of tasks.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.state().tasks.len()
    }

    fn state(&self) -> LockedState<'_> {
        let ordinary = RaisedThread::raise();
        let state = self.shared.0.lock();
        LockedState { state, _ordinary: ordinary }
    }

    fn wake_dispatcher(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.shared.1.store(true, Ordering::Relaxed);
        self.wake_dispatcher();
        if let Some(thread) = self.thread.take() {
            // It panics only by a bug, whose message has been printed already.
            let _ = thread.join();
        }
        self.release_all();
    }
}

/// The state, locked by a thread that no task can delay meanwhile: the dispatcher waits for the lock, and a
/// task that runs until the dispatcher's next sample would run for ever.
struct LockedState<'a> {
    // Released before the class is restored.
    state: MutexGuard<'a, State>,
    _ordinary: Option<RaisedThread>,
}

impl std::ops::Deref for LockedState<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl std::ops::DerefMut for LockedState<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// An ordinary thread that is above all tasks until this is dropped.
struct RaisedThread(Class);

impl RaisedThread {
    /// Raises this thread; `None` if it is real-time already, or may not be.
    fn raise() -> Option<Self> {
        let before = match class::policy(0) {
            Ok(libc::SCHED_OTHER) => Class::Other,
            Ok(libc::SCHED_IDLE) => Class::Idle,
            _ => return None,
        };
        // A thread that may not be raised has no tasks that are.
        class::set(0, Class::Fifo(PRIORITY)).ok().map(|()| Self(before))
    }
}

impl Drop for RaisedThread {
    fn drop(&mut self) {
        // Every thread may return to its class.
        let _ = class::set(0, self.0);
    }
}

fn work(clock: Clock, state: &Mutex<State>, stop: &AtomicBool) {
    // Without the right it still counts, and the client has been notified.
    let _ = class::set(0, Class::Fifo(PRIORITY));
    let mut samples = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        let next = {
            let mut state = state.lock();
            if state.tasks.is_empty() { None } else { Some(state.sample(now, samples)) }
        };
        samples += 1;
        match next {
            Some(next) => clock.sleep_until(next),
            None => std::thread::park(),
        }
    }
}

impl State {
    /// Samples the tasks, decides, and enforces the decision; returns when to sample again.
    fn sample(&mut self, now: Instant, samples: u64) -> Instant {
        let Self { processor, tasks, last } = self;
        let last = std::mem::replace(last, now);
        let mut used = Duration::ZERO;
        for task in tasks.iter_mut() {
            if samples.is_multiple_of(FIND_EVERY) {
                task.members.find();
            }
            let seen = task.members.sample();
            used += seen.used;
            if seen.used > Duration::ZERO {
                // It ran, so it was awake, even if it slept at both samples.
                processor.wake(task.id, last);
            }
            processor.charge(task.id, seen.used);
            let slept = std::mem::replace(&mut task.slept, !seen.awake);
            if seen.awake {
                processor.wake(task.id, now);
                if task.events && slept {
                    // A full queue: the task has events in it already.
                    let _ = processor.raise(task.id, processor.deadline(task.id));
                }
            } else {
                processor.sleep(task.id, now);
            }
        }
        if let Some(reserve) = processor.reserve() {
            // The time that no task used went to best-effort tasks, or was idle.
            processor.charge(reserve, now.since(last) - used);
        }
        self.enforce(now)
    }

    /// Decides, and enforces the decision; returns when to decide again.
    fn enforce(&mut self, now: Instant) -> Instant {
        let Self { processor, tasks, .. } = self;
        processor.set_best_effort(true);
        let decision = processor.decide(now);
        for task in tasks.iter_mut() {
            let level = match decision.runs {
                Runs::Task(id) if id == task.id => match (decision.selected, decision.rule) {
                    (Selected::Task(_), _) | (_, Some(_)) => Level::Chosen,
                    (_, None) => Level::Ordinary,
                },
                _ if decision.selected == Selected::Reserve => Level::Spare,
                _ if processor.has_budget(task.id, now) => Level::Owed,
                _ if task.work_conserving => Level::Ordinary,
                _ => Level::Spare,
            };
            if let Some(error) = task.members.set_level(level) {
                task.refused.get_or_insert_with(|| error.to_string());
            }
        }
        decision.until.map_or(now + TICK, |until| until.min(now + TICK))
    }
}

#[cfg(test)]
mod tests;
