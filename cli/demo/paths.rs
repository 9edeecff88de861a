//! `selvedge demo --paths`: the same frames at the same time over a bond of three bad paths, over the best of them alone, and
//! over that one as an ordinary sender sends. The paths are models of `data/net/line` between sockets of this process.

use std::fs::DirBuilder;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use selvedge_cli_terminal::Failure;
use selvedge_comm_bond::{BondReceiver, Credentials, Deliver};
use selvedge_comm_stack::wire::random;
use selvedge_control_config::view::NodeView;
use selvedge_control_config::{BondLink, NodeConfig, PathConfig};
use selvedge_data_net_bond::StreamId;
use selvedge_data_net_line::{DelayModel, Jitter, Limit, LineModel, LossModel, QueueModel, Rate};
use selvedge_data_net_secure::Identity;
use selvedge_data_sched::Discipline;
use selvedge_media::StreamInfo;
use selvedge_node::credentials::new_key;
use selvedge_node::wait_until;
use selvedge_os::clock::Clock;
use selvedge_units::{Bitrate, Duration, Instant, Share};
use selvedge_web::Server;

use super::relay::Relay;
use super::score::Comparison;
use super::view::DemoView;
use super::{DemoArgs, Media, Side, clips, measured, page, print, take_frames, watch};

/// All paths together, as a share of what the streams need.
const SHARE: f64 = 1.25;
/// The same seed gives the same losses and delays.
const SEED: u64 = 1;
/// How long the paths may take to be connected.
const CONNECTED: Duration = Duration::from_secs(5);

/// A path of the demo.
struct DemoPath {
    name: &'static str,
    /// What it has of all rates together.
    tenths: u64,
    delay: Duration,
    jitter: Duration,
    /// Whether it loses bursts of packets.
    is_lossy: bool,
}

impl DemoPath {
    const fn new(name: &'static str, tenths: u64, delay: Duration, jitter: Duration) -> Self {
        Self { name, tenths, delay, jitter, is_lossy: false }
    }
}

const PATHS: [DemoPath; 3] = [
    DemoPath::new("5g", 5, Duration::from_millis(25), Duration::from_millis(5)),
    DemoPath::new("lte", 3, Duration::from_millis(45), Duration::from_millis(8)),
    DemoPath {
        is_lossy: true,
        ..DemoPath::new("lte2", 2, Duration::from_millis(70), Duration::from_millis(20))
    },
];

/// The first path, the best, dies at this part of the time in hundredths, and is back at that.
const DIES: u64 = 40;
const IS_BACK: u64 = 55;

/// The model of a path at this rate.
fn model(rate: Bitrate, path: &DemoPath) -> LineModel {
    let percent = |percent: u32| Share::from_billionths(percent * 10_000_000).unwrap_or(Share::ONE);
    let loss = LossModel::GilbertElliott {
        worsens: Share::from_billionths(5_000_000).unwrap_or(Share::ZERO),
        recovers: percent(15),
        good: Share::ZERO,
        bad: percent(40),
    };
    LineModel {
        rate: Some(Rate::Constant(rate)),
        queue: QueueModel::DropTail {
            limit: Limit { bytes: rate * Duration::from_millis(500), packets: u32::MAX },
        },
        delay: DelayModel {
            delay: path.delay,
            jitter: Jitter::Uniform(path.jitter),
            reorders: false,
        },
        loss: if path.is_lossy { loss } else { LossModel::None },
        ..LineModel::default()
    }
}

/// The far end of a bond in this process: each stream's packets go to its receiver.
struct Forward {
    socket: UdpSocket,
    to: Vec<SocketAddr>,
}

impl Deliver for Forward {
    fn handle_start(&mut self) {}

    fn handle_description(&mut self, _: StreamId, _: &str) {}

    fn handle_packet(&mut self, _: Instant, stream: StreamId, packet: &[u8]) {
        // A node numbers its streams in their order.
        if let Some(to) = self.to.get(usize::from(stream.0)) {
            // A receiver that has ended gets nothing.
            let _ = self.socket.send_to(packet, to);
        }
    }
}

