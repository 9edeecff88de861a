//! Receiving streams and measuring them: one thread, one bound UDP socket per stream.
//!
//! Each stream's datagrams go to a [`StreamMeter`] and, if there is one, to a [`PacketTap`]; snapshots can be
//! taken at any time. A sender that numbers its packets is reported when they arrive. Packets are timed by the kernel's stamps, so that waiting for this thread does not
//! count as delay of the network.

mod gathering;
mod reports;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use selvedge_data_receive::{MeterSnapshot, StreamMeter};
use selvedge_units::{Bytes, Duration, Instant};

pub use self::gathering::{GatheredFrame, OpenFrames};
use self::reports::Reports;
use selvedge_os::batch::{BATCH, Batch, Datagram};
use selvedge_os::clock::{Clock, timespec};
use selvedge_os::eventfd::EventFd;
use selvedge_os::socket::{self, Buffer, SocketError};

/// Sees every datagram on arrival, on the receiver's thread; its work delays the next ones.
pub trait PacketTap: Send {
    /// A datagram of the stream with this index arrived at `now`.
    fn packet(&mut self, stream: usize, now: Instant, bytes: &[u8]);

    /// A frame of a tagged stream is settled: it can be decoded on time, or not. Its packets were passed
    /// before.
    fn settled(&mut self, _stream: usize, _seq: u32, _decodable: bool) {}
}

/// A stream to receive.
#[derive(Debug)]
pub struct StreamReception {
    /// Where to listen; port 0 for any.
    pub listen: SocketAddr,
    /// Its meter.
    pub meter: StreamMeter,
}

/// The settings of a receiver.
#[derive(Default)]
pub struct ReceiveOptions {
    /// Receive buffer to request, per socket; `None`: 8 MB.
    pub receive_buffer: Option<Bytes>,
    /// An observer of the datagrams.
    pub tap: Option<Box<dyn PacketTap>>,
}

/// The longest sleep of the thread before it checks whether a meter has a frame to give up.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Batches that one socket may read before the others have their turn.
const TURN_MAX: usize = 4;
/// The same, when the receiver stops: some 8000 datagrams.
const LAST_TURN: usize = 256;

/// Receives streams until it is stopped or dropped.
#[derive(Debug)]
pub struct Receiver {
    addresses: Vec<SocketAddr>,
    streams: Arc<Mutex<Vec<Stream>>>,
    stop: Arc<EventFd>,
    clock: Clock,
    thread: Option<JoinHandle<Option<Tap>>>,
}

type Tap = Box<dyn PacketTap>;

#[derive(Debug)]
struct Stream {
    meter: StreamMeter,
    drops: u64,
}

impl Receiver {
    /// Binds all sockets and starts the thread. Instants are those of `clock`.
    ///
    /// # Errors
    /// [`SocketError`]; nothing is left open then.
    pub fn start(
        clock: Clock,
        receptions: Vec<StreamReception>,
        options: ReceiveOptions,
    ) -> Result<Self, SocketError> {
        let mut sockets = Vec::with_capacity(receptions.len());
        let mut addresses = Vec::with_capacity(receptions.len());
        let mut streams = Vec::with_capacity(receptions.len());
        for StreamReception { listen, meter } in receptions {
            let (socket, address) = socket::open_bound(listen)?;
            let size = options.receive_buffer.unwrap_or(Bytes(8_000_000));
            socket::set_buffer(&socket, Buffer::Receive, size);
            // Both only refine the measurement: without them, packets are timed when the thread wakes, and
            // drops at the socket count as losses only.
            let drops = socket::set_int(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
            for (option, set) in [("stamps", socket::request_stamps(&socket)), ("drops", drops)] {
                if let Err(error) = set {
                    tracing::debug!(option, %error, "socket option refused");
                }
            }
            sockets.push(socket);
            addresses.push(address);
            streams.push(Stream { meter, drops: 0 });
        }
        let streams = Arc::new(Mutex::new(streams));
        let stop = Arc::new(EventFd::new().map_err(SocketError::Open)?);
        let worker = Worker {
            clock,
            sockets,
            streams: Arc::clone(&streams),
            stop: Arc::clone(&stop),
            tap: options.tap,
            reports: addresses.iter().map(|_| Reports::new(clock)).collect(),
        };
        let thread = std::thread::Builder::new()
            .name("receive".into())
            .spawn(move || worker.run())
            .map_err(SocketError::Thread)?;
        Ok(Self { addresses, streams, stop, clock, thread: Some(thread) })
    }

    /// Where the streams are received, in the order in which they were given.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The measurements of each stream so far, in the order in which they were given.
    #[must_use]
    pub fn snapshots(&self) -> Vec<MeterSnapshot> {
        self.streams.lock().iter().map(Stream::snapshot).collect()
    }

    /// Reads the datagrams that have arrived, stops, settles the frames whose time is up, and returns the last
    /// snapshots and the tap.
    #[must_use]
    pub fn stop(mut self) -> (Vec<MeterSnapshot>, Option<Box<dyn PacketTap>>) {
        let tap = self.join();
        let mut streams = self.streams.lock();
        let now = self.clock.now();
        streams.iter_mut().for_each(|stream| stream.meter.stop(now));
        (streams.iter().map(Stream::snapshot).collect(), tap)
    }

    fn join(&mut self) -> Option<Tap> {
        self.stop.ring();
        self.thread.take().and_then(|thread| match thread.join() {
            Ok(tap) => tap,
            Err(_) => {
                tracing::error!("the receiver's thread panicked");
                None
            }
        })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.join();
        }
    }
}

