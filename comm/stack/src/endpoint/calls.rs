//! Who waits for an answer of another host: the way is measured, then hellos are said until there is one.
//!
//! The endpoint's thread says them and puts answers down here; a `ConnectFuture` is woken for each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::task::Waker;

use selvedge_units::{Duration, Instant};

use crate::sync::lock;
use crate::wire;

/// How often a hello is said, and how long between.
const HELLOS: u32 = 30;
const WAIT: Duration = Duration::from_millis(100);
/// So many probes measure the way, of which the fastest counts; no more are begun after this time.
const PROBES: u32 = 4;
const PROBING: Duration = Duration::from_millis(2);
/// Answers kept until they are looked at: more than questions are not.
const ANSWERS_MAX: usize = 4;

/// A welcome or a refusal, and what is in it.
pub(super) type Answer = (u8, Vec<u8>);

/// Who waits for an answer.
#[derive(Debug)]
struct PendingCall {
    /// What is said: a probe, and then the hello.
    tokens: Vec<u8>,
    probe: PathProbe,
    to: SocketAddr,
    attempts: u32,
    retry_at: Instant,
    answers: Vec<Answer>,
    waker: Option<Waker>,
}

/// How long the way is.
#[derive(Debug, Default)]
struct PathProbe {
    /// What the echo of the last probe has in it, and when it was said.
    nonce: u64,
    sent_at: Instant,
    /// Since when it is measured.
    begun: Instant,
    echoes: u32,
    /// There and back, the shortest so far.
    shortest: Option<Duration>,
    is_known: bool,
}

impl PathProbe {
    /// A probe, said now.
    fn probe(&mut self, id: u32, now: Instant) -> Vec<u8> {
        (self.nonce, self.sent_at) = (wire::random() as u64, now);
        wire::datagram(wire::PROBE, id, &self.nonce.to_be_bytes())
    }
}

/// All that wait for answers, by connection.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<HashMap<u32, PendingCall>>);

impl Calls {
    /// Nobody will look any more: those that wait are given up.
    pub(super) fn end(&self) {
        let over: Vec<PendingCall> = lock(&self.0).drain().map(|(_, caller)| caller).collect();
        over.into_iter().filter_map(|caller| caller.waker).for_each(Waker::wake);
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// An answer came.
    pub(super) fn handle_answer(&self, id: u32, kind: u8, payload: &[u8]) {
        let mut calls = lock(&self.0);
        let Some(caller) = calls.get_mut(&id) else { return };
        if caller.answers.len() < ANSWERS_MAX {
            caller.answers.push((kind, payload.to_vec()));
        }
        let waker = caller.waker.take();
        drop(calls);
        waker.into_iter().for_each(Waker::wake);
    }

    /// A probe came back: the next, or the way is known.
    pub(super) fn handle_echo(
        &self,
        id: u32,
        payload: &[u8],
        now: Instant,
        send: impl FnOnce(&[u8], SocketAddr),
    ) {
        let mut calls = lock(&self.0);
        let Some(caller) = calls.get_mut(&id) else { return };
        let way = &mut caller.probe;
        if way.is_known || payload != way.nonce.to_be_bytes() {
            return;
        }
        let took = now.since(way.sent_at);
        way.shortest = Some(way.shortest.map_or(took, |least| least.min(took)));
        way.echoes += 1;
        if way.echoes < PROBES && now.since(way.begun) < PROBING {
            caller.tokens = way.probe(id, now);
            caller.retry_at = now + WAIT;
            send(&caller.tokens, caller.to);
            return;
        }
        way.is_known = true;
        // Nothing is said until there is a hello.
        caller.retry_at = Instant::MAX;
        let waker = caller.waker.take();
        drop(calls);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Says again what is due; wakes those for whom it has been said often enough.
    pub(super) fn retransmit(&self, now: Instant, send: impl Fn(&[u8], SocketAddr)) {
        let mut over = Vec::new();
        for (&id, caller) in lock(&self.0).iter_mut().filter(|(_, caller)| now >= caller.retry_at) {
            if caller.attempts < HELLOS {
                (caller.attempts, caller.retry_at) = (caller.attempts + 1, now + WAIT);
                if !caller.probe.is_known {
                    caller.tokens = caller.probe.probe(id, now);
                }
                send(&caller.tokens, caller.to);
            } else {
                over.extend(caller.waker.take());
            }
        }
        over.into_iter().for_each(Waker::wake);
    }

    /// Begins to wait for answers of this host; the first probe, or `None` if the number is
    /// another's, which happens once in four billion calls.
    pub(super) fn begin(&self, id: u32, to: SocketAddr, now: Instant) -> Option<Vec<u8>> {
        let mut way = PathProbe { begun: now, ..PathProbe::default() };
        let tokens = way.probe(id, now);
        let (answers, again, first) = (Vec::new(), now + WAIT, tokens.clone());
        let caller = PendingCall {
            tokens,
            probe: way,
            to,
            attempts: 1,
            retry_at: again,
            answers,
            waker: None,
        };
        match lock(&self.0).entry(id) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(entry) => _ = entry.insert(caller),
        }
        Some(first)
    }

    /// Says the hello, now that it is known how long the way is.
    pub(super) fn send_hello(
        &self,
        id: u32,
        hello: Vec<u8>,
        now: Instant,
        send: impl FnOnce(&[u8], SocketAddr),
    ) {
        if let Some(caller) = lock(&self.0).get_mut(&id) {
            send(&hello, caller.to);
            (caller.tokens, caller.attempts) = (hello, 1);
            caller.retry_at = now + WAIT;
        }
    }

    /// What has come for a connection, whose task is woken for what comes next; `None` if nobody
    /// will look any more.
    pub(super) fn progress(&self, id: u32, waker: &Waker, now: Instant) -> Option<Progress> {
        let mut calls = lock(&self.0);
        let caller = calls.get_mut(&id)?;
        caller.waker = Some(waker.clone());
        Some(Progress {
            answers: std::mem::take(&mut caller.answers),
            is_over: caller.attempts >= HELLOS && now >= caller.retry_at,
            there_and_back: caller.probe.shortest.filter(|_| caller.probe.is_known),
        })
    }

    /// Nobody waits for an answer any more.
    pub(super) fn remove(&self, id: u32) {
        lock(&self.0).remove(&id);
    }
}

/// What has come for a connection in the making.
pub(super) struct Progress {
    pub(super) answers: Vec<Answer>,
    /// The hello has been said as often as it will be.
    pub(super) is_over: bool,
    /// How long the way is, once that is known.
    pub(super) there_and_back: Option<Duration>,
}
