//! `ca-t2`: three video connections on two processors, re-assigned while they live.
//!
//! The product's manager decides, its elements enact and serve in virtual time; module costs are
//! those of the paper's Table 1. Bursts are not in the paper's table: two messages here.

use selvedge_stack::auto::{Event, Manager, Meta, Observed};
use selvedge_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_stack::model::{Machine, Stream, StreamId};
use selvedge_units::{Bytes, Instant, Span};

use super::CA;
use super::ca_costs::{TABLE_1, paper, us};
use super::ca_host::{Host, Source, Wire};
use crate::experiment::{Experiment, Kind, Params, RunError, Watch};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ca-t2",
    title: "Auto-configuration of three connections over 80 s",
    paper: CA,
    section: "Table 2 and Figure 10, section 4.4",
    kind: Kind::Model,
    claim: "same sequence of assignments; rates kept; latency recovers after each decision",
    run,
};

/// A connection of Table 2.
struct Wanted {
    size: u64,
    per_second: u64,
    latency: u64,
    from: u64,
    until: u64,
    /// The paper's assignments at 0, 10, 30 and 70 s, with its two processors numbered as ours.
    paper: [&'static str; 4],
}

const WANTED: [Wanted; 3] = [
    Wanted {
        size: 4096,
        per_second: 320,
        latency: 700,
        from: 0,
        until: 80,
        paper: ["PE.0", "PE.0", "PE.0", "PE.0,1"],
    },
    Wanted {
        size: 1024,
        per_second: 1408,
        latency: 400,
        from: 0,
        until: 70,
        paper: ["PE.1", "PE.1", "PE.0,1", "-"],
    },
    Wanted {
        size: 1024,
        per_second: 1152,
        latency: 400,
        from: 10,
        until: 80,
        paper: ["-", "PE.0", "PE.0,1", "PE.0,1"],
    },
];
const SECOND: u64 = 1_000_000_000;

impl Wanted {
    fn stream(&self) -> Stream {
        let average = Span(SECOND / self.per_second);
        let traffic = Traffic {
            average,
            minimum: Span(average.0 / 16),
            interval: average * 2,
            largest: Bytes(self.size),
        };
        let quality = Quality { delay: us(self.latency), loss_burst: 0, promise: Promise::Wanted };
        Stream::new(Contract { traffic, quality }, paper().unreliable)
    }

    fn source(&self) -> Source {
        Source {
            size: Bytes(self.size),
            every: Span(SECOND / self.per_second),
            window: 0,
            // The three are not in step.
            from: Instant(self.from * SECOND + self.latency * 100),
            until: Instant(self.until * SECOND),
        }
    }
}

struct Play {
    host: Host,
    manager: Manager,
    /// Assignments at 5, 15, 40 and 75 s.
    places: Vec<Vec<String>>,
    /// Each connection's rate in Mbit/s and mean latency in us, each second.
    lines: Vec<[Vec<(f64, f64)>; 2]>,
    decisions: Vec<(Instant, String)>,
    offered: [u64; 3],
    left: [u64; 3],
}

fn run(params: &Params, watch: &dyn Watch) -> Result<Outcome, RunError> {
    let _ = params;
    let meta = Meta {
        sampling: Span::from_millis(500),
        activation: Span::from_secs(4),
        ..Meta::default()
    };
    let mut play = Play {
        host: Host::new(2, TABLE_1, Wire::default()),
        manager: Manager::new(Machine::whole(2, TABLE_1), meta, Instant::ZERO),
        places: Vec::new(),
        lines: vec![Default::default(); 3],
        decisions: Vec::new(),
        offered: [0; 3],
        left: [0; 3],
    };
    for half in 0..160 {
        if half % 20 == 0 {
            watch.go_on(&format!("second {}", half / 2))?;
        }
        play.step(half);
    }
    Ok(play.outcome())
}

impl Play {
    /// Half a second: what begins or changes at its start, the traffic, and the manager's look.
    fn step(&mut self, half: u64) {
        let now = Instant(half * SECOND / 2);
        let mut events = Vec::new();
        for (n, wanted) in WANTED.iter().enumerate() {
            if wanted.from * 2 == half
                && let Ok((_, decision)) = self.manager.open(wanted.stream())
            {
                let places = decision.streams[n].assigned.clone();
                self.host.connect(paper().unreliable, &places, None, wanted.source());
                let place = decision.streams[n].elements();
                self.decisions.push((now, format!("connection {n} on {place}")));
            }
            if wanted.until * 2 == half {
                self.manager.close(StreamId(n), &mut events);
            }
        }
        if half == 60 {
            self.host.change(2, Bytes(2048));
        }
        self.enact(now, &mut events);
        let connections = self.manager.streams().len();
        let before: Vec<u64> = (0..connections).map(|n| self.host.sent(n)).collect();
        let until = now + Span(SECOND / 2);
        self.host.run(until);
        let mut seen = [Observed::default(); 3];
        for (n, &before) in before.iter().enumerate() {
            let (sent, out) = (self.host.sent(n) - before, self.host.take(n));
            let wanted = &WANTED[n];
            let doubled = n == 2 && half >= 60;
            let size = Bytes(if doubled { wanted.size * 2 } else { wanted.size });
            self.offered[n] += sent;
            self.left[n] += out.messages;
            let active = half < wanted.until * 2;
            if active && half >= wanted.from * 2 {
                let rate = out.messages as f64 * size.0 as f64 * 16.0 / 1e6;
                self.lines[n][0].push((half as f64 / 2.0, rate));
                self.lines[n][1].push((half as f64 / 2.0, out.latency.0 as f64 / 1e3));
            }
            seen[n] = Observed {
                messages: sent,
                bytes: Bytes(size.0 * sent),
                largest: if sent > 0 { size } else { Bytes(0) },
                closest: None,
                left: out.messages,
                latency: out.latency,
                latency_max: out.latency_max,
            };
        }
        self.manager.look(until, |StreamId(n)| seen[n], &mut events);
        self.enact(until, &mut events);
        if [9, 29, 79, 149].contains(&half) {
            let place = |n: usize| {
                let stream = self.manager.streams().get(n).filter(|_| half < WANTED[n].until * 2);
                stream.map_or_else(|| "-".to_owned(), |stream| stream.elements().to_string())
            };
            self.places.push((0..3).map(place).collect());
        }
    }

