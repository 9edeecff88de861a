//! The producer's side: attaching, streams, and reattaching to a restarted coprocessor, with the same memory.

mod connection;
mod prior_counts;
mod remote_stack;
mod requests;
mod spawn;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use selvedge_data_stream::{Contract, Spec, Windows};
use selvedge_os::clock::Clock;
use selvedge_os::control::ControlError;
use selvedge_place_engine::code::StepSource;
use selvedge_place_engine::engine::Stage;
use selvedge_place_engine::frame_producer::{FrameProducer, FrameProducerParams};
use selvedge_place_engine::report::LinkReport;
use selvedge_place_engine::slot::{SlotParams, StreamletReport};
use selvedge_units::{Bitrate, Duration};

pub use connection::{ClientError, Connection};
pub use remote_stack::RemoteStack;
pub use spawn::{Program, SpawnError};

use prior_counts::PriorCounts;

use crate::message::{LinkSpec, Reply, Request, Statistics};
use crate::segment::{CountsBoard, Doorbell, StreamSegment};

/// How often the supervisor checks whether the coprocessor is still there.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// The longest time until a started coprocessor listens.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A stream as its producer knows it, for a new registration.
struct Stream {
    spec: Spec,
    number: usize,
    kind: Kind,
    /// What carries its packets in place of plain UDP.
    stack: Option<RemoteStack>,
}

enum Kind {
    /// Frames arrive through this segment.
    Produced { segment: StreamSegment, bit: usize, slot: Option<SlotParams> },
    /// The coprocessor reads them itself.
    Read { file: String, repeat: bool, ssrc: u32, counts: Option<CountsBoard> },
}

struct Inner {
    connection: Option<Connection>,
    /// By place; the place of a removed stream is used again.
    streams: Vec<Option<Stream>>,
    link: LinkSpec,
    /// The last report, with the counts from before a restart of the coprocessor included.
    last: LinkReport,
    /// The counts from before the restart.
    prior: PriorCounts,
    /// How often it was attached again.
    returns: u64,
    /// The steps that were loaded, by name, for a coprocessor that does not have them.
    steps: BTreeMap<String, Request>,
}

/// An attachment to a coprocessor's link. If the coprocessor dies, the streams' memory stays, and goes to the
/// next one; if this process started it, it starts it again.
pub struct Attachment {
    inner: Arc<Mutex<Inner>>,
    bell: Arc<Doorbell>,
    stop: Arc<AtomicBool>,
    supervisor: Option<JoinHandle<()>>,
}

impl Attachment {
    /// Attaches to the coprocessor that listens at a path, or starts the program first.
    pub fn new(
        name: &str,
        socket: PathBuf,
        mut program: Option<Program>,
    ) -> Result<Self, ClientError> {
        if let Some(program) = &mut program {
            program.start(TIMEOUT)?;
        }
        let mut connection = Connection::open(&socket)?;
        let (link, bell) = connection.attach(name)?;
        let last = LinkReport { name: link.name.clone(), ..LinkReport::default() };
        let inner = Inner {
            connection: Some(connection),
            streams: Vec::new(),
            link,
            last,
            prior: PriorCounts::default(),
            returns: 0,
            steps: BTreeMap::new(),
        };
        let inner = Arc::new(Mutex::new(inner));
        let (bell, stop) = (Arc::new(bell), Arc::new(AtomicBool::new(false)));
        let supervisor = Supervisor {
            inner: Arc::clone(&inner),
            bell: Arc::clone(&bell),
            stop: Arc::clone(&stop),
            name: name.to_owned(),
            socket,
            program,
        };
        let supervisor = thread::Builder::new()
            .name("attachment".into())
            .spawn(move || supervisor.run())
            .map_err(ClientError::System)?;
        Ok(Self { inner, bell, stop, supervisor: Some(supervisor) })
    }

    /// The link, as reported when attaching.
    #[must_use]
    pub fn link(&self) -> LinkSpec {
        self.inner.lock().link.clone()
    }

    /// How often the coprocessor was lost and found again.
    #[must_use]
    pub fn returns(&self) -> u64 {
        self.inner.lock().returns
    }

