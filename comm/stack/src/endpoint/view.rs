//! An outside view of an endpoint: its elements, and its connections with their modules.

use std::sync::atomic::Ordering;

use selvedge_data_stack::auto::MeasuredDelay;
use selvedge_data_stack::contract::Promise;
use selvedge_data_stack::model::StreamId;
use selvedge_data_stack::module::{Direction, Reason};
use serde::{Deserialize, Serialize};

use super::open::ConnectionState;
use super::shared::Shared;
use super::tune::MetaView;
use crate::reservation::Granted;
use crate::sync::lock;
use crate::threads::ElementCounts;

/// An endpoint at one moment. Counters start with the endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndpointView {
    /// The address of its socket.
    pub address: String,
    /// Its elements, by number.
    pub elements: Vec<ElementView>,
    /// Its connections, by peer and number.
    pub connections: Vec<ConnectionView>,
    /// Datagrams that belong to no connection.
    pub strangers: u64,
    /// Hellos that were refused.
    pub refused: u64,
    /// Whether all of its traffic is sealed.
    #[serde(default)]
    pub encrypted: bool,
    /// Dropped datagrams of handshakes, by reason; only reasons that occurred.
    #[serde(default)]
    pub dropped: Vec<(String, u64)>,
    /// The number of times that the manager assigned streams anew.
    pub reassigned: u64,
    /// How the manager decides.
    #[serde(default)]
    pub meta: MetaView,
    /// The processor time that was granted to its threads, in words.
    #[serde(default)]
    pub reservation: Option<String>,
    /// Why the requested processor time was not granted.
    #[serde(default)]
    pub unreserved: Option<String>,
}

/// A processing element.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementView {
    /// The modules that it serves, of all connections and in both directions.
    pub modules: u64,
    /// Messages that it dequeued. A message that passes several modules on the same element counts once.
    pub messages: u64,
    /// The system's number of its thread.
    #[serde(default)]
    pub thread: i32,
    /// Turns of its thread that found no message.
    #[serde(default)]
    pub empty_polls: u64,
    /// The time that these took, in nanoseconds.
    #[serde(default)]
    pub polling_ns: u64,
    /// How often its thread went on after a sleep.
    #[serde(default)]
    pub wake_ups: u64,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConnectionView {
    /// Its number, the same at both ends.
    pub id: u32,
    /// The other end.
    pub peer: String,
    /// Its stack's line.
    pub stack: String,
    /// Its modules, from the application down.
    pub modules: Vec<ModuleView>,
    /// The stream that the application sends.
    pub out: FlowView,
    /// The stream that it receives.
    pub back: FlowView,
    /// The static key of the other end.
    #[serde(default)]
    pub identity: Option<String>,
    /// Messages that this end dropped, by reason; only reasons that occurred.
    pub dropped: Vec<(String, u64)>,
    /// How the manager decides about it, if not as about others.
    #[serde(default)]
    pub meta: Option<MetaView>,
}

/// A module of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleView {
    /// The module as the line states it.
    pub module: String,
    /// Elements that serve it on the way down.
    pub down: Vec<u8>,
    /// Elements that serve it on the way up.
    pub up: Vec<u8>,
    /// Messages that wait before it on the way down.
    pub waiting_down: u64,
    /// Messages that wait before it on the way up.
    pub waiting_up: u64,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowView {
    /// Messages so far.
    pub messages: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// The longest that a message takes on this host by the model, in nanoseconds.
    pub guaranteed_ns: u64,
    /// Whether this guarantee keeps the contract.
    pub kept: bool,
    /// Whether the stream exceeds its contract and is policed.
    pub policed: bool,
    /// Whether the guarantee is firm, and not an estimate.
    #[serde(default)]
    pub firm: bool,
    /// The contract that holds, in words.
    #[serde(default)]
    pub contract: String,
    /// The mean time that its messages took on this host, in nanoseconds.
    #[serde(default)]
    pub mean_ns: u64,
    /// The 99th percentile of the same.
    #[serde(default)]
    pub p99_ns: u64,
    /// The longest.
    #[serde(default)]
    pub worst_ns: u64,
    /// Messages that took longer than is guaranteed.
    #[serde(default)]
    pub late: u64,
}

