//! The test cases of RFC 8867 (5.1 to 5.8) for the measured rate of a path, in the simulator; the second part of `up-rate`.
//!
//! As the RFC has it: capacities by time, 50 ms each way but in 5.5, a queue of drop-tail of 300 ms, jitter of 30 ms in order
//! (RFC 8868: normal, 5 ms, bounded at three times that), media of 150 kbit/s to 1.5 Mbit/s, and when flows begin and pause.
//!
//! What deviates: a flow has always packets of 1200 bytes to send, so there is no codec and no audio. A queue's bytes are
//! those of the reference capacity, also while the capacity is another. TCP is a model: NewReno and CUBIC. The short transfers'
//! starts in 5.7 are drawn beforehand, and cease after 240 s, so that what follows shows.

use selvedge_data_net_line::{
    DelayModel, Jitter, Limit, LineModel, Packet, QueueModel, Random, Rate, Trace,
};
use selvedge_data_net_rate::RateParams;
use selvedge_sim::{
    Connection, Control, Datagram, EndpointId, Event, HostId, Limits, Load, MeasuredSender,
    Network, Payload, Simulation, Step, TcpParams,
};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::experiment::{Params, ProgressWatch, RunError};
use crate::measure::spread;
use crate::outcome::{Cell, Outcome, Table};

/// Bytes of a packet, and of those of up-rate.
pub(super) const PACKET: Bytes = Bytes(1_200);
/// The media's rates.
const MEDIA: RateParams = RateParams {
    start: Bitrate::from_kbps(500),
    least: Bitrate::from_kbps(150),
    most: Bitrate::from_kbps(1_500),
};
/// The part of each way behind the queue, and how it varies.
const BEHIND: Duration = Duration::from_millis(10);
const JITTER: Duration = Duration::from_millis(5);
/// From the seconds at which it begins, what a path carries, in kbit/s.
type Capacity = &'static [(u64, u64)];
/// Never a limit.
const WIDE: Capacity = &[(0, 1_000_000)];
/// Short transfers: so many at a time, of these sizes, with pauses of this mean, until this second.
const SHORT: u64 = 10;
const SHORT_BYTES: [u64; 2] = [100_000, 1_000_000];
const SHORT_PAUSE: f64 = 10.0;
const SHORT_UNTIL: f64 = 240.0;

/// What competes with the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    Long(Control),
    Short,
}

/// A flow of media. Seconds, and milliseconds each way.
#[derive(Clone, Copy, Debug)]
struct Flow {
    begins: u64,
    delay: u64,
    pause: Option<[u64; 2]>,
    /// It goes the other way.
    is_back: bool,
    rates: RateParams,
}

impl Flow {
    const fn new(begins: u64) -> Self {
        Self { begins, delay: 50, pause: None, is_back: false, rates: MEDIA }
    }

    /// Whether it sends at this second.
    fn is_active(&self, at: u64) -> bool {
        at >= self.begins && self.pause.is_none_or(|[from, until]| !(from..until).contains(&at))
    }
}

/// A case of the RFC.
#[derive(Clone, Debug)]
struct Case {
    name: &'static str,
    seconds: u64,
    /// There and back.
    capacity: [Capacity; 2],
    /// The queue holds 300 ms of this, or 1 s, in kbit/s.
    reference: u64,
    queue: Duration,
    flows: Vec<Flow>,
    beside: Beside,
}

impl Case {
    fn new(name: &'static str, seconds: u64, capacity: Capacity, flows: Vec<Flow>) -> Self {
        let (reference, queue) = (capacity[0].1, Duration::from_millis(300));
        let (capacity, beside) = ([capacity, WIDE], Beside::Nothing);
        Self { name, seconds, capacity, reference, queue, flows, beside }
    }

    /// What a way carries at this second, in bits per second.
    fn carries(&self, is_back: bool, at: u64) -> f64 {
        let steps = self.capacity[usize::from(is_back)];
        let kbps = steps.iter().rev().find(|(from, _)| *from <= at).map_or(0, |(_, kbps)| *kbps);
        kbps as f64 * 1e3
    }

