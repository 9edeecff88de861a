//! The qdisc at a device's root: read, set and removed (rtnetlink).

use std::io;

use selvedge_os::netlink::{ACK, DUMP, Netlink, Request, attributes, word};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const TCA_KIND: u16 = 1;
const ROOT: u32 = 0xffff_ffff;
const TCMSG: usize = 20;

/// The qdisc at a device's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Qdisc {
    pub(crate) kind: String,
    /// 0 if nobody set it up: it is the kernel's default.
    pub(crate) handle: u32,
}

/// The qdisc at the root of a device; `None` if it has none.
pub(crate) fn root(netlink: &Netlink, ifindex: u32) -> io::Result<Option<Qdisc>> {
    let mut found = None;
    netlink.ask(about(RTM_GETQDISC, DUMP, 0, 0), |message| {
        if word(message, 4) == ifindex && word(message, 12) == ROOT {
            let kind = attributes(message.get(TCMSG..).unwrap_or_default())
                .find(|&(kind, _)| kind == TCA_KIND)
                .map(|(_, text)| String::from_utf8_lossy(text).trim_end_matches('\0').into());
            found = kind.map(|kind| Qdisc { kind, handle: word(message, 8) });
        }
    })?;
    Ok(found)
}

/// Puts a qdisc at the root of a device that has the default one.
pub(crate) fn add(netlink: &Netlink, ifindex: u32, kind: &str) -> io::Result<()> {
    let request = about(RTM_NEWQDISC, ACK | CREATE | EXCLUSIVE, ifindex, ROOT);
    netlink.ask(request.with(TCA_KIND, &ended(kind)), |_| ())
}

/// Removes the root's qdisc: the device's default one returns.
pub(crate) fn delete(netlink: &Netlink, ifindex: u32, kind: &str) -> io::Result<()> {
    let request = about(RTM_DELQDISC, ACK, ifindex, ROOT);
    netlink.ask(request.with(TCA_KIND, &ended(kind)), |_| ())
}

/// `struct tcmsg`: family, device, handle (the kernel's choice), parent, info.
fn about(what: u16, flags: u16, ifindex: u32, parent: u32) -> Request {
    let fixed = [0, ifindex, 0, parent, 0].map(u32::to_ne_bytes).concat();
    Request::new(what, flags, &fixed)
}

/// A text in C's form, terminated by zero.
fn ended(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_a_qdisc_at_its_root() {
        let netlink = Netlink::open().unwrap();
        let lo = netlink.index("lo").unwrap();
        let root = root(&netlink, lo).unwrap();
        assert!(root.is_none_or(|qdisc| !qdisc.kind.is_empty()));
    }
}
