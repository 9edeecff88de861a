//! One processor: its tasks, the decision, and the revision of it by events.
//!
//! Tasks with service time left compete in one [`Order`], each from the beginning of its period on. If there
//! is none, work-conserving tasks compete in another order, by the period in which they are to be served
//! next. Then come best-effort tasks, which are not distinguished here. The two servers are tasks themselves:
//! the task server of Rule 5, and a reserve that keeps best-effort tasks from starving (thesis, 6.4.1: "U95%
//! in place of U100%").

use alloc::vec::Vec;

use selvedge_data_stream::Window;
use selvedge_units::{Duration, Instant};

use crate::admission::{self, Demand, Refused};
use crate::decision::{Config, Decision, Runs, Selected};
use crate::event::{Events, EventsFull, Rule};
use crate::order::Order;
use crate::progress::Progress;
use crate::task::{Task, TaskId};

/// One processor's tasks. The loop: report events ([`wake`](Self::wake), [`sleep`](Self::sleep),
/// [`raise`](Self::raise)), call [`decide`](Self::decide), run its choice, report the used time
/// ([`charge_chosen`](Self::charge_chosen)), and repeat. Time never goes back: an earlier `now` counts as the
/// latest seen. `N` below is the number of tasks.
///
/// # Panics
/// Methods that take a task panic if there is none of that id: using an id after
/// [`remove`](Self::remove) is a bug of the caller.
#[derive(Clone, Debug)]
pub struct Processor {
    pub(crate) config: Config,
    pub(crate) tasks: Vec<Option<Progress>>,
    /// Tasks that are awake, by the period in which they have service time left.
    owed: Order,
    /// Of those, the work-conserving ones.
    ahead: Order,
    events: Events,
    pub(crate) reserve: Option<TaskId>,
    pub(crate) server: Option<TaskId>,
    pub(crate) needs: Demand,
    best_effort: bool,
    clock: Instant,
    runs: Runs,
    /// The task whose service time is charged.
    account: Option<TaskId>,
    /// Whether it runs for an event.
    for_event: bool,
}

impl Default for Processor {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl Processor {
    /// A processor without tasks.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let needs = admission::check(config.best_effort.iter());
        let mut processor = Self {
            config,
            tasks: Vec::new(),
            owed: Order::new(false),
            ahead: Order::new(true),
            events: Events::new(config.events_max),
            reserve: None,
            server: None,
            needs: needs.expect("one task needs no more than its whole period"),
            best_effort: false,
            clock: Instant::ZERO,
            runs: Runs::Idle,
            account: None,
            for_event: false,
        };
        processor.reserve = config.best_effort.map(|task| processor.insert_task(&task));
        if config.task_server {
            // Its real attributes follow from those of the other tasks.
            let task = Task { work_conserving: false, ..UNIT };
            processor.server = Some(processor.insert_task(&task));
            processor.update_server();
        }
        processor
    }

    /// Adds a task, asleep. O(N); with [`new`](Self::new) and [`remove`](Self::remove) the only
    /// methods that allocate.
    ///
    /// # Errors
    /// [`Refused`] if all tasks would need more than the whole processor.
    pub fn admit(&mut self, task: &Task) -> Result<TaskId, Refused> {
        let reserve = self.config.best_effort;
        self.needs = admission::check(self.set().chain([task]))
            .map_err(|refused| Refused { reserve, ..refused })?;
        let id = self.insert_task(task);
        self.update_server();
        Ok(id)
    }

    /// Removes a task, and its events. Its id is free for the next. O(N).
    pub fn remove(&mut self, id: TaskId) {
        let _present = self.task(id);
        self.tasks[id.0 as usize] = None;
        self.owed.remove(id);
        self.ahead.remove(id);
        self.events.forget(id);
        if self.account == Some(id) {
            self.account = None;
        }
        if self.runs == Runs::Task(id) {
            self.runs = Runs::Idle;
        }
        self.needs = admission::check(self.set()).expect("fewer tasks need less");
        self.update_server();
    }

    /// The task wants to run. O(log N).
    pub fn wake(&mut self, id: TaskId, now: Instant) {
        self.clock = self.clock.max(now);
        let now = self.clock;
        let task = self.task_mut(id);
        if !task.awake {
            task.wake(now);
            self.enter(id);
        }
    }

    /// The task does not want to run; to be called after [`charge_chosen`](Self::charge_chosen). O(log N).
    pub fn sleep(&mut self, id: TaskId, now: Instant) {
        self.clock = self.clock.max(now);
        let task = self.task_mut(id);
        if core::mem::take(&mut task.awake) {
            self.owed.withdraw(id);
            self.ahead.withdraw(id);
            self.events.handle_sleep(id);
        }
    }

    /// Whether any best-effort task wants to run.
    pub const fn set_best_effort(&mut self, waits: bool) {
        self.best_effort = waits;
    }