    /// The fair share of each flow of a way at this second, in bits per second, and how many they are.
    fn share(&self, is_back: bool, at: u64) -> (f64, usize) {
        let active = self.flows.iter().filter(|flow| flow.is_back == is_back && flow.is_active(at));
        let active = active.count();
        let others = usize::from(matches!(self.beside, Beside::Long(_)));
        let equal = self.carries(is_back, at) / (active + others).max(1) as f64;
        (equal.min(MEDIA.most.0 as f64), active)
    }

    /// The spans in which a way's capacity and flows are the same.
    fn phases(&self, is_back: bool) -> Vec<[u64; 2]> {
        let flows = self.flows.iter().filter(|flow| flow.is_back == is_back);
        let flows = flows
            .flat_map(|flow| [flow.begins].into_iter().chain(flow.pause.into_iter().flatten()));
        let steps = self.capacity[usize::from(is_back)].iter().map(|(from, _)| *from);
        let mut changes: Vec<u64> = flows.chain(steps).chain([self.seconds]).collect();
        if self.beside == Beside::Short {
            changes.push(SHORT_UNTIL as u64);
        }
        changes.sort_unstable();
        changes.dedup();
        changes.windows(2).map(|pair| [pair[0], pair[1]]).collect()
    }

    fn model(&self, is_back: bool) -> Result<LineModel, RunError> {
        let delay =
            DelayModel { delay: BEHIND, jitter: Jitter::Normal(JITTER), ..DelayModel::default() };
        let steps = self.capacity[usize::from(is_back)];
        if steps == WIDE {
            return Ok(LineModel { delay, ..LineModel::default() });
        }
        let lines: String = steps.iter().map(|(at, kbps)| format!("{at}000,{kbps}\n")).collect();
        let trace = Trace::from_csv(&format!("ms,kbit/s\n{lines}1000000,0\n"));
        let rate = Rate::Trace(trace.map_err(|why| RunError::Needs(why.to_string()))?);
        let bytes = Bitrate::from_kbps(self.reference) * self.queue;
        let queue = QueueModel::DropTail { limit: Limit { packets: u32::MAX, bytes } };
        Ok(LineModel { rate: Some(rate), queue, delay, ..LineModel::default() })
    }

    fn simulation(&self, seed: u64) -> Result<(Simulation, Vec<EndpointId>), RunError> {
        let mut network = Network::new(seed);
        let middle = [network.host("left")?, network.host("right")?];
        network.link("path", middle, [self.model(false)?, self.model(true)?])?;
        let mut ids = Vec::new();
        for (number, flow) in self.flows.iter().enumerate() {
            let mut hosts = ends(&mut network, middle, &format!("media {number}"), flow.delay)?;
            if flow.is_back {
                hosts.reverse();
            }
            let (begin, name) = (second(flow.begins), format!("media {number}"));
            let id = MeasuredSender::attach(&mut network, &name, hosts, PACKET, begin, flow.rates)?;
            let sender = network.endpoint_mut::<MeasuredSender>(id);
            if let Some((sender, pause)) = sender.zip(flow.pause) {
                sender.set_pause(second(pause[0])..second(pause[1]));
            }
            ids.push(id);
        }
        let hosts = ends(&mut network, middle, "tcp", 50)?;
        match self.beside {
            Beside::Nothing => {}
            Beside::Long(control) => {
                let (params, load) = (TcpParams::new(control), Load::Transfer(None));
                Connection::attach(&mut network, "tcp", hosts, &params, Instant::ZERO, load)?;
            }
            Beside::Short => self.attach_short(&mut network, hosts)?,
        }
        Ok((Simulation::new(network, Limits::default())?, ids))
    }

    /// Transfers one after another, each begun after a pause and the time that the one before takes at a tenth of the path.
    fn attach_short(&self, network: &mut Network, hosts: [HostId; 2]) -> Result<(), RunError> {
        let mut random = network.random("short transfers");
        let params = TcpParams::new(Control::Cubic);
        for number in 0..SHORT {
            // Two begin at once, the others after a pause.
            let mut at = if number < 2 { 0.0 } else { pause(&mut random) };
            while at < SHORT_UNTIL {
                let [least, most] = SHORT_BYTES;
                let bytes = least + random.below(most - least + 1);
                let begin = Instant::ZERO + Duration((at * 1e9) as u64);
                let load = Load::Transfer(Some(Bytes(bytes)));
                Connection::attach(network, "tcp", hosts, &params, begin, load)?;
                let takes = (bytes * 8 * SHORT) as f64 / self.carries(false, 0);
                at += takes + pause(&mut random);
            }
        }
        Ok(())
    }

