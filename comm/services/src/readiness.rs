//! The I/O event module: the kernel records in shared memory which sockets are ready, as it
//! happens. A server's loop reads this without a system call; while no socket is ready, it sleeps.
//!
//! Only changes are reported, as with edge-triggered epoll: read until there is no more, or call
//! [`Readiness::rearm_descriptor`]. Attaching a socket marks it as ready once, since data may wait
//! already. A mark may be spurious (the data were read before the look), so sockets should be
//! non-blocking. The module supports TCP and UDP, over either IP. Other kinds of sockets signal
//! changes at places where no program can attach, and are refused.
//!
//! After `fork` both processes see the same memory, and each mark is taken by one of them, as if
//! they were threads.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};
use rustix::event::epoll;
use selvedge_os::clock::timespec;
use selvedge_os_bpf::{io_error, release, types};
use selvedge_units::Duration;

use crate::error::ServiceError;
use crate::load::{handle, load, mapped, refused, tracepoint};
use crate::readiness_board::{DESCRIPTORS, ReadinessBoard, SIZE};
use crate::ring::Ring;

const RING: usize = 4096;
/// The programs, and their tracepoints.
const POINTS: [&str; 3] = ["sk_data_ready", "inet_sock_set_state", "inet_sk_error_report"];
/// Sockets with room that one look reports, at most.
const ROOM_MAX: usize = 64;

/// Why a socket is not watched.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Its number is too high.
    #[error(
        "descriptor {0} is too high; the I/O event module has room for those below {DESCRIPTORS}"
    )]
    TooHigh(RawFd),
    /// The descriptor is of another kind.
    #[error("descriptor {0} is no socket of TCP or UDP; use epoll for it")]
    Kind(RawFd),
    /// The kernel refuses.
    #[error("descriptor {0}: {1}")]
    Refused(RawFd, io::Error),
}

/// A socket that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Its descriptor.
    pub descriptor: RawFd,
    /// Whether it is ready for writing, as requested by [`Readiness::notify_writable`]; otherwise
    /// there are data, a connection, an end or an error.
    pub room: bool,
}

/// A process's sockets, and which of them are ready.
#[derive(Debug)]
pub struct Readiness {
    // Links are dropped before the objects that they refer to.
    _links: Vec<Link>,
    _object: Object,
    attached: MapHandle,
    memory: MapHandle,
    board: ReadinessBoard,
    ring: Ring,
    /// The epoll set of the ring, and of the sockets that wait for room.
    sleep: OwnedFd,
    /// An upper bound of the number of these sockets.
    writers: AtomicUsize,
}

/// The ring's data value in `sleep`.
const WOKEN: u64 = u64::MAX;

