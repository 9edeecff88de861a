//! `ca-f8`: encryption serial, data-parallel and message-parallel.

use selvedge_data_stack::elements::{ElementId, ElementSet};
use selvedge_units::{Bytes, Duration, Instant};

use super::CA;
use super::ca_costs::{Costs, measured, paper};
use super::ca_host::{Host, Source, Wire};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-f8",
    title: "Encryption: serial, data-parallel, message-parallel",
    paper: CA,
    section: "Figure 8, section 3",
    kind: Kind::Model,
    claim: "message-parallel wins",
    run,
};

const ELEMENTS: u8 = 4;
const WAYS: [&str; 3] =
    ["c: serial, a connection each", "1p: data-parallel, 3 slaves", "m: message-parallel"];

/// One set of costs, and what is sent with it.
struct Case {
    costs: Costs,
    size: Bytes,
    /// Whether it goes to the network interface, or to shared memory.
    interface: bool,
}

impl Case {
    fn name(&self) -> String {
        format!("{} a message, {}", self.size, self.costs.whose)
    }
}

fn rate(case: &Case, way: usize, connections: usize, long: Duration) -> f64 {
    let Case { costs, size, interface } = case;
    let wire = if *interface { Wire::new(costs.interface) } else { Wire::default() };
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
            _ => (false, vec![all; 4]),
        };
        host.connect(costs.encrypted(parallel), &places, parallel.then_some(1), source);
    }
    let warm = Instant(long.0 / 5);
    host.run(warm);
    (0..connections).for_each(|n| _ = host.take(n));
    host.run(warm + long);
    let messages: u64 = (0..connections).map(|n| host.take(n).messages).sum();
    messages as f64 / long.as_secs_f64()
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let long = Duration::from_secs(params.amount(20, 4));
    let ours = measured(params.amount(31, 5))?;
    let mut outcome = Outcome::default();
    for case in [
        Case { costs: paper(), size: Bytes(1024), interface: true },
        // Today a cipher is no slower than the kernel takes a message: so without the kernel.
        Case { costs: ours, size: Bytes(64_000), interface: false },
    ] {
        with(&case, long, &mut outcome, watch)?;
        outcome.note(case.costs.in_words());
    }
    outcome.note("A model in virtual time. The slaves' chunks go through pipes of their own; the last to come goes on.");
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
    let one = |case: &Case| rate(case, 0, 1, Duration::from_millis(200));
    let theirs = Case { costs: paper(), size: Bytes(1024), interface: true };
    let long = Duration((long.0 as f64 * one(&theirs) / one(case).max(1.0)) as u64);
    let counts = [1, 2, 3, 4, 6, 8];
    let mut table = Table::new(
        format!("Messages a second on {ELEMENTS} elements, by connections: {}", case.name()),
        &["", "1", "2", "3", "4", "6", "8"],
    );
    let mut rates = Vec::new();
    for (way, name) in WAYS.into_iter().enumerate() {
        watch.go_on(&format!("{name}: {}", case.name()))?;
        let found = counts.map(|connections| rate(case, way, connections, long));
        let cells = found.iter().map(|&rate| Cell::rounded(rate, 1));
        table.row([Cell::from(name)].into_iter().chain(cells));
        rates.push(found);
    }
    outcome.tables.push(table);
    let wins = |other: usize| {
        let pairs = rates[2].iter().zip(&rates[other]);
        pairs.map(|(m, other)| m / other).fold(f64::INFINITY, f64::min)
    };
    for other in [0, 1] {
        let least = wins(other);
        outcome.claim(
            format!("message-parallel is at least as good as {} ({})", WAYS[other], case.name()),
            least > 0.98 && rates[2][0] > rates[other][0],
            format!(
                "{least:.2} times at least, {:.2} with one connection",
                rates[2][0] / rates[other][0]
            ),
        );
    }
    Ok(())
}
