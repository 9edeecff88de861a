//! UDP sockets for the transmitter and the receiver, and addresses in the kernel's form.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use selvedge_units::Bytes;

use crate::check;

/// Pairs of ports that are tried.
const TRIES: usize = 16;

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The kernel refused to open one.
    #[error("cannot open a UDP socket: {0}")]
    Open(#[source] io::Error),
    /// It could not be bound.
    #[error("cannot listen on {at}: {source}; choose another address or port, or port 0")]
    Bind {
        /// The address to bind.
        at: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// A required option was refused.
    #[error("cannot set {option} on a UDP socket: {source}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// No such device, or it can't be used.
    #[error("device \"{device}\" can't be used: {source}")]
    Device {
        /// Its name.
        device: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The thread could not be started.
    #[error("cannot start the receiver's thread: {0}")]
    Thread(#[source] io::Error),
}

/// A non-blocking UDP socket of one family; an IPv6 one carries IPv6 only.
pub(crate) fn open(v6: bool) -> Result<OwnedFd, SocketError> {
    let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)
        .map_err(|e| SocketError::Open(e.into()))?;
    if v6 {
        sockopt::set_ipv6_v6only(&socket, true)
            .map_err(|e| SocketError::Option { option: "IPV6_V6ONLY", source: e.into() })?;
    }
    Ok(socket)
}

/// The same, bound; returned with its address (port 0 requests any).
pub fn open_bound(at: SocketAddr) -> Result<(OwnedFd, SocketAddr), SocketError> {
    let socket = open(at.is_ipv6())?;
    let bound = bind_at(&socket, at)?;
    Ok((socket, bound))
}

/// Sockets for RTP and RTCP: of two successive ports, of which the second is this, or the first is even (RFC 3550 section
/// 11).
///
/// # Errors
/// If no pair is free.
pub fn open_pair(is_v6: bool, control: Option<u16>) -> io::Result<[UdpSocket; 2]> {
    let any: IpAddr =
        if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let open = |port| open_bound(SocketAddr::new(any, port)).map_err(io::Error::other);
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..TRIES {
        let (first, at) = open(control.map_or(0, |control| control - 1))?;
        match open(control.unwrap_or_else(|| at.port() ^ 1)) {
            Ok((second, other)) => {
                let mut sockets = [(at, first), (other, second)];
                sockets.sort_by_key(|(at, _)| at.port());
                return Ok(sockets.map(|(_, socket)| UdpSocket::from(socket)));
            }
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// A non-blocking socket for packets to an address. Packets to a group are sent by `device`, if one is named,
/// and pass at most one router less than `ttl`: by default none.
///
/// # Errors
/// [`SocketError`]: no socket, no such device.
pub fn open_sender(
    to: SocketAddr,
    ttl: Option<u8>,
    device: Option<&str>,
) -> Result<UdpSocket, SocketError> {
    let socket = open(to.is_ipv6())?;
    if to.ip().is_multicast() {
        let refused =
            |option| move |e: rustix::io::Errno| SocketError::Option { option, source: e.into() };
        let (hops, v6) = (u32::from(ttl.unwrap_or(1)), to.is_ipv6());
        let set = if v6 { sockopt::set_ipv6_multicast_hops } else { sockopt::set_ip_multicast_ttl };
        set(&socket, hops).map_err(refused("the TTL of groups"))?;
        if let Some(device) = device {
            let index = name_to_index(&socket, device).map_err(refused("the device"))?;
            let none = Ipv4Addr::UNSPECIFIED;
            let set = match v6 {
                true => sockopt::set_ipv6_multicast_if(&socket, index),
                false => sockopt::set_ip_multicast_if_with_ifindex(&socket, &none, &none, index),
            };
            set.map_err(refused("the device of groups"))?;
        }
    }
    Ok(socket.into())
}

/// A non-blocking socket for one path to `to`: its packets leave by `device`, from `address`, if these are stated. The
/// way follows the routes of that device; no right is needed.
///
/// # Errors
/// [`SocketError`]: no socket, no such device or address.
pub fn open_path(
    to: SocketAddr,
    device: Option<&str>,
    address: Option<IpAddr>,
) -> Result<UdpSocket, SocketError> {
    let (v6, any) = match to {
        SocketAddr::V4(_) => (false, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        SocketAddr::V6(_) => (true, IpAddr::from(Ipv6Addr::UNSPECIFIED)),
    };
    let socket = open(v6)?;
    if let Some(device) = device {
        let refused = |source| SocketError::Device { device: device.to_owned(), source };
        let index = name_to_index(&socket, device).map_err(|e| refused(e.into()))?;
        let (level, option) = match v6 {
            true => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_IF),
            false => (libc::IPPROTO_IP, libc::IP_UNICAST_IF),
        };
        // The kernel wants the bytes of its number in the order of the network.
        set_int(&socket, level, option, index.to_be().cast_signed()).map_err(refused)?;
    }
    bind_at(&socket, SocketAddr::new(address.unwrap_or(any), 0))?;
    set_buffer(&socket, Buffer::Receive, Bytes(1 << 20));
    Ok(socket.into())
}

/// Gives a socket a port of its own; returns the address.
pub(crate) fn bind_any(socket: &OwnedFd, v6: bool) -> Result<SocketAddr, SocketError> {
    let any = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    bind_at(socket, SocketAddr::new(any, 0))
}

fn bind_at(socket: &OwnedFd, at: SocketAddr) -> Result<SocketAddr, SocketError> {
    let failed = |e: rustix::io::Errno| SocketError::Bind { at, source: e.into() };
    bind(socket, &at).map_err(failed)?;
    let name = rustix::net::getsockname(socket).map_err(failed)?;
    SocketAddr::try_from(name).map_err(failed)
}

/// The values of the ECN field of an IP header (RFC 3168): not capable, capable, marked for congestion.
pub const NOT_ECT: u8 = 0;
/// See [`NOT_ECT`].
pub const ECT_0: u8 = 2;
/// See [`NOT_ECT`].
pub const CE: u8 = 3;

/// Sets the ECN field of what a socket of this family sends from now on; the rest of the byte, the DSCP, is 0.
///
/// # Errors
/// If the kernel refuses.
pub fn set_ecn(socket: impl AsFd, v6: bool, ecn: u8) -> io::Result<()> {
    match v6 {
        true => sockopt::set_ipv6_tclass(socket, u32::from(ecn))?,
        false => sockopt::set_ip_tos(socket, ecn)?,
    }
    Ok(())
}

/// Requests the ECN field of each datagram that a socket of this family receives.
///
/// # Errors
/// If the kernel refuses.
pub fn request_ecn(socket: impl AsFd, v6: bool) -> io::Result<()> {
    let set = if v6 { sockopt::set_ipv6_recvtclass } else { sockopt::set_ip_recvtos };
    Ok(set(socket, true)?)
}

/// Requests when each datagram came, by the kernel's clock.
///
/// # Errors
/// The kernel's.
pub fn request_stamps(socket: &OwnedFd) -> io::Result<()> {
    set_int(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// One of a socket's buffers.
#[derive(Clone, Copy, Debug)]
pub enum Buffer {
    /// The buffer for sending.
    Send,
    /// The buffer for receiving.
    Receive,
}

/// Requests a buffer of this size, beyond the system's limit where that is allowed; returns the granted size,
/// by the kernel's own count (which includes its overhead).
pub fn set_buffer(socket: impl AsFd, buffer: Buffer, size: Bytes) -> Bytes {
    // The kernel takes an int and doubles it.
    let size = usize::try_from(size.0.min(1 << 29)).unwrap_or(1 << 29);
    let granted = match buffer {
        Buffer::Send => sockopt::set_socket_send_buffer_size_force(&socket, size)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, size))
            .and_then(|()| sockopt::socket_send_buffer_size(&socket)),
        Buffer::Receive => sockopt::set_socket_recv_buffer_size_force(&socket, size)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, size))
            .and_then(|()| sockopt::socket_recv_buffer_size(&socket)),
    };
    // A refused size leaves the default one, which works, but loses more under load.
    Bytes(granted.unwrap_or(0) as u64)
}

/// Sets an integer option that `rustix` does not provide.
pub fn set_int(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the pointer and the length describe one c_int that outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
}

/// An address in the kernel's form.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    /// The address and its length.
    pub(crate) fn new(address: SocketAddr) -> (Self, libc::socklen_t) {
        match address {
            SocketAddr::V4(v4) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (Self { v4 }, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(v6) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo().to_be(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                (Self { v6 }, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// Room for an address that the kernel writes: all zeros.
    pub(crate) fn zeroed() -> Self {
        // SAFETY: both variants are plain integers, for which zero bytes are a value.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    /// The address that the kernel wrote, if it is of one of these families.
    pub(crate) fn to_socket_addr(self) -> Option<SocketAddr> {
        // SAFETY: every bit pattern of either variant is a value (plain integers), all bytes
        // were initialised by `zeroed` or `new`, and both begin with the family.
        let (family, v4, v6) = unsafe { (self.v4.sin_family, self.v4, self.v6) };
        match libc::c_int::from(family) {
            libc::AF_INET => Some(SocketAddr::V4(SocketAddrV4::new(
                Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()),
                u16::from_be(v4.sin_port),
            ))),
            libc::AF_INET6 => Some(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(v6.sin6_addr.s6_addr),
                u16::from_be(v6.sin6_port),
                u32::from_be(v6.sin6_flowinfo),
                v6.sin6_scope_id,
            ))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use selvedge_units::{Duration, Instant};

    use super::*;
    use crate::clock::{Clock, timespec};
    use crate::single_datagram;

    #[test]
    fn packets_to_groups_go_as_far_as_asked_and_to_others_as_ever() {
        let sender = |to: &str, ttl| open_sender(to.parse().unwrap(), ttl, Some("lo")).unwrap();
        assert_eq!(sender("239.1.1.1:9", Some(4)).multicast_ttl_v4().unwrap(), 4);
        assert_eq!(sender("239.1.1.1:9", None).multicast_ttl_v4().unwrap(), 1);
        assert!(sender("127.0.0.1:9", Some(1)).ttl().unwrap() > 1);
        let v6 = sender("[ff15::1]:9", Some(7));
        assert_eq!(sockopt::ipv6_multicast_hops(&v6).unwrap(), 7);
        assert_eq!(sockopt::ipv6_multicast_if(&v6).unwrap(), name_to_index(&v6, "lo").unwrap());
        let absent = open_sender("239.1.1.1:9".parse().unwrap(), None, Some("nosuch"));
        assert!(matches!(absent, Err(SocketError::Option { option: "the device", .. })));
    }

    #[test]
    fn addresses_survive_the_kernel_form() {
        for text in ["127.0.0.1:5004", "0.0.0.0:0", "[::1]:65535", "[fe80::1%7]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            let full = match RawAddress::new(address) {
                // Only the IPv6 form fills the whole union; the kernel writes into zeros.
                (raw, len) if len as usize == size_of::<RawAddress>() => raw,
                (raw, _) => {
                    let mut full = RawAddress::zeroed();
                    // SAFETY: the IPv4 form was written by `new`.
                    full.v4 = unsafe { raw.v4 };
                    full
                }
            };
            assert_eq!(full.to_socket_addr(), Some(address), "{text}");
        }
        assert_eq!(RawAddress::zeroed().to_socket_addr(), None);
    }

    #[test]
    fn the_ecn_field_of_each_datagram_is_set_and_read() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let at: SocketAddr = at.parse().unwrap();
            let (far, to) = open_bound(at).unwrap();
            let near = UdpSocket::from(open(at.is_ipv6()).unwrap());
            let mut buffer = Vec::new();
            let mut send = |ecn| {
                set_ecn(&near, at.is_ipv6(), ecn).unwrap();
                near.send_to(&[ecn; 3], to).unwrap();
                let mut fds = [PollFd::new(&far, PollFlags::IN)];
                assert_eq!(poll(&mut fds, Some(&timespec(60_000_000_000))), Ok(1));
                let came = single_datagram::receive(&far, &mut buffer).expect("the datagram");
                assert_eq!(buffer, [ecn; 3]);
                came.ecn
            };
            assert_eq!(send(CE), None, "nobody requested it");
            request_ecn(&far, at.is_ipv6()).unwrap();
            assert_eq!([ECT_0, NOT_ECT, CE, 1].map(&mut send), [2, 0, 3, 1].map(Some), "{at}");
        }
    }

    #[test]
    fn a_datagram_is_stamped_when_it_comes_and_not_when_it_is_read() {
        let (far, to) = open_bound("127.0.0.1:0".parse().unwrap()).unwrap();
        let near = UdpSocket::from(open(false).unwrap());
        let (clock, mut buffer) = (Clock::new(), Vec::new());
        let mut send = || {
            near.send_to(&[1], to).unwrap();
            let sent = clock.now();
            clock.sleep_until(sent + Duration::from_millis(50));
            let came = single_datagram::receive(&far, &mut buffer).expect("the datagram");
            let read_at = clock.with_wall();
            let stamp = came.stamp?;
            Some(
                clock.from_wall_stamp(stamp, read_at, Instant::ZERO)
                    < sent + Duration::from_millis(40),
            )
        };
        assert_eq!(send(), None, "nobody requested it");
        request_stamps(&far).unwrap();
        // The kernel begins to take stamps some time after the first socket requests them.
        assert!((0..100).any(|_| send() == Some(true)));
    }

    #[test]
    fn a_taken_port_is_refused_with_its_address() {
        let (_held, at) = open_bound("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_ne!(at.port(), 0);
        let refused = open_bound(at).unwrap_err().to_string();
        assert!(refused.contains(&at.to_string()), "{refused}");
    }

    #[test]
    fn buffers_grow_when_asked() {
        let socket = open(false).unwrap();
        for buffer in [Buffer::Send, Buffer::Receive] {
            let small = set_buffer(&socket, buffer, Bytes(16_000));
            assert!(set_buffer(&socket, buffer, Bytes(128_000)) > small);
        }
    }
}
