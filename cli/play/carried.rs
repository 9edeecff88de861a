//! Receiving a stream that a protocol stack carries: each message of its connections is a packet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use selvedge_cli_terminal::Failure;
use selvedge_comm_stack::endpoint::{Connection, Endpoint, RecvError};
use selvedge_data_receive::{MeterSnapshot, StreamMeter};
use selvedge_data_stream::ReceiverReport;
use selvedge_node::PeersWatch;
use selvedge_node::control_server::StackControlServer;
use selvedge_os::clock::Clock;
use selvedge_place_engine::receive::PacketTap;
use selvedge_units::{Duration, Instant};

/// Connections at once: one sends, others begin while it is not yet known to be dead.
const CONNECTIONS_MAX: usize = 16;
/// A connection that is silent for this long makes room for another.
const SILENT: Duration = Duration::from_secs(1);
/// How long threads wait at once before they check whether to stop.
const WAIT: Duration = Duration::from_millis(50);
/// How often the sender gets a report of the arrivals.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// Replaces the time of the last arrival: the connection is given up.
const GIVEN_UP: u64 = u64::MAX;
/// How long the last packets in transit may take at the end, and messages of one connection then.
const LAST: (Duration, usize) = (Duration::from_millis(5), 8192);

/// Receives one stream until it is stopped.
pub(super) struct CarriedReceiver {
    shared: Arc<Shared>,
    _control_server: StackControlServer,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    endpoint: Endpoint,
    clock: Clock,
    meter: Mutex<StreamMeter>,
    tap: Mutex<Option<Box<dyn PacketTap>>>,
    stop: AtomicBool,
    watch: Mutex<PeersWatch>,
}

impl CarriedReceiver {
    /// Takes the connections of this endpoint; `watch` follows the keys that it allows.
    pub(super) fn start(
        clock: Clock,
        endpoint: Endpoint,
        watch: PeersWatch,
        meter: StreamMeter,
        tap: Option<Box<dyn PacketTap>>,
    ) -> Result<Self, Failure> {
        let shared = Arc::new(Shared {
            endpoint,
            clock,
            meter: Mutex::new(meter),
            tap: Mutex::new(tap),
            stop: AtomicBool::new(false),
            watch: Mutex::new(watch),
        });
        let seen = Arc::clone(&shared);
        let control_server = StackControlServer::open("play", move |each| each(&seen.endpoint));
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("stack receive".to_owned());
        let thread = Some(thread.spawn(move || own.accept())?);
        Ok(Self { shared, _control_server: control_server, thread })
    }

    pub(super) fn snapshot(&self) -> MeterSnapshot {
        self.shared.meter.lock().snapshot()
    }

    /// Takes the waiting packets, stops, and settles the frames whose time is up.
    pub(super) fn stop(mut self) -> MeterSnapshot {
        self.halt();
        let mut meter = self.shared.meter.lock();
        meter.stop(self.shared.clock.now());
        meter.snapshot()
    }

    fn halt(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already; the measurements stand.
            let _ = thread.join();
        }
    }
}

impl Drop for CarriedReceiver {
    fn drop(&mut self) {
        self.halt();
    }
}

impl Shared {
    /// A thread for each connection, as they come.
    fn accept(&self) {
        thread::scope(|scope| {
            let mut readers: Vec<(thread::ScopedJoinHandle<'_, ()>, Arc<AtomicU64>)> = Vec::new();
            while !self.stop.load(Ordering::Acquire) {
                let came = self.endpoint.accept(WAIT);
                self.meter.lock().handle_timeout(self.clock.now());
                let changed = self.watch.lock().poll(self.clock.now());
                changed.into_iter().for_each(|peers| self.endpoint.allow(&peers));
                readers.retain(|(reader, _)| !reader.is_finished());
                let Some(connection) = came else { continue };
                let peer = connection.peer();
                let now = self.clock.now();
                if readers.len() >= CONNECTIONS_MAX {
                    // Most often its sender was killed.
                    let heard = |at: &usize| readers[*at].1.load(Ordering::Relaxed);
                    let longest = (0..readers.len()).min_by_key(heard);
                    let Some(longest) = longest.filter(|at| now.since(Instant(heard(at))) > SILENT)
                    else {
                        tracing::warn!(%peer, "too many connections at once; this one is closed");
                        continue;
                    };
                    readers.swap_remove(longest).1.store(GIVEN_UP, Ordering::Relaxed);
                }
                tracing::info!(%peer, "stack connected");
                let heard = Arc::new(AtomicU64::new(now.0));
                let observed = Arc::clone(&heard);
                readers.push((scope.spawn(move || self.read(&connection, &observed)), heard));
            }
        });
    }

    fn report(&self) -> ReceiverReport {
        let seen = self.meter.lock().snapshot();
        ReceiverReport {
            packets: seen.packets,
            frames: seen.frames,
            complete: seen.complete,
            decodable: seen.decodable.unwrap_or(seen.complete),
        }
    }

    /// Reads until the connection ends, or is given up; sets `heard` to the time of the last packet.
    fn read(&self, connection: &Connection, heard: &AtomicU64) {
        let mut left = LAST.1;
        let (before, mut reported) = (self.report(), self.clock.now());
        loop {
            let stopping = self.stop.load(Ordering::Acquire);
            if self.clock.now().since(reported) >= REPORT_EVERY {
                reported = self.clock.now();
                let report = self.report().since(before);
                // If a report can't be sent, the next one replaces it.
                let _ = connection.send(&report.to_bytes(), Duration::ZERO);
            }
            match connection.take(if stopping { LAST.0 } else { WAIT }) {
                Ok(packet) => {
                    let now = self.clock.now();
                    heard.fetch_max(now.0, Ordering::Relaxed);
                    let mut tap = self.tap.lock();
                    if let Some(tap) = tap.as_mut() {
                        tap.packet(0, now, &packet);
                    }
                    let mut meter = self.meter.lock();
                    meter.handle_packet(now, &packet);
                    if let Some(tap) = tap.as_mut() {
                        while let Some((seq, decodable)) = meter.poll_settled() {
                            tap.settled(0, seq, decodable);
                        }
                    }
                }
                Err(RecvError::Timeout)
                    if !stopping && heard.load(Ordering::Relaxed) < GIVEN_UP => {}
                Err(RecvError::Timeout) => return,
                Err(why) => {
                    tracing::info!(peer = %connection.peer(), %why, "stack disconnected");
                    return;
                }
            }
            left -= usize::from(stopping);
            if left == 0 {
                return;
            }
        }
    }
}
