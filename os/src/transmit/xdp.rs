//! Sending whole Ethernet frames by AF_XDP: bypassing the kernel's IP, its qdisc and its sockets, straight to
//! the device's driver, in copy mode, which every driver supports.
//!
//! A packet is sent this way if its route leads over the socket's device to a neighbour whose link-layer
//! address the kernel knows. All others are sent by the UDP sockets, and so is one packet to each receiver
//! every few seconds: that makes the kernel look for the neighbour, and notice if it moved. Headers are those
//! that the kernel would write (`headers`), from the same UDP port.
//!
//! In copy mode the kernel takes frames off the ring only within `sendto`, so frames that it left there can
//! be taken back: frames that were not sent are reported as busy, as with sockets.

mod headers;
mod path;
mod ring;
mod socket;

use std::collections::HashMap;
use std::net::SocketAddr;

use rustix::io::Errno;
use selvedge_units::{Duration, Instant};

use self::headers::{HEADERS_MAX, write_headers};
use self::path::Path;
use self::socket::CHUNK;
pub(crate) use self::socket::XdpSocket;
use super::Outgoing;
use crate::clock::Clock;
use crate::netlink::Netlink;

/// How long a receiver's path is used before the kernel is queried again.
const PATH_HOLDS: Duration = Duration::from_secs(5);
/// The same for a receiver without a path: the kernel may still be resolving its neighbour.
const ABSENCE_HOLDS: Duration = Duration::from_millis(20);
/// How long a device that takes nothing is not used.
const CLOSED_FOR: Duration = Duration::from_secs(1);
/// The most receivers whose paths are kept; beyond that, all are looked up anew.
const PATHS_MAX: usize = 4096;

/// The result of a run of packets.
pub(super) struct Run {
    /// Packets that the kernel took, from the first on.
    pub(super) taken: usize,
    /// The number of system calls for that.
    pub(super) calls: u64,
    /// Why the next one was not taken, if the kernel returned an error.
    pub(super) error: Option<Errno>,
}

/// Packets by AF_XDP.
#[derive(Debug)]
pub(super) struct Xdp {
    clock: Clock,
    netlink: Netlink,
    /// The socket of one device: that of the first receiver to which there is a path.
    socket: Option<XdpSocket>,
    /// The source ports: IPv4's, IPv6's.
    ports: [u16; 2],
    paths: HashMap<SocketAddr, (Option<Path>, Instant)>,
    /// Why packets are sent by the sockets, the last reason.
    reason: Option<String>,
    /// No device is used before this instant.
    not_before: Instant,
    identification: u16,
}

impl Xdp {
    /// Prepares sending from these ports; opens nothing yet.
    pub(super) fn new(clock: Clock, ports: [u16; 2]) -> std::io::Result<Self> {
        Ok(Self {
            clock,
            netlink: Netlink::open()?,
            socket: None,
            ports,
            paths: HashMap::new(),
            reason: None,
            not_before: Instant::ZERO,
            identification: 0,
        })
    }