impl Stream {
    fn handle(&mut self, now: Instant, datagram: &Datagram<'_>) {
        if let Some(drops) = datagram.drops {
            // The kernel's counter has 32 bits.
            self.drops += u64::from(drops.wrapping_sub(self.drops as u32));
        }
        self.meter.handle_packet(now, datagram.bytes);
    }

    fn snapshot(&self) -> MeterSnapshot {
        MeterSnapshot { socket_drops: self.drops, ..self.meter.snapshot() }
    }
}

/// The state of the thread.
struct Worker {
    clock: Clock,
    sockets: Vec<OwnedFd>,
    streams: Arc<Mutex<Vec<Stream>>>,
    stop: Arc<EventFd>,
    tap: Option<Tap>,
    /// Of each stream.
    reports: Vec<Reports>,
}

impl Worker {
    fn run(mut self) -> Option<Tap> {
        let mut batch = Batch::of(BATCH, true);
        // When each socket was last seen empty, or its last datagram arrived: datagrams read from it later
        // arrived later.
        let mut latest = vec![Instant::ZERO; self.sockets.len()];
        let mut ready = vec![false; self.sockets.len()];
        loop {
            let readable = |fd| PollFd::new(fd, PollFlags::IN);
            let mut fds: Vec<_> = self.sockets.iter().map(readable).collect();
            fds.push(PollFd::new(&*self.stop, PollFlags::IN));
            let report_at = self.reports.iter().filter_map(Reports::poll_timeout).min();
            let wait = report_at.map_or(TIMEOUT, |at| at.since(self.clock.now()).min(TIMEOUT));
            if poll(&mut fds, Some(&timespec(wait.0))).is_err() {
                // Interrupted, or out of kernel memory for a moment.
                self.clock.sleep_until(self.clock.now() + Duration::from_millis(1));
                continue;
            }
            let stopping = fds.last().is_some_and(|stop| !stop.revents().is_empty());
            for (ready, fd) in ready.iter_mut().zip(&fds) {
                *ready = !fd.revents().is_empty();
            }
            for stream in (0..self.sockets.len()).filter(|&stream| ready[stream]) {
                // Datagrams that arrived before the stop are still read, but not an endless stream.
                let batches = if stopping { LAST_TURN } else { TURN_MAX };
                self.turn(stream, batches, &mut batch, &mut latest[stream]);
            }
            if stopping {
                return self.tap;
            }
            let now = self.clock.now();
            for (reports, socket) in self.reports.iter_mut().zip(&self.sockets) {
                reports.send_due(now, socket);
            }
            self.streams.lock().iter_mut().for_each(|stream| stream.meter.handle_timeout(now));
        }
    }

    /// Reads from one socket, at most `batches` batches.
    fn turn(&mut self, stream: usize, batches: usize, batch: &mut Batch, latest: &mut Instant) {
        let mut came = [Instant::ZERO; BATCH];
        for _ in 0..batches {
            let before = self.clock.now();
            let count = batch.receive(&self.sockets[stream]);
            let read_at = self.clock.with_wall();
            for (came, datagram) in came.iter_mut().zip(batch.datagrams(count)) {
                // A socket returns its datagrams in order, whatever the two clocks show.
                *latest = datagram.stamp.map_or(read_at.now, |stamp| {
                    self.clock.from_wall_stamp(stamp, read_at, *latest)
                });
                *came = *latest;
            }
            for (datagram, came) in batch.datagrams(count).zip(came) {
                self.reports[stream].handle(came, &datagram);
            }
            if let Some(tap) = &mut self.tap {
                for (datagram, came) in batch.datagrams(count).zip(came) {
                    tap.packet(stream, came, datagram.bytes);
                }
            }
            if let Some(entry) = self.streams.lock().get_mut(stream) {
                for (datagram, came) in batch.datagrams(count).zip(came) {
                    entry.handle(came, &datagram);
                    if let Some(tap) = &mut self.tap {
                        while let Some((seq, decodable)) = entry.meter.poll_settled() {
                            tap.settled(stream, seq, decodable);
                        }
                    }
                }
            }
            if count < BATCH {
                *latest = before.max(*latest);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
