//! The transmission engine: one thread that owns one link. It empties the streams' rings, sends the chosen
//! packets when the link may send them, and reports the fate of each frame.
//!
//! This is the inline placement (NI coprocessors, section 2.2.2): the engine is a thread of the process that
//! produces the frames. Scheduling and dispatch are one thread (2.2.3), so that a frame waits in no second
//! queue between the decision and the wire.

mod attached;
mod carrier;
mod departures;
mod frame_consumer;
mod run;
mod stepped_engine;
pub mod unit_slot;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::{io, thread};

use parking_lot::Mutex;
use selvedge_control_config::{LinkConfig, Sending};
use selvedge_data_link::{Link, PathEstimate};
use selvedge_data_stream::{Contract, Fate, Frame, Spec, Windows};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

pub use self::carrier::{Carrier, StreamCarrier};
use self::departures::Departures;
pub use self::frame_consumer::{
    FrameConsumer, LocalConsumer, LocalPoller, PacketHead, Poller, Registrar, Stamp,
};
pub use self::stepped_engine::SteppedEngine;
use self::worker::{BATCH, Worker};
use crate::extension::Extensions;
pub use crate::extension::{
    Action, Extension, ExtensionReport, Heard, Stage, StepContext, StepStream, StreamFacts,
};
use crate::frame_producer::FrameProducer;
pub use crate::frame_producer::payload_max;
use crate::lateness::Pacing;
use crate::link_steps::LinkSteps;
use crate::report::{LinkReport, SendCost};
use crate::slot::{Slot, StreamletReport};
use selvedge_os::clock::Clock;
use selvedge_os::latency;
use selvedge_os::socket::SocketError;
use selvedge_os::transmit::{Method, TransmitOptions, Transmitter};
use selvedge_os::wake::Waker;

/// A stream as the engine needs it.
#[derive(Clone, Debug)]
pub struct StreamParams {
    /// Its contract.
    pub spec: Spec,
    /// The RTP source identifier.
    pub ssrc: u32,
}

/// A stream for an engine that runs.
pub struct NewStream<O> {
    /// Its contract.
    pub spec: Spec,
    /// Its frame consumer.
    pub frame_consumer: O,
    /// The carrier of its packets; `None`: the engine's sockets.
    pub carried: Option<StreamCarrier>,
}

/// A command to the running engine.
enum Command<O> {
    Windows(usize, Windows),
    Priority(usize, i32),
    Rate(Bitrate),
    Path(PathEstimate),
    Terms(usize, Box<Contract>),
    Bounds(Option<Bytes>, Option<Bytes>),
    Attach(Box<NewStream<O>>, Sender<usize>),
    Detach(usize, Duration, Option<Sender<()>>),
    Load(String, Stage, Box<dyn Extension>, Sender<bool>),
    Unload(String, Sender<bool>),
    Aggregate(usize, Box<Slot>),
    Streamlet(usize, u32, Sender<Option<StreamletReport>>),
}

/// Follows every frame of a link to its end. It is called on the engine's thread, so it must be quick.
pub trait FateTap: Send {
    /// The link has settled a frame of the stream with this number.
    fn settled(&mut self, stream: usize, frame: &Frame, fate: Fate, now: Instant);
}

/// Why an engine can't start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A socket can't be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// An event or a thread can't be created.
    #[error("can't start the engine's thread: {0}")]
    System(#[from] io::Error),
}

/// A running engine; dropping it stops it.
pub struct Engine<O = LocalConsumer> {
    control: Sender<Command<O>>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    report: Arc<Mutex<LinkReport>>,
    steps: Arc<LinkSteps>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts an engine for a link and its streams; returns the frame producers in their order.
    ///
    /// # Errors
    /// [`EngineError`] if a socket, an event or a thread can't be created.
    pub fn start(
        clock: Clock,
        link: &LinkConfig,
        streams: &[StreamParams],
        tap: Option<Box<dyn FateTap>>,
    ) -> Result<(Self, Vec<FrameProducer>), EngineError> {
        let (engine, _, frame_producers) =
            Self::start_open(clock, link, streams, (&[], &[]), tap, 0)?;
        Ok((engine, frame_producers))
    }

