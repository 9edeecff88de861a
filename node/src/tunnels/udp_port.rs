//! The UDP port of a tunnel, for programs that need no network device: stacks that end in `net(bond)`, and any other that
//! sends datagrams.
//!
//! The near end listens at the port and gives each program that sends there a number, its *client*. The far end has a socket
//! of its own for each client, and sends to the program at its port. What that answers goes back to the client. On the way a
//! datagram stands behind a header that no IP packet begins with:
//!
//! ```text
//! 0  client  age of the client's number
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;

use selvedge_os::eventfd::EventFd;
use selvedge_units::{Duration, Instant};

/// The bytes in front of a datagram.
const HEADER: usize = 3;
/// The first byte of the header; that of an IP packet is at least 0x40.
const KIND: u8 = 0;
/// So many programs at most send at the same time.
const CLIENTS: usize = 256;
/// A number is given to another program once its own has sent nothing for so long.
const IDLE: Duration = Duration::from_secs(10);

/// The programs of a near end, or the sockets of a far end.
#[derive(Debug)]
pub(super) struct UdpPort {
    /// Where the near end listens; `None` at a far end.
    listens: Option<Arc<UdpSocket>>,
    /// The port of the near end, or that of the program at the far end.
    port: SocketAddr,
    /// Rung when the far end opens a socket.
    opened: Arc<EventFd>,
    clients: Vec<Client>,
    /// The client whose socket is read next.
    turn: usize,
}

/// A program at the near end.
#[derive(Debug)]
struct Client {
    /// How often the number was given away, modulo 256.
    age: u8,
    /// The program's address, at the near end.
    from: SocketAddr,
    /// Its socket, at the far end.
    socket: Option<Arc<UdpSocket>>,
    /// When it sent last, at the near end.
    used_at: Instant,
}

impl UdpPort {
    /// The near end: listens.
    ///
    /// # Errors
    /// If the port is taken, or the address is not of this host.
    pub(super) fn near(port: SocketAddr) -> io::Result<Self> {
        Ok(Self { listens: Some(open(port)?), ..Self::far(port)? })
    }

    /// The far end of a program that listens at this port.
    ///
    /// # Errors
    /// If no more file descriptors may be opened.
    pub(super) fn far(port: SocketAddr) -> io::Result<Self> {
        let opened = Arc::new(EventFd::new()?);
        Ok(Self { listens: None, port, opened, clients: Vec::new(), turn: 0 })
    }

    /// Whether a packet of the bond is for a port.
    pub(super) fn is_own(packet: &[u8]) -> bool {
        packet.first() == Some(&KIND)
    }

    /// The flow of a packet for a port: its client.
    pub(super) fn flow(packet: &[u8]) -> Option<u64> {
        packet.get(1).copied().map(u64::from)
    }

    /// What becomes readable when there is something to receive.
    pub(super) fn readable(&self) -> Vec<Arc<dyn AsFd + Send + Sync>> {
        self.opened.clear();
        let own = self.clients.iter().filter_map(|client| client.socket.as_ref());
        let sockets = self.listens.iter().chain(own).map(|socket| Arc::clone(socket) as _);
        sockets.chain([Arc::clone(&self.opened) as _]).collect()
    }

    /// Reads the next datagram of a program behind its header; returns the length of both, 0 if it is dropped because too many
    /// programs send; `None` if there is none. A datagram that has no room in `buffer` is cut. O(clients).
    pub(super) fn receive(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let (header, body) = buffer.split_at_mut(HEADER);
        let (at, len) = if let Some(socket) = &self.listens {
            let (len, from) = socket.recv_from(body).ok()?;
            let Some(at) = self.client(now, from) else { return Some(0) };
            (at, len)
        } else {
            let turns = (0..self.clients.len()).map(|n| (self.turn + n) % self.clients.len());
            let mut read = turns.filter_map(|at| {
                let socket = self.clients[at].socket.as_ref()?;
                // An error is that of an earlier datagram that nobody took.
                Some((at, socket.recv(body).or_else(|_| socket.recv(body)).ok()?))
            });
            read.next()?
        };
        self.turn = at + 1;
        header.copy_from_slice(&[KIND, at as u8, self.clients[at].age]);
        Some(HEADER + len)
    }

