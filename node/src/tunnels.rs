//! The tunnels of a node: network devices whose IP packets go over its bonds, for programs that know nothing of them, and
//! UDP ports, for those that need no device.
//!
//! A tunnel's packets become frames of its stream, one each, in the streamlet of their flow. The link queues them
//! fairly and sends what its other streams leave. What the bond brings goes into the device, or out of the port; the bond
//! keeps each flow in order by itself. It is Aurora's IP over the VuNet (1:3.2.1, 1:3.5), for links of the internet.

mod udp_port;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use selvedge_comm_bond::{BondReceiver, BondSender, Deliver};
use selvedge_comm_line::{flow, is_housekeeping};
use selvedge_control_config::view::StreamState;
use selvedge_control_config::{LinkConfig, NodeConfig, TunnelConfig, bonded, framing};
use selvedge_data_link::PathEstimate;
use selvedge_data_net_bond::{FLOWS, StreamId};
use selvedge_data_stack::compose::Fit;
use selvedge_data_stream::rtp;
use selvedge_os::clock::Clock;
use selvedge_os::device::DeviceSettings;
use selvedge_os::device_port::{DevicePort, HEADROOM};
use selvedge_os::keeper::{Keeper, Stop};
use selvedge_os::poll_thread::PollThread;
use selvedge_place_engine::engine::{Carrier, StreamCarrier};
use selvedge_place_engine::frame_producer::FrameProducer;
use selvedge_units::{Bytes, Duration, Instant};

use self::udp_port::UdpPort;
use crate::feed::FeedStatus;
use crate::measured::{FOLLOW_EVERY, LEAST, LOOK_EVERY, MeasuredLinks};
use crate::nat::{NatError, NatRules};

/// How long a packet may be under way, beside the delay of the shortest path: for so long a loss holds up its flow.
const UNDER_WAY_MAX: Duration = Duration::from_millis(300);
/// A path that needs more than half of this gets probes only. Streams with a delay of their own decide instead.
pub(crate) const TUNNEL_DELAY: Duration = Duration(UNDER_WAY_MAX.0 * 2);
/// Packets that are read before the engine has its turn.
const READS_MAX: usize = 64;
/// An RTP header without any fields; the link's frame producer writes its own.
const RTP: [u8; rtp::HEADER_LEN] = [0x80, 96, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Why a tunnel can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// No right to make devices.
    #[error(
        "can't make device {0}: that needs CAP_NET_ADMIN; run the node as root, or give its program the right by setcap cap_net_admin+ep"
    )]
    Rights(String),
    /// Another device has the name.
    #[error("there is a device {0} already; write device with another name")]
    Taken(String),
    /// The kernel has no TUN devices here.
    #[error("can't make device {0}: /dev/net/tun is absent; load the module tun")]
    NoTun(String),
    /// The kernel refuses the device, an address or a route.
    #[error("can't make device {device} with its addresses and routes: {why}")]
    Device {
        /// Its name.
        device: String,
        /// The kernel's reason.
        why: io::Error,
    },
    /// Addresses can't be translated.
    #[error(transparent)]
    Nat(#[from] NatError),
    /// The kernel refuses the port.
    #[error("can't listen at port {port}: {why}; write another, or end what listens there")]
    Port {
        /// The address.
        port: SocketAddr,
        /// The kernel's reason.
        why: io::Error,
    },
}

/// A tunnel that can't be opened, by its table's name.
#[derive(Debug, thiserror::Error)]
#[error("tunnel.{tunnel}: {why}")]
pub struct TunnelFailure {
    /// The table.
    pub tunnel: String,
    /// The reason.
    pub why: TunnelError,
}

impl TunnelFailure {
    /// The key of the node file that must be changed.
    pub(crate) fn key(&self) -> String {
        let key = match &self.why {
            TunnelError::Nat(_) => "nat",
            TunnelError::Device { .. } => "address",
            TunnelError::Port { .. } => "port",
            _ => "device",
        };
        format!("tunnel.{}.{key}", self.tunnel)
    }
}

