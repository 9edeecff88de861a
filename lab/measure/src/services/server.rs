//! A small web server of one thread that learns of its sockets by `select`, `epoll` or the I/O event
//! module, and is otherwise the same: what Q-Fabric's section 3.5.3 did to thttpd. It serves one page,
//! one request a connection; also an example of a loop around [`Readiness`].

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{Timespec, epoll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use selvedge_comm_services::{Readiness, Ready, ServiceError};
use selvedge_units::Duration;

/// How the server learns of its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// `select(2)`, for any number of descriptors.
    Select,
    /// `epoll`, level-triggered.
    Epoll,
    /// The I/O event module.
    Module,
}

impl Notice {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Select, Self::Epoll, Self::Module];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Epoll => "epoll",
            Self::Module => "I/O event module",
        }
    }
}

/// The longest request's head that is read.
const HEAD_MAX: usize = 8192;
/// How often the server looks whether it is to stop.
const STOP: Duration = Duration::from_millis(50);

/// The longest queue of connections that nobody has accepted yet; the system may allow less.
const QUEUE: i32 = 4096;

/// A listener for [`serve`], at a free port of the loopback. Its queue is long: where the usual 128 are
/// full, who connects is passed over, and tries again a second later at the earliest.
pub fn listen() -> io::Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    rustix::net::listen(&listener, QUEUE)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Whether this process may have so many descriptors; raises its own limit as far as it is allowed to.
pub fn allow_descriptors(wanted: u64) -> bool {
    let has = getrlimit(Resource::Nofile);
    if has.current.is_none_or(|current| current >= wanted) {
        return true;
    }
    let is_allowed = has.maximum.is_none_or(|maximum| maximum >= wanted);
    let raised = Rlimit { current: Some(wanted), maximum: has.maximum };
    is_allowed && setrlimit(Resource::Nofile, raised).is_ok()
}

/// Serves until `stop`; adds to `served` with each reply. The listener must not block.
///
/// # Errors
/// If sockets can't be watched this way, the system refuses the listener, or there are more connections
/// than the process may have descriptors.
pub fn serve(
    listener: &TcpListener,
    notice: Notice,
    page: &[u8],
    stop: &AtomicBool,
    served: &AtomicU64,
) -> Result<(), ServiceError> {
    let call = |error| ServiceError::Call("the web server", error);
    let head = format!(
        "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n",
        page.len()
    );
    let reply: Vec<u8> = head.bytes().chain(page.iter().copied()).collect();
    let mut source = Source::new(notice)?;
    source.add(listener).map_err(call)?;
    let mut connections: HashMap<RawFd, (TcpStream, Vec<u8>)> = HashMap::new();
    let mut ready = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        source.wait(&mut ready).map_err(call)?;
        for &number in &ready {
            if number == listener.as_raw_fd() {
                loop {
                    let connection = match listener.accept() {
                        Ok((connection, _)) => connection,
                        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                            return Err(call(error));
                        }
                        Err(_) => break,
                    };
                    let done = connection.set_nonblocking(true);
                    if done.is_ok() && source.add(&connection).is_ok() {
                        connections.insert(connection.as_raw_fd(), (connection, Vec::new()));
                    }
                }
                continue;
            }
            let Some((connection, request)) = connections.get_mut(&number) else { continue };
            if answer(connection, request, &reply, served) {
                source.remove(number);
                connections.remove(&number);
            }
        }
    }
    Ok(())
}

/// Reads what has come; whether the connection is at its end.
fn answer(
    connection: &mut TcpStream,
    request: &mut Vec<u8>,
    reply: &[u8],
    served: &AtomicU64,
) -> bool {
    let mut part = [0; 2048];
    loop {
        match connection.read(&mut part) {
            Ok(0) => return true,
            Ok(length) => request.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(_) => return true,
        }
        if request.len() > HEAD_MAX {
            return true;
        }
    }
    if !request.windows(4).any(|end| end == b"\r\n\r\n") {
        return false;
    }
    // The page fits into the socket's buffer, which is empty.
    if connection.write_all(reply).is_ok() {
        served.fetch_add(1, Ordering::Relaxed);
    }
    true
}

enum Source {
    Select { wanted: Vec<u64>, result: Vec<u64>, highest: RawFd },
    Epoll(OwnedFd, Vec<epoll::Event>),
    Module(Readiness, Vec<Ready>),
}

