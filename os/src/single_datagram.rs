//! Reading one datagram into a buffer that its reader keeps (`recvmsg`): large ones are not copied again.

use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use super::batch::{CONTROL, Control, ControlData, ROOM, read_control};
use crate::socket::RawAddress;

/// A datagram that was read into a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleDatagram {
    /// Its sender.
    pub from: SocketAddr,
    /// Several datagrams, each but the last of this number of bytes (UDP GRO).
    pub segment: Option<u16>,
    /// The ECN field of its IP header, where the socket requests it ([`crate::socket::request_ecn`]).
    pub ecn: Option<u8>,
    /// When it came, in nanoseconds of `CLOCK_REALTIME`, where the socket requests it
    /// ([`crate::socket::request_stamps`]).
    pub stamp: Option<u64>,
}

/// Reads the datagram that waits in the socket, without blocking: the buffer then holds exactly its bytes.
/// `None`, and an empty buffer, if there is none. Grows the buffer to the largest datagram.
pub fn receive(socket: impl AsFd, into: &mut Vec<u8>) -> Option<SingleDatagram> {
    receive_apart(socket, &mut [], into).map(|(single, _)| single)
}

/// The same; the datagram's first bytes are read into `front`, and the rest into the buffer. Returns how many
/// bytes of `front` are the datagram's.
pub(crate) fn receive_apart(
    socket: impl AsFd,
    front: &mut [u8],
    into: &mut Vec<u8>,
) -> Option<(SingleDatagram, usize)> {
    let socket = socket.as_fd();
    into.clear();
    into.reserve(ROOM);
    let (mut name, mut control) = (RawAddress::zeroed(), Control([0; CONTROL]));
    let mut parts = [
        libc::iovec { iov_base: front.as_mut_ptr().cast(), iov_len: front.len() },
        libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: ROOM },
    ];
    // SAFETY: an msghdr is integers and pointers, for which zero bytes are a value.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of::<RawAddress>() as libc::socklen_t;
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = 2;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = CONTROL as _;
    // SAFETY: the header describes `name`, `control`, `front` and ROOM bytes that `into` has reserved, all
    // of which live on; the kernel writes only there and into the header.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let len = usize::try_from(len).ok()?;
    let first = len.min(front.len());
    // SAFETY: ROOM bytes are reserved, and the kernel has written as many as did not fit into `front`.
    unsafe { into.set_len((len - first).min(ROOM)) };
    let ControlData { segment, ecn, stamp, .. } =
        read_control(&control.0[..header.msg_controllen.min(CONTROL)]);
    let single = SingleDatagram { from: name.to_socket_addr()?, segment, ecn, stamp };
    Some((single, first))
}