    /// An event arrives for a task, to be handled by `due`: the order among events. The task must wake for
    /// it, if it is asleep. O(E) for E waiting events.
    pub fn raise(&mut self, sink: TaskId, due: Instant) -> Result<(), EventsFull> {
        let _present = self.task(sink);
        self.events.raise(sink, due)
    }

    /// Charges the last choice with the time `used`. A task that used more than its service time keeps the
    /// excess. O(log N).
    pub fn charge_chosen(&mut self, used: Duration) {
        let mut paid = Duration::ZERO;
        if let Some(id) = self.account {
            let task = self.task_mut(id);
            paid = used.min(task.left);
            task.left = task.left - used;
            if task.left == Duration::ZERO {
                task.served();
                if task.awake {
                    self.enter(id);
                }
            }
        }
        let Runs::Task(runner) = self.runs else { return };
        let own = self.account == Some(runner);
        let counts = &mut self.task_mut(runner).counts;
        counts.ran += used;
        counts.extra += if own { used - paid } else { used };
        if self.for_event {
            self.events.charge_sink(used);
        }
    }

    /// Charges a task with the time `used` since the last decision, whatever was chosen: for a caller that
    /// measures, in place of [`charge_chosen`](Self::charge_chosen). The time is taken from the task's
    /// service time, if its period had begun by then. O(log N).
    pub fn charge(&mut self, id: TaskId, used: Duration) {
        let clock = self.clock;
        let task = self.task_mut(id);
        let owed = task.period_start() <= clock;
        let paid = if owed { used.min(task.left) } else { Duration::ZERO };
        task.counts.ran += used;
        task.counts.extra += used - paid;
        task.left = task.left - paid;
        if task.left == Duration::ZERO {
            task.served();
            if task.awake {
                self.enter(id);
            }
        }
        if self.for_event && self.runs == Runs::Task(id) {
            self.events.charge_sink(used);
        }
    }

    /// Whether a task has service time left in a period that has begun.
    #[must_use]
    pub fn has_budget(&self, id: TaskId, now: Instant) -> bool {
        self.task(id).period_start() <= now
    }

    /// Decides which task runs from now on. Counts the misses of periods that ended by then. O(log N) for
    /// each period that ended or began since the last decision.
    pub fn decide(&mut self, now: Instant) -> Decision {
        self.clock = self.clock.max(now);
        let now = self.clock;
        self.update_servers(now);
        while let Some(id) = self.owed.poll_expired(now) {
            self.task_mut(id).miss_until(now);
            self.enter(id);
        }
        let selected = self.select(now);
        let (runs, account, rule) = self.apply_event_rules(selected, now);
        (self.runs, self.account) = (runs, account);
        self.for_event = rule.is_some_and(|rule| rule != Rule::SinkChosen);
        let left = account.map(|id| now + self.task(id).left);
        let granted = self.events.grant().filter(|_| self.for_event).map(|left| now + left);
        let until = [left, granted, self.owed.next_event(now)].into_iter().flatten().min();
        Decision { runs, selected, rule, until }
    }

    /// DWCS, Table 1.
    fn select(&self, now: Instant) -> Selected {
        match (self.owed.first(now), self.best_effort) {
            (Some(id), _) if self.server == Some(id) => Selected::TaskServer,
            (Some(id), _) if self.reserve == Some(id) => Selected::Reserve,
            (Some(id), _) => Selected::Task(id),
            (None, best_effort) => match self.ahead.first(now) {
                Some(id) => Selected::Served(id),
                None if best_effort => Selected::BestEffort,
                None => Selected::Idle,
            },
        }
    }

    /// The event scheduler of the thesis, 3.3.1: which task runs, on whose time, and by which rule.
    fn apply_event_rules(
        &mut self,
        selected: Selected,
        now: Instant,
    ) -> (Runs, Option<TaskId>, Option<Rule>) {
        let unrevised = match selected {
            Selected::Task(i) => (Runs::Task(i), Some(i)),
            Selected::Served(i) => (Runs::Task(i), None),
            Selected::TaskServer => (Runs::BestEffort, self.server),
            Selected::Reserve => (Runs::BestEffort, self.reserve),
            Selected::BestEffort => (Runs::BestEffort, None),
            Selected::Idle => (Runs::Idle, None),
        };
        let first = self.events.first(|id| self.task(id).awake);
        let Some(j) = first else { return (unrevised.0, unrevised.1, None) };
        let (rule, account) = match selected {
            Selected::Task(i) | Selected::Served(i) if i == j => {
                if self.events.mark_delivered(j) {
                    self.task_mut(j).counts.events += 1;
                }
                return (unrevised.0, unrevised.1, Some(Rule::SinkChosen));
            }
            Selected::BestEffort | Selected::Idle => (Rule::OverBestEffort, None),
            Selected::Served(_) => (Rule::OverServed, None),
            Selected::Task(i) if self.rule_4_allows(i, j, now) => (Rule::SameDeadline, Some(j)),
            Selected::TaskServer => (Rule::TaskServer, self.server),
            Selected::Task(_) | Selected::Reserve => return (unrevised.0, unrevised.1, None),
        };
        if self.events.deliver(j, self.task(j).task.service) {
            self.task_mut(j).counts.events += 1;
        }
        (Runs::Task(j), account, Some(rule))
    }