/// The tunnels of a node, by the names of their streams.
#[derive(Default)]
pub(crate) struct NodeTunnels {
    tunnels: BTreeMap<String, Arc<Tunnel>>,
    /// The ends that send back, by the names of their links.
    back: Vec<(String, Arc<BondReceiver>)>,
    keeper: Option<Keeper>,
}

/// A device, a port or both, and what goes through them. The device lives as long as this.
#[derive(Debug)]
pub(crate) struct Tunnel {
    config: TunnelConfig,
    /// The link of its stream.
    link: String,
    device: Option<DevicePort>,
    port: Option<Mutex<UdpPort>>,
    /// Packets that came and are neither of a device nor of a port here.
    refused: AtomicU64,
    _nat: Option<NatRules>,
}

/// An end of a bond that sends the packets of a tunnel's flows: forward, or back.
#[derive(Debug)]
pub(crate) enum FlowSender {
    Near(Arc<BondSender>),
    Far(Arc<BondReceiver>),
}

/// The carrier of a tunnel's stream.
#[derive(Debug)]
struct FlowCarrier {
    bond: FlowSender,
    clock: Clock,
}

impl Carrier for FlowCarrier {
    fn carry(&self, packet: &[u8]) -> bool {
        // The link's own header stays here. Its source identifier is the streamlet's number.
        let Ok(packet) = rtp::Packet::parse(packet) else { return false };
        let flow = StreamId::of_flow(packet.header.ssrc.into());
        let deadline = self.clock.now() + UNDER_WAY_MAX;
        match &self.bond {
            FlowSender::Near(bond) => bond.send(flow, deadline, None, packet.payload),
            FlowSender::Far(bond) => bond.send(flow, deadline, packet.payload),
        }
    }

    fn take_extra(&self) -> Bytes {
        match &self.bond {
            FlowSender::Near(bond) => bond.take_owed(),
            FlowSender::Far(bond) => bond.take_back_owed(),
        }
    }
}

/// The carrier of a tunnel's stream over this bond.
pub(crate) fn carrier(
    bond: FlowSender,
    clock: Clock,
    link: &LinkConfig,
    to: SocketAddr,
) -> StreamCarrier {
    let Fit { message, headers } = bonded(link, to);
    let by = Arc::new(FlowCarrier { bond, clock });
    StreamCarrier { by, overhead: headers - framing(), packet_max: message + framing() }
}

impl NodeTunnels {
    /// Makes the devices of all tunnels.
    pub(crate) fn start(config: &NodeConfig) -> Result<Self, TunnelFailure> {
        let mut tunnels = BTreeMap::new();
        for tunnel in &config.tunnels {
            let own = config.streams.iter().find(|stream| stream.spec.name == tunnel.name);
            let link = own.and_then(|stream| config.links.get(stream.link));
            let link = link.map(|link| link.name.clone()).unwrap_or_default();
            let opened = Tunnel::open(tunnel, link)
                .map_err(|why| TunnelFailure { tunnel: tunnel.name.clone(), why })?;
            tunnels.insert(tunnel.name.clone(), Arc::new(opened));
        }
        Ok(Self { tunnels, ..Self::default() })
    }

    /// What takes the packets that come back over the bond of a link, if a tunnel does.
    pub(crate) fn of_link(&self, link: &str) -> Option<IntoDevice> {
        let is_own = |tunnel: &&Arc<Tunnel>| tunnel.config.bond.is_none() && tunnel.link == link;
        self.tunnels.values().find(is_own).cloned().map(IntoDevice)
    }

    /// What takes the packets that come to the far end of a bond, if a tunnel does.
    pub(crate) fn of_bond(&self, bond: &str) -> Option<IntoDevice> {
        let is_own = |tunnel: &&Arc<Tunnel>| tunnel.config.bond.as_deref() == Some(bond);
        self.tunnels.values().find(is_own).cloned().map(IntoDevice)
    }

