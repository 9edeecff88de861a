//! The far end on a thread of its own: one socket for all paths.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use selvedge_data_net_bond::{Receiver, ReceiverCounts, StreamId};
use selvedge_data_net_secure::PublicKey;
use selvedge_os::clock::{Clock, timespec};
use selvedge_os::eventfd::EventFd;
use selvedge_os::socket::{Buffer, open_bound, set_buffer};
use selvedge_units::{Bytes, Duration, Instant};

use crate::answerer::{Answerer, Received};
use crate::{BondError, Credentials};

/// The longest that the thread sleeps.
const LONGEST: Duration = Duration::from_secs(1);
/// Datagrams that are read before packets go on.
const BATCH: usize = 128;
const BUFFER: Bytes = Bytes(2 << 20);

/// Takes what the bond brings, on its thread: it must not wait.
pub trait Deliver: Send {
    /// The near end began anew: what was known of its streams no longer holds.
    fn handle_start(&mut self);
    /// A stream's description is new.
    fn handle_description(&mut self, stream: StreamId, text: &str);
    /// A stream's next packet.
    fn handle_packet(&mut self, now: Instant, stream: StreamId, packet: &[u8]);
}

/// The far end at one moment.
#[derive(Clone, Debug, Default)]
pub struct ReceiverView {
    /// Where the packets of each path come from.
    pub paths: Vec<SocketAddr>,
    /// Packets, as the bond counts them.
    pub counts: ReceiverCounts,
}

/// The far end of a bond. Dropped, it ends.
#[derive(Debug)]
pub struct BondReceiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    clock: Clock,
    stop: AtomicBool,
    event: EventFd,
    far: Mutex<Far>,
}

#[derive(Debug)]
struct Far {
    answerer: Answerer,
    bond: Receiver,
}

impl BondReceiver {
    /// Listens at an address.
    ///
    /// # Errors
    /// [`BondError`].
    pub fn bind(
        at: SocketAddr,
        credentials: &Credentials,
        clock: Clock,
        deliver: impl Deliver + 'static,
    ) -> Result<Self, BondError> {
        if !credentials.identity.is_sealed() {
            return Err(BondError::Open);
        }
        let (socket, address) = open_bound(at)?;
        set_buffer(&socket, Buffer::Receive, BUFFER);
        let far = Far { answerer: Answerer::new(credentials), bond: Receiver::default() };
        let shared = Arc::new(Shared {
            socket: socket.into(),
            clock,
            stop: AtomicBool::new(false),
            event: EventFd::new()?,
            far: Mutex::new(far),
        });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("bond far end".to_owned())
            .spawn(move || own.run(deliver))?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// The address at which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the keys that may connect; connections of others end.
    pub fn allow(&self, peers: &[PublicKey]) {
        self.shared.far.lock().answerer.allow(peers);
    }

    /// Its present state.
    #[must_use]
    pub fn view(&self) -> ReceiverView {
        let far = self.shared.far.lock();
        let paths = far.answerer.paths().map(|(_, from)| from).collect();
        ReceiverView { paths, counts: far.bond.counts() }
    }
}

impl Drop for BondReceiver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.event.ring();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, mut deliver: impl Deliver) {
        let mut buffer = vec![0; 1 << 16];
        while !self.stop.load(Ordering::Acquire) {
            let next = self.turn(&mut buffer, &mut deliver);
            let wait = next.since(self.clock.now()).min(LONGEST);
            let mut fds = [&self.socket.as_fd(), &self.event.as_fd()]
                .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
            // Interrupted, it only looks sooner.
            let _ = poll(&mut fds, Some(&timespec(wait.0)));
        }
    }

    /// Reads, gives on, and sends; returns when it is due again.
    fn turn(&self, buffer: &mut [u8], deliver: &mut impl Deliver) -> Instant {
        let far = &mut *self.far.lock();
        let mut is_more = false;
        for n in 0..BATCH {
            match self.socket.recv_from(buffer) {
                Ok((len, from)) => far.handle(self.clock.now(), from, &mut buffer[..len], deliver),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            is_more = n + 1 == BATCH;
        }
        let now = self.clock.now();
        far.answerer.handle_timeout(now);
        far.bond.handle_timeout(now);
        while let Some(delivered) = far.bond.poll_packet() {
            deliver.handle_packet(now, delivered.stream, &delivered.packet);
        }
        // What the network refuses is lost, as on the way.
        while let Some(transmit) = far.bond.poll_transmit(now) {
            if let Some((to, bytes)) = far.answerer.seal(now, transmit.path, &transmit.bytes) {
                let _ = self.socket.send_to(&bytes, to);
            }
        }
        while let Some((to, bytes)) = far.answerer.poll_transmit() {
            let _ = self.socket.send_to(&bytes, to);
        }
        let next = [far.answerer.poll_timeout(), far.bond.poll_timeout()];
        let next = next.into_iter().flatten().min().unwrap_or(now + LONGEST);
        if is_more { now } else { next }
    }
}

impl Far {
    fn handle(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &mut [u8],
        deliver: &mut impl Deliver,
    ) {
        let Received::Text { text, is_anew } = self.answerer.handle_datagram(now, from, bytes)
        else {
            return;
        };
        if is_anew {
            self.bond = Receiver::default();
            deliver.handle_start();
        }
        // An empty packet keeps the connection; what is no datagram changes nothing.
        let _ = self.bond.handle_datagram(now, text, false);
        while let Some((stream, text)) = self.bond.poll_description() {
            deliver.handle_description(stream, text);
        }
    }
}
