//! RTSP (RFC 2326): this host serves the stream to players that ask for it by name, in the packets that the
//! link passes on. Streams of one address share a server, a picture and a sound of one name a description.

mod client;
mod login;
mod mount;
mod request;
mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use selvedge_control_config::Destination;
use selvedge_units::Bytes;

use self::login::Login;
use self::mount::Mount;
use self::server::Server;
use super::{Opened, Output, OutputError};
use crate::frame::StreamInfo;

/// A stream at a server.
#[derive(Debug)]
struct Served {
    server: Arc<Server>,
    mount: Arc<Mount>,
}

pub(super) fn open(to: &Destination, at: SocketAddr, _: usize) -> Opened {
    let login = to.login().map(|(user, password)| Login { user, password });
    let mount = Arc::new(Mount::new(to.mount().to_owned(), login));
    let server = Server::at(at)?;
    if !server.mount(&mount) {
        return Err(OutputError::Mount(to.to_string()));
    }
    Ok(Box::new(Served { server, mount }))
}

impl Output for Served {
    fn send(&self, packet: &[u8]) -> bool {
        let is_sent = self.mount.send(packet);
        if is_sent {
            self.server.ring();
        }
        is_sent
    }

    fn poll(&self) -> Result<Bytes, OutputError> {
        Ok(Bytes(self.mount.owed.swap(0, Ordering::Relaxed)))
    }

    fn take_joined(&self) -> bool {
        self.mount.has_joined.swap(false, Ordering::Relaxed)
    }

    fn waits(&self) -> Option<&'static str> {
        (self.mount.players.load(Ordering::Relaxed) == 0).then_some("nobody plays it")
    }

    fn describe(&self, infos: &[StreamInfo]) {
        self.mount.describe(infos);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.unmount(&self.mount);
    }
}
