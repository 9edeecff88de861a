//! The transport between hosts, over a Zenoh session.

use std::collections::HashMap;
use std::sync::Arc;

use selvedge_event::{HostId, News, Transport};
use selvedge_units::Instant;
use zenoh::Wait;
use zenoh::key_expr::KeyExpr;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::{Locality, SampleKind};

use crate::inbox::Inbox;
use crate::keys::{HostName, Keys};

/// The most publishers that are kept ready for hosts; more are made when they are needed.
const READY_MAX: usize = 512;

/// One process's session.
pub(crate) struct Carrier {
    session: zenoh::Session,
    keys: Keys,
    inbox: Arc<Inbox>,
    all: Publisher<'static>,
    hosts: HashMap<HostId, Publisher<'static>>,
    channels: HashMap<String, Publisher<'static>>,
    wanted: HashMap<String, Subscriber<()>>,
    current: Vec<u8>,
    /// Kept for what they do when they are dropped.
    _kept: (Subscriber<()>, Subscriber<()>, Subscriber<()>, LivelinessToken),
    arrived: Arc<dyn Fn() + Send + Sync>,
}

impl Carrier {
    /// Says that this host is there, and hears of the others. `arrived` is called by the engine's threads
    /// when the inbox has something; it must not wait.
    pub(crate) fn new(
        session: zenoh::Session,
        domain: &str,
        me: &HostName,
        inbox: Arc<Inbox>,
        arrived: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, zenoh::Error> {
        let keys = Keys::new(domain, me);
        let to_me = subscribe(&session, keys.to_me(), &inbox, &arrived)?;
        let to_all = subscribe(&session, keys.any_all(), &inbox, &arrived)?;
        let (news, told, mine) = (Arc::clone(&inbox), Arc::clone(&arrived), keys.my_token());
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
        let (hosts, channels, wanted) = (HashMap::new(), HashMap::new(), HashMap::new());
        let current = Vec::new();
        Ok(Self { session, keys, inbox, all, hosts, channels, wanted, current, _kept, arrived })
    }
}

fn subscribe(
    session: &zenoh::Session,
    key: String,
    inbox: &Arc<Inbox>,
    arrived: &Arc<dyn Fn() + Send + Sync>,
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
        if !self.hosts.contains_key(&to) {
            let Some(name) = self.inbox.name(to) else { return };
            let Ok(publisher) = publisher(&self.session, self.keys.to(&name)) else { return };
            if self.hosts.len() >= READY_MAX {
                self.hosts.clear();
            }
            self.hosts.insert(to, publisher);
        }
        put(&self.hosts[&to], bytes);
    }

    fn announce(&mut self, _now: Instant, bytes: &[u8]) {
        put(&self.all, bytes);
    }

    fn poll(&mut self, _now: Instant) -> Option<(HostId, &[u8])> {
        let from = self.inbox.pop(&mut self.current)?;
        Some((from, &self.current))
    }

    fn send_events(&mut self, _now: Instant, channel: &str, _to: &[HostId], bytes: &[u8]) {
        if !self.channels.contains_key(channel) {
            let key = self.keys.to_channel(channel);
            let Ok(publisher) = publisher(&self.session, key) else { return };
            if self.channels.len() >= READY_MAX {
                self.channels.clear();
            }
            self.channels.insert(channel.to_owned(), publisher);
        }
        put(&self.channels[channel], bytes);
    }

    fn want(&mut self, channel: &str, wants: bool) {
        if !wants {
            self.wanted.remove(channel);
            return;
        }
        let key = self.keys.any_channel(channel);
        match subscribe(&self.session, key, &self.inbox, &self.arrived) {
            Ok(subscriber) => drop(self.wanted.insert(channel.to_owned(), subscriber)),
            Err(error) => tracing::warn!(%error, channel, "can't get events of the channel"),
        }
    }

    fn notices(&self) -> bool {
        true
    }

    fn poll_news(&mut self, _now: Instant) -> Option<News> {
        let news = self.inbox.pop_news()?;
        if let News::Gone(host) = news {
            self.hosts.remove(&host);
        }
        Some(news)
    }
}
