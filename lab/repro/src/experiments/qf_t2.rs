//! `qf-t2`: creating, opening, sending on and polling a channel; calls of a service; and events for a program
//! that shares its processor with others that never sleep.

use selvedge_lab_measure::call::{BenchError, CallCosts, Deliveries, calls, preference};
use selvedge_lab_measure::local::{ChannelCosts, channel};
use selvedge_place_cpu::class::{self, Class};

use super::QF;
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};
use crate::peers::{Place, start};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "qf-t2",
    title: "What channels and service calls cost; events under load",
    paper: QF,
    section: "Table 2, sections 3.2.1, 3.3 and 4.4",
    kind: Kind::Real,
    claim: "far below the paper's; fast calls below a system call; preferred events on time",
    edits: &[],
    run,
};

/// The paper's, in microseconds: ECho, KECho from programs, KECho from the kernel.
const PAPER: [(&str, [f64; 3]); 4] = [
    ("create a channel", [850.0, 182.0, 170.0]),
    ("open one that another has", [1.5e6, 1.5e6, 1.5e6]),
    ("submit 100 bytes to a sink", [100.0, 95.0, 85.0]),
    ("poll, an event there", [32.0, 40.0, 5.0]),
];
/// The worst of all deliveries with preference may be this late, in microseconds.
const WORST_US: f64 = 500.0;

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    // An ordinary program, as are those that it starts: its loops look without sleeping, and with a real-time
    // priority would leave nothing to the threads that they look for.
    let _ = class::set(0, Class::Other);
    let place = Place::new("qf-t2")?;
    let start = start()?;
    let peer = |error: String| RunError::Peer(error);
    let mut outcome = Outcome::default();
    watch.go_on("a channel's operations")?;
    let costs = channel(place.path(), &start, params.amount(21, 3))
        .map_err(|error| peer(error.to_string()))?;
    channels(&costs, &mut outcome);
    watch.go_on("service calls")?;
    let failed = |error: BenchError| peer(error.to_string());
    let costs = calls(place.path(), &start, params.amount(51, 3)).map_err(failed)?;
    services(&costs, &mut outcome);
    watch.go_on("events under load")?;
    match preference(place.path(), &start, params.amount(5000, 200)) {
        Ok(found) => under_load(&found, &mut outcome),
        Err(BenchError::System(why)) => outcome.note(format!("Not under load: {why}")),
        Err(error) => return Err(failed(error)),
    }
    outcome.note(
        "Two processes, on a core each, that share nothing but a channel's or service's name. The \
         channel is an exchange of typed events over shared memory; the sink is awake. Beside: a bare \
         socket (seqpacket) between the same two. The paper's machine had two processors of 800 MHz.",
    );
    Ok(outcome)
}

fn channels(costs: &ChannelCosts, outcome: &mut Outcome) {
    let mut table = Table::new(
        "A channel's operations, us; medians",
        &["", "ECho", "KECho-UL", "KECho-KL", "here", "bare socket"],
    );
    let ours = [
        (costs.create_us, None),
        (costs.open_us, None),
        (costs.submit_us, Some(costs.submit_socket_us)),
        (costs.poll_us, Some(costs.poll_socket_us)),
    ];
    for ((what, paper), (here, bare)) in PAPER.into_iter().zip(ours) {
        let paper = paper.map(|us| Cell::rounded(us, 0));
        let last = [Cell::rounded(here, 2), bare.map_or(Cell::None, |us| Cell::rounded(us, 2))];
        table.row([Cell::from(what)].into_iter().chain(paper).chain(last));
        let [.., least] = PAPER.iter().find(|row| row.0 == what).map_or([0.0; 3], |row| row.1);
        // Creating one makes files and a thread, which the paper's kernel module did not.
        let most = if what == PAPER[0].0 { 10_000.0 } else { least / 2.0 };
        outcome.claim(
            format!("{what}: at most {most} us"),
            here <= most,
            format!("{here:.2} us, the paper {least} us at least"),
        );
    }
    let empty =
        [Cell::rounded(costs.poll_empty_us, 2), Cell::rounded(costs.poll_empty_socket_us, 2)];
    let dashes = [Cell::None, Cell::None, Cell::None];
    table.row([Cell::from("poll, nothing there")].into_iter().chain(dashes).chain(empty));
    outcome.tables.push(table);
}

fn services(costs: &CallCosts, outcome: &mut Outcome) {
    let mut table = Table::new("Calls of a service in another process; medians", &["", "us"]);
    for (what, us) in [
        ("a bare system call (getppid)", costs.system_call_ns / 1e3),
        ("fast: nobody is woken", costs.fast_ns / 1e3),
        ("deferred: one of 64 that come together, the wake-up included", costs.deferred_ns / 1e3),
        ("direct: the service is woken", costs.direct_us),
        ("generic: by name, there and back", costs.generic_us),
        ("a bare message by a socket, there and back", costs.socket_us),
    ] {
        table.row([Cell::from(what), Cell::rounded(us, 3)]);
    }
    outcome.tables.push(table);
    outcome.claim(
        "a fast call costs less than a bare system call",
        costs.fast_ns < costs.system_call_ns,
        format!("{:.0} ns beside {:.0} ns", costs.fast_ns, costs.system_call_ns),
    );
    let share = costs.deferred_ns / 1e3 / costs.direct_us;
    outcome.claim(
        "of 64 deferred calls that come together each costs a tenth of a direct one at most",
        share <= 0.1,
        format!("{share:.3} of it"),
    );
    outcome.claim(
        "a generic call costs at most 1.5 times a bare message there and back",
        costs.generic_over_socket <= 1.5,
        format!("{:.2} times, the median of rounds", costs.generic_over_socket),
    );
}

fn under_load(found: &[Deliveries; 2], outcome: &mut Outcome) {
    let [plain, preferred] = found;
    let mut table = Table::new(
        format!(
            "From raised to received, us, with two programs that never sleep on each processor; {} events",
            plain.events
        ),
        &["the subscriber is", "median", "p99", "p99.9", "worst"],
    );
    for one in found {
        let name = if one.preferred { "preferred by the scheduler" } else { "an ordinary program" };
        let figures = [one.median_us, one.p99_us, one.p999_us, one.max_us];
        let cells = figures.map(|us| Cell::rounded(us, 1));
        table.row([Cell::from(name)].into_iter().chain(cells));
    }
    outcome.tables.push(table);
    outcome.claim(
        "with preference the worst delivery takes at most 0.5 ms",
        preferred.max_us <= WORST_US,
        format!("{:.0} us", preferred.max_us),
    );
    outcome.claim(
        "without, the worst takes at least four times as long",
        plain.max_us >= 4.0 * preferred.max_us,
        format!("{:.0} us", plain.max_us),
    );
}
