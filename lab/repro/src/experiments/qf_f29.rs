//! `qf-f29`: what submitting an event costs against the number of sinks.

use std::time::Instant as StdInstant;

use selvedge_control_event::Format;

use super::event_hosts::Hosts;
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::median;
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "qf-f29",
    title: "The cost of submitting an event against the number of sinks",
    paper: super::QF,
    section: "Figure 29, section 4.4.1",
    kind: Kind::Real,
    claim: "grows linearly with the sinks, for 100 bytes and for 1 kB",
    edits: &[],
    run,
};

const SINKS: [usize; 7] = [1, 2, 4, 8, 16, 32, 60];
/// Bytes of a record.
const SIZES: [usize; 2] = [104, 1024];
/// Microseconds for each sink of the thesis, at about 8 sinks: ECho, and KECho from a kernel thread.
const THEIRS: (f64, f64) = (100.0, 85.0);
/// The part of the cost's variance that a straight line has to explain.
const STRAIGHT: f64 = 0.97;

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let samples = params.amount(400, 20);
    let rounds = params.amount(5, 1);
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        "Microseconds to submit an event to hosts over UDP, one sink each",
        &["sinks", "104 bytes", "a sink", "1024 bytes", "a sink", "ECho (thesis), 100 bytes"],
    );
    let mut lines = [Vec::new(), Vec::new()];
    for (line, size) in lines.iter_mut().zip(SIZES) {
        let format = format!("input {{ long value[{}]; }};", size / 8);
        let format = Format::parse("measured", &format).expect("declared here");
        let record = vec![7; size];
        for sinks in SINKS {
            let mut middles = Vec::new();
            for _ in 0..rounds {
                watch.go_on(&format!("{size} bytes to {sinks} sinks"))?;
                let mut hosts = Hosts::new(sinks + 1, 1, 0, &format)?;
                middles.push(submit(&mut hosts, &record, samples, sinks)?);
            }
            line.push((sinks as f64, median(middles)));
        }
    }
    for (at, sinks) in SINKS.into_iter().enumerate() {
        let [small, large] = [0, 1].map(|line: usize| lines[line][at].1);
        table.row([
            Cell::from(sinks as u64),
            Cell::rounded(small, 1),
            Cell::rounded(small / sinks as f64, 2),
            Cell::rounded(large, 1),
            Cell::rounded(large / sinks as f64, 2),
            Cell::rounded(THEIRS.0 * sinks as f64, 0),
        ]);
    }
    outcome.tables.push(table);
    for (line, size) in lines.iter().zip(SIZES) {
        let (slope, explained) = straight(line);
        outcome.claim(
            format!("with {size} bytes the cost grows linearly with the sinks"),
            explained >= STRAIGHT && slope > 0.0,
            format!("{slope:.2} us a sink; a line explains {:.1} %", explained * 100.0),
        );
    }
    let each = lines[0].last().map_or(0.0, |(sinks, us)| us / sinks);
    outcome.claim(
        "a sink costs less than the thesis's best, 85 us",
        each < THEIRS.1,
        format!("{each:.2} us"),
    );
    outcome.note(format!(
        "Hosts are exchanges in this process, each with a UDP socket on the loopback; an event is one \
         datagram for each host. Medians of {rounds} rounds of {samples} events."
    ));
    let [small, large] = lines;
    let series =
        |name: &str, points| Series { name: name.to_owned(), points, marked: true, broad: false };
    outcome.plots.push(Plot {
        title: "Submitting an event".to_owned(),
        x: Axis::linear("sinks"),
        y: Axis::linear("us"),
        series: vec![series("104 bytes", small), series("1024 bytes", large)],
    });
    Ok(outcome)
}

/// Microseconds of a submission.
fn submit(hosts: &mut Hosts, record: &[u8], samples: usize, sinks: usize) -> Result<f64, RunError> {
    let mut times = Vec::new();
    for _ in 0..samples {
        let began = StdInstant::now();
        let reached = hosts.publish(record);
        times.push(began.elapsed().as_nanos() as f64 / 1000.0);
        if reached != sinks {
            return Err(RunError::Needs(format!("{reached} of {sinks} hosts were reached")));
        }
        hosts.handle();
        hosts.drain();
    }
    Ok(median(times))
}

/// Least squares: the slope, and the part of the variance that the line explains.
fn straight(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|one| one.0), mean(|one| one.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|one| of(one.0 - x, one.1 - y)).sum()
    };
    let (xx, xy, yy) = (sum(&|a, _| a * a), sum(&|a, b| a * b), sum(&|_, b| b * b));
    if xx == 0.0 || yy == 0.0 {
        return (0.0, 1.0);
    }
    (xy / xx, xy * xy / (xx * yy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_explains_itself() {
        let (slope, explained) = straight(&[(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)]);
        assert!((slope - 2.0).abs() < 1e-12 && (explained - 1.0).abs() < 1e-12);
        assert!(straight(&[(1.0, 0.0), (2.0, 9.0), (3.0, 0.0)]).1 < 0.1);
    }
}
