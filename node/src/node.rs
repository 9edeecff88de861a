//! The node: it opens sources, starts links where their placements require, and lets frames come.
//! Streams may be added while it runs. Frames go from the sources' threads to the links; their fates
//! are read from the links' reports.
//!
//! One file can't hold all methods of a node and its state. What others see is in `view`, changes of the file in `reload`,
//! receivers that ask in `asked`, the calls of the program that runs it in `program`, the facts of steps in `step_facts`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use selvedge_control_config::view::{NodeSnapshot, StreamState};
use selvedge_control_config::{
    LinkConfig, NodeConfig, Parsed, Placement, SourceUri, StreamConfig, parse,
};
use selvedge_data_link::PathEstimate;
use selvedge_data_stream::Contract;
use selvedge_media::StreamInfo;
use selvedge_os::clock::Clock;
use selvedge_os::keeper::Keeper;
use selvedge_place_coprocessor::feeder::FeederError;
use selvedge_place_engine::engine::{FateTap, Heard};
use selvedge_place_engine::frame_producer::FrameProducerCounters;
use selvedge_place_engine::report::LinkReport;
use selvedge_units::{Bitrate, Duration, Instant};

use crate::bond_feed::{FarEnds, Feed, Gathered};
use crate::bonds::NodeBonds;
#[cfg(feature = "gstreamer")]
use crate::encoders::{Follower, follow_rate};
use crate::events::Events;
use crate::feed::{FeedStatus, OnInfo, Plan, SourceThreads};
#[cfg(feature = "gstreamer")]
use crate::follow::Pictures;
use crate::follow::{Followed, FollowedStreams, NodeTap};
use crate::measured::{MeasuredLinks, Offered, OfferedStream};
use crate::output::StreamOutput;
use crate::passed_nodes::NodeId;
use crate::path_events::PathEvents;
use crate::placement::{self, Member, PlacedLink, Start, StreamEnd};
use crate::receivers::NodeReceivers;
use crate::source::{self, Medium, Opened, contract_of, params, write_sdp};
use crate::source_spec::SourceSpec;
use crate::stacks::NodeStacks;
use crate::steps::{self, ReadStep};
use crate::tunnels::{NodeTunnels, TUNNEL_DELAY};
use crate::{AddError, Channels, NodeOptions, StartError, wait_until};

/// How long sources wait for their stacks to be connected: frames sent before are lost.
const CONNECTED: Duration = Duration::from_secs(1);

/// A node whose links run. Dropped, it stops, and none of its threads is left.
pub struct Node {
    // Dropped first: sources stop before the links that they feed.
    pub(crate) source_threads: Mutex<SourceThreads>,
    pub(crate) name: String,
    pub(crate) base: PathBuf,
    /// The program that runs a network source in a separate process.
    isolates_by: Option<PathBuf>,
    pub(crate) clock: Clock,
    /// When it started, by that clock.
    pub(crate) started: Instant,
    /// Whether sources deliver.
    delivers: AtomicBool,
    /// Its configuration: its file, or the values that it was made from. Locked while anything is
    /// added, removed or reloaded, so that these run one after the other.
    pub(crate) loaded: Mutex<NodeConfig>,
    pub(crate) state: Arc<Mutex<State>>,
    /// Its file, read again by a reload.
    pub(crate) path: Option<PathBuf>,
    pub(crate) events: Arc<Events>,
    pub(crate) stacks: NodeStacks,
    pub(crate) bonds: NodeBonds,
    pub(crate) receivers: NodeReceivers,
    pub(crate) far_ends: FarEnds,
    tunnels: NodeTunnels,
    pub(crate) channels: Option<Arc<dyn Channels>>,
    /// Locked while a receiver that asks is added.
    pub(crate) asking: Mutex<()>,
    _steps_keeper: Keeper,
    /// Ends with the node.
    #[cfg(feature = "gstreamer")]
    _pictures: Pictures,
}

/// The links and streams of a node.
pub(crate) struct State {
    /// In the order of the file.
    pub(crate) links: Vec<NodeLink>,
    /// Those of the file in its order, followed by those that the program added.
    pub(crate) streams: Vec<Stream>,
}

