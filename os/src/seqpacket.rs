//! Control sockets: whole messages over a Unix socket of this host, with file descriptors beside them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recvmsg, sendmsg, socket_with,
};
use selvedge_units::Duration;

use crate::clock::{Clock, timespec};

/// The longest message.
pub const MESSAGE_MAX: usize = 16 * 1024;
/// The most descriptors of a message; further ones are closed, and the message refused.
pub const DESCRIPTORS_MAX: usize = 2;

fn open() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?)
}

/// Listens at a path that only this user can reach. The socket of a listener that has died is removed. A
/// listener that answers, or whose queue of connections is full, is left alone.
///
/// # Errors
/// `AddrInUse` if another process listens there, or any error of the kernel.
pub fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = open()?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            // The listener is dead only if the kernel reports that: a full queue belongs to a live one.
            match connect_to(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                _ => return Err(Errno::ADDRINUSE.into()),
            }
            let kind = std::fs::symlink_metadata(path)?.file_type();
            if !std::os::unix::fs::FileTypeExt::is_socket(&kind) {
                return Err(io::Error::other("there is a file that is no socket"));
            }
            std::fs::remove_file(path)?;
            bind(&socket, &address)?;
        }
        done => done?,
    }
    // Before it listens, so that no other user connects first.
    rustix::fs::chmod(path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    listen(&socket, 16)?;
    Ok(socket)
}

/// Accepts the next connection; `None` if there is none now, or this process may have no more of them.
pub fn accept(listener: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        // These errors pass as other connections end, so the caller continues to serve those. Not in a busy
        // loop: the waiting peer is still there.
        Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
            tracing::warn!(%error, "a connection has to wait");
            let clock = Clock::shared();
            clock.sleep_until(clock.now() + Duration::from_millis(50));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Connects to the listener at a path.
pub fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let socket = open()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Sends one message; `WouldBlock` if the peer reads nothing.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The result of a receive.
#[derive(Debug)]
pub enum Received {
    /// A message and its descriptors.
    Message(Vec<u8>, Vec<OwnedFd>),
    /// A message that was cut, or bore too many descriptors.
    TooLong,
    /// Nothing yet.
    Nothing,
    /// The peer is gone.
    End,
}

/// Takes one message, up to [`MESSAGE_MAX`] bytes long.
pub fn receive(socket: impl AsFd) -> io::Result<Received> {
    let mut bytes = vec![0; MESSAGE_MAX];
    // Room for one more than allowed, so that an excess is noticed.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX + 1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Ok(got) => got,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
        Err(Errno::CONNRESET) => return Ok(Received::End),
        Err(error) => return Err(error.into()),
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got.bytes == 0 && fds.is_empty() {
        return Ok(Received::End);
    }
    let cut = got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    if cut || fds.len() > DESCRIPTORS_MAX {
        return Ok(Received::TooLong);
    }
    bytes.truncate(got.bytes);
    Ok(Received::Message(bytes, fds))
}

/// Waits until there is something to receive, at most this long.
pub fn wait_readable(socket: impl AsFd, patience: Duration) -> bool {
    let clock = Clock::shared();
    let until = clock.now() + patience;
    loop {
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(until.since(clock.now()).0))) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
