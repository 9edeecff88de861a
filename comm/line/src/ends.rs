//! The two ends: network namespaces, for each link a device in both, and their addresses.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use selvedge_os::device::{self, DeviceSettings};
use selvedge_os::device_port::DevicePort;
use selvedge_os::namespace::{self, NetworkNamespace};
use selvedge_units::Bytes;

use crate::link::Link;

/// The most links between two ends.
pub const LINKS_MAX: usize = 254;
/// The lengths of the networks' prefixes.
const PREFIXES: (u8, u8) = (24, 64);
/// Packets of this size pass a device whose line has no MTU.
const MTU: Bytes = Bytes(1500);
/// The largest packet of a device.
const MTU_MAX: Bytes = Bytes(65_535);

selvedge_units::named! {
    /// One end.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Side {
        /// The first of a link's two ends.
        Near = "near",
        /// The other.
        Far = "far",
    }
}

/// An end's addresses on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// `10.77.N.1` near, `10.77.N.2` far.
    pub v4: Ipv4Addr,
    /// `fd77:N::1` near, `fd77:N::2` far.
    pub v6: Ipv6Addr,
}

/// The addresses of an end on a link, counted from 1 to [`LINKS_MAX`].
#[must_use]
pub fn address(side: Side, link: u8) -> Address {
    let host = 1 + side as u8;
    Address {
        v4: Ipv4Addr::new(10, 77, link, host),
        v6: Ipv6Addr::new(0xfd77, link.into(), 0, 0, 0, 0, 0, host.into()),
    }
}

selvedge_units::named! {
    /// What carries packets between the kernel and the line.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum DeviceKind {
        /// TUN devices where they can be made, else veth pairs.
        #[default]
        Any = "any",
        /// TUN devices.
        Tun = "tun",
        /// Veth pairs with packet sockets.
        Veth = "veth",
    }
}

/// Why there are no ends.
#[derive(Debug, thiserror::Error)]
pub enum EndsError {
    /// More links than there are networks for, or none.
    #[error("{0} links; a line has 1 to {LINKS_MAX}")]
    Links(usize),
    /// Neither root nor user namespaces.
    #[error(
        "user namespaces are refused to this user: {0}; allow them (sysctl user.max_user_namespaces, \
         kernel.apparmor_restrict_unprivileged_userns), or run it as root"
    )]
    User(#[source] io::Error),
    /// No network namespace.
    #[error("can't create a network namespace: {0}; run it as root")]
    Network(#[source] io::Error),
    /// A named namespace.
    #[error(
        "can't enter the network namespace \"{name}\": {why}; `ip netns list` shows what there is"
    )]
    Named {
        /// Its name.
        name: String,
        /// The kernel's error.
        why: io::Error,
    },
    /// A device.
    #[error("can't make the device {device}: {why}")]
    Device {
        /// Its name.
        device: String,
        /// The kernel's error.
        why: io::Error,
    },
}

/// Two namespaces with devices for some links. They go with it, but for processes that are inside.
#[derive(Debug)]
pub struct Ends {
    near: NetworkNamespace,
    far: NetworkNamespace,
    /// Where veth pairs have their other ends; nothing else is there.
    middle: Option<NetworkNamespace>,
    kind: DeviceKind,
    /// Of each link the near port, then the far one.
    pub(crate) ports: Vec<DevicePort>,
}

