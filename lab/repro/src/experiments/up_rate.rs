//! `up-rate`: how near the measured rate of a path is to the truth, in the simulator: after a cold start, after steps,
//! how long its own queue is, and what it leaves to a flow of CUBIC, or gets beside it; then RFC 8867's test cases.

use selvedge_data_net_line::{
    DelayModel, Jitter, Limit, LineModel, LossModel, QueueModel, Rate, Trace,
};
use selvedge_data_net_rate::RateParams;
use selvedge_sim::{
    Connection, Control, EndpointId, Limits, Load, MeasuredSender, Network, Simulation, TcpParams,
};
use selvedge_units::{Bitrate, Duration, Instant};

use super::bonds::bursts;
use super::up_rate_8867::{self, PACKET};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::spread;
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "up-rate",
    title: "The measured rate of a path beside the truth",
    paper: "Selvedge",
    section: "docs/inside/paths.md",
    kind: Kind::Virtual,
    claim: "0.9 of the truth 3 s after a cold start, within 10 % 2 s after a step, a queue under 50 ms, \
            half to twice its share beside CUBIC",
    edits: &[],
    run,
};

const BUFFERS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];
/// Packets are this much earlier or later, in order.
const JITTER: Duration = Duration::from_millis(3);
const STEP: Duration = Duration::from_secs(10);

/// A path, and who uses it.
#[derive(Clone, Debug)]
struct Path {
    rate: Bitrate,
    round_trip: Duration,
    buffer: Duration,
    /// Its rate after ten seconds.
    then: Option<Bitrate>,
    beside_cubic: bool,
    params: RateParams,
    jitter: Jitter,
    reorders: bool,
    loss: LossModel,
    seed: u64,
}

impl Path {
    fn new(rate: Bitrate, round_trip: u64, buffer: Duration, seed: u64) -> Self {
        let (then, beside_cubic, params) = (None, false, RateParams::default());
        let round_trip = Duration::from_millis(round_trip);
        let (jitter, reorders, loss) = (Jitter::Uniform(JITTER), false, LossModel::None);
        Self { rate, round_trip, buffer, then, beside_cubic, params, jitter, reorders, loss, seed }
    }

    fn model(&self) -> Result<LineModel, RunError> {
        let queue = QueueModel::DropTail {
            limit: Limit {
                packets: u32::MAX,
                bytes: (self.rate * self.buffer).max(PACKET + PACKET),
            },
        };
        let rate = match self.then {
            None => Rate::Constant(self.rate),
            Some(then) => {
                let kbps = [self.rate, then].map(|rate| rate.0 / 1_000);
                let text = format!("ms,kbit/s\n0,{}\n10000,{}\n1000000,0\n", kbps[0], kbps[1]);
                Rate::Trace(Trace::from_csv(&text).map_err(|why| RunError::Needs(why.to_string()))?)
            }
        };
        let delay = DelayModel {
            delay: self.round_trip / 2 + JITTER,
            jitter: self.jitter.clone(),
            reorders: self.reorders,
        };
        let loss = self.loss;
        Ok(LineModel { rate: Some(rate), queue, delay, loss, ..LineModel::default() })
    }

    fn simulation(&self) -> Result<(Simulation, EndpointId), RunError> {
        let mut network = Network::new(self.seed);
        let hosts = [network.host("near")?, network.host("far")?];
        let back = LineModel {
            delay: DelayModel { delay: self.round_trip / 2, ..DelayModel::default() },
            ..LineModel::default()
        };
        network.link("path", hosts, [self.model()?, back])?;
        if self.beside_cubic {
            let (params, load) = (TcpParams::new(Control::Cubic), Load::Transfer(None));
            Connection::attach(&mut network, "cubic", hosts, &params, Instant::ZERO, load)?;
        }
        let id =
            MeasuredSender::attach(&mut network, "own", hosts, PACKET, Instant::ZERO, self.params)?;
        Ok((Simulation::new(network, Limits::default())?, id))
    }

    fn run(&self, until: Duration) -> Result<(Simulation, EndpointId), RunError> {
        let (mut simulation, id) = self.simulation()?;
        simulation.run(Instant::ZERO + until, &mut |_| {})?;
        Ok((simulation, id))
    }

    /// The estimate at this time, as a share of the truth.
    fn estimated(&self, at: Duration) -> Result<f64, RunError> {
        let (simulation, id) = self.run(at)?;
        let sender = simulation.endpoint::<MeasuredSender>(id);
        let capacity = sender.map_or(0, |sender| sender.estimator().capacity().0);
        Ok(capacity as f64 / self.then.unwrap_or(self.rate).0 as f64)
    }

    /// The share of the path that its packets took over a minute, and the queue's 95th percentile in milliseconds.
    fn used(&self) -> Result<[f64; 2], RunError> {
        let (simulation, _) = self.run(Duration::from_secs(60))?;
        let results = simulation.results();
        let own = results.flows.iter().find(|flow| flow.name == "own");
        let used = own.map_or(0.0, |flow| flow.goodput().0 as f64 / self.rate.0 as f64);
        let queue = results.hops.first().and_then(|hop| hop.queueing.quantile(0.95));
        Ok([used, queue.map_or(0.0, Duration::as_millis_f64)])
    }
}

