//! Where IP packets that the kernel sends by a device come out, and where others are put in, as if they had
//! come over the device: a TUN device, or a packet socket at the other end of a veth pair, for users to whom
//! `/dev/net/tun` is closed.
//!
//! Both carry the same bytes: a packet in a buffer stands behind [`HEADROOM`] bytes with its Ethernet header,
//! which a TUN device leaves out.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use selvedge_units::Bytes;

use crate::check;
use crate::device::{self, DeviceSettings};
use crate::namespace::NetworkNamespace;
use crate::netlink::Netlink;
use crate::route::Mac;
use crate::socket::{Buffer, set_buffer, set_int};

/// The bytes in front of a packet.
pub const HEADROOM: usize = 14;
/// The link-layer address of each device on a veth pair: packets come from it and go to it.
const MAC: Mac = [0x02, 0x73, 0x65, 0x6c, 0x76, 0x01];
/// That of the end with the packet socket.
const SOCKET_MAC: Mac = [0x02, 0x73, 0x65, 0x6c, 0x76, 0x02];
const V4: [u8; 2] = [0x08, 0x00];
const V6: [u8; 2] = [0x86, 0xdd];
/// Packets that a device keeps until they are read; a packet socket keeps as much as it may.
const QUEUE: u32 = 4096;
const SOCKET_ROOM: Bytes = Bytes(8 << 20);

/// A device's port. The device lives as long as it.
#[derive(Debug)]
pub struct DevicePort {
    file: OwnedFd,
    is_tun: bool,
}

impl DevicePort {
    /// Creates a TUN device in this thread's namespace, and sets it up.
    ///
    /// # Errors
    /// If `/dev/net/tun` can't be opened, the name is taken, or the kernel refuses a setting.
    pub fn tun(device: &str, settings: &DeviceSettings<'_>) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
        let mut request = device::request_about(device)?;
        // All three lie in 16 bits.
        let kind = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL;
        request.ifr_ifru.ifru_flags = kind as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes an ifreq, which lives through the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
        let queue = settings.queue.or(Some(QUEUE));
        device::configure(device, &DeviceSettings { queue, point_to_point: true, ..*settings })?;
        Ok(Self { file, is_tun: true })
    }

    /// Creates a veth pair, with the device in this thread's namespace and a packet socket on its peer, which
    /// lies in another namespace that nothing else uses; sets it up.
    ///
    /// # Errors
    /// If the name is taken there or here, or the kernel refuses a part of it.
    pub fn veth(
        device: &str,
        settings: &DeviceSettings<'_>,
        of_peer: &NetworkNamespace,
    ) -> io::Result<Self> {
        device::create_veth(device, device, of_peer)?;
        let settings = DeviceSettings { mac: Some(MAC), point_to_point: true, ..*settings };
        let file = of_peer.inside(|| {
            let mac = Some(SOCKET_MAC);
            device::configure(device, &DeviceSettings { mac, addresses: &[], ..settings })?;
            packet_socket(device)
        })??;
        device::leave_nothing_to_hardware(device)?;
        device::configure(device, &settings)?;
        Ok(Self { file, is_tun: false })
    }

    /// Whether it is a TUN device.
    #[must_use]
    pub const fn is_tun(&self) -> bool {
        self.is_tun
    }

    /// The next packet that the device sent: it lies behind [`HEADROOM`] bytes of the buffer, and has this
    /// length. A packet longer than the buffer is cut. `None` if there is none now.
    ///
    /// # Errors
    /// If the device is gone.
    ///
    /// # Panics
    /// If the buffer has no room for a packet.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let (header, packet) = buffer.split_at_mut(HEADROOM);
        if self.is_tun {
            let len = match rustix::io::read(&self.file, &mut *packet) {
                Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
                got => got?,
            };
            header[..6].copy_from_slice(&MAC);
            header[6..12].copy_from_slice(&SOCKET_MAC);
            header[12..].copy_from_slice(if packet[0] >> 4 == 6 { &V6 } else { &V4 });
            return Ok(Some(len));
        }
        loop {
            let len = match rustix::io::read(&self.file, &mut *buffer) {
                Err(Errno::AGAIN | Errno::INTR | Errno::NETDOWN) => return Ok(None),
                got => got?,
            };
            // Others than IP's carry nothing for the other end.
            if len > HEADROOM && [V4, V6].contains(&[buffer[12], buffer[13]]) {
                return Ok(Some(len - HEADROOM));
            }
        }
    }

    /// Puts a packet into the device, as if it had come over it. It stands behind [`HEADROOM`] bytes that
    /// [`Self::receive`] wrote.
    ///
    /// # Errors
    /// If the kernel has no room for it, or refuses it, as it does one that is not IP.
    ///
    /// # Panics
    /// If the buffer is shorter than that.
    pub fn send(&self, buffer: &[u8]) -> io::Result<()> {
        let bytes = if self.is_tun { &buffer[HEADROOM..] } else { buffer };
        rustix::io::write(&self.file, bytes)?;
        Ok(())
    }
}

