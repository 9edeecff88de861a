//! The kernel's counts of this process's own TCP connections (`sock_diag(7)`): their sockets may belong to a
//! library that does not hand them out.

use std::fs;
use std::io;
use std::net::SocketAddr;

use crate::netlink::{DUMP, Netlink, Request, attributes, word};
use crate::route;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
const ESTABLISHED: u32 = 1 << 1;
/// Offsets in `struct inet_diag_msg` and its length, and in `struct tcp_info`.
const REMOTE_PORT: usize = 6;
const REMOTE: usize = 24;
const INODE: usize = 68;
const MESSAGE: usize = 72;
const SEGMENTS: usize = 136;
const BYTES: usize = 200;
const BYTES_AGAIN: usize = 208;

/// A connection, and its sent data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The number of its socket.
    pub socket: u32,
    /// Segments, including those without data and those that were retransmitted.
    pub segments: u64,
    /// Bytes of data, including those that were retransmitted.
    pub bytes: u64,
    /// Bytes of data that were retransmitted.
    pub again: u64,
}

/// This process's connections to a peer.
///
/// # Errors
/// If the kernel does not report them.
pub fn connections_to(peer: SocketAddr) -> io::Result<Vec<Connection>> {
    let ours: Vec<String> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|link| link.to_string_lossy().into_owned())
        .collect();
    let address = route::bytes(peer.ip());
    // `struct inet_diag_req_v2`: family, protocol, requested data, states, and no specific socket.
    let wanted = 1 << (INET_DIAG_INFO - 1);
    let mut fixed = vec![route::family(peer.ip()), libc::IPPROTO_TCP as u8, wanted, 0];
    fixed.extend(ESTABLISHED.to_ne_bytes());
    fixed.extend([0; 48]);
    let port = peer.port().to_be_bytes();
    let mut found = Vec::new();
    Netlink::open_sockets()?.ask(Request::new(SOCK_DIAG_BY_FAMILY, DUMP, &fixed), |message| {
        let socket = word(message, INODE);
        let is = |at: usize, bytes: &[u8]| message.get(at..at + bytes.len()) == Some(bytes);
        if !is(REMOTE_PORT, &port)
            || !is(REMOTE, &address)
            || !ours.contains(&format!("socket:[{socket}]"))
        {
            return;
        }
        let mut all = attributes(message.get(MESSAGE..).unwrap_or_default());
        let Some((_, info)) = all.find(|(kind, _)| *kind == INET_DIAG_INFO) else { return };
        let long = |at| u64::from(word(info, at)) | u64::from(word(info, at + 4)) << 32;
        found.push(Connection {
            socket,
            segments: word(info, SEGMENTS).into(),
            bytes: long(BYTES),
            again: long(BYTES_AGAIN),
        });
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn own_connections_are_counted_and_no_others() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(at).unwrap();
            let peer = listener.local_addr().unwrap();
            assert_eq!(connections_to(peer).unwrap(), []);
            let mut one = TcpStream::connect(peer).unwrap();
            let mut accepted = listener.accept().unwrap().0;
            one.write_all(&[7; 3000]).unwrap();
            accepted.read_exact(&mut [0; 3000]).unwrap();
            let found = connections_to(peer).unwrap();
            assert_eq!((found.len(), found[0].bytes, found[0].again), (1, 3000, 0), "{found:?}");
            // One to connect, one to acknowledge, and the data.
            assert!((3..9).contains(&found[0].segments), "{found:?}");
            drop((one, accepted));
            assert_eq!(connections_to(peer).unwrap(), []);
        }
    }
}
