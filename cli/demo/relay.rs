//! A link between the demo's own sockets: what arrives at a front goes through a model of `data/net/line` to that front's
//! target, and answers come back through another. A thread for each link.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_data_net_line::{Ecn, Line, LineModel, Packet};
use selvedge_os::clock::{Clock, exact_timers};
use selvedge_os::poll_thread::PollThread;
use selvedge_units::{Bytes, Instant};

/// Datagrams of one socket that are read before the next one has its turn.
const BATCH: usize = 64;
/// IPv4 and UDP.
const HEADERS: Bytes = Bytes(28);

/// The link. Dropped, it ends.
pub(super) struct Relay {
    /// Where its fronts listen, in the order of their targets.
    pub(super) fronts: Vec<SocketAddr>,
    clock: Clock,
    lines: Arc<Mutex<[Line<Held>; 2]>>,
    thread: PollThread,
}

/// A datagram of one of the link's ends.
#[derive(Clone, Debug)]
struct Held {
    end: usize,
    bytes: Vec<u8>,
}

/// A socket to which a sender sends, and one from which its datagrams go on.
struct End {
    front: Arc<UdpSocket>,
    back: Arc<UdpSocket>,
    sender: Option<SocketAddr>,
}

impl Relay {
    /// A link of this model, without loss and queue on the way back, to these targets.
    pub(super) fn start(
        clock: Clock,
        seed: u64,
        model: &LineModel,
        targets: &[SocketAddr],
    ) -> std::io::Result<Self> {
        let open = |target: &SocketAddr| {
            let socket = || {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
                socket.set_nonblocking(true)?;
                Ok::<_, std::io::Error>(Arc::new(socket))
            };
            let (front, back) = (socket()?, socket()?);
            back.connect(target)?;
            Ok(End { front, back, sender: None })
        };
        let mut ends = targets.iter().map(open).collect::<std::io::Result<Vec<End>>>()?;
        let fronts = ends.iter().map(|end| end.front.local_addr()).collect::<Result<_, _>>()?;
        let back = LineModel { delay: model.delay.clone(), ..LineModel::default() };
        let lines = [Line::new(model.clone(), seed, "there"), Line::new(back, seed, "back")];
        let lines = Arc::new(Mutex::new(lines));
        let (own, mut buffer) = (Arc::clone(&lines), vec![0; 1 << 16]);
        let turn = move || {
            exact_timers();
            let next = turn(clock, &mut own.lock(), &mut ends, &mut buffer);
            let sockets = ends.iter().flat_map(|end| [&end.front, &end.back]).cloned();
            (next, sockets.collect())
        };
        let thread = PollThread::start("demo link", clock, turn)?;
        Ok(Self { fronts, clock, lines, thread })
    }

    /// Changes what is sent from now on; the queue stays as it was.
    pub(super) fn change(&self, model: &LineModel) {
        let [there, _] = &mut *self.lines.lock();
        there.change(self.clock.now(), model.clone());
        self.thread.ring();
    }
}

/// Reads, and sends on what has arrived; returns when it is due again.
fn turn(
    clock: Clock,
    [there, back]: &mut [Line<Held>; 2],
    ends: &mut [End],
    buffer: &mut [u8],
) -> Instant {
    for (n, end) in ends.iter_mut().enumerate() {
        let now = clock.now();
        for _ in 0..BATCH {
            let Some((len, from)) = received(&end.front, buffer) else { break };
            end.sender = Some(from);
            there.handle_packet(now, packet(n, &buffer[..len]));
        }
        for _ in 0..BATCH {
            let Some((len, _)) = received(&end.back, buffer) else { break };
            back.handle_packet(now, packet(n, &buffer[..len]));
        }
    }
    let now = clock.now();
    while let Some(arrived) = there.poll_packet(now) {
        let Held { end, bytes } = arrived.packet.payload;
        // One that is not there gets nothing.
        let _ = ends[end].back.send(&bytes);
    }
    while let Some(arrived) = back.poll_packet(now) {
        let Held { end, bytes } = arrived.packet.payload;
        if let Some(sender) = ends[end].sender {
            let _ = ends[end].front.send_to(&bytes, sender);
        }
    }
    for line in [&mut *there, &mut *back] {
        while line.poll_dropped().is_some() {}
    }
    let due = [there.poll_timeout(), back.poll_timeout()];
    due.into_iter().flatten().min().unwrap_or(Instant::MAX)
}

/// The next datagram, unless there is none now.
fn received(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Ok(received) => return Some(received),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            // An earlier datagram was refused by its target.
            Err(_) => {}
        }
    }
}

fn packet(end: usize, bytes: &[u8]) -> Packet<Held> {
    Packet {
        size: Bytes(bytes.len() as u64) + HEADERS,
        flow: end as u64,
        port: 0,
        ecn: Ecn::NotCapable,
        payload: Held { end, bytes: bytes.to_vec() },
    }
}
