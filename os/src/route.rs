//! How packets to an address leave this host, as the kernel would send them: the device, the source address,
//! and the next hop.

use std::io;
use std::net::IpAddr;

use selvedge_units::Duration;

use crate::netlink::{
    DUMP, IFLA_ADDRESS, IFLA_MTU, Netlink, RTA_DST, RTA_OIF, Request, attributes, half, word,
};

const RTM_GETLINK: u16 = 18;
const RTM_GETROUTE: u16 = 26;
const RTM_GETNEIGH: u16 = 30;
const RTM_GETQDISC: u16 = 38;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
/// `struct tc_etf_qopt`: nanoseconds, a clock, flags.
const TCA_ETF_PARMS: u16 = 1;
const ETF_DEADLINE_MODE: u32 = 1;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTM_F_LOOKUP_TABLE: u32 = 0x1000;
const RTN_UNICAST: u8 = 1;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const ARPHRD_ETHER: u16 = 1;
/// States of a neighbour to which the kernel would send at once.
const NUD_USABLE: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;

/// A device's link-layer address.
pub type Mac = [u8; 6];

/// The route to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The device's index.
    pub device: u32,
    /// The address that packets come from.
    pub source: IpAddr,
    /// The next hop: the gateway, or the receiver itself.
    pub next_hop: IpAddr,
    /// The receiver is this host, or a group.
    pub special: bool,
}

/// The properties of a device for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Its link-layer address; none if it is not Ethernet.
    pub mac: Option<Mac>,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
}

/// How the queues of a device treat packets that state their departure times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// `fq`: it holds each until its time, by `CLOCK_MONOTONIC`.
    Fq,
    /// `etf`: it holds each until `delta` before its time, by `CLOCK_TAI`. Packets whose time is past, and
    /// packets without one, are dropped.
    Etf {
        /// By how much the kernel may be late.
        delta: Duration,
    },
}

/// An address's family.
pub(crate) const fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

/// An address's bytes.
pub(crate) fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

/// The route by which the kernel would send to an address.
///
/// # Errors
/// If the kernel knows none, with its own message.
pub fn to(netlink: &Netlink, to: IpAddr) -> io::Result<Route> {
    let len = if to.is_ipv4() { 32 } else { 128 };
    // `struct rtmsg`: family, lengths of destination and source, TOS, table, protocol, scope, kind.
    let mut fixed = vec![family(to), len, 0, 0, 0, 0, 0, 0];
    fixed.extend(RTM_F_LOOKUP_TABLE.to_ne_bytes());
    let request = Request::new(RTM_GETROUTE, 0, &fixed).with(RTA_DST, &bytes(to));
    let mut found = None;
    netlink.ask(request, |message| {
        let special = message.get(7) != Some(&RTN_UNICAST);
        let (mut device, mut source, mut gateway) = (0, None, None);
        for (name, value) in attributes(message.get(12..).unwrap_or_default()) {
            match name {
                RTA_OIF => device = word(value, 0),
                RTA_PREFSRC => source = address(value),
                RTA_GATEWAY => gateway = address(value),
                _ => {}
            }
        }
        let next_hop = gateway.unwrap_or(to);
        found = source.map(|source| Route { device, source, next_hop, special });
    })?;
    let none = || io::Error::new(io::ErrorKind::NotFound, format!("no route to {to}"));
    found.ok_or_else(none)
}

/// A device's address and its largest packet.
///
/// # Errors
/// If there is no such device.
pub fn wire(netlink: &Netlink, device: u32) -> io::Result<LinkInfo> {
    // `struct ifinfomsg`: family, kind, index, flags, mask.
    let fixed = [0, device, 0, 0].map(u32::to_ne_bytes).concat();
    let mut found = LinkInfo { mac: None, mtu: 0 };
    netlink.ask(Request::new(RTM_GETLINK, 0, &fixed), |message| {
        let kind = half(message, 2);
        for (name, value) in attributes(message.get(16..).unwrap_or_default()) {
            match name {
                IFLA_ADDRESS if kind == ARPHRD_ETHER => found.mac = value.try_into().ok(),
                IFLA_MTU => found.mtu = word(value, 0),
                _ => {}
            }
        }
    })?;
    Ok(found)
}