    /// Adds a stream; returns its place here and its frame producer.
    pub fn add(
        &self,
        spec: Spec,
        params: &FrameProducerParams,
        stack: Option<RemoteStack>,
    ) -> Result<(usize, FrameProducer), ClientError> {
        let mut inner = self.inner.lock();
        let connection = inner.connection.as_mut().ok_or(ControlError::Closed)?;
        let (number, bit, segment) = connection.add(&spec, stack.as_ref())?;
        let bell = Arc::clone(&self.bell);
        let frame_producer = crate::frame_producer::frame_producer(
            params,
            &segment,
            bell,
            bit,
            Arc::clone(&self.stop),
        )
        .map_err(crate::segment::SegmentError::from)?;
        let kind = Kind::Produced { segment, bit, slot: None };
        Ok((inner.place(Stream { spec, number, kind, stack }), frame_producer))
    }

    /// Makes a stream the slot of these streamlets, before its first frame. The frames of streamlets come by
    /// [`FrameProducer::enqueue_for`]. A coprocessor that comes later gets the streamlets as well; what waited in
    /// their queues is lost with the one that died, and their counts begin anew.
    ///
    /// # Errors
    /// [`ClientError`]: the coprocessor refuses, or is away.
    pub fn aggregate(&self, place: usize, params: SlotParams) -> Result<(), ClientError> {
        let mut inner = self.inner.lock();
        let Inner { connection, streams, .. } = &mut *inner;
        let stream = streams.get_mut(place).and_then(Option::as_mut);
        let connection = connection.as_mut().ok_or(ControlError::Closed)?;
        let Some(Stream { number, kind: Kind::Produced { slot, .. }, .. }) = stream else {
            return Err(ClientError::lacks("stream"));
        };
        connection.aggregate(*number, &params)?;
        *slot = Some(params);
        Ok(())
    }

    /// The report of a slot's streamlet; `None` if there is none, or while the coprocessor is away.
    #[must_use]
    pub fn streamlet(&self, place: usize, streamlet: u32) -> Option<StreamletReport> {
        let stream = self.inner.lock().stream(place)?.number;
        let reply = self.ask(Request::Streamlet { stream, streamlet }).ok()?;
        reply.streamlet.as_ref().map(Into::into)
    }

    /// Adds a stream that the coprocessor reads from a recording itself; returns its place here.
    pub fn read(
        &self,
        spec: Spec,
        (file, repeat): (&str, bool),
        ssrc: u32,
        stack: Option<RemoteStack>,
    ) -> Result<usize, ClientError> {
        let mut inner = self.inner.lock();
        let connection = inner.connection.as_mut().ok_or(ControlError::Closed)?;
        let (number, counts) = connection.read(&spec, stack.as_ref(), (file, repeat), ssrc)?;
        let kind = Kind::Read { file: file.to_owned(), repeat, ssrc, counts };
        Ok(inner.place(Stream { spec, number, kind, stack }))
    }

    /// Removes a stream and its waiting frames; its place is free then.
    pub fn remove(&self, place: usize) {
        let mut inner = self.inner.lock();
        let Some(stream) = inner.streams.get_mut(place).and_then(Option::take) else { return };
        inner.prior.forget(place);
        inner.last.streams.retain(|report| report.number != place);
        if let Some(connection) = &mut inner.connection {
            let request = Request::Remove { stream: stream.number, within_ns: 0 };
            // If the coprocessor is away, the stream is not registered with the next one.
            let _ = connection.ask(request, &[]);
        }
    }

    /// The newest report, streams by their places; the last known one while the coprocessor is away.
    #[must_use]
    pub fn report(&self) -> LinkReport {
        let mut inner = self.inner.lock();
        if let Ok(statistics) = inner.statistics() {
            let numbered =
                |(place, stream): (usize, &Option<Stream>)| Some((place, stream.as_ref()?.number));
            let (places, numbers): (Vec<usize>, Vec<usize>) =
                inner.streams.iter().enumerate().filter_map(numbered).unzip();
            let mut report = statistics.report(&numbers);
            if report.streams.len() == numbers.len() {
                // The coprocessor has other numbers, as other programs use it as well.
                let streams = report.streams.iter_mut().zip(places);
                streams.for_each(|(stream, place)| stream.number = place);
                inner.prior.add_to(&mut report);
                inner.last = report;
            }
        }
        inner.last.clone()
    }

