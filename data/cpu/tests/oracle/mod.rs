//! A second opinion: tasks on a processor in unit slots, written from the rules without looking at the
//! crate's code. Everything is found by walking all tasks.

use std::cmp::Ordering;

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) period: u64,
    pub(crate) service: u64,
    pub(crate) window: (u64, u64),
    pub(crate) ahead: bool,
    /// Current window.
    now: (u64, u64),
    awake: bool,
    woken_at: u64,
    deadline: u64,
    left: u64,
    pub(crate) on_time: u64,
    pub(crate) missed: u64,
    pub(crate) violations: u64,
}

impl Task {
    pub(crate) fn new(period: u64, service: u64, window: (u64, u64), ahead: bool) -> Self {
        let (now, awake, woken_at, deadline, left) = (window, false, 0, period, service);
        let (on_time, missed, violations) = (0, 0, 0);
        Self {
            period,
            service,
            window,
            ahead,
            now,
            awake,
            woken_at,
            deadline,
            left,
            on_time,
            missed,
            violations,
        }
    }

    fn begins(&self) -> u64 {
        self.deadline - self.period
    }

    /// Rule a.
    fn served(&mut self) {
        let (x, y) = &mut self.now;
        if *y > *x {
            *y -= 1;
        } else if *x > 0 {
            (*x, *y) = (*x - 1, *y - 1);
        }
        if self.now == (0, 0) {
            self.now = self.window;
        }
        self.on_time += 1;
        self.deadline += self.period;
        self.left = self.service;
    }

    /// Rule b.
    fn missed(&mut self) {
        self.missed += 1;
        self.deadline += self.period;
        self.left = self.service;
        if self.window.1 == 0 {
            self.violations += 1;
            return;
        }
        let (x, y) = &mut self.now;
        if *x > 0 {
            (*x, *y) = (*x - 1, *y - 1);
            if self.now == (0, 0) {
                self.now = self.window;
            }
        } else {
            self.violations += 1;
            *y += 1;
        }
    }

    fn wake(&mut self, t: u64) {
        if self.awake {
            return;
        }
        (self.awake, self.woken_at) = (true, t);
        if self.left == self.service {
            self.deadline = self.begins().max(t) + self.period;
        } else if t >= self.deadline || self.left * self.period > (self.deadline - t) * self.service
        {
            self.served();
            self.deadline = t + self.period;
        }
    }
}

/// Table 1.
fn before(a: &(usize, &Task), b: &(usize, &Task)) -> Ordering {
    let ((xa, ya), (xb, yb)) = (a.1.now, b.1.now);
    let fractions = || match (xa, xb) {
        (0, 0) => yb.cmp(&ya),
        (0, _) => Ordering::Less,
        (_, 0) => Ordering::Greater,
        _ => (xa * yb).cmp(&(xb * ya)).then(xa.cmp(&xb)),
    };
    let by_deadline = a.1.deadline.cmp(&b.1.deadline);
    by_deadline.then_with(fractions).then(a.1.woken_at.cmp(&b.1.woken_at)).then(a.0.cmp(&b.0))
}

/// The task that runs, and by which of the five rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) runs: Option<usize>,
    pub(crate) rule: Option<u8>,
}

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) tasks: Vec<Task>,
    /// In the order of arrival.
    pub(crate) events: Vec<usize>,
    /// The event being delivered: its task, and the slots that it still may use.
    hand: Option<(usize, u64)>,
}

impl Machine {
    pub(crate) fn new(tasks: Vec<Task>) -> Self {
        Self { tasks, events: Vec::new(), hand: None }
    }

    pub(crate) fn wake(&mut self, id: usize, t: u64) {
        self.tasks[id].wake(t);
    }

    pub(crate) fn sleep(&mut self, id: usize) {
        self.tasks[id].awake = false;
        self.hand = self.hand.filter(|hand| hand.0 != id);
    }

    fn best(&self, take: impl Fn(&Task) -> bool) -> Option<usize> {
        let able = self.tasks.iter().enumerate().filter(|(_, task)| task.awake && take(task));
        able.min_by(before).map(|(id, _)| id)
    }

    /// The slot `[t, t + 1)`.
    pub(crate) fn slot(&mut self, t: u64) -> Slot {
        for task in self.tasks.iter_mut().filter(|task| task.awake) {
            while task.deadline <= t {
                task.missed();
            }
        }
        let owed = self.best(|task| task.begins() <= t);
        let spare = self.best(|task| task.ahead);
        let waiting = self.events.iter().position(|&id| self.tasks[id].awake);
        let sink = self.hand.map(|hand| hand.0).or_else(|| Some(self.events[waiting?]));
        // The task that runs, whether its service time is charged, and the rule.
        let (runs, pays, rule) = match (owed, spare, sink) {
            (Some(i), _, Some(j)) if i == j => (Some(i), true, Some(1)),
            (None, Some(i), Some(j)) if i == j => (Some(i), false, Some(1)),
            (None, None, Some(j)) => (Some(j), false, Some(2)),
            (None, Some(_), Some(j)) => (Some(j), false, Some(3)),
            (Some(i), _, Some(j)) => {
                let (a, b) = (&self.tasks[i], &self.tasks[j]);
                let fits = a.deadline - t > a.left + b.left;
                let swap = a.deadline == b.deadline && b.begins() <= t && fits;
                if swap { (Some(j), true, Some(4)) } else { (Some(i), true, None) }
            }
            (Some(i), _, None) => (Some(i), true, None),
            (None, spare, None) => (spare, false, None),
        };
        if let (Some(rule), Some(j)) = (rule, sink) {
            if self.hand.is_none() {
                self.events.remove(waiting.unwrap());
                self.hand = Some((j, self.tasks[j].service));
            }
            self.hand = match self.hand {
                Some((j, slots)) if rule > 1 && slots > 1 => Some((j, slots - 1)),
                _ => None,
            };
        }
        if let (Some(id), true) = (runs, pays) {
            self.tasks[id].left -= 1;
            if self.tasks[id].left == 0 {
                self.tasks[id].served();
            }
        }
        Slot { runs, rule }
    }
}