impl Readiness {
    /// Loads the module.
    ///
    /// # Errors
    /// If this process lacks the right, or this kernel lacks a function.
    pub fn new() -> Result<Self, ServiceError> {
        let types = types()?;
        if let Some(tracepoint) = POINTS.into_iter().find(|point| !tracepoint(&types, point)) {
            let what = "the I/O event module".to_owned();
            return Err(ServiceError::NoTracepoint { what, tracepoint, release: release() });
        }
        let program = include_bytes!(concat!(env!("OUT_DIR"), "/readiness.bpf.o"));
        let object = load(program, |_| Ok(()))?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            links.push(program.attach().map_err(refused)?);
        }
        let call = |error| ServiceError::Call("the I/O event module", error);
        let ring = Ring::new(handle(&object, "wake")?, RING).map_err(call)?;
        let sleep = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| call(e.into()))?;
        let data = epoll::EventData::new_u64(WOKEN);
        epoll::add(&sleep, ring.descriptor(), data, epoll::EventFlags::IN)
            .map_err(|errno| call(errno.into()))?;
        Ok(Self {
            _links: links,
            attached: handle(&object, "attached")?,
            memory: handle(&object, "shared")?,
            board: ReadinessBoard::new(mapped(&object, "shared", SIZE)?),
            _object: object,
            ring,
            sleep,
            writers: AtomicUsize::new(0),
        })
    }

    /// Watches a socket, until it is closed or detached. One system call.
    ///
    /// # Errors
    /// If it is not a TCP or UDP socket, or its number is too high.
    pub fn attach(&self, socket: impl AsFd) -> Result<(), AttachError> {
        let number = socket.as_fd().as_raw_fd();
        let at = self.set_interest(number)?;
        self.board.changed(at);
        self.apply_one(at, true)
    }

    /// Records that a descriptor is of interest; [`Self::apply`] applies many such changes at once.
    /// No system call.
    ///
    /// # Errors
    /// If its number is too high.
    pub fn set_interest(&self, number: RawFd) -> Result<usize, AttachError> {
        let at = place(number)?;
        self.board.set_interest(at, true);
        self.board.change(at);
        Ok(at)
    }

    /// Applies the recorded changes. One system call for each.
    ///
    /// # Errors
    /// The last error; the other changes are applied.
    pub fn apply(&self) -> Result<(), AttachError> {
        let mut done = Ok(());
        self.board.changes(|at, wanted| {
            if let Err(error) = self.apply_one(at, wanted) {
                done = Err(error);
            }
        });
        done
    }

    fn apply_one(&self, at: usize, wanted: bool) -> Result<(), AttachError> {
        let number = at as RawFd;
        if !wanted {
            self.board.clear(at);
            return Ok(());
        }
        let refused = |error| {
            self.board.set_interest(at, false);
            Err(AttachError::Refused(number, error))
        };
        match domain(number) {
            Ok(libc::AF_INET | libc::AF_INET6) => {}
            Err(error) if error.raw_os_error() != Some(libc::ENOTSOCK) => return refused(error),
            _ => {
                self.board.set_interest(at, false);
                return Err(AttachError::Kind(number));
            }
        }
        // Marks of the descriptor's last socket are invalid from here on.
        let generation = self.board.generation(at).fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        let mut value = (at as u32).to_ne_bytes().to_vec();
        value.extend(generation.to_ne_bytes());
        if let Err(error) = self.attached.update(&number.to_ne_bytes(), &value, MapFlags::ANY) {
            return refused(io_error(error));
        }
        // This mark covers data that arrived before.
        self.board.mark(at);
        Ok(())
    }

    /// Stops watching a socket. It may be attached again. No system call.
    ///
    /// # Errors
    /// If its number is too high.
    pub fn detach(&self, number: RawFd) -> Result<(), AttachError> {
        let at = place(number)?;
        self.board.set_interest(at, false);
        self.board.generation(at).fetch_add(1, Ordering::SeqCst);
        self.board.clear(at);
        Ok(())
    }

    /// Reports a socket again at the next look, since it was not read to the end. No system call.
    pub fn rearm_descriptor(&self, number: RawFd) {
        if let Ok(at) = place(number) {
            self.board.mark(at);
        }
    }

    /// Reports once when a socket has room for writing, or a connection attempt has succeeded or
    /// failed. One or two system calls; a look makes one more while any socket waits.
    pub fn notify_writable(&self, socket: impl AsFd) -> io::Result<()> {
        let socket = socket.as_fd();
        let data = epoll::EventData::new_u64(socket.as_raw_fd() as u64);
        let flags = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
        self.writers.fetch_add(1, Ordering::SeqCst);
        let done = match epoll::modify(&self.sleep, socket, data, flags) {
            Err(rustix::io::Errno::NOENT) => epoll::add(&self.sleep, socket, data, flags),
            other => other,
        };
        if done.is_err() {
            self.writers.fetch_sub(1, Ordering::SeqCst);
        }
        Ok(done?)
    }

    /// Puts all sockets that are ready now into an empty list. No system call, unless sockets wait for room.
    pub fn poll_ready(&self, into: &mut Vec<Ready>) {
        into.clear();
        self.board.take(|descriptor| into.push(Ready { descriptor, room: false }));
        if self.writers.load(Ordering::Relaxed) > 0 {
            // A system error here appears again when there is nothing else to do.
            let _ = self.sleep(into, Some(Duration(0)));
        }
    }

    /// The number of sockets with data: the section's `flag`. A hint, without a system call.
    pub fn ready(&self) -> u32 {
        self.board.ready()
    }

    /// Looks, and sleeps if nothing is ready, until something is or the time is over. A signal ends
    /// it early, with nothing.
    pub fn wait(&self, into: &mut Vec<Ready>, at_most: Option<Duration>) -> io::Result<()> {
        self.poll_ready(into);
        if !into.is_empty() || at_most == Some(Duration(0)) {
            return Ok(());
        }
        let began = crate::now();
        loop {
            let left =
                at_most.map(|span| Duration(span.0.saturating_sub(crate::now().since(began).0)));
            let woken = if self.prepare_sleep() { self.sleep(into, left) } else { Ok(true) };
            self.finish_sleep();
            let woken = woken?;
            self.board.take(|descriptor| into.push(Ready { descriptor, room: false }));
            if !into.is_empty() || !woken || left == Some(Duration(0)) {
                return Ok(());
            }
        }
    }

    /// For a caller's own loop that sleeps elsewhere: call this, sleep on [`Self::descriptor`] if
    /// it returns true, then call [`Self::finish_sleep`] in either case, and look.
    pub fn prepare_sleep(&self) -> bool {
        self.board.prepare_sleep();
        !self.board.any()
    }

    /// Ends what [`Self::prepare_sleep`] began.
    pub fn finish_sleep(&self) {
        self.board.finish_sleep();
        self.ring.clear();
        self.board.rearm();
    }

    /// The module's memory, for a part of the program that maps it itself: in C with
    /// `include/selvedge_readiness.h`.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// The descriptor that becomes readable during a sleep.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.sleep.as_fd()
    }

    /// Sleeps; returns `false` if the time is over, or a signal came.
    fn sleep(&self, into: &mut Vec<Ready>, at_most: Option<Duration>) -> io::Result<bool> {
        let time = at_most.map(|span| timespec(span.0));
        let mut events = [const { std::mem::MaybeUninit::uninit() }; ROOM_MAX];
        let found = match epoll::wait(&self.sleep, &mut events[..], time.as_ref()) {
            Ok((found, _)) => found,
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        };
        for event in &*found {
            let data = event.data.u64();
            if data != WOKEN {
                self.writers.fetch_sub(1, Ordering::SeqCst);
                into.push(Ready { descriptor: data as RawFd, room: true });
            }
        }
        Ok(!found.is_empty())
    }
}