/// What is measured of each seed; the worst of it and what it may be.
struct Measured {
    table: Table,
    worst: [f64; 2],
    /// The least and the largest of the paths' medians.
    medians: [f64; 2],
}

impl Measured {
    fn new(title: &str, figure: &str) -> Self {
        let columns = ["path", &format!("{figure}, least"), "median", "largest"];
        let none = [f64::INFINITY, f64::NEG_INFINITY];
        Self { table: Table::new(title, &columns), worst: none, medians: none }
    }

    fn row(&mut self, path: String, values: Vec<f64>, decimals: i32) {
        let spread = spread(values);
        self.worst = [self.worst[0].min(spread[0]), self.worst[1].max(spread[2])];
        self.medians = [self.medians[0].min(spread[1]), self.medians[1].max(spread[1])];
        let cells = spread.map(|value| Cell::rounded(value, decimals));
        self.table.row(std::iter::once(Cell::from(path)).chain(cells));
    }
}

/// What is measured of a sender that has its path alone.
struct Alone {
    cold: Measured,
    used: Measured,
    queue: Measured,
}

impl Alone {
    /// On paths of this kind; `after` is how long after a cold start the estimate is read.
    fn new(kind: &str, after: &str) -> Self {
        let title = |what: &str| format!("{kind}: {what}");
        let cold = title(&format!("{after} after a cold start"));
        Self {
            cold: Measured::new(&cold, "estimate of the truth"),
            used: Measured::new(&title("a minute"), "used of the path"),
            queue: Measured::new(&title("its own queue"), "95th percentile, ms"),
        }
    }

    /// A row of each table: the same path under all seeds.
    fn row(&mut self, name: &str, paths: &[Path], after: Duration) -> Result<(), RunError> {
        let estimates = paths.iter().map(|path| path.estimated(after));
        self.cold.row(name.to_owned(), estimates.collect::<Result<_, _>>()?, 2);
        let minutes = paths.iter().map(Path::used).collect::<Result<Vec<_>, _>>()?;
        self.used.row(name.to_owned(), minutes.iter().map(|[used, _]| *used).collect(), 3);
        self.queue.row(name.to_owned(), minutes.iter().map(|[_, queue]| *queue).collect(), 1);
        Ok(())
    }
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let seeds = params.amount(100, 2);
    let seeds = || (0..seeds).map(|n| params.seed.wrapping_add(n));
    let mut outcome = Outcome::default();
    alone(&mut outcome, watch, params, &seeds)?;
    steps(&mut outcome, watch, &seeds)?;
    shared(&mut outcome, watch, params, &seeds)?;
    radio(&mut outcome, watch, &seeds)?;
    up_rate_8867::run(&mut outcome, watch, params)?;
    outcome.note("The paths, the flows of TCP and the packets are simulated; the estimator and its reports are the product's.");
    Ok(outcome)
}

fn alone<S: Iterator<Item = u64>>(
    outcome: &mut Outcome,
    watch: &dyn ProgressWatch,
    params: &Params,
    seeds: &dyn Fn() -> S,
) -> Result<(), RunError> {
    let mut own = Alone::new("Alone", "3 s");
    for mbps in params.amount(&[1, 3, 10, 30][..], &[3, 30]) {
        for round_trip in [20, 80, 200] {
            for buffer in BUFFERS {
                let name = format!("{mbps} Mbit/s, {round_trip} ms, buffer {buffer}");
                watch.go_on(&name)?;
                let paths: Vec<_> = seeds()
                    .map(|seed| Path::new(Bitrate::from_mbps(*mbps), round_trip, buffer, seed))
                    .collect();
                own.row(&name, &paths, Duration::from_secs(3))?;
            }
        }
    }
    let Alone { cold, used, queue } = own;
    outcome.claim(
        "3 s after a cold start the estimate is 0.9 to 1.1 of the truth",
        cold.worst[0] >= 0.9 && cold.worst[1] <= 1.1,
        format!("{:.2} to {:.2}", cold.worst[0], cold.worst[1]),
    );
    outcome.claim(
        "90 % of the path is used",
        used.worst[0] >= 0.9,
        format!("at least {:.3}", used.worst[0]),
    );
    outcome.claim(
        "its own queue is under 50 ms at the 95th percentile",
        queue.worst[1] < 50.0,
        format!("at most {:.1} ms", queue.worst[1]),
    );
    outcome.tables.extend([cold.table, used.table, queue.table]);
    Ok(())
}

