//! `ca-t2`: three video connections on two processors, re-assigned while they live.
//!
//! The product's manager decides, its elements enact and serve in virtual time; module costs are
//! those of the paper's Table 1, then this machine's. Today a module's work grows so little with its
//! bytes that messages must be larger for the same play: [`LARGER`] times, in seconds as much shorter
//! as they cost less. Bursts are not in the paper's table: two messages here.

use selvedge_data_stack::auto::{Event, Manager, ManagerSettings, TrafficSample};
use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_data_stack::model::{Machine, Stream, StreamId};
use selvedge_units::{Bytes, Duration, Instant};

use super::CA;
use super::ca_costs::{Costs, measured, paper};
use super::ca_host::{Host, Source, Wire};
use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-t2",
    title: "Auto-configuration of three connections over 80 s",
    paper: CA,
    section: "Table 2 and Figure 10, section 4.4",
    kind: Kind::Model,
    claim: "same sequence of assignments; rates kept; latency recovers after each decision",
    edits: &[DEAF, ONE_ELEMENT, STAYS],
    run,
};

const DEAF: Edit =
    Edit { name: "deaf", what: "the manager decides at the start of a connection only" };
const ONE_ELEMENT: Edit =
    Edit { name: "one-element", what: "the host has one element where the manager knows of two" };
const STAYS: Edit = Edit { name: "stays", what: "connection 1 does not close" };

/// A connection of Table 2.
struct ConnectionSpec {
    size: u64,
    per_second: u64,
    latency: u64,
    from: u64,
    until: u64,
    /// The paper's assignments at 0, 10, 30 and 70 s, with its two processors numbered as ours.
    paper: [&'static str; 4],
}

const WANTED: [ConnectionSpec; 3] = [
    ConnectionSpec {
        size: 4096,
        per_second: 320,
        latency: 700,
        from: 0,
        until: 80,
        paper: ["PE.0", "PE.0", "PE.0", "PE.0,1"],
    },
    ConnectionSpec {
        size: 1024,
        per_second: 1408,
        latency: 400,
        from: 0,
        until: 70,
        paper: ["PE.1", "PE.1", "PE.0,1", "-"],
    },
    ConnectionSpec {
        size: 1024,
        per_second: 1152,
        latency: 400,
        from: 10,
        until: 80,
        paper: ["-", "PE.0", "PE.0,1", "PE.0,1"],
    },
];
const SECOND: u64 = 1_000_000_000;
/// How many times the paper's messages ours are, with this machine's costs.
const LARGER: u64 = 15;

/// One set of costs, and what is played with it.
struct Case {
    costs: Costs,
    /// How many times the paper's messages these are.
    larger: u64,
    /// Nanoseconds that stand for the paper's second.
    second: u64,
}

impl Case {
    fn new(costs: Costs, larger: u64) -> Self {
        let work = |costs: &Costs, larger: u64| {
            let size = Bytes(1024 * larger);
            costs.unreliable.iter().map(|cost| cost.of(size, false).0).sum::<u64>()
        };
        let (ours, theirs) = (work(&costs, larger), work(&paper(), 1));
        let second = (u128::from(SECOND) * u128::from(ours) / u128::from(theirs)) as u64;
        Self { costs, larger, second: second.max(1000) }
    }

    fn span(&self, paper: Duration) -> Duration {
        Duration((u128::from(paper.0) * u128::from(self.second) / u128::from(SECOND)) as u64)
    }

    /// The costs, and how sizes and times differ from the paper's.
    fn in_words(&self) -> String {
        let costs = self.costs.in_words();
        match self.larger {
            1 => costs,
            larger => format!(
                "{costs} Messages are {larger} times the paper's, and {} stand for its second.",
                Duration(self.second)
            ),
        }
    }

    fn machine(&self) -> Machine {
        Machine::whole(2, self.costs.overheads)
    }
}

impl ConnectionSpec {
    fn stream(&self, case: &Case) -> Stream {
        let average = Duration(case.second / self.per_second);
        let traffic = Traffic {
            average,
            minimum: Duration(average.0 / 16),
            interval: average * 2,
            largest: Bytes(self.size * case.larger),
        };
        let delay = case.span(Duration::from_micros(self.latency));
        let quality = Quality { delay, loss_burst: 0, promise: Promise::Wanted };
        Stream::new(Contract { traffic, quality }, case.costs.unreliable.clone())
    }