    /// The carrier of a tunnel's stream at a far end: back over the bond that `far_end` finds by name.
    pub(crate) fn carrier(
        &mut self,
        stream: &str,
        link: &LinkConfig,
        clock: Clock,
        far_end: impl Fn(&str) -> Option<Arc<BondReceiver>>,
    ) -> Option<StreamCarrier> {
        let receiver = far_end(self.tunnels.get(stream)?.config.bond.as_deref()?)?;
        let to_near = FlowSender::Far(Arc::clone(&receiver));
        let carrier = carrier(to_near, clock, link, receiver.address());
        self.back.push((link.name.clone(), receiver));
        Some(carrier)
    }

    /// Makes the links of far ends follow the rates of the ways back.
    pub(crate) fn follow(
        &mut self,
        links: impl MeasuredLinks + 'static,
        clock: Clock,
    ) -> io::Result<()> {
        if self.back.is_empty() {
            return Ok(());
        }
        let back = self.back.clone();
        let work = move |stop: &Stop| follow(&back, &links, clock, stop);
        self.keeper = Some(Keeper::start("tunnels".to_owned(), work)?);
        Ok(())
    }

    /// Lets the packets of a tunnel's device come, until the thread is dropped.
    pub(crate) fn feed(
        &self,
        stream: &str,
        clock: Clock,
        frame_producer: FrameProducer,
        status: &Arc<FeedStatus>,
    ) -> Option<io::Result<PollThread>> {
        let tunnel = Arc::clone(self.tunnels.get(stream)?);
        status.set(StreamState::Running, "");
        Some(tunnel.read(clock, frame_producer, Arc::clone(status)))
    }
}

fn follow(
    back: &[(String, Arc<BondReceiver>)],
    links: &impl MeasuredLinks,
    clock: Clock,
    stop: &Stop,
) {
    let mut look_at = Instant::ZERO;
    while !stop.is_requested() {
        let looks = clock.now() >= look_at;
        for (link, receiver) in back {
            if let Some(path) = receiver.back_estimate() {
                links.set_path(link, PathEstimate { rate: path.rate.max(LEAST), ..path });
            }
            if looks {
                receiver.set_back_demand(links.offered(link).rate, TUNNEL_DELAY);
            }
        }
        if looks {
            look_at = clock.now() + LOOK_EVERY;
        }
        stop.pause(FOLLOW_EVERY);
    }
}

impl Tunnel {
    fn open(config: &TunnelConfig, link: String) -> Result<Self, TunnelError> {
        let has_device = !config.addresses.is_empty();
        let device = has_device.then(|| open_device(config)).transpose()?;
        let nat = config.nat.as_ref().map(|nat| NatRules::new(config, nat)).transpose()?;
        let port = config.port.map(|port| {
            let end = if config.bond.is_none() { UdpPort::near(port) } else { UdpPort::far(port) };
            end.map_err(|why| TunnelError::Port { port, why })
        });
        let port = port.transpose()?.map(Mutex::new);
        Ok(Self {
            config: config.clone(),
            link,
            device,
            port,
            refused: AtomicU64::new(0),
            _nat: nat,
        })
    }

