//! A stream's connection: made when the stream begins, and again whenever it breaks off. The link's engine passes a packet
//! on when it may leave; here it becomes a message of the connection. Without a connection packets are lost, as they are on
//! a network without receiver.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use selvedge_comm_stack::endpoint::{ConnectError, Connection, Endpoint, RecvError, block_on_for};
use selvedge_data_stack::auto::Event;
use selvedge_data_stack::module::Direction;
use selvedge_data_stream::ReceiverReport;
use selvedge_os::clock::Clock;
use selvedge_os::keeper::Stop;
use selvedge_place_engine::engine::Carrier;
use selvedge_units::{Bitrate, Duration};

use crate::carried_state::CarriedState;
use crate::contract_terms::{ContractTerms, refused};

/// The first wait before a receiver is called again, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The shortest time between two new connections after `unknown` messages.
const AGAIN: Duration = Duration::from_millis(250);
/// How often a connection is polled.
pub(crate) const POLL_EVERY: Duration = Duration::from_millis(50);
/// A contract follows the link's rate if that has changed by more than so many hundredths.
const CHANGED_BY: u64 = 10;

/// A stream's connection, when there is one.
#[derive(Debug)]
pub(crate) struct StreamConnection {
    pub(crate) name: String,
    pub(crate) to: SocketAddr,
    pub(crate) modules: String,
    pub(crate) terms: ContractTerms,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) connection: Mutex<Option<Arc<Connection>>>,
    pub(crate) state: Arc<CarriedState>,
    pub(crate) clock: Clock,
}

impl Carrier for StreamConnection {
    fn carry(&self, packet: &[u8]) -> bool {
        let connection = self.connection.lock().clone();
        connection.is_some_and(|connection| connection.send(packet, Duration::ZERO).is_ok())
    }
}

impl StreamConnection {
    /// Connects, and connects again, until requested to stop.
    pub(crate) fn maintain(&self, stop: &Stop) {
        let mut wait = RETRY.0;
        while !stop.is_requested() {
            let why = match self.connect(stop) {
                Some(Ok(connection)) => {
                    wait = RETRY.0;
                    tracing::info!(stream = self.name, to = %self.to, "stack connected");
                    match self.watch(connection, stop) {
                        Some(why) => why.to_string(),
                        None => return,
                    }
                }
                Some(Err(why)) => refused(self.terms.share(), &why),
                None => return,
            };
            if self.state.set_problem(&why) {
                tracing::warn!(stream = self.name, to = %self.to, why, "stack not connected");
            }
            stop.pause(wait);
            wait = (wait * 2).min(RETRY.1);
        }
    }

    /// A connection, or the error; `None` when requested to stop.
    fn connect(&self, stop: &Stop) -> Option<Result<Connection, ConnectError>> {
        let [out, back] = self.terms.contracts(self.terms.share());
        let mut connecting = self.endpoint.connect_async(self.to, &self.modules, out, back);
        while !stop.is_requested() {
            if let Some(outcome) = block_on_for(&mut connecting, POLL_EVERY) {
                return Some(outcome);
            }
        }
        None
    }

    /// Lends the connection to the engine until it ends, and returns the reason; `None` when requested
    /// to stop.
    fn watch(&self, connection: Connection, stop: &Stop) -> Option<RecvError> {
        let mut connection = Arc::new(connection);
        *self.connection.lock() = Some(Arc::clone(&connection));
        self.state.connected(self.clock.now());
        let mut ended = None;
        let mut agreed = self.terms.share();
        let mut message = Vec::new();
        let mut again_at = self.clock.now();
        while ended.is_none() && !stop.is_requested() {
            stop.pause(POLL_EVERY);
            // Receivers send reports and nothing else.
            match connection.recv(&mut message, Duration::ZERO) {
                Ok(()) => {
                    if let Some(report) = ReceiverReport::from_bytes(&message) {
                        self.state.reported(self.clock.now(), report);
                    }
                }
                Err(RecvError::Timeout) => {}
                Err(why) => ended = Some(why),
            }
            self.note_events(&connection);
            let share = self.terms.share();
            if share.0.abs_diff(agreed.0) > agreed.0 / CHANGED_BY {
                self.renegotiate(&connection, share, stop);
                agreed = share;
            }
            // The receiver may have been killed and started again. Any sender can forge such a message,
            // so packets use this connection until there is another.
            if self.clock.now() >= again_at && connection.take_unknown() {
                if let Some(Ok(other)) = self.connect(stop) {
                    let before = std::mem::replace(&mut connection, Arc::new(other));
                    *self.connection.lock() = Some(Arc::clone(&connection));
                    self.state.connected(self.clock.now());
                    // Closing waits for the peer, which may be gone.
                    let closing = thread::Builder::new().name("stack close".to_owned());
                    let _ = closing.spawn(move || drop(before));
                    ended = None;
                }
                again_at = self.clock.now() + AGAIN;
            }
        }
        *self.connection.lock() = None;
        self.state.disconnected();
        ended
    }

    /// Notes what happens to the contract of the stream's packets.
    fn note_events(&self, connection: &Connection) {
        for (_, event) in connection.events().into_iter().filter(|(to, _)| *to == Direction::Down) {
            let remark = match event {
                Event::Broken { what, .. } => Some(format!("its firm delay is not kept: {what}")),
                Event::Policed { refusal, .. } => {
                    Some(format!("it is held to its contract: {refusal}"))
                }
                Event::Mended { .. } | Event::Released { .. } => None,
                _ => continue,
            };
            self.set_remark(remark);
        }
    }

    /// Agrees on the contract of another share of the link; the old one holds if a host refuses that.
    fn renegotiate(&self, connection: &Connection, share: Bitrate, stop: &Stop) {
        let [out, _] = self.terms.contracts(share);
        let mut asking = connection.renegotiate_async(Direction::Down, out);
        while !stop.is_requested() {
            if let Some(outcome) = block_on_for(&mut asking, POLL_EVERY) {
                let error = outcome.err();
                self.set_remark(error.map(|why| refused(share, &why)));
                return;
            }
        }
    }

    fn set_remark(&self, remark: Option<String>) {
        if let Some(remark) = &remark {
            tracing::warn!(stream = self.name, remark, "the contract of a stack is not kept");
        }
        self.state.set_remark(remark);
    }
}
