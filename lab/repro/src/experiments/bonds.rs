//! Several paths between two ends in the simulator, for the experiments on bonds: the product's bond, and our own
//! models of striping by turns and by weights.

use std::collections::BTreeMap;

use selvedge_data_link::{Link, LinkParams};
use selvedge_data_net_bond::{PathParams, PathStatus, RateParams};
use selvedge_data_net_line::{
    DelayModel, Jitter, Limit, LineModel, LossModel, Outages, Packet, QueueModel, Rate, Trace,
};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Frame, rtp};
use selvedge_sim::media::{MediaStream, Receiver, Sender};
use selvedge_sim::{
    Datagram, Endpoint, EndpointId, Flow, FlowId, HostId, Limits, Network, Payload, Results,
    Simulation,
};
use selvedge_units::{Bitrate, Bytes, Duration, Instant, Share};

use super::up_media::{Media, PAYLOAD, PERIOD};
use crate::bonded::{BondedLoad, BondedSender};
use crate::experiment::RunError;

/// The headers below a datagram.
pub(super) const BELOW: Bytes = rtp::IPV4_UDP;
/// What the queue before each path holds.
const QUEUE: Duration = Duration::from_millis(250);
/// Seconds of a traced path.
const TRACED: u64 = 60;

/// A path in one direction; the way back has the same delay and loss, and is never full.
#[derive(Clone, Debug)]
pub(super) struct Road {
    /// In the mean.
    pub(super) rate: Bitrate,
    /// The rates of successive seconds, over and over; none where it is always the same.
    pub(super) seconds: Vec<Bitrate>,
    pub(super) delay: Duration,
    /// Packets are this much earlier or later, in order.
    pub(super) jitter: Duration,
    pub(super) loss: LossModel,
    pub(super) outages: Option<Outages>,
    /// The path drops larger packets, and reports nothing.
    pub(super) mtu: Option<Bytes>,
    /// Its rate over time, where it varies about `rate`.
    pub(super) trace: Option<Trace>,
}

impl Road {
    pub(super) fn new(rate: Bitrate, delay: u64) -> Self {
        let (delay, jitter) = (Duration::from_millis(delay), Duration::from_millis(2));
        Self {
            rate,
            seconds: Vec::new(),
            delay: delay + jitter,
            jitter,
            loss: LossModel::None,
            outages: None,
            mtu: None,
            trace: None,
        }
    }