impl State {
    /// Sets the period of the streams of a source, found by its status, to that of its medium, which became known
    /// after their links were started.
    fn take_period(&mut self, status: &Arc<FeedStatus>, info: &StreamInfo) {
        let Self { links, streams } = self;
        for stream in streams.iter_mut().filter(|one| Arc::ptr_eq(&one.status, status)) {
            let period = contract_of(&stream.config, Some(info)).period;
            let terms = Contract { period, ..stream.terms };
            links[stream.config.link].placed.set_terms(stream.number, &terms);
            stream.terms = terms;
        }
    }

    /// The streams of the source of this status: the one that opened it, and those that share it.
    fn streams_of(&self, status: &Arc<FeedStatus>) -> Vec<StreamConfig> {
        let of_it = self.streams.iter().filter(|one| Arc::ptr_eq(&one.status, status));
        of_it.map(|one| one.config.clone()).collect()
    }

    /// The state of the source that a stream shares with others, if it runs.
    pub(crate) fn shared_status(&self, config: &StreamConfig) -> Option<Arc<FeedStatus>> {
        let found = self.streams.iter().find(|one| one.config.shares_source(config));
        found.map(|one| Arc::clone(&one.status))
    }
}

/// The links of a node for what measures their rates.
#[derive(Clone)]
struct Follows {
    state: Weak<Mutex<State>>,
    events: Arc<Events>,
    own: NodeId,
}

impl MeasuredLinks for Follows {
    fn set_path(&self, link: &str, path: PathEstimate) {
        let Some(state) = self.state.upgrade() else { return };
        let links = &mut state.lock().links;
        let Some(link) = links.iter_mut().find(|one| one.config.name == link) else { return };
        // Each change makes the link select anew.
        if !link.path.is_some_and(|before| path.is_near(&before)) {
            (link.rate, link.path) = (path.rate, Some(path));
            link.placed.set_path(path);
        }
    }

    fn handle_report(&self, link: &str, stream: Option<&str>, heard: Heard) {
        let Some(state) = self.state.upgrade() else { return };
        state.lock().handle_report(link, stream, heard);
    }

    fn offered(&self, link: &str) -> Offered {
        let Some(state) = self.state.upgrade() else { return Offered::default() };
        let State { links, streams } = &*state.lock();
        let Some(n) = links.iter().position(|one| one.config.name == link) else {
            return Offered::default();
        };
        let known = |stream: &Stream| {
            let (name, period) = (stream.config.spec.name.clone(), stream.terms.period);
            let passed = stream.status.passed.lock().and(self.own);
            let is_relayed = matches!(stream.config.source, SourceUri::Bond { .. });
            let age = if is_relayed { *stream.status.age.lock() } else { Some(Duration::ZERO) };
            let (delay, info) =
                (stream.terms.delay.filter(|_| age.is_some()), stream.status.info()?);
            Some(OfferedStream { name, info, period, passed, delay, age: age.unwrap_or_default() })
        };
        let own = || streams.iter().filter(|stream| stream.config.link == n);
        let tunnel = || own().any(|stream| stream.config.is_tunnel()).then_some(TUNNEL_DELAY);
        Offered {
            rate: links[n].placed.report().offered,
            shortest: own().filter_map(|stream| stream.terms.delay).min().or_else(tunnel),
            streams: own().filter_map(known).collect(),
        }
    }

