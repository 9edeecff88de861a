//! Reading datagrams in batches (`recvmmsg`), with the kernel's data on each: its sender, its stamp, drop
//! counts, and the size of the datagrams from which it was joined (UDP GRO).

use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::socket::RawAddress;

/// Datagrams per system call, at most.
pub const BATCH: usize = 32;
/// Room for each: the largest possible datagram.
pub(super) const ROOM: usize = 1 << 16;
/// Room for the control data of each: a stamp, a count, a size and the byte with the ECN field.
pub(super) const CONTROL: usize = {
    // SAFETY: CMSG_SPACE only computes from its argument.
    let (stamp, word) =
        unsafe { (libc::CMSG_SPACE(size_of::<libc::timespec>() as u32), libc::CMSG_SPACE(4)) };
    (stamp + 3 * word) as usize
};

#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control(pub(super) [u8; CONTROL]);

/// A datagram in the batch.
pub struct Datagram<'a> {
    /// Its payload.
    pub bytes: &'a [u8],
    /// Its sender, where the batch records it.
    pub from: Option<SocketAddr>,
    /// When the kernel received it: nanoseconds of `CLOCK_REALTIME`.
    pub stamp: Option<u64>,
    /// Datagrams that the socket has dropped so far, if any.
    pub drops: Option<u32>,
    /// Several datagrams, each but the last of this number of bytes.
    pub segment: Option<u16>,
}

/// Buffers for one batch, reused. About 2 MB of address space, of which only the parts filled by datagrams
/// are ever touched.
pub struct Batch {
    room: Vec<u8>,
    control: Vec<Control>,
    /// The senders; empty where they are not recorded.
    names: Vec<RawAddress>,
    /// Bytes received, and bytes of control data, of each datagram of the last batch.
    lens: [(usize, usize); BATCH],
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// A batch of the largest number per call, without their senders.
    pub fn new() -> Self {
        Self::of(BATCH, false)
    }

    /// At most `count` datagrams at once, 1 ..= [`BATCH`]; with their senders if `named`.
    pub fn of(count: usize, named: bool) -> Self {
        let count = count.clamp(1, BATCH);
        Self {
            room: vec![0; count * ROOM],
            control: vec![Control([0; CONTROL]); count],
            names: if named { vec![RawAddress::zeroed(); count] } else { Vec::new() },
            lens: [(0, 0); BATCH],
        }
    }

    /// Reads the datagrams that wait in the socket, without blocking; returns their number. Errors count as
    /// none: a bound, unconnected socket has no lasting errors.
    pub fn receive(&mut self, socket: &OwnedFd) -> usize {
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
        let parts: *mut libc::iovec = parts.as_mut_ptr().cast();
        let (room, control) = (self.room.as_mut_ptr(), self.control.as_mut_ptr());
        let (count, named) = (self.control.len(), !self.names.is_empty());
        let names = self.names.as_mut_ptr();
        for (i, header) in headers.iter_mut().enumerate().take(count) {
            // SAFETY: an mmsghdr is integers and pointers, for which zero bytes are a value.
            let header = header.write(unsafe { MaybeUninit::zeroed().assume_init() });
            // SAFETY: `i < count`, the length of `control`, of `names` if there are any, and of
            // `room` in ROOMs, and at most that of `parts`.
            unsafe {
                if named {
                    header.msg_hdr.msg_name = names.add(i).cast();
                }
                let part = parts.add(i);
                part.write(libc::iovec { iov_base: room.add(i * ROOM).cast(), iov_len: ROOM });
                header.msg_hdr.msg_iov = part;
                header.msg_hdr.msg_control = control.add(i).cast();
            }
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_controllen = CONTROL as _;
            if named {
                header.msg_hdr.msg_namelen = size_of::<RawAddress>() as libc::socklen_t;
            }
        }
        // SAFETY: the first `count` headers are written, and describe distinct parts of `room`,
        // `control` and `names`, which live on; the kernel writes only there and into the headers.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).unwrap_or(0).min(count);
        for (len, header) in self.lens.iter_mut().zip(&headers[..received]) {
            // SAFETY: these headers were written above.
            let header = unsafe { header.assume_init_ref() };
            let control = header.msg_hdr.msg_controllen;
            *len = ((header.msg_len as usize).min(ROOM), control.min(CONTROL));
        }
        received
    }