/// The link-layer address of a neighbour, if the kernel knows it and would use it at once.
///
/// # Errors
/// If the kernel refuses the request.
pub fn neighbour(netlink: &Netlink, device: u32, of: IpAddr) -> io::Result<Option<Mac>> {
    // `struct ndmsg`: family, index, state, flags, kind.
    let mut fixed = vec![family(of), 0, 0, 0];
    fixed.extend(device.to_ne_bytes());
    fixed.extend([0; 4]);
    let mut found = None;
    netlink.ask(Request::new(RTM_GETNEIGH, DUMP, &fixed), |message| {
        let state = half(message, 8);
        if word(message, 4) != device || state & NUD_USABLE == 0 {
            return;
        }
        let (mut who, mut mac) = (None, None);
        for (name, value) in attributes(message.get(12..).unwrap_or_default()) {
            match name {
                NDA_DST => who = address(value),
                NDA_LLADDR => mac = value.try_into().ok(),
                _ => {}
            }
        }
        if who == Some(of) {
            found = mac;
        }
    })?;
    Ok(found)
}

/// How all queues of a device, at its root or below `mq` or `mqprio`, hold packets until their stated
/// departure times. `None` if any queue does not, or does so in another way. An `etf` in deadline mode does
/// not, and one without a delta lets nothing pass.
///
/// # Errors
/// If the kernel refuses the request.
pub fn holding(netlink: &Netlink, device: u32) -> io::Result<Option<Holding>> {
    // `struct tcmsg`: family, index, handle, parent, info.
    let fixed = [0, device, 0, 0, 0].map(u32::to_ne_bytes).concat();
    let mut queues = Vec::new();
    netlink.ask(Request::new(RTM_GETQDISC, DUMP, &fixed), |message| {
        if word(message, 4) == device {
            queues.extend(holding_of(message.get(20..).unwrap_or_default()));
        }
    })?;
    let all = |one: &Holding| queues.iter().all(|queue| *queue == Some(*one));
    Ok(queues.first().copied().flatten().filter(all))
}

/// How one qdisc holds packets; `None` for one that only leads to others.
fn holding_of(qdisc: &[u8]) -> Option<Option<Holding>> {
    let value =
        |wanted| attributes(qdisc).find(|&(name, _)| name == wanted).map(|(_, value)| value);
    match value(TCA_KIND)? {
        b"mq\0" | b"mqprio\0" => None,
        b"fq\0" => Some(Some(Holding::Fq)),
        b"etf\0" => {
            let mut options = attributes(value(TCA_OPTIONS).unwrap_or_default());
            let params = options.find(|&(name, _)| name == TCA_ETF_PARMS).unwrap_or_default().1;
            let delta = Duration(word(params, 0).into());
            let holds = delta > Duration::ZERO && word(params, 8) & ETF_DEADLINE_MODE == 0;
            Some(holds.then_some(Holding::Etf { delta }))
        }
        _ => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_oneself_is_the_loopback() {
        let netlink = Netlink::open().unwrap();
        let lo = netlink.index("lo").unwrap();
        for own in ["127.0.0.1", "::1"] {
            let own: IpAddr = own.parse().unwrap();
            let route = to(&netlink, own).unwrap();
            assert_eq!((route.device, route.source, route.special), (lo, own, true));
        }
        let wire = wire(&netlink, lo).unwrap();
        assert!(wire.mac.is_none() && wire.mtu > 1500, "{wire:?}");
        assert_eq!(holding(&netlink, u32::MAX).unwrap(), None);
        assert_eq!(neighbour(&netlink, lo, "192.0.2.1".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn a_qdisc_says_how_it_holds_packets() {
        let attribute = |name: u16, value: &[u8]| {
            let mut bytes = Vec::from(((4 + value.len()) as u16).to_ne_bytes());
            bytes.extend(name.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let etf = |delta: u32, flags: u32| {
            let params = [delta, 11, flags].map(u32::to_ne_bytes).concat();
            let options = attribute(TCA_ETF_PARMS, &params);
            [attribute(TCA_KIND, b"etf\0"), attribute(TCA_OPTIONS, &options)].concat()
        };
        let held = Holding::Etf { delta: Duration(300) };
        assert_eq!(holding_of(&etf(300, 0)), Some(Some(held)));
        assert_eq!(holding_of(&etf(300, ETF_DEADLINE_MODE)), Some(None));
        assert_eq!(holding_of(&etf(0, 0)), Some(None));
        assert_eq!(holding_of(&attribute(TCA_KIND, b"fq\0")), Some(Some(Holding::Fq)));
        assert_eq!(holding_of(&attribute(TCA_KIND, b"fq_codel\0")), Some(None));
        assert_eq!(holding_of(&attribute(TCA_KIND, b"mqprio\0")), None);
    }
}
