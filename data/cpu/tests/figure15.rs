//! Figure 15 of the Q-Fabric thesis, slot by slot: the choice of DWCS, and the result of the event-aware
//! rules. The attributes and events are the text's; the schedules follow from its rules.

use selvedge_data_cpu::{Config, Decision, Processor, Rule, Runs, Selected, Task};
use selvedge_data_stream::Window;
use selvedge_units::{Duration, Instant};

const ALONE: Config =
    Config { unit: Duration(1), best_effort: None, task_server: false, events_max: 4 };

/// Two tasks `(period, x/y)` of service time 1; an event for the first before `event`.
struct Case {
    tasks: [(u64, u16, u16); 2],
    work_conserving: bool,
    task_server: bool,
    event: u64,
}

impl Case {
    fn run(&self, slots: u64, with_event: bool) -> Vec<Decision> {
        let mut cpu = Processor::new(Config { task_server: self.task_server, ..ALONE });
        cpu.set_best_effort(true);
        let tasks = self.tasks.map(|(period, lose, of)| {
            let window = Window::new(lose, of).unwrap();
            let task = Task::new(Duration(period), Duration(1), window).unwrap();
            let task = if self.work_conserving { task.work_conserving() } else { task };
            let id = cpu.admit(&task).unwrap();
            cpu.wake(id, Instant::ZERO);
            id
        });
        let slot = |t| {
            if with_event && t == self.event {
                cpu.raise(tasks[0], Instant(t)).unwrap();
            }
            let decision = cpu.decide(Instant(t));
            cpu.charge_chosen(Duration(1));
            decision
        };
        (0..slots).map(slot).collect()
    }

    /// As in the figure: without the event the choice of DWCS, with it the task that runs.
    fn graphs(&self, slots: u64) -> (String, String) {
        let server = u32::from(self.task_server);
        let number = |id: selvedge_data_cpu::TaskId| (id.0 - server + 1).to_string();
        let top = self.run(slots, false).into_iter().map(|decision| match decision.selected {
            Selected::Task(id) | Selected::Served(id) => number(id),
            Selected::TaskServer => "S".to_owned(),
            Selected::BestEffort => "b".to_owned(),
            Selected::Reserve | Selected::Idle => "?".to_owned(),
        });
        let bottom = self.run(slots, true);
        let bottom = bottom.iter().map(|decision| match decision.runs {
            Runs::Task(id) => number(id),
            Runs::BestEffort => "b".to_owned(),
            Runs::Idle => "?".to_owned(),
        });
        (top.collect(), bottom.collect())
    }

    fn rules(&self, slots: u64) -> Vec<(usize, Rule)> {
        let run = self.run(slots, true);
        run.iter().enumerate().filter_map(|(t, d)| Some((t, d.rule?))).collect()
    }
}

const A: Case =
    Case { tasks: [(4, 1, 2), (2, 1, 4)], work_conserving: false, task_server: false, event: 3 };
const C: Case =
    Case { tasks: [(3, 1, 2), (3, 1, 4)], work_conserving: true, task_server: false, event: 3 };

#[test]
fn rule_2_takes_the_slot_of_a_best_effort_task() {
    assert_eq!(A.graphs(8), ("212b212b".into(), "2121212b".into()));
    assert_eq!(A.rules(8), [(3, Rule::OverBestEffort)]);
}

#[test]
fn rule_3_takes_the_slot_of_a_task_that_was_served() {
    let case = Case { work_conserving: true, ..A };
    assert_eq!(case.graphs(8), ("21222122".into(), "21212122".into()));
    assert_eq!(case.rules(8), [(3, Rule::OverServed)]);
}

#[test]
fn rule_4_swaps_two_of_the_same_deadline() {
    assert_eq!(C.graphs(6), ("212211".into(), "212121".into()));
    assert_eq!(C.rules(6), [(3, Rule::SameDeadline)]);
}

#[test]
fn rule_4_leaves_alone_who_would_be_late() {
    // At 4 the chosen task has 2 slots left, and both need one: dt - C - C = 0 is not more than 0.
    let case = Case { tasks: [(2, 1, 2), (2, 1, 4)], event: 2, ..C };
    assert_eq!(case.rules(4), [(3, Rule::SinkChosen)]);
}

#[test]
fn rule_5_takes_the_slot_of_the_task_server() {
    let case = Case { task_server: true, event: 5, ..C };
    // Its period is 1/0.58 = 1.7, so 2; before the event best-effort tasks have its slots.
    assert_eq!(case.graphs(10), ("S21SS2S12S".into(), "b21bb2112b".into()));
    assert_eq!(case.rules(10), [(6, Rule::TaskServer)]);
}

#[test]
fn rule_1_only_takes_the_event_off_the_queue() {
    let case = Case { event: 1, ..A };
    assert_eq!(case.graphs(4), ("212b".into(), "212b".into()));
    assert_eq!(case.rules(4), [(1, Rule::SinkChosen)]);
}
