//! A batch in the kernel's form: `mmsghdr`s that point to packets, addresses and control data.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg_addr};

use super::{Method, Outgoing};
use crate::socket::RawAddress;

/// Messages per system call.
const MESSAGES_MAX: usize = 64;
/// Parts of one packet.
const PARTS_MAX: usize = 8;
/// Packets per system call, over all its messages.
const PACKETS_MAX: usize = 256;
/// Packets per message under GSO: the number that every kernel with GSO takes.
const SEGMENTS_MAX: usize = 64;
/// Bytes per message under GSO: a datagram's limit with the headers of either family.
const SEGMENTED_MAX: usize = 65_535 - 60 - 8;

/// A control message with one value, laid out as the `CMSG_*` macros would: header, then data at its
/// alignment, padded to the same.
#[repr(C)]
struct ControlMessage<T> {
    header: libc::cmsghdr,
    value: T,
}

/// States the segment size (`UDP_SEGMENT`).
type SegmentSize = ControlMessage<u16>;
/// States the departure time of a packet (`SCM_TXTIME`).
type Departure = ControlMessage<u64>;

impl<T> ControlMessage<T> {
    // SAFETY: CMSG_SPACE only computes from its argument.
    const SPACE: usize = unsafe { libc::CMSG_SPACE(size_of::<T>() as u32) } as usize;
    // SAFETY: as above.
    const START: usize = unsafe { libc::CMSG_LEN(0) } as usize;

    fn new(level: libc::c_int, kind: libc::c_int, value: T) -> Self {
        const { assert!(size_of::<Self>() == Self::SPACE) };
        const { assert!(std::mem::offset_of!(Self, value) == Self::START) };
        // SAFETY: a cmsghdr is plain integers, for which zero bytes are a value; on some
        // libcs it has padding fields that cannot be named here.
        let mut header: libc::cmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: CMSG_LEN only computes from its argument.
        header.cmsg_len = unsafe { libc::CMSG_LEN(size_of::<T>() as u32) } as _;
        (header.cmsg_level, header.cmsg_type) = (level, kind);
        Self { header, value }
    }
}

/// The result of one system call.
pub(super) struct Outcome {
    /// How many packets the kernel took, from the first on; or its error for the first message.
    pub(super) taken: Result<usize, Errno>,
    /// Packets in the first message.
    pub(super) first: usize,
}

/// Hands over as many of these packets as fit into one call, at least one if there is one. The first `single`
/// packets are not joined with others. `times` holds each packet's departure time, in nanoseconds of the
/// socket's clock for it; 0, or a missing entry: at once.
pub(super) fn send(
    socket: &OwnedFd,
    packets: &[Outgoing<'_>],
    times: &[u64],
    method: Method,
    single: usize,
) -> Outcome {
    lay_out(packets, times, method, single, |headers, joined| {
        // SAFETY: the headers, the addresses, parts and control data that they point to, and the
        // packets are alive until this closure returns (see `lay_out`). The kernel writes only
        // `msg_len`s, and reads only what the headers describe.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        Outcome {
            taken: match usize::try_from(sent) {
                Ok(sent) => Ok(joined.iter().take(sent).sum()),
                Err(_) => Err(last_error()),
            },
            first: joined.first().copied().unwrap_or(0),
        }
    })
}

/// Hands over one packet that lies in several parts; returns its length, if the kernel took it.
pub(super) fn send_parts(socket: &OwnedFd, to: SocketAddr, parts: &[&[u8]]) -> Option<usize> {
    let mut slices = [IoSlice::new(&[]); PARTS_MAX];
    let slices = slices.get_mut(..parts.len())?;
    slices.iter_mut().zip(parts).for_each(|(slice, part)| *slice = IoSlice::new(part));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg_addr(socket, &to, slices, &mut SendAncillaryBuffer::default(), flags).ok()
}