    fn source(&self, case: &Case, until: u64) -> Source {
        Source {
            size: Bytes(self.size * case.larger),
            every: Duration(case.second / self.per_second),
            window: 0,
            // The three are not in step.
            from: Instant(self.from * case.second + case.span(Duration(self.latency * 100)).0),
            until: Instant(until * case.second),
        }
    }
}

struct ScenarioRun {
    case: Case,
    host: Host,
    manager: Manager,
    /// Assignments at 5, 15, 40 and 75 s.
    places: Vec<Vec<String>>,
    /// Each connection's rate in Mbit/s and mean latency in us, each second.
    lines: Vec<[Vec<(f64, f64)>; 2]>,
    decisions: Vec<(Instant, String)>,
    offered: [u64; 3],
    left: [u64; 3],
    is_deaf: bool,
    /// The second in which each connection closes.
    until: [u64; 3],
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    let ours = measured(params.amount(31, 5))?;
    for case in [Case::new(paper(), 1), Case::new(ours, LARGER)] {
        let (in_words, theirs) = (case.in_words(), case.costs.are_theirs());
        let mut found = Outcome::default();
        played(params, case, &mut found, watch)?;
        found.note(in_words);
        outcome.absorb(found, theirs);
    }
    outcome
        .note("A model in virtual time: the product's manager and elements, no network interface.");
    outcome.note("The paper's text and table number its processors differently (PE.0 and PE.2; PE.1 and PE.2).");
    Ok(outcome)
}

fn played(
    params: &Params,
    case: Case,
    outcome: &mut Outcome,
    watch: &dyn ProgressWatch,
) -> Result<(), RunError> {
    let meta = ManagerSettings {
        sampling: case.span(Duration::from_millis(500)),
        activation: case.span(Duration::from_secs(4)),
        ..ManagerSettings::default()
    };
    let mut play = ScenarioRun {
        host: Host::new(
            params.edited(ONE_ELEMENT.name, 2, 1),
            case.costs.overheads,
            Wire::default(),
        ),
        manager: Manager::new(case.machine(), meta, Instant::ZERO),
        places: Vec::new(),
        lines: vec![Default::default(); 3],
        decisions: Vec::new(),
        offered: [0; 3],
        left: [0; 3],
        is_deaf: params.is_edited(DEAF.name),
        until: params.edited(STAYS.name, WANTED.map(|wanted| wanted.until), [80; 3]),
        case,
    };
    for half in 0..160 {
        if half % 20 == 0 {
            watch.go_on(&format!("second {}, {}", half / 2, play.case.costs.whose))?;
        }
        play.step(half);
    }
    play.outcome(outcome);
    Ok(())
}

impl ScenarioRun {
    /// Half a second: what begins or changes at its start, the traffic, and the manager's look.
    fn step(&mut self, half: u64) {
        let now = Instant(half * self.case.second / 2);
        let mut events = Vec::new();
        for (n, wanted) in WANTED.iter().enumerate() {
            if wanted.from * 2 == half
                && let Ok((_, decision)) = self.manager.open(wanted.stream(&self.case))
            {
                let places = decision.streams[n].assigned.clone();
                let costs = self.case.costs.unreliable.clone();
                self.host.connect(costs, &places, None, wanted.source(&self.case, self.until[n]));
                let place = decision.streams[n].elements();
                self.decisions.push((now, format!("connection {n} on {place}")));
            }
            if self.until[n] * 2 == half {
                self.manager.close(StreamId(n), &mut events);
            }
        }
        if half == 60 {
            self.host.change(2, Bytes(2048 * self.case.larger));
        }
        self.enact(now, &mut events);
        let connections = self.manager.streams().len();
        let before: Vec<u64> = (0..connections).map(|n| self.host.sent(n)).collect();
        let until = now + Duration(self.case.second / 2);
        self.host.run(until);
        let mut seen = [TrafficSample::default(); 3];
        for (n, &before) in before.iter().enumerate() {
            let (sent, out) = (self.host.sent(n) - before, self.host.take(n));
            let wanted = &WANTED[n];
            let doubled = n == 2 && half >= 60;
            let times = self.case.larger * if doubled { 2 } else { 1 };
            let size = Bytes(wanted.size * times);
            self.offered[n] += sent;
            self.left[n] += out.messages;
            let active = half < self.until[n] * 2;
            if active && half >= wanted.from * 2 {
                let seconds = self.case.second as f64 / 2e9;
                let rate = out.messages as f64 * size.0 as f64 * 8.0 / 1e6 / seconds;
                self.lines[n][0].push((half as f64 / 2.0, rate));
                self.lines[n][1].push((half as f64 / 2.0, out.latency.0 as f64 / 1e3));
            }
            seen[n] = TrafficSample {
                messages: sent,
                bytes: Bytes(size.0 * sent),
                largest: if sent > 0 { size } else { Bytes(0) },
                closest: None,
                left: out.messages,
                latency: out.latency,
                latency_max: out.latency_max,
                late: 0,
            };
        }
        self.manager.sample(until, |StreamId(n)| seen[n], &mut events);
        self.enact(until, &mut events);
        if [9, 29, 79, 149].contains(&half) {
            let place = |n: usize| {
                let stream = self.manager.streams().get(n).filter(|_| half < self.until[n] * 2);
                stream.map_or_else(|| "-".to_owned(), |stream| stream.elements().to_string())
            };
            self.places.push((0..3).map(place).collect());
        }
    }

