//! A server of RTSP at one address, for all streams that are offered there: one thread accepts, reads, and
//! writes; it hands each packet on when the link passes it on.
//!
//! Everything that strangers send is read here in safe code, by functions that bound what they keep. So it
//! runs inside of the node, as the page does. Clients that do not play yet have places of their own, of
//! which a newcomer takes the oldest: those that hang keep nobody out, and players stay.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{set_socket_send_buffer_size, set_tcp_user_timeout};
use selvedge_data_stream::rtp::Packet;
use selvedge_os::clock::{Clock, timespec};
use selvedge_os::eventfd::EventFd;
use selvedge_os::socket::open_pair;
use selvedge_units::{Bytes, Duration, Instant};

use super::client::{Client, Dropped, ServerState};
use super::login::{Guard, unpredictable};
use super::mount::{Mount, Mounts};
use crate::output::OutputError;

/// Clients that do not play yet.
const NEWCOMERS: usize = 64;
/// How many are accepted, and bytes of each are read, before others have their turn.
const ACCEPTED: usize = 16;
const PIECE: usize = 4096;
/// How often clients are examined though nothing came.
const LOOK: Duration = Duration::from_millis(250);
/// What the kernel holds for a client, and how long for one that has vanished.
const SEND_BUFFER: usize = 256 << 10;
const VANISHED_MS: u32 = 20_000;

/// The servers of this process, by their addresses.
static SERVERS: Mutex<BTreeMap<SocketAddr, Weak<Server>>> = Mutex::new(BTreeMap::new());

/// A server; dropped, it ends.
#[derive(Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    mounts: Mutex<Arc<Mounts>>,
    bell: EventFd,
    stop: AtomicBool,
}

impl Server {
    /// The server at this address, which is started if there is none.
    ///
    /// # Errors
    /// [`OutputError::Listen`].
    pub(super) fn at(address: SocketAddr) -> Result<Arc<Self>, OutputError> {
        let mut servers = SERVERS.lock();
        if let Some(server) = servers.get(&address).and_then(Weak::upgrade) {
            return Ok(server);
        }
        let server = Self::start(address).map_err(|why| OutputError::Listen { address, why })?;
        let server = Arc::new(server);
        servers.insert(address, Arc::downgrade(&server));
        Ok(server)
    }

