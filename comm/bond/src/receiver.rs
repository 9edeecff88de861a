//! The far end on a thread of its own: one socket for all paths.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_data_link::PathEstimate;
use selvedge_data_net_bond::{Receiver, ReceiverCounts, StreamId};
use selvedge_data_net_secure::{OVERHEAD as SEALING, PublicKey};
use selvedge_data_stream::rtp::ip_udp;
use selvedge_os::clock::Clock;
use selvedge_os::poll_thread::PollThread;
use selvedge_os::single_datagram::{self, SingleDatagram};
use selvedge_os::socket::{Buffer, CE, open_bound, request_ecn, request_stamps, set_buffer};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::answerer::{Answerer, Received};
use crate::back::{BACK, BackSender};
use crate::deliver::Deliver;
use crate::{BondError, Credentials};

/// Datagrams that are read before packets go on.
const BATCH: usize = 128;
const BUFFER: Bytes = Bytes(2 << 20);

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
    far: Arc<Mutex<Far>>,
    clock: Clock,
    thread: PollThread,
}

#[derive(Debug)]
struct Far {
    answerer: Answerer,
    bond: Receiver,
    /// What goes back, if anything does.
    back: Option<BackSender>,
    /// When the latest datagram came, by the kernel's clock: however late this thread reads it.
    latest: Instant,
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
        mut deliver: impl Deliver + 'static,
    ) -> Result<Self, BondError> {
        if !credentials.identity.is_sealed() {
            return Err(BondError::Open);
        }
        let (socket, address) = open_bound(at)?;
        set_buffer(&socket, Buffer::Receive, BUFFER);
        // Where the kernel refuses, no marks are reported, and datagrams come when they are read.
        let _ = request_ecn(&socket, at.is_ipv6());
        let _ = request_stamps(&socket);
        let answerer = Answerer::new(credentials);
        let far = Far { answerer, bond: Receiver::default(), back: None, latest: Instant::ZERO };
        let (far, socket) = (Arc::new(Mutex::new(far)), Arc::new(UdpSocket::from(socket)));
        let (own, mut buffer) = (Arc::clone(&far), Vec::new());
        let turn = move || {
            let next = own.lock().turn(&socket, clock, &mut buffer, &mut deliver);
            (next, vec![Arc::clone(&socket)])
        };
        let thread = PollThread::start("bond far end", clock, turn)?;
        Ok(Self { address, far, clock, thread })
    }

    /// The address at which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the keys that may connect; connections of others end.
    pub fn allow(&self, peers: &[PublicKey]) {
        self.far.lock().answerer.allow(peers);
    }

    /// From now on packets may go back to the near end, whose thread must take them.
    pub fn begin_back(&self) {
        let below = ip_udp(self.address) + Bytes(SEALING as u64);
        self.far.lock().back = Some(BackSender::new(self.clock.now(), below));
    }

    /// Sends a packet of a stream back, due at the near end at `deadline` plus the shortest path's delay; false if no path
    /// was ever connected, or nothing goes back.
    pub fn send(&self, stream: StreamId, deadline: Instant, packet: &[u8]) -> bool {
        let now = self.clock.now();
        let send = |back: &mut BackSender| back.handle_packet(now, stream, deadline, packet);
        let is_sent = self.far.lock().back.as_mut().is_some_and(send);
        self.thread.ring();
        is_sent
    }

    /// Sets what would be sent back if there were room, and the time that a packet has.
    pub fn set_back_demand(&self, demand: Bitrate, delay: Duration) {
        if let Some(back) = &mut self.far.lock().back {
            back.set_demand(demand, delay);
        }
    }

    /// What is known of the paths back as one.
    #[must_use]
    pub fn back_estimate(&self) -> Option<PathEstimate> {
        self.far.lock().back.as_ref().map(|back| back.bond.estimate())
    }

    /// The bytes of repairs of what was sent back since this was called last, for its link to pay.
    pub fn take_back_owed(&self) -> Bytes {
        self.far.lock().back.as_mut().map(|back| back.bond.take_owed()).unwrap_or_default()
    }

    /// Its present state.
    #[must_use]
    pub fn view(&self) -> ReceiverView {
        let far = self.far.lock();
        let paths = far.answerer.paths().map(|(_, from)| from).collect();
        ReceiverView { paths, counts: far.bond.counts() }
    }
}

impl Far {
    /// Reads, gives on, and sends; returns when it is due again.
    fn turn(
        &mut self,
        socket: &UdpSocket,
        clock: Clock,
        buffer: &mut Vec<u8>,
        deliver: &mut impl Deliver,
    ) -> Instant {
        let mut is_more = false;
        for n in 0..BATCH {
            let Some(came) = single_datagram::receive(socket, buffer) else { break };
            let read_at = clock.with_wall();
            self.latest = came
                .stamp
                .map_or(read_at.now, |stamp| clock.from_wall_stamp(stamp, read_at, self.latest));
            self.handle(self.latest, came, buffer, deliver);
            is_more = n + 1 == BATCH;
        }
        let now = clock.now();
        self.answerer.handle_timeout(now);
        // A packet that has come and is not read yet is waited for.
        self.bond.handle_timeout(if is_more { self.latest } else { now });
        while let Some(delivered) = self.bond.poll_packet() {
            deliver.handle_packet(now, delivered.stream, &delivered.packet);
        }
        if let Some(back) = &mut self.back {
            back.bond.handle_timeout(now);
        }
        let back = &mut self.back;
        let mut packet = || back.as_mut().and_then(|back| back.bond.poll_transmit(now));
        // What the network refuses is lost, as on the way.
        while let Some(transmit) = self.bond.poll_transmit(now).or_else(&mut packet) {
            if let Some((to, bytes)) = self.answerer.seal(now, transmit.path, &transmit.bytes) {
                let _ = socket.send_to(&bytes, to);
            }
        }
        while let Some((to, bytes)) = self.answerer.poll_transmit() {
            let _ = socket.send_to(&bytes, to);
        }
        let back = self.back.as_ref().and_then(|back| back.bond.poll_timeout());
        let next = [self.answerer.poll_timeout(), self.bond.poll_timeout(), back];
        let next = next.into_iter().flatten().min().unwrap_or(Instant::MAX);
        if is_more { now } else { next }
    }

    fn handle(
        &mut self,
        now: Instant,
        SingleDatagram { from, ecn, .. }: SingleDatagram,
        bytes: &mut [u8],
        deliver: &mut impl Deliver,
    ) {
        let Received::Text { path, text, is_anew } =
            self.answerer.handle_datagram(now, from, bytes)
        else {
            return;
        };
        if is_anew {
            self.bond = Receiver::default();
            if let Some(back) = &mut self.back {
                back.handle_start(now);
            }
            deliver.handle_start();
        }
        if let Some(back) = &mut self.back {
            back.handle_datagram(now, path, text);
        }
        // An empty packet keeps the connection; what is no datagram changes nothing.
        let _ = self.bond.handle_datagram(now, text, ecn == Some(CE));
        while let Some((stream, text)) = self.bond.poll_description() {
            match &mut self.back {
                Some(back) if stream == BACK => back.handle_description(text),
                _ => deliver.handle_description(stream, text),
            }
        }
    }
}
