//! What is asked of the kernel about devices and their qdiscs, by rtnetlink: three messages and
//! their answers.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const TCA_KIND: u16 = 1;
/// Errors tell their reason in words.
const NLMSGERR_ATTR_MSG: u16 = 1;
const ROOT: u32 = 0xffff_ffff;
const HEADER: usize = 16;
const TCMSG: usize = 20;
/// Messages of a dump that are read at most.
const MESSAGES_MAX: usize = 1 << 16;

/// The qdisc at a device's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Qdisc {
    pub(crate) kind: String,
    /// 0 if nobody set it up: it is the kernel's default.
    pub(crate) handle: u32,
}

/// A conversation with the kernel.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // NETLINK_ROUTE
        )?;
        Ok(Self { socket })
    }

    /// A device's index.
    pub(crate) fn index(&self, name: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.socket, name)?)
    }

    /// The qdisc at the root of a device; `None` if it has none.
    pub(crate) fn root(&self, ifindex: u32) -> io::Result<Option<Qdisc>> {
        let mut found = None;
        self.ask(RTM_GETQDISC, DUMP, 0, 0, None, |message| {
            let word = |at: usize| message.get(at..at + 4).and_then(|b| b.try_into().ok());
            let word = |at: usize| word(at).map_or(0, u32::from_ne_bytes);
            if word(4) == ifindex && word(12) == ROOT {
                let kind = attributes(message.get(TCMSG..).unwrap_or_default())
                    .find(|&(kind, _)| kind == TCA_KIND)
                    .map(|(_, text)| String::from_utf8_lossy(text).trim_end_matches('\0').into());
                found = kind.map(|kind| Qdisc { kind, handle: word(8) });
            }
        })?;
        Ok(found)
    }

    /// Puts a qdisc at the root of a device that has the default one.
    pub(crate) fn add(&self, ifindex: u32, kind: &str) -> io::Result<()> {
        self.ask(RTM_NEWQDISC, ACK | CREATE | EXCLUSIVE, ifindex, ROOT, Some(kind), |_| ())
    }

    /// Takes the root's qdisc away: the device's default one comes back.
    pub(crate) fn delete(&self, ifindex: u32, kind: &str) -> io::Result<()> {
        self.ask(RTM_DELQDISC, ACK, ifindex, ROOT, Some(kind), |_| ())
    }

    fn ask(
        &self,
        what: u16,
        flags: u16,
        ifindex: u32,
        parent: u32,
        kind: Option<&str>,
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let mut request = Vec::with_capacity(64);
        request.extend(0_u32.to_ne_bytes());
        request.extend(what.to_ne_bytes());
        request.extend((REQUEST | flags).to_ne_bytes());
        request.extend([0; 8]); // sequence and sender: one question at a time
        request.extend([0; 4]); // family
        request.extend(ifindex.to_ne_bytes());
        request.extend(0_u32.to_ne_bytes()); // handle: the kernel's choice
        request.extend(parent.to_ne_bytes());
        request.extend(0_u32.to_ne_bytes());
        if let Some(kind) = kind {
            request.extend((4 + kind.len() as u16 + 1).to_ne_bytes());
            request.extend(TCA_KIND.to_ne_bytes());
            request.extend(kind.as_bytes());
            request.push(0);
            request.resize(request.len().next_multiple_of(4), 0);
        }
        let len = request.len() as u32;
        request[..4].copy_from_slice(&len.to_ne_bytes());
        rustix::net::send(&self.socket, &request, SendFlags::empty())?;
        let mut buffer = vec![0_u8; 64 << 10];
        for _ in 0..MESSAGES_MAX {
            let (got, _) = rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::empty())?;
            let mut rest = &buffer[..got];
            while let Some((kind, body, after)) = split(rest) {
                match kind {
                    NLMSG_ERROR => return verdict(body),
                    NLMSG_DONE => return Ok(()),
                    _ => each(body),
                }
                rest = after;
            }
        }
        Err(io::Error::other("the kernel's answer has no end"))
    }
}

/// The first message: its kind, its body, what follows.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(HEADER..len)?;
    Some((kind, body, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

/// Attributes in a message, by number.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// An error message: 0 is success; else the number, and the kernel's words if it has any.
fn verdict(body: &[u8]) -> io::Result<()> {
    let code = body.get(..4).and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
    if code == 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(-code);
    // The request's header follows, with its body unless it is capped.
    let echoed = body.get(4..8).and_then(|len| len.try_into().ok()).map_or(0, u32::from_ne_bytes);
    let at = 4 + (echoed as usize).max(HEADER).next_multiple_of(4);
    let words = attributes(body.get(at..).unwrap_or_default())
        .find(|&(kind, _)| kind == NLMSGERR_ATTR_MSG)
        .map(|(_, text)| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
    match words {
        Some(words) => Err(io::Error::new(error.kind(), format!("{words} ({error})"))),
        None => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_messages_end() {
        assert_eq!(split(&[]), None);
        assert_eq!(split(&[255; 20]), None);
        assert_eq!(attributes(&[0; 8]).count(), 0);
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0);
        assert!(verdict(&[]).is_ok());
    }

    #[test]
    fn the_loopback_has_a_qdisc_at_its_root() {
        let netlink = Netlink::open().unwrap();
        let lo = netlink.index("lo").unwrap();
        let root = netlink.root(lo).unwrap();
        assert!(root.is_none_or(|qdisc| !qdisc.kind.is_empty()));
    }
}
