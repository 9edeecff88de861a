//! The node: it opens sources, starts links where their placements say, and lets frames come.
//! Streams may be added while it runs. Frames go from the sources' threads to the links; what
//! becomes of them is read from the links' reports.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use selvedge_control_config::view::{NodeSnapshot, StreamState};
use selvedge_control_config::{LinkConfig, NodeConfig, Parsed, SourceUri, StreamConfig, parse};
use selvedge_data_stream::Counts;
use selvedge_media::StreamInfo;
use selvedge_media::sdp::{Described, Session};
use selvedge_os::clock::Clock;
use selvedge_place_coprocessor::feeder::FeederError;
use selvedge_place_engine::frame_producer::{Arrivals, FrameProducer, FrameProducerCounters};
use selvedge_place_engine::report::LinkReport;
use selvedge_units::{Duration, Instant};

use crate::feed::{FeedStatus, Plan, SourceSpec, SourceThreads};
use crate::placement::{self, Member, PlacedLink, Start, StreamEnd};
use crate::source::{self, Medium, Opened, params, payload_of};
use crate::stacks::NodeStacks;
use crate::{AddError, Channels, NodeOptions, StartError, wait_until};

/// How long sources wait for their stacks to be connected: what is sent before is lost.
const CONNECTED: Duration = Duration::from_secs(1);

/// A node whose links run. Dropped, it stops: no thread of it is left.
pub struct Node {
    // Dropped first: sources stop before the links that they feed.
    pub(crate) source_threads: Mutex<SourceThreads>,
    pub(crate) name: String,
    base: PathBuf,
    pub(crate) clock: Clock,
    /// When it started, by that clock.
    pub(crate) started: Instant,
    /// Whether sources deliver.
    delivers: AtomicBool,
    /// Held while a stream is added, so that one comes after the other.
    adding: Mutex<()>,
    pub(crate) links: Vec<LinkConfig>,
    pub(crate) placed: Vec<Box<dyn PlacedLink>>,
    streams: Mutex<Vec<Stream>>,
    pub(crate) stacks: NodeStacks,
    pub(crate) channels: Option<Box<dyn Channels>>,
}

/// A stream of the node.
pub(crate) struct Stream {
    pub(crate) config: StreamConfig,
    /// Its number on its link.
    pub(crate) number: usize,
    /// What its medium is, once known.
    pub(crate) info: Option<StreamInfo>,
    pub(crate) counters: Arc<FrameProducerCounters>,
    pub(crate) status: Arc<FeedStatus>,
    /// Its source, until that is started or, if it is the program, its inlet is taken.
    waiting: Option<(Medium, Vec<StreamEnd>)>,
}

/// What a node was when it stopped.
#[derive(Clone, Debug)]
pub struct Ended {
    /// As it was seen last.
    pub snapshot: NodeSnapshot,
    /// The last report of each link.
    pub links: Vec<LinkReport>,
}

impl Node {
    /// Starts a node from the text of a node file. Sources wait up to 1 s for their stacks.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
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
    /// [`StartError`]; nothing runs then.
    pub fn prepare(config: &NodeConfig, options: NodeOptions) -> Result<Self, StartError> {
        let NodeOptions { base, clock, channels, mut taps, .. } = options;
        let opened = source::open(config, &base).map_err(StartError::Sources)?;
        for (stream, opened) in config.streams.iter().zip(&opened) {
            write_sdp(stream, opened.info.as_ref(), &base).map_err(|(path, why)| {
                StartError::Sdp { stream: stream.spec.name.clone(), path, why }
            })?;
        }
        let started = clock.now();
        let stacks = NodeStacks::start(config, &base)?;
        let mut placed = Vec::with_capacity(config.links.len());
        let mut ends: Vec<Option<(usize, StreamEnd)>> =
            config.streams.iter().map(|_| None).collect();
        for (n, link) in config.links.iter().enumerate() {
            let of_link = |&s: &usize| config.streams[s].link == n;
            let streams: Vec<usize> = (0..config.streams.len()).filter(of_link).collect();
            let member = |&s: &usize| Member {
                config: &config.streams[s],
                params: params(&config.streams[s], opened[s].info.as_ref(), clock),
                carried: stacks.carried(s),
                base: &base,
            };
            let members = streams.iter().map(member).collect();
            let start = Start { clock, node: &config.name, link, members, tap: taps(&streams) };
            let (at_work, of_streams) = placement::start(start)
                .map_err(|why| StartError::Link { link: link.name.clone(), why })?;
            placed.push(at_work);
            for (number, (&stream, end)) in streams.iter().zip(of_streams).enumerate() {
                ends[stream] = Some((number, end));
            }
        }
        let streams = config.streams.iter().zip(opened).zip(ends).map(|((config, opened), end)| {
            let (number, end) = end.expect("every stream has a link");
            Stream::new(config.clone(), opened, number, end)
        });
        Ok(Self {
            source_threads: Mutex::default(),
            name: config.name.clone(),
            clock,
            started,
            delivers: AtomicBool::new(false),
            adding: Mutex::default(),
            links: config.links.clone(),
            placed,
            streams: Mutex::new(streams.collect()),
            stacks,
            channels,
            base,
        })
    }

