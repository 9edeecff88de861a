//! Messages of a program over a protocol stack of the product, and an account of what the stack promises.
//!
//! A message shows its number in each part of it, so that what arrives is compared with what was sent, and a
//! datagram that shows some of an encrypted message is found. Datagrams go to the network and come from it, with
//! wrong bits too, as to a socket without checksums; an attacker's come in flows of their own.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use selvedge_data_net_line::{Packet, Random};
use selvedge_data_stack::compose::{BuildError, Composition, Step};
use selvedge_data_stack::deliver::Order;
use selvedge_data_stack::module::{Cipher, Key, Keys, Reason};
use selvedge_data_stack::stack::{ConnectionModules, SendError, Stack};
use selvedge_units::{Bytes, Duration, Instant};

use crate::endpoint::Endpoint;
use crate::packet::{Datagram, FlowId, Payload};
use crate::promise::{Breach, Promise};
use crate::results::Flow;

/// What each part of a message begins with; no noise of 8 bytes is like it.
const MARK: &[u8; 8] = b"in clear";
/// Of each part: the mark, the message's number, and the part's.
const PART: usize = 20;
/// So many numbers of received messages are kept, the latest.
const SEEN_MAX: usize = 100_000;
/// So many datagrams may be replayed.
const WIRE_MAX: usize = 64;
/// So many breaches of an end are kept.
const BREACHES_MAX: usize = 4;
/// Until then what is not acknowledged is sent again, or the peer is given up: of `reliable`.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The latest datagrams that an end sent, for an attacker who sees them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire(Rc<RefCell<VecDeque<Arc<[u8]>>>>);

impl Wire {
    pub(super) fn record(&self, datagram: &Arc<[u8]>) {
        let mut latest = self.0.borrow_mut();
        latest.push_back(Arc::clone(datagram));
        if latest.len() > WIRE_MAX {
            latest.pop_front();
        }
    }

    /// One of them.
    pub(super) fn any(&self, random: &mut Random) -> Option<Arc<[u8]>> {
        let latest = self.0.borrow();
        (!latest.is_empty())
            .then(|| Arc::clone(&latest[random.below(latest.len() as u64) as usize]))
    }
}

/// Who sends how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The modules at both ends.
    pub stack: Composition,
    /// When the first message is sent, at both ends.
    pub start: Instant,
    /// After this no message is sent.
    pub until: Instant,
    /// From one message to the next.
    pub every: Duration,
    /// Of each message; at least 20 B.
    pub size: Bytes,
}

/// A program at an end of a stack.
#[derive(Debug)]
pub struct Messages {
    program: Program,
    stack: Stack,
    sends: FlowId,
    receives: FlowId,
    /// In which nothing comes that the other end has sent.
    forged: Vec<FlowId>,
    next: Instant,
    sent: u64,
    received: u64,
    /// The numbers that arrived, and what follows the largest.
    seen: BTreeSet<u64>,
    beyond: u64,
    wire: Wire,
    breaches: Vec<Breach>,
}

pub(super) fn message(number: u64, size: usize) -> Vec<u8> {
    let part = |n: u32| [&MARK[..], &number.to_be_bytes(), &n.to_be_bytes()].concat();
    let parts = (0..size.div_ceil(PART) as u32).flat_map(part);
    parts.take(size).collect()
}

/// The number of a message that is as it was sent.
pub(super) fn number_of(bytes: &[u8], size: usize) -> Option<u64> {
    let number = bytes.get(MARK.len()..)?.first_chunk().copied().map(u64::from_be_bytes)?;
    (bytes == message(number, size)).then_some(number)
}

/// The keys of the first end.
fn keys() -> Keys {
    Keys { send: Key([1; 32]), receive: Key([2; 32]) }
}

fn stack(composition: &Composition, flow: FlowId, keys: &Keys) -> Result<Stack, BuildError> {
    Ok(Stack::new(ConnectionModules::new(composition, flow.0 as u32, Some(keys))?))
}

