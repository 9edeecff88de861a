//! Who is there: members that come, go, are lost and come back, and what has to happen in time.

use std::sync::Arc;

use selvedge_units::{Instant, Span};

use super::{BEAT, ChannelId, Exchange, LEASE, MEMBERS_MAX, Open, REFRESH, Right, What, note};
use crate::filter::SinkState;
use crate::format::FormatId;
use crate::link::{Learner, Teller};
use crate::reliable::{Owed, RESUME, Taken};
use crate::transport::{HostId, News, Transport};

/// The most members that are gone and whose events are kept.
const PARTED_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) host: HostId,
    pub(super) heard: Instant,
    /// Whether it has sinks.
    pub(super) wants: bool,
    pub(super) teller: Teller,
    pub(super) learner: Learner,
    /// What it was asked to describe, so that it is asked once in a while.
    pub(super) asked: Option<(FormatId, Instant)>,
    pub(super) state: SinkState,
    pub(super) owed: Owed,
    pub(super) taken: Taken,
    /// How many of its events could not be given to sinks here that block.
    pub(super) refused: u64,
    pub(super) received: u64,
    /// How many events the transport had no room for.
    pub(super) lost: u64,
    /// What it was refused already.
    told: [bool; 2],
}

/// What is kept of a member that is gone.
#[derive(Debug)]
pub(super) struct Parted {
    pub(super) host: HostId,
    since: Instant,
    pub(super) wants: bool,
    pub(super) owed: Owed,
    taken: Taken,
}

impl Exchange {
    /// Takes what has come, does what is due, and notices who is gone.
    pub fn handle(&mut self, now: Instant, transport: &mut dyn Transport) {
        while let Some(news) = transport.poll_news(now) {
            match news {
                News::Came(host) => self.greet(now, host, transport),
                News::Gone(host) => self.lost(now, host),
            }
        }
        let mut bytes = std::mem::take(&mut self.incoming);
        while let Some((from, came)) = transport.poll(now) {
            bytes.clear();
            bytes.extend_from_slice(came);
            self.receive(now, from, &bytes, transport);
        }
        self.incoming = bytes;
        if now >= self.next_beat {
            self.beat(now, transport);
        }
        if self.timer.is_some_and(|timer| now >= timer) {
            self.timer = None;
            for at in 0..self.channels.len() {
                self.with(ChannelId(at), |this, open| this.in_time(now, open, transport));
            }
        }
    }

    /// Says of each channel that it is open here, and looks who has not said so.
    fn beat(&mut self, now: Instant, transport: &mut dyn Transport) {
        let notices = transport.notices();
        self.next_beat = now + if notices { REFRESH } else { BEAT };
        for at in 0..self.channels.len() {
            let Some(mut open) = self.channels[at].take() else { continue };
            self.here(&open, false);
            transport.announce(now, &self.buffer);
            let is_silent = |member: &Member| !notices && now.since(member.heard) > LEASE;
            while let Some(gone) = open.members.iter().position(is_silent) {
                let host = open.members[gone].host;
                open.part(now, gone);
                note(&mut self.notices, at, host, What::Lost);
            }
            while let Some(gone) = open.parted.iter().position(|p| now.since(p.since) > RESUME) {
                let mut parted = open.parted.swap_remove(gone);
                let undelivered = open.let_go(&mut parted.owed);
                if undelivered > 0 {
                    note(&mut self.notices, at, parted.host, What::Undelivered(undelivered));
                }
            }
            self.channels[at] = Some(open);
        }
    }

    /// A host can be reached: it hears what is open here.
    fn greet(&mut self, now: Instant, host: HostId, transport: &mut dyn Transport) {
        for at in 0..self.channels.len() {
            self.with(ChannelId(at), |this, open| {
                this.here(open, true);
                transport.send(now, host, &this.buffer);
            });
        }
    }

    fn lost(&mut self, now: Instant, host: HostId) {
        for at in 0..self.channels.len() {
            let Some(open) = &mut self.channels[at] else { continue };
            if let Some(gone) = open.members.iter().position(|member| member.host == host) {
                open.part(now, gone);
                note(&mut self.notices, at, host, What::Lost);
            }
        }
    }