    fn enact(&mut self, now: Instant, events: &mut Vec<Event>) {
        if self.is_deaf {
            events.clear();
        }
        for event in events.drain(..) {
            if let Event::Reassigned { stream, phase, moved } = event {
                let all: Vec<String> = moved
                    .iter()
                    .map(|&StreamId(n)| format!("{n} to {}", self.manager.streams()[n].elements()))
                    .collect();
                self.decisions.push((
                    now,
                    format!("for {} ({}): connection {}", stream.0, phase.name(), all.join(", ")),
                ));
                for StreamId(n) in moved {
                    self.host.assign(n, &self.manager.streams()[n].assigned);
                }
            }
        }
    }

    fn latency(&self, n: usize, from: f64, until: f64) -> f64 {
        let within: Vec<f64> = self.lines[n][1]
            .iter()
            .filter(|(second, _)| (from..until).contains(second))
            .map(|(_, latency)| *latency)
            .collect();
        within.iter().sum::<f64>() / within.len().max(1) as f64
    }

    fn outcome(self, outcome: &mut Outcome) {
        let (whose, second) = (self.case.costs.whose, self.case.second);
        let mut table = Table::new(
            format!("Assignments with {whose}, and the paper's (its processors numbered as ours)"),
            &["connection", "0 s", "paper", "10 s", "paper", "30 s", "paper", "70 s", "paper"],
        );
        let mut same = true;
        for (n, wanted) in WANTED.iter().enumerate() {
            let mut row = vec![Cell::from(n as u64)];
            for (at, paper) in wanted.paper.iter().enumerate() {
                let ours = self.places[at][n].clone();
                same &= ours == *paper;
                row.extend([Cell::from(ours), (*paper).into()]);
            }
            table.row(row);
        }
        outcome.tables.push(table);
        let mut table = Table::new(format!("Decisions with {whose}"), &["second", "what"]);
        for (at, what) in &self.decisions {
            table.row([Cell::rounded(at.0 as f64 / second as f64, 1), what.as_str().into()]);
        }
        outcome.tables.push(table);
        outcome.claim(
            format!("the assignments are the paper's, in its order ({whose})"),
            same,
            format!("{:?}", self.places),
        );
        let kept = self.offered.iter().zip(&self.left).all(|(offered, left)| offered - left < 4);
        outcome.claim(
            format!("rates are kept: what was offered came out ({whose})"),
            kept,
            format!("{:?} of {:?} messages", self.left, self.offered),
        );
        let reaction = self.decisions.iter().map(|(at, _)| at.0).find(|&at| at > 30 * second);
        outcome.claim(
            format!("the change at 30 s is acted upon within the activation delay and a sampling period ({whose})"),
            reaction.is_some_and(|at| at <= 34 * second + second / 2),
            format!("at {:.1} s", reaction.unwrap_or(0) as f64 / second as f64),
        );
        let mean = |from, until| {
            (self.latency(0, from, until) * 320.0 + self.latency(2, from, until) * 1152.0) / 1472.0
        };
        let (before, poor, after) = (mean(20.0, 30.0), mean(31.0, 34.0), mean(36.0, 69.0));
        outcome.claim(
            format!("latency of the two that shared a processor rises at 30 s and falls after the decision ({whose})"),
            poor > before && after < poor,
            format!("{before:.1}, {poor:.1}, then {after:.1} us on average"),
        );
        let (crowded, alone) = (self.latency(0, 40.0, 69.0), self.latency(0, 72.0, 80.0));
        outcome.claim(
            format!("connection 0 gains at least 5 % when connection 1 has closed ({whose})"),
            alone < crowded * 0.95,
            format!("{crowded:.1} us, then {alone:.1} us"),
        );
        for (what, unit, which) in [("Rate", "Mbit/s", 0), ("Latency", "us", 1)] {
            let series = self.lines.iter().enumerate().map(|(n, lines)| Series {
                name: format!("connection {n}"),
                points: lines[which].clone(),
                marked: false,
                broad: false,
            });
            outcome.plots.push(Plot {
                title: format!("{what} of three connections on two elements, {whose}"),
                x: Axis::linear("seconds"),
                y: Axis::linear(unit),
                series: series.collect(),
            });
        }
    }
}