fn steps<S: Iterator<Item = u64>>(
    outcome: &mut Outcome,
    watch: &dyn ProgressWatch,
    seeds: &dyn Fn() -> S,
) -> Result<(), RunError> {
    let mut step = Measured::new("2 s after a step", "estimate of the truth");
    for (from, to) in [(10, 5), (10, 3), (5, 10), (3, 10)] {
        for round_trip in [20, 80, 200] {
            let name = format!("{from} to {to} Mbit/s, {round_trip} ms");
            watch.go_on(&name)?;
            let after = |seed| {
                let mut path = Path::new(Bitrate::from_mbps(from), round_trip, BUFFERS[1], seed);
                path.then = Some(Bitrate::from_mbps(to));
                path.estimated(STEP + Duration::from_secs(2))
            };
            step.row(name, seeds().map(after).collect::<Result<_, _>>()?, 2);
        }
    }
    outcome.claim(
        "2 s after a step either way the estimate is within 10 % of the truth, at the median of each path's seeds",
        step.medians[0] >= 0.9 && step.medians[1] <= 1.1,
        format!(
            "{:.2} to {:.2}; of single seeds {:.2} to {:.2}",
            step.medians[0], step.medians[1], step.worst[0], step.worst[1]
        ),
    );
    outcome.tables.push(step.table);
    Ok(())
}

fn shared<S: Iterator<Item = u64>>(
    outcome: &mut Outcome,
    watch: &dyn ProgressWatch,
    params: &Params,
    seeds: &dyn Fn() -> S,
) -> Result<(), RunError> {
    let mut shared = Measured::new("Beside a flow of CUBIC: a minute", "of its share");
    for round_trip in params.amount(&[20, 40, 80, 150][..], &[20, 80]) {
        for products in [1, 2] {
            let name = format!("10 Mbit/s, {round_trip} ms, buffer of {products} products");
            watch.go_on(&name)?;
            let share = |seed| {
                let buffer = Duration::from_millis(round_trip * products);
                let mut path = Path::new(Bitrate::from_mbps(10), *round_trip, buffer, seed);
                path.beside_cubic = true;
                path.used().map(|[used, _]| used * 2.0)
            };
            shared.row(name, seeds().map(share).collect::<Result<_, _>>()?, 2);
        }
    }
    outcome.claim(
        "beside one flow of CUBIC it gets between half and twice its share",
        shared.worst[0] >= 0.5 && shared.worst[1] <= 2.0,
        format!("{:.2} to {:.2}", shared.worst[0], shared.worst[1]),
    );
    outcome.tables.push(shared.table);
    Ok(())
}

fn radio<S: Iterator<Item = u64>>(
    outcome: &mut Outcome,
    watch: &dyn ProgressWatch,
    seeds: &dyn Fn() -> S,
) -> Result<(), RunError> {
    let mut own = Alone::new("LTE-like", "5 s");
    for mbps in [1, 3, 10] {
        for (reorders, order) in [(false, "in order"), (true, "overtaking")] {
            let name = format!("{mbps} Mbit/s, 30 to 90 ms, {order}");
            watch.go_on(&name)?;
            let path = |seed| {
                let mut path = Path::new(Bitrate::from_mbps(mbps), 114, BUFFERS[1], seed);
                path.jitter = Jitter::Uniform(Duration::from_millis(30));
                (path.reorders, path.loss) = (reorders, bursts());
                path
            };
            let paths: Vec<_> = seeds().map(path).collect();
            own.row(&name, &paths, Duration::from_secs(5))?;
        }
    }
    let Alone { cold, used, queue } = own;
    outcome.claim(
        "where delays vary by 60 ms without a queue, 80 % is used, at the median of each path's seeds",
        used.medians[0] >= 0.8,
        format!(
            "at least {:.3}; of single seeds {:.3}; a queue of at most {:.1} ms",
            used.medians[0], used.worst[0], queue.worst[1]
        ),
    );
    outcome.tables.extend([cold.table, used.table, queue.table]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: Duration = BUFFERS[1];

    fn path(change: impl FnOnce(&mut Path)) -> Path {
        let mut path = Path::new(Bitrate::from_mbps(10), 40, BUFFER, 1);
        change(&mut path);
        path
    }

    /// Each claim fails where the estimator is kept from what it would do.
    #[test]
    fn the_claims_can_fail() {
        let half = Bitrate::from_mbps(5);
        let low = path(|path| path.params.most = half);
        assert!(low.estimated(Duration::from_secs(3)).unwrap() < 0.9);
        assert!(low.used().unwrap()[0] < 0.9);
        let high = path(|path| path.params.least = Bitrate::from_mbps(12));
        assert!(high.used().unwrap()[1] > 50.0);
        let step =
            path(|path| (path.then, path.params.most) = (Some(Bitrate::from_mbps(20)), half));
        assert!(step.estimated(STEP + Duration::from_secs(2)).unwrap() < 0.9);
        let shy = path(|path| {
            (path.beside_cubic, path.params.most) = (true, Bitrate::from_mbps(2));
        });
        assert!(shy.used().unwrap()[0] * 2.0 < 0.5);
    }
}