    /// Why some packets, or all, are sent by the sockets.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// How many packets from the first on can be sent this way now, or, if the first can't, how many can't;
    /// and which of the two it is.
    pub(super) fn lead(&mut self, packets: &[Outgoing<'_>]) -> (usize, bool) {
        let now = self.clock.now();
        if now < self.not_before {
            return (packets.len(), false);
        }
        let mut first = None;
        for (n, packet) in packets.iter().enumerate() {
            let path = self.path(packet.to, now);
            let can = path.is_some_and(|path| path.fits(packet.len()));
            if can != *first.get_or_insert(can) {
                return (n, !can);
            }
        }
        (packets.len(), first.unwrap_or(false))
    }

    /// The device takes nothing any more: closes it, and tries again a second later.
    pub(super) fn give_up(&mut self, why: Errno) {
        self.log_fallback(format!("the device: {why}"));
        self.close();
    }

    fn close(&mut self) {
        self.socket = None;
        self.paths.clear();
        self.not_before = self.clock.now() + CLOSED_FOR;
    }

    /// Hands over packets that can be sent this way: as many as the ring takes at once, or as the kernel
    /// does.
    pub(super) fn send(&mut self, packets: &[Outgoing<'_>]) -> Run {
        let Some(socket) = &mut self.socket else {
            return Run { taken: 0, calls: 0, error: Some(Errno::NODEV) };
        };
        let mut put = 0;
        for packet in packets {
            let Some((Some(path), _)) = self.paths.get(&packet.to) else { break };
            let Some(chunk) = socket.chunk() else { break };
            let port = self.ports[usize::from(packet.to.is_ipv6())];
            self.identification = self.identification.wrapping_add(1);
            let at = write_headers(chunk, path, port, packet, self.identification);
            let (begin, end) = (at + packet.head.len(), at + packet.len());
            chunk[at..begin].copy_from_slice(packet.head);
            chunk[begin..end].copy_from_slice(packet.bytes);
            socket.put(end);
            put += 1;
        }
        let (taken, calls, error) = socket.kick();
        let full = put == 0 && error.is_none();
        Run { taken, calls, error: if full { Some(Errno::AGAIN) } else { error } }
    }

    /// The path to a receiver, found a moment ago or now.
    fn path(&mut self, to: SocketAddr, now: Instant) -> Option<Path> {
        if let Some(&(path, until)) = self.paths.get(&to)
            && now < until
        {
            return path;
        }
        // A path that was in use is not used for one packet, which goes by the socket.
        let pause = self.paths.get(&to).is_some_and(|(path, _)| path.is_some());
        let found = if pause { Ok(None) } else { self.look(to) };
        let path = found.unwrap_or_else(|why| {
            self.log_fallback(why.to_string());
            None
        });
        let holds = match (pause, path) {
            (true, _) => Duration::ZERO,
            (false, Some(_)) => PATH_HOLDS,
            (false, None) => ABSENCE_HOLDS,
        };
        if self.paths.len() >= PATHS_MAX {
            self.paths.clear();
        }
        self.paths.insert(to, (path, now + holds));
        path
    }

    /// Queries the kernel for the path to a receiver, and opens the device of the first one.
    fn look(&mut self, to: SocketAddr) -> Result<Option<Path>, XdpError> {
        let path = Path::look(&self.netlink, to)?;
        let Some(path) = path else { return Ok(None) };
        if self.socket.is_none() {
            let opened = XdpSocket::open(path.device).inspect_err(|_| self.close())?;
            let name = self.netlink.name(path.device).unwrap_or_default();
            tracing::info!(device = name, "sends by AF_XDP, in copy mode");
            self.socket = Some(opened);
        }
        let device = self.socket.as_ref().map_or(0, XdpSocket::device);
        if path.device != device {
            return Err(XdpError::OtherDevice(to));
        }
        Ok(Some(path))
    }

    /// Logs why packets are sent by the sockets, once for each reason.
    fn log_fallback(&mut self, why: String) {
        if self.reason.as_ref() != Some(&why) {
            tracing::warn!(why, "packets go by UDP sockets, not by AF_XDP");
            self.reason = Some(why);
        }
    }
}

/// Why packets to a receiver are not sent by AF_XDP.
#[derive(Debug, thiserror::Error)]
pub(crate) enum XdpError {
    /// The kernel refuses a part of the socket.
    #[error("{0}: {1}")]
    Refused(&'static str, std::io::Error),
    /// The kernel returns no route.
    #[error(transparent)]
    Route(#[from] std::io::Error),
    /// The receiver is this host, or a group.
    #[error("{0} is this host, or a group")]
    Special(std::net::IpAddr),
    /// The device does not send Ethernet frames.
    #[error("{0} is no Ethernet")]
    NoEthernet(String),
    /// Another device is open already.
    #[error("{0} lies behind another device than the first receiver")]
    OtherDevice(SocketAddr),
}

/// Whether a packet with all its headers fits a chunk of the shared memory.
const fn fits_chunk(payload: usize) -> bool {
    payload + HEADERS_MAX <= CHUNK
}
