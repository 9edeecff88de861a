//! Requests to the kernel about devices, routes, neighbours and sockets, and its responses (netlink).

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const REQUEST: u16 = 1;
// Attributes of devices and routes.
pub(crate) const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_MTU: u16 = 4;
pub(crate) const RTA_DST: u16 = 1;
pub(crate) const RTA_OIF: u16 = 4;
/// The response only acknowledges the request.
pub const ACK: u16 = 4;
/// The response is a list.
pub const DUMP: u16 = 0x300;
/// Errors state their reason in words.
const NLMSGERR_ATTR_MSG: u16 = 1;
const HEADER: usize = 16;
/// The most messages of a dump that are read.
const MESSAGES_MAX: usize = 1 << 16;

/// A conversation with the kernel.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
}

/// A request: its subject, and its attributes.
#[derive(Debug)]
pub struct Request(Vec<u8>);

impl Request {
    /// A message of this kind with its fixed part.
    #[must_use]
    pub fn new(what: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(what.to_ne_bytes());
        bytes.extend((REQUEST | flags).to_ne_bytes());
        bytes.extend([0; 8]); // sequence and sender: one request at a time
        bytes.extend(fixed);
        Self(bytes)
    }

    /// The same with one more attribute.
    #[must_use]
    pub fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend(attribute(kind, value));
        self
    }
}

/// An attribute, padded to a word; its value may hold further attributes.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [len, kind].map(u16::to_ne_bytes).concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

impl Netlink {
    /// A new conversation, with the kernel of this thread's network namespace.
    ///
    /// # Errors
    /// If the kernel opens no socket.
    pub fn open() -> io::Result<Self> {
        Self::of(None) // NETLINK_ROUTE
    }

    /// A conversation about sockets.
    ///
    /// # Errors
    /// If the kernel opens no socket.
    pub fn open_sockets() -> io::Result<Self> {
        Self::of(Some(rustix::net::netlink::SOCK_DIAG))
    }

    fn of(subject: Option<Protocol>) -> io::Result<Self> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, subject)?;
        Ok(Self { socket })
    }

    /// A device's index.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn index(&self, name: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.socket, name)?)
    }

    /// A device's name.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn name(&self, index: u32) -> io::Result<String> {
        let name = rustix::net::netdevice::index_to_name(&self.socket, index)?;
        Ok(name.as_str().to_owned())
    }

    /// Sends a request, and calls `each` with the body of each message of the response, until its end.
    ///
    /// # Errors
    /// The kernel's error, in its words if it has any.
    pub fn ask(&self, request: Request, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let Request(mut request) = request;
        let flags = u16::from_ne_bytes([request[6], request[7]]);
        let single = flags & (ACK | DUMP) == 0;
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
                if single {
                    return Ok(());
                }
                rest = after;
            }
        }
        Err(io::Error::other("the kernel's answer has no end"))
    }
}

/// A word of a message; 0 beyond its end.
#[must_use]
pub fn word(message: &[u8], at: usize) -> u32 {
    let bytes = message.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_ne_bytes)
}

/// The first message: its kind, its body, what follows.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(HEADER..len)?;
    Some((kind, body, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

/// Half a word of a message; 0 beyond its end.
#[must_use]
pub fn half(message: &[u8], at: usize) -> u16 {
    let bytes = message.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u16::from_ne_bytes)
}

/// Attributes in a message, by number.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
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
    fn devices_have_names_and_numbers() {
        let netlink = Netlink::open().unwrap();
        let lo = netlink.index("lo").unwrap();
        assert_eq!(netlink.name(lo).unwrap(), "lo");
        assert!(netlink.index("selvedge-none").is_err());
    }
}
