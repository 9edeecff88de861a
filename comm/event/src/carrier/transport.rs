//! What an exchange asks of its transport: by rings to hosts of this machine, by the engine to others.

use selvedge_comm_local::Put;
use selvedge_control_event::{HostId, News, Transport};
use selvedge_units::Instant;

use super::Carrier;
use super::opened::{put, subscribe};
use crate::batch::To;
use crate::near::{MARK, Near};

/// Beside hosts that rings reach, so many others are sent an event one by one; more by the channel's key,
/// which the former then pass over.
const FEW: usize = 4;
/// How many messages in a row come from rings before the engine's have their turn.
const RINGS_TURN: u32 = 64;
/// How often it is waited for what a host that is gone had put into its ring.
const GONE_TURNS: u32 = 64;

impl Transport for Carrier {
    fn send(&mut self, now: Instant, to: HostId, bytes: &[u8]) {
        if self.put_near(now, to, bytes) == Put::Gone {
            self.flush();
            self.put(To::Host(to), bytes);
        }
    }

    fn announce(&mut self, now: Instant, bytes: &[u8]) {
        self.settle(now);
        let mut is_settled = true;
        if let Some(near) = &mut self.near {
            for host in near.reached() {
                near.put(now, host, bytes);
            }
            near.links().flush();
            is_settled = near.is_settled();
        }
        self.say();
        self.flush();
        if is_settled {
            if let Some(opened) = &self.opened {
                put(&opened.all, bytes);
            }
            return;
        }
        // Some who get it by a ring still hear the engine.
        for (host, _) in self.inbox.hosts() {
            if !self.near.as_ref().is_some_and(|near| near.reaches(host)) {
                self.put(To::Host(host), bytes);
            }
        }
    }

    fn poll(&mut self, now: Instant) -> Option<(HostId, &[u8])> {
        loop {
            if let Some(frame) = self.frames.next(&self.current) {
                self.left = self.left.saturating_sub(1);
                return Some((self.sender, &self.current[frame]));
            }
            // Between messages, so that what is left waits in the inbox.
            if self.left == 0 {
                return None;
            }
            let rings_first = self.from_rings < RINGS_TURN || self.inbox.is_empty();
            if rings_first && self.near.as_mut().is_some_and(|near| near.take(now)) {
                self.from_rings += 1;
                self.left -= 1;
                return self.near.as_ref().map(Near::mail);
            }
            let is_turn = std::mem::take(&mut self.from_rings) >= RINGS_TURN;
            let Some(sender) = self.inbox.pop(&mut self.current) else {
                if is_turn && !rings_first {
                    continue;
                }
                return None;
            };
            if self.current.first() == Some(&MARK) {
                if let Some(near) = &mut self.near {
                    near.hear(now, sender, &self.current);
                    self.say();
                }
                continue;
            }
            self.sender = sender;
            self.frames.begin();
        }
    }

    fn send_event(&mut self, now: Instant, to: HostId, bytes: &[u8]) {
        self.full.clear();
        match self.put_near(now, to, bytes) {
            Put::Done => return,
            Put::Dropped => return self.full.push(to),
            Put::Gone => {}
        }
        if let Some(near) = &mut self.near {
            near.wish(now, to);
            self.say();
        }
        self.event(now, To::Host(to), bytes);
    }

    fn send_events(&mut self, now: Instant, channel: &str, to: &[HostId], bytes: &[u8]) {
        self.settle(now);
        self.full.clear();
        let Some(near) = &mut self.near else {
            return self.event(now, To::Channel(channel), bytes);
        };
        self.far.clear();
        for host in to {
            match near.put(now, *host, bytes) {
                Put::Done => {}
                Put::Dropped => self.full.push(*host),
                Put::Gone => {
                    near.wish(now, *host);
                    self.far.push(*host);
                }
            }
        }
        near.links().flush();
        let is_settled = near.is_settled();
        self.say();
        if is_settled && (self.far.len() == to.len() || self.far.len() > FEW) {
            return self.event(now, To::Channel(channel), bytes);
        }
        for at in 0..self.far.len() {
            let host = self.far[at];
            self.event(now, To::Host(host), bytes);
        }
    }

    fn want(&mut self, channel: &str, wants: bool) {
        if !wants {
            self.wanted.remove(channel);
            return;
        }
        let Some(opened) = &self.opened else { return };
        let key = self.keys.any_channel(channel);
        match subscribe(&opened.session, key, &self.inbox, &self.arrived) {
            Ok(subscriber) => drop(self.wanted.insert(channel.to_owned(), Some(subscriber))),
            Err(error) => {
                tracing::warn!(%error, channel, "can't get events of the channel yet");
                self.wanted.insert(channel.to_owned(), None);
            }
        }
    }

    fn without_room(&self) -> &[HostId] {
        &self.full
    }

    fn shares_memory(&self, host: HostId) -> (bool, bool) {
        let near = self.near.as_ref();
        near.map_or((false, false), |near| (near.reaches(host), near.hears(host)))
    }

    fn missed(&self) -> u64 {
        let rings = self.near.as_ref().map_or(0, |near| near.view().missed);
        rings + self.inbox.dropped().0
    }

    fn notices(&self) -> bool {
        true
    }

    fn poll_news(&mut self, _now: Instant) -> Option<News> {
        let (news, tries) = match self.gone.take() {
            Some((host, tries)) => {
                self.inbox.hold(false);
                (News::Gone(host), tries)
            }
            None => (self.inbox.pop_news()?, GONE_TURNS),
        };
        let News::Gone(host) = news else { return Some(news) };
        // What it put into its ring before it went is taken first.
        if let Some(near) = &mut self.near {
            if tries > 0 && near.has_of(host) {
                self.gone = Some((host, tries - 1));
                self.inbox.hold(true);
                return None;
            }
            near.forget(host);
        }
        if let Some(opened) = &mut self.opened {
            opened.hosts.remove(&host);
        }
        Some(news)
    }
}
