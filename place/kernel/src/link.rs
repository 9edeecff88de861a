//! A node's link in the kernel. The device gets the qdisc, and frames go into its streams' queues. The kernel
//! reports the fate of each packet, so that the link's report is like an engine's.
//!
//! A source's thread hands its packets to the stream's own socket, which the kernel recognises by its cookie.
//! Each packet bears its frame's deadline (`SO_TXTIME`) and its number (`SO_MARK`). There is no second queue
//! before the kernel's, and no thread that schedules; one thread reads the kernel's reports (`bpf/queues.h`,
//! `tell_fate`). NI coprocessors, section 3, with the kernel in the card's place.

mod account;
mod frame_queue;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use libbpf_rs::{MapHandle, RingBufferBuilder};
use parking_lot::{Mutex, MutexGuard};
use selvedge_control_config::LinkConfig;
use selvedge_data_link::default_catch_up;
use selvedge_data_memory::{PoolReader, pool, ring};
use selvedge_data_stream::{Contract, Counts, Spec, Windows};
use selvedge_os::clock::Clock;
use selvedge_os::latency;
use selvedge_os::netlink::Netlink;
use selvedge_os::route;
use selvedge_os_bpf::io_error;
use selvedge_place_engine::engine::{Stage, StreamParams};
use selvedge_place_engine::frame_producer::{FrameProducer, FrameProducerParams};
use selvedge_place_engine::lateness::{Pacing, Use};
use selvedge_place_engine::link_steps::LinkSteps;
use selvedge_place_engine::report::{LinkReport, SendCost, StreamReport};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};
use socket2::Socket;
use thiserror::Error;

use self::account::{PacketFate, StreamAccount};
use self::frame_queue::{DueTerms, KernelFrameQueue, open};
use crate::attach::{NodeQdisc, attach_for_node};
use crate::attached::Attached;
use crate::error::{AttachError, OpenError};
use crate::filter::Filter;
use crate::object::{FATES_MAP, map};
use crate::setup::{Setup, StreamSetup};

/// The interval of reports.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// The longest wait of the reader of fates, and so the time to stop it.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// A frame that the kernel no longer holds, and whose fate it has not reported for this long, is lost.
const SILENCE: Duration = Duration::from_secs(1);
/// The most waiting packets of a stream: its ring bounds them, in frames.
const PACKETS_MAX: u32 = 1_000_000;

/// Why a link can't be in the kernel.
#[derive(Debug, Error)]
pub enum LinkError {
    /// There is no route to a receiver.
    #[error("stream \"{stream}\": {why}; set up a route to it")]
    NoRoute {
        /// The stream.
        stream: String,
        /// The kernel's error.
        why: io::Error,
    },
    /// The streams leave by several devices.
    #[error(
        "its streams leave by the devices {0}, a link in the kernel has one; give each \
         device a link of its own, or name one with device ="
    )]
    Devices(String),
    /// The device was not given the qdisc.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A socket can't be opened, or an option is missing.
    #[error("stream \"{stream}\": {what}: {why}")]
    Socket {
        /// The stream.
        stream: String,
        /// The operation.
        what: &'static str,
        /// The error.
        why: io::Error,
    },
    /// The kernel's reports can't be read.
    #[error("reading what became of packets: {0}")]
    Fates(io::Error),
    /// The qdisc can't be read.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// The state that the threads share.
struct Shared {
    name: String,
    discipline: &'static str,
    clock: Clock,
    rate: Mutex<Bitrate>,
    streams: Vec<KernelStream>,
    report: Mutex<LinkReport>,
    pacing: Mutex<KernelPacing>,
    steps: Arc<LinkSteps>,
    stop: Arc<AtomicBool>,
}

/// A stream, as the thread that reads reports and those that change contracts see it; its producer takes no lock.
struct KernelStream {
    account: Mutex<StreamAccount>,
    terms: Arc<DueTerms>,
}

