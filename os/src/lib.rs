//! The parts of Linux that Selvedge uses, without Selvedge's decisions: clock and wake-ups, shared memory,
//! datagram sockets and batched transmission, netlink, routes, devices and namespaces.
//!
//! Everything here reads a clock or does I/O; the rooms above (`place`, `comm`, `node`) supply the data.

pub mod batch;
pub mod clock;
pub mod connections;
pub mod control;
pub mod datagram_port;
pub mod device;
pub mod device_port;
pub mod eventfd;
pub mod first_process;
pub mod huge_pages;
pub mod keeper;
pub mod latency;
pub mod memory;
pub mod namespace;
pub mod netlink;
pub mod poll_thread;
pub mod preemption;
pub mod probe;
pub mod route;
pub mod sandbox;
pub mod sched;
pub mod seqpacket;
pub mod signal;
pub mod single_datagram;
pub mod socket;
pub mod transmit;
pub mod wake;

pub use socket::SocketError;

/// The system's last error, if a call did not return 0.
fn check(done: impl Into<i64>) -> std::io::Result<()> {
    let done: i64 = done.into();
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
