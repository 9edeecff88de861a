//! `ca-f8`: encryption serial, data-parallel and message-parallel.

use selvedge_data_stack::elements::{ElementId, ElementSet};
use selvedge_units::{Bytes, Duration, Instant};

use super::CA;
use super::ca_costs::{Costs, DEAR_LOCKS, measured, paper};
use super::ca_host::{Host, Source, Wire};
use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-f8",
    title: "Encryption: serial, data-parallel, message-parallel",
    paper: CA,
    section: "Figure 8, section 3",
    kind: Kind::Model,
    claim: "message-parallel wins, strictly where there are fewer connections than elements",
    edits: &[DEAR_LOCKS, ALONE],
    run,
};

const ALONE: Edit =
    Edit { name: "alone", what: "message-parallel has one element a connection, as serial has" };

const ELEMENTS: u8 = 4;
const WAYS: [&str; 3] =
    ["c: serial, a connection each", "1p: data-parallel, 3 slaves", "m: message-parallel"];

/// One set of costs, and what is sent with it.
struct Case {
    costs: Costs,
    size: Bytes,
    /// Whether it goes to the network interface, or to shared memory.
    interface: bool,
    /// Whether message-parallel is edited to have one element a connection.
    alone: bool,
}

impl Case {
    fn name(&self) -> String {
        format!("{} a message, {}", self.size, self.costs.whose)
    }
}

/// Messages a second, and their mean latency.
fn measure(case: &Case, way: usize, connections: usize, long: Duration) -> (f64, Duration) {
    let Case { costs, size, interface, alone } = case;
    let wire = if *interface { costs.wire() } else { Wire::default() };
    let mut host = Host::new(ELEMENTS, costs.overheads, wire);
    let only = |n: usize| ElementSet::only(ElementId(n as u8));
    let all = ElementSet::first(ELEMENTS.into());
    for n in 0..connections {
        let source = Source {
            size: *size,
            every: Duration::ZERO,
            window: 8,
            from: Instant::ZERO,
            until: Instant::MAX,
        };
        let (parallel, places) = match way {
            0 => (false, vec![only(n % usize::from(ELEMENTS)); 4]),
            1 => (true, vec![only(0), only(0), all.without(only(0)), only(0), only(0)]),
            _ if *alone => (false, vec![only(n % usize::from(ELEMENTS)); 4]),
            _ => (false, vec![all; 4]),
        };
        host.connect(costs.encrypted(parallel), &places, parallel.then_some(1), source);
    }
    let warm = Instant(long.0 / 5);
    host.run(warm);
    (0..connections).for_each(|n| _ = host.take(n));
    host.run(warm + long);
    let (mut messages, mut waited) = (0, 0);
    for n in 0..connections {
        let sample = host.take(n);
        messages += sample.messages;
        waited += sample.latency.0 * sample.messages;
    }
    (messages as f64 / long.as_secs_f64(), Duration(waited / messages.max(1)))
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let long = Duration::from_secs(params.amount(20, 4));
    let ours = measured(params.amount(31, 5))?.edited(params);
    let theirs = paper().edited(params);
    let alone = params.is_edited(ALONE.name);
    let mut outcome = Outcome::default();
    for case in [
        Case { costs: theirs, size: Bytes(1024), interface: true, alone },
        // Today a cipher is no slower than the kernel takes a message: so without the kernel.
        Case { costs: ours, size: Bytes(64_000), interface: false, alone },
    ] {
        let mut found = Outcome::default();
        with(&case, long, &mut found, watch)?;
        found.note(case.costs.in_words());
        outcome.absorb(found, case.costs.are_theirs());
    }
    outcome.note("A model in virtual time; real elements: ca-f8-real. The slaves' chunks go through pipes of their own; the last to come goes on.");
    outcome.note("With this machine's costs a message leaves to shared memory: the paper's cipher takes a hundred times as long as its interface, today's less than a system call, and then what counts is who stands at the interface (ca-f9).");
    Ok(outcome)
}

fn with(
    case: &Case,
    long: Duration,
    outcome: &mut Outcome,
    watch: &dyn ProgressWatch,
) -> Result<(), RunError> {
    // As many messages go in it as in the paper's time.
    let one = |case: &Case| measure(case, 0, 1, Duration::from_millis(200)).0;
    let theirs = Case { costs: paper(), size: Bytes(1024), interface: true, alone: false };
    let long = Duration((long.0 as f64 * one(&theirs) / one(case).max(1.0)) as u64);
    let counts = [1, 2, 3, 4, 6, 8];
    let mut table = Table::new(
        format!(
            "Messages a second / mean latency in us on {ELEMENTS} elements, by connections: {}",
            case.name()
        ),
        &["", "1", "2", "3", "4", "6", "8"],
    );
    let mut rates = Vec::new();
    for (way, name) in WAYS.into_iter().enumerate() {
        watch.go_on(&format!("{name}: {}", case.name()))?;
        let found = counts.map(|connections| measure(case, way, connections, long));
        let cells = found
            .iter()
            .map(|(rate, latency)| format!("{rate:.1} / {:.0}", latency.0 as f64 / 1e3).into());
        table.row([Cell::from(name)].into_iter().chain(cells));
        rates.push(found);
    }
    outcome.tables.push(table);
    let ratios = |other: usize| {
        let pairs = rates[2].iter().zip(&rates[other]);
        pairs.map(|(m, other)| m.0 / other.0).collect::<Vec<_>>()
    };
    for other in [0, 1] {
        let ratios = ratios(other);
        let (fewer, _) = ratios.split_at(usize::from(ELEMENTS) - 1);
        outcome.claim(
            format!(
                "message-parallel does more than {} with fewer connections than elements, and no less with more ({})",
                WAYS[other],
                case.name()
            ),
            fewer.iter().all(|&ratio| ratio > 1.05) && ratios.iter().all(|&ratio| ratio > 0.98),
            format!("{ratios:.2?} times"),
        );
    }
    Ok(())
}