    /// Model of a traced path: a walk from 0.4 to 1.6 of the mean rate, by at most 0.3 a second, the same for each number.
    pub(super) fn traced(rate: Bitrate, delay: u64, number: u64) -> Self {
        let (mut state, mut at) = (number, 100_i64);
        let parts: Vec<i64> = (0..TRACED)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                at = (at + (state >> 33) as i64 % 61 - 30).clamp(40, 160);
                at
            })
            .collect();
        let all: i64 = parts.iter().sum();
        let kbps =
            |part: &i64| Bitrate::from_kbps(rate.0 * TRACED * *part as u64 / all as u64 / 1_000);
        Self { seconds: parts.iter().map(kbps).collect(), ..Self::new(rate, delay) }
    }

    /// What it carries from one instant to another, without what it loses.
    fn carries(&self, from: Instant, to: Instant) -> f64 {
        let bytes = |rate: Bitrate, nanos: u64| rate.0 as f64 * nanos as f64 / 8e9;
        let passes = 1.0 - self.lost();
        let count = self.seconds.len() as u64;
        if count == 0 {
            return bytes(self.rate, to.since(from).0) * passes;
        }
        let second = 1_000_000_000;
        let part = |n: u64| {
            let (begin, end) = (from.0.max(n * second), to.0.min((n + 1) * second));
            bytes(self.seconds[(n % count) as usize], end.saturating_sub(begin))
        };
        (from.0 / second..=to.0 / second).map(part).sum::<f64>() * passes
    }

    fn rate_over_time(&self) -> Rate {
        if let Some(trace) = &self.trace {
            return Rate::Trace(trace.clone());
        }
        if self.seconds.is_empty() {
            return Rate::Constant(self.rate);
        }
        let line = |(n, rate): (usize, &Bitrate)| format!("{},{}\n", n * 1_000, rate.0 / 1_000);
        let lines: String =
            self.seconds.iter().chain(self.seconds.first()).enumerate().map(line).collect();
        let trace = Trace::from_csv(&format!("ms,kbit/s\n{lines}"));
        Rate::Trace(trace.expect("times go up, and each second carries something"))
    }

    /// The share of the packets that is lost in the long run, of those of full size.
    pub(super) fn lost(&self) -> f64 {
        if self.mtu.is_some_and(|mtu| mtu < Bytes(PAYLOAD)) {
            return 1.0;
        }
        let passes =
            self.outages.map_or(1.0, |gone| 1.0 - gone.lasts.0 as f64 / gone.every.0 as f64);
        1.0 - passes * (1.0 - self.lost_otherwise())
    }

    fn lost_otherwise(&self) -> f64 {
        let share = |share: Share| f64::from(share.billionths()) / 1e9;
        match self.loss {
            LossModel::None => 0.0,
            LossModel::Bernoulli(lost) => share(lost),
            LossModel::GilbertElliott { worsens, recovers, good, bad } => {
                let is_bad = share(worsens) / (share(worsens) + share(recovers));
                share(bad) * is_bad + share(good) * (1.0 - is_bad)
            }
        }
    }

    fn models(&self) -> [LineModel; 2] {
        let bytes = (self.rate * QUEUE).max(Bytes(4 * PAYLOAD));
        let queue = QueueModel::DropTail { limit: Limit { packets: u32::MAX, bytes } };
        let jitter = Jitter::Uniform(self.jitter);
        let delay = DelayModel { delay: self.delay, jitter, reorders: false };
        let (loss, outages) = (self.loss, self.outages);
        let back = LineModel { delay: delay.clone(), loss, outages, ..LineModel::default() };
        let rate = Some(self.rate_over_time());
        let mtu = self.mtu;
        [LineModel { rate, queue, delay, loss, outages, mtu, ..LineModel::default() }, back]
    }
}

/// A network of these paths, each with hosts of its own.
pub(super) fn network(roads: &[Road], seed: u64) -> Result<(Network, Vec<[HostId; 2]>), RunError> {
    let mut network = Network::new(seed);
    let mut hosts = Vec::new();
    for (number, road) in roads.iter().enumerate() {
        let ends =
            [network.host(&format!("near {number}"))?, network.host(&format!("far {number}"))?];
        network.link(&format!("path {number}"), ends, road.models())?;
        hosts.push(ends);
    }
    Ok((network, hosts))
}

/// Of 1 % of the packets, in bursts of four.
pub(super) fn bursts() -> LossModel {
    LossModel::GilbertElliott {
        worsens: percent("0.5 %"),
        recovers: percent("25 %"),
        good: percent("0 %"),
        bad: percent("50 %"),
    }
}

pub(super) fn percent(text: &str) -> Share {
    text.parse().expect("it is a share")
}

/// What can be decodable at most over all paths, as if they were one that carries what each of them does not lose.
pub(super) fn bound(media: Media, streams: &[Vec<Frame>; 2], roads: &[Road]) -> f64 {
    let all = |from, to| roads.iter().map(|road| road.carries(from, to)).sum::<f64>();
    media.bound_over(streams, |from, to| Bytes(all(from, to) as u64))
}

pub(super) fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

/// How packets are spread over the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// By the product, which knows nothing of the paths beforehand.
    Bond,
    /// Model: first come, first served, at the true rates; each lost packet is sent again, as SRT and RIST do it.
    InOrder,
    /// Model: in turns, at the sum of the true rates.
    Turns,
    /// Model: in proportion to the true rates, at their sum.
    Weights,
}

