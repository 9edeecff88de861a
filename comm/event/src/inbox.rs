//! Messages from the engine's threads that wait for the exchange. They are bounded as a whole and
//! for each host, so that a flooding host can't crowd out the others. Hosts get their numbers here.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use selvedge_control_event::{HostId, TransportEvent};
use zenoh::bytes::ZBytes;

use crate::keys::{ParticipantName, parse_sender, sender};
use crate::message::{MARK, RingMessage};

/// The largest number of hosts that are known at a time.
const HOSTS_MAX: usize = 4096;
/// The limit of one host's waiting messages, and of their bytes.
const OF_ONE_MAX: usize = 8192;
const OF_ONE_BYTES_MAX: usize = 16 << 20;
/// The limit of waiting bytes of all hosts.
const BYTES_MAX: usize = 64 << 20;
/// The limit of waiting announcements: each host comes and goes.
const NEWS_MAX: usize = 4 * HOSTS_MAX;

#[derive(Debug)]
struct KnownPeer {
    name: ParticipantName,
    is_present: bool,
    /// Whether the host's messages come by a ring, so that those in the inbox are ignored.
    by_ring: bool,
    waiting: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    numbers: HashMap<Box<str>, HostId>,
    known: HashMap<HostId, KnownPeer>,
    next: u32,
    messages: VecDeque<(HostId, ZBytes)>,
    bytes: usize,
    news: VecDeque<TransportEvent>,
}

/// The inbox of a process.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// The number of waiting messages, so that a thread sees without the lock that there are none.
    waiting: AtomicUsize,
    dropped: AtomicU64,
    from_strangers: AtomicU64,
}

impl Inbox {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // No operation under the lock can fail half-way.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// The messages that were dropped since too many waited, and those of unknown senders.
    pub(crate) fn dropped(&self) -> (u64, u64) {
        (self.dropped.load(Ordering::Relaxed), self.from_strangers.load(Ordering::Relaxed))
    }

