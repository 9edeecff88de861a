//! `qf-f30`: what IN and OUT filters save, and what they cost.

use std::hint::black_box;
use std::time::Instant as StdInstant;

use selvedge_control_code::native::Compiler;
use selvedge_control_event::{Filter, Format, program};
use selvedge_os_jit::Native;

use super::event_hosts::Hosts;
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::median;
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "qf-f30",
    title: "Event handling and submission with IN and OUT filters, and the filters' own cost",
    paper: super::QF,
    section: "Figure 30, section 4.4.3",
    kind: Kind::Real,
    claim: "the cost falls as the filter blocks; the filter itself takes less than 1 us",
    edits: &[],
    run,
};

const SINKS: usize = 8;
const FORMAT: &str = "input { int cpu; int memory; long number[12]; };";
/// The thesis: without a filter, to one sink, to none; us.
const THEIRS: [[f64; 3]; 2] = [[950.0, 312.0, 200.0], [430.0, 156.0, 56.0]];
const THEIR_FILTERS: [f64; 2] = [0.9, 1.0];

/// Some if-else statements, as the thesis's; chooses one sink, or returns 0 for none.
fn source(pass: bool) -> String {
    let end = if pass { "return 1;" } else { "return 0;" };
    format!(
        "{{
            int i;
            int best;
            best = 0;
            if (input.cpu > 80) best = 1;
            else if (input.memory > 500) best = 2;
            else if (input.number[0] < 0) best = 3;
            for (i = 0; i < channel.sinks; i++) choice.sink[i] = i == best;
            {end}
        }}"
    )
}

fn filter(pass: bool, hosts: &mut Hosts, host: usize, format: &Format) -> Result<Filter, RunError> {
    let needs = |why: String| RunError::Needs(why);
    let program = program("filter", &source(pass), format).map_err(|why| needs(why.to_string()))?;
    let mut compiler = Compiler::new().map_err(|why| needs(why.to_string()))?;
    let native = Native::new(program, &mut compiler).map_err(|why| needs(why.to_string()))?;
    let blocks = hosts.all[host].exchange.blocks_mut();
    Filter::new(Box::new(native), "none", blocks).map_err(|why| needs(why.to_string()))
}

/// What the filter lets pass.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    All,
    One,
    None,
}

const PASSES: [Pass; 3] = [Pass::All, Pass::One, Pass::None];

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let samples = params.amount(1000, 40);
    let rounds = params.amount(5, 1);
    let format = Format::parse("measured", FORMAT).expect("declared above");
    let mut found = [[0.0; 3]; 2];
    for (at, pass) in PASSES.into_iter().enumerate() {
        let (mut handling, mut submitting) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            watch.go_on(&format!("filter {} of 3, round {} of {rounds}", at + 1, round + 1))?;
            handling.push(incoming(pass, samples, &format)?);
            submitting.push(outgoing(pass, samples, &format)?);
        }
        found[0][at] = median(handling);
        found[1][at] = median(submitting);
    }
    watch.go_on("the filter alone")?;
    let filters = filter_cost(samples, &format)?;
    Ok(show(found, filters))
}

/// A host with eight sinks handles an event: each copies it and writes down the time, as in the
/// thesis.
fn incoming(pass: Pass, samples: usize, format: &Format) -> Result<f64, RunError> {
    let mut hosts = Hosts::new(2, SINKS, 0, format)?;
    if pass != Pass::All {
        let filter = filter(pass == Pass::One, &mut hosts, 1, format)?;
        let at = hosts.all[1].channel;
        if let Some(channel) = hosts.all[1].exchange.channel_mut(at) {
            channel.set_filter(Some(filter));
        }
    }
    let record = vec![1; format.size()];
    let mut times = Vec::new();
    let mut log = String::with_capacity(1 << 16);
    let wanted = match pass {
        Pass::All => SINKS,
        Pass::One => 1,
        Pass::None => 0,
    };
    for _ in 0..samples {
        hosts.publish(&record);
        let now = hosts.now();
        let began = StdInstant::now();
        let host = &mut hosts.all[1];
        host.transport.run(now, &mut host.exchange);
        let mut taken = 0;
        if let Some(channel) = host.exchange.channel_mut(host.channel) {
            for sink in &host.sinks {
                while let Some(delivery) = channel.poll_sink(now, *sink) {
                    let copy = black_box(delivery.event.record.to_vec());
                    log.clear();
                    log.push_str(&format!("{} {} bytes\n", now.0, copy.len()));
                    black_box(&log);
                    taken += 1;
                }
            }
        }
        times.push(began.elapsed().as_nanos() as f64 / 1000.0);
        if taken != wanted {
            return Err(RunError::Needs(format!("{taken} sinks had the event, not {wanted}")));
        }
        hosts.handle();
    }
    Ok(median(times))
}