    /// The first `count` datagrams of the last batch.
    pub fn datagrams(&self, count: usize) -> impl Iterator<Item = Datagram<'_>> {
        let buffers = self.room.chunks_exact(ROOM).zip(&self.control).enumerate();
        buffers.zip(self.lens).take(count).map(|((n, (room, control)), (len, control_len))| {
            let ControlData { stamp, drops, segment, .. } = read_control(&control.0[..control_len]);
            let from = self.names.get(n).and_then(|name| name.to_socket_addr());
            Datagram { bytes: &room[..len], from, stamp, drops, segment }
        })
    }
}

/// The bits of the ECN field in the byte that it shares with the DSCP.
const ECN: u8 = 3;

/// The data of control messages.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ControlData {
    pub(super) stamp: Option<u64>,
    drops: Option<u32>,
    pub(super) segment: Option<u16>,
    pub(super) ecn: Option<u8>,
}

/// The stamp, the count, the size and the ECN field among control messages. Reads the layout of `cmsg(3)` from bytes:
/// header, data, both padded to the size of a word.
pub(super) fn read_control(mut data: &[u8]) -> ControlData {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let ControlData { mut stamp, mut drops, mut segment, mut ecn } = ControlData::default();
    while data.len() >= HEADER {
        // SAFETY: there are at least that many bytes; a cmsghdr is plain integers, for which any bytes are a
        // value, and the read needs no alignment.
        let header = unsafe { data.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
        let len = header.cmsg_len;
        let Some(body) = data.get(HEADER..len) else { break };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                stamp = (body.len() >= size_of::<libc::timespec>()).then(|| {
                    // SAFETY: as above, for a timespec.
                    let t = unsafe { body.as_ptr().cast::<libc::timespec>().read_unaligned() };
                    let secs = u64::try_from(t.tv_sec).unwrap_or(0);
                    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
                    secs.saturating_mul(1_000_000_000).saturating_add(nanos)
                });
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                drops = body.first_chunk().copied().map(u32::from_ne_bytes);
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let size = body.first_chunk().copied().map(libc::c_int::from_ne_bytes);
                segment = size.and_then(|size| u16::try_from(size).ok()).filter(|&size| size > 0);
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => ecn = body.first().map(|byte| byte & ECN),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                let class = body.first_chunk().copied().map(libc::c_int::from_ne_bytes);
                ecn = class.map(|class| class as u8 & ECN);
            }
            _ => {}
        }
        data = data.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or(&[]);
    }
    ControlData { stamp, drops, segment, ecn }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(level: i32, kind: i32, body: &[u8]) -> Vec<u8> {
        let len = size_of::<libc::cmsghdr>() + body.len();
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(body);
        bytes.resize(len.next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn finds_both_among_others() {
        let mut data = message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7_u32.to_ne_bytes());
        data.extend(message(libc::IPPROTO_IP, libc::IP_TTL, &[1, 2, 3]));
        let stamp = [3_i64.to_ne_bytes(), 5_i64.to_ne_bytes()].concat();
        data.extend(message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &stamp));
        data.extend(message(libc::SOL_UDP, libc::UDP_GRO, &1400_i32.to_ne_bytes()));
        data.extend(message(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &0xb9_i32.to_ne_bytes()));
        let control_data = ControlData {
            stamp: Some(3_000_000_005),
            drops: Some(7),
            segment: Some(1400),
            ecn: Some(1),
        };
        assert_eq!(read_control(&data), control_data);
        assert_eq!(read_control(&[]), ControlData::default());
    }

    proptest! {
        #[test]
        fn any_control_data_is_read_within_its_bounds(
            data in proptest::collection::vec(any::<u8>(), 0..80),
            len in 0..100_u8,
        ) {
            read_control(&data);
            let mut shaped = message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &data);
            shaped[0] = len;
            read_control(&shaped);
        }
    }
}
