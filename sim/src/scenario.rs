//! A network file, and the node files of its hosts, as a network that runs.
//!
//! Links, senders and traffic of a [`NetworkConfig`] become hops, paced links and endpoints; of a node file come
//! its links, each with the streams that share it. A stream of a node file goes to the host that has its address,
//! else to the host `far`, else to the only other host.

use std::net::IpAddr;

use selvedge_control_config::network::{self, NetworkConfig, TrafficKind};
use selvedge_control_config::{NodeConfig, StreamConfig};
use selvedge_data_link::Link;
use selvedge_data_net_rate::RateParams;
use selvedge_data_stack::compose::{BuildError, Composition};
use selvedge_data_stream::{Contract, FrameList};
use selvedge_units::{Duration, Instant};

use crate::endpoint::Endpoint;
use crate::media::{MediaStream, Receiver, Sender};
use crate::network::{Network, NetworkError};
use crate::packet::{EndpointId, FlowId, HostId, OVERHEAD};
use crate::traffic::events::{Liar, Offer};
use crate::traffic::{
    Connection, ConnectionEnd, EventEnd, Hostile, Load, MeasuredSender, Messages, OnOff, Program,
    Recording, RecordingError, Replay, TcpParams, Victim, Wire, forger,
};

/// A stream's last frame comes so long before the end that its fate is known then, besides its delay.
const SETTLES: Duration = Duration::from_secs(2);
/// The host at which streams arrive whose address no host has.
const FAR: &str = "far";

/// A clip's frames, and the time from one to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clip {
    /// The frames, played round and round.
    pub list: FrameList,
    /// What each packet of each frame carries; where there are none, packets are as full as they may be.
    pub packets: Vec<Vec<u16>>,
    /// From frame to frame.
    pub period: Duration,
}

/// A node file at a host.
#[derive(Clone, Debug)]
pub struct NodeAt<'a> {
    /// The host, by its place in [`NetworkConfig::hosts`].
    pub host: usize,
    /// The node.
    pub config: &'a NodeConfig,
    /// What each of its streams plays, in the order of the file.
    pub clips: Vec<Clip>,
}

/// A stream of frames in a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// The link that paces it, by its name in its file.
    pub link: String,
    /// The flow of its packets.
    pub flow: FlowId,
    /// The paced link, a [`Sender`].
    pub sender: EndpointId,
    /// What measures it, a [`Receiver`].
    pub receiver: EndpointId,
}

/// A frame whose life is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Its stream; the first of this name.
    pub stream: String,
    /// Its number, from 0.
    pub frame: u32,
}

/// A network, and the streams in it.
pub struct Scenario {
    /// To be run.
    pub network: Network,
    /// All streams of frames, by sender.
    pub streams: Vec<Stream>,
    /// For how long it is to run.
    pub lasts: Duration,
}

/// Why files do not make a scenario. Names are those of tables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The network cannot be.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A capture is wrong.
    #[error("traffic.{name}.pcap: {error}")]
    Capture {
        /// The traffic.
        name: String,
        /// What is wrong with it.
        error: RecordingError,
    },
    /// The modules of a stack can't be made.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Nothing sends.
    #[error("nothing sends in this network; add [traffic.NAME] to its file, or a node file")]
    Nothing,
    /// A stream of a node file can't be simulated.
    #[error("stream.{stream}.{}: {fault}", fault.key())]
    Stream {
        /// The host of its node, by its place in [`NetworkConfig::hosts`].
        host: usize,
        /// The stream.
        stream: String,
        /// Why not.
        fault: StreamFault,
    },
}

/// Why a stream of a node file can't be simulated in this network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamFault {
    /// No host receives it.
    #[error(
        "no host of the network has the address {0}; write address = \"{0}\" at one, or name one \"far\""
    )]
    NoReceiver(IpAddr),
    /// It goes where it comes from.
    #[error("{0} is the address of the host \"{1}\" itself; give it another host's")]
    ToItself(IpAddr, String),
    /// A stack carries it.
    #[error("stacks are not simulated yet; leave the stream out of a copy of the node file")]
    Stack,
}

impl StreamFault {
    /// The key of the stream that is at fault.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        match self {
            Self::NoReceiver(_) | Self::ToItself(..) => "to",
            Self::Stack => "stack",
        }
    }
}

/// A paced link that is being made: its streams share it.
struct Paced {
    name: String,
    host: usize,
    sender: Sender,
    streams: Vec<(String, FlowId, EndpointId)>,
}

