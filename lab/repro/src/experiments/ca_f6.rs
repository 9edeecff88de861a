//! `ca-f6`: throughput and latency against connections, by configuration.

use selvedge_lab_peers_stack::configurations::Configuration;
use selvedge_units::{Bytes, Duration, Instant};

use super::CA;
use super::ca_costs::{Costs, DEAR_HAND_OVERS, EQUAL_MODULES, NO_SHEPHERDING, with_each};
use super::ca_host::{Host, Source};
use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-f6",
    title: "Throughput and latency by configuration and number of connections",
    paper: CA,
    section: "Figure 6, section 3",
    kind: Kind::Model,
    claim: "the balanced pipeline wins under load and loses to one stage at low load",
    edits: &[NO_SHEPHERDING, DEAR_HAND_OVERS, EQUAL_MODULES, UNBOUNDED],
    run,
};

const UNBOUNDED: Edit = Edit {
    name: "unbounded",
    what: "a connection sends as fast as its window lets it, at low load too",
};
/// So many connections send as much as one stage carries.
const CROSSING: u64 = 5;

/// What a run gave: messages a second, and their mean latency.
pub(crate) struct RunResult {
    pub(crate) rate: f64,
    pub(crate) latency: Duration,
}

impl RunResult {
    fn cell(&self) -> Cell {
        Cell::from(format!("{:.0} / {:.1}", self.rate, self.latency.0 as f64 / 1e3))
    }
}

/// Connections that send as fast as their window of two messages lets them.
/// `long` is in the paper's time.
pub(crate) fn load(
    costs: &Costs,
    way: Configuration,
    connections: usize,
    size: Bytes,
    long: Duration,
) -> RunResult {
    paced(costs, way, connections, size, Duration::ZERO, long)
}

/// Connections that send a message every so often, or as [`load`] has it if that is zero.
fn paced(
    costs: &Costs,
    way: Configuration,
    connections: usize,
    size: Bytes,
    every: Duration,
    long: Duration,
) -> RunResult {
    let long = costs.of_paper(long);
    let mut host = Host::new(way.elements(), costs.overheads, costs.wire());
    let warm = Instant(long.0 / 5);
    for n in 0..connections {
        let source = Source {
            size,
            every,
            window: if every == Duration::ZERO { 2 } else { 0 },
            // Not all at the same moment.
            from: Instant(costs.of_paper(Duration(n as u64 * 10_000)).0),
            until: Instant::MAX,
        };
        host.connect(costs.unreliable.clone(), &way.places(n, 3), None, source);
    }
    host.run(warm);
    (0..connections).for_each(|n| _ = host.take(n));
    host.run(warm + long);
    let (mut messages, mut sum) = (0, 0);
    for n in 0..connections {
        let seen = host.take(n);
        messages += seen.messages;
        sum += seen.latency.0 * seen.messages;
    }
    RunResult {
        rate: messages as f64 / long.as_secs_f64(),
        latency: Duration(sum / messages.max(1)),
    }
}

/// A single message now and then.
fn calm(costs: &Costs, way: Configuration) -> Duration {
    let mut host = Host::new(way.elements(), costs.overheads, costs.wire());
    let every = costs.of_paper(Duration::from_millis(5));
    let source =
        Source { size: Bytes(1024), every, window: 0, from: Instant::ZERO, until: Instant::MAX };
    host.connect(costs.unreliable.clone(), &way.places(0, 3), None, source);
    host.run(Instant(every.0 * 40));
    host.take(0).latency
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = with_each(params, watch, with)?;
    outcome.note("A model in virtual time: the product's elements and pipes on modules of these costs. On this machine the interface is a call of the kernel. Real elements: ca-f6-real.");
    outcome.note("The outgoing stack has three modules here (remote UI, transport with checksum, network), so the pipeline with a stage for each has three stages.");
    Ok(outcome)
}

