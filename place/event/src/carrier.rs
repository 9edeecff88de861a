//! The transport between hosts, over a Zenoh session.

use std::collections::HashMap;
use std::sync::Arc;

use selvedge_event::{HostId, News, Transport};
use selvedge_host::clock::Clock;
use selvedge_units::{Instant, Span};
use zenoh::Wait;
use zenoh::key_expr::KeyExpr;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::{Locality, SampleKind};

use crate::batch::{Batches, Frames, To};
use crate::inbox::Inbox;
use crate::keys::{HostName, Keys};

/// After so many frames the exchange's sinks get their turn, before it takes more.
const TURN: usize = 1024;
/// The most publishers that are kept ready for hosts; more are made when they are needed.
const READY_MAX: usize = 512;

/// What the engine's threads call when the inbox has something; it must not wait.
pub(crate) type Arrived = Arc<dyn Fn() + Send + Sync>;

/// How often the engine is looked at, and how long it may be alone before it is started again: at
/// first, and at most.
pub(crate) const LOOK: Span = Span::from_secs(1);
const ALONE: Span = Span::from_secs(5);
const ALONE_MAX: Span = Span::from_secs(60);

/// One process's session.
pub(crate) struct Carrier {
    opened: Opened,
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
    /// Since when nobody is connected, and how long that is borne.
    alone: Option<Instant>,
    patience: Span,
}

/// A session and what is declared on it.
struct Opened {
    session: zenoh::Session,
    all: Publisher<'static>,
    hosts: HashMap<HostId, Publisher<'static>>,
    channels: HashMap<String, Publisher<'static>>,
    /// Kept for what they do when they are dropped.
    _kept: (Subscriber<()>, Subscriber<()>, Subscriber<()>, LivelinessToken),
}

impl Opened {
    fn new(
        configuration: &str,
        keys: &Keys,
        inbox: &Arc<Inbox>,
        arrived: &Arrived,
    ) -> Result<Self, zenoh::Error> {
        let session = zenoh::open(zenoh::Config::from_json5(configuration)?).wait()?;
        let to_me = subscribe(&session, keys.to_me(), inbox, arrived)?;
        let to_all = subscribe(&session, keys.any_all(), inbox, arrived)?;
        let (news, told, mine) = (Arc::clone(inbox), Arc::clone(arrived), keys.my_token());
        let tokens = session.liveliness().declare_subscriber(keys.tokens()).history(true);
        let tokens = tokens.callback(move |sample| {
            let key = sample.key_expr().as_str();
            if key != mine {
                news.news(key, sample.kind() == SampleKind::Put);
                told();
            }
        });
        let tokens = tokens.wait()?;
        let all = publisher(&session, keys.to_all())?;
        // Last, so that who hears of this host can reach it.
        let token = session.liveliness().declare_token(keys.my_token()).wait()?;
        let _kept = (to_me, to_all, tokens, token);
        Ok(Self { session, all, hosts: HashMap::new(), channels: HashMap::new(), _kept })
    }
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
    ) -> Result<Self, zenoh::Error> {
        let keys = Keys::new(domain, me);
        let opened = Opened::new(configuration, &keys, &inbox, &arrived)?;
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
            alone: None,
            patience: ALONE,
        })
    }

    /// Lets the exchange take more: its sinks had their turn.
    pub(crate) fn begin_turn(&mut self) {
        self.left = TURN;
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
        let due = self.batches.due();
        self.is_watched = due.is_some();
        due
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
        let Opened { session, hosts, channels, .. } = &mut self.opened;
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
        let info = self.opened.session.info();
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
            Ok(opened) => self.opened = opened,
            Err(error) => tracing::warn!(%error, "the session can't be opened again yet"),
        }
        let names: Vec<String> = self.wanted.keys().cloned().collect();
        for channel in names {
            self.want(&channel, true);
        }
    }

    pub(crate) fn close(&mut self) {
        self.flush();
        let _ = self.opened.session.close().wait();
    }
}

fn subscribe(
    session: &zenoh::Session,
    key: String,
    inbox: &Arc<Inbox>,
    arrived: &Arrived,
) -> Result<Subscriber<()>, zenoh::Error> {
    let (inbox, arrived) = (Arc::clone(inbox), Arc::clone(arrived));
    let subscriber = session.declare_subscriber(key).allowed_origin(Locality::Remote);
    let subscriber = subscriber.callback(move |sample| {
        inbox.push(sample.key_expr().as_str(), sample.payload().clone());
        arrived();
    });
    subscriber.wait()
}

fn publisher(session: &zenoh::Session, key: String) -> Result<Publisher<'static>, zenoh::Error> {
    let key = KeyExpr::try_from(key)?;
    session
        .declare_publisher(key)
        .congestion_control(CongestionControl::Drop)
        .allowed_destination(Locality::Remote)
        .wait()
}

/// A message that can't be sent is lost, as the trait says it may be.
fn put(publisher: &Publisher<'_>, bytes: &[u8]) {
    if let Err(error) = publisher.put(bytes).wait() {
        tracing::debug!(%error, "a message was not sent");
    }
}

impl Transport for Carrier {
    fn send(&mut self, _now: Instant, to: HostId, bytes: &[u8]) {
        self.flush();
        self.put(To::Host(to), bytes);
    }

    fn announce(&mut self, _now: Instant, bytes: &[u8]) {
        self.flush();
        put(&self.opened.all, bytes);
    }

    fn poll(&mut self, _now: Instant) -> Option<(HostId, &[u8])> {
        loop {
            if let Some(frame) = self.frames.next(&self.current) {
                self.left = self.left.saturating_sub(1);
                return Some((self.sender, &self.current[frame]));
            }
            // Between messages, so that what is left waits in the inbox.
            if self.left == 0 {
                return None;
            }
            self.sender = self.inbox.pop(&mut self.current)?;
            self.frames.begin();
        }
    }

    fn send_event(&mut self, now: Instant, to: HostId, bytes: &[u8]) {
        self.event(now, To::Host(to), bytes);
    }

    fn send_events(&mut self, now: Instant, channel: &str, _to: &[HostId], bytes: &[u8]) {
        self.event(now, To::Channel(channel), bytes);
    }

    fn want(&mut self, channel: &str, wants: bool) {
        if !wants {
            self.wanted.remove(channel);
            return;
        }
        let key = self.keys.any_channel(channel);
        match subscribe(&self.opened.session, key, &self.inbox, &self.arrived) {
            Ok(subscriber) => drop(self.wanted.insert(channel.to_owned(), Some(subscriber))),
            Err(error) => {
                tracing::warn!(%error, channel, "can't get events of the channel yet");
                self.wanted.insert(channel.to_owned(), None);
            }
        }
    }

    fn notices(&self) -> bool {
        true
    }

    fn poll_news(&mut self, _now: Instant) -> Option<News> {
        let news = self.inbox.pop_news()?;
        if let News::Gone(host) = news {
            self.opened.hosts.remove(&host);
        }
        Some(news)
    }
}
