//! One producer: its connection, its doorbell, its streams. When its connection ends, for whatever reason,
//! the frames left in its rings are sent and its streams are removed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use selvedge_comm_carrier::{CarriedState, CarriedStream, StackSpec, Target};
use selvedge_control_config::{CARRIED_MIN, SlotConfig, fit};
use selvedge_data_stream::{Spec, WhenFull, rtp};
use selvedge_os::control::{Connection, ControlError, Long, Message};
use selvedge_place_engine::engine::NewStream;
use selvedge_place_engine::frame_producer::FrameProducerParams;
use selvedge_place_engine::slot::{Slot, SlotParams};
use selvedge_units::{Bitrate, Bytes, Duration};

use super::refusal::Refusal;
use super::steps::Step;
use super::{Coprocessor, DRAIN};
use crate::feeder::{Feeder, FeederState};
use crate::frame_consumer::{Limits, RefusalCounters, SharedConsumer};
use crate::message::{NAME_MAX, Reply, Request, Statistics, StreamStatistics};
use crate::realtime::RealtimeRequest;
use crate::segment::{BELL_STREAMS, Doorbell, StreamSegment};

/// The longest description of streamlets that is read.
const STREAMLETS_BYTES: Bytes = Bytes(32 << 20);

/// The most streams that stacks carry: each has a thread, and may have an endpoint of its own.
const STACKS_MAX: usize = 256;

/// A stream of a producer.
struct Stream {
    number: usize,
    /// The coprocessor reads its frames itself.
    feeder: Option<Feeder>,
}

/// The coprocessor's knowledge of a stream beside the engine's.
pub(crate) struct StreamInfo {
    spec: Spec,
    producer: String,
    refused: Arc<RefusalCounters>,
    feeder: Option<Arc<FeederState>>,
    /// The memory of its streamlets, if it is a slot.
    slot: Bytes,
    /// Its connection, if a stack carries it.
    pub(super) carried: Option<CarriedStream>,
}

/// A connection to the control socket.
pub(crate) struct Producer {
    connection: Connection,
    name: String,
    bell: Option<Arc<Doorbell>>,
    /// By bit of the doorbell.
    streams: Vec<Option<Stream>>,
}

type Answer = Result<(Reply, Vec<OwnedFd>), Refusal>;

fn done() -> Answer {
    Ok((Reply::default(), Vec::new()))
}