    fn start(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let sockets = open_pair(address.is_ipv6(), None)?;
        let ports = [sockets[0].local_addr()?.port(), sockets[1].local_addr()?.port()];
        let (bell, stop) = (EventFd::new()?, AtomicBool::new(false));
        let shared = Arc::new(Shared { mounts: Mutex::default(), bell, stop });
        let server = ServerState {
            mounts: Arc::default(),
            guard: Guard::default(),
            sockets,
            ports,
            players: 0,
        };
        let serving = Serving {
            shared: Arc::clone(&shared),
            clock: Clock::new(),
            listener,
            is_full: false,
            server,
            clients: Vec::new(),
        };
        let name = format!("rtsp {}", address.port());
        let thread = thread::Builder::new().name(name).spawn(move || serving.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Offers a stream; false if there is another of its name.
    pub(super) fn mount(&self, mount: &Arc<Mount>) -> bool {
        let mut mounts = self.shared.mounts.lock();
        let is_free = !mounts.contains_key(&mount.name);
        if is_free {
            Arc::make_mut(&mut mounts).insert(mount.name.clone(), Arc::clone(mount));
        }
        is_free
    }

    /// No longer offers a stream.
    pub(super) fn unmount(&self, mount: &Mount) {
        Arc::make_mut(&mut self.shared.mounts.lock()).remove(&mount.name);
        mount.close();
        self.ring();
    }

    /// Packets have come.
    pub(super) fn ring(&self) {
        self.shared.bell.ring();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.ring();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Serving {
    shared: Arc<Shared>,
    clock: Clock,
    listener: TcpListener,
    /// Whether the process can open no more sockets for now.
    is_full: bool,
    server: ServerState,
    clients: Vec<(TcpStream, Client)>,
}

impl Serving {
    fn run(mut self) {
        let mut ready = Vec::new();
        while !self.shared.stop.load(Ordering::Acquire) {
            self.shared.bell.clear();
            self.server.mounts = Arc::clone(&self.shared.mounts.lock());
            self.hand_on();
            self.read(&ready);
            self.accept();
            self.write();
            self.wait(&mut ready);
        }
    }

    /// Hands on the packets that the link has passed on.
    fn hand_on(&mut self) {
        let now = self.clock.now();
        for mount in self.server.mounts.values() {
            for bytes in mount.take() {
                let Ok(packet) = Packet::parse(&bytes) else { continue };
                let mut wire = Bytes(0);
                for (_, client) in &mut self.clients {
                    wire += client.deliver((&packet, &bytes), mount, &self.server, now);
                }
                mount.charge(bytes.len(), ([0; 4], 0).into(), wire);
            }
        }
    }

    /// Reads what came, and drops who has to go. `ready` says which of the first clients sent something.
    fn read(&mut self, ready: &[PollFlags]) {
        let now = self.clock.now();
        let mut bytes = [0; PIECE];
        for (n, socket) in self.server.sockets.iter().enumerate() {
            for _ in 0..ACCEPTED * 4 {
                let Ok((_, from)) = socket.recv_from(&mut bytes) else { break };
                // Players send to the first only to open their routers.
                let reported = self.clients.iter_mut().filter(|_| n == 1);
                reported.for_each(|(_, client)| client.handle_report(from, now));
            }
        }
        let Self { server, clients, .. } = self;
        let mut index = 0;
        clients.retain_mut(|(stream, client)| {
            let ready = ready.get(index).copied().unwrap_or(PollFlags::empty());
            index += 1;
            let mut work = || {
                if !client.is_read() && ready.intersects(PollFlags::HUP | PollFlags::ERR) {
                    return Err(Dropped::Ended);
                }
                if client.is_read() && !(ready - PollFlags::OUT).is_empty() {
                    match stream.read(&mut bytes) {
                        Ok(0) => return Err(Dropped::Ended),
                        Ok(len) => client.handle_bytes(&bytes[..len], server, now)?,
                        Err(error) if is_transient(&error) => {}
                        Err(_) => return Err(Dropped::Ended),
                    }
                }
                client.handle_timeout(server, now)
            };
            let done = work();
            if let Err(why) = done {
                server.players -= usize::from(client.is_playing());
                tracing::debug!(%why, "a client of RTSP is dropped");
            }
            done.is_ok()
        });
    }

    fn accept(&mut self) {
        let now = self.clock.now();
        for _ in 0..ACCEPTED {
            let (stream, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    self.is_full = !is_transient(&error);
                    return;
                }
            };
            // Not sent in pieces of a packet each, and not kept for one who is gone.
            let set_up = || {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                set_socket_send_buffer_size(&stream, SEND_BUFFER)?;
                set_tcp_user_timeout(&stream, VANISHED_MS)?;
                unpredictable()
            };
            let Ok(nonce) = set_up() else { continue };
            let mut new = self.clients.iter().filter(|(_, client)| !client.is_playing());
            let oldest = self.clients.iter().position(|(_, client)| !client.is_playing());
            if new.nth(NEWCOMERS - 1).is_some()
                && let Some(oldest) = oldest
            {
                self.clients.remove(oldest);
            }
            let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
            self.clients.push((stream, Client::new(peer, nonce, now)));
        }
    }

    fn write(&mut self) {
        let now = self.clock.now();
        for (stream, client) in &mut self.clients {
            while let Some(bytes) = client.poll_transmit() {
                match stream.write(bytes) {
                    Ok(written) if written > 0 => client.handle_written(written, now),
                    // One that is gone is read as such, or takes nothing for too long.
                    _ => break,
                }
            }
        }
    }

    /// Waits until something comes, or is due; and notes which clients sent something.
    fn wait(&self, ready: &mut Vec<PollFlags>) {
        let now = self.clock.now();
        let due = self.clients.iter().filter_map(|(_, client)| client.poll_timeout()).min();
        let wait = due.map_or(LOOK, |at: Instant| at.since(now).min(LOOK));
        let [rtp, rtcp] = &self.server.sockets;
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.shared.bell.as_fd(), PollFlags::IN),
            PollFd::new(rtp, PollFlags::IN),
            PollFd::new(rtcp, PollFlags::IN),
            PollFd::new(
                &self.listener,
                if self.is_full { PollFlags::empty() } else { PollFlags::IN },
            ),
        ];
        let before = fds.len();
        fds.extend(self.clients.iter().map(|(stream, client)| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, client.is_read());
            flags.set(PollFlags::OUT, client.is_written());
            PollFd::new(stream, flags)
        }));
        // Interrupted, the next turn only comes sooner.
        let _ = poll(&mut fds, Some(&timespec(wait.0)));
        ready.clear();
        ready.extend(fds[before..].iter().map(PollFd::revents));
    }
}

fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted)
}
