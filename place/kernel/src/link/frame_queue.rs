//! The path of a source's frames into the kernel: one socket for each stream, each packet with its frame's
//! deadline and mark. The thread that reads the kernel's reports gets a record of each frame through a ring. The
//! producer waits for no lock that this thread holds: it may be a real-time thread, and the reader is none, so a lock
//! would hold the producer up for as long as other programs keep the reader from the processor.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, TxTimeFlags, sockopt};
use rustix::time::ClockId;
use selvedge_data_memory::{PoolReader, Producer};
use selvedge_data_stream::rtp::stamp_deadline;
use selvedge_data_stream::{Contract, DropReason, Frame, PacketCursor};
use selvedge_os::clock::Clock;
use selvedge_place_engine::frame_producer::FrameQueue;
use selvedge_units::{Bytes, Duration, Instant};
use socket2::{Domain, Protocol, Socket, Type};

use super::LinkError;
use super::account::{Handover, mark};

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

/// By what a stream's frames are due, where they do not say it themselves. Any thread may set it.
pub(super) struct DueTerms {
    period: AtomicU64,
    /// [`u64::MAX`]: none.
    delay: AtomicU64,
}

impl DueTerms {
    pub(super) fn new(contract: &Contract) -> Self {
        let terms = Self { period: AtomicU64::new(0), delay: AtomicU64::new(0) };
        terms.set(contract);
        terms
    }

    pub(super) fn set(&self, contract: &Contract) {
        self.period.store(contract.period.0, Ordering::Relaxed);
        self.delay.store(contract.delay.map_or(u64::MAX, |delay| delay.0), Ordering::Relaxed);
    }

    /// The deadline of a frame, `last` being that of the frame before it.
    fn deadline(&self, frame: &Frame, last: Instant) -> Instant {
        let (period, delay) = (&self.period, self.delay.load(Ordering::Relaxed));
        let by_delay = || (delay != u64::MAX).then(|| frame.arrival + Duration(delay));
        let by_period = || last.max(frame.arrival) + Duration(period.load(Ordering::Relaxed));
        frame.deadline.or_else(by_delay).unwrap_or_else(by_period)
    }
}

/// The queue of a stream's frame producer.
pub(super) struct KernelFrameQueue {
    pub(super) clock: Clock,
    pub(super) socket: Socket,
    pub(super) to: SocketAddr,
    pub(super) ring: usize,
    pub(super) pool: PoolReader,
    pub(super) terms: Arc<DueTerms>,
    /// Frames whose fates are known, and those that were handed over, since the start.
    pub(super) settled: Arc<AtomicUsize>,
    pub(super) offered: usize,
    /// To the thread that keeps the account; room for two records of each frame.
    pub(super) handovers: Producer<Handover>,
    pub(super) last_deadline: Instant,
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
        let waiting = self.offered.wrapping_sub(self.settled.load(Ordering::Acquire));
        self.ring.saturating_sub(waiting).min(self.handovers.free() / 2)
    }

    fn push(&mut self, frame: Frame) -> bool {
        let now = self.clock.now();
        let deadline = self.terms.deadline(&frame, self.last_deadline);
        // Before any packet of it is sent: the kernel may report on it at once.
        if self.handovers.push(Handover::Frame { frame, deadline, now }).is_err() {
            return false;
        }
        (self.last_deadline, self.offered) = (deadline, self.offered.wrapping_add(1));
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
            let packets = frame.packets - sent;
            // Without room the frame counts as lost once the kernel reports nothing of it.
            let _ = self.handovers.push(Handover::Refused { seq: frame.seq, packets, reason, now });
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

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_data_memory::PayloadSpan;
    use selvedge_data_stream::{Kind, References, Window};

    #[test]
    fn a_frame_is_due_by_itself_by_the_delay_or_by_the_period() {
        let contract = Contract::new(Duration(100), Window { lose: 1, of: 5 });
        let terms = DueTerms::new(&contract);
        let mut frame = Frame {
            seq: 0,
            kind: Kind::Still,
            referenced: false,
            refs: References::NONE,
            packets: 1,
            size: Bytes(100),
            arrival: Instant(1000),
            deadline: None,
            payload: PayloadSpan::default(),
        };
        let of = |frame: &Frame, last| terms.deadline(frame, Instant(last));
        assert_eq!((of(&frame, 0), of(&frame, 1050)), (Instant(1100), Instant(1150)));
        terms.set(&Contract { delay: Some(Duration(30)), ..contract });
        assert_eq!(of(&frame, 1050), Instant(1030));
        frame.deadline = Some(Instant(1007));
        assert_eq!(of(&frame, 1050), Instant(1007));
    }
}