/// The cipher, if nothing gets past the encryption: it stands at the network end.
fn sealing(composition: &Composition) -> Option<Cipher> {
    match composition.steps() {
        [.., Step::Encrypt(cipher), Step::Net(_)] => Some(*cipher),
        _ => None,
    }
}

/// What seals with another key, for an attacker of this connection. Where something works below the encryption, a
/// forged header of it is believed, and nothing is promised.
pub(crate) fn forger(composition: &Composition, flow: FlowId) -> Option<Box<Stack>> {
    let line = format!("ui | unreliable | encrypt({}) | net", sealing(composition)?.name());
    let keys = Keys { send: Key([3; 32]), receive: Key([4; 32]) };
    stack(&line.parse().ok()?, flow, &keys).ok().map(Box::new)
}

impl Messages {
    /// The two ends; the first sends the first flow, and the second receives it. The flow's number is the
    /// connection's.
    ///
    /// # Errors
    /// None that a composition can have.
    pub fn pair(program: &Program, [there, back]: [FlowId; 2]) -> Result<[Self; 2], BuildError> {
        let end = |keys: Keys, sends, receives| -> Result<Self, BuildError> {
            Ok(Self {
                stack: stack(&program.stack, there, &keys)?,
                program: program.clone(),
                sends,
                receives,
                forged: Vec::new(),
                next: program.start,
                sent: 0,
                received: 0,
                seen: BTreeSet::new(),
                beyond: 0,
                wire: Wire::default(),
                breaches: Vec::new(),
            })
        };
        Ok([end(keys(), there, back)?, end(keys().swapped(), back, there)?])
    }

    /// The datagrams that this end sends.
    pub(crate) fn wire(&self) -> Wire {
        self.wire.clone()
    }

    /// Makes it expect an attacker: in this flow nothing comes that the other end has sent.
    pub(crate) fn expect_forged(&mut self, flow: FlowId) {
        self.forged.push(flow);
    }

    /// The flow of its datagrams.
    pub(crate) const fn flow(&self) -> FlowId {
        self.sends
    }

    /// The promises that this end broke to messages that its peer sent, if the run ended now. `is_whole` is whether
    /// every packet of both arrived by now.
    pub(crate) fn breaches(&self, peer: &Self, is_whole: bool, now: Instant) -> Vec<Breach> {
        let mut breaches = self.breaches.clone();
        let Self { received, beyond, .. } = *self;
        let mut add = |promise, what| breaches.push(Breach { promise, what });
        if beyond > peer.sent {
            let what = format!("message {} of {} arrived", beyond - 1, peer.sent);
            add(self.promise(), what);
        }
        let is_reliable = self.program.stack.order() == Order::InOrder;
        // What is sent again is sealed anew; nothing else comes twice to a transport above the encryption.
        let twice = self.stack.line().connection().dropped(Reason::Duplicate);
        if !is_reliable && sealing(&self.program.stack).is_some() && twice > 0 {
            add(Promise::OpensOnce, format!("{twice} datagrams opened twice"));
        }
        if is_reliable && is_whole && received < peer.sent {
            let what = format!("{received} of {} messages, though no packet was lost", peer.sent);
            add(Promise::Arrives, what);
        }
        let again = self.stack.poll_timeout().filter(|at| *at <= now + TIMEOUT);
        if !self.stack.is_acknowledged() && again.is_none() {
            let what =
                "a message that is not acknowledged is neither sent again nor given up".to_owned();
            add(Promise::Arrives, what);
        }
        breaches
    }

    /// What a message that comes twice, or was not sent, breaks.
    fn promise(&self) -> Promise {
        match (self.program.stack.order(), self.program.stack.cipher()) {
            (Order::InOrder, _) => Promise::InOrder,
            (_, Some(_)) => Promise::OpensOnce,
            _ => Promise::Once,
        }
    }

