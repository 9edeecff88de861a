//! Events for tasks, and the rules by which they revise the scheduler's choice.
//!
//! The queue is in the order in which events are due. The first event of a task that is awake is
//! "the first event in the event queue" of the thesis (3.3.1).

use alloc::vec::Vec;

use selvedge_units::{Duration, Instant};

use crate::task::TaskId;

/// Which of the event-aware rules (Q-Fabric thesis, 3.3.1) applied. The scheduler chose task `i`;
/// `j` is the sink of the first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Rule 1: `j = i`. The event is removed from the queue.
    SinkChosen,
    /// Rule 2: `i` is a best-effort task. `j` runs in its place, in addition to its service time.
    OverBestEffort,
    /// Rule 3: `i` is work-conserving and has had its service time in its period. `j` runs in its
    /// place, in addition to its service time.
    OverServed,
    /// Rule 4: neither has been served in its period, both have the same deadline, and `i` still
    /// makes it after `j`: `dt - C_j - C_i > 0`.
    SameDeadline,
    /// Rule 5: `i` is the task server. `j` runs on the server's time.
    TaskServer,
}

impl Rule {
    /// Its number in the thesis.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::SinkChosen => 1,
            Self::OverBestEffort => 2,
            Self::OverServed => 3,
            Self::SameDeadline => 4,
            Self::TaskServer => 5,
        }
    }
}

/// The queue holds as many events as it can: one is lost, and its task finds the data when it
/// runs the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} events wait already; the sink is told by its next period")]
pub struct EventsFull(pub usize);

/// An event that is being delivered: its sink runs for it.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    sink: TaskId,
    /// The rest of its service time.
    remaining: Duration,
}

/// The waiting events, and the one that is being delivered.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    /// In the order of their deadlines; then first come, first served. Never grows.
    waiting: Vec<(Instant, TaskId)>,
    delivery: Option<Delivery>,
}

impl Events {
    pub(crate) fn new(most: usize) -> Self {
        Self { waiting: Vec::with_capacity(most), delivery: None }
    }

    pub(crate) fn raise(&mut self, sink: TaskId, due: Instant) -> Result<(), EventsFull> {
        if self.waiting.len() == self.waiting.capacity() {
            return Err(EventsFull(self.waiting.len()));
        }
        let place = self.waiting.partition_point(|&(at, _)| at <= due);
        self.waiting.insert(place, (due, sink));
        Ok(())
    }

    /// The sink of the first event.
    pub(crate) fn first(&self, awake: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        if let Some(delivery) = self.delivery {
            return Some(delivery.sink);
        }
        self.waiting.iter().map(|&(_, sink)| sink).find(|&sink| awake(sink))
    }

    /// Removes the sink's first event from the queue; returns false if that was done before.
    fn take(&mut self, sink: TaskId) -> bool {
        if self.delivery.is_some_and(|delivery| delivery.sink == sink) {
            return false;
        }
        if let Some(place) = self.waiting.iter().position(|&(_, of)| of == sink) {
            self.waiting.remove(place);
        }
        true
    }

    /// Rule 1: the event is delivered without a change; returns whether delivery had not begun before.
    pub(crate) fn mark_delivered(&mut self, sink: TaskId) -> bool {
        let taken = self.take(sink);
        self.delivery = None;
        taken
    }

    /// The sink runs for its event, up to its service time; returns whether delivery had not begun before.
    pub(crate) fn deliver(&mut self, sink: TaskId, service: Duration) -> bool {
        let taken = self.take(sink);
        if taken {
            self.delivery = Some(Delivery { sink, remaining: service });
        }
        taken
    }

    /// How much longer the sink runs for its event.
    pub(crate) fn grant(&self) -> Option<Duration> {
        self.delivery.map(|delivery| delivery.remaining)
    }

    /// Charges the sink's time for its event.
    pub(crate) fn charge_sink(&mut self, used: Duration) {
        if let Some(delivery) = &mut self.delivery {
            delivery.remaining = delivery.remaining - used;
            if delivery.remaining == Duration::ZERO {
                self.delivery = None;
            }
        }
    }

    /// The sink sleeps: it has handled the event that it began.
    pub(crate) fn handle_sleep(&mut self, sink: TaskId) {
        if self.delivery.is_some_and(|delivery| delivery.sink == sink) {
            self.delivery = None;
        }
    }

    /// Removes a sink's events.
    pub(crate) fn forget(&mut self, sink: TaskId) {
        self.handle_sleep(sink);
        self.waiting.retain(|&(_, of)| of != sink);
    }
}