impl Shared {
    pub(super) fn view(&self) -> EndpointView {
        let named = |(why, count): (&str, u64)| (why.to_owned(), count);
        let text = |granted: &Granted| granted.to_string();
        let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
        let mut state = self.connections.lock();
        let mut connections: Vec<_> =
            state.endpoint.connections().map(|(id, open)| self.connection(id, open)).collect();
        let dropped = state.endpoint.handshakes().counts();
        drop(state);
        connections.sort_by(|a, b| (&a.peer, a.id).cmp(&(&b.peer, b.id)));
        let threads = self.elements.tids().iter().copied();
        let element = |(thread, counts): (i32, &ElementCounts)| ElementView {
            modules: 0,
            messages: count(&counts.messages),
            thread,
            empty_polls: count(&counts.empty_polls),
            polling_ns: count(&counts.polling),
            wake_ups: count(&counts.wake_ups),
        };
        let mut elements: Vec<_> = threads.zip(self.elements.counts()).map(element).collect();
        let modules = connections.iter().flat_map(|connection| &connection.modules);
        for &id in modules.flat_map(|module| module.down.iter().chain(&module.up)) {
            if let Some(element) = elements.get_mut(usize::from(id)) {
                element.modules += 1;
            }
        }
        EndpointView {
            address: self.address.to_string(),
            elements,
            connections,
            strangers: count(&self.counters.strangers),
            refused: count(&self.counters.refused),
            encrypted: self.options.identity.is_sealed(),
            dropped: dropped.by_reason().map(named).collect(),
            reassigned: count(&self.counters.reassigned),
            meta: lock(&self.manager).meta().into(),
            reservation: self.reservation.as_ref().ok().and_then(Option::as_ref).map(text),
            unreserved: self.reservation.as_ref().err().map(ToString::to_string),
        }
    }

    fn connection(&self, id: u32, open: &ConnectionState) -> ConnectionView {
        let work = open.pipeline.work();
        let composition = work.line.composition();
        let waiting = open.pipeline.waiting();
        let modules = composition.steps().iter().zip(waiting).enumerate();
        let modules = modules.map(|(place, (step, (down, up)))| {
            let at = |way| open.pipeline.assigned(place, way).iter().map(|id| id.0).collect();
            ModuleView {
                module: step.to_string(),
                down: at(Direction::Down),
                up: at(Direction::Up),
                waiting_down: down,
                waiting_up: up,
            }
        });
        let drops = |why: Reason| (why.name().to_owned(), work.line.connection().dropped(why));
        let [out, back] = [0, 1].map(|way| {
            let (messages, bytes) = work.flows[way].totals();
            let flow = FlowView { messages, bytes, ..FlowView::default() };
            self.flow(open.streams[way], flow, work.monitors[way].measured())
        });
        ConnectionView {
            id,
            peer: work.peer.to_string(),
            stack: composition.to_string(),
            modules: modules.collect(),
            out,
            back,
            identity: open.identity.map(|key| key.to_string()),
            dropped: Reason::ALL.into_iter().map(drops).filter(|(_, count)| *count > 0).collect(),
            meta: lock(&self.manager).own_settings(open.streams[0]).map(Into::into),
        }
    }

    fn flow(&self, stream: StreamId, counted: FlowView, measured: MeasuredDelay) -> FlowView {
        let manager = lock(&self.manager);
        let (granted, contract) = (manager.granted(stream), manager.declared(stream));
        drop(manager);
        let granted = granted.unwrap_or_default();
        FlowView {
            guaranteed_ns: granted.guarantee.latency.0,
            kept: granted.guarantee.delay_kept,
            policed: granted.policed,
            firm: contract.is_some_and(|contract| contract.quality.promise == Promise::Firm),
            contract: contract.map(|contract| contract.to_string()).unwrap_or_default(),
            mean_ns: measured.mean.0,
            p99_ns: measured.p99.0,
            worst_ns: measured.worst.0,
            late: measured.late,
            ..counted
        }
    }
}
