//! The transport between hosts, over a Zenoh session; and over rings to those of this machine.

mod opened;
mod transport;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use selvedge_comm_local::Put;
use selvedge_control_event::{HostId, Transport};
use selvedge_os::clock::Clock;
use selvedge_units::{Instant, Span};
use zenoh::Wait;
use zenoh::pubsub::Subscriber;

use crate::batch::{Batches, Frames, To};
use crate::inbox::Inbox;
use crate::keys::{HostName, Keys};
use crate::near::Near;
use opened::{Opened, publisher, put};

/// After so many frames the exchange's sinks get their turn, before it takes more.
const TURN: usize = 1024;
/// The most publishers that are kept ready for hosts; more are made when they are needed.
const READY_MAX: usize = 512;
/// How long closing a session may take.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// What the engine's threads call when the inbox has something; it must not wait.
pub(crate) type Arrived = Arc<dyn Fn() + Send + Sync>;

/// How often the engine is looked at, and how long it may be alone before it is started again: at
/// first, and at most.
pub(crate) const LOOK: Span = Span::from_secs(1);
const ALONE: Span = Span::from_secs(5);
const ALONE_MAX: Span = Span::from_secs(60);

/// One process's session.
pub(crate) struct Carrier {
    /// `None` when it is over.
    opened: Option<Opened>,
    keys: Keys,
    inbox: Arc<Inbox>,
    arrived: Arrived,
    /// The message that is taken apart, and from whom it is.
    current: Vec<u8>,
    sender: HostId,
    frames: Frames,
    /// How many frames are taken before sinks get their turn.
    left: usize,
    clock: Clock,
    batches: Batches,
    /// Whether somebody will look when what waits is due.
    is_watched: bool,
    /// The channels whose events are wanted here.
    wanted: HashMap<String, Option<Subscriber<()>>>,
    /// Rings to the hosts of this machine, if they are wanted and can be had.
    near: Option<Near>,
    from_rings: u32,
    /// A host that is gone, of whose ring something is unread, and how often that is waited for.
    gone: Option<(HostId, u32)>,
    /// Those whom no ring reaches, and those whose ring had no room for the last event.
    far: Vec<HostId>,
    full: Vec<HostId>,
    /// Since when nobody is connected, and how long that is borne.
    alone: Option<Instant>,
    patience: Span,
}

impl Carrier {
    /// Opens a session by the engine's own configuration, says that this host is there, and hears of
    /// the others.
    pub(crate) fn new(
        configuration: &str,
        domain: &str,
        me: &HostName,
        inbox: Arc<Inbox>,
        arrived: Arrived,
        clock: Clock,
        near: Option<Near>,
    ) -> Result<Self, zenoh::Error> {
        let keys = Keys::new(domain, me);
        let opened = Some(Opened::new(configuration, &keys, &inbox, &arrived)?);
        Ok(Self {
            opened,
            keys,
            inbox,
            arrived,
            current: Vec::new(),
            sender: HostId(0),
            frames: Frames::default(),
            left: 0,
            clock,
            batches: Batches::default(),
            is_watched: false,
            wanted: HashMap::new(),
            near,
            from_rings: 0,
            gone: None,
            far: Vec::new(),
            full: Vec::new(),
            alone: None,
            patience: ALONE,
        })
    }

    /// Lets the exchange take more: its sinks had their turn.
    pub(crate) fn begin_turn(&mut self, now: Instant) {
        self.left = TURN;
        self.let_early_in(now);
    }

    /// Whether somebody has to be told that events wait here, who [lets them go](Self::let_go) in time.
    pub(crate) fn wants_watch(&mut self) -> bool {
        let is_new = !self.is_watched && self.batches.due().is_some();
        self.is_watched |= is_new;
        is_new
    }

    /// Sends what has waited long enough; when to come again, if at all.
    pub(crate) fn let_go(&mut self, now: Instant) -> Option<Instant> {
        if self.batches.due().is_some_and(|due| due <= now) {
            self.flush();
        }
        if let Some(near) = &mut self.near {
            for host in near.ended(now) {
                self.inbox.set_near(host, false);
            }
        }
        self.let_early_in(now);
        let due = self.batches.due();
        self.is_watched = due.is_some();
        let early = self.near.as_ref().and_then(Near::due);
        due.into_iter().chain(early).min()
    }

    /// Reads rings that have waited too long for the word that they may be.
    fn let_early_in(&mut self, now: Instant) {
        if let Some(near) = &mut self.near {
            for host in near.overdue(now) {
                self.inbox.set_near(host, true);
            }
            self.say();
        }
    }

    /// The rings, if there are any.
    pub(crate) fn near(&mut self) -> Option<&mut Near> {
        self.near.as_mut()
    }

