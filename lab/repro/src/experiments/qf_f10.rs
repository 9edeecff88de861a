//! `qf-f10`: processor and packet scheduling with a phase; the latency bound.

use selvedge_data_cpu::Task;
use selvedge_data_stream::Window;
use selvedge_units::Duration;

use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};
use crate::phase::Coordinated;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "qf-f10",
    title: "Coordinated processor and packet scheduling: latency by phase",
    paper: super::QF,
    section: "Figure 10, section 2.4.2",
    kind: Kind::Virtual,
    claim: "no packet waits longer than phase + period from its making to its transmission",
    edits: &[],
    run,
};

/// Period and service time of each task, in slots of 1 ms; 90 % of the processor. The first is the
/// paper's example.
const TASKS: [(u64, u64); 5] = [(30, 6), (20, 4), (40, 10), (60, 6), (50, 7)];

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let slots = params.amount(600_000, 60_000);
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        format!("Latency of packets over {} s, ms of virtual time", slots / 1000),
        &["period", "phase", "packets", "mean", "highest", "phase + period", "late"],
    );
    let (mut within, mut late, mut packets) = (true, 0, 0);
    let mut closest = 1.0_f64;
    // The phase as eighths of the period; never less than what one packet of each task takes.
    for eighths in [2, 4, 8, 16] {
        watch.go_on(&format!("phases of {eighths}/8 of the period"))?;
        let mut both = Coordinated::new();
        for (period, service) in TASKS {
            let window = Window { lose: 0, of: 1 };
            let task = Task::new(Duration(period), Duration(service), window);
            let task = task.expect("these numbers are a task");
            let phase = (period * eighths / 8).max(TASKS.len() as u64);
            both.add(&task, Duration(phase)).expect("they need 89 % of the processor");
        }
        (0..slots).for_each(|t| both.slot(t));
        for (phase, counts) in both.counts() {
            within &= counts.latency <= phase.latency_max();
            late += counts.late;
            packets += counts.on_time;
            closest = closest.min(1.0 - counts.latency.0 as f64 / phase.latency_max().0 as f64);
            table.row([
                phase.period.0.into(),
                phase.phase.0.into(),
                counts.on_time.into(),
                Cell::rounded(counts.latency_sum.0 as f64 / counts.on_time.max(1) as f64, 2),
                counts.latency.0.into(),
                phase.latency_max().0.into(),
                counts.late.into(),
            ]);
        }
    }
    outcome.tables.push(table);
    outcome.claim(
        "no packet waits longer than phase + period",
        within,
        format!(
            "{packets} packets; the nearest to its bound was {:.0} % below it",
            closest * 100.0
        ),
    );
    outcome.claim(
        "no packet misses its deadline, one phase after the end of its task's period",
        late == 0,
        format!("{late} of {packets}"),
    );
    outcome.note(
        "Both schedulers are DWCS: tasks with a period of processor time, and packets of one slot \
         that are paced by periods a phase later. The paper's example, 30 ms and 15 ms, has the \
         bound 45 ms.",
    );
    Ok(outcome)
}
