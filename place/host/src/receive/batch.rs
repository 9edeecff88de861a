//! Reading datagrams in batches (`recvmmsg`), with the kernel's stamps and drop counts.

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, OwnedFd};

/// Datagrams per system call.
pub(super) const BATCH: usize = 32;
/// Room for each: the largest datagram there is.
const ROOM: usize = 1 << 16;
/// Room for the control data of each: a stamp and a count.
const CONTROL: usize = {
    // SAFETY: CMSG_SPACE only computes from its argument.
    let (stamp, drops) =
        unsafe { (libc::CMSG_SPACE(size_of::<libc::timespec>() as u32), libc::CMSG_SPACE(4)) };
    (stamp + drops) as usize
};

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// A datagram in the batch.
pub(super) struct Datagram<'a> {
    pub(super) bytes: &'a [u8],
    /// When the kernel got it: nanoseconds of `CLOCK_REALTIME`.
    pub(super) stamp: Option<u64>,
    /// Datagrams that the socket has dropped so far, if any.
    pub(super) drops: Option<u32>,
}

/// Buffers for one batch, reused. About 2 MB of address space, of which only what datagrams fill
/// is ever touched.
pub(super) struct Batch {
    room: Vec<u8>,
    control: Vec<Control>,
    /// Bytes received, and bytes of control data, of each datagram of the last batch.
    lens: [(usize, usize); BATCH],
}

impl Batch {
    pub(super) fn new() -> Self {
        Self {
            room: vec![0; BATCH * ROOM],
            control: vec![Control([0; CONTROL]); BATCH],
            lens: [(0, 0); BATCH],
        }
    }

    /// Reads what waits in the socket, without waiting; how many datagrams there were. Errors
    /// count as none: a bound, unconnected socket has none that last.
    pub(super) fn receive(&mut self, socket: &OwnedFd) -> usize {
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
        let parts: *mut libc::iovec = parts.as_mut_ptr().cast();
        let (room, control) = (self.room.as_mut_ptr(), self.control.as_mut_ptr());
        for (i, header) in headers.iter_mut().enumerate() {
            // SAFETY: an mmsghdr is integers and pointers, for which zero bytes are a value.
            let header = header.write(unsafe { MaybeUninit::zeroed().assume_init() });
            // SAFETY: `i < BATCH`, the length of `parts` and `control`, and of `room` in ROOMs.
            unsafe {
                let part = parts.add(i);
                part.write(libc::iovec { iov_base: room.add(i * ROOM).cast(), iov_len: ROOM });
                header.msg_hdr.msg_iov = part;
                header.msg_hdr.msg_control = control.add(i).cast();
            }
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_controllen = CONTROL as _;
        }
        // SAFETY: the headers are all written, and describe distinct parts of `room` and
        // `control`, which live on; the kernel writes only there and into the headers.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).unwrap_or(0).min(BATCH);
        for (len, header) in self.lens.iter_mut().zip(&headers[..received]) {
            // SAFETY: all headers were written above.
            let header = unsafe { header.assume_init_ref() };
            let control = header.msg_hdr.msg_controllen;
            *len = ((header.msg_len as usize).min(ROOM), control.min(CONTROL));
        }
        received
    }

    /// The first `count` datagrams of the last batch.
    pub(super) fn datagrams(&self, count: usize) -> impl Iterator<Item = Datagram<'_>> {
        let buffers = self.room.chunks_exact(ROOM).zip(&self.control);
        buffers.zip(self.lens).take(count).map(|((room, control), (len, control_len))| {
            let (stamp, drops) = read_control(&control.0[..control_len]);
            Datagram { bytes: &room[..len], stamp, drops }
        })
    }
}

/// The stamp and the count among control messages. Reads the layout of `cmsg(3)` from bytes:
/// header, data, both padded to the size of a word.
fn read_control(mut data: &[u8]) -> (Option<u64>, Option<u32>) {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let (mut stamp, mut drops) = (None, None);
    while data.len() >= HEADER {
        // SAFETY: there are at least that many bytes; a cmsghdr is plain integers, for which any
        // bytes are a value, and the read does not ask for alignment.
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
            _ => {}
        }
        data = data.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or(&[]);
    }
    (stamp, drops)
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
        assert_eq!(read_control(&data), (Some(3_000_000_005), Some(7)));
        assert_eq!(read_control(&[]), (None, None));
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