impl Producer {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, name: String::new(), bell: None, streams: Vec::new() }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    /// Answers one message; false when the producer is gone.
    pub(crate) fn serve(&mut self, coprocessor: &mut Coprocessor) -> bool {
        let answer = match self.connection.receive() {
            Ok(None) => return true,
            Err(ControlError::Closed) => return false,
            Err(error) => Err(error.into()),
            Ok(Some(message)) => self.answer(coprocessor, message.body, message.fds),
        };
        let answered = match &answer {
            Ok((reply, fds)) => {
                let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                self.connection.answer(Ok(reply), &[], &fds)
            }
            Err(why) => self.connection.answer::<Reply>(Err(why), &[], &[]),
        };
        // A producer that does not read its replies counts as gone as well.
        answered.is_ok()
    }

    fn answer(
        &mut self,
        coprocessor: &mut Coprocessor,
        request: Request,
        fds: Vec<OwnedFd>,
    ) -> Answer {
        match request {
            Request::Attach { name } => self.attach(coprocessor, name, fds),
            Request::Add { stream, bit, stack } => {
                self.add(coprocessor, (stream, stack.as_deref()), bit, fds)
            }
            Request::Read { stream, file, repeat, ssrc, stack } => {
                self.read(coprocessor, (stream, stack.as_deref()), (&file, repeat), ssrc)
            }
            Request::Aggregate { stream, bytes, delay_ns, ssrc } => {
                let at = self.find(stream)?;
                let body = Long { bytes };
                let config = Message { body, data: Vec::new(), fds }.read(STREAMLETS_BYTES)?;
                if self.streams[at].as_ref().is_some_and(|stream| stream.feeder.is_some()) {
                    return Err(Refusal::NoSlot(stream));
                }
                aggregate(coprocessor, stream, config, (delay_ns.map(Duration), ssrc))
            }
            Request::Streamlet { stream, streamlet } => {
                self.find(stream)?;
                let report = coprocessor.engine.streamlet(stream, streamlet);
                let report = report.ok_or(Refusal::NoStreamlet { stream, streamlet })?;
                let streamlet = Some((&report).into());
                Ok((Reply { streamlet, ..Reply::default() }, Vec::new()))
            }
            Request::Remove { stream, within_ns } => {
                let at = self.find(stream)?;
                self.streams[at] = None;
                coprocessor.engine.detach(stream, Duration(within_ns).min(DRAIN));
                done()
            }
            Request::Turn { stream, priority, windows } => {
                self.find(stream)?;
                if let Some(priority) = priority {
                    if !(-1000..=1000).contains(&priority) {
                        return Err(Refusal::Priority(priority));
                    }
                    coprocessor.engine.set_priority(stream, priority);
                }
                if let Some(windows) = windows {
                    coprocessor.engine.set_windows(stream, windows);
                }
                done()
            }
            Request::Terms { stream, spec } => {
                self.find(stream)?;
                spec.check()?;
                coprocessor.engine.set_terms(stream, &spec.contract);
                done()
            }
            Request::Rate { bps } => {
                if bps == 0 || bps > 1_000_000_000_000 {
                    return Err(Refusal::Rate(bps));
                }
                coprocessor.engine.set_rate(Bitrate(bps));
                coprocessor.rate.set(Bitrate(bps));
                done()
            }
            Request::Statistics {} => statistics(coprocessor),
            Request::Load { name, extension, point, arguments } => {
                check_name(&name)?;
                coprocessor.load_step(Step { name, extension, point, arguments })?;
                done()
            }
            Request::Unload { name } => {
                if coprocessor.engine.unload(&name) {
                    coprocessor.steps.remove_saved(&name);
                    done()
                } else {
                    Err(Refusal::NoStep(name))
                }
            }
            Request::Shutdown {} => {
                coprocessor.over = true;
                done()
            }
        }
    }

    fn attach(&mut self, coprocessor: &Coprocessor, name: String, fds: Vec<OwnedFd>) -> Answer {
        if self.bell.is_some() {
            return Err(Refusal::Attached);
        }
        check_name(&name)?;
        let (bell, back) = match <[OwnedFd; 2]>::try_from(fds) {
            Ok([file, event]) => (Doorbell::open(file, event)?, Vec::new()),
            Err(none) if none.is_empty() => {
                let bell = Doorbell::create()?;
                let copies = [bell.file().as_fd(), bell.event()].map(|fd| fd.try_clone_to_owned());
                let copies: Result<Vec<_>, _> = copies.into_iter().collect();
                (bell, copies?)
            }
            Err(fds) => return Err(Refusal::Descriptors(fds.len())),
        };
        self.bell = Some(Arc::new(bell));
        self.name = name;
        Ok((Reply { link: Some(coprocessor.link()), ..Reply::default() }, back))
    }

    /// The requested bit, or the lowest one without a stream.
    fn free_bit(&self, wanted: Option<usize>) -> Result<usize, Refusal> {
        if let Some(bit) = wanted
            && self.streams.get(bit).is_some_and(Option::is_some)
        {
            return Err(Refusal::BitTaken(bit));
        }
        let lowest = self.streams.iter().position(Option::is_none).unwrap_or(self.streams.len());
        let bit = wanted.unwrap_or(lowest);
        match wanted {
            _ if bit < BELL_STREAMS => Ok(bit),
            Some(bit) => Err(Refusal::Bit(bit)),
            None => Err(Refusal::Full),
        }
    }

    fn bell(&self) -> Result<&Arc<Doorbell>, Refusal> {
        self.bell.as_ref().ok_or(Refusal::NotAttached)
    }

    fn add(
        &mut self,
        coprocessor: &mut Coprocessor,
        (spec, stack): (Spec, Option<&StackSpec>),
        bit: Option<usize>,
        fds: Vec<OwnedFd>,
    ) -> Answer {
        let bell = Arc::clone(self.bell()?);
        sound(coprocessor, &spec)?;
        let bit = self.free_bit(bit)?;
        let mut fds = fds.into_iter();
        let (segment, fresh) = match fds.next() {
            Some(file) => (StreamSegment::open(file)?, false),
            None => (new_segment(coprocessor, &spec)?, true),
        };
        let file = segment.file().try_clone()?;
        let stream =
            self.attach_stream(coprocessor, (spec, stack), &segment, fresh, (bell, bit))?;
        let reply = Reply { stream: Some(stream.number), bit: Some(bit), ..Reply::default() };
        self.keep(stream, bit);
        Ok((reply, if fresh { vec![file] } else { Vec::new() }))
    }

    fn read(
        &mut self,
        coprocessor: &mut Coprocessor,
        (spec, stack): (Spec, Option<&StackSpec>),
        (file, repeat): (&str, bool),
        ssrc: u32,
    ) -> Answer {
        let bell = Arc::clone(self.bell()?);
        sound(coprocessor, &spec)?;
        if !file.starts_with('/') {
            return Err(Refusal::Path(file.to_owned()));
        }
        let bit = self.free_bit(None)?;
        let recording = Feeder::open(file.as_ref(), repeat)?;
        let segment = new_segment(coprocessor, &spec)?;
        let mtu = coprocessor.options.link.mtu;
        let params = FrameProducerParams {
            full: WhenFull::Block,
            ..FrameProducerParams::new(coprocessor.clock, &spec, mtu, ssrc)
        };
        let place = (Arc::clone(&bell), bit);
        // As the engine's thread runs, so that load does not delay the reader either. The memory is locked already.
        let realtime_request =
            Some(RealtimeRequest { lock: false, ..coprocessor.options.realtime_request });
        let mut stream = self.attach_stream(coprocessor, (spec, stack), &segment, true, place)?;
        let known = coprocessor.streams.get(&stream.number);
        let carrier = known.and_then(|known| Some(known.carried.as_ref()?.carrier()));
        let params = match carrier {
            Some(carrier) => params.carried(carrier.overhead, carrier.packet_max),
            None => params,
        };
        let feeder =
            crate::frame_producer::frame_producer(&params, &segment, bell, bit, recording.stop())
                .map_err(Refusal::from)
                .and_then(|frame_producer| Ok(recording.start(frame_producer, realtime_request)?));
        match feeder {
            Ok(feeder) => {
                if let Some(known) = coprocessor.streams.get_mut(&stream.number) {
                    known.feeder = Some(feeder.state());
                }
                stream.feeder = Some(feeder);
            }
            Err(why) => {
                coprocessor.engine.detach(stream.number, Duration::ZERO);
                return Err(why);
            }
        }
        let reply = Reply { stream: Some(stream.number), bit: Some(bit), ..Reply::default() };
        self.keep(stream, bit);
        // Only for the counts in it.
        let file = segment.file().try_clone()?;
        Ok((reply, vec![file]))
    }

    /// Adds a stream to the engine.
    fn attach_stream(
        &self,
        coprocessor: &mut Coprocessor,
        (spec, stack): (Spec, Option<&StackSpec>),
        segment: &StreamSegment,
        fresh: bool,
        place: (Arc<Doorbell>, usize),
    ) -> Result<Stream, Refusal> {
        spec.check()?;
        let carried = stack.map(|stack| carry(coprocessor, &spec, stack)).transpose()?;
        let carrier = carried.as_ref().map(CarriedStream::carrier);
        let (overhead, most) = match &carrier {
            Some(carrier) => (carrier.overhead, carrier.packet_max),
            None => (rtp::ip_udp(spec.to), coprocessor.options.link.mtu - rtp::ip_udp(spec.to)),
        };
        let limits = Limits { packet: u16::try_from(most.0).unwrap_or(u16::MAX), overhead };
        let frame_consumer = SharedConsumer::new(segment, fresh, limits, place)?;
        let refused = frame_consumer.refused();
        let spec = Spec { ring: segment.ring(), ..spec };
        let new = NewStream { spec: spec.clone(), frame_consumer, carried: carrier };
        let number = coprocessor.engine.attach(new).ok_or(Refusal::Stopped)?;
        tracing::info!(stream = spec.name, number, to = %spec.to, "stream added");
        let producer = self.name.clone();
        let info = StreamInfo { spec, producer, refused, feeder: None, slot: Bytes(0), carried };
        coprocessor.streams.insert(number, info);
        Ok(Stream { number, feeder: None })
    }

    fn keep(&mut self, stream: Stream, bit: usize) {
        if self.streams.len() <= bit {
            self.streams.resize_with(bit + 1, || None);
        }
        self.streams[bit] = Some(stream);
    }

    /// The index of one of this producer's streams.
    fn find(&self, number: usize) -> Result<usize, Refusal> {
        let this = |stream: &Option<Stream>| stream.as_ref().is_some_and(|s| s.number == number);
        self.streams.iter().position(this).ok_or(Refusal::NoStream(number))
    }

    /// After the producer is gone: sends the frames that it left, then removes its streams.
    pub(crate) fn leave(self, coprocessor: &Coprocessor) {
        tracing::info!(producer = self.name, "producer left");
        for stream in self.streams.into_iter().flatten() {
            drop(stream.feeder);
            coprocessor.engine.detach(stream.number, DRAIN);
        }
    }
}