    fn run(&self, seed: u64) -> Result<Seen, RunError> {
        let (mut simulation, ids) = self.simulation(seed)?;
        // The bytes that arrived of each flow, second by second.
        let mut arrived = vec![vec![0.0; self.seconds as usize]; self.flows.len()];
        let mut seen = Seen::default();
        for at in 0..self.seconds {
            let observe = &mut |event: &Event<'_>| {
                let bits = arrived_bits(event);
                if let Some(flow) = arrived.get_mut(event.packet.flow as usize / 2) {
                    flow[at as usize] += bits;
                }
            };
            simulation.run(second(at + 1), observe)?;
            for is_back in [false, true] {
                seen.estimates.extend(self.estimated(&simulation, &ids, is_back, at));
            }
        }
        self.judge(&arrived, &mut seen);
        let results = simulation.results();
        let queues = results.hops.iter().take(2).filter_map(|hop| hop.queueing.quantile(0.95));
        seen.queue = queues.max().map_or(0.0, Duration::as_millis_f64);
        let own = results.flows.iter().take(self.flows.len() * 2).step_by(2);
        let [lost, sent] = own.fold([0, 0], |[lost, sent], own| [lost + own.lost, sent + own.sent]);
        seen.lost = lost as f64 * 100.0 / sent as f64;
        Ok(seen)
    }

    /// The sum of a way's estimates as a share of the truth, if its capacity changed 2 s before the end of this second.
    fn estimated(
        &self,
        simulation: &Simulation,
        ids: &[EndpointId],
        is_back: bool,
        at: u64,
    ) -> Option<f64> {
        let mut changes = self.capacity[usize::from(is_back)].iter().skip(1);
        changes.find(|(from, _)| from + 1 == at)?;
        let own = self.flows.iter().zip(ids).filter(|(flow, _)| flow.is_back == is_back);
        let capacity = |id| {
            let sender = simulation.endpoint::<MeasuredSender>(id);
            sender.map_or(0, |sender| sender.estimator().capacity().0.min(MEDIA.most.0))
        };
        let found: u64 = own.map(|(_, id)| capacity(*id)).sum();
        let (share, active) = self.share(is_back, at);
        Some(found as f64 / (share * active as f64))
    }

    /// Sets what arrived beside what could.
    fn judge(&self, arrived: &[Vec<f64>], seen: &mut Seen) {
        let mean = |flow: usize, [from, until]: [u64; 2]| {
            let all: f64 = arrived[flow][from as usize..until as usize].iter().sum();
            all / (until - from).max(1) as f64
        };
        for is_back in [false, true] {
            for [from, until] in self.phases(is_back) {
                let is_own = |flow: &Flow| flow.is_back == is_back && flow.is_active(from);
                let own = (0..self.flows.len()).filter(|number| is_own(&self.flows[*number]));
                let own: Vec<usize> = own.collect();
                // A flow may have just begun.
                let spans = (from + SETTLES..).map(|at| [at, at + SETTLES]);
                let spans = spans.take_while(|[_, end]| *end <= until);
                let rates = spans.flat_map(|span| own.iter().map(move |flow| (*flow, span)));
                seen.rates.extend(rates.map(|(flow, span)| mean(flow, span) / 1e3));
                let is_unknown = self.beside == Beside::Short && from < SHORT_UNTIL as u64;
                if own.is_empty() || is_unknown {
                    continue;
                }
                let (share, _) = self.share(is_back, from);
                let half = [(from + until) / 2, until];
                let shares: Vec<f64> = own.iter().map(|flow| mean(*flow, half) / share).collect();
                seen.used.push(shares.iter().sum::<f64>() / shares.len() as f64);
                seen.shares.extend(shares);
                let is_fair = |at: &u64| {
                    own.iter().all(|flow| mean(*flow, [*at, at + SETTLES]) >= share * FAIR)
                };
                let fair = (from..(until + 1).saturating_sub(SETTLES)).find(is_fair);
                seen.takes.push(fair.map_or(f64::INFINITY, |at| (at - from) as f64));
            }
        }
    }
}