impl AsFd for DevicePort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A socket for all packets that come to a device, with their Ethernet headers.
fn packet_socket(device: &str) -> io::Result<OwnedFd> {
    let index = Netlink::open()?.index(device)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    // Of no protocol, it gets no packets of other devices before it is bound.
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    set_int(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    // A device that is up has no queue for up to a second, and loses what would go there.
    set_int(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
    set_buffer(&socket, Buffer::Receive, SOCKET_ROOM);
    set_buffer(&socket, Buffer::Send, SOCKET_ROOM);
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of the address, which lives through the call.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, UdpSocket};
    use std::time::Duration;

    const HERE: Ipv4Addr = Ipv4Addr::new(10, 9, 8, 1);
    const THERE: Ipv4Addr = Ipv4Addr::new(10, 9, 8, 2);

    /// Sends a datagram from the device's namespace to nobody's address, takes it out of the port, turns it
    /// round, and puts it in again: its sender gets it as an answer.
    fn echoes(open: impl FnOnce(&DeviceSettings<'_>) -> io::Result<DevicePort> + Send) {
        let tried = crate::namespace::alone(|| -> io::Result<()> {
            let addresses = [(IpAddr::V4(HERE), 24)];
            let port = open(&DeviceSettings { addresses: &addresses, ..Default::default() })?;
            let socket = UdpSocket::bind((HERE, 0))?;
            socket.set_read_timeout(Some(Duration::from_secs(5)))?;
            socket.connect((THERE, 7))?;
            socket.send(b"there and back")?;
            let mut buffer = vec![0; HEADROOM + 1500];
            let mut next = || loop {
                assert!(crate::seqpacket::wait_readable(
                    &port,
                    selvedge_units::Duration::from_secs(5)
                ));
                if let Some(len) = port.receive(&mut buffer).unwrap()
                    && buffer[HEADROOM] >> 4 == 4
                {
                    return (len, buffer.clone());
                }
            };
            let (len, mut packet) = next();
            assert_eq!(len, 20 + 8 + 14);
            // Swapped addresses and ports leave both checksums as they are.
            for (one, other, size) in [(12, 16, 4), (20, 22, 2)] {
                for n in 0..size {
                    packet.swap(HEADROOM + one + n, HEADROOM + other + n);
                }
            }
            port.send(&packet[..HEADROOM + len])?;
            let mut answer = [0; 64];
            let got = socket.recv(&mut answer)?;
            assert_eq!(&answer[..got], b"there and back");
            // What is no packet is refused or lost, and harms nothing.
            let _ = port.send(&[0; HEADROOM + 1]);
            Ok(())
        });
        match tried {
            Err(why) => eprintln!("SKIPPED: needs CAP_SYS_ADMIN: {why}"),
            Ok(done) => done.unwrap(),
        }
    }

    #[test]
    fn packets_go_through_a_tun_device() {
        if std::fs::File::options().read(true).write(true).open("/dev/net/tun").is_err() {
            return eprintln!("SKIPPED: needs /dev/net/tun");
        }
        echoes(|settings| DevicePort::tun("port0", settings));
    }

    #[test]
    fn packets_go_through_a_packet_socket() {
        echoes(|settings| DevicePort::veth("port0", settings, &NetworkNamespace::new()?));
    }

    #[test]
    fn large_sends_come_out_as_packets_with_checksums() {
        let tried = crate::namespace::alone(|| -> io::Result<()> {
            let addresses = [(IpAddr::V4(HERE), 24)];
            let settings = DeviceSettings { addresses: &addresses, ..Default::default() };
            let port = DevicePort::veth("port0", &settings, &NetworkNamespace::new()?)?;
            let socket = UdpSocket::bind((HERE, 0))?;
            set_int(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 1000)?;
            socket.send_to(&[7; 5000], (THERE, 7))?;
            let mut buffer = vec![0; HEADROOM + 65_535];
            let mut packets = 0;
            while packets < 5 {
                assert!(crate::seqpacket::wait_readable(
                    &port,
                    selvedge_units::Duration::from_secs(5)
                ));
                let Some(len) = port.receive(&mut buffer)? else { continue };
                let packet = &buffer[HEADROOM..HEADROOM + len];
                if packet[0] >> 4 == 4 {
                    assert_eq!(len, 20 + 8 + 1000);
                    // The pseudo-header, then the datagram: the sum of all is all ones.
                    let pseudo =
                        [&packet[12..20], &[0, 17], &packet[24..26], &packet[20..]].concat();
                    let words =
                        pseudo.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
                    let sum: u32 = words.sum();
                    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
                    packets += 1;
                }
            }
            Ok(())
        });
        match tried {
            Err(why) => eprintln!("SKIPPED: needs CAP_SYS_ADMIN: {why}"),
            Ok(done) => done.unwrap(),
        }
    }
}