/// Checks whether a stream can be on this link.
fn sound(coprocessor: &Coprocessor, spec: &Spec) -> Result<(), Refusal> {
    spec.check()?;
    let (parent, nodes) = (spec.contract.parent, coprocessor.options.link.tree.nodes().len());
    if parent as usize > nodes { Err(Refusal::Parent { parent, nodes }) } else { Ok(()) }
}

/// Begins to connect a stream's stack.
fn carry(
    coprocessor: &mut Coprocessor,
    spec: &Spec,
    stack: &StackSpec,
) -> Result<CarriedStream, Refusal> {
    let modules = stack.check()?;
    coprocessor.remove_detached();
    let carried = coprocessor.streams.values().filter(|known| known.carried.is_some());
    if carried.count() >= STACKS_MAX {
        return Err(Refusal::Stacks(STACKS_MAX));
    }
    let fit = fit(&modules, coprocessor.options.link.mtu, stack.end.is_encrypted(), spec.to);
    if fit.message < CARRIED_MIN {
        return Err(Refusal::StackRoom { room: fit.message, least: CARRIED_MIN });
    }
    let (name, rate) = (spec.name.clone(), coprocessor.rate.clone());
    let target = Target { name, to: spec.to, fit, rate };
    Ok(coprocessor.stacks.carry(stack, target, Arc::<CarriedState>::default())?)
}