    /// All statistics that the coprocessor reports.
    pub fn statistics(&self) -> Result<Statistics, ClientError> {
        self.inner.lock().statistics()
    }

    /// For streams that the coprocessor reads: the error of one, and whether it has ended.
    #[must_use]
    pub fn source(&self, place: usize) -> (Option<String>, bool) {
        let mut inner = self.inner.lock();
        let Some(number) = inner.stream(place).map(|stream| stream.number) else {
            return (None, true);
        };
        let found = inner.statistics().ok().and_then(|all| {
            let stream = all.streams.into_iter().find(|stream| stream.stream == number)?;
            Some((stream.trouble, stream.ended))
        });
        found.unwrap_or((None, false))
    }

    /// Changes a stream's windows. Returns false while the coprocessor is away; the change is then made
    /// later.
    pub fn set_windows(&self, place: usize, windows: Windows) -> bool {
        self.set_knob(
            place,
            |spec| spec.contract.windows = windows,
            |stream| Request::Turn { stream, priority: None, windows: Some(windows) },
        )
    }

    /// Changes a stream's priority. Returns false while the coprocessor is away; the change is then made
    /// later.
    pub fn set_priority(&self, place: usize, priority: i32) -> bool {
        self.set_knob(
            place,
            |spec| spec.contract.priority = priority,
            |stream| Request::Turn { stream, priority: Some(priority), windows: None },
        )
    }

    /// Changes windows, priority, weight, period and delay of a stream to those of a contract. Returns false
    /// while the coprocessor is away; the change is then made later.
    pub fn set_terms(&self, place: usize, terms: &Contract) -> bool {
        let Some(spec) = self.inner.lock().stream(place).map(|stream| stream.spec.clone()) else {
            return false;
        };
        let Contract { period, delay, windows, weight, priority, .. } = *terms;
        let contract = Contract { period, delay, windows, weight, priority, ..spec.contract };
        let spec = Spec { contract, ..spec };
        self.set_knob(
            place,
            |known| known.contract = contract,
            |stream| Request::Terms { stream, spec },
        )
    }

    /// Changes the link's rate; false while the coprocessor is away.
    pub fn set_rate(&self, rate: Bitrate) -> bool {
        self.ask(Request::Rate { bps: rate.0 }).is_ok()
    }

    /// Loads a step in E-code at a point of the engine, in place of one of the same name; also in coprocessors
    /// that come later. False if the present one does not take it, or is away.
    pub fn load(&self, name: &str, at: Stage, step: &StepSource) -> bool {
        let StepSource { file, source, fuel, parameters } = step;
        let arguments = serde_json::json!({
            "source": source, "fuel": fuel, "file": file, "parameters": parameters
        });
        let (extension, point) = ("code".to_owned(), at.name().to_owned());
        let request = Request::Load { name: name.to_owned(), extension, point, arguments };
        self.inner.lock().steps.insert(name.to_owned(), request.clone());
        self.ask(request).is_ok()
    }

    /// Removes a step that was loaded here.
    pub fn unload(&self, name: &str) {
        if self.inner.lock().steps.remove(name).is_some() {
            // A coprocessor that is away has none.
            let _ = self.ask(Request::Unload { name: name.to_owned() });
        }
    }

    /// Removes all steps that were loaded here.
    pub fn unload_all(&self) {
        let names: Vec<String> = self.inner.lock().steps.keys().cloned().collect();
        names.iter().for_each(|name| self.unload(name));
    }

    /// Sends a request without descriptors.
    pub fn ask(&self, request: Request) -> Result<Reply, ClientError> {
        let mut inner = self.inner.lock();
        let connection = inner.connection.as_mut().ok_or(ControlError::Closed)?;
        connection.ask(request, &[]).map(|(reply, _)| reply)
    }

    fn set_knob(
        &self,
        place: usize,
        note: impl FnOnce(&mut Spec),
        request: impl FnOnce(usize) -> Request,
    ) -> bool {
        let number = {
            let mut inner = self.inner.lock();
            let Some(stream) = inner.stream(place) else { return false };
            note(&mut stream.spec);
            stream.number
        };
        self.ask(request(number)).is_ok()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.thread().unpark();
            // A panic there has been printed already.
            let _ = supervisor.join();
        }
    }
}