    /// Like [`start`](Self::start), but some streams have carriers in place of the engine's sockets:
    /// `carried` in their order, `None` or a missing entry for the others. Those that are true in `shared` are
    /// [receivers](Registrar::receiver) of frames that others may get as well. There is room for `room` more
    /// streams, which [`add`](Self::add) adds while the engine runs.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn start_open(
        clock: Clock,
        link: &LinkConfig,
        streams: &[StreamParams],
        (carried, shared): (&[Option<StreamCarrier>], &[bool]),
        tap: Option<Box<dyn FateTap>>,
        room: usize,
    ) -> Result<(Self, Registrar, Vec<FrameProducer>), EngineError> {
        let (port, registrar) = LocalPoller::new(clock, link, streams.len() + room)?;
        let (control, commands) = mpsc::channel();
        let mut worker = worker(clock, link, port, commands, tap)?;
        let mut frame_producers = Vec::with_capacity(streams.len());
        for (n, stream) in streams.iter().enumerate() {
            let carried = carried.get(n).cloned().flatten();
            let stop = Arc::clone(&worker.stop);
            let (number, mut producer) = if shared.get(n).is_some_and(|shares| *shares) {
                let (new, producer) = registrar.receiver(stream, carried, stop);
                let number = worker.attach(new);
                (number, producer(number))
            } else {
                let (new, producer) = registrar.stream(stream, carried, stop);
                let number = worker.attach(new);
                (number, producer(number))
            };
            producer.set_steps(Arc::clone(&worker.steps), number, stream.spec.contract);
            frame_producers.push(producer);
        }
        let asked = || {
            let promptness = latency::ask();
            tracing::debug!(?promptness, "engine runs");
        };
        let engine = Self::run(worker, control, registrar.waker.clone(), asked)?;
        Ok((engine, registrar, frame_producers))
    }

    /// Adds a stream while the engine runs; returns its number, the lowest that is free, and its frame
    /// producer. `None` if the engine has stopped, or the number is not less than `room`, the number of
    /// streams that the engine has room for.
    pub fn add(
        &self,
        registrar: &Registrar,
        room: usize,
        stream: &StreamParams,
        carried: Option<StreamCarrier>,
    ) -> Option<(usize, FrameProducer)> {
        let (new, producer) = registrar.stream(stream, carried, Arc::clone(&self.stop));
        self.added(room, new, producer, stream)
    }

    /// The same for one of several receivers of the same frames ([`Registrar::receiver`]).
    pub fn add_receiver(
        &self,
        registrar: &Registrar,
        room: usize,
        stream: &StreamParams,
        carried: Option<StreamCarrier>,
    ) -> Option<(usize, FrameProducer)> {
        let (new, producer) = registrar.receiver(stream, carried, Arc::clone(&self.stop));
        self.added(room, new, producer, stream)
    }

    fn added(
        &self,
        room: usize,
        new: NewStream<LocalConsumer>,
        producer: impl FnOnce(usize) -> FrameProducer,
        stream: &StreamParams,
    ) -> Option<(usize, FrameProducer)> {
        let number = self.attach(new)?;
        if number >= room {
            self.remove(number);
            return None;
        }
        let mut producer = producer(number);
        producer.set_steps(Arc::clone(&self.steps), number, stream.spec.contract);
        Some((number, producer))
    }
}

