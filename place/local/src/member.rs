//! A member of a channel: its socket, its connections to the other members, and the thread that keeps
//! them. Sources and sinks never see the thread: it hands them the ends of rings as members come, and
//! tells them who went.
//!
//! Whoever joins connects to all who are there, under a lock, so that each two have one connection. A
//! connection that ends is a member that left or died: the kernel tells at once.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::thread::futex;
use selvedge_host::clock::{Clock, timespec};
use selvedge_host::seqpacket::{self, Received};
use selvedge_units::{Instant, Span};

use crate::JoinError;
use crate::inlet::Inlet;
use crate::name::Meeting;
use crate::outlet::Outlet;
use crate::say::{Say, VERSION};
use crate::sink::SinkOptions;

/// The most other members of a channel on this host.
pub const PEERS_MAX: usize = 126;
/// How long a member may take to say who it is.
const PATIENCE: Span = Span::from_secs(2);
/// How long joining waits for those who are there already.
const GREETING: Duration = Duration::from_millis(250);

/// Another member, as this one numbers them: never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// What the thread hands over.
#[derive(Debug)]
pub(crate) enum Change<T> {
    Came(T),
    Gone(PeerId),
}

/// What thread, source and sink share.
#[derive(Debug)]
pub(crate) struct Shared {
    lists: Mutex<Lists>,
    greeted: Condvar,
    /// Counts the changes for the source, and for the sink, who may sleep on it.
    pub(crate) for_source: AtomicU32,
    pub(crate) for_sink: AtomicU32,
    /// The same for sinks that wait for descriptors.
    pub(crate) event: OwnedFd,
    /// Ends the thread's wait.
    stir: OwnedFd,
}

#[derive(Debug, Default)]
struct Lists {
    source: Vec<Change<Outlet>>,
    sink: Vec<Change<Inlet>>,
    /// Connections that source or sink do not trust any more.
    close: Vec<PeerId>,
    /// Members that were there before, and have not said who they are.
    awaited: usize,
    stop: bool,
}

impl Shared {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_for_source(&self) -> Vec<Change<Outlet>> {
        std::mem::take(&mut self.lists().source)
    }

    pub(crate) fn take_for_sink(&self) -> Vec<Change<Inlet>> {
        std::mem::take(&mut self.lists().sink)
    }

    /// Ends the connection to a member that broke what it shares with us.
    pub(crate) fn close(&self, peer: PeerId) {
        self.lists().close.push(peer);
        self.stir();
    }

    fn stir(&self) {
        let _ = rustix::io::write(&self.stir, &1_u64.to_ne_bytes());
    }

    fn tell_source(&self, change: Change<Outlet>) {
        self.lists().source.push(change);
        self.for_source.fetch_add(1, Ordering::Release);
    }

    fn tell_sink(&self, change: Change<Inlet>) {
        self.lists().sink.push(change);
        self.for_sink.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.for_sink, futex::Flags::empty(), u32::MAX >> 1);
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

/// A member. Leaves when dropped.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) shared: Arc<Shared>,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Member {
    pub(crate) fn join(
        directory: &Path,
        name: &str,
        source: bool,
        sink: Option<SinkOptions>,
    ) -> Result<Self, JoinError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let system = |why: rustix::io::Errno| JoinError::System(why.into());
        let event_of = || eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let (event, stir) = (event_of().map_err(system)?, event_of().map_err(system)?);
        let meeting = Meeting::open(directory, name)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = meeting.path.join(format!("{}.{number}", std::process::id()));
        let listener = seqpacket::listen_at(&path)
            .map_err(|why| JoinError::Socket { path: path.display().to_string(), why })?;
        let shared = Arc::new(Shared {
            lists: Mutex::default(),
            greeted: Condvar::new(),
            for_source: AtomicU32::new(0),
            for_sink: AtomicU32::new(0),
            event,
            stir,
        });
        let hello =
            Say::Hello { version: VERSION, channel: name, source, sink: sink.is_some() }.encode();
        let mut keeper = Keeper {
            shared: Arc::clone(&shared),
            name: name.to_owned(),
            source,
            sink,
            hello,
            listener,
            peers: Vec::new(),
            next: 0,
            clock: Clock::shared(),
        };
        for other in meeting.members().filter(|other| *other != path).take(PEERS_MAX) {
            match seqpacket::connect_to(&other) {
                Ok(socket) => keeper.greet(socket, true),
                // Nobody listens there: it was killed.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    let _ = std::fs::remove_file(&other);
                }
                // It has so many to answer that it does not answer anybody.
                Err(error) => {
                    tracing::warn!(member = %other.display(), %error, "passed over a member");
                }
            }
        }
        drop(meeting);
        shared.lists().awaited = keeper.peers.len();
        let builder = std::thread::Builder::new().name("local-keeper".to_owned());
        let thread = match builder.spawn(move || keeper.keep()) {
            Ok(thread) => thread,
            Err(why) => {
                let _ = std::fs::remove_file(&path);
                return Err(JoinError::System(why));
            }
        };
        let member = Self { shared, path, thread: Some(thread) };
        let awaits = |lists: &mut Lists| lists.awaited > 0;
        drop(member.shared.greeted.wait_timeout_while(member.shared.lists(), GREETING, awaits));
        Ok(member)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shared.lists().stop = true;
        self.shared.stir();
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            // It panics only by a bug, which its message has told already.
            let _ = thread.join();
        }
    }
}

/// A connection to another member.
#[derive(Debug)]
struct Peer {
    id: PeerId,
    socket: OwnedFd,
    pid: Option<rustix::process::Pid>,
    since: Instant,
    /// Whether it was there before us, and has not been heard yet.
    awaited: bool,
    said_hello: bool,
    is_sink: bool,
    attached: bool,
}

