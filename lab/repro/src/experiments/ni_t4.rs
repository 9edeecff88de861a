//! `ni-t4`: the critical path of a frame, from the disk to the network, on the paper's three paths,
//! and the hand-over between the processes.

use selvedge_lab_measure::coprocessor::{Path, Percentiles, measure_hand_over, paths, wake};

use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::processor;
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ni-t4",
    title: "Critical path of a 1000-byte frame, disk to network",
    paper: super::NI,
    section: "Table 4, section 3.3.2",
    kind: Kind::Real,
    claim: "the hand-over costs under 1 us; a process of its own for the disk adds at most 5 us",
    edits: &[],
    run,
};

/// What the paper has, in microseconds: A on two file systems, B, C.
const PAPER: [(char, &str); 3] = [('A', "8000, or 1000 (UFS)"), ('B', "5415"), ('C', "5400")];
/// The paper's peer-to-peer PCI transfer.
const PCI_US: f64 = 15.0;

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let us = |span: selvedge_units::Duration| span.0 as f64 / 1000.0;
    let mut outcome = Outcome::default();
    watch.go_on("hand-over through shared memory")?;
    let handed_over = measure_hand_over(params.amount(20_000, 3000), 1000)?;
    watch.go_on("wake-up of an idle coprocessor")?;
    let woken = wake(params.amount(1000, 200))?;
    watch.go_on("the three paths")?;
    let found = paths(params.amount(1500, 300), Some(1))?;

    let columns = &["", "us, median", "us, p99", "paper, us"];
    let mut table = Table::new(format!("Steps of the way, {}", processor()), columns);
    let mut row = |what: &str, spread: Percentiles, paper: Cell| {
        let cell = |span| Cell::rounded(us(span), 2);
        table.row([Cell::from(what), cell(spread.median), cell(spread.p99), paper]);
    };
    row("hand-over of a frame, one way, both awake", handed_over, Cell::rounded(PCI_US, 0));
    row("hand-over and wake-up from idle", woken, Cell::None);
    outcome.tables.push(table);
    let mut table = Table::new(
        "A frame of 1000 bytes, file to receiving socket",
        &["path", "who", "us, median", "us, p99", "paper, us"],
    );
    let mut median = [0.0; 3];
    for (found, (letter, paper)) in found.iter().zip(PAPER) {
        let who = match found.path {
            Path::Inline => "the reading process schedules and sends",
            Path::Fed => "a reading process feeds the coprocessor",
            Path::Reads => "the coprocessor reads and sends",
        };
        median[found.path as usize] = us(found.time.median);
        table.row([
            Cell::from(letter.to_string().as_str()),
            Cell::from(who),
            Cell::rounded(us(found.time.median), 2),
            Cell::rounded(us(found.time.p99), 2),
            Cell::from(paper),
        ]);
    }
    outcome.tables.push(table);
    outcome.claim(
        "the hand-over through shared memory takes under 1 us one way",
        us(handed_over.median) < 1.0,
        format!("{:.2} us, the paper's PCI transfer {PCI_US} us", us(handed_over.median)),
    );
    outcome.claim(
        "path B takes at most 5 us more than path C",
        median[1] - median[2] <= 5.0,
        format!("B {:.1} us, C {:.1} us", median[1], median[2]),
    );
    outcome.claim(
        "an idle coprocessor wakes up within 50 us at the median",
        us(woken.median) < 50.0,
        format!("{:.1} us", us(woken.median)),
    );
    outcome.note(
        "The hand-over has the copy of 1000 bytes, the descriptor, its check, and the reading of \
         the clock on both sides in it. The file lies in the page cache: the paper's 4200 us of \
         disk are not in these figures. A path's time has the wake-up of a sleeping engine in it, \
         and the loopback; it ends with the kernel's stamp at the receiving socket.",
    );
    Ok(outcome)
}