/// The cases of a quick run.
const QUICK: [&str; 5] = ["5.1", "5.3", "5.4", "5.6", "5.8"];
/// Seconds over which a rate is the mean, and the part of the fair share from which on a flow has one.
const SETTLES: u64 = 5;
const FAIR: f64 = 0.75;

const fn second(at: u64) -> Instant {
    Instant(at * 1_000_000_000)
}

/// The bits of a packet of media that arrives at its end.
fn arrived_bits(event: &Event<'_>) -> f64 {
    let packet: &Packet<Datagram> = event.packet;
    let is_media =
        matches!(packet.payload.payload, Payload::Segment(_)) && packet.flow.is_multiple_of(2);
    let has_arrived = event.step == Step::Arrived && event.host == event.flow.to;
    if is_media && has_arrived { packet.size.0 as f64 * 8.0 } else { 0.0 }
}

/// An exponentially distributed pause, in seconds.
fn pause(random: &mut Random) -> f64 {
    let uniform = (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    -(1.0 - uniform).ln() * SHORT_PAUSE
}

/// Hosts at both ends, so far from the path that it takes this long each way, in milliseconds.
fn ends(
    network: &mut Network,
    [left, right]: [HostId; 2],
    name: &str,
    delay: u64,
) -> Result<[HostId; 2], RunError> {
    let hosts = [network.host(&format!("{name} near"))?, network.host(&format!("{name} far"))?];
    let delay =
        DelayModel { delay: Duration::from_millis(delay) - BEHIND, ..DelayModel::default() };
    let away = LineModel { delay, ..LineModel::default() };
    network.link(name, [hosts[0], left], [away.clone(), away])?;
    network.link(name, [right, hosts[1]], [LineModel::default(), LineModel::default()])?;
    Ok(hosts)
}

/// What was seen of one run.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Of each change of a capacity: the sum of the estimates 2 s after it, of the truth.
    estimates: Vec<f64>,
    /// Of each flow and each phase: its rate in the second half of it, of its fair share.
    shares: Vec<f64>,
    /// Of each phase: what all its flows got of what they could, in the second half of it.
    used: Vec<f64>,
    /// Of each phase: the seconds until each flow has three quarters of its share.
    takes: Vec<f64>,
    /// Of each flow and each 5 s of a phase but for its first 5 s: the rate, in kbit/s.
    rates: Vec<f64>,
    /// The path's 95th percentile, in milliseconds.
    queue: f64,
    /// In hundredths.
    lost: f64,
}

fn cases() -> Vec<Case> {
    const ONE: Capacity = &[(0, 1_000), (40, 2_500), (60, 600), (80, 1_000)];
    const TWO: Capacity = &[(0, 4_000), (25, 2_000), (50, 3_500), (75, 1_000), (100, 2_000)];
    const THERE: Capacity = &[(0, 2_000), (20, 1_000), (40, 500), (60, 2_000)];
    const BACK: Capacity = &[(0, 2_000), (35, 800), (70, 2_000)];
    let two = vec![Flow::new(0), Flow::new(0)];
    let both = vec![Flow::new(0), Flow { is_back: true, ..Flow::new(0) }];
    let three = vec![Flow::new(0), Flow::new(20), Flow::new(40)];
    let delays = [10, 25, 50, 100, 150].iter().zip(0..);
    let far = delays.map(|(delay, n)| Flow { delay: *delay, ..Flow::new(n * 10) }).collect();
    let pausing = Flow { pause: Some([40, 60]), ..Flow::new(0) };
    let with_pause = vec![Flow::new(0), Flow::new(0), pausing];
    let long = |name, control, queue| {
        let case = Case::new(name, 120, &[(0, 2_000)], vec![Flow::new(5)]);
        Case { beside: Beside::Long(control), queue: Duration::from_millis(queue), ..case }
    };
    let media = vec![Flow::new(5), Flow::new(5)];
    let short = Case::new("5.7 beside short transfers", 300, &[(0, 2_000)], media);
    let multiple = Case::new("5.2 two flows, capacity varies", 125, TWO, two);
    let back = Case::new("5.3 both ways, capacities vary", 100, THERE, both);
    vec![
        Case::new("5.1 one flow, capacity varies", 100, ONE, vec![Flow::new(0)]),
        Case { reference: 2_000, ..multiple },
        Case { capacity: [THERE, BACK], ..back },
        Case::new("5.4 three flows", 120, &[(0, 3_500)], three),
        Case::new("5.5 five round trips", 300, &[(0, 4_000)], far),
        long("5.6 beside CUBIC, 300 ms", Control::Cubic, 300),
        long("5.6 beside CUBIC, 1 s", Control::Cubic, 1_000),
        long("5.6 beside NewReno, 300 ms", Control::NewReno, 300),
        long("5.6 beside NewReno, 1 s", Control::NewReno, 1_000),
        Case { beside: Beside::Short, ..short },
        Case::new("5.8 pause and resume", 120, &[(0, 3_500)], with_pause),
    ]
}

