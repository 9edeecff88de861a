//! RTP, or an MPEG transport stream, over UDP: one packet per datagram, from the engine to a socket
//! that belongs to the stream.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use selvedge_control_config::Destination;
use selvedge_os::socket::open_sender;
use selvedge_units::Bytes;

use super::transport_stream::Continuity;
use super::{Opened, Output, OutputError};

/// A socket, and the destination of its datagrams.
#[derive(Debug)]
struct Datagrams {
    socket: UdpSocket,
    to: SocketAddr,
    /// Why the last packet could not be sent.
    failed: Mutex<Option<io::Error>>,
    /// For a transport stream.
    continuity: Option<Mutex<Continuity>>,
    /// Bytes that were added to it and are not reported yet.
    added: AtomicU64,
}

/// Sends RTP packets as they are, or the transport stream inside of them.
pub(super) fn open(to: &Destination, at: SocketAddr, _: usize) -> Opened {
    let continuity = (to.scheme() != "rtp").then(Mutex::default);
    let ttl = to.option("ttl").and_then(|ttl| ttl.parse().ok());
    let socket = open_sender(at, ttl, to.option("interface").as_deref())?;
    Ok(Box::new(Datagrams {
        socket,
        to: at,
        failed: Mutex::default(),
        continuity,
        added: 0.into(),
    }))
}

impl Output for Datagrams {
    fn send(&self, packet: &[u8]) -> bool {
        // Not connected: a receiver that does not listen yet is no reason to refuse packets.
        let send = |bytes: &[u8]| {
            let sent = self.socket.send_to(bytes, self.to);
            sent.map_err(|error| *self.failed.lock() = Some(error)).is_ok()
        };
        match &self.continuity {
            Some(continuity) => {
                let (sent, added) = continuity.lock().sent(packet, send);
                self.added.fetch_add(added.0, Ordering::Relaxed);
                sent
            }
            None => send(packet),
        }
    }

    fn poll(&self) -> Result<Bytes, OutputError> {
        let failed = self.failed.lock().take();
        match failed {
            // Full buffers drain by themselves.
            Some(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error.into()),
            _ => Ok(Bytes(self.added.swap(0, Ordering::Relaxed))),
        }
    }
}