impl<O: FrameConsumer + 'static> Engine<O> {
    /// Starts an engine for a link whose streams are added and removed while it runs. `waker` wakes the
    /// poller; `enter` is called first on the engine's thread.
    ///
    /// # Errors
    /// [`EngineError`] if a socket or a thread can't be created.
    pub fn launch<P: Poller<FrameConsumer = O> + 'static>(
        clock: Clock,
        link: &LinkConfig,
        port: P,
        waker: Waker,
        enter: impl FnOnce() + Send + 'static,
    ) -> Result<Self, EngineError> {
        let (control, commands) = mpsc::channel();
        let worker = worker(clock, link, port, commands, None)?;
        Self::run(worker, control, waker, enter)
    }

    fn run<P: Poller<FrameConsumer = O> + 'static>(
        mut worker: Worker<P>,
        control: Sender<Command<O>>,
        waker: Waker,
        enter: impl FnOnce() + Send + 'static,
    ) -> Result<Self, EngineError> {
        let (report, stop) = (Arc::clone(&worker.report), Arc::clone(&worker.stop));
        let steps = Arc::clone(&worker.steps);
        worker.publish(worker.clock.now());
        let thread =
            thread::Builder::new().name(format!("link {}", worker.name)).spawn(move || {
                enter();
                worker.run();
            })?;
        Ok(Self { control, waker, stop, report, steps, thread: Some(thread) })
    }

    /// Adds a stream, and returns its number; `None` if the engine has stopped.
    pub fn attach(&self, stream: NewStream<O>) -> Option<usize> {
        let (reply_sender, reply) = mpsc::channel();
        self.send_command(Command::Attach(Box::new(stream), reply_sender));
        reply.recv().ok()
    }

    /// Removes a stream as soon as none of its frames waits, at the latest after `patience`; false if the
    /// engine has stopped.
    pub fn detach(&self, stream: usize, patience: Duration) -> bool {
        self.send_command(Command::Detach(stream, patience, None))
    }

    /// Removes a stream and its waiting frames, and returns once that is done: its number is free.
    pub fn remove(&self, stream: usize) {
        let (reply_sender, reply) = mpsc::channel();
        self.send_command(Command::Detach(stream, Duration::ZERO, Some(reply_sender)));
        // An engine that has stopped has no streams.
        let _ = reply.recv();
    }

    /// Loads an extension, in place of one of the same name; false if there are 32 already, or the engine has
    /// stopped.
    pub fn load(&self, name: &str, point: Stage, step: Box<dyn Extension>) -> bool {
        let (reply_sender, reply) = mpsc::channel();
        self.send_command(Command::Load(name.to_owned(), point, step, reply_sender));
        reply.recv().unwrap_or(false)
    }

    /// Loads an extension that the producers of this process run when a frame arrives, before its payload is
    /// written; in place of one of the same name. False if there are 32 already.
    pub fn load_at_producers(&self, name: &str, step: Box<dyn Extension>) -> bool {
        let loaded = self.steps.load(name, Stage::Arrival, step);
        // The engine publishes the present state of its link.
        self.waker.wake();
        loaded
    }

    /// Removes an extension; returns whether it was there.
    pub fn unload(&self, name: &str) -> bool {
        let (reply_sender, reply) = mpsc::channel();
        self.send_command(Command::Unload(name.to_owned(), reply_sender));
        self.steps.unload(name) | reply.recv().unwrap_or(false)
    }

    /// The steps that its producers run, and what receivers report to all steps.
    #[must_use]
    pub const fn steps(&self) -> &Arc<LinkSteps> {
        &self.steps
    }

    /// Makes a stream the slot of these streamlets, before its first frame; false if the engine has stopped.
    /// Frames of streamlets come by [`FrameProducer::enqueue_for`]. Its contract should have no delay, and send late
    /// frames: then its period says how often it sends one.
    pub fn aggregate(&self, stream: usize, slot: Slot) -> bool {
        self.send_command(Command::Aggregate(stream, Box::new(slot)))
    }

    /// The report of a slot's streamlet; `None` if there is none, or the engine has stopped.
    #[must_use]
    pub fn streamlet(&self, stream: usize, streamlet: u32) -> Option<StreamletReport> {
        let (reply_sender, reply) = mpsc::channel();
        self.send_command(Command::Streamlet(stream, streamlet, reply_sender));
        reply.recv().ok()?
    }

    /// The newest report.
    #[must_use]
    pub fn report(&self) -> LinkReport {
        let mut report = self.report.lock().clone();
        report.extensions.extend(self.steps.reports());
        report
    }

    fn send_command(&self, order: Command<O>) -> bool {
        let reply = self.control.send(order).is_ok();
        self.waker.wake();
        reply
    }

    /// Changes a stream's window; false if the engine has stopped.
    pub fn set_windows(&self, stream: usize, windows: Windows) -> bool {
        self.send_command(Command::Windows(stream, windows))
    }

    /// Changes a stream's priority; false if the engine has stopped.
    pub fn set_priority(&self, stream: usize, priority: i32) -> bool {
        self.send_command(Command::Priority(stream, priority))
    }

    /// Changes the link's rate; false if the engine has stopped.
    pub fn set_rate(&self, rate: Bitrate) -> bool {
        self.send_command(Command::Rate(rate))
    }

    /// Changes what is known of the path behind the link; false if the engine has stopped.
    pub fn set_path(&self, path: PathEstimate) -> bool {
        self.send_command(Command::Path(path))
    }

    /// Changes windows, priority, weight, period and delay of a stream to those of a contract; false if
    /// the engine has stopped.
    pub fn set_terms(&self, stream: usize, terms: &Contract) -> bool {
        self.send_command(Command::Terms(stream, Box::new(*terms)))
    }

    /// Changes how many bytes may wait in the link, and the bound of its catch-up; false if the engine has
    /// stopped.
    pub fn set_bounds(&self, queue: Option<Bytes>, catch_up: Option<Bytes>) -> bool {
        self.send_command(Command::Bounds(queue, catch_up))
    }

    /// Stops the engine and waits for its thread; frames that still wait are not sent. Returns the last
    /// report.
    pub fn stop(mut self) -> LinkReport {
        self.halt();
        self.report()
    }
}