impl Ends {
    /// Two new namespaces. A process without `CAP_SYS_ADMIN` must have only one thread; it gets a user
    /// namespace of its own.
    ///
    /// # Errors
    /// [`EndsError`].
    pub fn new(links: &[Link], kind: DeviceKind) -> Result<Self, EndsError> {
        check_count(links.len())?;
        let near = match NetworkNamespace::new() {
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
                namespace::own_capabilities().map_err(EndsError::User)?;
                NetworkNamespace::new().map_err(EndsError::Network)?
            }
            made => made.map_err(EndsError::Network)?,
        };
        let far = NetworkNamespace::new().map_err(EndsError::Network)?;
        for end in [&near, &far] {
            let prepared = end.inside(|| {
                // So that `ping` works without privilege. A system without the setting has no such `ping`.
                let group = rustix::process::getegid().as_raw();
                let _ = std::fs::write(
                    "/proc/sys/net/ipv4/ping_group_range",
                    format!("{group} {group}"),
                );
                device::configure("lo", &DeviceSettings::default())
            });
            let failed = |why| EndsError::Device { device: "lo".to_owned(), why };
            prepared.map_err(EndsError::Network)?.map_err(failed)?;
        }
        Self { near, far, middle: None, kind, ports: Vec::new() }.with_links(links)
    }

    /// Two namespaces that `ip netns` named.
    ///
    /// # Errors
    /// [`EndsError`].
    pub fn between(names: [&str; 2], links: &[Link], kind: DeviceKind) -> Result<Self, EndsError> {
        check_count(links.len())?;
        let named = |name: &str| {
            let failed = |why| EndsError::Named { name: name.to_owned(), why };
            let found = NetworkNamespace::named(name).map_err(failed)?;
            found.inside(|| ()).map_err(failed)?;
            Ok(found)
        };
        let (near, far) = (named(names[0])?, named(names[1])?);
        Self { near, far, middle: None, kind, ports: Vec::new() }.with_links(links)
    }

    fn with_links(mut self, links: &[Link]) -> Result<Self, EndsError> {
        for (number, link) in (1..).zip(links) {
            // A line's smaller MTU is for the line to enforce, as a router on the way would.
            let mtu = link.mtu().unwrap_or(MTU).clamp(MTU, MTU_MAX).0 as u32;
            for side in Side::ALL {
                let port = self.device(side, number, mtu)?;
                self.ports.push(port);
            }
        }
        Ok(self)
    }

    fn device(&mut self, side: Side, link: u8, mtu: u32) -> Result<DevicePort, EndsError> {
        let device = format!("{side}{link}");
        let Address { v4, v6 } = address(side, link);
        let addresses = [(v4.into(), PREFIXES.0), (v6.into(), PREFIXES.1)];
        let settings =
            DeviceSettings { addresses: &addresses, mtu: Some(mtu), ..DeviceSettings::default() };
        let failed = |why| EndsError::Device { device: device.clone(), why };
        if self.kind != DeviceKind::Veth {
            let made =
                self.namespace(side).inside(|| DevicePort::tun(&device, &settings)).flatten();
            if made.is_ok() || self.kind == DeviceKind::Tun {
                return made.map_err(failed);
            }
        }
        if self.middle.is_none() {
            self.middle = Some(middle().map_err(EndsError::Network)?);
        }
        let middle = self.middle.as_ref().expect("it was made above");
        let made = self.namespace(side).inside(|| DevicePort::veth(&device, &settings, middle));
        made.flatten().map_err(failed)
    }

    /// An end's namespace.
    #[must_use]
    pub const fn namespace(&self, side: Side) -> &NetworkNamespace {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }

    /// Whether TUN devices carry the packets.
    #[must_use]
    pub fn is_tun(&self) -> bool {
        self.ports.iter().all(DevicePort::is_tun)
    }
}

const fn check_count(links: usize) -> Result<(), EndsError> {
    if 1 <= links && links <= LINKS_MAX { Ok(()) } else { Err(EndsError::Links(links)) }
}

/// A namespace that sends nothing by itself.
fn middle() -> io::Result<NetworkNamespace> {
    let made = NetworkNamespace::new()?;
    made.inside(|| {
        // A kernel without IPv6 has no such file, and sends none.
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    })?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_has_addresses_of_its_own() {
        let near = address(Side::Near, 1);
        assert_eq!(
            (near.v4.to_string(), near.v6.to_string()),
            ("10.77.1.1".into(), "fd77:1::1".into())
        );
        let far = address(Side::Far, 3);
        assert_eq!(
            (far.v4.to_string(), far.v6.to_string()),
            ("10.77.3.2".into(), "fd77:3::2".into())
        );
        assert_eq!(address(Side::Far, 254).v4.to_string(), "10.77.254.2");
    }

    #[test]
    fn a_line_has_links_and_no_more_than_there_are_networks() {
        let model = selvedge_data_net_line::LineModel::default();
        let link = Link { name: "link".to_owned(), there: model.clone(), back: model };
        for count in [0, 255] {
            let refused = Ends::new(&vec![link.clone(); count], DeviceKind::Any);
            assert!(matches!(refused, Err(EndsError::Links(found)) if found == count));
        }
    }
}