/// Connections that send a fifth of what one stage carries, each: what the paper's applications did is not stated,
/// but its curves part at five connections.
fn at_bounded_rate(
    params: &Params,
    costs: &Costs,
    long: Duration,
    outcome: &mut Outcome,
    watch: &dyn ProgressWatch,
) -> Result<(), RunError> {
    let whose = costs.whose;
    let most = load(costs, Configuration::Pipeline(1), 10, Bytes(1024), long).rate;
    let every = Duration((CROSSING as f64 * 1e9 / most) as u64);
    let every = params.edited(UNBOUNDED.name, every, Duration::ZERO);
    let counts = [1, 2, 4, 6, 8, 10];
    let mut table = Table::new(
        format!("The same, each connection at a fifth of what one stage carries, with {whose}"),
        &["configuration", "elements", "1", "2", "4", "6", "8", "10"],
    );
    let mut found = Vec::new();
    for way in [Configuration::Pipeline(1), Configuration::Pipeline(2)] {
        watch.go_on(&format!("{} at a bounded rate, {whose}", way.name()))?;
        let runs = counts.map(|n| paced(costs, way, n, Bytes(1024), every, long));
        let front = [Cell::from(way.name()), u64::from(way.elements()).into()];
        table.row(front.into_iter().chain(runs.iter().map(RunResult::cell)));
        found.push(runs);
    }
    outcome.tables.push(table);
    let pairs: Vec<_> = found[0].iter().zip(&found[1]).collect();
    let (below, above) = pairs.split_at(3);
    let rates = |pairs: &[(&RunResult, &RunResult)]| {
        let each = pairs.iter().map(|(one, two)| format!("{:.2}", two.rate / one.rate));
        each.collect::<Vec<_>>().join(", ")
    };
    outcome.claim(
        format!("below five connections two stages carry what one does, and a single message is later ({whose})"),
        below.iter().all(|(one, two)| (two.rate / one.rate - 1.0).abs() < 0.02)
            && below[0].1.latency > below[0].0.latency,
        format!(
            "{} times; {:.2} and {:.2} us",
            rates(below),
            below[0].1.latency.0 as f64 / 1e3,
            below[0].0.latency.0 as f64 / 1e3
        ),
    );
    outcome.claim(
        format!("above five connections two balanced stages carry more than one, sooner ({whose})"),
        above.iter().all(|(one, two)| two.rate > one.rate * 1.05 && two.latency < one.latency),
        format!("{} times", rates(above)),
    );
    Ok(())
}

fn with(
    params: &Params,
    costs: &Costs,
    long: Duration,
    outcome: &mut Outcome,
    watch: &dyn ProgressWatch,
) -> Result<(), RunError> {
    let ways = [
        Configuration::Pipeline(1),
        Configuration::Pipeline(2),
        Configuration::Pipeline(3),
        Configuration::Connectional(2),
        Configuration::MessageParallel(2),
    ];
    let whose = costs.whose;
    at_bounded_rate(params, costs, long, outcome, watch)?;
    let mut table = Table::new(
        format!(
            "Messages of 1 kB a second / mean latency in us, by configuration and connections, with \
             {whose}, as fast as windows let them"
        ),
        &["configuration", "elements", "1", "2", "4", "6", "8", "10", "calm, us"],
    );
    let mut series = Vec::new();
    let mut found = Vec::new();
    for way in ways {
        watch.go_on(&format!("{}, {whose}", way.name()))?;
        let runs: Vec<(usize, RunResult)> = [1, 2, 4, 6, 8, 10]
            .into_iter()
            .map(|connections| (connections, load(costs, way, connections, Bytes(1024), long)))
            .collect();
        let cells = runs.iter().map(|(_, run)| run.cell());
        let calm = calm(costs, way);
        let front = [Cell::from(way.name()), u64::from(way.elements()).into()];
        let end = Cell::rounded(calm.0 as f64 / 1e3, 2);
        table.row(front.into_iter().chain(cells).chain([end]));
        let points = runs.iter().map(|(n, run)| (*n as f64, run.rate)).collect();
        series.push(Series { name: way.name(), points, marked: true, broad: false });
        found.push((way, runs, calm));
    }
    outcome.tables.push(table);
    let last = |n: usize| &found[n].1[5].1;
    let (one, two, three) = (last(0), last(1), last(2));
    outcome.claim(
        format!("at low load one stage has the shorter latency ({whose})"),
        found[0].2 < found[1].2 && found[1].2 <= found[2].2,
        format!(
            "{:.2}, {:.2}, {:.2} us",
            found[0].2.0 as f64 / 1e3,
            found[1].2.0 as f64 / 1e3,
            found[2].2.0 as f64 / 1e3
        ),
    );
    outcome.claim(
        format!(
            "under load the balanced pipeline has more throughput and less latency than one stage \
             ({whose})"
        ),
        two.rate > one.rate && two.latency < one.latency,
        format!("{:.0} and {:.0} messages/s", two.rate, one.rate),
    );
    outcome.claim(
        format!(
            "a stage for each module gives hardly more than two balanced ones, on more elements \
             ({whose})"
        ),
        three.rate < two.rate * 1.15,
        format!("{:.0} and {:.0} messages/s", three.rate, two.rate),
    );
    outcome.plots.push(Plot {
        title: format!("Throughput by configuration, with {whose}"),
        x: Axis::linear("connections"),
        y: Axis::linear("messages of 1 kB a second"),
        series,
    });
    Ok(())
}