    /// Sends again what was not acknowledged, acknowledges, lets held events go.
    fn in_time(&mut self, now: Instant, open: &mut Open, transport: &mut dyn Transport) {
        self.let_held_go(now, open, transport);
        for at in 0..open.members.len() {
            let again = open.members[at].owed.expire(now);
            for _ in 0..again {
                self.send_owed(now, open, at, true, transport);
            }
            if open.members[at].taken.say_at().is_some_and(|say_at| say_at <= now) {
                self.say_credit(now, open, at, false, transport);
            }
            let Member { owed, taken, .. } = &open.members[at];
            let (retry_at, say_at) = (owed.retry_at(), taken.say_at());
            self.due(retry_at);
            self.due(say_at);
        }
    }

    /// Whether a host has a right; that it has not is told once.
    pub(super) fn may(&mut self, at: usize, open: &mut Open, host: HostId, right: Right) -> bool {
        let Some(permit) = &self.permit else { return true };
        if permit(host, open.channel.name(), right) {
            return true;
        }
        let member = open.members.iter_mut().find(|member| member.host == host);
        let told = member.map(|member| &mut member.told[right as usize]);
        if told.is_some_and(|told| !std::mem::replace(told, true)) {
            note(&mut self.notices, at, host, What::Refused(right));
        }
        false
    }
}

impl Open {
    /// A member was heard: true if it is new. Beyond the most, none is taken.
    pub(super) fn heard(&mut self, now: Instant, host: HostId, wants: bool) -> bool {
        if let Some(member) = self.members.iter_mut().find(|member| member.host == host) {
            (member.heard, member.wants) = (now, wants);
            return false;
        }
        if self.members.len() >= MEMBERS_MAX {
            return false;
        }
        let back = self.parted.iter().position(|parted| parted.host == host);
        let (mut owed, taken) = back.map_or_else(Default::default, |at| {
            let Parted { owed, taken, .. } = self.parted.swap_remove(at);
            (owed, taken)
        });
        owed.rewind(now);
        let learner = Learner::new(Arc::new(self.channel.format().clone()));
        self.members.push(Member {
            host,
            heard: now,
            wants,
            teller: Teller::new(),
            learner,
            asked: None,
            state: SinkState::default(),
            owed,
            taken,
            refused: 0,
            received: 0,
            lost: 0,
            told: [false; 2],
        });
        true
    }

    /// A member is gone without a word: what it was promised is kept for a while.
    fn part(&mut self, now: Instant, at: usize) {
        let Member { host, wants, owed, taken, .. } = self.members.remove(at);
        if self.parted.len() >= PARTED_MAX {
            let mut oldest = self.parted.remove(0);
            self.let_go(&mut oldest.owed);
        }
        self.parted.push(Parted { host, since: now, wants, owed, taken });
    }

    /// A member has left, and is owed nothing.
    pub(super) fn left(&mut self, host: HostId) -> bool {
        if let Some(at) = self.parted.iter().position(|parted| parted.host == host) {
            let mut parted = self.parted.swap_remove(at);
            self.let_go(&mut parted.owed);
        }
        let Some(at) = self.members.iter().position(|member| member.host == host) else {
            return false;
        };
        let mut member = self.members.remove(at);
        self.let_go(&mut member.owed);
        true
    }

    /// Nobody waits for what was owed; how many events they are.
    fn let_go(&mut self, owed: &mut Owed) -> u64 {
        let mut count = 0;
        for number in owed.drain() {
            self.held.settle(number);
            count += 1;
        }
        count
    }

    /// For how many more events there is room here.
    pub(super) fn room(&self) -> u64 {
        let window = crate::reliable::WINDOW;
        self.channel.room().map_or(window, |room| window.min(room as u64))
    }

    /// Lets sources know of room that sinks have made.
    pub(super) fn freed(&mut self, now: Instant) -> Option<Instant> {
        let room = self.room();
        for member in &mut self.members {
            member.taken.freed(now, room);
        }
        self.members.iter().filter_map(|member| member.taken.say_at()).min()
    }
}

/// Until when something is held back at most.
pub(super) fn until(now: Instant, hold: Span, most: Span) -> Instant {
    now + hold.min(most)
}