/// What a bonded side needs while it runs.
struct Bonded {
    relays: Vec<Relay>,
    _far: BondReceiver,
    _folder: Folder,
}

/// A folder for the secret of a bond, for this user alone; dropped, it is removed.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("selvedge-demo-{:032x}", random()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What a cleaner of temporary files removed is gone.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The paths of a demo, and what they carry.
struct Paths {
    clock: Clock,
    models: Vec<LineModel>,
    rates: Vec<Bitrate>,
    all: Bitrate,
}

impl Paths {
    fn new(clock: Clock, all: Bitrate) -> Self {
        let rates: Vec<_> = PATHS.iter().map(|path| Bitrate(all.0 / 10 * path.tenths)).collect();
        let models = rates.iter().zip(&PATHS).map(|(rate, path)| model(*rate, path)).collect();
        Self { clock, models, rates, all }
    }

    /// Sends a node's streams over the first so many paths to these receivers.
    fn bond(
        &self,
        config: &mut NodeConfig,
        paths: usize,
        receivers: &[SocketAddr],
    ) -> Result<Bonded, Failure> {
        let folder = Folder::new().map_err(Failure::failed)?;
        let file = folder.0.join("secret");
        let secret = new_key(&file).map_err(Failure::failed)?;
        let credentials =
            Credentials { identity: Identity::Secret(secret), peers: Vec::new(), peer: None };
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Failure::failed)?;
        let forward = Forward { socket, to: receivers.to_vec() };
        let at = (Ipv4Addr::LOCALHOST, 0).into();
        let far =
            BondReceiver::bind(at, &credentials, self.clock, forward).map_err(Failure::failed)?;
        let relay = |(n, model)| Relay::start(self.clock, SEED + n, model, &[far.address()]);
        let relays = (0..).zip(&self.models[..paths]).map(relay).collect::<Result<Vec<_>, _>>();
        let relays = relays.map_err(Failure::failed)?;
        let link = &mut config.links[0];
        let path = |(relay, path): (&Relay, &DemoPath)| PathConfig {
            to: Some(relay.fronts[0].to_string()),
            ..PathConfig::new(path.name)
        };
        let paths = relays.iter().zip(&PATHS).map(path).collect();
        link.bond = Some(BondLink { to: far.address().to_string(), paths });
        link.secret = Some(file.display().to_string());
        for stream in &mut config.streams {
            (stream.far, stream.spec.to) = (Some(far.address().to_string()), far.address());
        }
        Ok(Bonded { relays, _far: far, _folder: folder })
    }
}

/// The three sides, and what carries their packets.
struct Sides {
    bond: Side,
    best: Side,
    fifo: Side,
    over_bond: Bonded,
    over_best: Bonded,
    over_fifo: Relay,
}

impl Sides {
    /// Sides whose paths are connected, and whose sources do not yet run.
    fn new(args: &DemoArgs, media: &Media, paths: &Paths) -> Result<Self, Failure> {
        let Media { base, clips, rates, needed } = media;
        let clock = paths.clock;
        let audience = || clips::Receivers::open(clips.len(), clock);
        let (by_bond, by_best, by_fifo) = (audience()?, audience()?, audience()?);
        let node = |discipline, rate, to: &[SocketAddr]| {
            clips::node(clips, rates, discipline, rate, args, to)
        };

        let mut config = node(Discipline::Dwcs, paths.all, by_bond.addresses());
        let over_bond = paths.bond(&mut config, PATHS.len(), by_bond.addresses())?;
        let mut bond = Side::new(clock, &config, base, by_bond)?.named("bond");
        let info = |name: &String| bond.node.info(name);
        let infos: Vec<StreamInfo> = bond.names.iter().filter_map(info).collect();

        let mut config = node(Discipline::Dwcs, paths.rates[0], by_best.addresses());
        let over_best = paths.bond(&mut config, 1, by_best.addresses())?;
        take_frames(&mut config, &infos);
        let mut best = Side::new(clock, &config, base, by_best)?.named("best_path");

        let over_fifo = Relay::start(clock, SEED, &paths.models[0], by_fifo.addresses());
        let over_fifo = over_fifo.map_err(Failure::failed)?;
        // An ordinary sender sends all, at once; the path's queue drops.
        let unpaced = Bitrate(needed.0.saturating_mul(20));
        let mut config = node(Discipline::Fifo, unpaced, &over_fifo.fronts);
        take_frames(&mut config, &infos);
        let mut fifo = Side::new(clock, &config, base, by_fifo)?;

        for side in [&mut bond, &mut best, &mut fifo] {
            side.listen(&infos, args)?;
        }
        for other in [&best, &fifo] {
            bond.give_frames(other);
        }
        let is_up =
            |side: &Side| side.node.snapshot().links[0].paths.iter().all(|path| path.rate_bps > 0);
        if !wait_until(CONNECTED, || is_up(&bond) && is_up(&best)) {
            return Err(Failure::failed("the paths of the demo could not be connected"));
        }
        Ok(Self { bond, best, fifo, over_bond, over_best, over_fifo })
    }

