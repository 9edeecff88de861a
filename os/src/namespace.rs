//! Network namespaces: private ones, which no other process sees and which the kernel removes with the last
//! process, device or descriptor that holds them, and those that `ip netns` named. A [`Veth`] is two private
//! ones with a pair of devices between them.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::check;
use crate::device::{self, DeviceSettings};

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
    on_thread(|| unshare(libc::CLONE_NEWNET), what)
}

/// Runs a closure on a thread of its own, which enters a network namespace before.
fn on_thread<T: Send>(
    enter: impl FnOnce() -> io::Result<()> + Send,
    what: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let thread =
            thread::Builder::new().name("namespace".to_owned()).spawn_scoped(scope, || {
                enter()?;
                Ok(what())
            })?;
        thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
    })
}

/// A network namespace.
#[derive(Debug)]
pub struct NetworkNamespace(File);

impl NetworkNamespace {
    /// A new one, in which no device is up.
    ///
    /// # Errors
    /// If the kernel creates none: without `CAP_SYS_ADMIN` see [`own_capabilities`].
    pub fn new() -> io::Result<Self> {
        alone(Self::current)?
    }

    /// That of this thread.
    ///
    /// # Errors
    /// If `/proc` can't be read.
    pub fn current() -> io::Result<Self> {
        File::open("/proc/thread-self/ns/net").map(Self)
    }

    /// The one to which `ip netns` gave this name.
    ///
    /// # Errors
    /// If there is none, or this user may not open it.
    pub fn named(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        File::open(Path::new("/run/netns").join(name)).map(Self)
    }

    /// Runs a closure in it, on a thread of its own. Sockets, devices and processes stay where they are
    /// made.
    ///
    /// # Errors
    /// If the kernel does not let the thread enter it.
    ///
    /// # Panics
    /// If `what` does.
    pub fn inside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_thread(|| self.enter(), what)
    }

    /// Moves this thread into it.
    fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Gives this process all capabilities over namespaces that it will create, in a user namespace of its own;
/// its user and group stay what they are. Programs that it starts have none. Only for a process with one
/// thread.
///
/// # Errors
/// If the kernel or its configuration refuses user namespaces to this user; the process should end then.
pub fn own_capabilities() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    unshare(libc::CLONE_NEWUSER)?;
    // The kernel requires this of a process that maps its own group.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{0} {0} 1", user.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("{0} {0} 1", group.as_raw()))
}

/// Two ends of a veth pair. The thread that made it is at the near one.
#[derive(Debug)]
pub struct Veth {
    near: NetworkNamespace,
    far: NetworkNamespace,
}

impl Veth {
    /// Creates a pair; only for a thread of [`alone`], whose namespace becomes the far end's.
    ///
    /// # Errors
    /// If the kernel refuses a part of it.
    pub fn new() -> io::Result<Self> {
        let far = NetworkNamespace::current()?;
        unshare(libc::CLONE_NEWNET)?;
        let near = NetworkNamespace::current()?;
        let wire = Self { near, far };
        device::create_veth(DEVICE, "far0", &wire.far)?;
        set_up(DEVICE, NEAR)?;
        wire.in_peer_namespace(|| set_up("far0", FAR))??;
        Ok(wire)
    }

    /// Runs a closure at the far end. Sockets stay where they are made.
    ///
    /// # Errors
    /// If the kernel does not let the thread change its namespace.
    pub fn in_peer_namespace<T>(&self, what: impl FnOnce() -> T) -> io::Result<T> {
        self.far.enter()?;
        let done = what();
        self.near.enter()?;
        Ok(done)
    }
}

/// Gives a device of this thread's namespace an address, and sets it up, and the loopback too.
fn set_up(device: &str, address: Ipv4Addr) -> io::Result<()> {
    let addresses = [(address.into(), NETWORK)];
    device::configure(device, &DeviceSettings { addresses: &addresses, ..Default::default() })?;
    device::configure("lo", &DeviceSettings::default())
}

fn unshare(what: libc::c_int) -> io::Result<()> {
    // SAFETY: takes no pointer, and changes only namespaces, not the table of descriptors.
    check(unsafe { libc::unshare(what) })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_namespaces_do_not_lead_elsewhere() {
        for name in ["", "..", "../../etc/passwd", "/etc/passwd", "selvedge-no-such-namespace"] {
            assert!(NetworkNamespace::named(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_thread_inside_a_namespace_sees_its_devices_only() {
        let Ok(namespace) = NetworkNamespace::new() else {
            return eprintln!("SKIPPED: needs CAP_SYS_ADMIN");
        };
        let made = namespace.inside(|| device::create_veth("here0", "there0", &namespace));
        made.expect("this namespace may be entered").expect("a name that is free");
        let has = || crate::netlink::Netlink::open().and_then(|netlink| netlink.index("here0"));
        assert!(namespace.inside(has).expect("entered before").is_ok());
        assert!(has().is_err());
        assert!(alone(has).expect("created before").is_err());
    }
}