    #[cfg(feature = "gstreamer")]
    fn lead_encoders(&self, link: &str, path: PathEstimate, now: Instant) {
        let Some(state) = self.state.upgrade() else { return };
        let State { links, streams } = &*state.lock();
        let Some(n) = links.iter().position(|one| one.config.name == link) else { return };
        let report = links[n].placed.report();
        // One encoder can't follow the paths of several receivers: it follows the first.
        let leads = |&(place, stream): &(usize, &Stream)| {
            let is_its = |other: &Stream| Arc::ptr_eq(&other.status, &stream.status);
            stream.config.link == n && !streams[..place].iter().any(is_its)
        };
        let own = || streams.iter().enumerate().filter(leads).map(|(_, stream)| stream);
        let shortest = own().filter_map(|stream| stream.terms.delay).min();
        let rate = shortest.map_or(path.expected, |delay| {
            selvedge_data_link::beside_waiting(path.expected, report.backlog, delay)
        });
        // A tunnel takes what the encoders leave.
        let followers = own().filter(|stream| !stream.config.is_tunnel()).map(|stream| {
            let report = report.of_stream(stream.number);
            let lost = selvedge_data_stream::DropReason::ReferenceLost as usize;
            Follower {
                following: stream.status.following(),
                weight: stream.terms.weight,
                sent: report.map_or(Bitrate(0), |report| report.sent),
                lost: report.map_or(0, |report| report.counts.totals.dropped[lost]),
            }
        });
        follow_rate(followers.collect(), rate, now);
    }

    fn request_intra(&self, stream: &str) {
        let Some(state) = self.state.upgrade() else { return };
        let streams = &state.lock().streams;
        let stream = streams.iter().find(|one| one.config.spec.name == stream);
        stream.inspect(|stream| stream.status.want_intra());
    }

    #[cfg(not(feature = "gstreamer"))]
    fn lead_encoders(&self, _: &str, _: PathEstimate, _: Instant) {}

    fn note(&self, text: String) {
        self.events.note("path", text);
    }
}

/// A link of the node.
pub(crate) struct NodeLink {
    /// As in the file.
    pub(crate) config: LinkConfig,
    /// Its present rate.
    pub(crate) rate: Bitrate,
    /// What is known of the path behind it, where that is measured.
    pub(crate) path: Option<PathEstimate>,
    pub(crate) placed: Box<dyn PlacedLink>,
    pub(crate) followed: FollowedStreams,
    pub(crate) steps: Vec<ReadStep>,
}

impl NodeLink {
    /// A link that was placed, with its steps.
    pub(crate) fn new(
        config: &LinkConfig,
        placed: Box<dyn PlacedLink>,
        followed: FollowedStreams,
        steps: Vec<ReadStep>,
    ) -> Self {
        steps::renew(&*placed, &[], &steps);
        Self { config: config.clone(), rate: config.rate, path: None, placed, followed, steps }
    }

    /// Follows a stream that was added while the link runs; other placements report no fates.
    pub(crate) fn follow(&self, stream: &mut Stream) {
        if self.config.placement == Placement::Inline {
            stream.follow(self.followed.add(stream.number));
        }
    }
}

/// A stream of the node.
pub(crate) struct Stream {
    /// As in the file.
    pub(crate) config: StreamConfig,
    /// Its present contract: its medium's period, and the values that were set since.
    pub(crate) terms: Contract,
    /// Its stack's place, if a stack carries it.
    pub(crate) stack: Option<usize>,
    /// The output that carries its packets elsewhere.
    pub(crate) output: Option<StreamOutput>,
    /// Its number on its link.
    pub(crate) number: usize,
    /// When it was added to the node: its silence begins there.
    pub(crate) added: Instant,
    pub(crate) counters: Arc<FrameProducerCounters>,
    /// The state of its source, which it may share with other streams.
    pub(crate) status: Arc<FeedStatus>,
    /// Until when its receiver asked for it, if it did.
    pub(crate) asked_until: Option<Instant>,
    /// Its frames' fates, if its link reports them.
    pub(crate) followed: Option<Arc<Followed>>,
    /// Its source, until that is started or, if the program is the source, its inlet is taken.
    pub(crate) waiting: Option<(Medium, Vec<StreamEnd>)>,
}

/// The final state of a node that stopped.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The last snapshot.
    pub snapshot: NodeSnapshot,
    /// The last report of each link.
    pub links: Vec<LinkReport>,
}

