//! A member of a channel: its socket, its connections to the other members, and the thread that
//! serves them. Sources and sinks never use the thread directly: it passes them the ends of rings
//! as members come, and reports departures.
//!
//! A new member connects to all present members, under a lock, so that each pair has one
//! connection. The end of a connection means that the member left or died: the kernel reports it at
//! once. A member may also be [standalone](Member::standalone): then it connects only on request,
//! and admits only peers that present one of its tokens.

mod member_thread;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use rustix::thread::futex;
use selvedge_os::clock::Clock;
use selvedge_os::control::{self, Connection};
use selvedge_os::eventfd::EventFd;
use selvedge_os::seqpacket;

use crate::JoinError;
use crate::message::Message;
use crate::name::LockedDirectory;
use crate::ring::{PeerId, SinkOptions};
use crate::ring_reader::RingReader;
use crate::ring_writer::RingWriter;
use member_thread::{MemberThread, Peer};
use selvedge_units::Duration;

/// The largest number of other members of a channel on this host.
pub const PEERS_MAX: usize = 126;
/// The same limit for a standalone member, in both directions together.
pub(crate) const CALLS_MAX: usize = 256;
/// How long joining waits for the members that are already present.
const GREETING: Duration = Duration::from_millis(250);

/// A change that the thread passes on.
#[derive(Debug)]
pub(crate) enum Change<T> {
    Added(T),
    Removed(PeerId),
}

/// The state that the thread, the source and the sink share.
#[derive(Debug)]
pub(crate) struct Shared {
    lists: Mutex<Lists>,
    hello_received: Condvar,
    /// Counts the changes for the source, and below for the sink, which may sleep on it.
    pub(crate) for_source: AtomicU32,
    pub(crate) for_sink: AtomicU32,
    /// The same as an eventfd, for sinks that wait for descriptors.
    pub(crate) event: EventFd,
    /// Ends the thread's wait.
    wake_event: EventFd,
    /// The number of the next connection.
    next: AtomicU32,
}

#[derive(Debug, Default)]
struct Lists {
    source: Vec<Change<RingWriter>>,
    sink: Vec<Change<RingReader>>,
    /// Connections that the source or the sink no longer trusts.
    close: Vec<PeerId>,
    /// The number of earlier members whose hello has not arrived.
    hello_pending: usize,
    /// New connections that this member has made.
    new_connections: Vec<Peer>,
    /// Tokens of admitted peers that know no channel, each valid once.
    tokens: VecDeque<Box<str>>,
    stop: bool,
}

impl Shared {
    fn new() -> Result<Arc<Self>, JoinError> {
        Ok(Arc::new(Self {
            lists: Mutex::default(),
            hello_received: Condvar::new(),
            for_source: AtomicU32::new(0),
            for_sink: AtomicU32::new(0),
            event: EventFd::new()?,
            wake_event: EventFd::new()?,
            next: AtomicU32::new(0),
        }))
    }

    pub(crate) fn take_for_source(&self) -> Vec<Change<RingWriter>> {
        std::mem::take(&mut self.lists.lock().source)
    }

    pub(crate) fn take_for_sink(&self) -> Vec<Change<RingReader>> {
        std::mem::take(&mut self.lists.lock().sink)
    }

    /// Ends the connection to a member that corrupted the shared memory.
    pub(crate) fn close(&self, peer: PeerId) {
        self.lists.lock().close.push(peer);
        self.wake_thread();
    }

    /// Admits a peer with this token, once; above the limit the oldest token is forgotten.
    pub(crate) fn admit_token(&self, token: &str) {
        let mut lists = self.lists.lock();
        if lists.tokens.len() >= CALLS_MAX {
            lists.tokens.pop_front();
        }
        lists.tokens.push_back(token.into());
    }

    fn is_admitted(&self, token: &str) -> bool {
        let mut lists = self.lists.lock();
        let at = lists.tokens.iter().position(|known| **known == *token);
        at.is_some_and(|at| lists.tokens.remove(at).is_some())
    }