/// What was seen of a case under all seeds: the least, the median and the largest of each figure.
struct Row {
    name: &'static str,
    estimates: [f64; 3],
    shares: [f64; 3],
    used: [f64; 3],
    takes: [f64; 3],
    rates: [f64; 3],
    queue: [f64; 3],
    lost: [f64; 3],
}

impl Row {
    fn new(case: &Case, seeds: impl Iterator<Item = u64>) -> Result<Self, RunError> {
        let seen = seeds.map(|seed| case.run(seed)).collect::<Result<Vec<_>, _>>()?;
        let all = |of: fn(&Seen) -> &[f64]| spread(seen.iter().flat_map(of).copied());
        Ok(Self {
            name: case.name,
            estimates: all(|seen| &seen.estimates),
            shares: all(|seen| &seen.shares),
            used: all(|seen| &seen.used),
            takes: all(|seen| &seen.takes),
            rates: all(|seen| &seen.rates),
            queue: all(|seen| std::slice::from_ref(&seen.queue)),
            lost: all(|seen| std::slice::from_ref(&seen.lost)),
        })
    }

    fn cells(&self) -> Vec<Cell> {
        let Self { name, estimates, shares, used, takes, rates, queue, lost } = self;
        let figure = |value: f64, decimals| match value {
            value if value.is_nan() => Cell::None,
            value if value.is_infinite() => Cell::from("never"),
            value => Cell::rounded(value, decimals),
        };
        let mut cells = vec![Cell::from(*name)];
        cells.extend(shares.map(|share| figure(share, 2)));
        cells.push(figure(used[0], 2));
        cells.extend([estimates[0], estimates[1]].map(|estimate| figure(estimate, 2)));
        cells.extend([takes[1], takes[2]].map(|takes| figure(takes, 0)));
        cells.push(figure(rates[0], 0));
        cells.extend([queue[1], queue[2]].map(|queue| figure(queue, 0)));
        cells.push(figure(lost[2], 1));
        cells
    }
}

pub(super) fn run(
    outcome: &mut Outcome,
    watch: &dyn ProgressWatch,
    params: &Params,
) -> Result<(), RunError> {
    const COLUMNS: [&str; 13] = [
        "case",
        "of its share, least",
        "median",
        "largest",
        "used, least",
        "2 s after a step, least",
        "median",
        "s to 3/4, median",
        "largest",
        "kbit/s, least",
        "queue, ms, median",
        "largest",
        "lost, %",
    ];
    let mut rows = Vec::new();
    let all = cases();
    for case in all.iter().filter(|case| !params.quick || QUICK.contains(&&case.name[..3])) {
        watch.go_on(case.name)?;
        let seeds = params.amount(100, 1);
        rows.push(Row::new(case, (0..seeds).map(|n| params.seed.wrapping_add(n)))?);
    }
    let mut table = Table::new("RFC 8867's test cases", &COLUMNS);
    rows.iter().for_each(|row| table.row(row.cells()));
    outcome.tables.push(table);
    claim(outcome, &rows);
    outcome.note(
        "RFC 8867, not met: in 5.1 to 5.3 the queue is over 50 ms at the 95th percentile; in 5.2 and 5.7 flows of this kind take \
         each other for TCP; in 5.5 a flow may have a third of its share; beside CUBIC with a second of buffer it may, too.",
    );
    Ok(())
}

