//! The near ends of a node's bonds: links that send over several paths to another node. They are opened when the node
//! starts.
//!
//! The link's engine passes a packet on when it may leave; here it goes to the bond, with its deadline. The bond's
//! measured rate becomes the link's, so that the link selects among frames by what the paths carry. Each stream is
//! described to the far end by its session description.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use parking_lot::Mutex;
use selvedge_comm_bond::{BondSender, Deliver, PathOptions, PathView, SenderOptions};
use selvedge_control_config::view::PathSnapshot;
use selvedge_control_config::{BondLink, LinkConfig, NodeConfig, PathConfig, StreamConfig, bonded};
use selvedge_data_link::PathEstimate;
use selvedge_data_net_bond::{Cost, PathParams, PathStatus, RateParams, StreamId};
use selvedge_data_stack::compose::Fit;
use selvedge_data_stream::rtp;
use selvedge_os::clock::Clock;
use selvedge_os::keeper::{Keeper, Stop};
use selvedge_place_engine::engine::{Carrier, Heard, StreamCarrier};
use selvedge_units::{Bytes, Duration, Instant, Share};

use crate::bond_credentials::{BondStartError, sealing};
use crate::bond_feed::describe;
use crate::budget::{Budget, month};
use crate::measured::{FOLLOW_EVERY, LEAST, LOOK_EVERY, MeasuredLinks, Offered};
use crate::path_events::{PathEvents, SeenPath, is_up};
use crate::rates::{Rates, seconds};
use crate::tunnels::{self, FlowSender, NodeTunnels};

/// How often what metered paths carried is written down.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// The near ends, by the names of their links.
#[derive(Default)]
pub(crate) struct NodeBonds {
    near: BTreeMap<String, Arc<NearEnd>>,
    keeper: Option<Keeper>,
}

/// The near end of one bond.
#[derive(Debug)]
struct NearEnd {
    sender: Arc<BondSender>,
    clock: Clock,
    next: AtomicU16,
    /// The streams, by name.
    streams: Mutex<BTreeMap<String, StreamId>>,
    /// What can be seen of its paths.
    seen: Mutex<Vec<PathSnapshot>>,
    /// The budgets of its metered paths, by name.
    budgets: Mutex<BTreeMap<String, Budget>>,
    /// What was measured of its paths.
    rates: Mutex<Rates>,
}

/// The carrier of a stream over a bond.
#[derive(Debug)]
struct BondedStream {
    near: Arc<NearEnd>,
    stream: StreamId,
}

impl Carrier for BondedStream {
    fn carry(&self, packet: &[u8]) -> bool {
        let tag = rtp::Packet::parse(packet).ok().and_then(|packet| packet.tag);
        let left = tag.as_ref().map_or(0, |tag| tag.left_ms.max(0).unsigned_abs());
        let deadline = self.near.clock.now() + Duration::from_millis(left.into());
        self.near.sender.send(self.stream, deadline, tag.as_ref(), packet)
    }

    fn take_extra(&self) -> Bytes {
        self.near.sender.take_owed()
    }
}

impl NodeBonds {
    /// Opens the near end of each link that has one, and begins to connect. Measured rates are kept only if that is wanted.
    pub(crate) fn start(
        config: &NodeConfig,
        base: &Path,
        keeps_rates: bool,
        clock: Clock,
        tunnels: &NodeTunnels,
    ) -> Result<Self, BondStartError> {
        let mut bonds = Self::default();
        for link in &config.links {
            let Some(bond) = &link.bond else { continue };
            let at = format!("link.{}", link.name);
            let place = |path: &Option<String>| path.as_ref().map(|path| base.join(path));
            let peer = link.peer.clone();
            let (credentials, _) = sealing(&at, place(&link.secret), place(&link.key), peer)?;
            let BondLink { to, paths } = bond;
            let mut budgets = BTreeMap::new();
            for (path, most) in paths.iter().filter_map(|path| Some((path, path.budget?))) {
                let file = base.join(format!("{}.{}.usage", link.name, path.name));
                let budget = Budget::open(file, most, &month()).map_err(|why| {
                    BondStartError::Budget { at: at.clone(), path: path.name.clone(), why }
                })?;
                budgets.insert(path.name.clone(), budget);
            }
            let file = keeps_rates.then(|| base.join(format!("{}.rates", link.name)));
            let rates = Rates::open(file);
            let options = |path: &PathConfig| {
                let mut options = path_options(path, to);
                options.allowance = budgets.get(&path.name).map(Budget::left);
                options.params.known = rates.known(&path.name, seconds());
                options
            };
            let paths = paths.iter().map(options).collect();
            let options = SenderOptions { credentials, paths };
            let back =
                tunnels.of_link(&link.name).map(|tunnel| Box::new(tunnel) as Box<dyn Deliver>);
            let sender = BondSender::with_back(options, back, clock)
                .map_err(|why| BondStartError::Bond { at: at.clone(), why })?;
            let near = NearEnd {
                sender: Arc::new(sender),
                clock,
                next: AtomicU16::new(0),
                streams: Mutex::default(),
                seen: Mutex::default(),
                budgets: Mutex::new(budgets),
                rates: Mutex::new(rates),
            };
            bonds.near.insert(link.name.clone(), Arc::new(near));
        }
        Ok(bonds)
    }