fn place(number: RawFd) -> Result<usize, AttachError> {
    let at = usize::try_from(number).ok().filter(|at| *at < DESCRIPTORS);
    at.ok_or(AttachError::TooHigh(number))
}

/// The address family of a socket.
fn domain(number: RawFd) -> io::Result<i32> {
    let (mut value, mut length) = (0_i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `length` bytes to `value`; a number that is no descriptor
    // is an error.
    let done = unsafe {
        let value = (&raw mut value).cast();
        libc::getsockopt(number, libc::SOL_SOCKET, libc::SO_DOMAIN, value, &raw mut length)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProgramError;
    use std::net::UdpSocket;

    /// A process that writes nonsense into its own memory gets nonsense; the kernel is not affected.
    #[test]
    fn a_scribbled_board_says_descriptors_only() {
        let readiness = match Readiness::new() {
            Err(ServiceError::Program(ProgramError::NotPermitted | ProgramError::NoTypes(_))) => {
                return;
            }
            other => other.unwrap(),
        };
        let sockets: Vec<_> = (0..8).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        for socket in &sockets {
            readiness.attach(socket).unwrap();
        }
        let mut state = 1_u64;
        let mut ready = Vec::new();
        for _ in 0..50 {
            let noise: Vec<u8> = (0..SIZE / 8)
                .flat_map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state.to_ne_bytes()
                })
                .collect();
            readiness.board.scribble(&noise);
            for socket in &sockets {
                socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
            }
            readiness.wait(&mut ready, Some(Duration::from_millis(1))).unwrap();
            assert!(ready.iter().all(|one| (0..DESCRIPTORS as RawFd).contains(&one.descriptor)));
            assert!(readiness.apply().is_err(), "most numbers are no sockets");
        }
        readiness.board.scribble(&vec![0; SIZE]);
        readiness.poll_ready(&mut ready);
        readiness.attach(&sockets[0]).unwrap();
        readiness.poll_ready(&mut ready);
        sockets[0].send_to(b"x", sockets[0].local_addr().unwrap()).unwrap();
        readiness.poll_ready(&mut ready);
        let own = sockets[0].as_raw_fd();
        assert_eq!(ready, [Ready { descriptor: own, room: false }]);
    }
}