impl KernelStream {
    /// The stream, and the queue of its producer.
    fn new(
        clock: Clock,
        spec: &Spec,
        socket: Socket,
        pool: PoolReader,
        stop: &Arc<AtomicBool>,
    ) -> (Self, KernelFrameQueue) {
        let settled = Arc::<AtomicUsize>::default();
        let terms = Arc::new(DueTerms::new(&spec.contract));
        let (producer, consumer) = ring(2 * spec.ring as usize);
        let queue = KernelFrameQueue {
            clock,
            socket,
            to: spec.to,
            ring: spec.ring as usize,
            pool,
            terms: Arc::clone(&terms),
            settled: Arc::clone(&settled),
            offered: 0,
            handovers: producer,
            last_deadline: Instant::ZERO,
            stop: Arc::clone(stop),
        };
        let account = Mutex::new(StreamAccount::new(spec.contract, consumer, settled));
        (Self { account, terms }, queue)
    }

    /// Its account, with all that its producer has handed over so far.
    fn account(&self) -> MutexGuard<'_, StreamAccount> {
        let mut account = self.account.lock();
        account.read_handovers();
        account
    }
}

/// How late packets were sent that waited for the link, and the bytes that the rate allowed while packets
/// waited.
#[derive(Default)]
struct KernelPacing {
    pacing: Pacing,
    /// How long packets had waited at the last query of the kernel.
    waited: Duration,
    could_send: Bytes,
}

/// A link that the kernel schedules. When dropped, it gives the device back its own qdisc; packets that wait
/// then are not sent.
pub struct KernelLink {
    shared: Arc<Shared>,
    qdisc: Option<(NodeQdisc, Attached)>,
    device: String,
    thread: Option<JoinHandle<()>>,
}

impl KernelLink {
    /// Gives the link's device the qdisc: the configured one, or the one by which the streams' packets leave.
    /// Returns the frame producers, in the order of the streams.
    ///
    /// # Errors
    /// [`LinkError`]; nothing has changed then.
    pub fn start(
        clock: Clock,
        link: &LinkConfig,
        streams: &[(&str, StreamParams)],
    ) -> Result<(Self, Vec<FrameProducer>), LinkError> {
        let device = match &link.device {
            Some(device) => device.clone(),
            None => device_of(streams)?,
        };
        let sockets = streams
            .iter()
            .map(|(name, params)| open(name, params.spec.to, params.spec.pool))
            .collect::<Result<Vec<_>, _>>()?;
        let delays = streams.iter().filter_map(|(_, params)| params.spec.contract.delay);
        let catch_up =
            link.catch_up.unwrap_or_else(|| default_catch_up(link.rate, link.mtu, delays.min()));
        let setup = Setup {
            discipline: link.discipline,
            tree: link.tree.clone(),
            rate: Some(link.rate),
            // A packet goes as soon as the link is free: the kernel adds that packet to both.
            burst: Bytes(link.burst.0.saturating_sub(link.mtu.0)) / link.rate,
            catch_up: catch_up / link.rate,
            streams: streams
                .iter()
                .zip(&sockets)
                .map(|((name, params), (_, cookie))| StreamSetup {
                    limit: PACKETS_MAX,
                    filters: vec![Filter::Cookie(*cookie)],
                    ..StreamSetup::new(name, params.spec.contract)
                })
                .collect(),
            ..Setup::default()
        };
        let kept = attach_for_node(&device, &setup)?;
        let attached = Attached::open(&device)?;
        let fates = map(kept.object(), FATES_MAP)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
            .and_then(|map| MapHandle::try_from(&map).map_err(io_error))
            .map_err(LinkError::Fates)?;

        let (stop, steps) = (Arc::new(AtomicBool::new(false)), Arc::<LinkSteps>::default());
        let mut kernel_streams = Vec::with_capacity(streams.len());
        let mut frame_producers = Vec::with_capacity(streams.len());
        for ((_, params), (socket, _)) in streams.iter().zip(sockets) {
            let (writer, reader) = pool(params.spec.pool);
            let (stream, queue) = KernelStream::new(clock, &params.spec, socket, reader, &stop);
            let frame_producer =
                FrameProducerParams::new(clock, &params.spec, link.mtu, params.ssrc);
            let mut frame_producer =
                FrameProducer::new(&frame_producer, Box::new(queue), writer, Arc::clone(&stop));
            let number = kernel_streams.len();
            frame_producer.set_steps(Arc::clone(&steps), number, params.spec.contract);
            frame_producers.push(frame_producer);
            kernel_streams.push(stream);
        }
        let shared = Arc::new(Shared {
            name: link.name.clone(),
            discipline: link.discipline.name(),
            clock,
            rate: Mutex::new(link.rate),
            streams: kernel_streams,
            report: Mutex::default(),
            pacing: Mutex::default(),
            steps,
            stop,
        });
        shared.publish(&attached)?;
        let thread = reader(Arc::clone(&shared), fates, Attached::open(&device)?)?;
        let qdisc = Some((kept, attached));
        Ok((Self { shared, qdisc, device, thread: Some(thread) }, frame_producers))
    }

