//! Probes of sending: many packets a call, times with packets, rings shared with the kernel.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration as StdDuration;

use rustix::net::{TxTimeFlags, sockopt};
use rustix::time::ClockId;
use selvedge_units::{Duration, Instant};

use super::{Outcome, Unavailable};
use crate::clock::Clock;
use crate::namespace::{self, Veth};
use crate::netlink::Netlink;
use crate::socket::{self, SocketError};
use crate::transmit::xdp::XdpSocket;
use crate::transmit::{Method, Outgoing, TransmitCounters, TransmitOptions, Transmitter};

/// Two sockets on the loopback, the first connected to the second.
fn pair() -> io::Result<(UdpSocket, UdpSocket)> {
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    receiver.set_read_timeout(Some(StdDuration::from_secs(5)))?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    sender.connect(receiver.local_addr()?)?;
    Ok((sender, receiver))
}

const LOOPBACK: &str = "bring the loopback up: ip link set lo up";

/// One call, many packets split by the kernel.
pub fn gso() -> Outcome {
    const REMEDY: &str = "use Linux 4.18 or later; the engine sends by sendmmsg until then";
    let (sender, receiver) = pair().map_err(|why| Unavailable::new(why, LOOPBACK))?;
    socket::set_int(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, 100)
        .map_err(|why| Unavailable::new(why, REMEDY))?;
    sender.send(&[7; 250]).map_err(|why| Unavailable::new(why, REMEDY))?;
    let mut buffer = [0; 2000];
    let mut sizes = Vec::new();
    for _ in 0..3 {
        sizes.push(receiver.recv(&mut buffer).map_err(|why| Unavailable::new(why, REMEDY))?);
    }
    if sizes == [100, 100, 50] {
        Ok("UDP_SEGMENT cut 250 bytes into 100, 100 and 50".to_owned())
    } else {
        Err(Unavailable::new(format!("250 bytes came out as {sizes:?}"), REMEDY))
    }
}

/// One call, many packets.
pub fn sendmmsg() -> Outcome {
    let (sender, receiver) = pair().map_err(|why| Unavailable::new(why, LOOPBACK))?;
    let payload = [7_u8; 10];
    let mut io =
        libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
    // SAFETY: plain data, for which all bytes zero are a valid value.
    let mut messages: [libc::mmsghdr; 2] = unsafe { std::mem::zeroed() };
    for message in &mut messages {
        message.msg_hdr.msg_iov = &raw mut io;
        message.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: two messages whose one part each lives through the call; it is only read.
    let sent = unsafe { libc::sendmmsg(sender.as_raw_fd(), messages.as_mut_ptr(), 2, 0) };
    if sent != 2 {
        return Err(Unavailable::last("allow sendmmsg in the sandbox"));
    }
    let mut buffer = [0; 100];
    for _ in 0..2 {
        receiver.recv(&mut buffer).map_err(|why| Unavailable::new(why, LOOPBACK))?;
    }
    Ok("two packets by one call, both came".to_owned())
}

/// A time with each packet, which the kernel's qdisc takes as its deadline.
pub fn txtime() -> Outcome {
    let (sender, _) = pair().map_err(|why| Unavailable::new(why, LOOPBACK))?;
    sockopt::set_txtime(&sender, ClockId::Monotonic, TxTimeFlags::empty())
        .map(|()| "SO_TXTIME on CLOCK_MONOTONIC granted".to_owned())
        .map_err(|why| Unavailable::new(why, "use Linux 4.19 or later"))
}

/// Whole frames: over a veth pair of our own, and if that can't be created, at least a socket.
pub fn af_xdp() -> Outcome {
    let sent = namespace::alone(|| {
        let wire = Veth::new()?;
        frames_over(&wire).map_err(io::Error::other)
    });
    match sent.flatten() {
        Ok(counters) => Ok(format!(
            "{} packets over veth in copy mode, all came; zero-copy not tried",
            counters.xdp
        )),
        Err(why) => {
            socket_on_loopback().map(|found| format!("{found}; no wire to try it on: {why}"))
        }
    }
}

/// Why no packets went over a veth pair.
#[derive(Debug, thiserror::Error)]
enum WireError {
    #[error("no receiver: {0}")]
    Receiver(#[from] io::Error),
    #[error(transparent)]
    Sender(#[from] SocketError),
    #[error("a packet did not come: {0}")]
    Lost(#[source] io::Error),
    #[error("{0}")]
    Refused(String),
    #[error("none went by AF_XDP within 5 s")]
    None,
}

/// Sends packets by AF_XDP to the far end until some went that way; returns the counters, after all packets
/// arrived.
fn frames_over(wire: &Veth) -> Result<TransmitCounters, WireError> {
    const ENOUGH: u64 = 16;
    let (receiver, to) = namespace::listener(wire)?;
    let options = TransmitOptions { method: Method::Xdp, ..TransmitOptions::default() };
    let clock = Clock::new();
    let mut sender = Transmitter::new(clock, options)?;
    let mut buffer = [0; 100];
    while sender.counters().xdp < ENOUGH {
        sender.send_batch(&[Outgoing { to, head: &[], bytes: b"over the wire" }]);
        receiver.recv(&mut buffer).map_err(WireError::Lost)?;
        let refused = sender.fallback().map(str::to_owned);
        if clock.now().since(Instant::ZERO) > Duration::from_secs(5) || refused.is_some() {
            return Err(refused.map_or(WireError::None, WireError::Refused));
        }
    }
    Ok(sender.counters())
}

/// A socket for whole frames, on the loopback, in copy mode.
fn socket_on_loopback() -> Outcome {
    const REMEDY: &str = "run as root or with CAP_NET_RAW, CAP_NET_ADMIN and CAP_IPC_LOCK, on a \
                          kernel with CONFIG_XDP_SOCKETS=y";
    let lo = Netlink::open().and_then(|netlink| netlink.index("lo"));
    let lo = lo.map_err(|why| Unavailable::new(why, LOOPBACK))?;
    XdpSocket::open(lo).map_err(|why| Unavailable::new(why, REMEDY))?;
    Ok("bound to lo in copy mode; zero-copy depends on the device's driver".to_owned())
}

/// A ring of requests.
pub fn io_uring() -> Outcome {
    const PARAMS: usize = 120;
    let mut params = [0_u64; PARAMS / 8];
    // SAFETY: the kernel reads and writes PARAMS bytes, the size of `struct io_uring_params`.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, params.as_mut_ptr()) };
    if fd < 0 {
        return Err(Unavailable::last(
            "allow it: sysctl kernel.io_uring_disabled=0, and in a container's seccomp profile; \
             Linux 5.1 or later",
        ));
    }
    // SAFETY: just opened, with no other owner.
    drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    // Features are the sixth word.
    Ok(format!("a ring was made; features {:#x}", (params[2] >> 32) as u32))
}
