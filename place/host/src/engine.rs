//! The transmission engine: one thread that owns one link, empties the streams' rings, sends what
//! the link chooses when the link may send it, and reports what became of each frame.
//!
//! Inline placement (NI coprocessors, section 2.2.2): the engine is a thread of the process that
//! produces the frames. Scheduling and dispatch are one thread (2.2.3), so that a frame waits in
//! no second queue between the decision and the wire.

mod attached;
mod worker;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::{io, thread};

use selvedge_node::config::{LinkConfig, WhenFull};
use selvedge_node::link::{Link, LinkParams};
use selvedge_stream::{Contract, Fate, Frame, GroupTracker, Windows, pool, ring, rtp};
use selvedge_units::{Bitrate, Bytes, Instant, Span};

use self::attached::Attached;
use self::worker::{BATCH, Worker};
use crate::clock::Clock;
use crate::inlet::{Inlet, InletCounters, Outlet, Ready};
use crate::report::LinkReport;
use crate::socket::SocketError;
use crate::transmit::{TransmitOptions, Transmitter};
use crate::wake::{Waker, sleeper};

/// A stream as the engine needs it.
#[derive(Clone, Debug)]
pub struct StreamParams {
    /// What it promises.
    pub contract: Contract,
    /// Where its packets go.
    pub to: SocketAddr,
    /// Frames that may wait.
    pub ring: u32,
    /// Bytes of payload that may wait.
    pub pool: Bytes,
    /// What its source does when there is no room.
    pub full: WhenFull,
    /// The RTP source identifier.
    pub ssrc: u32,
}

/// What the engine is asked to do while it runs.
#[derive(Debug)]
enum Control {
    Windows(usize, Windows),
    Priority(usize, i32),
    Rate(Bitrate),
}

/// Follows every frame of a link to its end; called on the engine's thread, so it must be quick.
pub trait FateTap: Send {
    /// The link is done with a frame of the stream with this number.
    fn settled(&mut self, stream: usize, frame: &Frame, fate: Fate, now: Instant);
}

/// Why an engine can't start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// No event or thread.
    #[error("can't start the engine's thread: {0}")]
    System(#[from] io::Error),
}

/// A running engine; dropped, it stops.
pub struct Engine {
    control: Sender<Control>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    report: Arc<Mutex<LinkReport>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts an engine for a link and its streams; returns the sources' ends in their order.
    ///
    /// # Errors
    /// [`EngineError`] if a socket, an event or a thread can't be had.
    pub fn start(
        clock: Clock,
        link: &LinkConfig,
        streams: &[StreamParams],
        tap: Option<Box<dyn FateTap>>,
    ) -> Result<(Self, Vec<Inlet>), EngineError> {
        // Above some tens of Mbit/s packets follow closer than a sleeper wakes up exactly.
        let spin = if link.rate > Bitrate::from_mbps(20) { 100 } else { 0 };
        let (sleeper, waker) = sleeper(clock, Span::from_micros(spin))?;
        let ready = Ready::new(streams.len());
        let stop = Arc::new(AtomicBool::new(false));
        let (control, orders) = mpsc::channel();
        let mut worker = Worker {
            clock,
            link: Link::with_tree(params(link), &link.tree),
            transmitter: Transmitter::new(clock, TransmitOptions::default())?,
            one_by_one: link.burst < link.mtu + link.mtu,
            streams: Vec::with_capacity(streams.len()),
            ready: Arc::clone(&ready),
            orders,
            sleeper,
            stop: Arc::clone(&stop),
            report: Arc::new(Mutex::new(LinkReport::default())),
            tap,
            batch: Vec::with_capacity(BATCH),
            backpressure: Vec::new(),
            name: link.name.clone(),
        };
        let mut inlets = Vec::with_capacity(streams.len());
        for (n, stream) in streams.iter().enumerate() {
            let index = worker.link.add_stream(stream.contract);
            let (producer, consumer) = ring(stream.ring as usize);
            let (writer, reader) = pool(stream.pool);
            let outlet = Outlet { ring: consumer, pool: reader };
            let attached = Attached::new(index, stream, outlet);
            let overhead = attached.overhead;
            worker.streams.push(attached);
            inlets.push(Inlet {
                ring: producer,
                pool: writer,
                clock,
                waker: waker.clone(),
                ready: Arc::clone(&ready),
                stream: n,
                full: stream.full,
                overhead,
                payload_max: payload_max(link.mtu, overhead),
                ssrc: stream.ssrc,
                counters: Arc::new(InletCounters::default()),
                arrivals: None,
                stop: Arc::clone(&stop),
                group: GroupTracker::default(),
                seq: 0,
                sequence: 0,
            });
        }
        let report = Arc::clone(&worker.report);
        worker.publish(clock.now());
        let thread = thread::Builder::new()
            .name(format!("link {}", link.name))
            .spawn(move || worker.run())?;
        Ok((Self { control, waker, stop, report, thread: Some(thread) }, inlets))
    }

    /// The newest report.
    #[must_use]
    pub fn report(&self) -> LinkReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tell(&self, order: Control) -> bool {
        let told = self.control.send(order).is_ok();
        self.waker.wake();
        told
    }

    /// Changes a stream's window; false if the engine has stopped.
    pub fn set_windows(&self, stream: usize, windows: Windows) -> bool {
        self.tell(Control::Windows(stream, windows))
    }

    /// Changes a stream's priority; false if the engine has stopped.
    pub fn set_priority(&self, stream: usize, priority: i32) -> bool {
        self.tell(Control::Priority(stream, priority))
    }

    /// Changes the link's rate; false if the engine has stopped.
    pub fn set_rate(&self, rate: Bitrate) -> bool {
        self.tell(Control::Rate(rate))
    }

    /// Stops the engine and waits for its thread; what still waits is not sent. Returns the last
    /// report.
    pub fn stop(mut self) -> LinkReport {
        self.halt();
        self.report()
    }

    fn halt(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already; the last report stands.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.halt();
    }
}

/// The largest RTP payload that fits a packet of `mtu` with our headers.
#[must_use]
pub const fn payload_max(mtu: Bytes, overhead: u64) -> usize {
    (mtu.0 as usize).saturating_sub(overhead as usize + rtp::packet_len(0))
}

fn params(link: &LinkConfig) -> LinkParams {
    LinkParams {
        discipline: link.discipline,
        selection: link.selection,
        rate: link.rate,
        burst: link.burst,
        mtu: link.mtu,
        queue: link.queue,
    }
}
