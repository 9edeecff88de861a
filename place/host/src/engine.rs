//! The transmission engine: one thread that owns one link, empties the streams' rings, sends what
//! the link chooses when the link may send it, and reports what became of each frame.
//!
//! Inline placement (NI coprocessors, section 2.2.2): the engine is a thread of the process that
//! produces the frames. Scheduling and dispatch are one thread (2.2.3), so that a frame waits in
//! no second queue between the decision and the wire.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::{io, thread};

use selvedge_node::config::{LinkConfig, WhenFull};
use selvedge_node::link::{Link, LinkParams, RateMeter, Transmit, WAITING_MAX};
use selvedge_sched::StreamIndex;
use selvedge_stream::rtp::{self, stamp_time_left};
use selvedge_stream::{
    Contract, DropReason, Fate, Frame, GroupTracker, PACKET_HEADER_LEN, PacketCursor, PayloadSpan,
    Windows, pool, ring,
};
use selvedge_units::{Bitrate, Bytes, Instant, Span};

use crate::clock::Clock;
use crate::inlet::{IPV4_UDP, IPV6_UDP, Inlet, InletCounters, Outlet, Ready};
use crate::prompt;
use crate::report::{LinkReport, StreamReport};
use crate::socket::SocketError;
use crate::transmit::{Fate as Handed, Outgoing, TransmitOptions, Transmitter};
use crate::wake::{Sleeper, Waker, sleeper};

/// Packets handed to the kernel at once, where the link's burst allows.
const BATCH: usize = 64;
/// How often reports are made.
const REPORT_EVERY: Span = Span::from_millis(250);

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
            link: Link::new(params(link)),
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
            let overhead = if stream.to.is_ipv6() { IPV6_UDP } else { IPV4_UDP };
            worker.streams.push(Attached {
                index,
                outlet: Outlet { ring: consumer, pool: reader },
                to: stream.to,
                overhead,
                room: (stream.ring as usize).min(WAITING_MAX),
                cursor: Cursor::default(),
                send_errors: 0,
                sent: RateMeter::default(),
                sent_bytes: Bytes(0),
            });
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

struct Attached {
    index: StreamIndex,
    outlet: Outlet,
    to: SocketAddr,
    overhead: u64,
    room: usize,
    cursor: Cursor,
    send_errors: u64,
    sent: RateMeter,
    sent_bytes: Bytes,
}

/// Where the next packet of the frame being sent begins.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    payload: PayloadSpan,
    packet: u16,
    next: PacketCursor,
}

/// A packet chosen, not yet handed to the kernel.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    stream: usize,
    payload: PayloadSpan,
    at: usize,
    len: usize,
}

struct Worker {
    clock: Clock,
    link: Link,
    transmitter: Transmitter,
    /// The link grants no burst, so that each packet waits for its own time.
    one_by_one: bool,
    streams: Vec<Attached>,
    ready: Arc<Ready>,
    orders: Receiver<Control>,
    sleeper: Sleeper,
    stop: Arc<AtomicBool>,
    report: Arc<Mutex<LinkReport>>,
    tap: Option<Box<dyn FateTap>>,
    batch: Vec<Chosen>,
    /// Streams whose rings still hold frames because the link holds as many as it may.
    backpressure: Vec<usize>,
    name: String,
}

impl Worker {
    fn run(mut self) {
        let promptness = prompt::ask();
        tracing::debug!(link = self.name, ?promptness, "engine runs");
        let mut report_at = Instant::ZERO;
        while !self.stop.load(Ordering::Acquire) {
            let now = self.clock.now();
            self.obey(now);
            self.take_arrivals(now);
            let next = self.transmit();
            let now = self.clock.now();
            self.settle(now);
            if now >= report_at {
                self.publish(now);
                report_at = now + REPORT_EVERY;
            }
            if next > now {
                self.sleeper.wait_until(next.min(report_at));
            }
        }
        let now = self.clock.now();
        for stream in 0..self.streams.len() {
            self.link.clear_stream(now, self.streams[stream].index);
        }
        self.settle(now);
        self.publish(now);
    }

