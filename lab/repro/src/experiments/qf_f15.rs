//! `qf-f15`: the schedules of Figure 15, slot by slot.

use selvedge_data_cpu::{Config, Decision, Processor, Rule, Runs, Selected, Task, TaskId};
use selvedge_data_stream::Window;
use selvedge_units::{Duration, Instant};

use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "qf-f15",
    title: "The event-aware rules 2 to 5, slot by slot",
    paper: super::QF,
    section: "Figure 15, section 3.3.1",
    kind: Kind::Virtual,
    claim: "the same schedules",
    edits: &[],
    run,
};

/// A graph of the figure: its tasks as period and window, all of service time 1.
struct Graph {
    name: &'static str,
    tasks: [(u64, u16, u16); 2],
    work_conserving: bool,
    task_server: bool,
    /// An event for T1 comes half a slot before this one.
    event: u64,
    rule: Rule,
    /// Without and with the event, as they follow from the text.
    top: &'static str,
    bottom: &'static str,
}

const GRAPHS: [Graph; 4] = [
    Graph {
        name: "(a)",
        tasks: [(4, 1, 2), (2, 1, 4)],
        work_conserving: false,
        task_server: false,
        event: 3,
        rule: Rule::OverBestEffort,
        top: "T2 T1 T2 BE T2 T1 T2 BE",
        bottom: "T2 T1 T2 T1 T2 T1 T2 BE",
    },
    Graph {
        name: "(b)",
        tasks: [(4, 1, 2), (2, 1, 4)],
        work_conserving: true,
        task_server: false,
        event: 3,
        rule: Rule::OverServed,
        top: "T2 T1 T2 T2 T2 T1 T2 T2",
        bottom: "T2 T1 T2 T1 T2 T1 T2 T2",
    },
    Graph {
        name: "(c)",
        tasks: [(3, 1, 2), (3, 1, 4)],
        work_conserving: true,
        task_server: false,
        event: 3,
        rule: Rule::SameDeadline,
        top: "T2 T1 T2 T2 T1 T1",
        bottom: "T2 T1 T2 T1 T2 T1",
    },
    Graph {
        name: "(d)",
        tasks: [(3, 1, 2), (3, 1, 4)],
        work_conserving: true,
        task_server: true,
        event: 5,
        rule: Rule::TaskServer,
        top: "TS T2 T1 TS TS T2 TS T1",
        bottom: "BE T2 T1 BE BE T2 T1 T1",
    },
];

impl Graph {
    /// The decisions, with the event or without.
    fn decisions(&self, slots: usize, with_event: bool) -> Vec<Decision> {
        let (unit, task_server) = (Duration(1), self.task_server);
        let config = Config { unit, best_effort: None, task_server, events_max: 1 };
        let mut cpu = Processor::new(config);
        cpu.set_best_effort(true);
        let mut sink = None;
        for (period, lose, of) in self.tasks {
            let task = Task::new(Duration(period), Duration(1), Window { lose, of });
            let mut task = task.expect("the figure's numbers are a task");
            if self.work_conserving {
                task = task.work_conserving();
            }
            let id = cpu.admit(&task).expect("the figure's tasks fit");
            cpu.wake(id, Instant::ZERO);
            sink = sink.or(Some(id));
        }
        let mut slot = |t: u64| {
            if let (true, Some(sink)) = (with_event && t == self.event, sink) {
                cpu.raise(sink, Instant(t)).expect("it is the only one");
            }
            let decision = cpu.decide(Instant(t));
            cpu.charge_chosen(Duration(1));
            decision
        };
        (0..slots as u64).map(&mut slot).collect()
    }

    fn name(&self, id: TaskId) -> String {
        format!("T{}", id.0 + 1 - u32::from(self.task_server))
    }

    fn top(&self, slots: usize) -> String {
        let name = |decision: &Decision| match decision.selected {
            Selected::Task(id) | Selected::Served(id) => self.name(id),
            Selected::TaskServer => "TS".to_owned(),
            Selected::Reserve | Selected::BestEffort => "BE".to_owned(),
            Selected::Idle => "-".to_owned(),
        };
        self.decisions(slots, false).iter().map(name).collect::<Vec<_>>().join(" ")
    }

    fn bottom(&self, slots: usize) -> (String, Vec<(usize, Rule)>) {
        let decisions = self.decisions(slots, true);
        let name = |decision: &Decision| match decision.runs {
            Runs::Task(id) => self.name(id),
            Runs::BestEffort => "BE".to_owned(),
            Runs::Idle => "-".to_owned(),
        };
        let rules = decisions.iter().enumerate().filter_map(|(t, d)| Some((t, d.rule?)));
        (decisions.iter().map(name).collect::<Vec<_>>().join(" "), rules.collect())
    }
}

fn run(_params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        "Who runs in each slot",
        &["graph", "rule", "DWCS alone", "revised by events", "at slot"],
    );
    for graph in &GRAPHS {
        watch.go_on(graph.name)?;
        let slots = graph.top.split(' ').count();
        let (top, (bottom, rules)) = (graph.top(slots), graph.bottom(slots));
        let at: Vec<_> =
            rules.iter().map(|(t, rule)| format!("{t} (rule {})", rule.number())).collect();
        table.row([
            graph.name.into(),
            u64::from(graph.rule.number()).into(),
            top.clone().into(),
            bottom.clone().into(),
            at.join(", ").into(),
        ]);
        let same = top == graph.top && bottom == graph.bottom;
        let only = matches!(rules[..], [(_, rule)] if rule == graph.rule);
        outcome.claim(
            format!(
                "graph {}: rule {}, and no other slot changes",
                graph.name,
                graph.rule.number()
            ),
            same && only,
            format!("{} slots; {}", slots, at.join(", ")),
        );
    }
    outcome.tables.push(table);
    outcome.note(
        "BE is a best-effort task, TS the task server. The attributes and the events' times are \
         the text's; the figure itself is drawn in the thesis, and what is compared are the \
         schedules that its rules give, worked out by hand.",
    );
    Ok(outcome)
}
