//! The connections through protocol stacks that carry a node's streams in place of plain UDP. Those of inline links are this
//! process's own; a coprocessor has those of its link, and reports on them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use selvedge_comm_carrier::control_server::{self, StackRequest};
use selvedge_comm_carrier::{
    Acknowledged, CarriedState, CarriedStream, LinkRate, StackError, StackHost, StackSpec, Target,
};
use selvedge_control_config::{NodeConfig, Placement, carried};
use selvedge_os::clock::Clock;
use selvedge_place_coprocessor::client::RemoteStack;
use selvedge_place_engine::engine::{Heard, StreamCarrier};
use selvedge_units::Bitrate;

/// The stacks of a node, by stream. Dropped, connections are flushed and closed.
pub(crate) struct NodeStacks {
    streams: Vec<Option<StackStream>>,
    rates: LinkRates,
    host: StackHost,
}

/// A stream that a stack carries.
struct StackStream {
    state: Arc<CarriedState>,
    end: StackEnd,
}

/// Where the connection is.
enum StackEnd {
    /// In this process.
    Here(CarriedStream),
    /// In the coprocessor of its link.
    Coprocessor(RemoteStack),
}

/// The present rates of the links that have stacks, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkRates(Vec<(String, LinkRate)>);

impl LinkRates {
    fn of(&mut self, link: &str, rate: Bitrate) -> LinkRate {
        if let Some((_, rate)) = self.0.iter().find(|(name, _)| name == link) {
            return rate.clone();
        }
        let rate = LinkRate::new(rate);
        self.0.push((link.to_owned(), rate.clone()));
        rate
    }

    /// Notes the present rate of a link: the contracts of its stacks follow it.
    pub(crate) fn set(&self, link: &str, rate: Bitrate) {
        if let Some((_, now)) = self.0.iter().find(|(name, _)| name == link) {
            now.set(rate);
        }
    }
}

impl NodeStacks {
    /// Opens an endpoint for each inline link and family that needs one, and begins to connect.
    pub(crate) fn start(
        config: &NodeConfig,
        base: &Path,
        clock: Clock,
    ) -> Result<Self, StackError> {
        let mut host = StackHost::new(format!("node {}", config.name), clock);
        let mut rates = LinkRates::default();
        let mut streams = Vec::with_capacity(config.streams.len());
        for stream in &config.streams {
            let spec = StackSpec::new(config, stream, base);
            let Some((spec, stack)) = spec.zip(stream.stack.as_ref()) else {
                streams.push(None);
                continue;
            };
            let link = &config.links[stream.link];
            let fit = carried(stack, link, stream.spec.to);
            let state = Arc::<CarriedState>::default();
            let end = if link.placement == Placement::Inline {
                let (name, to) = (stream.spec.name.clone(), stream.spec.to);
                let target = Target { name, to, fit, rate: rates.of(&link.name, link.rate) };
                StackEnd::Here(host.carry(&spec, target, Arc::clone(&state))?)
            } else {
                StackEnd::Coprocessor(RemoteStack::new(spec, fit, Arc::clone(&state)))
            };
            streams.push(Some(StackStream { state, end }));
        }
        Ok(Self { streams, rates, host })
    }

    fn stream(&self, stream: usize) -> Option<&StackStream> {
        self.streams.get(stream)?.as_ref()
    }

    /// The carrier of a stream of an inline link, if not the engine's sockets; streams are numbered as in the node file.
    pub(crate) fn carried(&self, stream: usize) -> Option<StreamCarrier> {
        match &self.stream(stream)?.end {
            StackEnd::Here(carried) => Some(carried.carrier()),
            StackEnd::Coprocessor(_) => None,
        }
    }

    /// The stack that the coprocessor of a stream's link has to connect.
    pub(crate) fn remote(&self, stream: usize) -> Option<RemoteStack> {
        match &self.stream(stream)?.end {
            StackEnd::Here(_) => None,
            StackEnd::Coprocessor(stack) => Some(stack.clone()),
        }
    }

    /// All endpoints as they are now, those of coprocessors included, in JSON; `None` if there are none.
    pub(crate) fn listed(&self) -> Option<Arc<str>> {
        let mut views = self.host.views();
        let pids: BTreeSet<u32> =
            self.streams.iter().flatten().filter_map(StackStream::pid).collect();
        for pid in pids {
            // One that is gone has no endpoints.
            let found = control_server::request(pid, &StackRequest::Look).ok().flatten();
            views.extend(found.into_iter().flat_map(|process| process.endpoints));
        }
        if views.is_empty() {
            return None;
        }
        serde_json::to_string(&views).ok().map(Into::into)
    }

    /// Why a stream's packets are not carried, if they are not.
    pub(crate) fn problem(&self, stream: usize) -> Option<String> {
        self.stream(stream)?.state.problem()
    }

    /// What is wrong with the contract of a stream whose packets are carried, if anything is.
    pub(crate) fn remark(&self, stream: usize) -> Option<String> {
        self.stream(stream)?.state.remark()
    }

    /// Where the present rates of links are noted.
    pub(crate) fn rates(&self) -> LinkRates {
        self.rates.clone()
    }

    /// The reports of a stream's receivers; `None` if no stack carries it.
    pub(crate) fn acknowledged<T>(
        &self,
        stream: usize,
        read: impl FnOnce(&Acknowledged) -> T,
    ) -> Option<T> {
        Some(self.stream(stream)?.state.acknowledged(read))
    }

    /// What the receivers of streams report, by the streams' places in the node file.
    pub(crate) fn heard_by(&self, clock: Clock) -> impl Fn(usize) -> Heard + Send + use<> {
        let states: Vec<_> =
            self.streams.iter().map(|one| Some(Arc::clone(&one.as_ref()?.state))).collect();
        move |stream| match states.get(stream) {
            Some(Some(state)) => state.heard(clock.now()),
            _ => Heard::default(),
        }
    }

    /// Whether all receivers are connected.
    pub(crate) fn all_connected(&self) -> bool {
        (0..self.streams.len()).all(|stream| self.problem(stream).is_none())
    }
}

impl StackStream {
    /// The coprocessor that has its connection, if there is one.
    fn pid(&self) -> Option<u32> {
        match &self.end {
            StackEnd::Here(_) => None,
            StackEnd::Coprocessor(stack) => stack.pid(),
        }
    }
}

impl Drop for NodeStacks {
    fn drop(&mut self) {
        // Each takes a moment to notice, so all are requested to stop before one is waited for.
        for stream in self.streams.iter().flatten() {
            if let StackEnd::Here(carried) = &stream.end {
                carried.request_stop();
            }
        }
        self.streams.clear();
    }
}