    /// Adds a connection to a sink that expects this member's events; returns its number.
    pub(crate) fn call(&self, connection: Connection, token: &str) -> std::io::Result<PeerId> {
        let hello = Message::Hello { channel: token.to_owned(), source: true, sink: false };
        connection.send(&hello, &[], &[]).map_err(std::io::Error::other)?;
        let who = connection.peer()?;
        if !control::is_ours(&who) {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        let id = self.next();
        let mut peer =
            Peer::new(id, connection, who.pid, Some(token.into()), Clock::shared().now());
        peer.is_known = true;
        self.lists.lock().new_connections.push(peer);
        self.wake_thread();
        Ok(id)
    }

    fn next(&self) -> PeerId {
        PeerId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn wake_thread(&self) {
        self.wake_event.ring();
    }

    fn notify_source(&self, change: Change<RingWriter>) {
        self.lists.lock().source.push(change);
        self.for_source.fetch_add(1, Ordering::Release);
    }

    fn notify_sink(&self, change: Change<RingReader>) {
        self.lists.lock().sink.push(change);
        self.for_sink.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.for_sink, futex::Flags::empty(), u32::MAX >> 1);
        self.event.ring();
    }
}

/// A member. Dropping it leaves the channel.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) shared: Arc<Shared>,
    /// The path of its socket, if that is a file.
    path: Option<PathBuf>,
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
        let shared = Shared::new()?;
        let meeting = LockedDirectory::open(directory, name)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = meeting.path.join(format!("{}.{number}", std::process::id()));
        let listener = seqpacket::listen_at(&path)
            .map_err(|why| JoinError::Socket { path: path.display().to_string(), why })?;
        let hello = Message::Hello { channel: name.to_owned(), source, sink: sink.is_some() };
        let mut member_thread = MemberThread {
            shared: Arc::clone(&shared),
            name: Some(name.into()),
            source,
            sink,
            hello: Some(hello),
            listener,
            peers: Vec::new(),
            most: PEERS_MAX,
            clock: Clock::shared(),
        };
        for other in meeting.members().filter(|other| *other != path).take(PEERS_MAX) {
            match Connection::open(&other) {
                Ok(connection) => member_thread.add_connection(connection, true),
                // No process listens there: the member was killed.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    let _ = std::fs::remove_file(&other);
                }
                // The member's queue of connections is full.
                Err(error) => {
                    tracing::warn!(member = %other.display(), %error, "passed over a member");
                }
            }
        }
        drop(meeting);
        shared.lists.lock().hello_pending = member_thread.peers.len();
        let member = Self::keep(shared, Some(path), member_thread)?;
        let awaits = |lists: &mut Lists| lists.hello_pending > 0;
        member.shared.hello_received.wait_while_for(
            &mut member.shared.lists.lock(),
            awaits,
            GREETING.into(),
        );
        Ok(member)
    }

    /// A member without a channel: a source for the sinks that it [connects to](Shared::call), and
    /// a sink for the sources that it [admits](Shared::admit_token).
    pub(crate) fn standalone(listener: OwnedFd, sink: SinkOptions) -> Result<Self, JoinError> {
        let shared = Shared::new()?;
        let member_thread = MemberThread {
            shared: Arc::clone(&shared),
            name: None,
            source: true,
            sink: Some(sink),
            hello: None,
            listener,
            peers: Vec::new(),
            most: CALLS_MAX,
            clock: Clock::shared(),
        };
        Self::keep(shared, None, member_thread)
    }

    fn keep(
        shared: Arc<Shared>,
        path: Option<PathBuf>,
        member_thread: MemberThread,
    ) -> Result<Self, JoinError> {
        let mut member = Self { shared, path, thread: None };
        let builder = std::thread::Builder::new().name("local-keeper".to_owned());
        member.thread =
            Some(builder.spawn(move || member_thread.run()).map_err(JoinError::System)?);
        Ok(member)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shared.lists.lock().stop = true;
        self.shared.wake_thread();
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
        if let Some(thread) = self.thread.take() {
            // The thread panics only by a bug, and its message was printed then.
            let _ = thread.join();
        }
    }
}