impl Scenario {
    /// The network of a file with the nodes at its hosts, under a seed. It lasts as long as the file has it, or
    /// `lasts`. The ends of a stream record the life of the frame that is watched.
    ///
    /// # Errors
    /// [`ScenarioError`].
    pub fn new(
        config: &NetworkConfig,
        nodes: &[NodeAt<'_>],
        lasts: Option<Duration>,
        seed: u64,
        watch: Option<&Watch>,
    ) -> Result<Self, ScenarioError> {
        let lasts = lasts.unwrap_or(config.lasts);
        let network = Network::new(seed);
        let (hosts, ends, channels) = (Vec::new(), Vec::new(), Vec::new());
        let mut making = Making { config, network, hosts, lasts, watch, ends, channels };
        for host in &config.hosts {
            making.hosts.push(making.network.host(&host.name)?);
        }
        for link in &config.links {
            let ends = link.ends.map(|end| making.hosts[end]);
            making.network.link(&link.name, ends, [link.there.clone(), link.back.clone()])?;
        }
        if config.traffic.is_empty() && nodes.iter().all(|node| node.config.streams.is_empty()) {
            return Err(ScenarioError::Nothing);
        }
        let mut paced: Vec<Paced> = config.senders.iter().map(sender).collect();
        for traffic in &config.traffic {
            making.traffic(traffic, &mut paced)?;
        }
        for node in nodes {
            paced.extend(making.node(node)?);
        }
        let mut streams = Vec::new();
        for Paced { name, host, mut sender, streams: of } in paced {
            if let Some((at, lasts)) = config.hosts[host].kill {
                sender.kill(at, lasts);
            }
            let id = making.network.attach(Box::new(sender), &[])?;
            streams.extend(of.into_iter().map(|(stream, flow, receiver)| Stream {
                name: stream,
                link: name.clone(),
                flow,
                sender: id,
                receiver,
            }));
        }
        making.attack(&streams)?;
        Ok(Self { network: making.network, streams, lasts: making.lasts })
    }

    /// Holds the links of all senders to their promises.
    pub fn audit(&mut self) {
        for stream in &self.streams {
            if let Some(sender) = self.network.endpoint_mut::<Sender>(stream.sender) {
                sender.audit();
            }
        }
    }
}

fn sender(config: &network::Sender) -> Paced {
    let link =
        selvedge_control_config::LinkConfig::new(&config.name, config.rate, config.discipline);
    let sender = Sender::new(Link::new(link.params()), OVERHEAD);
    Paced { name: config.name.clone(), host: config.host, sender, streams: Vec::new() }
}

/// A scenario that is being made.
struct Making<'a> {
    config: &'a NetworkConfig,
    network: Network,
    hosts: Vec<HostId>,
    lasts: Duration,
    watch: Option<&'a Watch>,
    /// The ends of channels of events, with their hosts.
    channels: Vec<(HostId, EndpointId)>,
    ends: Vec<End<'a>>,
}

/// An end of a stack.
struct End<'a> {
    host: HostId,
    end: EndpointId,
    /// What the other end sends.
    wire: Wire,
    /// The modules, and the flow by whose number the connection is known, where there is no handshake.
    stack: Option<(&'a Composition, FlowId)>,
}