    fn obey(&mut self, now: Instant) {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Control::Windows(n, windows) => {
                    self.link.set_windows(self.streams[n].index, windows);
                }
                Control::Priority(n, priority) => {
                    self.link.set_priority(self.streams[n].index, priority);
                }
                Control::Rate(rate) => self.link.set_rate(now, rate),
            }
        }
    }

    fn take_arrivals(&mut self, now: Instant) {
        let (link, streams, full) = (&mut self.link, &mut self.streams, &mut self.backpressure);
        let mut look = |n: usize| {
            let stream = &mut streams[n];
            while link.queued(stream.index) < stream.room {
                let Some(frame) = stream.outlet.ring.pop() else { return false };
                link.handle_frame(now, stream.index, frame);
            }
            !stream.outlet.ring.is_empty()
        };
        full.retain(|&n| look(n));
        self.ready.take(|n| {
            if look(n) && !full.contains(&n) {
                full.push(n);
            }
        });
    }

    /// Sends all that may be sent now; returns when there is something to do again.
    fn transmit(&mut self) -> Instant {
        loop {
            let now = self.clock.now();
            let Some(next) = self.link.poll_transmit(now) else {
                self.flush();
                return self.link.next_event(now).unwrap_or(Instant::MAX);
            };
            let (packets, size, departure) = match self.choose_run(&next, now) {
                Ok(run) => run,
                Err(reason) => {
                    self.link.failed(now, reason);
                    continue;
                }
            };
            if packets == 0 {
                self.flush();
                return departure;
            }
            // One by one, a packet counts as sent when the kernel has it: were this thread held up
            // in between, the next packet would otherwise follow too closely.
            let now = if self.one_by_one {
                self.flush();
                self.clock.now()
            } else {
                now
            };
            let stream = &mut self.streams[next.stream.0 as usize];
            stream.sent.add(now, size);
            stream.sent_bytes += size;
            self.link.sent_run(now, packets, size);
            if self.batch.len() == BATCH {
                self.flush();
                self.settle(now);
                self.take_arrivals(now);
                if self.stop.load(Ordering::Relaxed) {
                    return now;
                }
            }
        }
    }

    /// Puts into the batch the packet that goes next, and those of the same frame behind it for
    /// which the link has a burst to grant. Returns how many, their size on the wire, and, if
    /// there are none, when the first may leave.
    fn choose_run(
        &mut self,
        next: &Transmit,
        now: Instant,
    ) -> Result<(u16, Bytes, Instant), DropReason> {
        let n = next.stream.0 as usize;
        let stream = &mut self.streams[n];
        let mut size = Bytes(0);
        let mut packets = 0;
        for packet in next.packet..next.frame.packets {
            let wanted = Transmit { packet, ..*next };
            let chosen = match stream.locate(n, &wanted) {
                Some(chosen) => chosen,
                // Those before it go; it is the first of the next run then, and fails.
                None if packets > 0 => break,
                None => return Err(DropReason::Unusable),
            };
            let with = size + Bytes(chosen.len as u64 + stream.overhead);
            let departure = self.link.departure(with);
            let fits = departure <= now && (packets == 0 || with <= self.link.params().burst);
            if !fits {
                return Ok((packets, size, departure));
            }
            stream.stamp(&chosen, next.deadline, now);
            self.batch.push(chosen);
            packets += 1;
            size = with;
            if self.one_by_one || self.batch.len() == BATCH {
                break;
            }
        }
        Ok((packets, size, now))
    }

    fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let unset = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut packets = [Outgoing { to: unset, bytes: &[] }; BATCH];
        for (packet, chosen) in packets.iter_mut().zip(&self.batch) {
            let stream = &self.streams[chosen.stream];
            let bytes = stream.outlet.pool.bytes(chosen.payload).unwrap_or_default();
            let bytes = bytes.get(chosen.at..chosen.at + chosen.len).unwrap_or_default();
            *packet = Outgoing { to: stream.to, bytes };
        }
        let handed = self.transmitter.send_batch(&packets[..self.batch.len()]);
        let failed: u64 = handed.iter().map(|fate| u64::from(*fate != Handed::Sent)).sum();
        if failed > 0 {
            for (chosen, fate) in self.batch.iter().zip(handed) {
                self.streams[chosen.stream].send_errors += u64::from(*fate != Handed::Sent);
            }
        }
        self.batch.clear();
    }

    fn settle(&mut self, now: Instant) {
        while let Some(settled) = self.link.poll_settled() {
            let n = settled.stream.0 as usize;
            if settled.frame.payload.len > 0 {
                // Refused only for a span that was released before, which settling once rules out.
                let _ = self.streams[n].outlet.pool.release(settled.frame.payload);
            }
            if let Some(tap) = &mut self.tap {
                tap.settled(n, &settled.frame, settled.fate, now);
            }
        }
    }

    fn publish(&mut self, now: Instant) {
        let streams = self.streams.iter().map(|stream| {
            let sent = (stream.sent_bytes, stream.sent.last_second(now));
            StreamReport::of(&self.link, stream.index, now, sent, stream.send_errors)
        });
        let report = LinkReport::of(&self.name, &self.link, streams.collect(), now);
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

impl Attached {
    /// Finds the packet to send in the pool.
    fn locate(&mut self, stream: usize, next: &Transmit) -> Option<Chosen> {
        let payload = next.frame.payload;
        let bytes = self.outlet.pool.bytes(payload).ok()?;
        if self.cursor.payload != payload || self.cursor.packet > next.packet {
            self.cursor = Cursor { payload, ..Cursor::default() };
        }
        loop {
            let Cursor { packet, next: mut walk, .. } = self.cursor;
            let at = walk.offset() + PACKET_HEADER_LEN;
            let len = walk.next(bytes)?.len();
            if packet == next.packet {
                return Some(Chosen { stream, payload, at, len });
            }
            self.cursor.packet += 1;
            self.cursor.next = walk;
        }
    }

    fn stamp(&mut self, chosen: &Chosen, deadline: Instant, now: Instant) {
        let left = (deadline.0 as i64).saturating_sub(now.0 as i64) / 1_000_000;
        let left = left.clamp(i64::from(i16::MIN), i64::from(i16::MAX)) as i16;
        if let Ok(bytes) = self.outlet.pool.bytes_mut(chosen.payload)
            && let Some(packet) = bytes.get_mut(chosen.at..chosen.at + chosen.len)
        {
            stamp_time_left(packet, left);
        }
    }
}