    /// Puts a packet that the bond brought into the device, or sends it out of the port.
    fn write(&self, now: Instant, packet: &[u8]) {
        let is_taken = match (&self.port, &self.device) {
            (Some(port), _) if UdpPort::is_own(packet) => port.lock().send(now, packet),
            (_, Some(device)) => {
                packet.len() as u64 <= self.config.mtu.0
                    && flow(packet).is_some()
                    && device.send(&[&[0; HEADROOM][..], packet].concat()).is_ok()
            }
            _ => false,
        };
        if !is_taken {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reads packets of the device and of the port on a thread of its own.
    fn read(
        self: Arc<Self>,
        clock: Clock,
        mut frame_producer: FrameProducer,
        status: Arc<FeedStatus>,
    ) -> io::Result<PollThread> {
        let mut buffer = vec![0; HEADROOM + self.config.mtu.0 as usize + 1];
        PollThread::start("tunnel", clock, move || {
            let mut is_more = false;
            let mut watched: Vec<Arc<dyn AsFd + Send + Sync>> = Vec::new();
            if let Some(port) = &self.port {
                is_more |= self.read_port(port, clock, &mut buffer, &mut frame_producer);
                watched.extend(port.lock().readable());
            }
            if self.device.is_some() {
                match self.read_device(clock, &mut buffer, &mut frame_producer) {
                    Ok(is_more_there) => {
                        is_more |= is_more_there;
                        watched.push(Arc::new(Readable(Arc::clone(&self))));
                    }
                    Err(why) => {
                        status.set(StreamState::Failed, format!("{}: {why}", self.config.device));
                    }
                }
            }
            status.refused.store(self.refused.load(Ordering::Relaxed), Ordering::Relaxed);
            (if is_more { clock.now() } else { Instant::MAX }, watched)
        })
    }

    /// Reads some packets of the device; whether there may be more.
    fn read_device(
        &self,
        clock: Clock,
        buffer: &mut [u8],
        frame_producer: &mut FrameProducer,
    ) -> io::Result<bool> {
        let Some(device) = &self.device else { return Ok(false) };
        for _ in 0..READS_MAX {
            let Some(len) = device.receive(buffer)? else { return Ok(false) };
            let arrival = clock.now();
            let packet = &buffer[HEADROOM..HEADROOM + len];
            if !is_housekeeping(packet) {
                let flow = flow(packet);
                self.offer(arrival, flow, &mut buffer[..HEADROOM + len], frame_producer);
            }
        }
        Ok(true)
    }

    /// Reads some datagrams of the port; whether there may be more.
    fn read_port(
        &self,
        port: &Mutex<UdpPort>,
        clock: Clock,
        buffer: &mut [u8],
        frame_producer: &mut FrameProducer,
    ) -> bool {
        for _ in 0..READS_MAX {
            let arrival = clock.now();
            let Some(len) = port.lock().receive(arrival, &mut buffer[HEADROOM..]) else {
                return false;
            };
            let packet = &buffer[HEADROOM..HEADROOM + len];
            let is_whole = len as u64 <= self.config.mtu.0;
            let flow = UdpPort::flow(packet).filter(|_| is_whole);
            self.offer(arrival, flow, &mut buffer[..HEADROOM + len], frame_producer);
        }
        true
    }

    /// Offers a packet of a flow, behind the room for its headers, to the link; one without a flow is refused.
    fn offer(
        &self,
        arrival: Instant,
        flow: Option<u64>,
        buffer: &mut [u8],
        frame_producer: &mut FrameProducer,
    ) {
        let Some(flow) = flow else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let header = HEADROOM - RTP.len();
        buffer[header..HEADROOM].copy_from_slice(&RTP);
        let number = (flow % u64::from(FLOWS)) as u32;
        // Without room it is dropped, and counted.
        let _ = frame_producer.enqueue_for(number, arrival, 0, &[&buffer[header..]]);
    }
}

fn open_device(config: &TunnelConfig) -> Result<DevicePort, TunnelError> {
    let device = || config.device.clone();
    let settings = DeviceSettings {
        addresses: &config.addresses,
        mtu: Some(config.mtu.0 as u32),
        routes: &config.routes,
        ..DeviceSettings::default()
    };
    DevicePort::tun(&config.device, &settings).map_err(|why| match why.kind() {
        io::ErrorKind::PermissionDenied => TunnelError::Rights(device()),
        io::ErrorKind::ResourceBusy => TunnelError::Taken(device()),
        io::ErrorKind::NotFound => TunnelError::NoTun(device()),
        _ => TunnelError::Device { device: device(), why },
    })
}

/// The device as a descriptor that becomes readable.
struct Readable(Arc<Tunnel>);

impl AsFd for Readable {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.device.as_ref().expect("it is read only if it is there").as_fd()
    }
}

/// What a bond brings for a tunnel goes into its device, or out of its port.
#[derive(Clone, Debug)]
pub(crate) struct IntoDevice(Arc<Tunnel>);

impl Deliver for IntoDevice {
    fn handle_start(&mut self) {}

