//! The next hop of packets to a receiver, and their source address.

use std::net::{IpAddr, SocketAddr};

use super::XdpError;
use crate::netlink::Netlink;
use crate::route::{self, Mac};

/// The path of packets to one receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) device: u32,
    pub(super) own: Mac,
    pub(super) next_hop: Mac,
    pub(super) source: IpAddr,
    /// The largest IP packet.
    pub(super) mtu: u32,
}

impl Path {
    /// Queries the kernel; `None` while it does not know the neighbour.
    pub(super) fn look(netlink: &Netlink, to: SocketAddr) -> Result<Option<Self>, XdpError> {
        let route = route::to(netlink, to.ip())?;
        if route.special {
            return Err(XdpError::Special(to.ip()));
        }
        let wire = route::wire(netlink, route.device)?;
        let Some(own) = wire.mac else {
            let name = netlink.name(route.device).unwrap_or_default();
            return Err(XdpError::NoEthernet(name));
        };
        let next_hop = route::neighbour(netlink, route.device, route.next_hop)?;
        let (device, source, mtu) = (route.device, route.source, wire.mtu);
        Ok(next_hop.map(|next_hop| Self { device, own, next_hop, source, mtu }))
    }

    /// Whether a datagram with this number of bytes fits one packet, and a chunk.
    pub(super) const fn fits(&self, payload: usize) -> bool {
        let headers = if self.source.is_ipv6() { 48 } else { 28 };
        super::fits_chunk(payload) && payload + headers <= self.mtu as usize
    }
}