impl Node {
    /// Starts a node from the text of a node file. Sources wait up to 1 s for their stacks and outputs.
    ///
    /// # Errors
    /// [`StartError`]; then nothing runs.
    pub fn start(text: &str, options: NodeOptions) -> Result<Self, StartError> {
        let file = options.file.clone();
        let Parsed { config, map } = parse(text, &file)?;
        let node = Self::prepare(&config, options).map_err(|error| error.located(&file, &map))?;
        wait_until(CONNECTED, || node.stacks_are_up());
        node.start_sources()?;
        Ok(node)
    }

    /// Opens the sources and starts the links of a node; nothing is sent yet.
    ///
    /// # Errors
    /// [`StartError`]; then nothing runs.
    pub fn prepare(config: &NodeConfig, options: NodeOptions) -> Result<Self, StartError> {
        let NodeOptions { base, path, clock, channels, carriers, isolates_by, mut taps, .. } =
            options;
        let all: Vec<usize> = (0..config.streams.len()).collect();
        let spec_of =
            |stream: &_, link: &_| SourceSpec::new(stream, link, &base, isolates_by.as_deref());
        let opened = source::open(config, &all, spec_of, |_| None).map_err(StartError::Sources)?;
        for (stream, opened) in config.streams.iter().zip(&opened) {
            write_sdp(stream, opened.info.as_ref(), &base)?;
        }
        let mut steps = steps::read(config, &base).map_err(StartError::Steps)?.into_iter();
        let started = clock.now();
        #[cfg(feature = "gstreamer")]
        let pictures =
            Pictures::start(&config.streams).map_err(|error| StartError::Feed(error.into()))?;
        let followed: Vec<Arc<Followed>> = (0..config.streams.len())
            .map(|_n| {
                Arc::new(Followed {
                    #[cfg(feature = "gstreamer")]
                    sent: pictures.streams[_n].clone(),
                    ..Followed::default()
                })
            })
            .collect();
        let stacks = NodeStacks::start(config, &base, clock)?;
        let mut tunnels = NodeTunnels::start(config)?;
        let own = NodeId::random();
        let far_ends = FarEnds::start(config, &base, clock, &tunnels, own)?;
        // Without a node file there is no place for files of the node's own.
        let mut bonds = NodeBonds::start(config, &base, path.is_some(), clock, &tunnels)?;
        let mut receivers = NodeReceivers::new(&config.name, clock);
        let mut links = Vec::with_capacity(config.links.len());
        let mut ends: Vec<Option<(usize, StreamEnd)>> =
            config.streams.iter().map(|_| None).collect();
        for (n, link) in config.links.iter().enumerate() {
            let of_link = |&s: &usize| config.streams[s].link == n;
            let streams: Vec<usize> = (0..config.streams.len()).filter(of_link).collect();
            let mut member = |&s: &usize| Member {
                config: &config.streams[s],
                params: params(&config.streams[s], opened[s].info.as_ref(), clock),
                carried: stacks
                    .carried(s)
                    .or_else(|| bonds.carrier(link, &config.streams[s]))
                    .or_else(|| {
                        let name = &config.streams[s].spec.name;
                        tunnels.carrier(name, link, clock, |bond| far_ends.receiver(bond))
                    })
                    .or_else(|| receivers.carrier(link, &config.streams[s]))
                    .or_else(|| opened[s].carrier())
                    .or_else(|| carriers.get(s).cloned()),
                stack: stacks.remote(s),
                base: &base,
            };
            let members = streams.iter().map(&mut member).collect();
            let of_link = streams.iter().map(|&s| Arc::clone(&followed[s])).collect();
            let of_link = FollowedStreams::new(of_link);
            let tap = NodeTap { streams: of_link.clone(), next: taps(&streams) };
            let tap = Some(Box::new(tap) as Box<dyn FateTap>);
            let start = Start { clock, node: &config.name, link, members, tap };
            let (at_work, of_streams) = placement::start(start)
                .map_err(|why| StartError::Link { link: link.name.clone(), why })?;
            let steps = steps.next().unwrap_or_default();
            links.push(NodeLink::new(link, at_work, of_link, steps));
            for (number, (&stream, end)) in streams.iter().zip(of_streams).enumerate() {
                ends[stream] = Some((number, end));
            }
        }
        let started_streams = config.streams.iter().zip(opened).zip(ends).zip(followed).enumerate();
        let mut state = State { links, streams: Vec::with_capacity(config.streams.len()) };
        for (n, (((config, opened), end), followed)) in started_streams {
            let (number, end) = end.expect("every stream has a link");
            let stack = config.stack.is_some().then_some(n);
            let shared = state.shared_status(config);
            let new = Stream::new(config.clone(), opened, number, end, started, shared);
            let mut stream = Stream { stack, ..new };
            if state.links[config.link].config.placement == Placement::Inline {
                stream.follow(followed);
            }
            state.streams.push(stream);
        }
        let state = Arc::new(Mutex::new(state));
        let events = Arc::new(Events::new(clock));
        let follows = Follows { state: Arc::downgrade(&state), events: Arc::clone(&events), own };
        let channels: Option<Arc<dyn Channels>> = channels.map(Arc::from);
        let path_events =
            || channels.clone().map(|channels| PathEvents::new(channels, config.name.clone()));
        let no_thread = |error: std::io::Error| StartError::Feed(error.into());
        bonds.follow(follows.clone(), path_events()).map_err(no_thread)?;
        tunnels.follow(follows.clone(), clock).map_err(no_thread)?;
        receivers.follow(follows, path_events()).map_err(no_thread)?;
        let (seen, heard, rates) = (Arc::downgrade(&state), stacks.heard_by(clock), stacks.rates());
        let refresh = move || {
            let state = seen.upgrade()?;
            let mut state = state.lock();
            state.remove_expired(clock.now());
            state.streams.iter().for_each(|stream| stream.status.serve_intra());
            state.refresh_steps(&heard);
            state.links.iter().for_each(|link| rates.set(&link.config.name, link.rate));
            Some(())
        };
        let steps_keeper = steps::follow(move || refresh().is_some()).map_err(no_thread)?;
        Ok(Self {
            asking: Mutex::default(),
            _steps_keeper: steps_keeper,
            source_threads: Mutex::default(),
            name: config.name.clone(),
            clock,
            started,
            delivers: AtomicBool::new(false),
            loaded: Mutex::new(config.clone()),
            state,
            path,
            events,
            bonds,
            receivers,
            far_ends,
            tunnels,
            #[cfg(feature = "gstreamer")]
            _pictures: pictures,
            stacks,
            channels,
            base,
            isolates_by,
        })
    }