impl<O> Engine<O> {
    fn halt(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already; the last report stands.
            let _ = thread.join();
        }
    }
}

impl<O> Drop for Engine<O> {
    fn drop(&mut self) {
        self.halt();
    }
}

/// How long before an instant an engine of a link watches the clock. Above some tens of Mbit/s packets follow
/// each other closer than the precision with which a sleeping thread wakes up. This is only for links without
/// catch-up: a thread that watches the clock all the time gets only its share of a busy processor, and is
/// late by far more.
#[must_use]
pub fn spin(link: &LinkConfig) -> Duration {
    let exact = link.catch_up == Some(Bytes(0)) && link.rate > Bitrate::from_mbps(20);
    Duration::from_micros(if exact { 100 } else { 0 })
}

fn worker<P: Poller>(
    clock: Clock,
    link: &LinkConfig,
    port: P,
    commands: Receiver<Command<P::FrameConsumer>>,
    tap: Option<Box<dyn FateTap>>,
) -> Result<Worker<P>, EngineError> {
    let steps = Arc::<LinkSteps>::default();
    let heard = Arc::clone(&steps.heard);
    let mut at_work = Link::with_tree(link.params(), &link.tree);
    steps.publish(&mut at_work, std::iter::empty());
    Ok(Worker {
        clock,
        link: at_work,
        transmitter: Transmitter::new(clock.real(), transmission(link.sending))?,
        one_by_one: link.burst < link.mtu + link.mtu,
        departures: Departures::new(),
        streams: Vec::new(),
        port,
        commands,
        stop: Arc::new(AtomicBool::new(false)),
        report: Arc::new(Mutex::new(LinkReport::default())),
        tap,
        batch: Vec::with_capacity(BATCH),
        backpressure: Vec::new(),
        more: false,
        carries: false,
        removals_pending: 0,
        extensions: Extensions::hearing(heard),
        steps,
        pacing: Pacing::default(),
        send_cost: SendCost::default(),
        flushes: 0,
        name: link.name.clone(),
        report_at: Instant::ZERO,
    })
}

/// The way to send packets, from the configuration. AF_XDP is never chosen automatically: in copy mode it is
/// slower than GSO, and it bypasses the device's qdisc.
fn transmission(sending: Sending) -> TransmitOptions {
    let method = match sending {
        Sending::Auto | Sending::Gso => Method::Gso,
        Sending::Sendmmsg => Method::SendMmsg,
        Sending::Xdp => Method::Xdp,
        Sending::Null => Method::Null,
    };
    TransmitOptions { method, ..TransmitOptions::default() }
}