    /// Makes the links follow their bonds from now on, and publishes what becomes of the paths.
    pub(crate) fn follow(
        &mut self,
        links: impl MeasuredLinks + 'static,
        mut events: Option<PathEvents>,
    ) -> std::io::Result<()> {
        if self.near.is_empty() {
            return Ok(());
        }
        let near = self.near.clone();
        let work = move |stop: &Stop| follow(&near, &links, events.as_mut(), stop);
        self.keeper = Some(Keeper::start("bonds".to_owned(), work)?);
        Ok(())
    }

    /// The carrier of a stream, if its link has a bond.
    pub(crate) fn carrier(
        &self,
        link: &LinkConfig,
        stream: &StreamConfig,
    ) -> Option<StreamCarrier> {
        let near = Arc::clone(self.near.get(&link.name)?);
        if stream.is_tunnel() {
            let bond = FlowSender::Near(Arc::clone(&near.sender));
            return Some(tunnels::carrier(bond, near.clock, link, stream.spec.to));
        }
        let name = stream.spec.name.clone();
        let number = StreamId(near.next.fetch_add(1, Ordering::Relaxed));
        let number = *near.streams.lock().entry(name).or_insert(number);
        let Fit { message, headers } = bonded(link, stream.spec.to);
        let by = Arc::new(BondedStream { near, stream: number });
        Some(StreamCarrier { by, overhead: headers, packet_max: message })
    }

    /// What can be seen of the paths of a link.
    pub(crate) fn paths(&self, link: &str) -> Vec<PathSnapshot> {
        self.near.get(link).map(|near| near.seen.lock().clone()).unwrap_or_default()
    }

    /// Why a link's bond carries nothing, if it does not.
    pub(crate) fn problem(&self, link: &str) -> Option<String> {
        let paths = self.near.get(link)?.sender.view();
        if paths.iter().any(|path| path.problem.is_none()) {
            return None;
        }
        let why =
            |path: &PathView| path.problem.as_ref().map(|why| format!("{}: {why}", path.name));
        Some(paths.iter().filter_map(why).collect::<Vec<_>>().join("; "))
    }

    /// Whether each bond has a path that carries packets.
    pub(crate) fn are_up(&self) -> bool {
        self.near.keys().all(|link| self.problem(link).is_none())
    }
}

fn path_options(path: &PathConfig, to: &str) -> PathOptions {
    let mut rate = RateParams::default();
    if let Some(stated) = path.rate {
        (rate.start, rate.most) = (rate.start.min(stated), stated);
    }
    let cost = if path.is_metered { Cost::Metered } else { Cost::Free };
    PathOptions {
        name: path.name.clone(),
        device: path.device.clone(),
        address: path.address,
        to: path.to.as_deref().unwrap_or(to).to_owned(),
        allowance: None,
        params: PathParams { cost, is_spare: path.is_spare, rate, known: None },
    }
}

