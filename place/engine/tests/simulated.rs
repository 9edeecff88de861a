//! The engine's own loop on a simulated network: rings, pools, frame producers and pacing, in virtual time.
//! The simulator's sender, which uses the link alone, sends the same bytes at the same times; so what the
//! simulator finds out is true of the engine.

#[allow(dead_code, reason = "other tests use the rest")]
mod lateness;

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use lateness::{LOADED, Lateness, Noise};
use selvedge_control_config::LinkConfig;
use selvedge_data_link::Link;
use selvedge_data_net_line::{DelayModel, LineModel, LossModel, Packet};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, FrameList, ListedFrame, Spec, Window, rtp};
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{
    Carrier, LocalPoller, SteppedEngine, StreamCarrier, StreamParams,
};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer, payload_max};
use selvedge_sim::media::{MediaStream, Receiver, Sender};
use selvedge_sim::{Datagram, Endpoint, Flow, FlowId, Limits, Network, Payload, Simulation, Step};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

const PERIOD: Duration = Duration::from_millis(40);
const LASTS: Duration = Duration::from_secs(8);
/// Then no more frames come, so that all of them are settled.
const FRAMES: u32 = 150;
const HEADERS: Bytes = rtp::IPV4_UDP;
const MTU: Bytes = Bytes(1500);
/// Frame lists of clips at 1, 3 and 12 Mbit/s.
const LISTS: [&str; 4] = ["1-25-2.txt", "3-50-2-open.txt", "12-50-1.txt", "1-250-2.txt"];
const DISCIPLINES: [Discipline; 4] =
    [Discipline::Dwcs, Discipline::Edf, Discipline::Priority, Discipline::Fifo];

type Sent = (FlowId, Arc<[u8]>);

/// Takes a stream's packets in place of the kernel.
#[derive(Debug)]
struct Wire {
    flow: FlowId,
    sent: Arc<Mutex<VecDeque<Sent>>>,
}

impl Carrier for Wire {
    fn carry(&self, packet: &[u8]) -> bool {
        self.sent.lock().unwrap().push_back((self.flow, packet.into()));
        true
    }
}

/// A stream's source: its frames, and the ring into which they go.
struct Source {
    about: MediaStream,
    producer: FrameProducer,
    next: u32,
}

impl Source {
    /// When the next frame comes.
    fn arrival(&self) -> Option<Instant> {
        let MediaStream { begin, period, frames, .. } = &self.about;
        (self.next < *frames).then(|| *begin + *period * u64::from(self.next))
    }

    fn enqueue(&mut self, arrival: Instant) {
        let ListedFrame { kind, referenced, size, refs } = self.about.list.frame(self.next);
        self.next += 1;
        let timestamp = (u128::from(arrival.0) * 9 / 100_000) as u32;
        let offer = FrameMetadata { kind, referenced, closes: false, refs: Some(refs), timestamp };
        let mut packet = vec![0; 12 + payload_max(MTU, HEADERS)];
        packet[..2].copy_from_slice(&[0x80, 96]);
        let (mut left, mut packets) = (size.0 as usize, Vec::new());
        while left > 0 {
            let len = left.min(packet.len() - 12);
            packets.push(&packet[..12 + len]);
            left -= len;
        }
        // What finds no room is counted by the receivers as lost.
        let _ = self.producer.enqueue_at(arrival, offer, &packets);
    }
}

/// An engine at a host. Its thread may wake up late.
struct Engine {
    clock: Clock,
    link: LinkConfig,
    streams: Vec<MediaStream>,
    running: Option<(SteppedEngine<LocalPoller>, Vec<Source>)>,
    sent: Arc<Mutex<VecDeque<Sent>>>,
    /// When its thread wakes up.
    due: Option<Instant>,
    lateness: Option<(Noise, &'static Lateness)>,
    /// When its process is killed, and when the next one begins.
    kill: Option<[Instant; 2]>,
}

impl Engine {
    fn new(link: &LinkConfig, streams: Vec<MediaStream>, kill: Option<[Instant; 2]>) -> Self {
        let mut engine = Self {
            clock: Clock::simulated(),
            link: link.clone(),
            streams,
            running: None,
            sent: Arc::default(),
            due: None,
            lateness: None,
            kill,
        };
        engine.start(0);
        engine
    }