    /// The device that has the qdisc.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The newest report. Frames are counted as in the engine; the scheduler's counters are those of the
    /// kernel, which schedules packets.
    #[must_use]
    pub fn report(&self) -> LinkReport {
        let mut report = self.shared.report.lock().clone();
        report.extensions = self.shared.steps.reports();
        report
    }

    /// Its steps: at arrival in front of the kernel, at a miss when the kernel reports it.
    #[must_use]
    pub fn steps(&self) -> &Arc<LinkSteps> {
        &self.shared.steps
    }

    /// Changes window, priority, period and delay of a stream to those of a contract, from its next packet
    /// on; false if that is not possible (windows by kind, no such stream). Its weight stays.
    pub fn set_terms(&self, stream: usize, terms: &Contract) -> bool {
        let Some(((_, qdisc), stream_state)) =
            self.qdisc.as_ref().zip(self.shared.streams.get(stream))
        else {
            return false;
        };
        let mut account = stream_state.account();
        let before = account.contract;
        let Contract { period, delay, windows, priority, .. } = *terms;
        account.contract = Contract { period, delay, windows, priority, ..before };
        let applied = !matches!(account.contract.windows, Windows::PerKind(_))
            && qdisc.renew(stream, &account.contract).is_ok();
        if applied {
            stream_state.terms.set(&account.contract);
        } else {
            account.contract = before;
        }
        applied
    }

    /// Changes the link's rate, at once.
    pub fn set_rate(&self, rate: Bitrate) -> bool {
        let applied = self.qdisc.as_ref().is_some_and(|(_, qdisc)| qdisc.set_rate(rate).is_ok());
        if applied {
            *self.shared.rate.lock() = rate;
        }
        applied
    }

    /// Gives the device back its own qdisc; returns the last report.
    pub fn stop(mut self) -> LinkReport {
        self.halt();
        self.report()
    }

    fn halt(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let Some((kept, attached)) = self.qdisc.take() else { return };
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already; the last report stands.
            let _ = thread.join();
        }
        let _ = self.shared.publish(&attached);
        if let Err(why) = kept.restore() {
            tracing::warn!(device = self.device, %why, "the qdisc stays");
        }
    }
}

impl Drop for KernelLink {
    fn drop(&mut self) {
        self.halt();
    }
}

/// The one device by which all packets leave.
fn device_of(streams: &[(&str, StreamParams)]) -> Result<String, LinkError> {
    let of = |stream: &str| {
        let stream = stream.to_owned();
        move |why: io::Error| LinkError::NoRoute { stream, why }
    };
    let mut devices = BTreeSet::new();
    for (name, params) in streams {
        let netlink = Netlink::open().map_err(of(name))?;
        let route = route::to(&netlink, params.spec.to.ip()).map_err(of(name))?;
        devices.insert(netlink.name(route.device).map_err(of(name))?);
    }
    match (devices.len(), devices.first()) {
        (1, Some(device)) => Ok(device.clone()),
        _ => {
            let devices: Vec<String> = devices.into_iter().collect();
            Err(LinkError::Devices(devices.join(", ")))
        }
    }
}