    /// Receives a message under a key.
    pub(crate) fn push(&self, key: &str, payload: ZBytes) {
        let mut state = self.state();
        let state = &mut *state;
        let number = sender(key).and_then(|sender| state.numbers.get(sender));
        let known = number.and_then(|number| Some((*number, state.known.get_mut(number)?)));
        // The end of a host that has not announced itself would go unnoticed. The host is queried
        // once it has.
        let Some((number, known)) = known.filter(|(_, known)| known.is_present) else {
            self.from_strangers.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let size = payload.len();
        if payload.slices().next().and_then(|first| first.first()) == Some(&MARK) {
            // Switched in message order, so that no message is taken twice or skipped.
            match RingMessage::decode(&payload.to_bytes()) {
                Some(RingMessage::SwitchToRing) => known.by_ring = true,
                Some(RingMessage::SwitchBack) => known.by_ring = false,
                _ => {}
            }
        } else if known.by_ring {
            return;
        }
        let exceeds_limit = known.waiting >= OF_ONE_MAX || known.bytes + size > OF_ONE_BYTES_MAX;
        if exceeds_limit || state.bytes + size > BYTES_MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        known.waiting += 1;
        known.bytes += size;
        state.bytes += size;
        state.messages.push_back((number, payload));
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// A host has announced itself, or the engine has reported it gone.
    pub(crate) fn handle_presence(&self, key: &str, is_present: bool) {
        let mut state = self.state();
        let state = &mut *state;
        let Some(parts) = sender(key) else { return };
        let number = match state.numbers.get(parts) {
            Some(number) => *number,
            None => {
                let Some(name) = parse_sender(parts) else { return };
                if !is_present || !state.has_room() {
                    return;
                }
                let number = HostId(state.next);
                state.next += 1;
                state.numbers.insert(parts.into(), number);
                let known =
                    KnownPeer { name, is_present: false, by_ring: false, waiting: 0, bytes: 0 };
                state.known.insert(number, known);
                number
            }
        };
        let Some(known) = state.known.get_mut(&number) else { return };
        if known.is_present == is_present || state.news.len() >= NEWS_MAX {
            return;
        }
        (known.is_present, known.by_ring) = (is_present, false);
        state.news.push_back(if is_present {
            TransportEvent::Up(number)
        } else {
            TransportEvent::Down(number)
        });
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// The next message; it replaces the content of `into`.
    pub(crate) fn pop(&self, into: &mut Vec<u8>) -> Option<HostId> {
        if self.is_empty() {
            return None;
        }
        let (from, payload) = {
            let mut state = self.state();
            let (from, payload) = state.messages.pop_front()?;
            let size = payload.len();
            state.bytes -= size;
            if let Some(known) = state.known.get_mut(&from) {
                known.waiting -= 1;
                known.bytes -= size;
            }
            (from, payload)
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        into.clear();
        for slice in payload.slices() {
            into.extend_from_slice(slice);
        }
        Some(from)
    }

    /// Switches a host's messages to its ring, or back to the engine.
    pub(crate) fn set_by_ring(&self, host: HostId, by_ring: bool) {
        if let Some(known) = self.state().known.get_mut(&host) {
            known.by_ring = known.is_present && by_ring;
        }
    }

    /// Makes [`is_empty`](Self::is_empty) return false, for messages that wait elsewhere; or ends this.
    pub(crate) fn hold_open(&self, holds: bool) {
        if holds {
            self.waiting.fetch_add(1, Ordering::SeqCst);
        } else {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    pub(crate) fn pop_news(&self) -> Option<TransportEvent> {
        if self.is_empty() {
            return None;
        }
        let news = self.state().news.pop_front()?;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Some(news)
    }

    pub(crate) fn name(&self, host: HostId) -> Option<ParticipantName> {
        self.state().known.get(&host).map(|known| known.name.clone())
    }

    /// All hosts that are present now.
    pub(crate) fn hosts(&self) -> Vec<(HostId, ParticipantName)> {
        let state = self.state();
        let there = state.known.iter().filter(|(_, known)| known.is_present);
        let mut hosts: Vec<_> =
            there.map(|(number, known)| (*number, known.name.clone())).collect();
        hosts.sort_by_key(|(number, _)| *number);
        hosts
    }
}

impl State {
    /// Makes room for one more host: the oldest of those that are gone is forgotten.
    fn has_room(&mut self) -> bool {
        if self.known.len() < HOSTS_MAX {
            return true;
        }
        let gone = self.known.iter().filter(|(_, known)| !known.is_present && known.waiting == 0);
        let Some(oldest) = gone.map(|(number, _)| *number).min() else { return false };
        if let Some(known) = self.known.remove(&oldest) {
            self.numbers.remove(known.name.parts().as_str());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_floods_is_bounded_and_strangers_are_not_heard() {
        let inbox = Inbox::default();
        let (one, two) = ("selvedge/d/a/1-a", "selvedge/d/b/2-b");
        inbox.push(&format!("{one}/all"), ZBytes::from(vec![1]));
        assert!(inbox.is_empty());
        inbox.handle_presence(&format!("{one}/up"), true);
        inbox.handle_presence(&format!("{one}/up"), true);
        inbox.handle_presence(&format!("{two}/up"), true);
        assert_eq!(inbox.pop_news(), Some(TransportEvent::Up(HostId(0))));
        for _ in 0..100_000 {
            inbox.push(&format!("{one}/all"), ZBytes::from(vec![1; 8]));
        }
        inbox.push(&format!("{two}/all"), ZBytes::from(vec![2]));
        assert_eq!(inbox.dropped(), (100_000 - OF_ONE_MAX as u64, 1));
        let (mut bytes, mut count) = (Vec::new(), 0);
        while let Some(from) = inbox.pop(&mut bytes) {
            count += 1;
            assert_eq!(bytes.len(), if from == HostId(0) { 8 } else { 1 });
        }
        assert_eq!(count, OF_ONE_MAX + 1);
        inbox.handle_presence(&format!("{one}/up"), false);
        assert_eq!(inbox.pop_news(), Some(TransportEvent::Up(HostId(1))));
        assert_eq!(inbox.pop_news(), Some(TransportEvent::Down(HostId(0))));
        assert!(inbox.is_empty());
        // A host that returns keeps its number.
        inbox.handle_presence(&format!("{one}/up"), true);
        assert_eq!(inbox.pop_news(), Some(TransportEvent::Up(HostId(0))));
    }

    #[test]
    fn so_many_hosts_are_known_and_the_gone_make_room() {
        let inbox = Inbox::default();
        for host in 0..HOSTS_MAX + 10 {
            inbox.handle_presence(&format!("selvedge/d/h{host}/1-a/up"), true);
        }
        assert_eq!(inbox.hosts().len(), HOSTS_MAX);
        inbox.handle_presence("selvedge/d/h7/1-a/up", false);
        inbox.handle_presence("selvedge/d/late/1-a/up", true);
        assert!(inbox.hosts().iter().any(|(_, name)| name.name == "late"));
        for wrong in ["", "selvedge/d/x/1/up", "selvedge/d/x y/1-a/up", "selvedge/d/x/q-a/up"] {
            inbox.handle_presence(wrong, true);
        }
        assert_eq!(inbox.hosts().len(), HOSTS_MAX);
    }
}