/// A segment for a valid stream, within the memory limit.
fn new_segment(coprocessor: &mut Coprocessor, spec: &Spec) -> Result<StreamSegment, Refusal> {
    check_memory(coprocessor, spec.memory())?;
    Ok(StreamSegment::create("selvedge stream", spec.ring, spec.pool)?)
}

/// Refuses memory beyond the limit of all streams together.
fn check_memory(coprocessor: &mut Coprocessor, more: Bytes) -> Result<(), Refusal> {
    coprocessor.remove_detached();
    let held = coprocessor.streams.values().map(|known| (known.spec.memory() + known.slot).0).sum();
    let (held, most) = (Bytes(held), coprocessor.options.memory);
    if held + more > most { Err(Refusal::Memory { held, most }) } else { Ok(()) }
}

/// Makes a stream the slot of these streamlets, which come from another process.
fn aggregate(
    coprocessor: &mut Coprocessor,
    stream: usize,
    config: SlotConfig,
    (delay, ssrc): (Option<Duration>, u32),
) -> Answer {
    let spec = coprocessor.streams.get(&stream).map(|known| &known.spec);
    let Spec { to, pool, .. } = *spec.ok_or(Refusal::NoStream(stream))?;
    config.check(to.is_ipv6())?;
    let memory = pool + config.memory();
    check_memory(coprocessor, memory)?;
    if let Some(known) = coprocessor.streams.get_mut(&stream) {
        if known.carried.is_some() {
            return Err(Refusal::StackOfSlot(stream));
        }
        known.slot = memory;
    }
    let slot = Slot::new(SlotParams { config: Arc::new(config), delay, pool, ssrc });
    if coprocessor.engine.aggregate(stream, slot) { done() } else { Err(Refusal::Stopped) }
}

/// Checks the name of a producer or an extension.
fn check_name(name: &str) -> Result<(), Refusal> {
    let fits = (1..=NAME_MAX).contains(&name.len());
    if fits { Ok(()) } else { Err(Refusal::Name(name.len())) }
}

/// The statistics of all producers' streams.
fn statistics(coprocessor: &mut Coprocessor) -> Answer {
    let report = coprocessor.remove_detached();
    let streams = report.streams.iter().filter_map(|seen| {
        let known = coprocessor.streams.get(&seen.number)?;
        let stream_statistics =
            StreamStatistics::of(seen, &known.spec, &known.producer, known.refused.read());
        let (trouble, ended) = known.feeder.as_ref().map(|f| f.status()).unwrap_or_default();
        let stack = known.carried.as_ref().map(|carried| carried.state().progress());
        Some(StreamStatistics { trouble, ended, stack, ..stream_statistics })
    });
    let streams: Vec<_> = streams.collect();
    let statistics = Statistics::of(&report, streams, &coprocessor.runs());
    let (Long { bytes }, memory) = Long::write(&statistics)?;
    Ok((Reply { bytes: Some(bytes), ..Reply::default() }, vec![memory]))
}
