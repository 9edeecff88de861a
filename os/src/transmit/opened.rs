//! Opening a transmitter's sockets, with the features that the kernel grants.

use std::os::fd::{AsRawFd, OwnedFd};

use selvedge_units::Bytes;

use super::Method;
use super::xdp::Xdp;
use crate::clock::Clock;
use crate::socket::{self, Buffer, SocketError};

/// The method of a socket, given the requested one: AF_XDP is used beside it.
pub(super) fn socket_method(asked: Method, socket: &OwnedFd) -> Method {
    match asked {
        Method::Gso | Method::Xdp if !has_gso(socket) => Method::SendMmsg,
        Method::Xdp => Method::Gso,
        asked => asked,
    }
}

/// Opens AF_XDP with the ports of these sockets, which get theirs now.
pub(super) fn open_xdp(
    clock: Clock,
    v4: &OwnedFd,
    v6: Option<&OwnedFd>,
) -> Result<Option<Xdp>, SocketError> {
    let mut ports = [0; 2];
    for (n, socket) in [Some(v4), v6].into_iter().enumerate() {
        let Some(socket) = socket else { continue };
        ports[n] = socket::bind_any(socket, n == 1)?.port();
    }
    match Xdp::new(clock, ports) {
        Ok(xdp) => Ok(Some(xdp)),
        Err(why) => {
            tracing::warn!(%why, "packets go by UDP sockets, not by AF_XDP");
            Ok(None)
        }
    }
}

pub(super) fn prepare(v6: bool, send_buffer: Bytes) -> Result<OwnedFd, SocketError> {
    let socket = socket::open(v6)?;
    let (level, option, name) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, "IPV6_RECVERR")
    } else {
        (libc::IPPROTO_IP, libc::IP_RECVERR, "IP_RECVERR")
    };
    socket::set_int(&socket, level, option, 1)
        .map_err(|source| SocketError::Option { option: name, source })?;
    socket::set_buffer(&socket, Buffer::Send, send_buffer);
    Ok(socket)
}

/// Whether the kernel knows `UDP_SEGMENT` (Linux 4.18). The limits of a device show only on sending, see
/// [`TransmitCounters::gso_refused`].
fn has_gso(socket: &OwnedFd) -> bool {
    let mut size: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointers describe one c_int and its length, both alive during the call.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw mut size).cast(),
            &raw mut len,
        )
    };
    got == 0
}