impl Source {
    fn new(notice: Notice) -> Result<Self, ServiceError> {
        Ok(match notice {
            Notice::Select => Self::Select { wanted: Vec::new(), result: Vec::new(), highest: -1 },
            Notice::Epoll => {
                let set = epoll::create(epoll::CreateFlags::CLOEXEC);
                let set = set.map_err(|errno| ServiceError::Call("epoll", errno.into()))?;
                Self::Epoll(set, Vec::with_capacity(512))
            }
            Notice::Module => Self::Module(Readiness::new()?, Vec::new()),
        })
    }

    fn add(&mut self, socket: impl AsFd) -> io::Result<()> {
        let number = socket.as_fd().as_raw_fd();
        match self {
            Self::Select { wanted, highest, .. } => {
                let word = number as usize / 64;
                if wanted.len() <= word {
                    wanted.resize(word + 1, 0);
                }
                wanted[word] |= 1 << (number % 64);
                *highest = (*highest).max(number);
                Ok(())
            }
            Self::Epoll(set, _) => {
                let data = epoll::EventData::new_u64(number as u64);
                Ok(epoll::add(&*set, socket, data, epoll::EventFlags::IN)?)
            }
            Self::Module(module, _) => module.attach(socket).map_err(io::Error::other),
        }
    }

    /// Before a descriptor is closed.
    fn remove(&mut self, number: RawFd) {
        match self {
            Self::Select { wanted, .. } => {
                if let Some(word) = wanted.get_mut(number as usize / 64) {
                    *word &= !(1 << (number % 64));
                }
            }
            // Closing does it.
            Self::Epoll(..) => {}
            Self::Module(module, _) => {
                let _ = module.detach(number);
            }
        }
    }

    fn wait(&mut self, into: &mut Vec<RawFd>) -> io::Result<()> {
        into.clear();
        match self {
            Self::Select { wanted, result, highest } => {
                result.clone_from(wanted);
                let mut time = libc::timeval { tv_sec: 0, tv_usec: (STOP.0 / 1000) as i64 };
                let null = std::ptr::null_mut();
                // SAFETY: the kernel reads and writes as many bits as there are descriptors, rounded
                // up to 64, which `result` has.
                let found = unsafe {
                    let bits = result.as_mut_ptr().cast();
                    libc::select(*highest + 1, bits, null, null, &raw mut time)
                };
                if found <= 0 {
                    return Ok(());
                }
                for (index, word) in result.iter().enumerate().filter(|(_, word)| **word != 0) {
                    let set = (0..64).filter(|bit| word >> bit & 1 == 1);
                    into.extend(set.map(|bit| (index * 64 + bit) as RawFd));
                }
            }
            Self::Epoll(set, events) => {
                events.clear();
                let time = Timespec { tv_sec: 0, tv_nsec: STOP.0 as i64 };
                let buffer = rustix::buffer::spare_capacity(events);
                match epoll::wait(&*set, buffer, Some(&time)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
                into.extend(events.iter().map(|event| event.data.u64() as RawFd));
            }
            Self::Module(module, ready) => {
                module.wait(ready, Some(STOP))?;
                into.extend(ready.iter().map(|one| one.descriptor));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use selvedge_comm_services::ProgramError;

    use super::*;

    #[test]
    fn all_ways_serve_the_same_page() {
        for notice in Notice::ALL {
            let listener = listen().unwrap();
            let to = listener.local_addr().unwrap();
            let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
            /// Ends the server also where a check fails: the scope waits for it.
            struct Stop<'a>(&'a AtomicBool);
            impl Drop for Stop<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
            std::thread::scope(|scope| {
                let stopping = Stop(&stop);
                let server = scope.spawn(|| serve(&listener, notice, b"<p>hello", &stop, &served));
                // An idle one, and those that come in pieces.
                let idle = TcpStream::connect(to).unwrap();
                for _ in 0..20 {
                    if server.is_finished() {
                        break;
                    }
                    let mut client = TcpStream::connect(to).unwrap();
                    client.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
                    client.write_all(b"GET / HTTP/1.0\r\n").unwrap();
                    client.write_all(b"\r\n").unwrap();
                    let mut text = String::new();
                    if client.read_to_string(&mut text).is_ok() {
                        assert!(text.starts_with("HTTP/1.0 200") && text.ends_with("<p>hello"));
                    }
                }
                drop((stopping, idle));
                match server.join().unwrap() {
                    Ok(()) => assert_eq!(served.load(Ordering::Relaxed), 20),
                    Err(ServiceError::Program(
                        ProgramError::NotPermitted | ProgramError::NoTypes(_),
                    )) => {}
                    Err(error) => panic!("{error}"),
                }
            });
        }
    }
}