    fn breach(&mut self, promise: Promise, what: String) {
        if self.breaches.len() < BREACHES_MAX {
            self.breaches.push(Breach { promise, what });
        }
    }

    fn refused(&self) -> u64 {
        let connection = self.stack.line().connection();
        Reason::ALL.iter().map(|why| connection.dropped(*why)).sum()
    }

    fn handle_datagram(&mut self, now: Instant, bytes: &[u8], is_authentic: bool) {
        let before = self.refused();
        self.stack.handle_datagram(now, bytes);
        let refused = self.refused() - before;
        if !is_authentic && refused != 1 {
            let what =
                format!("a datagram of {} B that nobody sent: {refused} refused", bytes.len());
            self.breach(Promise::Counted, what);
        }
        self.take_messages();
    }

    fn take_messages(&mut self) {
        while let Some(message) = self.stack.poll_message() {
            match number_of(message.bytes(), self.program.size.0 as usize) {
                Some(number) => self.take(number),
                None => {
                    let is_encrypted = self.program.stack.cipher().is_some();
                    let promise = if is_encrypted { Promise::OpensOnce } else { self.promise() };
                    self.breach(promise, format!("{} B that were not sent", message.len()));
                }
            }
            self.stack.recycle(message);
        }
    }

    fn take(&mut self, number: u64) {
        let is_right = match self.program.stack.order() {
            Order::InOrder => number == self.beyond,
            Order::NoOvertaking => number >= self.beyond,
            Order::Unordered => !self.seen.contains(&number),
        };
        if !is_right {
            let what = format!("message {number} arrived after {} others", self.received);
            self.breach(self.promise(), what);
        }
        self.received += 1;
        self.beyond = self.beyond.max(number.saturating_add(1));
        self.seen.insert(number);
        if self.seen.len() > SEEN_MAX {
            self.seen.pop_first();
        }
    }
}

impl Endpoint for Messages {
    fn handle_packet(&mut self, now: Instant, packet: Packet<Datagram>) {
        if let Payload::Bytes(bytes) = packet.payload.payload {
            let is_authentic = !self.forged.contains(&FlowId(packet.flow));
            self.handle_datagram(now, &bytes, is_authentic);
        }
    }

    fn handle_damaged(&mut self, now: Instant, packet: Packet<Datagram>, bit: u64) {
        // What an attacker changed may be made good.
        if self.forged.contains(&FlowId(packet.flow)) {
            return;
        }
        if let Some(bytes) = packet.payload.with_wrong_bit(bit) {
            self.handle_datagram(now, &bytes, false);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.stack.handle_timeout(now);
        if self.next <= now.min(self.program.until) {
            self.next += self.program.every.max(Duration(1));
            let bytes = message(self.sent, self.program.size.0 as usize);
            match self.stack.handle_message(now, &bytes) {
                Ok(()) => self.sent += 1,
                Err(SendError::Full) => {}
                Err(_) => self.next = Instant::MAX,
            }
        }
        self.take_messages();
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Packet<Datagram>> {
        let datagram = self.stack.poll_transmit()?;
        let bytes: Arc<[u8]> = Arc::from(datagram.bytes());
        self.stack.recycle(datagram);
        if self.program.stack.cipher().is_some() && bytes.windows(MARK.len()).any(|at| at == MARK) {
            self.breach(
                Promise::Secret,
                format!("a datagram of {} B shows a message", bytes.len()),
            );
        }
        self.wire.record(&bytes);
        Some(Datagram::udp(self.sends, bytes))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let next = (self.next <= self.program.until).then_some(self.next);
        self.stack.poll_timeout().into_iter().chain(next).min()
    }

    fn report(&self, flows: &mut [Flow]) {
        if let Some(flow) = flows.get_mut(self.receives.0 as usize) {
            flow.useful = Some(Bytes(self.received * self.program.size.0));
        }
    }
}