/// Lays packets out in the kernel's form, on the stack, and passes that to `then`, with the number of packets
/// in each message. The headers' pointers are valid until `then` returns. Only the part in use is ever written.
fn lay_out<R>(
    packets: &[Outgoing<'_>],
    times: &[u64],
    method: Method,
    single: usize,
    then: impl FnOnce(&mut [libc::mmsghdr], &[usize]) -> R,
) -> R {
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES_MAX];
    let mut addresses = [const { MaybeUninit::<RawAddress>::uninit() }; MESSAGES_MAX];
    let mut sizes = [const { MaybeUninit::<SegmentSize>::uninit() }; MESSAGES_MAX];
    let mut departures = [const { MaybeUninit::<Departure>::uninit() }; MESSAGES_MAX];
    // A packet has a head and the rest.
    let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; 2 * PACKETS_MAX];
    let mut in_message = [0; MESSAGES_MAX];
    // One pointer to each array, taken once: borrowing an array again would invalidate the pointers into it
    // that exist already.
    let addresses: *mut RawAddress = addresses.as_mut_ptr().cast();
    let sizes: *mut SegmentSize = sizes.as_mut_ptr().cast();
    let departures: *mut Departure = departures.as_mut_ptr().cast();
    let parts: *mut libc::iovec = parts.as_mut_ptr().cast();
    let packets = &packets[..packets.len().min(PACKETS_MAX)];
    let limit = if method == Method::SendMsg { 1 } else { MESSAGES_MAX };
    let (mut used, mut messages, mut written) = (0, 0, 0);
    while messages < limit && used < packets.len() {
        let rest = &packets[used..];
        let times = times.get(used..).unwrap_or_default();
        let leaves = times.first().copied().unwrap_or(0);
        let joined = match method {
            Method::Gso if used >= single && leaves == 0 => {
                let at_once = times.iter().position(|&at| at > 0).unwrap_or(rest.len());
                joinable(&rest[..at_once.min(rest.len())])
            }
            _ => 1,
        };
        let (address, address_len) = RawAddress::new(rest[0].to);
        // SAFETY: an mmsghdr is integers and pointers, for which zero bytes are a value.
        let mut header: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: `messages < limit <= MESSAGES_MAX`, the length of `addresses`, `sizes` and `departures`;
        // at most two parts are written for each packet of `packets`, of which there are at most PACKETS_MAX,
        // half the length of `parts`.
        unsafe {
            let to = addresses.add(messages);
            to.write(address);
            header.msg_hdr.msg_name = to.cast();
            header.msg_hdr.msg_iov = parts.add(written);
            let first = written;
            for packet in &rest[..joined] {
                let head = Some(packet.head).filter(|head| !head.is_empty());
                for part in head.into_iter().chain([packet.bytes]) {
                    let (iov_base, iov_len) = (part.as_ptr().cast_mut().cast(), part.len());
                    parts.add(written).write(libc::iovec { iov_base, iov_len });
                    written += 1;
                }
            }
            header.msg_hdr.msg_iovlen = (written - first) as _;
            if joined > 1 {
                let size = sizes.add(messages);
                // `joinable` joins only packets of which several fit a datagram.
                let bytes = u16::try_from(rest[0].len()).unwrap_or(u16::MAX);
                size.write(SegmentSize::new(libc::SOL_UDP, libc::UDP_SEGMENT, bytes));
                header.msg_hdr.msg_control = size.cast();
                header.msg_hdr.msg_controllen = size_of::<SegmentSize>() as _;
            } else if leaves > 0 {
                let departure = departures.add(messages);
                departure.write(Departure::new(libc::SOL_SOCKET, libc::SCM_TXTIME, leaves));
                header.msg_hdr.msg_control = departure.cast();
                header.msg_hdr.msg_controllen = size_of::<Departure>() as _;
            }
        }
        header.msg_hdr.msg_namelen = address_len;
        headers[messages].write(header);
        in_message[messages] = joined;
        used += joined;
        messages += 1;
    }
    let headers = headers.as_mut_ptr().cast();
    // SAFETY: the first `messages` headers were written above.
    then(unsafe { std::slice::from_raw_parts_mut(headers, messages) }, &in_message[..messages])
}