/// The share of both streams' frames that their receivers find decodable on time.
pub(super) fn decodable(
    media: Media,
    frames: u32,
    roads: &[Road],
    spread: Spread,
    seed: u64,
) -> Result<f64, RunError> {
    let (mut network, hosts) = network(roads, seed)?;
    let all = Bitrate(roads.iter().map(|road| road.rate.0).sum());
    let start = |road: &Road| match spread {
        Spread::Bond => RateParams::default(),
        _ => RateParams { start: road.rate, least: road.rate, most: road.rate },
    };
    if matches!(spread, Spread::Bond | Spread::InOrder) {
        let params = |road| PathParams { rate: start(road), ..PathParams::default() };
        let params: Vec<_> = roads.iter().map(params).collect();
        let rate = if spread == Spread::Bond { PathParams::default().rate.start } else { all };
        let selects = spread != Spread::InOrder;
        let mut run = BondRun::over(network, &hosts, &params, (media, frames), (rate, selects))?;
        run.finish()?;
        return Ok(run.decodable() as f64 / run.frames() as f64);
    }
    let (sender, flows) = streams(&mut network, hosts[0], (media, frames), BELOW, (all, true))?;
    attach_striped(&mut network, &hosts, roads, spread, sender, &flows)?;
    let mut simulation = Simulation::new(network, Limits::default())?;
    simulation.run(end(frames), &mut |_| {})?;
    let whole = f64::from(frames) * flows.len() as f64;
    Ok(decodable_of(&simulation.results(), &flows) as f64 / whole)
}

/// When so many frames of each stream have come.
fn end(frames: u32) -> Instant {
    Instant::ZERO + PERIOD * u64::from(frames) + Duration::from_secs(6)
}

fn decodable_of(results: &Results, flows: &[FlowId]) -> u64 {
    let counts = flows.iter().filter_map(|flow| results.flows[flow.0 as usize].frames.as_ref());
    counts.map(|counts| counts.received.decodable).sum()
}

/// The streams of a link, whose packets have so much below them, at this rate, by selection or in their order.
fn streams(
    network: &mut Network,
    hosts: [HostId; 2],
    (media, frames): (Media, u32),
    overhead: Bytes,
    (rate, selection): (Bitrate, bool),
) -> Result<(Sender, Vec<FlowId>), RunError> {
    let mtu = overhead + Bytes(rtp::packet_len(0) as u64 + PAYLOAD);
    let discipline = if selection { Discipline::Dwcs } else { Discipline::Fifo };
    let params =
        LinkParams { discipline, selection, rate, burst: mtu, catch_up: None, mtu, queue: None };
    let mut sender = Sender::new(Link::new(params), overhead);
    let mut flows = Vec::new();
    for (number, (list, begin)) in media.lists().into_iter().enumerate().take(media.count()) {
        let name = format!("stream {number}");
        let flow = network.flow(&name, hosts[0], hosts[1])?;
        let (packets, period, contract) = (Vec::new(), PERIOD, media.contract());
        sender.add_stream(MediaStream {
            name,
            flow,
            port: 0,
            list,
            packets,
            period,
            contract,
            begin,
            frames,
        });
        flows.push(flow);
    }
    Ok((sender, flows))
}

/// Two streams over the product's bond.
pub(super) struct BondRun {
    simulation: Simulation,
    sender: EndpointId,
    flows: Vec<FlowId>,
    frames: u32,
}

impl BondRun {
    /// Over these paths, of which so much is known beforehand.
    pub(super) fn new(
        media: Media,
        frames: u32,
        roads: &[Road],
        params: &[PathParams],
        seed: u64,
    ) -> Result<Self, RunError> {
        let (network, hosts) = network(roads, seed)?;
        let rate = PathParams::default().rate.start;
        Self::over(network, &hosts, params, (media, frames), (rate, true))
    }

    fn over(
        mut network: Network,
        hosts: &[[HostId; 2]],
        params: &[PathParams],
        (media, frames): (Media, u32),
        link: (Bitrate, bool),
    ) -> Result<Self, RunError> {
        let overhead = BELOW + selvedge_data_net_bond::OVERHEAD;
        let (sender, flows) = streams(&mut network, hosts[0], (media, frames), overhead, link)?;
        let paths: Vec<_> = hosts.iter().copied().zip(params.iter().copied()).collect();
        let load = BondedLoad::Streams(Box::new(sender));
        let [sender, _] = BondedSender::attach(&mut network, "bond", &paths, load, &flows)?;
        let simulation = Simulation::new(network, Limits::default())?;
        Ok(Self { simulation, sender, flows, frames })
    }

    /// Runs up to an instant.
    pub(super) fn run(&mut self, until: Instant) -> Result<(), RunError> {
        Ok(self.simulation.run(until, &mut |_| {})?)
    }

