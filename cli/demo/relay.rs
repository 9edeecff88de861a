//! A link between the demo's own sockets: what arrives at a front goes through a model of `data/net/line` to that front's
//! target, and answers come back through another. A thread for each link.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use selvedge_data_net_line::{Ecn, Line, LineModel, Packet};
use selvedge_os::clock::{Clock, exact_timers, timespec};
use selvedge_os::eventfd::EventFd;
use selvedge_units::{Bytes, Duration, Instant};

/// Datagrams of one socket that are read before the next one has its turn.
const BATCH: usize = 64;
/// The longest that the thread sleeps.
const LONGEST: Duration = Duration::from_secs(1);
/// IPv4 and UDP.
const HEADERS: Bytes = Bytes(28);

/// The link. Dropped, it ends.
pub(super) struct Relay {
    /// Where its fronts listen, in the order of their targets.
    pub(super) fronts: Vec<SocketAddr>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    clock: Clock,
    stop: AtomicBool,
    event: EventFd,
    lines: Mutex<[Line<Held>; 2]>,
}

/// A datagram of one of the link's ends.
#[derive(Clone, Debug)]
struct Held {
    end: usize,
    bytes: Vec<u8>,
}

/// A socket to which a sender sends, and one from which its datagrams go on.
struct End {
    front: UdpSocket,
    back: UdpSocket,
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
                Ok::<_, std::io::Error>(socket)
            };
            let (front, back) = (socket()?, socket()?);
            back.connect(target)?;
            Ok(End { front, back, sender: None })
        };
        let ends = targets.iter().map(open).collect::<std::io::Result<Vec<End>>>()?;
        let fronts = ends.iter().map(|end| end.front.local_addr()).collect::<Result<_, _>>()?;
        let back = LineModel { delay: model.delay.clone(), ..LineModel::default() };
        let lines = [Line::new(model.clone(), seed, "there"), Line::new(back, seed, "back")];
        let shared = Arc::new(Shared {
            clock,
            stop: AtomicBool::new(false),
            event: EventFd::new()?,
            lines: Mutex::new(lines),
        });
        let own = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("demo link".to_owned()).spawn(move || own.run(ends))?;
        Ok(Self { fronts, shared, thread: Some(thread) })
    }

    /// Changes what is sent from now on; the queue stays as it was.
    pub(super) fn change(&self, model: &LineModel) {
        let [there, _] = &mut *self.shared.lines.lock();
        there.change(self.shared.clock.now(), model.clone());
        self.shared.event.ring();
    }
}

impl Drop for Relay {
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
    fn run(&self, mut ends: Vec<End>) {
        exact_timers();
        let mut buffer = vec![0; 1 << 16];
        while !self.stop.load(Ordering::Acquire) {
            self.event.clear();
            let next = self.turn(&mut ends, &mut buffer);
            let wait = next.since(self.clock.now()).min(LONGEST);
            let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let sockets = ends.iter().flat_map(|end| [&end.front, &end.back]);
            let mut fds: Vec<_> = sockets.map(|socket| readable(socket.as_fd())).collect();
            fds.push(readable(self.event.as_fd()));
            // Interrupted, it only looks sooner.
            let _ = poll(&mut fds, Some(&timespec(wait.0)));
        }
    }

    /// Reads, and sends on what has arrived; returns when it is due again.
    fn turn(&self, ends: &mut [End], buffer: &mut [u8]) -> Instant {
        let [there, back] = &mut *self.lines.lock();
        for (n, end) in ends.iter_mut().enumerate() {
            let now = self.clock.now();
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
        let now = self.clock.now();
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
        due.into_iter().flatten().min().unwrap_or(now + LONGEST)
    }
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