    /// The best path dies, or is back.
    fn set_dead(&self, paths: &Paths, is_dead: bool) {
        let alive = &paths.models[0];
        let dead = LineModel { loss: LossModel::Bernoulli(Share::ONE), ..alive.clone() };
        let model = if is_dead { &dead } else { alive };
        for relay in [&self.over_bond.relays[0], &self.over_best.relays[0], &self.over_fifo] {
            relay.change(model);
        }
        let lost = if is_dead { paths.rates[0].0 } else { 0 };
        self.bond.recorder.set_rate(paths.clock.now(), Bitrate(paths.all.0 - lost));
    }
}

pub(super) fn command(args: &DemoArgs, media: &Media, stop: &AtomicBool) -> Result<(), Failure> {
    let link_share = args.share.unwrap_or(SHARE);
    let clock = Clock::new();
    let paths = Paths::new(clock, media.share(link_share));
    let sides = Sides::new(args, media, &paths)?;
    let Sides { bond, best, fifo, .. } = &sides;
    let view = Arc::new(DemoView::new(clock, args.delay, bond.clone(), fifo.clone()));
    let page = page(args, &view)?;
    for side in [fifo, best, bond] {
        side.node.start_sources().map_err(Failure::failed)?;
    }
    view.begin();

    let whole = Duration::from_secs(args.seconds);
    let [dies, is_back] = [DIES, IS_BACK].map(|part| Duration(whole.0 / 100 * part));
    let mut was_dead = false;
    let sent_for = watch(args, &view, &[bond, best, fifo], stop, |elapsed| {
        let is_dead = (dies..is_back).contains(&elapsed);
        if is_dead != std::mem::replace(&mut was_dead, is_dead) {
            sides.set_dead(&paths, is_dead);
        }
    });
    bond.node.stop_sources();
    // The last frames may still arrive on time: wait as long as that may take.
    wait_until(args.delay + Duration::from_millis(200), || false);
    let page_at = page.as_ref().map(Server::local_addr);
    drop(page);
    drop(view);
    let Sides { bond, best, fifo, .. } = sides;
    let kbps = |rate: &Bitrate| format!("{:.0}", rate.0 as f64 / 1e3);
    let each = paths.rates.iter().map(kbps).collect::<Vec<_>>().join(", ");
    let contest = Comparison {
        over: format!("Simulated paths of {each} kbit/s"),
        link_share,
        rates: bond.recorder.rates(),
        began: bond.recorder.began(),
        needed: media.needed,
        seconds: sent_for.as_secs_f64(),
        delay: args.delay,
        names: bond.names.clone(),
        bound: bond.recorder.bound(Instant::ZERO, args.delay),
        sides: vec![
            ("bond", measured(bond)),
            ("best_path", measured(best)),
            ("fifo", measured(fifo)),
        ],
        is_rate_given: false,
    };
    print(args, &contest, page_at)
}
