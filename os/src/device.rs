//! Network devices of this thread's namespace: veth pairs, and what a device is set to, by netlink and ioctl.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use crate::check;
use crate::netlink::{ACK, IFLA_ADDRESS, IFLA_MTU, Netlink, RTA_DST, RTA_OIF, Request, attribute};
use crate::route::{self, Mac};

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const CREATE: u16 = 0x600; // and only if there is none
const IFLA_IFNAME: u16 = 3;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// `struct rtmsg`, from its table on: main, set by an administrator, behind the device, a route to hosts.
const BY_DEVICE: [u8; 4] = [254, 4, 253, 1];
/// Addresses of IPv6 are used at once, without asking whether another host has them.
const IFA_F_NODAD: u8 = 2;
const UP: u32 = 1;
const NOARP: u32 = 0x80;
/// The longest name of a device, in bytes.
const NAME_MAX: usize = libc::IFNAMSIZ - 1;

/// What a device is set to. The default is what it has, and up.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceSettings<'a> {
    /// Addresses that it gets, with the lengths of their prefixes.
    pub addresses: &'a [(IpAddr, u8)],
    /// Its link-layer address.
    pub mac: Option<Mac>,
    /// The largest packet, in bytes.
    pub mtu: Option<u32>,
    /// How many packets its queue holds.
    pub queue: Option<u32>,
    /// The networks that it leads to, with the lengths of their prefixes.
    pub routes: &'a [(IpAddr, u8)],
    /// There is one host at the other end, so nobody asks for link-layer addresses.
    pub point_to_point: bool,
}

/// Creates a veth pair: one device here, the other in another network namespace. Both are down.
///
/// # Errors
/// If a name is taken, or the kernel refuses.
pub fn create_veth(name: &str, peer: &str, of_peer: impl AsFd) -> io::Result<()> {
    let zero_ended = |name: &str| [name.as_bytes(), &[0]].concat();
    let namespace = of_peer.as_fd().as_raw_fd().to_ne_bytes();
    let peer = attribute(IFLA_IFNAME, &zero_ended(peer));
    let peer = [vec![0; 16], peer, attribute(IFLA_NET_NS_FD, &namespace)].concat();
    let data = attribute(INFO_DATA, &attribute(VETH_INFO_PEER, &peer));
    let info = [attribute(INFO_KIND, b"veth\0"), data].concat();
    let request = Request::new(RTM_NEWLINK, ACK | CREATE, &[0; 16]);
    let request = request.with(IFLA_IFNAME, &zero_ended(name)).with(IFLA_LINKINFO, &info);
    Netlink::open()?.ask(request, |_| ())
}

/// Gives a device its settings, and sets it up.
///
/// # Errors
/// If there is no such device, or the kernel refuses a setting.
pub fn configure(device: &str, settings: &DeviceSettings<'_>) -> io::Result<()> {
    let netlink = Netlink::open()?;
    let index = netlink.index(device)?;
    for &(address, prefix) in settings.addresses {
        // `struct ifaddrmsg`: family, prefix, flags, scope, index.
        let mut fixed = vec![route::family(address), prefix, IFA_F_NODAD, 0];
        fixed.extend(index.to_ne_bytes());
        let request = Request::new(RTM_NEWADDR, ACK | CREATE, &fixed);
        netlink.ask(request.with(IFA_LOCAL, &route::bytes(address)), |_| ())?;
    }
    let flags = if settings.point_to_point { UP | NOARP } else { UP };
    // `struct ifinfomsg`: family and kind, index, flags, which of them.
    let fixed = [0, index, flags, flags].map(u32::to_ne_bytes).concat();
    let mut request = Request::new(RTM_NEWLINK, ACK, &fixed);
    if let Some(mac) = settings.mac {
        request = request.with(IFLA_ADDRESS, &mac);
    }
    for (kind, value) in [(IFLA_MTU, settings.mtu), (IFLA_TXQLEN, settings.queue)] {
        if let Some(value) = value {
            request = request.with(kind, &value.to_ne_bytes());
        }
    }
    netlink.ask(request, |_| ())?;
    // A device that is down has no routes.
    for &(network, prefix) in settings.routes {
        let fixed = [&[route::family(network), prefix, 0, 0][..], &BY_DEVICE, &[0; 4]].concat();
        let request = Request::new(RTM_NEWROUTE, ACK | CREATE, &fixed);
        let request = request.with(RTA_DST, &route::bytes(network));
        netlink.ask(request.with(RTA_OIF, &index.to_ne_bytes()), |_| ())?;
    }
    Ok(())
}

