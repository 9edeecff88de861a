//! The listen-queue controller of Q-Fabric's Figure 21, for an unmodified server. It duplicates the
//! listening socket from the server's process (`pidfd_getfd`). The load comes as events from the
//! kernel, where an E-code handler watches the queue. `listen` on the duplicate changes the queue's
//! length. The number of served connections follows from the server's descriptors.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::process::{Pid, PidfdGetfdFlags, pidfd_getfd};
use selvedge_control_overload::{Config, ConfigError, Controller, Load};
use selvedge_os::signal;
use selvedge_units::Duration;

use crate::catalog::Service;
use crate::error::ServiceError;
use crate::handler::program;
use crate::watch::{Watch, WatchOptions, now};

/// Why a controller can't be started.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// No server listens there.
    #[error("nobody listens on TCP port {0} in this network; start the server first")]
    NoListener(u16),
    /// The socket can't be duplicated.
    #[error("the socket of process {pid} can't be borrowed: {why}; run as root, or as its user")]
    Borrow {
        /// The server.
        pid: u32,
        /// The system's error.
        why: io::Error,
    },
    /// The thresholds are invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The events are not available.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// A call of the system failed.
    #[error("{0}: {1}")]
    Call(&'static str, io::Error),
}

/// The state of a listening socket's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Connections that wait to be accepted.
    pub waiting: u32,
    /// The largest number that may wait.
    pub length: u32,
}

/// A listening socket of another process.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    pid: u32,
}

impl Listener {
    /// Duplicates the socket that listens on a TCP port in this network namespace.
    ///
    /// # Errors
    /// If no server listens there, or this process lacks the right.
    pub fn find(port: u16) -> Result<Self, ListenError> {
        let call = |what| move |error| ListenError::Call(what, error);
        let text = sockets();
        let inodes: Vec<u64> =
            text.lines().filter_map(|line| socket(line, port, LISTENS)).collect();
        if inodes.is_empty() {
            return Err(ListenError::NoListener(port));
        }
        let names: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
        for process in std::fs::read_dir("/proc").map_err(call("/proc"))?.flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if let Some(descriptor) = descriptor(&process.path(), &names) {
                return borrow(pid, descriptor).map_err(|why| ListenError::Borrow { pid, why });
            }
        }
        let why = io::Error::from(io::ErrorKind::PermissionDenied);
        Err(ListenError::Borrow { pid: 0, why })
    }

    /// The process that owns the socket.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The state of its queue.
    pub fn queue(&self) -> io::Result<Queue> {
        // The beginning of `struct tcp_info`; of a listening socket the kernel puts the queue into
        // tcpi_unacked and tcpi_sacked.
        let mut info = [0_u32; 9];
        let mut length = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `info`.
        let done = unsafe {
            let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
            let to = info.as_mut_ptr().cast();
            libc::getsockopt(self.socket.as_raw_fd(), level, name, to, &raw mut length)
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Queue { waiting: info[6], length: info[7] })
    }

    /// Changes the length of its queue; connections that wait already stay. The kernel's limit
    /// (`net.core.somaxconn`) applies.
    pub fn set_length(&self, length: u32) -> io::Result<()> {
        let length = i32::try_from(length).unwrap_or(i32::MAX);
        Ok(rustix::net::listen(&self.socket, length)?)
    }
}

/// The lines of the kernel's tables of TCP sockets of this network namespace.
fn sockets() -> String {
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
    tables.map(|table| std::fs::read_to_string(table).unwrap_or_default()).concat()
}

/// The inode of a line of such a table, if it is of a local port and in this state.
fn socket(line: &str, port: u16, wanted: &str) -> Option<u64> {
    let mut fields = line.split_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    let (_, own) = local.rsplit_once(':')?;
    let matches = state == wanted && u16::from_str_radix(own, 16) == Ok(port);
    matches.then(|| fields.nth(5)?.parse().ok()).flatten()
}

const LISTENS: &str = "0A";
const ESTABLISHED: &str = "01";

/// The number of open connections to a port.
fn connections(port: u16) -> u64 {
    sockets().lines().filter(|line| socket(line, port, ESTABLISHED).is_some()).count() as u64
}

/// The number of a process's descriptors; Linux 6.2 or later returns it at once.
fn descriptors(pid: u32) -> u64 {
    let folder = format!("/proc/{pid}/fd");
    let length = std::fs::metadata(&folder).map_or(0, |folder| folder.len());
    if length > 0 {
        return length;
    }
    std::fs::read_dir(&folder).map_or(0, |entries| entries.count() as u64)
}

/// A process's descriptor of one of these sockets.
fn descriptor(process: &Path, names: &[String]) -> Option<i32> {
    for entry in std::fs::read_dir(process.join("fd")).ok()?.flatten() {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        if names.iter().any(|name| Path::new(name) == target) {
            return entry.file_name().to_str()?.parse().ok();
        }
    }
    None
}

fn borrow(pid: u32, descriptor: i32) -> io::Result<Listener> {
    let process = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    let process = signal::process(process)?;
    let socket = pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty())?;
    Ok(Listener { socket, pid })
}