    fn handle_description(&mut self, _: StreamId, _: &str) {}

    fn handle_packet(&mut self, now: Instant, stream: StreamId, packet: &[u8]) {
        if stream.is_flow() {
            self.0.write(now, packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use selvedge_control_config::parse;
    use selvedge_data_link::{Link, LinkParams};
    use selvedge_data_stream::{Fate, Frame, Kind, References};
    use selvedge_units::Bitrate;

    use super::*;
    use crate::source::contract_of;

    const SIZE: Bytes = Bytes(1_000);

    /// How many frames of a camera with 50 a second, and how many packets of a tunnel with any number of them, leave in 10 s by
    /// a link that has room for 80 a second.
    fn sent(discipline: &str, weight: u32) -> [i32; 2] {
        let text = format!(
            "[link.up]\nto = \"198.51.100.7:7800\"\nsecret = \"x\"\ndiscipline = \"{discipline}\"\n\
             [stream.cam]\nsource = \"test:video\"\nperiod = \"20 ms\"\ndelay = \"100 ms\"\n\
             [tunnel.net]\naddress = \"10.77.0.1/30\"\nweight = {weight}\n"
        );
        let config = parse(&text, "x.toml").unwrap().config;
        let mut link = Link::new(LinkParams {
            discipline: config.links[0].discipline,
            selection: true,
            rate: Bitrate(SIZE.0 * 8 * 80),
            burst: SIZE,
            catch_up: None,
            mtu: SIZE,
            queue: None,
        });
        let streams = ["cam", "net"].map(|name| {
            let own = config.streams.iter().find(|stream| stream.spec.name == name).unwrap();
            link.add_stream(contract_of(own, None))
        });
        let (mut offered, mut sent) = ([0_u32; 2], [0; 2]);
        let mut offer = |link: &mut Link, n: usize, arrival: Instant| {
            let frame = Frame {
                seq: offered[n],
                kind: Kind::Data,
                referenced: false,
                refs: References::NONE,
                packets: 1,
                size: SIZE,
                arrival,
                deadline: None,
                payload: Default::default(),
            };
            offered[n] += 1;
            link.handle_frame(arrival, streams[n], frame);
        };
        // As the slot does it: the next packet comes when the last one is settled.
        offer(&mut link, 1, Instant::ZERO);
        for ms in 0..10_000 {
            let now = Instant::ZERO + Duration::from_millis(ms);
            if ms % 20 == 0 {
                offer(&mut link, 0, now);
            }
            if link.poll_transmit(now).is_some() && link.departure(SIZE) <= now {
                link.sent(now, SIZE);
            }
            while let Some(settled) = link.poll_settled() {
                let n = usize::from(settled.stream == streams[1]);
                sent[n] += i32::from(matches!(settled.fate, Fate::Sent { .. }));
                if n == 1 {
                    offer(&mut link, 1, now);
                }
            }
        }
        sent
    }

    #[test]
    fn streams_with_deadlines_go_before_a_tunnel_or_share_with_it_by_weight() {
        for (discipline, weight, expected) in [
            ("dwcs", 1, [500, 300]),
            ("dwcs", 100, [500, 300]),
            ("edf", 100, [500, 300]),
            ("wfq", 1, [400, 400]),
            ("wfq", 3, [200, 600]),
        ] {
            let sent = sent(discipline, weight);
            let is_near = sent.iter().zip(expected).all(|(sent, due)| (sent - due).abs() <= 20);
            assert!(is_near, "{discipline}, weight {weight}: {sent:?}");
        }
    }
}