impl Inner {
    /// Gives a stream the lowest place that is free.
    fn place(&mut self, stream: Stream) -> usize {
        let free = self.streams.iter().position(Option::is_none);
        let place = free.unwrap_or(self.streams.len());
        self.streams.resize_with(self.streams.len().max(place + 1), || None);
        self.streams[place] = Some(stream);
        place
    }

    fn stream(&mut self, place: usize) -> Option<&mut Stream> {
        self.streams.get_mut(place)?.as_mut()
    }

    /// Takes over the counts of a coprocessor that is gone.
    fn lose(&mut self) {
        if self.connection.take().is_none() {
            return;
        }
        self.streams.iter().flatten().filter_map(|s| s.stack.as_ref()).for_each(RemoteStack::lose);
        let left = self.streams.iter().map(|stream| match &stream.as_ref()?.kind {
            Kind::Produced { segment, .. } => segment.counts().take(),
            Kind::Read { counts, .. } => counts.as_ref().and_then(CountsBoard::take),
        });
        let left = left.collect();
        self.prior = self.prior.after(&mut self.last, left);
    }

    /// Learns what became of the connections that the coprocessor has.
    fn follow_stacks(&mut self) {
        if self.streams.iter().flatten().all(|stream| stream.stack.is_none()) {
            return;
        }
        let Ok(statistics) = self.statistics() else { return };
        let (now, pid) = (Clock::shared().now(), self.link.pid);
        for seen in statistics.streams {
            let stream = self.streams.iter().flatten().find(|own| own.number == seen.stream);
            if let (Some(Stream { stack: Some(stack), .. }), Some(progress)) = (stream, seen.stack)
            {
                stack.follow(now, pid, progress);
            }
        }
    }

    fn statistics(&mut self) -> Result<Statistics, ClientError> {
        self.connection.as_mut().ok_or(ControlError::Closed)?.statistics()
    }
}

/// Watches the coprocessor, and reattaches.
struct Supervisor {
    inner: Arc<Mutex<Inner>>,
    bell: Arc<Doorbell>,
    stop: Arc<AtomicBool>,
    name: String,
    socket: PathBuf,
    program: Option<Program>,
}

impl Supervisor {
    fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let alive = self.inner.lock().connection.as_ref().is_some_and(Connection::is_open);
            if !alive && let Err(error) = self.reattach() {
                tracing::debug!(%error, "the coprocessor is away");
            }
            self.inner.lock().follow_stacks();
            thread::park_timeout(POLL_EVERY.into());
        }
        self.inner.lock().connection = None;
        if let Some(program) = &mut self.program {
            program.end();
        }
    }

    /// Attaches again, with the same memory.
    fn reattach(&mut self) -> Result<(), ClientError> {
        self.inner.lock().lose();
        if let Some(program) = &mut self.program {
            program.start(TIMEOUT)?;
        }
        let mut connection = Connection::open(&self.socket)?;
        let link = connection.attach_again(&self.name, &self.bell)?;
        let mut inner = self.inner.lock();
        for Stream { spec, number, kind, stack } in inner.streams.iter_mut().flatten() {
            *number = match kind {
                Kind::Produced { segment, bit, slot } => {
                    let number = connection.resume(spec, stack.as_ref(), segment, *bit)?;
                    slot.iter().try_for_each(|slot| connection.aggregate(number, slot))?;
                    number
                }
                Kind::Read { file, repeat, ssrc, counts } => {
                    let source = (file.as_str(), *repeat);
                    let (number, board) = connection.read(spec, stack.as_ref(), source, *ssrc)?;
                    *counts = board;
                    number
                }
            };
        }
        for request in inner.steps.values() {
            connection.ask(request.clone(), &[])?;
        }
        tracing::warn!(link = link.name, pid = link.pid, "attached to the coprocessor again");
        inner.link = link;
        inner.connection = Some(connection);
        inner.returns += 1;
        Ok(())
    }
}

/// The parameters of a frame producer for a stream on this link.
#[must_use]
pub fn producer_params(spec: &Spec, mtu: selvedge_units::Bytes, ssrc: u32) -> FrameProducerParams {
    FrameProducerParams::new(Clock::shared(), spec, mtu, ssrc)
}

/// The longest wait for a reply.
const ANSWER: Duration = Duration::from_secs(5);
