//! A bound UDP port for both directions: datagrams that were sent as one arrive as one (UDP GSO and
//! GRO), and are cut only here.
//!
//! Messages of a stack come from it and go to it; [`Transmitter`] sends from the same socket.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use selvedge_units::{Bytes, Span};

use crate::clock::{Clock, timespec};
use crate::receive::batch::Batch;
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
    /// Binds an address, port 0 for any. An IPv6 one serves IPv6 only.
    ///
    /// # Errors
    /// [`SocketError::Open`], [`SocketError::Bind`], [`SocketError::Option`].
    pub fn bind(at: SocketAddr, receive_buffer: Bytes) -> Result<Self, SocketError> {
        let (socket, at) = socket::open_bound(at)?;
        socket::set_buffer(&socket, Buffer::Receive, receive_buffer);
        // Kernels before 5.0 have none, and hand over each datagram by itself.
        let _ = socket::set_int(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        Ok(Self { socket, at })
    }

    /// Where it is bound.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.at
    }

    /// One that sends from this port. The send buffer of the options is not asked for.
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

    /// One that reads from this port. What one has read no other does.
    ///
    /// # Errors
    /// [`SocketError::Open`] if the process has no more descriptors.
    pub fn reader(&self) -> Result<DatagramReader, SocketError> {
        let socket = self.socket.try_clone().map_err(SocketError::Open)?;
        Ok(DatagramReader { socket, batch: Batch::of(AT_ONCE, true) })
    }
}

/// Bytes of a buffer that any datagram fits.
pub const DATAGRAM_ROOM: usize = 1 << 16;

/// A datagram that arrived.
#[derive(Debug)]
pub struct Arrived<'a> {
    len: usize,
    bytes: Held<'a>,
}

#[derive(Debug)]
enum Held<'a> {
    /// One of several that the kernel has put together.
    Part(&'a [u8]),
    /// The first bytes of a buffer of its own.
    Whole(&'a mut Vec<u8>),
}

impl Arrived<'_> {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Held::Part(bytes) => bytes,
            Held::Whole(buffer) => &buffer[..self.len],
        }
    }

    /// Its bytes in a buffer of [`DATAGRAM_ROOM`]: the one that they were read into, in exchange for
    /// the one that `other` gives; a copy of those that share their buffer with others.
    pub fn take(self, other: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
        match self.bytes {
            Held::Whole(buffer) => {
                let mut taken = std::mem::replace(buffer, other());
                taken.truncate(self.len);
                taken
            }
            Held::Part(bytes) => {
                let mut copy = other();
                copy.clear();
                copy.extend_from_slice(bytes);
                copy
            }
        }
    }
}

/// Reads datagrams. One thread at a time uses it.
pub struct DatagramReader {
    socket: OwnedFd,
    batch: Batch,
}

impl DatagramReader {
    /// Hands each datagram that waits, and who sent it, to `take`; how many there were. Does not
    /// wait, and reads at most once.
    pub fn read(&mut self, mut take: impl FnMut(Arrived<'_>, SocketAddr)) -> usize {
        let (received, mut count) = (self.batch.receive(&self.socket), 0);
        for (from, segment, len, buffer) in self.batch.buffers(received) {
            let size = segment.map_or(len, usize::from);
            // An empty one has nothing to hand over.
            if len > 0 && size >= len {
                take(Arrived { len, bytes: Held::Whole(buffer) }, from);
                count += 1;
                continue;
            }
            for bytes in buffer[..len].chunks(size.max(1)) {
                take(Arrived { len: bytes.len(), bytes: Held::Part(bytes) }, from);
                count += 1;
            }
        }
        count
    }

    /// Waits for datagrams, at most so long; whether there are some.
    #[must_use]
    pub fn wait(&self, patience: Span) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        // An interrupted poll is one that found nothing.
        poll(&mut fds, Some(&timespec(patience.0))).is_ok_and(|ready| ready > 0)
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
            packets.iter().map(|bytes| Outgoing { to: b.address(), bytes }).collect();
        send.send_batch(&outgoing);
        let mut got = Vec::new();
        for _ in 0..1000 {
            if got.len() == sizes.len() - 1 || !reader.wait(Span::from_secs(10)) {
                break;
            }
            reader.read(|arrived, from| {
                assert_eq!(from, a.address());
                let bytes = arrived.bytes().to_vec();
                assert_eq!(arrived.take(|| vec![9; 3]), bytes);
                got.push(bytes);
            });
        }
        let sent: Vec<Vec<u8>> = packets.into_iter().filter(|packet| !packet.is_empty()).collect();
        assert_eq!(got, sent);
        assert!(!reader.wait(Span::ZERO));
    }
}
