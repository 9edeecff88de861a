//! Receivers that ask for a stream's frames while it flows: each is a stream of its own, shares the source, and ends unless
//! it asks again in time. So one that never leaves costs nothing.
//!
//! A receiver can't choose its address: the page's server passes on that of the connection, so that nobody can aim a
//! stream at a third host.

use std::net::SocketAddr;
use std::sync::Arc;

use selvedge_control_config::view::{AskError, AskedReceiver};
use selvedge_control_config::{Asks, StreamConfig, Token};
use selvedge_data_stream::{Contract, Spec};
use selvedge_units::{Duration, Instant};

use crate::node::{Node, State, Stream};
use crate::source::session_of;

impl State {
    /// Removes the streams of receivers that asked and whose time is over.
    pub(crate) fn remove_expired(&mut self, now: Instant) {
        self.remove_asked(|_, until| now >= until);
    }

    /// Removes the streams of receivers that asked, of those that this selects.
    fn remove_asked(&mut self, which: impl Fn(&Stream, Instant) -> bool) -> usize {
        let Self { links, streams } = self;
        let is_gone = |one: &mut Stream| one.asked_until.is_some_and(|until| which(one, until));
        let gone = streams.extract_if(.., is_gone);
        gone.map(|one| links[one.config.link].placed.remove(one.number)).count()
    }
}

/// The name of the stream to a receiver that asked.
fn name_of(stream: &str, to: SocketAddr) -> String {
    let ip = to.ip().to_string().replace(['.', ':', '%'], "-");
    format!("{stream}/at-{ip}-{}", to.port())
}

impl Node {
    fn asks(&self, stream: &str) -> Option<Arc<Asks>> {
        let loaded = self.loaded.lock();
        loaded
            .streams
            .iter()
            .filter(|one| one.source_name() == stream)
            .find_map(|one| one.asks.clone())
    }

    pub(crate) fn token_of_receivers(&self, stream: &str) -> Option<Token> {
        Some(self.asks(stream)?.token.clone())
    }

    pub(crate) fn add_asked(
        &self,
        stream: &str,
        to: SocketAddr,
        delay: Option<Duration>,
        lasts: Duration,
    ) -> Result<AskedReceiver, AskError> {
        let asks = self.asks(stream).ok_or_else(|| AskError::NoStream(stream.to_owned()))?;
        // One after the other, so that no more than `most` are let in.
        let _one = self.asking.lock();
        let (name, until) = (name_of(stream, to), self.clock.now() + lasts);
        if !self.renew(&name, until) {
            let is_other =
                |one: &&Stream| one.asked_until.is_some() && one.config.source_name() == stream;
            if self.streams().iter().filter(is_other).count() >= asks.most {
                return Err(AskError::TooMany(asks.most));
            }
            let like = &asks.like;
            let contract =
                Contract { delay: delay.or(like.spec.contract.delay), ..like.spec.contract };
            let spec = Spec { name: name.clone(), to, contract, ..like.spec.clone() };
            let config = StreamConfig { spec, ..like.clone() };
            self.add_stream(config).map_err(|why| AskError::Refused(why.to_string()))?;
            self.renew(&name, until);
        }
        let streams = self.streams();
        let sdp = streams
            .iter()
            .find(|one| one.config.spec.name == name)
            .and_then(|one| Some(session_of(&one.config, &one.status.info()?).to_string()));
        Ok(AskedReceiver { name, to: format!("rtp://{to}"), for_s: lasts.0 / 1_000_000_000, sdp })
    }

    /// Sends to a receiver that asked until then; false if there is none.
    fn renew(&self, name: &str, until: Instant) -> bool {
        let mut streams = self.streams();
        let found = streams.iter_mut().find(|one| one.config.spec.name == name);
        found.map(|one| one.asked_until = Some(until)).is_some()
    }

    pub(crate) fn remove_asked(&self, stream: &str, to: SocketAddr) -> bool {
        let name = name_of(stream, to);
        self.state.lock().remove_asked(|one, _| one.config.spec.name == name) > 0
    }
}