    /// Rule 4's condition.
    fn rule_4_allows(&self, i: TaskId, j: TaskId, now: Instant) -> bool {
        let (i, j) = (self.task(i), self.task(j));
        let remaining = i.deadline.since(now).0;
        let both = i.left.0.saturating_add(j.left.0);
        i.deadline == j.deadline && j.period_start() <= now && remaining > both
    }

    /// Lets a task compete for the period in which it is to be served next.
    fn enter(&mut self, id: TaskId) {
        let Some(task) = &self.tasks[id.0 as usize] else { return };
        let (period, window) = (task.task.period, task.window());
        self.owed.insert(id, period, window, task.deadline, task.woken_at);
        if task.task.work_conserving {
            self.ahead.insert(id, period, window, task.deadline, task.woken_at);
        }
    }

    /// The servers want to run while the tasks that they serve do.
    fn update_servers(&mut self, now: Instant) {
        if let Some(id) = self.reserve {
            self.set_awake(id, self.best_effort, now);
        }
        let Some(id) = self.server else { return };
        let first = self.events.first(|id| self.task(id).awake);
        let service = first.map_or(self.config.unit, |sink| self.task(sink).task.service);
        let server = self.task(id);
        if service != server.task.service && server.is_unserved() {
            // "The attributes have to be re-calculated when the service time of the first event
            // in the event queue changes."
            self.sleep(id, now);
            self.set_server(id, service);
        }
        let wanted = first.is_some() || self.best_effort;
        self.set_awake(id, wanted && self.server_period(service).is_some(), now);
    }

    fn set_awake(&mut self, id: TaskId, wants: bool, now: Instant) {
        if wants {
            self.wake(id, now);
        } else {
            self.sleep(id, now);
        }
    }

    fn set_server(&mut self, id: TaskId, service: Duration) {
        let period = self.server_period(service).unwrap_or(service);
        let server = self.task_mut(id);
        let period_start = server.period_start();
        server.task = Task { period, service, ..server.task };
        (server.left, server.deadline) = (service, period_start + period);
    }

    /// Rule 5: "`x/y = 0/y_max`, `y_max = max y_i + 1`", and the period by the new rest.
    fn update_server(&mut self) {
        let Some(id) = self.server else { return };
        let largest = self.set().map(|task| task.window.of).max().unwrap_or(0);
        let window = Window { lose: 0, of: largest.saturating_add(1) };
        let (period_start, counts) = (self.task(id).period_start(), self.task(id).counts);
        let service = self.config.unit;
        let period = self.server_period(service).unwrap_or(service);
        let task = Task { period, service, window, work_conserving: false };
        let (_, windows) = Order::new(false).add(&task);
        self.sleep(id, self.clock);
        let server = self.task_mut(id);
        *server = Progress::new(&task, windows);
        (server.deadline, server.counts) = (period_start + period, counts);
        if self.account == Some(id) {
            self.account = None;
        }
    }

    fn insert_task(&mut self, task: &Task) -> TaskId {
        let (id, windows) = self.owed.add(task);
        self.ahead.add(task);
        let place = id.0 as usize;
        if place == self.tasks.len() {
            self.tasks.push(None);
        }
        self.tasks[place] = Some(Progress::new(task, windows));
        id
    }

    /// All tasks except the task server, which has the rest.
    pub(crate) fn set(&self) -> impl Iterator<Item = &Task> {
        let server = self.server.map(|id| id.0 as usize);
        let all = self.tasks.iter().enumerate().filter(move |&(place, _)| Some(place) != server);
        all.filter_map(|(_, task)| task.as_ref().map(|task| &task.task))
    }

    pub(crate) fn task(&self, id: TaskId) -> &Progress {
        self.tasks.get(id.0 as usize).and_then(Option::as_ref).unwrap_or_else(|| no_task(id))
    }

    fn task_mut(&mut self, id: TaskId) -> &mut Progress {
        self.tasks.get_mut(id.0 as usize).and_then(Option::as_mut).unwrap_or_else(|| no_task(id))
    }
}

/// Attributes of the task server until its real ones are known.
const UNIT: Task = Task {
    period: Duration(1),
    service: Duration(1),
    window: Window::NONE,
    work_conserving: false,
};

#[cold]
fn no_task(id: TaskId) -> ! {
    panic!("there is no task {}", id.0)
}
