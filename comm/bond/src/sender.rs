//! The near end on a thread of its own: a socket for each path.
//!
//! A path whose device is absent is waited for. A path that delivers nothing is connected anew, by a new socket, again
//! and again; the connection that it had is tried meanwhile. A path whose allowance of bytes is used up is closed.
//! The name of a far end is looked up each time a socket is opened, so that one that moves is found.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use selvedge_comm_stack::wire::random;
use selvedge_data_link::PathEstimate;
use selvedge_data_net_bond::{PathId, PathParams, PathState, PathStatus, Sender, StreamId};
use selvedge_data_net_secure::OVERHEAD as SEALING;
use selvedge_data_stream::rtp::{FrameTag, ip_udp};
use selvedge_os::clock::Clock;
use selvedge_os::poll_thread::PollThread;
use selvedge_os::socket::{ECT_0, NOT_ECT, open_path, set_ecn};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::back::{BACK, BackReceiver, describe};
use crate::caller::{Caller, Received};
use crate::deliver::Deliver;
use crate::ect::Ect;
use crate::proposal::Proposal;
use crate::{BondError, Credentials, PATHS_MAX};

/// So often a socket that can't be opened is tried again.
const OPEN_AGAIN: Duration = Duration::from_millis(500);
/// So often it is seen whether a name was found.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The far end of a path whose address is not known yet: IPv6 has the larger headers.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
/// After so long without delivery a path is connected anew, and so often again.
const CONNECT_AGAIN: Duration = Duration::from_secs(2);
/// Datagrams that are read of each path before others have their turn.
const BATCH: usize = 64;
const USED_UP: &str = "its budget is used up";
const SILENT: &str = "delivers nothing";

/// A path as it is configured.
#[derive(Clone, Debug)]
pub struct PathOptions {
    /// Its name.
    pub name: String,
    /// The device by which its packets leave; `None`: as routes say.
    pub device: Option<String>,
    /// The address from which they are sent; `None`: any.
    pub address: Option<IpAddr>,
    /// Where it reaches the far end: an address or a name, and a port. A name is looked up each time a socket is opened.
    pub to: String,
    /// The bytes that it may carry, both ways and with all headers; `None`: any.
    pub allowance: Option<Bytes>,
    /// What is known of it beforehand.
    pub params: PathParams,
}

/// What a near end needs.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// How both ends know each other.
    pub credentials: Credentials,
    /// The paths, at most [`PATHS_MAX`].
    pub paths: Vec<PathOptions>,
}

/// A path at one moment.
#[derive(Clone, Debug)]
pub struct PathView {
    /// Its name.
    pub name: String,
    /// Why it carries nothing, if it does not.
    pub problem: Option<String>,
    /// What is left of its allowance, if it has one.
    pub left: Option<Bytes>,
    /// What the bond knows of it; `None` before it was connected.
    pub status: Option<PathStatus>,
}

/// The near end of a bond. Dropped, it ends.
#[derive(Debug)]
pub struct BondSender {
    clock: Clock,
    near: Arc<Mutex<Near>>,
    thread: PollThread,
}

#[derive(Debug)]
struct Near {
    bond: Sender,
    /// What comes back, if it is wanted.
    back: Option<BackReceiver>,
    paths: Vec<NearPath>,
}

#[derive(Debug)]
struct NearPath {
    id: PathId,
    options: PathOptions,
    caller: Caller,
    /// The far end's address, once it is known.
    to: Option<SocketAddr>,
    /// The thread that looks its name up.
    lookup: Option<JoinHandle<io::Result<SocketAddr>>>,
    socket: Option<Arc<UdpSocket>>,
    ect: Ect,
    /// The ECN field of what the socket sends now.
    ecn: u8,
    /// When a socket is opened if there is none, and the connection made anew if it delivers nothing.
    again_at: Instant,
    problem: Option<String>,
    is_known: bool,
    /// What is left of its allowance.
    left: Option<Bytes>,
}

impl BondSender {
    /// Begins to connect all paths.
    ///
    /// # Errors
    /// [`BondError`].
    pub fn start(options: SenderOptions, clock: Clock) -> Result<Self, BondError> {
        Self::with_back(options, None, clock)
    }