/// What of these rows holds.
fn claim(outcome: &mut Outcome, rows: &[Row]) {
    let of = |names: &'static [&str]| {
        rows.iter().filter(move |row| names.iter().any(|name| row.name.starts_with(name)))
    };
    let least = |figures: &mut dyn Iterator<Item = f64>| figures.fold(f64::INFINITY, f64::min);
    let most = |figures: &mut dyn Iterator<Item = f64>| figures.fold(f64::NEG_INFINITY, f64::max);
    let estimates = || of(&["5.1", "5.2", "5.3"]).map(|row| row.estimates[1]);
    let found = [least(&mut estimates()), most(&mut estimates())];
    outcome.claim(
        "RFC 8867, 5.1 to 5.3: 2 s after a step the sum of the estimates is within 10 % of the truth, at the median",
        found[0] >= 0.9 && found[1] <= 1.1,
        format!("{:.2} to {:.2}", found[0], found[1]),
    );
    let used = least(&mut of(&["5.1", "5.2", "5.3", "5.4", "5.5", "5.8"]).map(|row| row.used[0]));
    outcome.claim(
        "RFC 8867, without TCP: 90 % is used in the second half of each phase",
        used >= 0.9,
        format!("at least {used:.2}"),
    );
    let alike = || of(&["5.4", "5.8", "5.6 beside CUBIC, 300", "5.6 beside NewReno"]);
    let found =
        [least(&mut alike().map(|row| row.shares[0])), most(&mut alike().map(|row| row.shares[2]))];
    outcome.claim(
        "RFC 8867, 5.4 and 5.8, and 5.6 beside TCP but for CUBIC with a second of buffer: half to twice its share",
        found[0] >= 0.5 && found[1] <= 2.0,
        format!("{:.2} to {:.2}", found[0], found[1]),
    );
    let queue = most(&mut of(&["5.4", "5.5", "5.8"]).map(|row| row.queue[1]));
    outcome.claim(
        "RFC 8867, 5.4, 5.5 and 5.8: the queue is under 50 ms at the 95th percentile, at the median of seeds",
        queue < 50.0,
        format!("at most {queue:.0} ms"),
    );
    let rate = least(&mut rows.iter().map(|row| row.rates[0]));
    outcome.claim(
        "RFC 8867: no flow has less than 40 kbit/s over 5 s",
        rate >= 40.0,
        format!("at least {rate:.0} kbit/s"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each claim holds of this case, with these limits of some of its flows, and the capacity that it has.
    fn claims(name: &str, flows: usize, rates: RateParams) -> Vec<bool> {
        let case = cases().into_iter().find(|case| case.name.starts_with(name)).unwrap();
        let mut edited = case.clone();
        edited.flows.iter_mut().take(flows).for_each(|flow| flow.rates = rates);
        let mut outcome = Outcome::default();
        claim(&mut outcome, &[Row::new(&edited, 1..2).unwrap()]);
        outcome.claims.iter().map(|claim| claim.passed).collect()
    }

    /// Each claim holds of the cases that it is of, and fails where flows are kept from what they would do.
    #[test]
    fn the_claims_can_fail() {
        let low = RateParams { most: Bitrate::from_kbps(400), ..MEDIA };
        assert_eq!(claims("5.1", 1, low)[..2], [false; 2]);
        let greedy = RateParams { least: MEDIA.most, ..MEDIA };
        assert!(!claims("5.4", 1, low)[2] && !claims("5.4", 2, greedy)[3]);
        assert!(!claims("5.7", 2, always(40))[4]);
        assert_eq!(claims("5.4", 0, MEDIA)[1..], [true; 4]);
    }

    fn always(kbps: u64) -> RateParams {
        let [start, least, most] = [kbps; 3].map(Bitrate::from_kbps);
        RateParams { start, least, most }
    }
}