    fn enact(&mut self, now: Instant, events: &mut Vec<Event>) {
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

    fn outcome(self) -> Outcome {
        let mut outcome = Outcome::default();
        let mut table = Table::new(
            "Assignments, ours and the paper's (its processors numbered as ours)",
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
        let mut table = Table::new("Decisions", &["second", "what"]);
        for (at, what) in &self.decisions {
            table.row([Cell::rounded(at.0 as f64 / 1e9, 1), what.as_str().into()]);
        }
        outcome.tables.push(table);
        outcome.claim(
            "the assignments are the paper's, in its order",
            same,
            format!("{:?}", self.places),
        );
        let kept = self.offered.iter().zip(&self.left).all(|(offered, left)| offered - left < 4);
        outcome.claim(
            "rates are kept: what was offered came out",
            kept,
            format!("{:?} of {:?} messages", self.left, self.offered),
        );
        let reaction = self.decisions.iter().map(|(at, _)| at.0).find(|&at| at > 30 * SECOND);
        outcome.claim(
            "the change at 30 s is acted upon within the activation delay and a sampling period",
            reaction.is_some_and(|at| at <= 34_500_000_000),
            format!("at {:.1} s", reaction.unwrap_or(0) as f64 / 1e9),
        );
        let mean = |from, until| {
            (self.latency(0, from, until) * 320.0 + self.latency(2, from, until) * 1152.0) / 1472.0
        };
        let (before, poor, after) = (mean(20.0, 30.0), mean(31.0, 34.0), mean(36.0, 69.0));
        outcome.claim(
            "latency of the two that shared a processor rises at 30 s and falls after the decision",
            poor > before && after < poor,
            format!("{before:.0}, {poor:.0}, then {after:.0} us on average"),
        );
        let (crowded, alone) = (self.latency(0, 40.0, 69.0), self.latency(0, 72.0, 80.0));
        outcome.claim(
            "connection 0 gains when connection 1 has closed",
            alone < crowded,
            format!("{crowded:.0} us, then {alone:.0} us"),
        );
        for (what, unit, which) in [("Rate", "Mbit/s", 0), ("Latency", "us", 1)] {
            let series = self.lines.iter().enumerate().map(|(n, lines)| Series {
                name: format!("connection {n}"),
                points: lines[which].clone(),
                marked: false,
                broad: false,
            });
            outcome.plots.push(Plot {
                title: format!("{what} of three connections on two elements"),
                x: Axis::linear("seconds"),
                y: Axis::linear(unit),
                series: series.collect(),
            });
        }
        outcome.note("A model in virtual time: the product's manager and elements, on module costs of the paper's Table 1.");
        outcome.note("The paper's text and table number its processors differently (PE.0 and PE.2; PE.1 and PE.2).");
        outcome
    }
}