/// How many packets, from the first on, may pass as one: same destination, same size, the last perhaps
/// shorter. Empty datagrams are sent alone, because they would leave no trace in a longer one.
fn joinable(packets: &[Outgoing<'_>]) -> usize {
    let first = packets[0];
    let size = first.len();
    if size == 0 {
        return 1;
    }
    let mut joined = 1;
    let most = SEGMENTS_MAX.min(SEGMENTED_MAX / size);
    for packet in packets.iter().skip(1) {
        let len = packet.len();
        if joined >= most || len == 0 || len > size || packet.to != first.to {
            break;
        }
        joined += 1;
        if len < size {
            break;
        }
    }
    joined
}

/// A report in a socket's error queue about a packet.
pub(super) enum ReportedError {
    /// The packet was dropped, because its departure time passed while it waited.
    Missed,
    /// The packet was refused, because it stated no time or a past one: the call that sent it returned this
    /// error.
    Invalid,
    /// A host reported the packet as undeliverable (ICMP), with its destination if the kernel knows it.
    Unreachable(Option<SocketAddr>),
}

/// `struct sock_extended_err` and an address, at their largest sizes.
type ExtendedError = ControlMessage<[u32; 12]>;

/// Reads one reported error from the socket's error queue. `None` if the queue is empty.
pub(super) fn take_error(socket: &OwnedFd) -> Option<ReportedError> {
    const ORIGIN_TXTIME: u8 = 6;
    const CODE_MISSED: u8 = 2;
    let mut address = RawAddress::zeroed();
    let mut control = ExtendedError::new(0, 0, [0; 12]);
    // SAFETY: a msghdr is integers and pointers, for which zero bytes are a value.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_name = (&raw mut address).cast();
    header.msg_namelen = size_of::<RawAddress>() as libc::socklen_t;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of::<ExtendedError>() as _;
    // SAFETY: the header describes `address`, `control` and their lengths, and no parts; the kernel
    // writes within that.
    let got = unsafe {
        libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    // The error's number, then origin, kind and code in a byte each.
    let [origin, _, code, _] = control.value[1].to_ne_bytes();
    (got >= 0).then(|| match (origin, code) {
        (ORIGIN_TXTIME, CODE_MISSED) => ReportedError::Missed,
        (ORIGIN_TXTIME, _) => ReportedError::Invalid,
        _ => ReportedError::Unreachable(address.to_socket_addr()),
    })
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a layout back as the kernel would: sizes of the parts of each message, the segment size, the
    /// destination's port. Runs under Miri.
    fn read_back(packets: &[Outgoing<'_>], method: Method, single: usize) -> Vec<Message> {
        lay_out(packets, &[], method, single, |headers, _| {
            headers
                .iter()
                .map(|header| {
                    let header = &header.msg_hdr;
                    // SAFETY: `lay_out` promises that the pointers are valid here.
                    unsafe {
                        let parts = std::slice::from_raw_parts(header.msg_iov, header.msg_iovlen);
                        let name = &*header.msg_name.cast::<libc::sockaddr_in>();
                        let cut = header.msg_control.cast::<SegmentSize>();
                        Message {
                            parts: parts.iter().map(|part| part.iov_len).collect(),
                            first_byte: parts[0].iov_base.cast::<u8>().read(),
                            cut: (!cut.is_null()).then(|| (*cut).value),
                            port: u16::from_be(name.sin_port),
                        }
                    }
                })
                .collect()
        })
    }

    #[derive(Debug, PartialEq)]
    struct Message {
        parts: Vec<usize>,
        first_byte: u8,
        cut: Option<u16>,
        port: u16,
    }

    #[test]
    fn runs_are_joined_up_to_their_shorter_end() {
        let payloads: Vec<Vec<u8>> =
            [9, 9, 4, 9, 9, 12].iter().zip(1..).map(|(&len, n)| vec![n; len]).collect();
        let ports = [7, 7, 7, 7, 8, 8];
        let packets: Vec<_> = payloads
            .iter()
            .zip(ports)
            .map(|(bytes, port)| Outgoing { to: ([127, 0, 0, 1], port).into(), head: &[], bytes })
            .collect();
        let message = |parts: &[usize], first_byte, cut, port| Message {
            parts: parts.to_vec(),
            first_byte,
            cut,
            port,
        };
        assert_eq!(
            read_back(&packets, Method::Gso, 0),
            [
                message(&[9, 9, 4], 1, Some(9), 7),
                message(&[9], 4, None, 7),
                message(&[9], 5, None, 8),
                message(&[12], 6, None, 8),
            ]
        );
        assert_eq!(read_back(&packets, Method::Gso, 2)[2], message(&[4], 3, None, 7));
        assert_eq!(read_back(&packets, Method::SendMmsg, 0).len(), 6);
        assert_eq!(read_back(&packets, Method::SendMsg, 0), [message(&[9], 1, None, 7)]);
        assert!(read_back(&[], Method::Gso, 0).is_empty());
    }

    #[test]
    fn a_head_is_a_part_of_its_own_and_counts_for_the_segment() {
        let to = ([127, 0, 0, 1], 7).into();
        let packets = [Outgoing { to, head: &[3; 4], bytes: &[1; 9] }; 3];
        let parts = vec![4, 9, 4, 9, 4, 9];
        let joined = Message { parts, first_byte: 3, cut: Some(13), port: 7 };
        assert_eq!(read_back(&packets, Method::Gso, 0), [joined]);
        let counted = lay_out(&packets, &[], Method::Gso, 0, |_, joined| joined.to_vec());
        assert_eq!(counted, [3], "packets, not parts");
    }

    #[test]
    fn packets_with_departure_times_go_by_themselves() {
        let to = ([127, 0, 0, 1], 7).into();
        let packets = [Outgoing { to, head: &[], bytes: &[1; 9] }; 5];
        let laid = lay_out(&packets, &[0, 0, 77, 78], Method::Gso, 0, |headers, _| {
            let of = |header: &libc::mmsghdr| {
                let header = &header.msg_hdr;
                let control = header.msg_control.cast::<libc::cmsghdr>();
                // SAFETY: `lay_out` promises that the pointer is valid here, if there is one.
                let kind = (!control.is_null()).then(|| unsafe { (*control).cmsg_type });
                let at = kind.filter(|&kind| kind == libc::SCM_TXTIME).map(|_| {
                    // SAFETY: as above; the header states its type.
                    unsafe { (*control.cast::<Departure>()).value }
                });
                (header.msg_iovlen, at)
            };
            headers.iter().map(of).collect::<Vec<_>>()
        });
        assert_eq!(laid, [(2, None), (1, Some(77)), (1, Some(78)), (1, None)]);
    }

    #[test]
    fn a_call_and_a_message_have_their_limits() {
        let payload = vec![1; 1200];
        let to = ([127, 0, 0, 1], 7).into();
        let packets = vec![Outgoing { to, head: &[], bytes: &payload }; 600];
        let joined = read_back(&packets, Method::Gso, 0);
        assert!(joined.iter().all(|m| m.parts.iter().sum::<usize>() <= SEGMENTED_MAX));
        assert_eq!(joined.iter().map(|m| m.parts.len()).sum::<usize>(), PACKETS_MAX);
        assert_eq!(read_back(&packets, Method::SendMmsg, 0).len(), MESSAGES_MAX);
        let small = vec![Outgoing { to, head: &[], bytes: &payload[..1] }; 600];
        assert!(read_back(&small, Method::Gso, 0).iter().all(|m| m.parts.len() <= SEGMENTS_MAX));
    }
}
