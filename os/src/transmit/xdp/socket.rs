//! An AF_XDP socket that only sends: its memory, its two rings, and the call that makes the kernel look.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicU32;

use rustix::io::Errno;

use super::XdpError;
use super::ring::Ring;

/// Bytes of a chunk of the shared memory, in which one frame lies.
pub(super) const CHUNK: usize = 4096;
/// Chunks, and slots of each ring.
const CHUNKS: u32 = 256;
/// The most calls of the kernel for one run: it takes some frames each time.
const CALLS_MAX: u32 = 64;

/// Memory shared with the kernel, unmapped when dropped.
#[derive(Debug)]
struct Shared {
    at: *mut u8,
    len: usize,
}

// SAFETY: memory that belongs to no thread; the comments at each use state who may access which part.
unsafe impl Send for Shared {}

impl Shared {
    /// Pages of the kernel (`fd` and its offset), or, without that, of this process.
    fn map(fd: Option<(&OwnedFd, libc::off_t)>, len: usize) -> Option<Self> {
        let (flags, fd, offset) = match fd {
            Some((fd, offset)) => (libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, offset) };
        (at != libc::MAP_FAILED).then(|| Self { at: at.cast(), len })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nothing points into it any more: rings are dropped first.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// A socket bound to a device's first queue.
#[derive(Debug)]
pub(super) struct XdpSocket {
    // They are dropped in this order: pointers before their targets.
    send: Ring<libc::xdp_desc>,
    done: Ring<u64>,
    socket: OwnedFd,
    _rings: [Shared; 2],
    memory: Shared,
    /// Free chunks, by their offset in the memory.
    free: Vec<u64>,
    /// Descriptors that were enqueued and not handed over yet.
    put: u32,
    device: u32,
}

impl XdpSocket {
    /// Opens a socket on a device, in copy mode.
    pub(super) fn open(device: u32) -> Result<Self, XdpError> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(refused("a socket of AF_XDP (needs CAP_NET_RAW)"));
        }
        // SAFETY: just opened, with no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let len = CHUNKS as usize * CHUNK;
        let memory = Shared::map(None, len).ok_or_else(|| refused("memory"))?;
        // SAFETY: plain data, for which all bytes zero are a valid value.
        let mut area: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
        (area.addr, area.len, area.chunk_size) = (memory.at as u64, len as u64, CHUNK as u32);
        set(&socket, libc::XDP_UMEM_REG, &area)
            .ok_or_else(|| refused("locked memory (1 MB; raise the limit of memlock)"))?;
        let sizes = [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_TX_RING];
        if !sizes.iter().all(|&ring| set(&socket, ring, &CHUNKS).is_some()) {
            return Err(refused("its rings"));
        }
        let offsets = offsets(&socket).ok_or_else(|| refused("its rings' layout"))?;
        let (sending, send) = ring::<libc::xdp_desc>(&socket, &offsets.tx, libc::XDP_PGOFF_TX_RING)
            .ok_or_else(|| refused("its ring of frames to send"))?;
        let at = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let (finished, done) = ring::<u64>(&socket, &offsets.cr, at)
            .ok_or_else(|| refused("its ring of frames that are sent"))?;
        // SAFETY: plain data, for which all bytes zero are a valid value.
        let mut address: libc::sockaddr_xdp = unsafe { std::mem::zeroed() };
        address.sxdp_family = libc::AF_XDP as u16;
        address.sxdp_flags = libc::XDP_COPY;
        address.sxdp_ifindex = device;
        // SAFETY: the kernel reads an address of that length, which lives through the call.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        if bound != 0 {
            return Err(refused("binding AF_XDP to the device"));
        }
        let free = (0..u64::from(CHUNKS)).map(|n| n * CHUNK as u64).collect();
        let _rings = [sending, finished];
        Ok(Self { send, done, socket, _rings, memory, free, put: 0, device })
    }

    /// The device's index.
    pub(super) const fn device(&self) -> u32 {
        self.device
    }

    /// A chunk for a frame, if one is free; [`Self::put`] sends it.
    pub(super) fn chunk(&mut self) -> Option<&mut [u8]> {
        while let Some(at) = self.done.pop() {
            // Whatever the kernel wrote, only existing chunks come back.
            let at = at & !(CHUNK as u64 - 1);
            if at < u64::from(CHUNKS) * CHUNK as u64 && self.free.len() < CHUNKS as usize {
                self.free.push(at);
            }
        }
        let &at = self.free.last()?;
        // SAFETY: within the memory, and the kernel does not access a free chunk; the borrow of `self` keeps
        // it from being handed over meanwhile.
        Some(unsafe { std::slice::from_raw_parts_mut(self.memory.at.add(at as usize), CHUNK) })
    }

    /// Enqueues the chunk that [`Self::chunk`] returned, with a frame of `len` bytes.
    pub(super) fn put(&mut self, len: usize) {
        let Some(addr) = self.free.pop() else { return };
        self.send.push(libc::xdp_desc { addr, len: len.min(CHUNK) as u32, options: 0 });
        self.put += 1;
    }

    /// Makes the kernel take the enqueued frames; returns how many it took, by how many calls, and its error
    /// if those were not all. The rest is taken back.
    pub(super) fn kick(&mut self) -> (usize, u64, Option<Errno>) {
        let put = std::mem::take(&mut self.put);
        let (mut calls, mut error) = (0, None);
        while self.send.waiting() > 0 && calls < CALLS_MAX {
            let before = self.send.waiting();
            calls += 1;
            // SAFETY: no pointers except null ones of length 0.
            let said = unsafe {
                libc::sendto(
                    self.socket.as_raw_fd(),
                    ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    ptr::null(),
                    0,
                )
            };
            if said < 0 {
                let errno = Errno::from_io_error(&std::io::Error::last_os_error());
                error = Some(errno.unwrap_or(Errno::IO));
                // The kernel also returns this after each few frames.
                let more = matches!(error, Some(Errno::AGAIN | Errno::INTR));
                if !(more && self.send.waiting() < before) {
                    break;
                }
            }
        }
        let left = self.send.waiting();
        for _ in 0..left {
            let chunk = self.send.pop_back();
            self.free.push(chunk.addr);
        }
        let error = error.filter(|_| left > 0);
        (put.saturating_sub(left) as usize, u64::from(calls), error)
    }
}