    /// Begins to connect all paths; packets that the far end sends back are given to `deliver`, on the bond's thread.
    ///
    /// # Errors
    /// [`BondError`].
    pub fn with_back(
        options: SenderOptions,
        deliver: Option<Box<dyn Deliver>>,
        clock: Clock,
    ) -> Result<Self, BondError> {
        let SenderOptions { credentials, paths } = options;
        if !credentials.identity.is_sealed() {
            return Err(BondError::Open);
        }
        if paths.len() > PATHS_MAX {
            return Err(BondError::Paths(paths.len()));
        }
        let run = random() as u64;
        let paths = paths.into_iter().zip(0..).map(|(options, number)| {
            let id = PathId(number);
            let to = options.to.parse().ok();
            let caller =
                Caller::new(&credentials, to.unwrap_or(NOBODY), Proposal { path: id, run });
            let (again_at, problem) = (Instant::ZERO, Some("not connected yet".to_owned()));
            let left = options.allowance;
            NearPath {
                id,
                options,
                caller,
                to,
                lookup: None,
                socket: None,
                ect: Ect::default(),
                ecn: NOT_ECT,
                again_at,
                problem,
                is_known: false,
                left,
            }
        });
        let paths: Vec<NearPath> = paths.collect();
        let headers = paths.iter().map(|path| ip_udp(path.to.unwrap_or(NOBODY))).max();
        let below = headers.unwrap_or_default() + Bytes(SEALING as u64);
        let (mut bond, back) = (Sender::new(below), deliver.map(BackReceiver::new));
        if back.is_some() {
            let all = paths.iter().map(|path| (path.id, path.options.params));
            bond.describe(clock.now(), BACK, &describe(all));
        }
        let near = Arc::new(Mutex::new(Near { bond, back, paths }));
        let (own, mut buffer) = (Arc::clone(&near), vec![0; 1 << 16]);
        let turn = move || {
            let near = &mut *own.lock();
            let next = near.turn(&clock, &mut buffer);
            (next, near.paths.iter().filter_map(|path| path.socket.clone()).collect())
        };
        let thread = PollThread::start("bond near end", clock, turn)?;
        Ok(Self { clock, near, thread })
    }

    /// Takes a packet of a stream that is due at the far end at `deadline` plus the shortest path's delay, with its frame's
    /// tag if it has one; false if no path was ever connected.
    pub fn send(
        &self,
        stream: StreamId,
        deadline: Instant,
        tag: Option<&FrameTag>,
        packet: &[u8],
    ) -> bool {
        let mut near = self.near.lock();
        if !near.paths.iter().any(|path| path.is_known) {
            return false;
        }
        near.bond.handle_packet(self.clock.now(), stream, deadline, tag, packet.into());
        drop(near);
        self.thread.ring();
        true
    }

    /// Describes a stream to the far end.
    pub fn describe(&self, stream: StreamId, text: &str) {
        self.near.lock().bond.describe(self.clock.now(), stream, text);
        self.thread.ring();
    }

    /// Sets what would be sent if there were room.
    pub fn set_demand(&self, demand: Bitrate) {
        self.near.lock().bond.set_demand(demand);
    }

    /// Sets the shortest time that a frame has: a path that needs more than half of it gets probes only, unless each
    /// does.
    pub fn set_shortest_delay(&self, delay: Duration) {
        self.near.lock().bond.set_reserve_most(delay / 2);
    }

    /// What is known of the paths as one.
    #[must_use]
    pub fn estimate(&self) -> PathEstimate {
        self.near.lock().bond.estimate()
    }

    /// Sets what a path may carry from now on; one that carried nothing for the lack of it is connected again.
    pub fn set_allowance(&self, path: &str, left: Bytes) {
        let mut near = self.near.lock();
        if let Some(path) = near.paths.iter_mut().find(|one| one.options.name == path) {
            path.left = Some(left);
        }
        drop(near);
        self.thread.ring();
    }

    /// The bytes of repairs since this was called last, for the link to pay.
    pub fn take_owed(&self) -> Bytes {
        self.near.lock().bond.take_owed()
    }

    /// What is known of each path.
    #[must_use]
    pub fn view(&self) -> Vec<PathView> {
        let near = self.near.lock();
        let of = |path: &NearPath| {
            let status = near.bond.paths().find(|(id, _)| *id == path.id).map(|(_, status)| status);
            let why = || why(status?, path.options.params.is_spare);
            PathView {
                name: path.options.name.clone(),
                problem: path.problem.clone().or_else(why),
                left: path.left,
                status,
            }
        };
        near.paths.iter().map(of).collect()
    }
}

