//! Two private network namespaces with a veth pair between them, for experiments that must not affect
//! anything else: no other process sees them, and they are removed with the last socket in them.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::netlink::{ACK, Netlink, Request, attribute};

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const CREATE: u16 = 0x600; // and only if there is none
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_LOCAL: u16 = 2;
const UP: u32 = 1;
const NETWORK: u8 = 24;

/// The near end's address. Both are reserved for tests (RFC 2544).
pub const NEAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The far end's address.
pub const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// The near end's device.
pub const DEVICE: &str = "near0";

/// Runs a closure on a thread of its own in a new network namespace, where no device is up. Needs
/// `CAP_SYS_ADMIN`.
///
/// # Errors
/// If the kernel creates no namespace.
///
/// # Panics
/// If `what` does.
pub fn alone<T: Send>(what: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread =
            thread::Builder::new().name("namespace".to_owned()).spawn_scoped(scope, || {
                unshare()?;
                Ok(what())
            })?;
        thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
    })
}

/// Two ends of a veth pair. The thread that made it is at the near one.
#[derive(Debug)]
pub struct Veth {
    near: File,
    far: File,
}

impl Veth {
    /// Creates a pair; only for a thread of [`alone`], whose namespace becomes the far end's.
    ///
    /// # Errors
    /// If the kernel refuses a part of it.
    pub fn new() -> io::Result<Self> {
        let far = namespace()?;
        unshare()?;
        let near = namespace()?;
        let wire = Self { near, far };
        wire.create_pair()?;
        Ok(wire)
    }

    /// Runs a closure at the far end. Sockets stay where they are made.
    ///
    /// # Errors
    /// If the kernel does not let the thread change its namespace.
    pub fn in_peer_namespace<T>(&self, what: impl FnOnce() -> T) -> io::Result<T> {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(self.far.as_fd(), kind)?;
        let done = what();
        move_into_link_name_space(self.near.as_fd(), kind)?;
        Ok(done)
    }

    /// Creates a device, and its peer at the far end, both up and with addresses.
    fn create_pair(&self) -> io::Result<()> {
        let far = (self.far.as_raw_fd() as u32).to_ne_bytes();
        let peer = attribute(IFLA_IFNAME, b"far0\0");
        let peer = [vec![0; 16], peer, attribute(IFLA_NET_NS_FD, &far)].concat();
        let data = attribute(INFO_DATA, &attribute(VETH_INFO_PEER, &peer));
        let info = [attribute(INFO_KIND, b"veth\0"), data].concat();
        let netlink = Netlink::open()?;
        let request = Request::new(RTM_NEWLINK, ACK | CREATE, &[0; 16]);
        let name = [DEVICE.as_bytes(), &[0]].concat();
        netlink.ask(request.with(IFLA_IFNAME, &name).with(IFLA_LINKINFO, &info), |_| ())?;
        set_up(DEVICE, NEAR)?;
        self.in_peer_namespace(|| set_up("far0", FAR))?
    }
}

/// Gives a device of this thread's namespace an address, and sets it up, and the loopback too.
fn set_up(device: &str, address: Ipv4Addr) -> io::Result<()> {
    let netlink = Netlink::open()?;
    let index = netlink.index(device)?;
    // `struct ifaddrmsg`: family, prefix, flags, scope, index.
    let mut fixed = vec![libc::AF_INET as u8, NETWORK, 0, 0];
    fixed.extend(index.to_ne_bytes());
    let request = Request::new(RTM_NEWADDR, ACK | CREATE, &fixed);
    netlink.ask(request.with(IFA_LOCAL, &address.octets()), |_| ())?;
    for index in [netlink.index("lo")?, index] {
        // `struct ifinfomsg`: family and kind, index, flags, which of them.
        let fixed = [0, index, UP, UP].map(u32::to_ne_bytes).concat();
        netlink.ask(Request::new(RTM_NEWLINK, ACK, &fixed), |_| ())?;
    }
    Ok(())
}

fn namespace() -> io::Result<File> {
    fs::File::open("/proc/thread-self/ns/net")
}

fn unshare() -> io::Result<()> {
    // SAFETY: takes no pointer, and changes only the thread's network namespace.
    let done = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A datagram socket at the far end that waits 5 s at most, and its address.
///
/// # Errors
/// If no socket can be opened.
pub fn listener(wire: &Veth) -> io::Result<(std::net::UdpSocket, SocketAddr)> {
    wire.in_peer_namespace(|| {
        let socket = std::net::UdpSocket::bind((FAR, 0))?;
        socket.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
        let at = socket.local_addr()?;
        Ok((socket, at))
    })?
}
