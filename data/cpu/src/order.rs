//! The order among tasks that compete: the scheduler of `selvedge-data-sched`, a task a stream.
//!
//! A task is in an order only while it is awake, with the window that it has then. [`crate::progress`] keeps
//! the state of the tasks' windows, since tasks, unlike frames, leave unserved when they fall asleep.

use selvedge_data_sched::{Discipline, Head, Scheduler, StreamIndex, WindowSet};
use selvedge_data_stream::{Kind, Window, Windows};
use selvedge_units::{Bytes, Duration, Instant};

use crate::task::{Task, TaskId};

/// Tasks in the order of Table 1. `N` below is the number of tasks.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    sched: Scheduler,
    /// Whether tasks compete before their period begins.
    ahead: bool,
}

impl Order {
    pub(crate) fn new(ahead: bool) -> Self {
        Self { sched: Scheduler::new(Discipline::Dwcs), ahead }
    }

    /// Adds a task; its id is the same in every order with the same additions and removals.
    pub(crate) fn add(&mut self, task: &Task) -> (TaskId, WindowSet) {
        let stream = self.sched.add(&task.contract(self.ahead));
        (TaskId(stream.0), self.sched.windows(stream))
    }

    pub(crate) fn remove(&mut self, id: TaskId) {
        self.sched.remove(StreamIndex(id.0));
    }

    /// Lets a task compete for the period that ends at `deadline`. O(log N).
    pub(crate) fn insert(
        &mut self,
        id: TaskId,
        period: Duration,
        window: Window,
        deadline: Instant,
        woken_at: Instant,
    ) {
        let stream = StreamIndex(id.0);
        self.withdraw(id);
        // A window that differs from the previous one begins anew, so it has exactly this state.
        let other = Window { lose: 0, of: window.of ^ 1 };
        self.sched.set_windows(stream, Windows::Whole(other));
        self.sched.set_windows(stream, Windows::Whole(window));
        self.sched.set_period(stream, period);
        let deadline = Some(deadline);
        let head = Head { arrival: woken_at, kind: Kind::Data, deadline, size: Bytes(1) };
        self.sched.enqueue_head(stream, head);
    }

    /// Removes a task, if it is in. The scheduler counts a loss, in its copy of the window.
    pub(crate) fn withdraw(&mut self, id: TaskId) {
        if self.sched.head_deadline(StreamIndex(id.0)).is_some() {
            self.sched.drop_head(StreamIndex(id.0));
        }
    }

    /// The task that goes first at `now`.
    pub(crate) fn first(&self, now: Instant) -> Option<TaskId> {
        self.sched.choose(now).map(|stream| TaskId(stream.0))
    }

    /// Removes and returns a task whose deadline has come.
    pub(crate) fn poll_expired(&mut self, now: Instant) -> Option<TaskId> {
        self.sched.poll_expired(now).map(|expiry| TaskId(expiry.stream.0))
    }

    /// When the next deadline comes or period begins.
    pub(crate) fn next_event(&self, now: Instant) -> Option<Instant> {
        self.sched.next_event(now)
    }
}
