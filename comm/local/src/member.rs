//! A member of a channel: its socket, its connections to the other members, and the thread that keeps
//! them. Sources and sinks never see the thread: it hands them the ends of rings as members come, and
//! tells them who went.
//!
//! Whoever joins connects to all who are there, under a lock, so that each two have one connection. A
//! connection that ends is a member that left or died: the kernel tells at once. A member may also stand
//! [alone](Member::alone): then it connects to whom it is told, and lets in who says a word of its.

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

/// The most other members of a channel on this host.
pub const PEERS_MAX: usize = 126;
/// The same of one that stands alone, both ways together.
pub(crate) const CALLS_MAX: usize = 256;
/// How long joining waits for those who are there already.
const GREETING: Duration = Duration::from_millis(250);

/// What the thread hands over.
#[derive(Debug)]
pub(crate) enum Change<T> {
    Added(T),
    Removed(PeerId),
}

/// What thread, source and sink share.
#[derive(Debug)]
pub(crate) struct Shared {
    lists: Mutex<Lists>,
    hello_received: Condvar,
    /// Counts the changes for the source, and for the sink, who may sleep on it.
    pub(crate) for_source: AtomicU32,
    pub(crate) for_sink: AtomicU32,
    /// The same for sinks that wait for descriptors.
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
    /// Connections that source or sink do not trust any more.
    close: Vec<PeerId>,
    /// Members that were there before, and have not said who they are.
    hello_pending: usize,
    /// Connections that this member has made since.
    new_connections: Vec<Peer>,
    /// What those may say who are let in though they know no channel, once each.
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

    /// Ends the connection to a member that broke what it shares with us.
    pub(crate) fn close(&self, peer: PeerId) {
        self.lists.lock().close.push(peer);
        self.wake_thread();
    }

    /// Lets in who says this, once; of too many words the oldest is forgotten.
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

    /// Keeps a connection to a sink that expects this member's events; its number.
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

/// A member. Leaves when dropped.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) shared: Arc<Shared>,
    /// Of its socket, if that is a file.
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

    /// A member of no channel: a source for whom it [calls](Shared::call), a sink for those who call it
    /// and are [welcome](Shared::welcome).
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
            // It panics only by a bug, which its message has told already.
            let _ = thread.join();
        }
    }
}