struct Keeper {
    shared: Arc<Shared>,
    name: String,
    source: bool,
    sink: Option<SinkOptions>,
    hello: Vec<u8>,
    listener: OwnedFd,
    peers: Vec<Peer>,
    next: u32,
    clock: Clock,
}

impl Keeper {
    /// Takes a connection on, if it is one of ours, and says who we are.
    fn greet(&mut self, socket: OwnedFd, awaited: bool) {
        let Ok(who) = socket_peercred(&socket) else { return };
        let is_ours = who.uid == rustix::process::geteuid() || who.uid.is_root();
        if !is_ours || self.peers.len() >= PEERS_MAX {
            tracing::warn!(
                uid = who.uid.as_raw(),
                peers = self.peers.len(),
                "turned a member away"
            );
            return;
        }
        if seqpacket::send(&socket, &self.hello, &[]).is_err() {
            return;
        }
        let id = PeerId(self.next);
        self.next += 1;
        let since = self.clock.now();
        self.peers.push(Peer {
            id,
            socket,
            pid: Some(who.pid),
            since,
            awaited,
            said_hello: false,
            is_sink: false,
            attached: false,
        });
    }

    fn keep(mut self) {
        loop {
            let silent = self.peers.iter().any(|peer| !peer.said_hello);
            let mut fds: Vec<PollFd<'_>> = [self.shared.stir.as_fd(), self.listener.as_fd()]
                .into_iter()
                .chain(self.peers.iter().map(|peer| peer.socket.as_fd()))
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            let limit = timespec(PATIENCE.0);
            if poll(&mut fds, silent.then_some(&limit)).is_err() {
                // Out of kernel memory, or a signal: try again, but no busy loop.
                self.clock.sleep_until(self.clock.now() + Span::from_millis(1));
                continue;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[0] {
                let _ = rustix::io::read(&self.shared.stir, &mut [0; 8]);
                let (stop, close) = {
                    let mut lists = self.shared.lists();
                    (lists.stop, std::mem::take(&mut lists.close))
                };
                if stop {
                    return;
                }
                // Found again by number: their places are as they were polled.
                for peer in &mut self.peers {
                    if close.contains(&peer.id) {
                        let _ = rustix::net::shutdown(&peer.socket, rustix::net::Shutdown::Both);
                    }
                }
            }
            let now = self.clock.now();
            let mut gone = Vec::new();
            for at in 0..self.peers.len() {
                let keeps = !ready[at + 2] || self.hear(at);
                let peer = &self.peers[at];
                if !keeps || (!peer.said_hello && now.since(peer.since) > PATIENCE) {
                    gone.push(at);
                }
            }
            for at in gone.into_iter().rev() {
                let peer = self.peers.remove(at);
                self.heard(&peer);
                if peer.said_hello {
                    self.shared.tell_source(Change::Gone(peer.id));
                    self.shared.tell_sink(Change::Gone(peer.id));
                }
            }
            if ready[1] {
                match seqpacket::accept(&self.listener) {
                    Ok(Some(socket)) => self.greet(socket, false),
                    Ok(None) => {}
                    // Out of descriptors, most likely.
                    Err(error) => {
                        tracing::warn!(%error, "can't take a member on");
                        self.clock.sleep_until(now + Span::from_millis(10));
                    }
                }
            }
        }
    }

    /// One of those who were there before us is there, or gone.
    fn heard(&self, peer: &Peer) {
        if peer.awaited {
            let mut lists = self.shared.lists();
            lists.awaited = lists.awaited.saturating_sub(1);
            self.shared.greeted.notify_all();
        }
    }

    /// Takes a message; false if the connection is to end.
    fn hear(&mut self, at: usize) -> bool {
        let (bytes, mut fds) = match seqpacket::receive(&self.peers[at].socket) {
            Ok(Received::Message(bytes, fds)) => (bytes, fds),
            Ok(Received::Nothing) => return true,
            Ok(Received::TooLong | Received::End) | Err(_) => return false,
        };
        let peer = &mut self.peers[at];
        match Say::decode(&bytes) {
            Some(Say::Hello { version, channel, source, sink })
                if version == VERSION && channel == self.name && !peer.said_hello =>
            {
                peer.said_hello = true;
                peer.is_sink = sink;
                if source && let Some(options) = &self.sink {
                    let made = Inlet::create(peer.id, options);
                    let Ok((inlet, attach)) = made.inspect_err(|error| {
                        tracing::warn!(%error, "no memory for a source's events");
                    }) else {
                        return false;
                    };
                    // First, so that the sink has it when the source has.
                    self.shared.tell_sink(Change::Came(inlet));
                    if seqpacket::send(&peer.socket, &attach.0, &attach.1.each_fd()).is_err() {
                        return false;
                    }
                }
            }
            Some(Say::Attach { waking, full })
                if self.source && peer.said_hello && peer.is_sink && !peer.attached =>
            {
                let event = (fds.len() > 1).then(|| fds.pop()).flatten();
                let Some(memory) = fds.pop() else { return false };
                match Outlet::open(peer.id, peer.pid, memory, event, waking, full) {
                    Ok(outlet) => self.shared.tell_source(Change::Came(outlet)),
                    Err(error) => {
                        tracing::warn!(%error, "a sink's memory is none");
                        return false;
                    }
                }
                peer.attached = true;
            }
            _ => return false,
        }
        let peer = &self.peers[at];
        if peer.said_hello && (!self.source || !peer.is_sink || peer.attached) {
            self.heard(peer);
            self.peers[at].awaited = false;
        }
        true
    }
}