impl<'a> Making<'a> {
    fn traffic(
        &mut self,
        traffic: &'a network::Traffic,
        paced: &mut [Paced],
    ) -> Result<(), ScenarioError> {
        let network::Traffic { name, start, kind, .. } = traffic;
        let ends = [traffic.from, traffic.to].map(|host| self.hosts[host]);
        let start = Instant::ZERO + *start;
        match kind {
            TrafficKind::Bulk { control, flows, bytes } => {
                for number in 1..=*flows {
                    let name = if *flows == 1 { name.clone() } else { format!("{name} {number}") };
                    let load = Load::Transfer(*bytes);
                    Connection::attach(
                        &mut self.network,
                        &name,
                        ends,
                        &TcpParams::new(*control),
                        start,
                        load,
                    )?;
                }
            }
            TrafficKind::Requests { control, every, size } => {
                let load = Load::Requests(*every, *size);
                Connection::attach(
                    &mut self.network,
                    name,
                    ends,
                    &TcpParams::new(*control),
                    start,
                    load,
                )?;
            }
            TrafficKind::OnOff { rate, packet, on, off } => {
                let flow = self.network.flow(name, ends[0], ends[1])?;
                let random = self.network.random(&format!("traffic {name}"));
                let noise = OnOff::new(flow, start, *rate, *packet, [*on, *off], random);
                self.network.attach(Box::new(noise), &[])?;
            }
            TrafficKind::Measured { packet, most } => {
                let params = RateParams::default();
                let params = RateParams { most: most.unwrap_or(params.most), ..params };
                MeasuredSender::attach(&mut self.network, name, ends, *packet, start, params)?;
            }
            TrafficKind::Frames { list, contract, sender } => {
                let (list, packets) = (list.clone(), Vec::new());
                let clip = Clip { list, packets, period: contract.period };
                self.stream(&mut paced[*sender], (name, 0), ends, clip, *contract, start)?;
            }
            // When all receivers are there.
            TrafficKind::Hostile { .. } => {}
            TrafficKind::Replay { pcap } => {
                let recording = Recording::parse(pcap)
                    .map_err(|error| ScenarioError::Capture { name: name.clone(), error })?;
                let flow = self.network.flow(name, ends[0], ends[1])?;
                self.network.attach(Box::new(Replay::new(flow, start, recording)), &[])?;
            }
            TrafficKind::Events { every, size, reliable, sinks } => {
                let span = [start, Instant::ZERO + self.lasts - SETTLES];
                let (every, size, is_reliable) = (*every, *size, *reliable);
                let offer = Offer { span, every, size, is_reliable };
                let kills = [traffic.from, traffic.to].map(|host| self.config.hosts[host].kill);
                let all = EventEnd::attach(&mut self.network, name, ends, offer, *sinks, kills)?;
                let at = std::iter::once(ends[0]).chain(std::iter::repeat(ends[1]));
                self.channels.extend(at.zip(all));
            }
            TrafficKind::Messages { every, size, stack, connections } => {
                let until = Instant::ZERO + self.lasts - SETTLES;
                let (every, size) = (*every, *size);
                let program = Program { stack: stack.clone(), start, until, every, size };
                match connections {
                    0 => self.messages(name, ends, &program, stack)?,
                    count => self.connections(name, ends, &program, *count)?,
                }
            }
        }
        Ok(())
    }

    fn node(&mut self, node: &NodeAt<'_>) -> Result<Vec<Paced>, ScenarioError> {
        let mut paced = Vec::new();
        for link in &node.config.links {
            let mut of = Link::with_tree(link.params(), &link.tree);
            of.set_bounds(link.queue, link.catch_up);
            paced.push(Paced {
                name: link.name.clone(),
                host: node.host,
                sender: Sender::new(of, OVERHEAD),
                streams: Vec::new(),
            });
        }
        for (stream, clip) in node.config.streams.iter().zip(&node.clips) {
            let to = receiving_host(self.config, node.host, stream).map_err(|fault| {
                let stream = stream.spec.name.clone();
                ScenarioError::Stream { host: node.host, stream, fault }
            })?;
            let ends = [node.host, to].map(|host| self.hosts[host]);
            let contract = stream.spec.clone().with_media_period(clip.period).contract;
            self.stream(
                &mut paced[stream.link],
                (&stream.spec.name, stream.spec.to.port()),
                ends,
                clip.clone(),
                contract,
                Instant::ZERO,
            )?;
        }
        Ok(paced)
    }

    /// Adds the two ends of a stack.
    fn messages(
        &mut self,
        name: &str,
        hosts: [HostId; 2],
        program: &Program,
        stack: &'a Composition,
    ) -> Result<(), ScenarioError> {
        let flows = self.network.flow_and_answers(name, hosts)?;
        let ends = Messages::pair(program, flows)?;
        let wires = ends.each_ref().map(Messages::wire);
        self.ends(hosts, flows, ends, wires, Some((stack, flows[0])))
    }

    /// Adds the two ends of connections that are opened by handshakes.
    fn connections(
        &mut self,
        name: &str,
        hosts: [HostId; 2],
        program: &Program,
        count: u32,
    ) -> Result<(), ScenarioError> {
        let flows = self.network.flow_and_answers(name, hosts)?;
        let random = [1, 2].map(|end| self.network.random(&format!("traffic {name} {end}")));
        let ends = ConnectionEnd::pair(program, count, flows, random);
        let wires = ends.each_ref().map(ConnectionEnd::wire);
        self.ends(hosts, flows, ends, wires, None)
    }