    /// The parameters by which a stream's source is opened.
    pub(crate) fn source_spec(&self, stream: &StreamConfig, link: &LinkConfig) -> SourceSpec {
        SourceSpec::new(stream, link, &self.base, self.isolates_by.as_deref())
    }

    /// Starts the sources that were opened: from now on frames come. Must be called once on a node that
    /// was prepared.
    ///
    /// # Errors
    /// If a thread can't be started; those started before stay.
    pub fn start_sources(&self) -> Result<(), FeederError> {
        self.delivers.store(true, Ordering::Release);
        let mut source_threads = self.source_threads.lock();
        let State { links, streams } = &mut *self.state.lock();
        let configs: Vec<StreamConfig> = streams.iter().map(|one| one.config.clone()).collect();
        for stream in streams {
            if stream.is_the_programs() {
                stream.status.set(StreamState::Running, "");
            } else if let Some((source, ends)) = stream.waiting.take() {
                let link = &links[stream.config.link].config;
                let mut reopen = self.source_spec(&stream.config, link);
                let others = configs.iter().map(|other| (other, &links[other.link].config));
                reopen = reopen.fit_for(others);
                let status = Arc::clone(&stream.status);
                let (state, of) = (Arc::downgrade(&self.state), Arc::clone(&status));
                let base = self.base.clone();
                let on_info: OnInfo = Arc::new(move |info: &StreamInfo| {
                    let Some(state) = state.upgrade() else { return };
                    let mut state = state.lock();
                    state.take_period(&of, info);
                    let streams = state.streams_of(&of);
                    drop(state);
                    for stream in streams {
                        if let Err(failure) = write_sdp(&stream, Some(info), &base) {
                            tracing::warn!(%failure, "no session description");
                        }
                    }
                });
                if let SourceUri::Bond { bond, stream: named } = &stream.config.source {
                    let name = named.as_deref().unwrap_or_else(|| stream.config.source_name());
                    let Some(StreamEnd::FrameProducer(frame_producer)) = ends.into_iter().next()
                    else {
                        continue;
                    };
                    let gathered = Gathered::default();
                    let of = Arc::clone(&status);
                    let feed = Feed {
                        frame_producer,
                        status,
                        on_info,
                        info: None,
                        gathered,
                        due_age: None,
                    };
                    if let Some(place) = self.far_ends.add(bond, name, feed) {
                        source_threads.keep(of, place);
                    }
                    continue;
                }
                let clock = self.clock;
                if stream.config.is_tunnel() {
                    let Some(StreamEnd::FrameProducer(end)) = ends.into_iter().next() else {
                        continue;
                    };
                    let name = &stream.config.spec.name;
                    if let Some(place) = self.tunnels.feed(name, clock, end, &status) {
                        source_threads.keep(status, place?);
                    }
                    continue;
                }
                let counts = self.counts_of(&status);
                let plan = Plan { source, reopen, clock, status, ends, on_info, counts };
                source_threads.start(plan)?;
            }
        }
        Ok(())
    }