/// A source submits an event to eight hosts.
fn outgoing(pass: Pass, samples: usize, format: &Format) -> Result<f64, RunError> {
    let mut hosts = Hosts::new(SINKS + 1, 1, 0, format)?;
    if pass != Pass::All {
        let filter = filter(pass == Pass::One, &mut hosts, 0, format)?;
        let channel = hosts.all[0].channel;
        hosts.all[0].exchange.set_out_filter(channel, Some(filter));
    }
    let record = vec![1; format.size()];
    let wanted = match pass {
        Pass::All => SINKS,
        Pass::One => 1,
        Pass::None => 0,
    };
    let mut times = Vec::new();
    for _ in 0..samples {
        let began = StdInstant::now();
        let reached = hosts.publish(&record);
        times.push(began.elapsed().as_nanos() as f64 / 1000.0);
        if reached != wanted {
            return Err(RunError::Needs(format!("{reached} hosts were reached, not {wanted}")));
        }
        hosts.handle();
        hosts.drain();
    }
    Ok(median(times))
}

/// The OUT filter's own cost: what a submission to nobody costs more with it, where nobody
/// listens anyway; us. And the IN filter's, likewise with no sinks.
fn filter_cost(samples: usize, format: &Format) -> Result<[f64; 2], RunError> {
    // The filter chooses the first, so that all but the filter is the same.
    let record = vec![0; format.size()];
    let batch = 50;
    let mut costs = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for (place, cost) in costs.iter_mut().enumerate() {
        for with in [false, true] {
            // IN: one sink here. OUT: one host, which is not reached either way but by the filter.
            let mut hosts = Hosts::new(2, 1, 1, format)?;
            let channel = hosts.all[0].channel;
            if with {
                let filter = filter(true, &mut hosts, 0, format)?;
                match place {
                    0 => {
                        if let Some(channel) = hosts.all[0].exchange.channel_mut(channel) {
                            channel.set_filter(Some(filter));
                        }
                    }
                    _ => hosts.all[0].exchange.set_out_filter(channel, Some(filter)),
                }
            }
            for _ in 0..samples.div_ceil(10) {
                let began = StdInstant::now();
                for _ in 0..batch {
                    black_box(hosts.publish(&record));
                }
                let each = began.elapsed().as_nanos() as f64 / 1000.0 / f64::from(batch);
                cost[usize::from(with)].push(each);
                hosts.handle();
                hosts.drain();
            }
        }
    }
    let [inward, outward] = costs.map(|[without, with]| (median(with) - median(without)).max(0.0));
    Ok([inward, outward])
}

fn show(found: [[f64; 3]; 2], filters: [f64; 2]) -> Outcome {
    let names = ["event handling, IN filter", "event submission, OUT filter"];
    let mut table = Table::new(
        format!("Microseconds for an event, {SINKS} sinks"),
        &["", "no filter", "to one sink", "to none", "thesis: no filter", "to one", "to none"],
    );
    for (at, name) in names.into_iter().enumerate() {
        let ours = found[at].map(|us| Cell::rounded(us, 2));
        let theirs = THEIRS[at].map(|us| Cell::rounded(us, 0));
        table.row(std::iter::once(Cell::from(name)).chain(ours).chain(theirs));
    }
    let mut own = Table::new("The filter itself, us", &["", "here", "thesis"]);
    for (at, name) in ["IN filter", "OUT filter"].into_iter().enumerate() {
        own.row([
            Cell::from(name),
            Cell::rounded(filters[at], 3),
            Cell::rounded(THEIR_FILTERS[at], 1),
        ]);
    }
    let mut outcome = Outcome { tables: vec![table, own], ..Outcome::default() };
    for (at, name) in names.into_iter().enumerate() {
        let [all, one, none] = found[at];
        outcome.claim(
            format!("{name}: the cost falls as the filter blocks"),
            all > one && one > none,
            format!("{all:.2}, {one:.2}, {none:.2} us"),
        );
    }
    for (at, name) in ["IN", "OUT"].into_iter().enumerate() {
        outcome.claim(
            format!("the {name} filter itself takes less than 1 us"),
            filters[at] < 1.0,
            format!("{:.3} us", filters[at]),
        );
    }
    outcome.note(
        "Hosts are exchanges in this process with a UDP socket each; filters run as machine code. \
         Handling an event is taking it from the socket, and for each sink a copy and a line of text \
         with the time.",
    );
    let series = |at: usize, name: &str| Series {
        name: name.to_owned(),
        points: [8.0, 1.0, 0.0].into_iter().zip(found[at]).collect(),
        marked: true,
        broad: false,
    };
    outcome.plots.push(Plot {
        title: "The cost of an event against the sinks that the filter lets have it".to_owned(),
        x: Axis::linear("sinks"),
        y: Axis::linear("us"),
        series: vec![series(0, names[0]), series(1, names[1])],
    });
    outcome
}