fn refused(what: &'static str) -> XdpError {
    XdpError::Refused(what, std::io::Error::last_os_error())
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> Option<()> {
    // SAFETY: the kernel reads this number of bytes of `value`, plain data that lives through the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            option,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    (set == 0).then_some(())
}

fn offsets(socket: &OwnedFd) -> Option<libc::xdp_mmap_offsets> {
    // SAFETY: plain data, for which all bytes zero are a valid value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&offsets) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes of `offsets`, and the length; both live on.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &raw mut len,
        )
    };
    (got == 0 && len as usize == size_of_val(&offsets)).then_some(offsets)
}

/// Maps one of the socket's rings.
fn ring<T: Copy>(
    socket: &OwnedFd,
    lies: &libc::xdp_ring_offset,
    at: libc::off_t,
) -> Option<(Shared, Ring<T>)> {
    let len = lies.desc as usize + CHUNKS as usize * size_of::<T>();
    let shared = Shared::map(Some((socket, at)), len)?;
    // SAFETY: the kernel states where in the mapping these lie; `Shared` outlives the ring, and of the two
    // counters each side writes one.
    let ring = unsafe {
        Ring::new(
            shared.at.add(lies.producer as usize).cast::<AtomicU32>(),
            shared.at.add(lies.consumer as usize).cast::<AtomicU32>(),
            shared.at.add(lies.desc as usize).cast::<T>(),
            CHUNKS,
        )
    };
    Some((shared, ring))
}