    /// Sends the datagram of a packet of the bond to its program; false if it has none.
    pub(super) fn send(&mut self, now: Instant, packet: &[u8]) -> bool {
        let Some((&[KIND, at, age], datagram)) = packet.split_first_chunk::<HEADER>() else {
            return false;
        };
        if let Some(socket) = &self.listens {
            let client = self.clients.get(usize::from(at)).filter(|client| client.age == age);
            return client.is_some_and(|client| socket.send_to(datagram, client.from).is_ok());
        }
        let Some(client) = self.far_client(now, at, age) else { return false };
        let send =
            |socket: &Arc<UdpSocket>| socket.send(datagram).or_else(|_| socket.send(datagram));
        client.socket.as_ref().is_some_and(|socket| send(socket).is_ok())
    }

    /// The number of the program at this address, at the near end; `None` if all are in use by others.
    fn client(&mut self, now: Instant, from: SocketAddr) -> Option<usize> {
        if let Some(at) = self.clients.iter().position(|client| client.from == from) {
            self.clients[at].used_at = now;
            return Some(at);
        }
        let new = Client { age: 0, from, socket: None, used_at: now };
        if self.clients.len() < CLIENTS {
            self.clients.push(new);
            return Some(self.clients.len() - 1);
        }
        let (at, oldest) =
            self.clients.iter_mut().enumerate().min_by_key(|(_, client)| client.used_at)?;
        (now.since(oldest.used_at) >= IDLE).then(|| {
            *oldest = Client { age: oldest.age.wrapping_add(1), ..new };
            at
        })
    }

    /// The client of this number at the far end. Its socket is opened when the number is new, or given to another.
    fn far_client(&mut self, now: Instant, at: u8, age: u8) -> Option<&mut Client> {
        let from = self.port;
        let absent = || Client { age, from, socket: None, used_at: now };
        let at = usize::from(at);
        if self.clients.len() <= at {
            self.clients.resize_with(at + 1, absent);
        }
        let client = &mut self.clients[at];
        if client.age != age || client.socket.is_none() {
            *client = absent();
            let any: IpAddr = match self.port {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let socket = open((any, 0).into()).ok()?;
            socket.connect(self.port).ok()?;
            client.socket = Some(socket);
            self.opened.ring();
        }
        Some(client)
    }
}

fn open(address: SocketAddr) -> io::Result<Arc<UdpSocket>> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    Ok(Arc::new(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number goes to another program only when its own is idle; what comes back for the old one is dropped.
    #[test]
    fn a_program_keeps_its_number_until_it_is_idle() {
        let mut near = UdpPort::near("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = |n: usize| SocketAddr::from(([127, 0, 0, 1], 1_000 + n as u16));
        let mut now = Instant(1);
        for n in 0..CLIENTS {
            assert_eq!(near.client(now, at(n)), Some(n));
        }
        assert_eq!(near.client(now, at(CLIENTS)), None, "all are in use");
        assert_eq!(near.client(now, at(7)), Some(7));
        now += IDLE;
        near.client(now, at(0));
        assert_eq!(near.client(now, at(CLIENTS)), Some(1), "the first that is idle");
        assert!(near.send(now, &[KIND, 1, 1, 5]));
        for unlike in [&[KIND, 1, 0, 5][..], &[KIND, 1], &[KIND], &[], &[1, 1, 1, 5]] {
            assert!(!near.send(now, unlike), "{unlike:?}");
        }
        assert_eq!(near.clients.len(), CLIENTS);
    }

    /// Any numbers of a near end open 256 sockets at most; a program that is not there is no error for others.
    #[test]
    fn the_far_end_has_a_socket_for_each_program() {
        let program = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut far = UdpPort::far(program.local_addr().unwrap()).unwrap();
        let now = Instant(1);
        let mut froms = Vec::new();
        for [client, age] in [[3, 0], [200, 0], [3, 0], [3, 1]] {
            assert!(far.send(now, &[KIND, client, age, 42]));
            let mut buffer = [0; 9];
            let (len, from) = program.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..len], [42]);
            froms.push(from);
        }
        assert!(froms[0] == froms[2] && froms[0] != froms[1] && froms[2] != froms[3]);
        program.send_to(&[7, 8], froms[3]).unwrap();
        let mut buffer = [0; 9];
        let len = (0..1_000_000).find_map(|_| far.receive(now, &mut buffer)).unwrap();
        assert_eq!(buffer[..len], [KIND, 3, 1, 7, 8]);
        assert_eq!(far.receive(now, &mut buffer), None);
        // The listening ends are no client's, and the event is there.
        assert_eq!(far.readable().len(), 3);
    }
}
