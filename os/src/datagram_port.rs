//! A bound UDP port for both directions: datagrams that were sent as one arrive as one (UDP GSO and GRO), and
//! are split only here.
//!
//! A stack's messages are received from it and sent to it; [`Transmitter`] sends from the same socket.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use selvedge_units::{Bytes, Duration};

use crate::batch::Batch;
use crate::clock::{Clock, timespec};
use crate::single_datagram;
pub use crate::single_datagram::SingleDatagram;
use crate::socket::{self, Buffer, SocketError};
use crate::transmit::{TransmitOptions, Transmitter};

/// Reads of the largest size at once: more would not stay in the processor's cache.
const AT_ONCE: usize = 8;

/// A socket that is bound.
#[derive(Debug)]
pub struct DatagramPort {
    socket: OwnedFd,
    at: SocketAddr,
}

impl DatagramPort {
    /// Binds an address, port 0 for any. An IPv6 address serves IPv6 only.
    ///
    /// # Errors
    /// [`SocketError::Open`], [`SocketError::Bind`], [`SocketError::Option`].
    pub fn bind(at: SocketAddr, receive_buffer: Bytes) -> Result<Self, SocketError> {
        let (socket, at) = socket::open_bound(at)?;
        socket::set_buffer(&socket, Buffer::Receive, receive_buffer);
        // Kernels before 5.0 lack it, and return each datagram separately.
        let _ = socket::set_int(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        Ok(Self { socket, at })
    }

    /// Where it is bound.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.at
    }

    /// A transmitter for this port. The options' send buffer is not requested.
    ///
    /// # Errors
    /// [`SocketError::Open`] if the process has no more descriptors.
    pub fn transmitter(
        &self,
        clock: Clock,
        options: TransmitOptions,
    ) -> Result<Transmitter, SocketError> {
        let socket = self.socket.try_clone().map_err(SocketError::Open)?;
        Transmitter::over(socket, self.at.is_ipv6(), clock, options)
    }

    /// A reader of this port. A datagram that one reader has read is not seen by another.
    ///
    /// # Errors
    /// [`SocketError::Open`] if the process has no more descriptors.
    pub fn reader(&self) -> Result<DatagramReader, SocketError> {
        let socket = self.socket.try_clone().map_err(SocketError::Open)?;
        Ok(DatagramReader { socket, batch: Batch::of(AT_ONCE, true) })
    }
}

impl AsFd for DatagramPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Reads datagrams. One thread at a time uses it.
pub struct DatagramReader {
    socket: OwnedFd,
    batch: Batch,
}

impl DatagramReader {
    /// Passes each waiting datagram, and its sender, to `take`; returns their number. Does not block, and
    /// reads at most once.
    pub fn read(&mut self, mut take: impl FnMut(&[u8], SocketAddr)) -> usize {
        let (received, mut count) = (self.batch.receive(&self.socket), 0);
        for datagram in self.batch.datagrams(received) {
            let Some(from) = datagram.from else { continue };
            let whole = datagram.bytes.len().max(1);
            let size = datagram.segment.map_or(whole, usize::from);
            for bytes in datagram.bytes.chunks(size) {
                take(bytes, from);
                count += 1;
            }
        }
        count
    }

    /// Reads the next datagram into this buffer, which then holds exactly its bytes, without blocking; `None`
    /// if there is none. It may be several that were sent as one. A caller that reads large datagrams one by
    /// one need not copy them.
    pub fn read_into(&mut self, buffer: &mut Vec<u8>) -> Option<SingleDatagram> {
        single_datagram::receive(&self.socket, buffer)
    }

    /// Like [`DatagramReader::read_into`], but the first bytes go to `front` and only the rest into the
    /// buffer; returns how many bytes of `front` are the datagram's.
    pub fn read_apart(
        &mut self,
        front: &mut [u8],
        buffer: &mut Vec<u8>,
    ) -> Option<(SingleDatagram, usize)> {
        single_datagram::receive_apart(&self.socket, front, buffer)
    }