    /// A process: the engine, and a source for each stream.
    fn start(&mut self, process: u32) {
        let (port, registrar) =
            LocalPoller::new(self.clock, &self.link, self.streams.len()).unwrap();
        let mut engine = SteppedEngine::new(self.clock, &self.link, port, None).unwrap();
        let sources = self.streams.iter().cloned().map(|about| {
            let to = "192.0.2.1:9".parse().unwrap();
            let spec = Spec { ring: 1024, pool: Bytes(8 << 20), ..Spec::new(&about.name, to) };
            let ssrc = about.flow.0 as u32 | process << 31;
            let params = StreamParams { spec: spec.with_contract(about.contract), ssrc };
            let by = Arc::new(Wire { flow: about.flow, sent: Arc::clone(&self.sent) });
            let carried = StreamCarrier { by, overhead: HEADERS, packet_max: MTU - HEADERS };
            let stop = Arc::new(AtomicBool::new(false));
            let (new, producer) = registrar.stream(&params, Some(carried), stop);
            let number = engine.attach(new);
            Source { about, producer: producer(number), next: 0 }
        });
        let sources: Vec<_> = sources.collect();
        self.due = sources.iter().filter_map(Source::arrival).min();
        self.running = Some((engine, sources));
    }

    /// Ends its process or begins the next one, if it is time.
    fn change_process(&mut self, now: Instant) {
        let Some([at, back]) = self.kill else { return };
        if at <= now && now < back {
            (self.running, self.due) = (None, Some(back));
        } else if back <= now {
            self.kill = None;
            for MediaStream { begin, period, frames, .. } in &mut self.streams {
                let over = back.since(*begin).0.div_ceil(period.0) as u32;
                (*begin, *frames) = ((*begin).max(back), frames.saturating_sub(over));
            }
            self.start(1);
        }
    }
}

impl Endpoint for Engine {
    fn handle_packet(&mut self, _now: Instant, _packet: Packet<Datagram>) {}

