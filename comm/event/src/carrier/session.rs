//! A session of the engine, and its declarations.

use std::collections::HashMap;
use std::sync::Arc;

use selvedge_control_event::HostId;
use zenoh::Wait;
use zenoh::key_expr::KeyExpr;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::{Locality, SampleKind};

use super::Arrived;
use crate::inbox::Inbox;
use crate::keys::Keys;

/// A session and its declarations.
pub(super) struct ZenohSession {
    pub(super) session: zenoh::Session,
    pub(super) all: Publisher<'static>,
    pub(super) hosts: HashMap<HostId, Publisher<'static>>,
    pub(super) channels: HashMap<String, Publisher<'static>>,
    /// Kept for the effects of dropping them.
    _kept: (Subscriber<()>, Subscriber<()>, Subscriber<()>, LivelinessToken),
}

impl ZenohSession {
    pub(super) fn new(
        configuration: &str,
        keys: &Keys,
        inbox: &Arc<Inbox>,
        arrived: &Arrived,
    ) -> Result<Self, zenoh::Error> {
        let session = zenoh::open(zenoh::Config::from_json5(configuration)?).wait()?;
        let own_inbox_key = subscribe(&session, keys.own_inbox_key(), inbox, arrived)?;
        let to_all = subscribe(&session, keys.any_all(), inbox, arrived)?;
        let (news, notice, mine) = (Arc::clone(inbox), Arc::clone(arrived), keys.my_token());
        let tokens = session.liveliness().declare_subscriber(keys.tokens()).history(true);
        let tokens = tokens.callback(move |sample| {
            let key = sample.key_expr().as_str();
            if key != mine {
                news.handle_presence(key, sample.kind() == SampleKind::Put);
                notice();
            }
        });
        let tokens = tokens.wait()?;
        let all = publisher(&session, keys.to_all())?;
        // The token is last, so that a host that sees this one can reach it.
        let token = session.liveliness().declare_token(keys.my_token()).wait()?;
        let _kept = (own_inbox_key, to_all, tokens, token);
        Ok(Self { session, all, hosts: HashMap::new(), channels: HashMap::new(), _kept })
    }
}

pub(super) fn subscribe(
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

pub(super) fn publisher(
    session: &zenoh::Session,
    key: String,
) -> Result<Publisher<'static>, zenoh::Error> {
    let key = KeyExpr::try_from(key)?;
    session
        .declare_publisher(key)
        .congestion_control(CongestionControl::Drop)
        .allowed_destination(Locality::Remote)
        .wait()
}

/// A message that can't be sent is lost, as any message may be.
pub(super) fn put(publisher: &Publisher<'_>, bytes: &[u8]) {
    if let Err(error) = publisher.put(bytes).wait() {
        tracing::debug!(%error, "a message was not sent");
    }
}