    /// Waits for datagrams, at most this long; returns whether there are some.
    #[must_use]
    pub fn wait(&self, patience: Duration) -> bool {
        self.wait_with(None, patience)
    }

    /// The same, but also waits for `other` to become readable.
    #[must_use]
    pub fn wait_with(&self, other: Option<&OwnedFd>, patience: Duration) -> bool {
        let own = PollFd::new(&self.socket, PollFlags::IN);
        let mut fds = [own.clone(), own];
        if let Some(other) = other {
            fds[1] = PollFd::new(other, PollFlags::IN);
        }
        let count = 1 + usize::from(other.is_some());
        // An interrupted poll counts as one that found nothing.
        poll(&mut fds[..count], Some(&timespec(patience.0))).is_ok_and(|ready| ready > 0)
    }
}

impl std::fmt::Debug for DatagramReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramReader").field("socket", &self.socket).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transmit::Outgoing;

    #[test]
    fn a_run_of_datagrams_arrives_as_it_was_sent() {
        let bind = || DatagramPort::bind("127.0.0.1:0".parse().unwrap(), Bytes(1 << 20)).unwrap();
        let (a, b) = (bind(), bind());
        let mut send = a.transmitter(Clock::new(), TransmitOptions::default()).unwrap();
        let mut reader = b.reader().unwrap();
        let sizes = [1400, 1400, 1400, 9, 0, 60_000, 1];
        let packets: Vec<Vec<u8>> =
            sizes.iter().enumerate().map(|(n, &size)| vec![n as u8; size]).collect();
        let outgoing: Vec<Outgoing<'_>> =
            packets.iter().map(|bytes| Outgoing { to: b.address(), head: &[], bytes }).collect();
        send.send_batch(&outgoing);
        let mut got = Vec::new();
        for _ in 0..1000 {
            if got.len() == sizes.len() - 1 || !reader.wait(Duration::from_secs(10)) {
                break;
            }
            reader.read(|bytes, from| {
                assert_eq!(from, a.address());
                got.push(bytes.to_vec());
            });
        }
        // An empty datagram has no bytes to return.
        let sent: Vec<Vec<u8>> = packets.into_iter().filter(|packet| !packet.is_empty()).collect();
        assert_eq!(got, sent);
        assert!(!reader.wait(Duration::ZERO));
    }

    #[test]
    fn a_datagram_is_read_into_its_own_buffer() {
        let bind = || DatagramPort::bind("127.0.0.1:0".parse().unwrap(), Bytes(1 << 20)).unwrap();
        let (a, b) = (bind(), bind());
        let mut send = a.transmitter(Clock::new(), TransmitOptions::default()).unwrap();
        let (mut reader, mut buffer) = (b.reader().unwrap(), vec![9; 70_000]);
        assert_eq!((reader.read_into(&mut buffer), buffer.len()), (None, 0));
        let packets: Vec<Vec<u8>> = vec![vec![1; 60_000], vec![2; 1400], vec![3; 1400], vec![4; 7]];
        for run in [&packets[..1], &packets[1..]] {
            let outgoing: Vec<Outgoing<'_>> =
                run.iter().map(|bytes| Outgoing { to: b.address(), head: &[], bytes }).collect();
            send.send_batch(&outgoing);
        }
        let mut got: Vec<Vec<u8>> = Vec::new();
        for _ in 0..1000 {
            if got.len() == packets.len() || !reader.wait(Duration::from_secs(10)) {
                break;
            }
            // Separate or in one piece, the result is the same.
            let mut front = [0; 18];
            let front = &mut front[..got.len() % 2 * 18];
            let Some((single, count)) = reader.read_apart(front, &mut buffer) else { continue };
            let SingleDatagram { from, segment, .. } = single;
            buffer.splice(0..0, front[..count].iter().copied());
            assert_eq!(from, a.address());
            let size = segment.map_or(buffer.len(), usize::from);
            got.extend(buffer.chunks(size).map(<[u8]>::to_vec));
        }
        assert_eq!(got, packets);
    }
}