/// Keeps rates, demands, descriptions and views up to date until requested to stop.
fn follow(
    near: &BTreeMap<String, Arc<NearEnd>>,
    links: &impl MeasuredLinks,
    mut events: Option<&mut PathEvents>,
    stop: &Stop,
) {
    let (mut look_at, mut keep_at) = (Instant::ZERO, Instant::ZERO);
    let mut before: BTreeMap<&str, (Instant, Vec<PathView>)> = BTreeMap::new();
    while !stop.is_requested() {
        for (name, near) in near {
            let path = near.sender.estimate();
            links.set_path(name, PathEstimate { rate: path.rate.max(LEAST), ..path });
            let now = near.clock.now();
            let views = near.sender.view();
            if let Some(events) = &mut events {
                events.handle_paths(now, name, views.iter().map(SeenPath::from));
            }
            links.handle_report(name, None, heard(&views));
            // Nothing is known of paths that deliver nothing.
            if views.iter().any(is_up) {
                links.lead_encoders(name, path, now);
            }
            if now >= look_at {
                near.offers(links.offered(name));
                let last = before.get(&**name);
                note_changes(links, name, last, &views);
                near.handle_left(&views, now >= keep_at);
                if now >= keep_at {
                    near.rates.lock().keep(&views, seconds());
                }
                near.show(now, last, &views);
                before.insert(name, (now, views));
            }
        }
        if let Some(near) = near.values().next()
            && near.clock.now() >= look_at
        {
            let now = near.clock.now();
            if now >= keep_at {
                keep_at = now + KEEP_EVERY;
            }
            look_at = now + LOOK_EVERY;
        }
        stop.pause(FOLLOW_EVERY);
    }
    for near in near.values() {
        let views = near.sender.view();
        near.handle_left(&views, true);
        near.rates.lock().keep(&views, seconds());
    }
}

/// What is known of a bond's streams: the loss of all that is sent, and the times of the slowest path.
fn heard(views: &[PathView]) -> Heard {
    let carry: Vec<_> =
        views.iter().filter(|view| is_up(view)).filter_map(|view| view.status).collect();
    let billionths =
        |path: &PathStatus| u128::from(path.rate.0) * u128::from(path.loss.billionths());
    let rate: u128 = carry.iter().map(|path| u128::from(path.rate.0)).sum();
    let loss = carry.iter().map(billionths).sum::<u128>().checked_div(rate);
    Heard {
        is_reported: !carry.is_empty(),
        loss: loss.and_then(|loss| Share::from_billionths(loss as u32)),
        round_trip: carry.iter().map(|path| path.round_trip).max(),
        queueing: carry.iter().map(|path| path.queueing).max(),
        frames: None,
    }
}

/// Notes which paths began or ceased to carry packets.
fn note_changes(
    links: &impl MeasuredLinks,
    link: &str,
    before: Option<&(Instant, Vec<PathView>)>,
    views: &[PathView],
) {
    let was_up = |n: usize| before.is_some_and(|(_, before)| before.get(n).is_some_and(is_up));
    for (_, path) in views.iter().enumerate().filter(|(n, path)| was_up(*n) != is_up(path)) {
        let what = match (is_up(path), &path.problem) {
            (true, _) => "carries packets".to_owned(),
            (false, Some(why)) => format!("{why}; it gets probes only"),
            (false, None) => "delivers nothing; it gets probes only".to_owned(),
        };
        links.note(format!("{link}.{}: {what}", path.name));
    }
}

impl NearEnd {
    /// Describes the streams whose media are known, and states what they would send.
    fn offers(&self, offered: Offered) {
        self.sender.set_demand(offered.rate);
        self.sender.set_shortest_delay(offered.shortest.unwrap_or(Duration(u64::MAX)));
        let numbers = self.streams.lock();
        for stream in offered.streams {
            if let Some(number) = numbers.get(&stream.name) {
                self.sender.describe(*number, &describe(&stream));
            }
        }
    }

    /// Records what is left of the budgets, and where a month begins, renews them.
    fn handle_left(&self, views: &[PathView], keeps: bool) {
        let mut budgets = self.budgets.lock();
        if budgets.is_empty() {
            return;
        }
        let month = month();
        for (path, left) in views.iter().filter_map(|path| Some((path, path.left?))) {
            let Some(budget) = budgets.get_mut(&path.name) else { continue };
            if let Some(left) = budget.handle_left(left, &month) {
                self.sender.set_allowance(&path.name, left);
            }
            // A node that is killed now finds it used up when it starts again.
            if (keeps || left == Bytes(0))
                && let Err(why) = budget.keep()
            {
                tracing::warn!(%why, "a restart would forget what the path carried");
            }
        }
    }

    /// Updates what can be seen.
    fn show(&self, now: Instant, before: Option<&(Instant, Vec<PathView>)>, views: &[PathView]) {
        let snapshots = views.iter().enumerate().map(|(n, path)| {
            let before = before.and_then(|(at, before)| Some((*at, before.get(n)?.status?.sent)));
            let detail = path.problem.as_deref().unwrap_or_default();
            let left_bytes = path.left.map(|left| left.0);
            PathSnapshot { left_bytes, ..SeenPath::from(path).shown(detail, now, before) }
        });
        *self.seen.lock() = snapshots.collect();
    }
}