/// A handler that raises an event when the queue exceeds its threshold, and then repeatedly until
/// the queue has been empty.
fn handler(config: &Config) -> String {
    format!(
        "{{
            static int over;
            static long last;
            if (input.tick) return 0;
            if (input.value > {}) {{
                if (over && input.time - last < 5000000) return 0;
                over = 1;
            }} else {{
                if (!over || input.time - last < 20000000) return 0;
                if (input.value == 0) over = 0;
            }}
            last = input.time;
            return 1;
        }}",
        config.waiting
    )
}

/// A running controller of a server's listening socket.
#[derive(Debug)]
pub struct ListenQueue {
    listener: Listener,
    watch: Watch,
    /// The server's descriptors that are not its connections.
    besides: u64,
    controller: Controller,
    /// The length before the controller started.
    first: u32,
    changes: u64,
}

impl ListenQueue {
    /// Controls the queue of the server on a TCP port. The server's own length is the longest.
    ///
    /// # Errors
    /// If no server listens there, this process lacks the right, or the thresholds are invalid.
    pub fn new(port: u16, config: Config) -> Result<Self, ListenError> {
        let listener = Listener::find(port)?;
        let queue = listener.queue().map_err(|why| ListenError::Call("the queue", why))?;
        let config = Config { longest: queue.length.max(1), ..config };
        let mut wish = WatchOptions::new(Service::Socket);
        wish.kinds = vec!["load".to_owned()];
        wish.port = Some(port);
        wish.handler = Some(program("listen-queue", &handler(&config), Service::Socket)?);
        let controller = Controller::new(config)?;
        let watch = Watch::start(wish)?;
        let served = connections(port).saturating_sub(u64::from(queue.waiting));
        let besides = descriptors(listener.pid).saturating_sub(served);
        Ok(Self { listener, watch, besides, controller, first: queue.length, changes: 0 })
    }

    /// Waits at most `at_most` for events, and adapts the length.
    pub fn run(&mut self, at_most: Duration) -> io::Result<()> {
        self.watch.wait(at_most)?;
        while self.watch.poll(now()).is_some() {}
        // An event may be late, and a full queue raises none, so the queue is read now.
        let queue = self.listener.queue()?;
        // The server holds a descriptor of each accepted connection, whatever the peer has done since.
        let serving = descriptors(self.listener.pid).saturating_sub(self.besides);
        let load =
            Load { serving: u32::try_from(serving).unwrap_or(u32::MAX), waiting: queue.waiting };
        if let Some(length) = self.controller.observe(load) {
            self.listener.set_length(length)?;
            self.changes += 1;
        }
        Ok(())
    }

    /// The queue's length now, and how often it was changed.
    pub fn state(&self) -> (u32, u64) {
        (self.controller.length(), self.changes)
    }
}

impl Drop for ListenQueue {
    /// Restores the server's own length.
    fn drop(&mut self) {
        let _ = self.listener.set_length(self.first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProgramError;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn lines_of_the_table_are_read() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0";
        assert_eq!(socket(line, 8080, LISTENS), Some(4711));
        assert_eq!(socket(line, 8081, LISTENS), None);
        assert_eq!(socket(line, 8080, ESTABLISHED), None);
        for broken in ["", "  sl  local_address rem_address   st", "0: x 0 0A", "0: 1:1F90 0 0A"] {
            assert_eq!(socket(broken, 8080, LISTENS), None);
        }
    }

    #[test]
    fn a_borrowed_sockets_queue_is_shortened_and_given_back() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let config = Config { longest: 1, shortest: 2, serving: 0, waiting: 3 };
        let mut queue = match ListenQueue::new(port, config) {
            Err(ListenError::Service(
                error @ (ServiceError::PidNamespace
                | ServiceError::Program(
                    ProgramError::NotPermitted | ProgramError::NoTypes(_),
                )),
            )) => return eprintln!("SKIPPED: {error}"),
            other => other.unwrap(),
        };
        let (first, _) = queue.state();
        assert_eq!(queue.listener.pid(), std::process::id());
        // Many connections are served (more than other tests of this process close) and many wait: shorter.
        let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
        let served: Vec<_> = (0..300).map(|_| (connect(), server.accept().unwrap())).collect();
        let waiting: Vec<_> = (0..20).map(|_| connect()).collect();
        let began = std::time::Instant::now();
        while queue.state().0 >= first {
            queue.run(Duration::from_millis(20)).unwrap();
            assert!(began.elapsed().as_secs() < 20, "{:?}", queue.watch.tally());
        }
        assert_eq!(queue.listener.queue().unwrap().length, queue.state().0);
        // All connections are gone: long again.
        drop((served, waiting));
        server.set_nonblocking(true).unwrap();
        while server.accept().is_ok() {}
        while queue.state().0 < first {
            queue.run(Duration::from_millis(1)).unwrap();
            assert!(began.elapsed().as_secs() < 40, "{:?}", queue.state());
        }
        queue.listener.set_length(5).unwrap();
        let other = Listener::find(port).unwrap();
        drop(queue);
        assert_eq!(other.queue().unwrap().length, first, "as it was");
        drop(server);
        assert!(other.set_length(7).is_ok(), "the socket lives as long as it is borrowed");
        drop(other);
        assert!(matches!(Listener::find(port), Err(ListenError::NoListener(p)) if p == port));
    }
}