/// What is wrong with a path that was connected, or why no packets go on it.
fn why(status: PathStatus, is_spare: bool) -> Option<String> {
    let why = match status {
        PathStatus { state: PathState::Silent(_), .. } => SILENT,
        PathStatus { most: Some(most), .. } => {
            return Some(format!("loses datagrams of more than {} bytes", most.0));
        }
        PathStatus { is_used: true, .. } => return None,
        _ if is_spare => "spare: another path carries all",
        _ => "too slow: it needs more than half of the shortest delay",
    };
    Some(why.to_owned())
}

impl Near {
    /// Reads, decides and sends; returns when it is due again.
    fn turn(&mut self, clock: &Clock, buffer: &mut [u8]) -> Instant {
        let now = clock.now();
        let mut is_more = false;
        for path in &mut self.paths {
            path.close_without_allowance(now, &mut self.bond);
            path.open(now);
            is_more |= path.receive(clock, (&mut self.bond, &mut self.back), buffer);
            path.connect_again(now, &self.bond);
            path.caller.handle_timeout(now);
        }
        let now = clock.now();
        self.bond.handle_timeout(now);
        if let Some(back) = &mut self.back {
            back.handle_timeout(now);
        }
        let back = &mut self.back;
        let mut report = || back.as_mut().and_then(|back| back.bond.poll_transmit(now));
        while let Some(transmit) = report().or_else(|| self.bond.poll_transmit(now)) {
            let path = self.paths.iter_mut().find(|path| path.id == transmit.path);
            if let Some(path) = path
                && let Some(bytes) = path.caller.seal(now, &transmit.bytes)
            {
                path.send(&bytes, path.ect.is_capable());
            }
        }
        for path in &mut self.paths {
            while let Some(bytes) = path.caller.poll_transmit(now) {
                path.send(&bytes, false);
            }
        }
        if is_more {
            return now;
        }
        let paths = self.paths.iter().map(NearPath::poll_timeout).min();
        let back = self.back.as_ref().and_then(|back| back.bond.poll_timeout());
        let bond = self.bond.poll_timeout().into_iter().chain(back);
        bond.chain(paths).min().unwrap_or(Instant::MAX)
    }
}

impl NearPath {
    /// Closes it if it may carry nothing more; what it held goes on others.
    fn close_without_allowance(&mut self, now: Instant, bond: &mut Sender) {
        if !self.is_used_up() || self.problem.as_deref() == Some(USED_UP) {
            return;
        }
        if self.socket.take().is_some() {
            bond.remove_path(now, self.id);
            self.caller.call();
        }
        (self.is_known, self.problem) = (false, Some(USED_UP.to_owned()));
    }

    /// Whether it may carry nothing more.
    fn is_used_up(&self) -> bool {
        self.left == Some(Bytes(0))
    }

    /// Counts a datagram of so many bytes.
    fn handle_carried(&mut self, len: usize) {
        let below = ip_udp(self.to.unwrap_or(NOBODY));
        self.left = self.left.map(|left| left - (below + Bytes(len as u64)));
    }

    /// Whether its far end's address was looked up.
    fn is_named(&self) -> bool {
        self.options.to.parse::<SocketAddr>().is_err()
    }

    fn open(&mut self, now: Instant) {
        if self.socket.is_some() || now < self.again_at || self.is_used_up() {
            return;
        }
        let Some(found) = self.look_up() else {
            self.again_at = now + LOOK_AGAIN;
            return;
        };
        match (found, self.to) {
            (Ok(to), _) => {
                self.to = Some(to);
                self.caller.set_to(to);
            }
            // Where it was before, it may still be.
            (Err(_), Some(_)) => {}
            (Err(why), None) => {
                self.problem = Some(format!("\"{}\" does not resolve: {why}", self.options.to));
                self.again_at = now + OPEN_AGAIN;
                return;
            }
        }
        let PathOptions { device, address, .. } = &self.options;
        match open_path(self.to.unwrap_or(NOBODY), device.as_deref(), *address) {
            Ok(socket) => {
                (self.socket, self.ecn) = (Some(Arc::new(socket)), NOT_ECT);
                self.again_at = now + CONNECT_AGAIN;
            }
            Err(why) => {
                self.problem = Some(why.to_string());
                self.again_at = now + OPEN_AGAIN;
            }
        }
    }