    /// Says over the engine what has to be said of rings.
    fn say(&mut self) {
        while let Some((host, said)) = self.near.as_mut().and_then(Near::poll_said) {
            self.flush();
            self.put(To::Host(host), &said);
        }
    }

    /// Takes note of rings that are ready or gone.
    fn settle(&mut self, now: Instant) {
        if let Some(near) = &mut self.near {
            near.settle(now);
            self.say();
        }
    }

    /// Puts a message into a host's ring, if it has one.
    fn put_near(&mut self, now: Instant, to: HostId, bytes: &[u8]) -> Put {
        self.settle(now);
        let Some(near) = &mut self.near else { return Put::Gone };
        let put = near.put(now, to, bytes);
        near.links().flush();
        self.say();
        put
    }

    /// Whether events wait to go together.
    #[cfg(test)]
    pub(crate) fn has_waiting(&self) -> bool {
        self.batches.due().is_some()
    }

    /// Sends all that waits.
    fn flush(&mut self) {
        while let Some(batch) = self.batches.pop() {
            self.put(batch.to(), &batch.bytes);
            self.batches.give_back(batch);
        }
    }

    /// Sends an event, or has it wait for others while its source is ahead.
    fn event(&mut self, now: Instant, to: To<'_>, bytes: &[u8]) {
        let is_ahead = self.batches.is_ahead(now, bytes.len());
        if !is_ahead || self.batches.is_before(to) {
            self.flush();
        }
        if is_ahead {
            if let Some(full) = self.batches.add(now, to, bytes) {
                self.put(full.to(), &full.bytes);
                self.batches.give_back(full);
            }
        } else {
            self.put(to, bytes);
        }
        self.batches.done(self.clock.now());
    }

    /// Gives a message to the engine, by a publisher that is kept.
    fn put(&mut self, to: To<'_>, bytes: &[u8]) {
        let Some(Opened { session, hosts, channels, .. }) = &mut self.opened else { return };
        match to {
            To::Host(host) => {
                if !hosts.contains_key(&host) {
                    let Some(name) = self.inbox.name(host) else { return };
                    let Ok(publisher) = publisher(session, self.keys.to(&name)) else { return };
                    if hosts.len() >= READY_MAX {
                        hosts.clear();
                    }
                    hosts.insert(host, publisher);
                }
                put(&hosts[&host], bytes);
            }
            To::Channel(channel) => {
                if !channels.contains_key(channel) {
                    let key = self.keys.to_channel(channel);
                    let Ok(publisher) = publisher(session, key) else { return };
                    if channels.len() >= READY_MAX {
                        channels.clear();
                    }
                    channels.insert(channel.to_owned(), publisher);
                }
                put(&channels[channel], bytes);
            }
        }
    }

    /// Whether nobody has been connected for so long that the session should be opened again: the engine
    /// gives up an address for good if the connection breaks while it is being made.
    pub(crate) fn is_stuck(&mut self, now: Instant) -> bool {
        let Some(opened) = &self.opened else { return false };
        let info = opened.session.info();
        let is_connected =
            info.peers_zid().wait().next().is_some() || info.routers_zid().wait().next().is_some();
        if is_connected {
            (self.alone, self.patience) = (None, ALONE);
            return false;
        }
        let since = *self.alone.get_or_insert(now);
        now.since(since) > self.patience
    }

    /// Closes the session and opens another.
    pub(crate) fn reopen(&mut self, now: Instant, configuration: &str) {
        self.alone = Some(now);
        self.patience = Span(self.patience.0 * 2).min(ALONE_MAX);
        for subscriber in self.wanted.values_mut() {
            *subscriber = None;
        }
        self.close();
        match Opened::new(configuration, &self.keys, &self.inbox, &self.arrived) {
            Ok(opened) => self.opened = Some(opened),
            Err(error) => tracing::warn!(%error, "the session can't be opened again yet"),
        }
        let names: Vec<String> = self.wanted.keys().cloned().collect();
        for channel in names {
            self.want(&channel, true);
        }
    }

    /// Ends the session. Waits for it, but not for ever: a thread of the engine's may be held up.
    pub(crate) fn close(&mut self) {
        self.flush();
        let Some(opened) = self.opened.take() else { return };
        let (done, is_done) = flume::bounded(1);
        let closing = std::thread::Builder::new().name("selvedge-close".to_owned());
        let closing = closing.spawn(move || {
            let _ = opened.session.close().wait();
            drop(opened);
            let _ = done.send(());
        });
        if closing.is_ok() && is_done.recv_timeout(CLOSE_MAX).is_err() {
            tracing::warn!("the session does not close; it is left to itself");
        }
    }
}