    /// Starts the sources that were opened: from now on frames come. A node that was prepared calls
    /// this once.
    ///
    /// # Errors
    /// If a thread can't be had; what was started before stays.
    pub fn start_sources(&self) -> Result<(), FeederError> {
        self.delivers.store(true, Ordering::Release);
        let mut source_threads = self.source_threads.lock();
        for stream in self.streams().iter_mut() {
            if stream.is_the_programs() {
                stream.status.set(StreamState::Running, "");
            } else if let Some((source, ends)) = stream.waiting.take() {
                let payload_max = payload_of(&stream.config, &self.links[stream.config.link]);
                let config = stream.config.clone();
                let reopen = SourceSpec { stream: config, base: self.base.clone(), payload_max };
                let status = Arc::clone(&stream.status);
                source_threads.start(Plan { source, reopen, status, ends })?;
            }
        }
        Ok(())
    }

    /// Stops the sources. What they offered stays with the links.
    pub fn stop_sources(&self) {
        self.delivers.store(false, Ordering::Release);
        // Not under the lock: the threads are waited for.
        let source_threads = std::mem::take(&mut *self.source_threads.lock());
        drop(source_threads);
    }

    /// Adds a stream while the node runs; its fields are within the ranges that node files have.
    /// The link's placement must take streams while it runs: inline and coprocessor do.
    ///
    /// # Errors
    /// [`AddError`].
    pub fn add_stream(&self, stream: StreamConfig) -> Result<(), AddError> {
        let links = self.links.len();
        let Some(link) = self.links.get(stream.link) else {
            return Err(AddError::NoLink { index: stream.link, links });
        };
        if stream.stack.is_some() {
            return Err(AddError::Stack(stream.spec.name));
        }
        let _one = self.adding.lock();
        for Stream { config: StreamConfig { spec: other, .. }, .. } in &*self.streams() {
            if other.name == stream.spec.name {
                return Err(AddError::NameTaken(stream.spec.name));
            }
            if other.to == stream.spec.to {
                return Err(AddError::ToTaken { to: other.to, other: other.name.clone() });
            }
        }
        let name = || stream.spec.name.clone();
        let opened = Opened::new(&stream.source, &self.base, payload_of(&stream, link))
            .map_err(|why| AddError::Source { stream: name(), why })?;
        write_sdp(&stream, opened.info.as_ref(), &self.base)
            .map_err(|(path, why)| AddError::Sdp { stream: name(), path, why })?;
        let params = params(&stream, opened.info.as_ref(), self.clock);
        let member = Member { config: &stream, params, carried: None, base: &self.base };
        let (number, end) = self.placed[stream.link]
            .add(member)
            .map_err(|why| AddError::Link { link: link.name.clone(), why })?;
        self.streams().push(Stream::new(stream, opened, number, end));
        if self.delivers.load(Ordering::Acquire) {
            self.start_sources()?;
        }
        Ok(())
    }

    /// The program's end of a stream whose source it is; `None` for others, and once it was taken.
    #[must_use]
    pub fn frame_producer(&self, stream: &str) -> Option<FrameProducer> {
        let mut streams = self.streams();
        let stream = streams.iter_mut().find(|s| s.config.spec.name == stream)?;
        if !stream.is_the_programs() {
            return None;
        }
        match stream.waiting.take()?.1.pop()? {
            StreamEnd::FrameProducer(frame_producer) => Some(frame_producer),
            StreamEnd::Elsewhere(_) => None,
        }
    }