/// A request of an ioctl about a device, empty but for the device's name.
pub(crate) fn request_about(device: &str) -> io::Result<libc::ifreq> {
    if device.is_empty() || device.len() > NAME_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: an ifreq is integers and a pointer, for which zero bytes are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Lets the kernel compute all checksums of a device's packets and cut them to the MTU before the device gets
/// them: no hardware behind it would.
///
/// # Errors
/// If there is no such device, or it refuses.
pub fn leave_nothing_to_hardware(device: &str) -> io::Result<()> {
    #[repr(C)]
    struct Setting {
        what: u32,
        value: u32,
    }
    const CHECKSUMS: u32 = 0x17; // ETHTOOL_STXCSUM
    const SEGMENTS: u32 = 0x1f; // ETHTOOL_STSO
    const LARGE: u32 = 0x24; // ETHTOOL_SGSO
    let socket = crate::socket::open(false).map_err(io::Error::other)?;
    for what in [CHECKSUMS, SEGMENTS, LARGE] {
        let mut setting = Setting { what, value: 0 };
        let mut request = request_about(device)?;
        request.ifr_ifru.ifru_data = (&raw mut setting).cast();
        // SAFETY: SIOCETHTOOL reads the request, and the setting that it points to, of two words as these
        // commands have it; both live through the call.
        check(unsafe {
            libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{NetworkNamespace, alone};

    #[test]
    fn names_that_no_device_has_are_refused() {
        for name in ["", "a-name-of-16-byte", "selvedge-none"] {
            assert!(configure(name, &DeviceSettings::default()).is_err(), "{name}");
            assert!(leave_nothing_to_hardware(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_device_is_what_it_was_set_to() {
        let found = alone(|| -> io::Result<_> {
            let here = NetworkNamespace::current()?;
            create_veth("one", "two", &here)?;
            let mac = [2, 0, 0, 0, 0, 9];
            let addresses = [([10, 9, 8, 7].into(), 24), ("fd00::7".parse().unwrap(), 64)];
            let settings = DeviceSettings {
                addresses: &addresses,
                mac: Some(mac),
                mtu: Some(1400),
                routes: &[([192, 0, 2, 0].into(), 24), ("2001:db8::".parse().unwrap(), 32)],
                ..DeviceSettings::default()
            };
            configure("one", &settings)?;
            configure("two", &DeviceSettings { point_to_point: true, ..Default::default() })?;
            leave_nothing_to_hardware("one")?;
            let netlink = Netlink::open()?;
            let wire = crate::route::wire(&netlink, netlink.index("one")?)?;
            assert_eq!((wire.mac, wire.mtu), (Some(mac), 1400));
            let routes = std::fs::read_to_string("/proc/thread-self/net/route")?;
            assert!(routes.contains("one\t000200C0\t00000000"), "{routes}");
            // Both addresses can be used at once.
            for (address, _) in addresses {
                std::net::UdpSocket::bind((address, 0))?;
            }
            assert_eq!(create_veth("one", "three", &here).unwrap_err().raw_os_error(), Some(17));
            Ok(())
        });
        match found {
            Err(why) => eprintln!("SKIPPED: needs CAP_SYS_ADMIN: {why}"),
            Ok(done) => done.unwrap(),
        }
    }
}