/// Starts the thread that reads the kernel's reports, and publishes its own.
fn reader(
    shared: Arc<Shared>,
    fates: MapHandle,
    attached: Attached,
) -> Result<JoinHandle<()>, LinkError> {
    let read = move || {
        // A stream's ring is full until the fates of its frames are known.
        let promptness = latency::ask();
        tracing::debug!(link = shared.name, ?promptness);
        let observer = Arc::clone(&shared);
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            observer.take(bytes);
            0
        };
        let added = builder.add(&fates, take).map(|_| ());
        let ring = match added.and_then(|()| builder.build()) {
            Ok(ring) => ring,
            Err(why) => {
                tracing::error!(link = shared.name, %why, "what becomes of packets can't be read");
                shared.stop.store(true, Ordering::Release);
                return;
            }
        };
        let mut report_at = Instant::ZERO;
        while !shared.stop.load(Ordering::Acquire) {
            // An interrupted wait only leads to another check.
            let _ = ring.poll(POLL_EVERY.into());
            let now = shared.clock.now();
            if now >= report_at {
                if let Err(why) = shared.publish(&attached) {
                    tracing::warn!(link = shared.name, %why, "the kernel's counters can't be read");
                }
                report_at = now + REPORT_EVERY;
            }
        }
        let _ = ring.consume();
    };
    let name = "kernel link".to_owned();
    thread::Builder::new().name(name).spawn(read).map_err(LinkError::Fates)
}

impl Shared {
    /// Takes one `struct fate`.
    fn take(&self, bytes: &[u8]) {
        let Some(happened) = PacketFate::read(bytes) else { return };
        if let Some(late) = happened.late {
            self.pacing.lock().pacing.late(late);
        }
        let stream = happened.stream as usize;
        let Some(stream_state) = self.streams.get(stream) else { return };
        let missed = {
            let mut account = stream_state.account();
            account.settle(&happened);
            std::mem::take(&mut account.missed)
        };
        if self.steps.is_used() {
            for frame in &missed {
                self.steps.run(Stage::Miss, self.clock, stream, frame);
            }
        }
    }

    /// Makes a new report.
    fn publish(&self, attached: &Attached) -> Result<(), OpenError> {
        // The kernel's counts come first: it has already reported the packets that it no longer holds then.
        let asked = self.clock.now();
        let kernel = attached.report()?;
        let now = self.clock.now();
        let mut streams = Vec::with_capacity(self.streams.len());
        let (mut offered, mut sent) = (Bitrate(0), Bitrate(0));
        let (mut sent_bytes, mut backlog) = (Bytes(0), Bytes(0));
        for ((number, stream), counted) in self.streams.iter().enumerate().zip(&kernel.streams) {
            let mut account = stream.account();
            if counted.waiting == 0 {
                account.abandon_before(asked - SILENCE, now);
            }
            offered = Bitrate(offered.0 + account.offered.last_second(now).0);
            sent = Bitrate(sent.0 + account.sent.last_second(now).0);
            sent_bytes += account.sent_bytes;
            backlog += account.backlog();
            streams.push(StreamReport {
                number,
                contract: account.contract,
                counts: Counts {
                    totals: account.ledger.totals().clone(),
                    counters: counted.counters,
                    sent_bytes: account.sent_bytes,
                    send_errors: account.send_errors,
                },
                recent: account.ledger.recent(now),
                queued: account.waiting(),
                sent: account.sent.last_second(now),
                sets: Vec::new(),
            });
        }
        let rate = *self.rate.lock();
        let mut pacing = self.pacing.lock();
        let waited = kernel.waited - pacing.waited;
        pacing.could_send += rate * waited;
        pacing.waited = kernel.waited;
        let used = Use { sent: sent_bytes, could_send: pacing.could_send };
        *self.report.lock() = LinkReport {
            copied: Bytes(0),
            name: self.name.clone(),
            discipline: self.discipline,
            rate,
            offered,
            sent,
            sent_bytes,
            could_send: used.could_send,
            recent: pacing.pacing.recent(now, used),
            missed_departures: 0,
            send_cost: SendCost::default(),
            backlog,
            streams,
            extensions: Vec::new(),
            at: asked,
        };
        Ok(())
    }
}