    /// The far end's address; `None` while its name is looked up, on a thread of its own, since that may take seconds.
    fn look_up(&mut self) -> Option<io::Result<SocketAddr>> {
        let PathOptions { to, address, .. } = &self.options;
        if let Ok(to) = to.parse() {
            return Some(Ok(to));
        }
        let done = self.lookup.take_if(|lookup| lookup.is_finished());
        if done.is_none() && self.lookup.is_none() {
            let (to, from) = (to.clone(), *address);
            let look_up = move || {
                let is_fit =
                    |to: &SocketAddr| from.is_none_or(|from| from.is_ipv6() == to.is_ipv6());
                let best = to.to_socket_addrs()?.filter(is_fit).min_by_key(SocketAddr::is_ipv6);
                best.ok_or_else(|| io::Error::other("it has no address"))
            };
            match thread::Builder::new().name("bond name".to_owned()).spawn(look_up) {
                Ok(lookup) => self.lookup = Some(lookup),
                Err(why) => return Some(Err(why)),
            }
        }
        let broke_off = |_| Err(io::Error::other("the lookup broke off"));
        done.map(|lookup| lookup.join().unwrap_or_else(broke_off))
    }

    /// Reads what came; whether there may be more.
    fn receive(
        &mut self,
        clock: &Clock,
        (bond, back): (&mut Sender, &mut Option<BackReceiver>),
        buffer: &mut [u8],
    ) -> bool {
        let Some(socket) = self.socket.clone() else { return false };
        for _ in 0..BATCH {
            let (len, from) = match socket.recv_from(buffer) {
                Ok(came) => came,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // An earlier packet was refused by a host on the way.
                Err(_) => continue,
            };
            let now = clock.now();
            self.handle_carried(len);
            match self.caller.handle_datagram(now, from, &mut buffer[..len]) {
                Received::Nothing => {}
                Received::Text(text) => {
                    // What is no report changes nothing.
                    let _ = bond.handle_datagram(now, text);
                    if let Some(back) = back {
                        back.handle_datagram(now, text);
                    }
                }
                Received::Connected => {
                    self.ect = Ect::default();
                    if std::mem::replace(&mut self.is_known, true) {
                        bond.repeat_descriptions(now);
                    } else {
                        bond.add_path(now, self.id, self.options.params);
                    }
                }
            }
        }
        true
    }

    /// Connects anew where nothing is delivered, or nothing was ever connected. The device may have gone and come again.
    fn connect_again(&mut self, now: Instant, bond: &Sender) {
        let status = bond.paths().find(|(id, _)| *id == self.id).map(|(_, status)| status);
        if let Some(status) = &status {
            self.ect.handle_status(now, status);
        }
        let silent = match status.map(|status| status.state) {
            Some(PathState::Active) => None,
            Some(PathState::Silent(since)) => Some(since),
            None => Some(Instant::ZERO),
        };
        let Some(since) = silent else {
            self.problem = None;
            return;
        };
        if self.socket.is_some() {
            let why = self.caller.problem().unwrap_or(match self.is_known {
                true => SILENT,
                false => "not connected yet",
            });
            self.problem = Some(why.to_owned());
        }
        // A far end whose name was looked up may have moved.
        let is_lost = self.is_known || self.caller.problem().is_some() && self.is_named();
        if is_lost && now >= self.again_at && now.since(since) >= CONNECT_AGAIN {
            self.caller.call();
            self.socket = None;
            self.again_at = now;
        }
    }

    /// What the network refuses is lost, as on the way.
    fn send(&mut self, bytes: &[u8], is_capable: bool) {
        let Some(socket) = self.socket.as_ref().filter(|_| !self.is_used_up()) else {
            return;
        };
        let Some(to) = self.to else { return };
        let ecn = if is_capable { ECT_0 } else { NOT_ECT };
        // Where the kernel refuses, no queue marks.
        if ecn != self.ecn && set_ecn(socket, to.is_ipv6(), ecn).is_ok() {
            self.ecn = ecn;
        }
        let _ = socket.send_to(bytes, to);
        self.handle_carried(bytes.len());
    }

    fn poll_timeout(&self) -> Instant {
        let caller = self.caller.poll_timeout();
        if self.is_used_up() {
            // It waits for an allowance.
            return Instant(u64::MAX);
        }
        let again = (self.socket.is_none() || self.problem.is_some()).then_some(self.again_at);
        caller.into_iter().chain(again).min().unwrap_or(Instant(u64::MAX))
    }
}