    /// Sends the frames of a stream's source to another inlet as well, such as one of another node;
    /// false if there is no such stream, or its source has started.
    pub fn tee(&self, stream: &str, frame_producer: FrameProducer) -> bool {
        let mut streams = self.streams();
        let found = streams.iter_mut().find(|s| s.config.spec.name == stream);
        let Some((_, ends)) = found.and_then(|stream| stream.waiting.as_mut()) else {
            return false;
        };
        ends.push(StreamEnd::FrameProducer(frame_producer));
        true
    }

    /// Records from now on when each frame of a stream arrives; `None` once its source has started.
    #[must_use]
    pub fn record_arrivals(&self, stream: &str) -> Option<Arc<Arrivals>> {
        let mut streams = self.streams();
        let stream = streams.iter_mut().find(|s| s.config.spec.name == stream)?;
        let (_, ends) = stream.waiting.as_mut()?;
        ends.first_mut().map(StreamEnd::record_arrivals)
    }

    /// What a stream's source says of itself; `None` if there is none, or it is the program.
    #[must_use]
    pub fn info(&self, stream: &str) -> Option<StreamInfo> {
        self.streams().iter().find(|s| s.config.spec.name == stream)?.info.clone()
    }

    /// What is counted of a stream, at most 250 ms ago; `None` if there is no such stream.
    #[must_use]
    pub fn counts(&self, stream: &str) -> Option<Counts> {
        let (link, number) = {
            let streams = self.streams();
            let stream = streams.iter().find(|s| s.config.spec.name == stream)?;
            (stream.config.link, stream.number)
        };
        self.placed[link].report().streams.into_iter().nth(number).map(|report| report.counts)
    }

    /// The newest report of each link, in the order of the node file.
    #[must_use]
    pub fn reports(&self) -> Vec<LinkReport> {
        self.placed.iter().map(|link| link.report()).collect()
    }

    /// Whether no source delivers any more; never while one is the program.
    #[must_use]
    pub fn is_over(&self) -> bool {
        // One lock after the other, since `start_sources` takes both.
        let programs = self.streams().iter().any(Stream::is_the_programs);
        self.delivers.load(Ordering::Acquire) && !programs && self.source_threads.lock().all_ended()
    }

    /// Whether all receivers of stacks are connected.
    #[must_use]
    pub fn stacks_are_up(&self) -> bool {
        self.stacks.all_connected()
    }

    /// Waits until nothing that was offered before waits any more, or `given_up`; false if that took
    /// longer than `limit`.
    pub fn wait_sent(&self, limit: Duration, given_up: impl Fn() -> bool) -> bool {
        let since = self.clock.now();
        let is_idle = |report: &LinkReport| {
            report.at > since && report.streams.iter().all(|stream| stream.queued == 0)
        };
        wait_until(limit, || given_up() || self.reports().iter().all(is_idle))
    }

    /// Stops sources and links; what still waits is not sent.
    #[must_use]
    pub fn stop(mut self) -> Ended {
        self.stop_sources();
        let links: Vec<_> = self.placed.drain(..).map(|link| link.stop()).collect();
        Ended { snapshot: self.snapshot_of(&links), links }
    }

    pub(crate) fn streams(&self) -> MutexGuard<'_, Vec<Stream>> {
        self.streams.lock()
    }
}

impl Stream {
    fn new(config: StreamConfig, opened: Opened, number: usize, end: StreamEnd) -> Self {
        Self {
            config,
            number,
            info: opened.info,
            counters: end.counters(),
            status: Arc::default(),
            waiting: Some((opened.source, vec![end])),
        }
    }

    const fn is_the_programs(&self) -> bool {
        matches!(self.config.source, SourceUri::Program)
    }
}

/// Writes a stream's session description, if it is to have one and its medium is known.
fn write_sdp(
    stream: &StreamConfig,
    info: Option<&StreamInfo>,
    base: &Path,
) -> Result<(), (String, std::io::Error)> {
    let (Some(path), Some(info)) = (&stream.sdp, info) else { return Ok(()) };
    let streams = vec![Described::new(info, stream.spec.to)];
    let session = Session { name: stream.spec.name.clone(), streams };
    std::fs::write(base.join(path), session.to_string()).map_err(|why| (path.clone(), why))
}