    fn ends<E: Endpoint>(
        &mut self,
        hosts: [HostId; 2],
        [there, back]: [FlowId; 2],
        ends: [E; 2],
        [first, second]: [Wire; 2],
        stack: Option<(&'a Composition, FlowId)>,
    ) -> Result<(), ScenarioError> {
        let each = hosts.into_iter().zip(ends).zip([(back, second), (there, first)]);
        for ((host, end), (receives, wire)) in each {
            let end = self.network.attach(Box::new(end), &[receives])?;
            self.ends.push(End { host, end, wire, stack });
        }
        Ok(())
    }

    /// Adds the attackers of the streams' receivers and of the ends of stacks, and members of channels that lie.
    fn attack(&mut self, streams: &[Stream]) -> Result<(), ScenarioError> {
        for network::Traffic { name, from, to, start, kind } in &self.config.traffic {
            let TrafficKind::Hostile { every } = kind else { continue };
            let [from, to] = [*from, *to].map(|host| self.hosts[host]);
            let mut victims = Vec::new();
            for stream in streams {
                if self.network.flows[stream.flow.0 as usize].to == to {
                    let flow = self.network.flow(name, from, to)?;
                    self.network.receive(stream.receiver, flow)?;
                    victims.push(Victim::Receiver(flow, stream.flow.0 as u32));
                }
            }
            for End { end, wire, stack, .. } in self.ends.iter().filter(|end| end.host == to) {
                let [replays, forged] =
                    [self.network.flow(name, from, to)?, self.network.flow(name, from, to)?];
                self.network.receive(*end, replays)?;
                self.network.receive(*end, forged)?;
                if let Some(end) = self.network.endpoint_mut::<Messages>(*end) {
                    end.expect_forged(forged);
                }
                let forger = stack.and_then(|(stack, flow)| forger(stack, flow));
                victims.push(Victim::End { replays, forged, wire: wire.clone(), forger });
            }
            let random = self.network.random(&format!("traffic {name}"));
            let hostile = Hostile::new(victims, Instant::ZERO + *start, *every, random);
            self.network.attach(Box::new(hostile), &[])?;
            for (number, (_, end)) in
                self.channels.iter().enumerate().filter(|(_, (host, _))| *host == to)
            {
                let flow = self.network.flow(name, from, to)?;
                self.network.receive(*end, flow)?;
                let random = self.network.random(&format!("traffic {name} {number}"));
                let liar = Liar::new(flow, Instant::ZERO + *start, *every, random);
                self.network.attach(Box::new(liar), &[])?;
            }
        }
        Ok(())
    }

    /// Adds a stream, whose packets go to this port, to a paced link, and what measures it.
    fn stream(
        &mut self,
        paced: &mut Paced,
        (name, port): (&str, u16),
        ends: [HostId; 2],
        clip: Clip,
        contract: Contract,
        begin: Instant,
    ) -> Result<(), ScenarioError> {
        let flow = self.network.flow(name, ends[0], ends[1])?;
        let mut receiver = Receiver::new(flow);
        let host = &self.config.hosts[ends[1].0 as usize];
        if let Some((at, lasts)) = host.kill {
            receiver.kill(at, lasts);
        }
        if let Some((at, by)) = host.clock {
            receiver.jump(at, by);
        }
        if let Some(watch) = self.watch.take_if(|watch| watch.stream == name) {
            receiver.watch(watch.frame, clip.list.frame(watch.frame).refs);
            paced.sender.watch(flow, watch.frame);
        }
        let receiver = self.network.attach(Box::new(receiver), &[flow])?;
        let ends_at =
            Instant::ZERO + self.lasts - SETTLES - contract.delay.unwrap_or(contract.period);
        let frames = ends_at.since(begin).0 / clip.period.0.max(1);
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        let Clip { list, packets, period } = clip;
        paced.sender.add_stream(MediaStream {
            name: name.to_owned(),
            flow,
            port,
            list,
            packets,
            period,
            contract,
            begin,
            frames,
        });
        paced.streams.push((name.to_owned(), flow, receiver));
        Ok(())
    }
}

/// The host at which a node's stream arrives.
fn receiving_host(
    config: &NetworkConfig,
    from: usize,
    stream: &StreamConfig,
) -> Result<usize, StreamFault> {
    if stream.stack.is_some() {
        return Err(StreamFault::Stack);
    }
    let to = stream.spec.to.ip();
    let has_address = config.hosts.iter().position(|host| host.address == Some(to));
    if has_address == Some(from) {
        return Err(StreamFault::ToItself(to, config.hosts[from].name.clone()));
    }
    let named = || config.hosts.iter().position(|host| host.name == FAR).filter(|far| *far != from);
    let only = || (config.hosts.len() == 2).then_some(1 - from.min(1));
    has_address.or_else(named).or_else(only).ok_or(StreamFault::NoReceiver(to))
}