    /// Runs to the end of the streams.
    pub(super) fn finish(&mut self) -> Result<(), RunError> {
        self.run(end(self.frames))
    }

    /// What the sending end knows of each path.
    pub(super) fn paths(&self) -> Vec<PathStatus> {
        let sender = self.simulation.endpoint::<BondedSender>(self.sender);
        sender.map_or_else(Vec::new, |sender| sender.paths().map(|(_, path)| path).collect())
    }

    /// Frames of all streams.
    pub(super) fn frames(&self) -> u64 {
        u64::from(self.frames) * self.flows.len() as u64
    }

    /// Those that were decodable on time so far.
    pub(super) fn decodable(&self) -> u64 {
        decodable_of(&self.simulation.results(), &self.flows)
    }
}

/// The same for each of these seeds, half of them on another processor.
pub(super) fn decodable_each(
    media: Media,
    frames: u32,
    roads: &[Road],
    spread: Spread,
    seeds: &[u64],
) -> Result<Vec<f64>, RunError> {
    let all = |seeds: &[u64]| -> Result<Vec<f64>, RunError> {
        seeds.iter().map(|seed| decodable(media, frames, roads, spread, *seed)).collect()
    };
    let (first, second) = seeds.split_at(seeds.len() / 2);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| all(first));
        let second = all(second)?;
        let mut both = first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        both.extend(second);
        Ok(both)
    })
}

/// A model of a sender that stripes packets by fixed shares.
struct Striped {
    sender: Sender,
    /// The flow of each path, its share, and what it has had too little.
    paths: Vec<(FlowId, u64, u64)>,
}

fn attach_striped(
    network: &mut Network,
    hosts: &[[HostId; 2]],
    roads: &[Road],
    spread: Spread,
    sender: Sender,
    streams: &[FlowId],
) -> Result<(), RunError> {
    let mut paths = Vec::new();
    for (number, (ends, road)) in hosts.iter().zip(roads).enumerate() {
        let flow = network.flow(&format!("packets {number}"), ends[0], ends[1])?;
        let share = if spread == Spread::Turns { 1 } else { road.rate.0 / 1_000 };
        paths.push((flow, share, 0));
    }
    let flows: Vec<_> = paths.iter().map(|(flow, ..)| *flow).collect();
    let receivers = streams.iter().map(|flow| (flow.0 as u32, Receiver::new(*flow))).collect();
    network.attach(Box::new(Merged(receivers)), &flows)?;
    network.attach(Box::new(Striped { sender, paths }), &[])?;
    Ok(())
}

impl Endpoint for Striped {
    fn handle_packet(&mut self, _: Instant, _: Packet<Datagram>) {}

    fn handle_timeout(&mut self, now: Instant) {
        self.sender.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet<Datagram>> {
        let packet = self.sender.poll_transmit(now)?;
        let all: u64 = self.paths.iter().map(|(_, share, _)| share).sum();
        for (_, share, lacks) in &mut self.paths {
            *lacks += *share;
        }
        let (flow, _, lacks) = self.paths.iter_mut().max_by_key(|(.., lacks)| *lacks)?;
        *lacks = lacks.saturating_sub(all);
        Some(Packet { flow: flow.0, ..packet })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.sender.poll_timeout()
    }

    fn report(&self, flows: &mut [Flow]) {
        self.sender.report(flows);
    }
}

/// Its far end: each stream's receiver, by the packets' source.
struct Merged(BTreeMap<u32, Receiver>);

impl Endpoint for Merged {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        let Payload::Bytes(bytes) = &packet.payload.payload else { return };
        let source = rtp::Packet::parse(bytes).map(|packet| packet.header.ssrc);
        if let Some(receiver) = source.ok().and_then(|source| self.0.get_mut(&source)) {
            receiver.handle_packet(now, packet);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        for receiver in self.0.values_mut() {
            if receiver.poll_timeout().is_some_and(|due| due <= now) {
                receiver.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, _: Instant) -> Option<Packet<Datagram>> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.values().filter_map(Receiver::poll_timeout).min()
    }

    fn report(&self, flows: &mut [Flow]) {
        self.0.values().for_each(|receiver| receiver.report(flows));
    }
}
