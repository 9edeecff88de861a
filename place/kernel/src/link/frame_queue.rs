//! The path of a source's frames into the kernel: one socket for each stream, each packet with its frame's
//! deadline and mark.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, TxTimeFlags, sockopt};
use rustix::time::ClockId;
use selvedge_data_memory::PoolReader;
use selvedge_data_stream::rtp::stamp_deadline;
use selvedge_data_stream::{DropReason, Frame, PacketCursor};
use selvedge_os::clock::Clock;
use selvedge_place_engine::frame_producer::FrameQueue;
use selvedge_units::{Bytes, Instant};
use socket2::{Domain, Protocol, Socket, Type};

use super::LinkError;
use super::account::{StreamAccount, mark};

/// The size of a socket's buffer, as a multiple of the packets' bytes: the kernel's state of a packet counts
/// as well, and it doubles the requested size.
const BUFFER_TIMES: u64 = 2;

/// A stream's socket, and the cookie by which the kernel knows its packets.
pub(super) fn open(stream: &str, to: SocketAddr, pool: Bytes) -> Result<(Socket, u64), LinkError> {
    let of = |what: &'static str| {
        let stream = stream.to_owned();
        move |why: io::Error| LinkError::Socket { stream, what, why }
    };
    let errno = |what: &'static str| move |why: Errno| of(what)(why.into());
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))
        .map_err(of("a socket"))?;
    socket.set_nonblocking(true).map_err(of("a socket"))?;
    sockopt::set_txtime(&socket, ClockId::Monotonic, TxTimeFlags::empty())
        .map_err(errno("SO_TXTIME"))?;
    socket.set_mark(mark(0)).map_err(of("SO_MARK (needs CAP_NET_ADMIN)"))?;
    let buffer = usize::try_from(pool.0.saturating_mul(BUFFER_TIMES).min(1 << 29));
    let buffer = buffer.unwrap_or(1 << 29);
    // A refused size leaves the default one, which works, but has less room.
    let _ = sockopt::set_socket_send_buffer_size_force(&socket, buffer);
    let cookie = sockopt::socket_cookie(&socket).map_err(errno("SO_COOKIE"))?;
    Ok((socket, cookie))
}

/// The queue of a stream's frame producer.
pub(super) struct KernelFrameQueue {
    pub(super) clock: Clock,
    pub(super) socket: Socket,
    pub(super) to: SocketAddr,
    pub(super) ring: usize,
    pub(super) pool: PoolReader,
    pub(super) account: Arc<Mutex<StreamAccount>>,
    pub(super) stop: Arc<AtomicBool>,
}

impl KernelFrameQueue {
    /// Hands one packet over.
    fn send(&self, packet: &[u8], deadline: Instant) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(TxTime(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::TxTime(deadline.0.max(1)));
        let parts = [IoSlice::new(packet)];
        let (socket, flags) = (&self.socket, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        loop {
            match rustix::net::sendmsg_addr(socket, &self.to, &parts, &mut ancillary, flags) {
                Ok(_) => return Ok(()),
                // An ICMP error about an earlier packet: this one is sent all the same.
                Err(Errno::INTR | Errno::CONNREFUSED) => {}
                Err(why) => return Err(why),
            }
        }
    }
}

impl FrameQueue for KernelFrameQueue {
    fn free(&self) -> usize {
        self.ring.saturating_sub(self.account.lock().waiting())
    }

    fn push(&mut self, frame: Frame) -> bool {
        let now = self.clock.now();
        // Before any packet of it is sent: the kernel may report on it at once.
        let deadline = self.account.lock().offer(&frame, now);
        // Setting a mark already worked once, when the socket was opened.
        let _ = self.socket.set_mark(mark(frame.seq));
        let mut cursor = PacketCursor::default();
        if let Ok(payload) = self.pool.bytes_mut(frame.payload) {
            while let Some(packet) = cursor.next_mut(payload) {
                stamp_deadline(packet, deadline, now);
            }
        }
        let mut cursor = PacketCursor::default();
        let mut sent = 0;
        let mut failed = None;
        let payload = self.pool.bytes(frame.payload).unwrap_or_default();
        while let Some(packet) = cursor.next(payload) {
            match self.send(packet, deadline) {
                Ok(()) => sent += 1,
                // The rest would be useless.
                Err(why) => {
                    failed = Some(why);
                    break;
                }
            }
        }
        if sent < frame.packets {
            let reason = match failed {
                Some(Errno::AGAIN | Errno::NOBUFS) => DropReason::Full,
                _ => DropReason::SendFailed,
            };
            self.account.lock().refused(frame.seq, frame.packets - sent, reason, now);
        }
        // Refused only for a span that was released before, which cannot happen here.
        let _ = self.pool.release(frame.payload);
        true
    }

    fn notify(&self) {}

    fn is_abandoned(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