    /// Stops the sources. Frames that they offered stay with the links.
    pub fn stop_sources(&self) {
        self.delivers.store(false, Ordering::Release);
        // Not under the lock: this waits for the threads.
        let source_threads = std::mem::take(&mut *self.source_threads.lock());
        drop(source_threads);
    }

    /// Adds a stream while the node runs; its fields are within the ranges that node files have.
    /// The link's placement must take streams while it runs: inline and coprocessor do.
    ///
    /// # Errors
    /// [`AddError`].
    pub fn add_stream(&self, stream: StreamConfig) -> Result<(), AddError> {
        let _one = self.loaded.lock();
        let (links, link) = {
            let state = self.state.lock();
            let link = state.links.get(stream.link).map(|link| link.config.clone());
            (state.links.len(), link)
        };
        let Some(link) = link else {
            return Err(AddError::NoLink { index: stream.link, links });
        };
        if stream.stack.is_some() {
            return Err(AddError::Stack(stream.spec.name));
        }
        for Stream { config: other, .. } in &*self.streams() {
            if other.spec.name == stream.spec.name {
                return Err(AddError::NameTaken(stream.spec.name));
            }
            if other.receiver() == stream.receiver() {
                let (to, other) = (other.receiver(), other.spec.name.clone());
                return Err(AddError::ToTaken { to, other });
            }
        }
        let shared = self.state.lock().shared_status(&stream);
        let opened = Opened::new(
            &self.source_spec(&stream, &link),
            &link,
            shared.as_ref().map(|one| one.info()),
        )
        .map_err(|why| AddError::Source { stream: stream.spec.name.clone(), why })?;
        write_sdp(&stream, opened.info.as_ref(), &self.base).map_err(StartError::from)?;
        let params = params(&stream, opened.info.as_ref(), self.clock);
        let member = Member {
            config: &stream,
            params,
            carried: opened.carrier(),
            stack: None,
            base: &self.base,
        };
        let (number, end) = self.state.lock().links[stream.link]
            .placed
            .add(member)
            .map_err(|why| StartError::Link { link: link.name, why })?;
        let mut state = self.state.lock();
        let mut added = Stream::new(stream, opened, number, end, self.clock.now(), shared);
        state.links[added.config.link].follow(&mut added);
        state.streams.push(added);
        drop(state);
        if self.delivers() {
            self.start_sources().map_err(StartError::from)?;
        }
        Ok(())
    }

    /// The newest report of each link, in the order of the node file.
    #[must_use]
    pub fn reports(&self) -> Vec<LinkReport> {
        self.state.lock().links.iter().map(|link| link.placed.report()).collect()
    }

