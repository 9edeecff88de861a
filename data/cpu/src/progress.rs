//! The state of a task in its period and its window, and the counts of earlier periods.
//!
//! Periods follow the arrival rule of DWCS, `max(previous deadline, arrival) + T`: a task that wakes after
//! its last period ended begins one at that instant. The unused service time of a sleeping task stays valid
//! until the period ends, unless enough is left that it would delay the other tasks. Then the task gets a
//! full period from its wake-up (the wake-up rule of the constant bandwidth server, Abeni and Buttazzo, RTSS
//! 1998). So tasks that sleep at will can't take time that admission promised to others.

use selvedge_data_sched::WindowSet;
use selvedge_data_stream::{Kind, Window};
use selvedge_units::{Duration, Instant};

use crate::task::{Counts, Task};

/// A task that was admitted.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) task: Task,
    windows: WindowSet,
    pub(crate) awake: bool,
    /// When it last woke; ties go first come, first served.
    pub(crate) woken_at: Instant,
    /// The end of the period in which it is to be served next: this one, or the next one if it had its
    /// service time in this one.
    pub(crate) deadline: Instant,
    /// The service time left in that period; never 0.
    pub(crate) left: Duration,
    pub(crate) counts: Counts,
}

/// After this number of consecutive misses that the window does not allow, its `y'` is at its maximum.
const GROWTH_MAX: u64 = 4 * (u16::MAX as u64);

impl Progress {
    pub(crate) fn new(task: &Task, windows: WindowSet) -> Self {
        Self {
            task: *task,
            windows,
            awake: false,
            woken_at: Instant::ZERO,
            deadline: Instant(task.period.0),
            left: task.service,
            counts: Counts::default(),
        }
    }

    /// The current window `x'/y'`.
    pub(crate) const fn window(&self) -> Window {
        self.windows.current(Kind::Data)
    }

    /// The beginning of the period in which it is to be served.
    pub(crate) fn period_start(&self) -> Instant {
        self.deadline - self.task.period
    }

    /// Whether it has used no time in that period.
    pub(crate) fn is_unserved(&self) -> bool {
        self.left == self.task.service
    }

    /// The period is over and served: rule a, and the next one follows.
    pub(crate) fn served(&mut self) {
        self.windows.apply_rule_a(Kind::Data);
        self.counts.on_time = self.counts.on_time.saturating_add(1);
        self.deadline += self.task.period;
        self.left = self.task.service;
    }

    /// The task wakes.
    pub(crate) fn wake(&mut self, now: Instant) {
        self.awake = true;
        self.woken_at = now;
        if self.is_unserved() {
            self.deadline = self.period_start().max(now) + self.task.period;
            return;
        }
        let remaining = u128::from(self.deadline.since(now).0);
        let fits = remaining * u128::from(self.task.service.0)
            >= u128::from(self.left.0) * u128::from(self.task.period.0);
        if now >= self.deadline || !fits {
            // It slept, so it had all the time that it needed.
            self.served();
            self.deadline = now + self.task.period;
        }
    }

    /// Counts all periods that ended until `now` as missed: rule b for each. At most `GROWTH_MAX` steps,
    /// whatever the gap.
    pub(crate) fn miss_until(&mut self, now: Instant) {
        let misses = now.since(self.deadline).0 / self.task.period.0 + 1;
        self.deadline += self.task.period * misses;
        self.left = self.task.service;
        let Window { lose, of } = self.task.window;
        // A window that may lose all returns to its state after `y` misses.
        let endless = of > 0 && lose == of;
        let steps = if endless { misses % u64::from(of) } else { misses.min(GROWTH_MAX) };
        let broken = (0..steps).filter(|_| self.windows.miss(Kind::Data)).count() as u64;
        let beyond = if endless { 0 } else { misses - steps };
        let counts = &mut self.counts;
        counts.missed = counts.missed.saturating_add(misses);
        counts.violations = counts.violations.saturating_add(broken).saturating_add(beyond);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Order;

    fn progress(period: u64, service: u64, window: (u16, u16)) -> Progress {
        let window = Window::new(window.0, window.1).unwrap();
        let task = Task::new(Duration(period), Duration(service), window).unwrap();
        let (_, windows) = Order::new(false).add(&task);
        Progress::new(&task, windows)
    }

    #[test]
    fn a_gap_is_as_many_misses_as_periods_in_it() {
        for window in [(0, 0), (0, 1), (1, 3), (2, 2), (3, 7)] {
            for gap in [0, 1, 39, 40, 41, 4_000, 400_000] {
                let mut leap = progress(40, 8, window);
                leap.wake(Instant(0));
                let mut step = leap.clone();
                leap.miss_until(Instant(40 + gap));
                while step.deadline <= Instant(40 + gap) {
                    step.miss_until(step.deadline);
                }
                assert_eq!(leap.counts, step.counts, "{window:?} {gap}");
                assert_eq!((leap.deadline, leap.window()), (step.deadline, step.window()));
            }
        }
    }

    #[test]
    fn a_gap_of_centuries_takes_no_longer() {
        let mut task = progress(1, 1, (1, 2));
        task.wake(Instant(0));
        task.miss_until(Instant(u64::MAX / 2));
        assert_eq!(task.counts.missed, u64::MAX / 2);
        assert_eq!(task.window(), Window { lose: 0, of: u16::MAX });
    }

    #[test]
    fn who_wakes_late_begins_there_and_who_wakes_early_waits() {
        let mut task = progress(40, 8, (1, 5));
        task.wake(Instant(100));
        assert_eq!((task.period_start(), task.deadline), (Instant(100), Instant(140)));
        task.left = Duration(0);
        task.served();
        task.awake = false;
        task.wake(Instant(130));
        assert_eq!((task.period_start(), task.deadline), (Instant(140), Instant(180)));
        task.awake = false;
        task.wake(Instant(300));
        assert_eq!(task.deadline, Instant(340));
    }

    #[test]
    fn what_is_left_stays_good_only_as_far_as_it_presses_nobody() {
        let mut task = progress(40, 8, (1, 5));
        task.wake(Instant(0));
        task.left = Duration(4);
        task.awake = false;
        let mut soon = task.clone();
        soon.wake(Instant(20));
        assert_eq!((soon.deadline, soon.left), (Instant(40), Duration(4)));
        let mut late = task.clone();
        late.wake(Instant(21));
        assert_eq!((late.deadline, late.left, late.counts.on_time), (Instant(61), Duration(8), 1));
        task.wake(Instant(50));
        assert_eq!((task.deadline, task.counts.on_time), (Instant(90), 1));
    }
}
