//! An AF_XDP socket that only sends: its memory, its two rings, and the call that makes the kernel look.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size,
    set_xdp_umem_reg, xdp_mmap_offsets,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XdpDesc,
    XdpDescOptions, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, socket_with};

use super::XdpError;
use super::ring::Ring;
use crate::memory::{Access, Mapping};

/// Bytes of a chunk of the shared memory, in which one frame lies.
pub(super) const CHUNK: usize = 4096;
/// Chunks, and slots of each ring.
const CHUNKS: u32 = 256;
/// The most calls of the kernel for one run: it takes some frames each time.
const CALLS_MAX: u32 = 64;

/// A socket bound to a device's first queue.
#[derive(Debug)]
pub(crate) struct XdpSocket {
    // They are dropped in this order: pointers before their targets.
    send: Ring<XdpDesc>,
    done: Ring<u64>,
    socket: OwnedFd,
    _rings: [Mapping; 2],
    memory: Mapping,
    /// Free chunks, by their offset in the memory.
    free: Vec<u64>,
    /// Descriptors that were enqueued and not handed over yet.
    put: u32,
    device: u32,
}

impl XdpSocket {
    /// Opens a socket on a device, in copy mode.
    pub(crate) fn open(device: u32) -> Result<Self, XdpError> {
        let (family, flags) = (AddressFamily::XDP, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::RAW, flags, None)
            .map_err(refused("a socket of AF_XDP (needs CAP_NET_RAW)"))?;
        let len = CHUNKS as usize * CHUNK;
        let memory = Mapping::private(len).map_err(refused("memory"))?;
        let area = XdpUmemReg {
            addr: memory.base().as_ptr() as u64,
            len: len as u64,
            chunk_size: CHUNK as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(&socket, area)
            .map_err(refused("locked memory (1 MB; raise the limit of memlock)"))?;
        set_xdp_umem_fill_ring_size(&socket, CHUNKS)
            .and_then(|()| set_xdp_umem_completion_ring_size(&socket, CHUNKS))
            .and_then(|()| set_xdp_tx_ring_size(&socket, CHUNKS))
            .map_err(refused("its rings"))?;
        let offsets = xdp_mmap_offsets(&socket).map_err(refused("its rings' layout"))?;
        let (sending, send) = ring::<XdpDesc>(&socket, &offsets.tx, XDP_PGOFF_TX_RING)
            .map_err(refused("its ring of frames to send"))?;
        let (finished, done) = ring::<u64>(&socket, &offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING)
            .map_err(refused("its ring of frames that are sent"))?;
        bind(&socket, &SocketAddrXdp::new(SocketAddrXdpFlags::XDP_COPY, device, 0))
            .map_err(refused("binding AF_XDP to the device"))?;
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
        Some(unsafe {
            std::slice::from_raw_parts_mut(self.memory.base().as_ptr().add(at as usize), CHUNK)
        })
    }

    /// Enqueues the chunk that [`Self::chunk`] returned, with a frame of `len` bytes.
    pub(super) fn put(&mut self, len: usize) {
        let Some(addr) = self.free.pop() else { return };
        let (len, options) = (len.min(CHUNK) as u32, XdpDescOptions::empty());
        self.send.push(XdpDesc { addr, len, options });
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
            if let Err(errno) = rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT) {
                error = Some(errno);
                // The kernel also returns this after each few frames.
                let more = matches!(errno, Errno::AGAIN | Errno::INTR);
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

fn refused<E: Into<std::io::Error>>(what: &'static str) -> impl FnOnce(E) -> XdpError {
    move |why| XdpError::Refused(what, why.into())
}

/// Maps one of the socket's rings.
fn ring<T: Copy>(
    socket: &OwnedFd,
    lies: &XdpRingOffset,
    at: u64,
) -> std::io::Result<(Mapping, Ring<T>)> {
    let len = lies.desc as usize + CHUNKS as usize * size_of::<T>();
    let mapping = Mapping::new(socket, at, len, Access::ReadWrite)?;
    let base = mapping.base().as_ptr();
    // SAFETY: the kernel states where in the mapping these lie; the mapping outlives the ring, and of the
    // two counters each side writes one.
    let ring = unsafe {
        Ring::new(
            base.add(lies.producer as usize).cast::<AtomicU32>(),
            base.add(lies.consumer as usize).cast::<AtomicU32>(),
            base.add(lies.desc as usize).cast::<T>(),
            CHUNKS,
        )
    };
    Ok((mapping, ring))
}