    fn handle_timeout(&mut self, now: Instant) {
        self.clock.advance_to(now);
        self.change_process(now);
        let Some((engine, sources)) = &mut self.running else { return };
        for source in &mut *sources {
            while let Some(arrival) = source.arrival().filter(|arrival| *arrival <= now) {
                source.enqueue(arrival);
            }
        }
        let until = loop {
            if let Some(until) = engine.turn() {
                break until;
            }
        };
        let due = sources.iter().filter_map(Source::arrival).fold(until, Instant::min);
        let late = self.lateness.as_mut().map(|(noise, lateness)| noise.late(lateness));
        let killed = self.kill.map(|[at, _]| at);
        self.due = [Some(due + late.unwrap_or_default()), killed].into_iter().flatten().min();
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet<Datagram>> {
        let (flow, bytes) = self.sent.lock().unwrap().pop_front()?;
        let size = Bytes(bytes.len() as u64) + HEADERS;
        Some(Datagram::packet(flow, size, Payload::Bytes(bytes)))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

/// A link with its streams, as a seed makes it.
struct Case {
    seed: u64,
    link: LinkConfig,
    streams: Vec<MediaStream>,
    kill: Option<[Instant; 2]>,
    loss: LossModel,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut noise = Noise(seed);
        let count = 1 + noise.below(5);
        let streams = (0..count).map(|n| MediaStream {
            name: n.to_string(),
            flow: FlowId(n),
            port: 0,
            list: list(LISTS[noise.below(LISTS.len() as u64) as usize]),
            packets: Vec::new(),
            period: PERIOD,
            contract: Contract {
                delay: Some(Duration::from_millis(200 + noise.below(800))),
                weight: 1 + noise.below(3) as u32,
                priority: noise.below(3) as i32,
                ..Contract::new(PERIOD, Window { lose: noise.below(3) as u16, of: 5 })
            },
            begin: Instant::ZERO + Duration(noise.below(PERIOD.0)),
            frames: FRAMES,
        });
        let streams: Vec<_> = streams.collect();
        let bytes =
            |about: &MediaStream| (0..FRAMES).map(|n| about.list.frame(n).size.0).sum::<u64>();
        let need = Bytes(streams.iter().map(bytes).sum()) / (PERIOD * u64::from(FRAMES));
        let rate = Bitrate(need.0 * (50 + noise.below(70)) / 100);
        let discipline = DISCIPLINES[noise.below(DISCIPLINES.len() as u64) as usize];
        let link = LinkConfig::new("up", rate, discipline);
        let link = LinkConfig { burst: MTU + Bytes(noise.below(2) * 10_000), ..link };
        let at = Instant::ZERO + Duration::from_millis(1_000 + noise.below(2_000));
        let back = at + Duration::from_millis(1 + noise.below(800));
        let kill = (seed % 2 == 1).then_some([at, back]);
        let loss = [LossModel::None, LossModel::Bernoulli("2 %".parse().unwrap())];
        Self { seed, link, streams, kill, loss: loss[noise.below(2) as usize] }
    }

    /// The simulator's sender of this case.
    fn sender(&self) -> Box<dyn Endpoint> {
        let mut sender = Sender::new(Link::new(self.link.params()), HEADERS);
        self.streams.iter().for_each(|about| sender.add_stream(about.clone()));
        if let Some([at, back]) = self.kill {
            sender.kill(at, back.since(at));
        }
        Box::new(sender)
    }

    /// Its engine.
    fn engine(&self, lateness: Option<&'static Lateness>) -> Box<dyn Endpoint> {
        let mut engine = Engine::new(&self.link, self.streams.clone(), self.kill);
        engine.lateness = lateness.map(|lateness| (Noise(self.seed), lateness));
        Box::new(engine)
    }

    /// What is sent, when, and what came of each flow.
    fn run(&self, sender: Box<dyn Endpoint>) -> (Vec<(Instant, Sent)>, Vec<Flow>) {
        let mut network = Network::new(self.seed);
        let hosts = ["near", "far"].map(|name| network.host(name).unwrap());
        let delay = DelayModel { delay: Duration::from_millis(20), ..DelayModel::default() };
        let model = LineModel { delay, loss: self.loss, ..LineModel::default() };
        network.link("line", hosts, [model.clone(), model]).unwrap();
        for about in &self.streams {
            let flow = network.flow(&about.name, hosts[0], hosts[1]).unwrap();
            assert_eq!(flow, about.flow);
            network.attach(Box::new(Receiver::new(flow)), &[flow]).unwrap();
        }
        network.attach(sender, &[]).unwrap();
        let mut sent = Vec::new();
        let mut simulation = Simulation::new(network, Limits::default()).unwrap();
        let observer = &mut |event: &selvedge_sim::Event<'_>| {
            if let (Step::Sent, Payload::Bytes(bytes)) =
                (&event.step, &event.packet.payload.payload)
            {
                sent.push((event.at, (FlowId(event.packet.flow), Arc::clone(bytes))));
            }
        };
        simulation.run(Instant::ZERO + LASTS, observer).unwrap();
        (sent, simulation.results().flows)
    }
}

fn list(name: &str) -> FrameList {
    let path = format!("{}/../../lab/repro/media/{name}", env!("CARGO_MANIFEST_DIR"));
    FrameList::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn decodable(flows: &[Flow]) -> u64 {
    flows.iter().filter_map(|flow| flow.frames.as_ref()).map(|f| f.received.decodable).sum()
}

#[test]
fn the_engine_sends_what_the_simulators_sender_does() {
    let mut packets = 0;
    for seed in 0..40 {
        let case = Case::new(seed);
        let (expected, flows) = case.run(case.sender());
        let (sent, of_engine) = case.run(case.engine(None));
        // Where several packets leave at once, their times are rounded together.
        let is_burst = case.link.burst > MTU;
        let is_same = |(one, other): (&(Instant, Sent), &(Instant, Sent))| match is_burst {
            false => one == other,
            true => rounded(one) == rounded(other) && one.0.0.abs_diff(other.0.0) < 1_000,
        };
        let differs = sent.iter().zip(&expected).position(|pair| !is_same(pair));
        assert_eq!((differs, sent.len()), (None, expected.len()), "seed {seed}");
        let seen = |flows: Vec<Flow>| -> Vec<_> {
            flows.into_iter().map(|flow| (flow.frames.map(|f| f.received), flow.arrived)).collect()
        };
        packets += sent.len();
        assert_eq!(seen(of_engine), seen(flows), "seed {seed}");
    }
    assert!(packets > 40_000, "{packets} packets");
}

/// A packet without what depends on the time: its flow, its length, and its header up to the timestamp.
fn rounded((_, (flow, bytes)): &(Instant, Sent)) -> (FlowId, usize, &[u8]) {
    (*flow, bytes.len(), &bytes[..8])
}

/// One byte a second less is seen: the comparison can fail.
#[test]
fn another_rate_is_seen() {
    let case = Case::new(0);
    let expected = case.run(case.sender()).0;
    let mut other = Case::new(0);
    other.link.rate = Bitrate(other.link.rate.0 - 8);
    assert_ne!(other.run(other.engine(None)).0, expected);
}

/// What wake-ups miss is made up for, so that receivers decode nearly as much.
#[test]
fn late_wake_ups_cost_little() {
    let (mut punctual, mut late, mut never) = (0, 0, 0);
    for seed in (0..40).step_by(2) {
        let mut case = Case::new(seed);
        punctual += decodable(&case.run(case.engine(None)).1);
        late += decodable(&case.run(case.engine(Some(&LOADED))).1);
        case.link.catch_up = Some(Bytes(0));
        never += decodable(&case.run(case.engine(Some(&LOADED))).1);
    }
    println!(
        "{punctual} decodable frames, {late} with late wake-ups, {never} if none is made up for"
    );
    assert!(late * 100 > punctual * 95, "{late} of {punctual}");
    assert!(never * 100 < late * 90, "{never} without catching up, {late} with it");
}