    /// Whether no source delivers any more; never while the program is one.
    #[must_use]
    pub fn is_over(&self) -> bool {
        // One lock after the other, since `start_sources` takes both.
        let programs = self.streams().iter().any(Stream::is_the_programs);
        self.delivers() && !programs && self.source_threads.lock().all_ended()
    }

    /// Whether all receivers of stacks are connected, and all outputs are open.
    #[must_use]
    pub fn stacks_are_up(&self) -> bool {
        self.stacks.all_connected()
            && self.bonds.are_up()
            && self.streams().iter().all(|s| s.output_problem().is_none())
    }

    /// Waits until no frame offered before this call waits any more, or `given_up`; false if that took
    /// longer than `limit`.
    pub fn wait_sent(&self, limit: Duration, given_up: impl Fn() -> bool) -> bool {
        let since = self.clock.now();
        let is_idle = |report: &LinkReport| {
            report.at > since && report.streams.iter().all(|stream| stream.queued == 0)
        };
        wait_until(limit, || given_up() || self.reports().iter().all(is_idle))
    }

    /// Stops sources and links; waiting frames are not sent.
    #[must_use]
    pub fn stop(self) -> Ended {
        self.stop_sources();
        let mut state = self.state.lock();
        let (configs, placed): (Vec<_>, Vec<_>) =
            state.links.drain(..).map(|link| (link.config, link.placed)).unzip();
        let links: Vec<_> = placed.into_iter().map(PlacedLink::stop).collect();
        let names: Vec<&str> = configs.iter().map(|link| &*link.name).collect();
        Ended { snapshot: self.snapshot_of(&names, &state.streams, &links), links }
    }

    /// The longest delay of its streams: how long offered frames may still be sent.
    #[must_use]
    pub fn longest_delay(&self) -> Duration {
        self.streams().iter().filter_map(|stream| stream.terms.delay).max().unwrap_or_default()
    }

    pub(crate) fn delivers(&self) -> bool {
        self.delivers.load(Ordering::Acquire)
    }

    pub(crate) fn streams(&self) -> MappedMutexGuard<'_, Vec<Stream>> {
        MutexGuard::map(self.state.lock(), |state| &mut state.streams)
    }
}

impl Stream {
    pub(crate) fn new(
        config: StreamConfig,
        opened: Opened,
        number: usize,
        end: StreamEnd,
        added: Instant,
        shared: Option<Arc<FeedStatus>>,
    ) -> Self {
        let terms = contract_of(&config, opened.info.as_ref());
        let counters = end.counters();
        let is_first = shared.is_none();
        let status = shared.unwrap_or_default();
        if is_first {
            status.set_info(opened.info);
        }
        #[cfg(feature = "gstreamer")]
        let end = status.packed(&config, &opened.source, opened.output.as_ref(), end);
        let waiting = match end {
            end if is_first => {
                end.receivers().map(|receivers| status.receivers.set(receivers));
                Some((opened.source, vec![end]))
            }
            StreamEnd::FrameProducer(frame_producer) => {
                // The source opened first, so that its receivers are known.
                status.receivers.get().map(|receivers| receivers.join(frame_producer));
                status.want_intra();
                None
            }
            StreamEnd::Elsewhere(_) => None,
        };
        if let Some(output) = &opened.output {
            output.follow(&status);
        }
        Self {
            terms,
            stack: None,
            output: opened.output,
            config,
            number,
            added,
            counters,
            status,
            asked_until: None,
            followed: None,
            waiting,
        }
    }

    /// Follows its frames to their fates from now on.
    fn follow(&mut self, followed: Arc<Followed>) {
        self.status.follow(&followed);
        self.followed = Some(followed);
    }

    /// Why its output carries no packets.
    pub(crate) fn output_problem(&self) -> Option<String> {
        self.output.as_ref()?.problem()
    }

    pub(crate) const fn is_the_programs(&self) -> bool {
        matches!(self.config.source, SourceUri::Program)
    }
}
